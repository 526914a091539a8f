"""Where the world is touched."""
