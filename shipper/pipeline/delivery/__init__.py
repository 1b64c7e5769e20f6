"""The way out: lanes take what is durable to their destinations."""
