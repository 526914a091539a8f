"""The Philly study's locality scheduling (Jeon et al., ATC'19, section 2.3).

A gang acquires GPUs as they become free, on the fewest servers of one rack, and gives them back if it has not all of
them in time. It tries again after a back-off, and accepts less locality after some tries. The study's time-out is 2 to
3 minutes, its back-off 2 minutes; it does not say after how many tries locality is relaxed (here 3). GPUs that are
acquired stand idle for others, so not every waiting gang acquires some at a time.
"""

from libs.policies.queueing.policy import QueuePolicy

PHILLY = QueuePolicy(
    name="philly",
    describes="In order; gangs acquire GPUs close together for a while, and accept less locality after some tries.",
    later_jobs_may_pass=True,
    reservations=16,
    acquires=True,
)
