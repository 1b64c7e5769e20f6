"""Turns a policy's text into checked settings of installed plugins."""
