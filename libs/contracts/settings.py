"""The numbers that cores decide by. A change is an event (`SettingChanged`), so that a replay has it too."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Setting:
    """One number of one core."""

    service: str
    name: str
    default: float
    describes: str


SETTINGS = (
    Setting(
        "placement", "locality_relax_s", 60.0, "How long a gang waits for the fewest servers before it accepts more"
    ),
    Setting("placement", "reserve_after_s", 30.0, "How long a gang waits before GPUs are reserved for it"),
    Setting("placement", "acquire_s", 150.0, "How long a gang holds what it has acquired before it gives it back"),
    Setting("placement", "backoff_s", 120.0, "How long a gang that has given GPUs back waits before it tries again"),
    Setting("placement", "relax_after", 3.0, "Tries to acquire GPUs after each of which a gang accepts less locality"),
    Setting(
        "placement",
        "emptiest_above_gpus",
        0.0,
        "Under `philly`, jobs of more GPUs go to the server with most free ones, others to the fullest (0: all do)",
    ),
    Setting(
        "placement",
        "small_servers",
        0.0,
        "Under `philly`, so many servers are for jobs of one GPU first, and for others last (0: none)",
    ),
    Setting(
        "placement",
        "wait_for_locality_s",
        0.0,
        "Under `philly`, a gang waits so long at most for few servers where that gains more than it costs (0: never)",
    ),
    Setting("placement", "stop_grace_s", 10.0, "Time between SIGTERM and SIGKILL for tasks that the scheduler stops"),
    Setting(
        "placement", "start_limit_s", 1800.0, "How long an attempt may take from its placement until all tasks run"
    ),
    Setting("placement", "round_s", 360.0, "Length of a round of the allocation policies"),
    Setting(
        "placement", "recompute_s", 1800.0, "How long an allocation that depends on the jobs' progress is used at most"
    ),
    Setting("placement", "slice_s", 60.0, "Length of a time slice on over-subscribed servers"),
    Setting("placement", "max_height", 8.0, "GPUs that jobs on a server may ask for, per GPU that it has"),
    Setting("placement", "pack_trial_s", 60.0, "How long two jobs share a GPU at most before there is a verdict"),
    Setting(
        "placement", "pack_utilisation", 1.5, "Two jobs are packed if their GPU utilisations add up to less (0: never)"
    ),
    Setting("placement", "guest_utilisation", 0.8, "How busy a GPU may have been over 10 s that takes another guest"),
    Setting("placement", "max_guests", 3.0, "Guests that a GPU takes at a time"),
    Setting("placement", "yield_s", 10.0, "How long a guaranteed job waits at most for a guest to leave its GPUs"),
    Setting("migration", "moves_at_once", 4.0, "Jobs on the move at once, to be better off elsewhere (0: never)"),
    Setting("migration", "move_rest_s", 60.0, "How long a job that was moved, or could not be, is left where it is"),
    Setting("migration", "defrag_ratio", 0.75, "Servers of which this part is free are emptied into others (0: never)"),
    Setting(
        "migration", "interference", 0.75, "A job that does less than this part of its best rate moves away (0: never)"
    ),
    Setting(
        "migration", "grow_after_s", 60.0, "How long GPUs of a server are idle before an elastic job grows onto them"
    ),
    Setting(
        "admission", "trial_above_gpus", 0.0, "Jobs of more GPUs run a trial on one before they start (0: none does)"
    ),
    Setting("admission", "trial_steps", 3.0, "Mini-batches of a trial"),
    Setting("admission", "trial_limit_s", 600.0, "A trial that runs longer is stopped, and says nothing of its job"),
    Setting("admission", "trial_patience_s", 300.0, "A trial that waits longer for its GPU is skipped (0: none is)"),
    Setting(
        "quota", "opportunistic_after_s", 60.0, "An automatic job that would wait longer for quota runs as a guest"
    ),
    Setting(
        "quota",
        "reclaim_above",
        0.9,
        "Part of the GPUs that must be in use before lent ones are reclaimed by preemption",
    ),
    Setting("quota", "reclaim_rest_s", 600.0, "How long a job that gave GPUs back is no victim again"),
    Setting("introspection", "converge_ratio", 0.001, "A loss that falls by less than this part has not improved"),
    Setting(
        "introspection",
        "converge_epochs",
        10.0,
        "Epochs without improvement after which a job has converged (0: never)",
    ),
    Setting("failure_analysis", "retry_base_s", 2.0, "Delay before the first retry; doubled for each further one"),
    Setting("failure_analysis", "retry_cap_s", 300.0, "Longest delay before a retry"),
    Setting(
        "failure_analysis", "blame_failures", 3.0, "Jobs that fail of a GPU or a node until it is suspected (0: never)"
    ),
    Setting("failure_analysis", "blame_window_s", 86_400.0, "How long such a failure counts"),
    Setting(
        "failure_analysis", "repeat_jobs", 3.0, "Jobs of a user that fail of one cause until it is said (0: never)"
    ),
    Setting(
        "failure_analysis", "input_users", 2.0, "Users whose jobs fail of one input until it is quarantined (0: never)"
    ),
    Setting(
        "failure_analysis",
        "lines_patience_s",
        30.0,
        "How long a verdict waits for the last lines of an attempt",
    ),
)


def names(service: str) -> tuple[str, ...]:
    """The settings of one service."""
    return tuple(setting.name for setting in SETTINGS if setting.service == service)


def default(service: str, name: str) -> float:
    """The value before any SettingChanged.

    Raises:
        KeyError: no such setting.
    """
    for setting in SETTINGS:
        if (setting.service, setting.name) == (service, name):
            return setting.default
    raise KeyError(f"{service} has no setting {name!r}; it has {', '.join(names(service)) or 'none'}")
