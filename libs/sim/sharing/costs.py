"""What making guests small and slow costs, as parameters with their sources.

The numbers are the paper's where it prints one (AntMan, OSDI'20), else those of the committed live results on virtual
GPUs (`tests/bench/results/guests.md`). What a real GPU has cost is in `tests/bench/results/gpu.md`, and not used here.
"""

from __future__ import annotations

from typing import NamedTuple

GB = 1e9


class Cost(NamedTuple):
    """One parameter."""

    value: float
    source: str


SHRINK_S_PER_BYTE = Cost(0.017 / (16.3 * GB), "section 5.1, figure 11a: 17.6 to 1.3 GB in 17 ms")
GROWTH_S_PER_BYTE = Cost(0.115 / (16.3 * GB), "section 5.1, figure 11a: 115 ms more in the mini-batch of the growth")
GATE_S = Cost(0.00053, "tests/bench/results/guests.md: from an owner's flag to a guest's gate, p99 (median 0.3 ms)")
"""Seconds. Lost to guests at each end of an owner's gap, one gap per mini-batch; what a guest still runs then, the
owner waits for."""
LEDGER_RATIO = Cost(0.0, "the ledger's baseline follows the owner, and modelled mini-batches do not scatter")
"""Of an owner's time, charged wrongly beside guests."""
