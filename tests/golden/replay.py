"""Replays the golden log and prints what came of it; run in processes of their own by the test."""

from __future__ import annotations

import sys

from libs.inspect.sources import open_log
from libs.inspect.verify import verify
from services.roster import SERVICES
from tests.golden.accept import LOG, expected


def main() -> None:
    """Print the result of the audit."""
    with open_log(str(LOG), cell="golden") as log:
        sys.stdout.buffer.write(expected(verify(log, SERVICES)))


if __name__ == "__main__":
    main()
