"""The one fold of a job's life: states, attempts, gangs, waits and GPU time, from the events of control. Pure."""

from libs.lifecycle.books import Attempt, Books, Holding, Suspension
from libs.lifecycle.fold import HANDLERS, fold, outcome_of
from libs.lifecycle.guards import jobs_of_slice
from libs.lifecycle.ignored import IGNORED
from libs.lifecycle.life import Life
from libs.lifecycle.lives import Lives
from libs.lifecycle.moment import At
from libs.lifecycle.pausing import why_gpus_are_kept

__all__ = [
    "HANDLERS",
    "IGNORED",
    "At",
    "Attempt",
    "Books",
    "Holding",
    "Life",
    "Lives",
    "Suspension",
    "fold",
    "jobs_of_slice",
    "outcome_of",
    "why_gpus_are_kept",
]
