"""The paper's experiments that are run live (AntMan, OSDI'20, section 5).

python -m tests.bench.antman pairs [--pairs N] [--blocks N] [--block-s S] [--seed N]
python -m tests.bench.antman table2 [--runs N] [--minute-s S] [--ways WAY ...]
python -m tests.bench.antman trading [--trials N] [--alike-trials N] [--window-s S]
"""

from __future__ import annotations

import argparse
import sys

from tests.bench import _pairs, _table2, _trading

EXPERIMENTS = {"pairs": _pairs, "table2": _table2, "trading": _trading}
"""{name: a module with `add_options` and `run`}; `run` returns whether all is within its limits."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.antman")
    experiments = parser.add_subparsers(required=True, metavar="|".join(EXPERIMENTS))
    for name, module in EXPERIMENTS.items():
        experiment = experiments.add_parser(name, help=(module.__doc__ or "").splitlines()[0])
        module.add_options(experiment)
        experiment.set_defaults(run=module.run)
    options = parser.parse_args()
    sys.exit(0 if options.run(options) else 1)


if __name__ == "__main__":
    main()
