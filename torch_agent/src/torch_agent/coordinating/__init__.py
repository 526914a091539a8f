"""The shell of coordination: coordinator.py (when a GPU is looked at, and who is told) → readings.py, records.py."""
