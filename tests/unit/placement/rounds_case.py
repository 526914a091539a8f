"""Placement under an allocation policy."""

from __future__ import annotations

from libs.contracts.agent import JobExited
from libs.contracts.gateway import PolicyChanged, SettingChanged
from libs.contracts.introspection import JobProfiled
from libs.contracts.placement import AllocationComputed, JobPlaced, StopTask, ThroughputEstimated
from tests.unit.placement.placement_case import PlacementCase

ROUND_S = 60.0
NEVER_S = 1e9
"""Most of these tests do not say that tasks have started."""


class RoundsCase(PlacementCase):
    """Placement under an allocation policy, with a log that it reads back."""

    def __init__(self, policy: str = "max_min_fairness", *, space_sharing: bool = False, **nodes: int) -> None:
        super().__init__(**nodes)
        self.give(SettingChanged(service="placement", name="round_s", value=ROUND_S, requested_by="op"))
        self.give(SettingChanged(service="placement", name="start_limit_s", value=NEVER_S, requested_by="op"))
        self.give(PolicyChanged(policy=policy, requested_by="op", space_sharing=space_sharing))

    def heard(self, events: list) -> list:
        """Let the core read its own answers back, as every shell does."""
        computed = [event for event in events if isinstance(event, AllocationComputed | ThroughputEstimated)]
        return events + [output for event in computed for output in self.heard(self.give(event))]

    def submit(self, *args, restartable: bool = True, **fields):
        return self.heard(super().submit(*args, restartable=restartable, **fields))

    def wake(self):
        return self.heard(super().wake())

    def profile(self, job_id: str, rate_per_s: float) -> list:
        """Introspection has measured the running job."""
        profiled = JobProfiled(
            job_id=job_id,
            attempt=self.replica.state.jobs[job_id].attempt,
            window_start_s=self.now_s,
            window_s=30.0,
            minibatches_total=1,
            rate_per_s=rate_per_s,
            loss=None,
            memory_peak_bytes=0,
            memory_min_bytes=0,
        )
        return self.heard(self.give(profiled))

    def stop(self, events: list) -> list:
        """The agents carry out all StopTask orders."""
        found = []
        for order in [event for event in events if isinstance(event, StopTask)]:
            exited = JobExited(
                job_id=order.job_id,
                attempt=order.attempt,
                node_id=order.node_id,
                exit_code=143,
                signal=None,
                outcome="stopped",
            )
            found += self.heard(self.give(exited))
        return found

    def next_round(self) -> list[str]:
        """Which jobs get GPUs in one more round."""
        said = self.wake()
        said += self.stop(said)
        return [event.job_id for event in said if isinstance(event, JobPlaced)]
