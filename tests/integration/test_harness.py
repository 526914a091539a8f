"""The harness inside real training processes that know nothing of it."""

from __future__ import annotations

import math
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from torch_agent.harness import inject_path
from torch_agent.harness.page import SEQUENCE, SEQUENCE_AT, PageReading, PageWriter
from torch_agent.pages import read_page

from torch_agent import pages

CASES = str(Path(__file__).with_name("harness_cases.py"))


def run(folder: Path, *command: str, into: Path | None = None, **environment: str) -> tuple[int, list[PageReading]]:
    """Run a process with the harness injected; its exit code and what it has left on its pages.

    Args:
        into: a folder of pages that an agent has prepared; None: one is made.
    """
    pages = into or folder / "pages"
    pages.mkdir(exist_ok=into is not None)
    path = os.pathsep.join((inject_path(), os.environ.get("PYTHONPATH", "")))
    injected = {"SANJAYA_HARNESS_DIR": str(pages), "PYTHONPATH": path, "PYTHONWARNINGS": "ignore"}
    status = subprocess.run(command, env={**os.environ, **injected, **environment}, check=False).returncode
    return status, [reading for path in pages.glob("*.page") if (reading := read_page(path)) is not None]


@pytest.mark.parametrize(
    ("case", "minibatches"),
    [
        ("plain", 20),
        ("workers_and_evaluation", 20),
        ("accumulation", 4),
        ("two_optimizers", 20),
        ("skipped_steps", 20),
        ("closure", 20),
        ("in_backward", 20),
        ("no_loader", 20),
    ],
)
def test_mini_batches_are_counted_right_and_the_loss_is_found(case: str, minibatches: int, tmp_path: Path):
    status, [page] = run(tmp_path, sys.executable, CASES, case)
    assert (status, page.minibatches_total, page.rank) == (0, minibatches, 0)
    assert page.memory_peak_bytes >= page.memory_min_bytes > 0
    if case == "plain":
        assert page.loss is not None and 0 < page.loss < 10


def test_a_loss_that_is_no_number_is_on_the_page_and_so_is_the_rhythm(tmp_path: Path):
    status, [page] = run(tmp_path, sys.executable, CASES, "diverges")
    assert (status, page.minibatches_total, page.nonfinite) == (0, 20, 20)
    assert page.loss is not None and math.isnan(page.loss)
    assert 0 < page.p99_s < 600
    assert page.signs > 3 * 20


def test_losses_that_are_infinite_now_and_then_are_no_row(tmp_path: Path):
    status, [page] = run(tmp_path, sys.executable, CASES, "skipped_steps")
    assert (status, page.minibatches_total, page.nonfinite) == (0, 20, 1)


@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler on a CPU")
def test_a_compiled_model_is_counted_right(tmp_path: Path):
    status, [page] = run(tmp_path, sys.executable, CASES, "compiled")
    assert (status, page.minibatches_total) == (0, 20)


def test_the_exit_code_is_the_scripts_own(tmp_path: Path):
    status, [page] = run(tmp_path, sys.executable, CASES, "leaves_with_seven")
    assert (status, page.minibatches_total) == (7, 20)


def test_it_can_be_switched_off(tmp_path: Path):
    assert run(tmp_path, sys.executable, CASES, "no_loader", SANJAYA_HARNESS="0") == (0, [])


def test_torchruns_workers_are_reached(tmp_path: Path):
    torchrun = str(Path(sys.executable).with_name("torchrun"))
    status, pages = run(tmp_path, torchrun, "--standalone", "--nproc-per-node", "2", CASES, "no_loader")
    assert status == 0
    assert sorted((page.rank, page.world_size, page.minibatches_total) for page in pages) == [(0, 2, 20), (1, 2, 20)]


def test_another_sitecustomize_still_runs(tmp_path: Path):
    other = tmp_path / "other"
    other.mkdir()
    (other / "sitecustomize.py").write_text("import os; os.environ['OTHER'] = 'ran'\n")
    script = "import os, sys; sys.exit(0 if os.environ.get('OTHER') == 'ran' else 1)"
    status, _ = run(tmp_path, sys.executable, "-c", script, PYTHONPATH=f"{inject_path()}:{other}")
    assert status == 0


def test_of_two_harnesses_the_first_counts_and_another_sitecustomize_still_runs(tmp_path: Path):
    """A job that starts agents has theirs on its PYTHONPATH, too: each would look for the other one for ever."""
    second, other = tmp_path / "second", tmp_path / "other"
    shutil.copytree(Path(inject_path()).parent, second / "harness")
    other.mkdir()
    (other / "sitecustomize.py").write_text("import os; os.environ['OTHER'] = 'ran'\n")
    path = f"{inject_path()}:{second / 'harness' / 'inject'}:{other}:{os.environ.get('PYTHONPATH', '')}"
    script = (
        "import os, runpy, sys; assert os.environ['OTHER'] == 'ran'; runpy.run_path(sys.argv[0], run_name='__main__')"
    )
    command = (sys.executable, "-c", f"import sys; del sys.argv[0]; {script}", CASES, "no_loader")
    status, [page] = run(tmp_path, *command, PYTHONPATH=path)
    assert (status, page.minibatches_total) == (0, 20)


def test_a_process_without_torch_notices_nothing(tmp_path: Path):
    assert run(tmp_path, sys.executable, "-c", "import json") == (0, [])


def test_a_reader_waits_for_a_writer_that_was_interrupted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    PageWriter(str(tmp_path), rank=0, world_size=1).write(7, 0.0, 0.0, 0.0, 0, 0)
    [path] = tmp_path.iterdir()

    def number(sequence: int) -> None:
        with path.open("r+b") as page:
            page.seek(SEQUENCE_AT)
            page.write(SEQUENCE.pack(sequence))

    number(3)
    monkeypatch.setattr(pages.time, "sleep", lambda _: number(4))  # the writer goes on while it waits
    reading = read_page(path)
    assert reading is not None and reading.minibatches_total == 7


def test_a_page_is_read_whole_or_not_at_all(tmp_path: Path):
    writer = PageWriter(str(tmp_path), rank=3, world_size=4)
    path = next(tmp_path.iterdir())
    assert read_page(path) is None
    for total in range(1, 2000):
        writer.write(total, float(total), float(total), float(total), total, total)
        reading = read_page(path)
        assert reading is not None
        assert (
            reading.minibatches_total == reading.last_boundary_s == reading.loss == reading.memory_peak_bytes == total
        )
    assert path.stat().st_mode & 0o077 == 0
