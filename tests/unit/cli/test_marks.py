"""Lines that decide are marked once, per attempt."""

from __future__ import annotations

from typing import Any

from libs.cli.following import write
from libs.cli.marks import Marks

OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"


def line(text: str, *, attempt: int = 1, rank: int = 0) -> dict[str, Any]:
    return {"attempt": attempt, "rank": rank, "stream": "stderr", "text": text}


def test_a_line_that_decides_is_marked_once_per_attempt():
    marks = Marks()
    assert marks.of(line("step 1 loss 0.5")) == ""
    assert marks.of(line(OOM, rank=3)) == "^ rank 3: gpu_out_of_memory (gpu_memory_full)"
    assert marks.of(line(OOM, rank=3)) == ""
    assert marks.of(line(OOM, rank=3, attempt=2)) != ""


def test_marks_stand_behind_their_line(capsys: Any):
    class Cell:
        def logs(self, job_id: str, **filters: Any) -> list[dict[str, Any]]:
            return [line("step 1"), line(OOM)]

    write(Cell(), "j", marks=True)  # type: ignore[arg-type]
    assert capsys.readouterr().err == f"step 1\n{OOM}\n^ rank 0: gpu_out_of_memory (gpu_memory_full)\n"
    write(Cell(), "j")  # type: ignore[arg-type]
    assert capsys.readouterr().err == f"step 1\n{OOM}\n"
