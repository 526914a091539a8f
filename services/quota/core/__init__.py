"""The pure part of quota."""
