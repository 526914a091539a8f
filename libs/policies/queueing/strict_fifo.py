"""First in, first out, strictly."""

from libs.policies.queueing.policy import QueuePolicy

STRICT_FIFO = QueuePolicy(
    name="strict_fifo",
    describes="In order; no job passes one that does not fit yet.",
    later_jobs_may_pass=False,
    reservations=0,
)
