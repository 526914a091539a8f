"""Runs what `make test` leaves out, and records on which code it passed; `make test-thorough` calls it.

    python -m tests.thorough [OPTIONS OF PYTEST]     # all of them; writes tests/thorough.json when they have passed
    python -m tests.thorough --passed                # status 0 if they have passed on the code at hand

CI knows only a checkout, so the record is part of it: commit it with the change that it is about.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
RECORD = Path("tests/thorough.json")
ABOUT = ("services/placement", "torch_agent/src", "libs/bus", "libs/runtime")
"""What long searches and kills find defects in."""
RESTS_ON = (
    "libs/contracts",
    "libs/coordination",
    "libs/datasets",
    "libs/inspect",
    "libs/kernel",
    "libs/lifecycle",
    "libs/node",
    "libs/policies",
)
"""What that imports."""
TRIED_BY = ("libs/testing", "requirements.lock")
"""What the tests are made of, beside the files of tests that name `thorough` or make random searches."""
WORDS = (b"thorough", b"hypothesis")


def digest(root: Path = ROOT) -> str:
    """A digest of the names and bytes of all files that the thorough tests depend on, 32 hex digits."""
    h = hashlib.blake2b(digest_size=16)
    for path in sorted({*_files(root)}):
        content = (root / path).read_bytes()
        h.update(f"{path.as_posix()}\0{len(content)}\0".encode())
        h.update(content)
    return h.hexdigest()


def _files(root: Path) -> Iterator[Path]:
    for tree in (*ABOUT, *RESTS_ON, *TRIED_BY):
        found = (root / tree).rglob("*") if (root / tree).is_dir() else [root / tree]
        yield from (path.relative_to(root) for path in found if path.is_file() and _counts(path))
    for path in (root / "tests").rglob("*.py"):
        if any(word in path.read_bytes() for word in WORDS):
            yield path.relative_to(root)


def _counts(path: Path) -> bool:
    """Not what Python or an installation has left there, nor prose."""
    made = any(part == "__pycache__" or part.endswith(".egg-info") for part in path.parts)
    return not made and path.suffix != ".md"


def passed(root: Path = ROOT) -> bool:
    """Whether the thorough tests have passed on the files at hand."""
    record = root / RECORD
    return record.exists() and json.loads(record.read_text()).get("digest") == digest(root)


def run(options: list[str]) -> int:
    """Run them; returns pytest's status, or 1 if files changed meanwhile."""
    before = digest()
    started_s = time.monotonic()
    command = [sys.executable, "-m", "pytest", "-m", "thorough", *options]
    status = subprocess.run(command, cwd=ROOT, env={**os.environ, "SANJAYA_THOROUGH": "1"}, check=False).returncode
    if status:
        return status
    if digest() != before:
        print("not recorded: files that the tests depend on were changed while they ran  try: run them again")
        return 1
    minutes = round((time.monotonic() - started_s) / 60)
    record = {"digest": before, "passed": time.strftime("%Y-%m-%d", time.gmtime()), "minutes": minutes}
    (ROOT / RECORD).write_text(json.dumps(record, indent=2) + "\n")
    print(f"passed on {before}; commit {RECORD}")
    return 0


def main(arguments: list[str]) -> int:
    """Run the tests, or say whether they have passed; returns the exit status."""
    if arguments != ["--passed"]:
        return run(arguments)
    found = passed()
    print(f"the thorough tests have {'' if found else 'not '}passed on this code ({RECORD})")
    return 0 if found else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
