"""A policy's text becomes checked settings of installed plugins."""
