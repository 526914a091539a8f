"""The pure part of failure analysis."""
