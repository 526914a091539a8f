"""Why a job failed: rules as data, and the classifier that applies them to its lines. Pure."""
