"""One request: what goes together, what is asked, and what its answers mean."""
