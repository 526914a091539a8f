"""The corpus of failing programs as data: names that exist, enough of them, and labels that can be checked."""

from __future__ import annotations

from pathlib import Path

import pytest

from libs.contracts.bad_input import BadInput
from libs.failures.rule import REASONS
from tests.corpus.manifest import Program, programs
from tests.corpus.running import NotAsMeant, labelled_line

PROGRAM = """
programs:
  - id: missing-file
    reason: {reason}
    cause: {cause}
    needs: [{need}]
    line: FileNotFoundError
    run: python -c 'open("x")'
"""


def test_the_corpus_is_large_and_varied():
    found = programs()

    assert len(found) >= 120
    assert len({program.group for program in found}) >= 8
    assert {program.reasons[0] for program in found} >= set(REASONS) - {
        "cuda_failure",
        "gpu_out_of_memory",
        "gpu_ecc_error",
        "output_node_error",
    }, "what needs no GPU and no framework of the study's time"


def test_a_quarter_is_held_out_of_every_group():
    found = programs()
    held_out = [program for program in found if program.held_out]

    assert len(held_out) == len(found) // 4
    assert {program.group for program in held_out} == {program.group for program in found}


def test_few_labels_are_open():
    assert sum(len(program.reasons) > 1 for program in programs()) < len(programs()) / 10


@pytest.mark.parametrize(
    ("reason", "cause", "need", "said"),
    [
        ("bad_luck", "file_missing", "cc", "unknown reason bad_luck"),
        ("incorrect_inputs", "elves", "cc", "unknown cause elves"),
        ("incorrect_inputs", "file_missing", "luck", "unknown need luck"),
    ],
)
def test_an_unknown_name_is_refused(tmp_path: Path, reason: str, cause: str, need: str, said: str):
    (tmp_path / "a.yaml").write_text(PROGRAM.format(reason=reason, cause=cause, need=need))

    with pytest.raises(BadInput, match=said):
        programs(tmp_path)


def test_an_unknown_field_and_a_second_id_are_refused(tmp_path: Path):
    text = PROGRAM.format(reason="incorrect_inputs", cause="file_missing", need="cc")
    (tmp_path / "a.yaml").write_text(text + "    colour: red\n")
    with pytest.raises(BadInput, match="colour"):
        programs(tmp_path)

    (tmp_path / "a.yaml").write_text(text)
    (tmp_path / "b.yaml").write_text(text)
    with pytest.raises(BadInput, match=r"b\.yaml: program missing-file.*twice"):
        programs(tmp_path)


def test_thelabelled_line_is_the_one_that_is_it_before_one_that_has_it():
    program = Program(id="a", reason="traceback_from_crash", line="Halted", run="false")

    assert labelled_line(program, "    raise Halted\nHalted\n") == "Halted"
    assert labelled_line(program, "    raise Halted\nx.Halted\n") == "    raise Halted"
    with pytest.raises(NotAsMeant, match="no line has 'Halted'"):
        labelled_line(program, "done\n")
