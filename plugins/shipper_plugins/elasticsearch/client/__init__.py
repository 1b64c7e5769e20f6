"""What the output sends, where, and what the answers mean; without its settings."""
