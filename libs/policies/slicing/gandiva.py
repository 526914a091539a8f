"""Gandiva (OSDI'18): turns on over-subscribed servers, packs on trial, moves, growing and shrinking."""

from libs.policies.policy import Kind, Policy, Way

GANDIVA = Policy(
    name="gandiva",
    kind=Kind.TURNS,
    describes="No job waits for long: jobs take turns, share GPUs, and move to where there is room.",
    ways=(Way.SHRINK, Way.SUSPEND),
    moves_to_improve=True,
    packs_on_trial=True,
)
