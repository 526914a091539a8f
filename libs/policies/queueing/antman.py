"""AntMan's guaranteed jobs (OSDI'20, section 3.3, algorithm 1).

Tenants that use least of their quotas go first. A gang that finds some of its GPUs has them reserved at once, and more
as they become free. Until it is complete they are idle for other guaranteed jobs, not for guests: so reserving early
costs nothing.
"""

from libs.policies.queueing.policy import EVERY_GANG, QueuePolicy

ANTMAN = QueuePolicy(
    name="antman",
    describes="Tenants that use least of their quotas first, GPUs reserved for gangs at once; guests use what is left.",
    later_jobs_may_pass=True,
    reservations=EVERY_GANG,
    reserves_at_once=True,
    by_quota=True,
    brings_guests=True,
)
