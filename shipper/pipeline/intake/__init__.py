"""The way in: inputs run, and what they emit becomes durable under the active revision."""
