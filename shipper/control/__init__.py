"""The conversation with a supervisor, and its actions."""
