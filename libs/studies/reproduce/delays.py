"""What suspending, starting and moving cost in the studies of Gandiva, in seconds."""

SUSPEND_S, RESUME_S = 0.1, 0.02
"""From the order to free memory, and from free GPUs to the next line: as measured live on virtual GPUs."""
MOVE_S = 1.0
"""For a job that stands still, until it can go on elsewhere: more than was measured live for states of 100 MB."""
START_S = 5.0
"""From the order to the start of a task: a destination is made ready in this time while the source trains."""
