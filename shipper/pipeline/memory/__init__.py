"""What lanes share: memory for what they send, and the slots of those that drain."""
