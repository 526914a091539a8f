"""The pure part of placement."""
