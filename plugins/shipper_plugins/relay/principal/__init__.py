"""The receiving side, which is the input: who may send, and what is known of each edge."""
