"""The pure part of admission."""
