"""First in, first out, with backfill that cannot starve a gang.

Jobs that fit may pass one that does not. Once the first of the queue has waited for `reserve_after_s`,
nodes are reserved for it: their GPUs are not given to others any more as they become free (gang
reservation, Philly study, section 2.3), so it starts at the latest when what runs there has ended.
"""

from libs.policies.queueing.policy import QueuePolicy

BACKFILL = QueuePolicy(
    name="backfill",
    describes="In order; smaller jobs may use what the first cannot, until nodes are reserved for it.",
    later_jobs_may_pass=True,
    reserves=True,
)
