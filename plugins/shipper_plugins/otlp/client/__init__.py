"""What the output sends by, and what the answers mean; without its settings."""
