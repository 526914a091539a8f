"""What would start a waiting job, and when it is expected to start: the cores run forward on a branch of the state."""
