"""The pure part of migration."""
