"""What an agent finds out about the memory of its tasks: made once, tried, and said as it is."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from torch_agent.environment import limited, session_environment
from torch_agent.options import parse
from torch_agent.probes import scaling
from torch_agent.probes.scaling import ACTIVATIONS, ALL, SOURCE, CannotScale, Scaling, compiled, found, tried

GIB = 1 << 30
needs_cc = pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")
FAKE = """#!/bin/sh
[ "$1" = --version ] && echo "cc of a test" && exit
echo called >> {log}
while [ "$1" != -o ]; do shift; done
echo library > "$2"
"""


def compiler(folder: Path, content: str = FAKE) -> Path:
    """A folder for PATH with a compiler that notes its calls in `log`."""
    folder.mkdir(exist_ok=True)
    (folder / "cc").write_text(content.format(log=folder / "log"))
    (folder / "cc").chmod(0o755)
    return folder


def path_of(folder: Path) -> str:
    return f"{folder}:/usr/bin:/bin" if shutil.which("sh") else str(folder)


def test_a_library_is_made_once_by_source_and_compiler(tmp_path: Path):
    tools, source = compiler(tmp_path / "tools"), tmp_path / "allocator.c"
    source.write_text("int one;")
    first = compiled(source, tmp_path / "lib", path_of(tools))
    assert compiled(source, tmp_path / "lib", path_of(tools)) == first
    assert (tools / "log").read_text() == "called\n"
    source.write_text("int two;")
    second = compiled(source, tmp_path / "lib", path_of(tools))
    compiler(tools, FAKE.replace("cc of a test", "a newer one"))
    third = compiled(source, tmp_path / "lib", path_of(tools))
    assert len({first, second, third}) == 3 and (tools / "log").read_text() == "called\n" * 3
    assert sorted(path.name for path in (tmp_path / "lib").iterdir()) == sorted(p.name for p in (first, second, third))


def test_agents_that_begin_at_once_have_one_library_and_leave_no_part(tmp_path: Path):
    tools, source = compiler(tmp_path / "tools"), tmp_path / "allocator.c"
    source.write_text("int one;")
    with ThreadPoolExecutor(6) as agents:
        made = list(agents.map(lambda _: compiled(source, tmp_path / "lib", path_of(tools)), range(6)))
    assert list((tmp_path / "lib").iterdir()) == [made[0]] and set(made) == {made[0]}
    assert made[0].read_text() == "library\n"


def test_a_node_that_has_lost_its_compiler_uses_what_was_made_of_the_same_source(tmp_path: Path):
    tools, source, nothing = compiler(tmp_path / "tools"), tmp_path / "allocator.c", tmp_path / "nothing"
    source.write_text("int one;")
    made = compiled(source, tmp_path / "lib", path_of(tools))
    assert compiled(source, tmp_path / "lib", str(nothing)) == made
    source.write_text("int two;")
    with pytest.raises(CannotScale, match=r"no C compiler on PATH \(expected one of cc, gcc, clang\)"):
        compiled(source, tmp_path / "lib", str(nothing))


def test_a_compiler_that_fails_is_said_and_leaves_nothing(tmp_path: Path):
    tools = compiler(tmp_path / "tools", "#!/bin/sh\n[ $1 = --version ] && exit\necho no stdio.h >&2; exit 3\n")
    source = tmp_path / "allocator.c"
    source.write_text("int one;")
    with pytest.raises(CannotScale, match=r"cc -O2 .*status 3: no stdio.h"):
        compiled(source, tmp_path / "lib", path_of(tools))
    assert list((tmp_path / "lib").iterdir()) == []


@needs_cc
def test_the_library_is_tried_and_one_that_cannot_be_loaded_is_said(tmp_path: Path):
    tried(compiled(SOURCE, tmp_path / "lib", "/usr/local/bin:/usr/bin:/bin"))
    broken = tmp_path / "broken.so"
    broken.write_text("no library\n")
    with pytest.raises(CannotScale, match="the library was not loaded"):
        tried(broken)


def options(tmp_path: Path, *arguments: str):
    return parse(["--bus", "sqlite:///log.db", "--state-dir", str(tmp_path), "--memory", str(10 * GIB), *arguments])


def test_what_a_node_scales(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture):
    library = tmp_path / "allocator.so"
    monkeypatch.setattr(scaling, "compiled", lambda *_: library)
    monkeypatch.setattr(scaling, "tried", lambda _: None)
    assert found(options(tmp_path), 4 * GIB, virtual=True) == Scaling(ALL, library, 6 * GIB)
    assert found(options(tmp_path), 12 * GIB, virtual=True) == Scaling(ALL, library, 0), "there is nothing beside them"
    assert found(options(tmp_path, "--scale-memory", "no"), 0, virtual=True) == Scaling()
    assert found(options(tmp_path), 0, virtual=False) == Scaling(), "what lies on the host is slow there"
    assert found(options(tmp_path, "--scale-memory", "yes"), 0, virtual=False) == Scaling(ACTIVATIONS, None, 5 * GIB)

    def fails(_: Path) -> None:
        raise CannotScale("nothing may be executed there")

    monkeypatch.setattr(scaling, "tried", fails)
    assert found(options(tmp_path), 0, virtual=True) == Scaling()
    assert "the memory of tasks is not limited on this node: nothing may be executed there" in caplog.text


def test_a_setting_of_the_environment_is_checked_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys):
    monkeypatch.setenv("SANJAYA_SCALE_MEMORY", "perhaps")
    with pytest.raises(SystemExit):
        options(tmp_path)
    assert "SANJAYA_SCALE_MEMORY=perhaps: expected auto, yes, no" in capsys.readouterr().err


def test_processes_of_a_task_are_limited_beside_what_their_user_preloads():
    library = Path("/s/lib/allocator.so")
    alone = limited({"A": "1"}, library)
    assert (alone["LD_PRELOAD"], alone["SANJAYA_SCALES_MEMORY"]) == (str(library), "1")
    beside = limited({"LD_PRELOAD": "/u/jemalloc.so /u/other.so"}, library)
    assert beside["LD_PRELOAD"] == "/s/lib/allocator.so:/u/jemalloc.so /u/other.so"
    assert limited({"A": "1"}, None) == {"A": "1", "SANJAYA_SCALES_MEMORY": "1"}, "on real GPUs torch does it"
    off = {"SANJAYA_HARNESS": "0", "LD_PRELOAD": "/u/jemalloc.so"}
    assert limited(off, library) == off, "nothing would be limited without the harness"


def test_commands_beside_a_rank_have_what_their_user_preloads_alone():
    library = Path("/s/lib/allocator.so")
    assert session_environment(limited({}, library), session_id="x", term=None).keys() == {
        "SANJAYA_HARNESS",
        "SANJAYA_SESSION",
    }
    beside = limited({"LD_PRELOAD": "/u/jemalloc.so /u/other.so"}, library)
    assert session_environment(beside, session_id="x", term=None)["LD_PRELOAD"] == "/u/jemalloc.so /u/other.so"
