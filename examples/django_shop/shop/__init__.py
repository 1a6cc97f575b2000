"""The project."""
