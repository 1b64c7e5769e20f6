"""The formats of `parse`. A module has one format, or what several of them share."""
