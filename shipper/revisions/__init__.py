"""The life of a revision, and the ways to end its drain."""
