"""A job moves to other nodes while it lives: its next attempt takes over the state of this one (see README)."""
