"""The pure part of introspection."""
