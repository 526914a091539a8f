"""`python -m libs.bus.local_broker run --data DIR [--port N]`: a broker in the foreground, until SIGTERM or SIGINT."""

import argparse
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from libs.bus.local_broker.broker import LocalBroker
from libs.bus.local_broker.errors import LocalBrokerError

_CHECK_INTERVAL_S = 0.5


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status: 0 after a stop by signal, 1 when the broker cannot be started or ends by itself, 2 on misuse."""
    options = _parser().parse_args(arguments)
    try:
        run(LocalBroker(options.data, port=options.port))
    except LocalBrokerError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def run(broker: LocalBroker) -> None:
    """Run `broker` until a signal asks to stop; print its address on stdout as soon as it serves."""
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: stop.set())
    with broker:
        print(broker.bootstrap, flush=True)
        while not stop.wait(_CHECK_INTERVAL_S):
            broker.check()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m libs.bus.local_broker", description="A one-node Apache Kafka.")
    command = parser.add_subparsers(required=True).add_parser("run", help="run in the foreground")
    command.add_argument("--data", type=Path, required=True, metavar="DIR", help="all state; kept between runs")
    command.add_argument("--port", type=int, default=None, metavar="N", help="default: a free port")
    return parser


if __name__ == "__main__":
    sys.exit(main())
