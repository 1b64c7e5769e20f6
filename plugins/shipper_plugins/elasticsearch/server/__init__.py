"""What the input receives and answers, and the connections; without its settings."""
