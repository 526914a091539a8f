"""Sessions inside a task: commands and terminals beside its processes, and connections to ports of the node."""
