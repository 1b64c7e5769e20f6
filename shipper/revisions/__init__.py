"""The life of a revision, and what ends its drain."""
