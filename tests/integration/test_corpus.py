"""A few programs of the corpus, run for real: what is recorded of them, and what is said of them."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest

from libs.failures.package import package_rules
from libs.failures.records import records
from tests.corpus.judging import judged
from tests.corpus.manifest import Program, programs
from tests.corpus.needs import missing
from tests.corpus.running import NotAsMeant, record
from tests.corpus.store import store

SOME = (
    "py-brace-not-closed",
    "py-argparse-unknown",
    "py-late-name",
    "py-bare-exit",
    "data-tar-truncated",
    "data-unknown-label",
    "perm-data",
    "mem-python",
    "crash-segv-silent",
    "sh-unbound",
    "store-urllib-503",
    "store-reset",
)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with store() as found:
        yield found


@pytest.mark.parametrize("name", SOME)
def test_a_program_fails_as_it_was_meant_to_and_is_understood(name: str, url: str):
    program = next(each for each in programs() if each.id == name)
    if lacks := missing(program.needs):
        pytest.skip(f"this machine lacks {', '.join(lacks)}")

    recorded = record(program, url)

    [found] = judged([program], records("corpus", msgspec.json.encode(recorded).decode()), package_rules())
    assert found.right, found.verdict


def test_ranks_are_told_apart_and_the_first_that_failed_gives_the_status(url: str):
    command = 'if [ $RANK = 1 ]; then echo "no data" >&2; exit 4; fi; echo "one of $WORLD_SIZE"'
    program = Program(id="gang", reason="no_signature", line="no data", run=command, ranks=2)

    recorded = record(program, url)

    assert sorted(recorded.log.splitlines()) == ["[default0]:one of 2", "[default1]:no data"]
    assert (recorded.exit_code, recorded.signal) == (4, None)
    assert recorded.deciding_line == "[default1]:no data"


def test_a_signal_is_recorded_as_a_shell_reports_it(url: str):
    recorded = record(Program(id="killed", reason="no_signature", run="kill -ABRT $$"), url)

    assert (recorded.exit_code, recorded.signal) == (134, "SIGABRT")


@pytest.mark.parametrize(
    ("command", "limit_s", "said"),
    [("true", 60.0, "it ended well"), ("sleep 60", 0.3, "it still ran after 0 s"), ("false", 60.0, "no line has")],
)
def test_a_program_that_does_not_fail_as_it_was_meant_to_is_no_record(
    command: str, limit_s: float, said: str, url: str
):
    program = Program(id="wrong", reason="no_signature", line="boom", run=command, limit_s=limit_s)

    with pytest.raises(NotAsMeant, match=said):
        record(program, url)
