"""What the input receives by; without its settings."""
