"""The options that come with a policy, wherever a command takes one."""

from __future__ import annotations

from typing import Annotated

import typer

SpaceSharing = Annotated[bool, typer.Option("--space-sharing", help="Two jobs may share GPUs.")]
HeterogeneityAgnostic = Annotated[
    bool, typer.Option("--heterogeneity-agnostic", help="Decide as if all GPU types were equally fast.")
]
WaterFilling = Annotated[
    bool, typer.Option("--water-filling", help="max_min_fairness: raise the other jobs when some can rise no further.")
]
Guests = Annotated[
    str | None,
    typer.Option(help="antman: opportunistic jobs run beside the others, as guests; none. Default: the policy's own."),
]
