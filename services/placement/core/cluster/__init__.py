"""Nodes, GPUs, and where a gang fits. Knows nothing of jobs but how many GPUs they ask for, and what beside."""
