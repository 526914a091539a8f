"""Replays the golden log and prints what came of it; run in processes of their own by the test."""

from __future__ import annotations

import sys
from dataclasses import replace

import msgspec

from libs.inspect.logs import at_hand
from libs.inspect.sources import open_log
from libs.inspect.verify import verify
from services.roster import SERVICES
from tests.golden.accept import LOG, expected


def main() -> None:
    """Print the result of the audit."""
    with open_log(str(LOG), cell="golden") as log:
        rules = at_hand(service.name for service in SERVICES)
        decided_again = replace(log, header=msgspec.structs.replace(log.header, rules=rules))
        sys.stdout.buffer.write(expected(verify(decided_again, SERVICES)))


if __name__ == "__main__":
    main()
