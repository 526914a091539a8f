"""Many random histories of the whole system, as `test_whole_system.py` checks them, with progress.

python -m tests.properties.campaign --histories 10000 --seed 0

Batch N of a campaign has the seed `--seed` + N, so a campaign may be split, and a failure is found again by its seed.
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from collections.abc import Callable

from hypothesis import HealthCheck, Phase, given, seed, settings

from libs.testing.builders import Scenario
from libs.testing.strategies import troubled_cells
from tests.properties.test_whole_system import live_through

BATCH = 50
"""Histories of one seed."""


def histories(
    number: int,
    seed_number: int,
    check: Callable[[Scenario], object] = live_through,
    *,
    shrink: bool = False,
) -> int:
    """Check so many histories of one seed; the same ones each time. Returns how many there were.

    Args:
        shrink: make one that fails as short as may be, which takes minutes.

    Raises:
        Exception: what the first one has failed with; its notes are the story.
    """
    checked = 0

    @seed(seed_number)
    @settings(
        max_examples=number,
        phases=(Phase.generate, Phase.shrink) if shrink else (Phase.generate,),
        database=None,
        deadline=None,
        derandomize=False,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )
    @given(troubled_cells())
    def search(scenario: Scenario) -> None:
        nonlocal checked
        checked += 1
        check(scenario)

    search()
    return checked


def main(arguments: list[str]) -> int:
    """Run a campaign; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.properties.campaign", description=__doc__)
    parser.add_argument("--histories", type=int, default=1000, metavar="N")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of the first batch")
    parser.add_argument("--shrink", action="store_true", help="make a history that fails as short as may be")
    options = parser.parse_args(arguments)
    started_s, done, bad = time.monotonic(), 0, 0
    for number in range(-(-options.histories // BATCH)):
        seed_number = options.seed + number
        try:
            done += histories(min(BATCH, options.histories - number * BATCH), seed_number, shrink=options.shrink)
        except Exception as error:
            traceback.print_exception(error)
            again = f"python -m tests.properties.campaign --histories {BATCH} --seed {seed_number} --shrink"
            print(f"seed {seed_number}: a history has failed, the rest of its batch is left out  try: {again}")
            bad += 1
            continue
        print(f"seed {seed_number}: {done} histories, {time.monotonic() - started_s:.0f} s", flush=True)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
