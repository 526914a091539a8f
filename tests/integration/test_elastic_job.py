"""A data-parallel script changes its number of processes: its losses stay the same to the bit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from libs.bus.local_broker.network import free_port
from libs.testing.thorough import cases
from tests.integration.job_process import JobProcess

SCRIPT = "elastic_script.py"
Start = Callable[..., JobProcess]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts attempts at one job, and ends them all in the end."""
    started: list[JobProcess] = []

    def start_one(name: str, world_size: int, folder: Path = tmp_path, **how: Any) -> JobProcess:
        port = free_port() if world_size > 1 else 0
        started.append(JobProcess(folder, name, script=SCRIPT, world_size=world_size, port=port, **how))
        return started[-1]

    yield start_one
    for process in started:
        process.kill()


def losses(folder: Path) -> list[str]:
    return (folder / "losses.0").read_text().splitlines()


@pytest.mark.parametrize("sizes", cases((1, 2, 4, 1), thorough=((3, 6, 3),)), ids=str)
def test_it_goes_on_in_more_and_in_fewer_processes(sizes: tuple[int, ...], start: Start, tmp_path: Path):
    undisturbed, virtual = tmp_path / "undisturbed", {"SANJAYA_VIRTUAL_RANKS": str(max(sizes))}
    assert start("0", sizes[0], undisturbed, **virtual).ended() == [0] * sizes[0]
    assert len(losses(undisturbed)) == 2 * 7 + 1
    stops = [3 * number for number in range(1, len(sizes))]
    source: JobProcess | None = None
    for number, size in enumerate(sizes):
        stop = {"STOP_AFTER": str(stops[number])} if number < len(stops) else {}
        attempt = start(str(number), size, takes_over=source is not None, **virtual, **stop)
        if source is not None:
            source.stands_still_after(stops[number - 1])
            assert all(each.movable and each.resizable for each in source.handovers)
            source.save()
            states = source.saved()
            attempt.receive([states[rank % len(states)] for rank in range(size)])
            source.kill()
            attempt.resume()
        source = attempt
    assert source is not None and source.ended() == [0] * sizes[-1]
    assert losses(tmp_path) == losses(undisturbed)


def test_ranks_that_cannot_be_divided_so_are_refused(tmp_path: Path, start: Start):
    process = start("1", 1, SANJAYA_VIRTUAL_RANKS="3")
    assert process.ended() == [1]
    assert "3 virtual ranks cannot be halved until there are 1" in process.stderr.read_text()
