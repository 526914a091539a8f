"""Papers' claims, each with the runs it needs and how its figure is computed from their results."""
