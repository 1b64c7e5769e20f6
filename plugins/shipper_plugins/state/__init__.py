"""The input `state`: files of directories are keyed state."""
