"""The session of a new user: two panes of a terminal, a wheel, and the README's commands as they stand there.

Commands are typed into a real terminal (tmux), and what is judged is what stands on its screen.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import psutil
import pytest

from libs.bus.local_broker.network import free_port
from libs.client import Client, Unreachable
from libs.testing.leftovers import nothing_left_of
from libs.testing.processes import ROOT, outside_the_clone

pytest_plugins = ["libs.testing.wheel"]
pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed here (.ci/run installs it)"),
]

WITHIN_S = 300.0
BEHIND = "and give it an unmodified script:"
"""The words of the README before the block of commands."""
SCRIPT = """import os, pathlib
pathlib.Path("runs").mkdir(exist_ok=True)
pathlib.Path("runs/model").write_text("weights")
print("trained in attempt", os.environ["SANJAYA_ATTEMPT"])
"""
UNTIL_END = "sh -c 'until [ -e {end} ]; do sleep 0.1; done; echo over'"


def commands() -> list[str]:
    """The lines of the README's block, as a user would copy them."""
    block = (ROOT / "README.md").read_text().partition(BEHIND)[2]
    found = re.match(r"\s*\n((?:    .+\n)+)", block)
    assert found is not None, f"the README has no block of commands behind {BEHIND!r}"
    return [line.strip() for line in found[1].splitlines()]


class Terminal:
    """A tmux server of its own with two windows: `cell` and `user`."""

    def __init__(self, folder: Path, variables: dict[str, str]) -> None:
        self._tmux = ["tmux", "-f", "/dev/null", "-S", str(folder / "tmux")]
        self._folder, self._variables = folder, variables
        self._typed = 0

    def __enter__(self) -> Terminal:
        shell = ("env", "PS1=$ ", "bash", "--norc", "--noprofile")
        size = ("-x", "200", "-y", "50")
        self._ask("new-session", "-d", "-s", "s", "-n", "cell", *size, "-c", str(self._folder), *shell)
        self._ask("new-window", "-t", "s", "-n", "user", "-c", str(self._folder), *shell)
        return self

    def __exit__(self, *_: object) -> None:
        self._ask("kill-server")

    def _ask(self, *words: str) -> str:
        done = subprocess.run(
            [*self._tmux, *words], env=self._variables, capture_output=True, text=True, check=True, timeout=WITHIN_S
        )
        return done.stdout

    def type(self, window: str, line: str) -> None:
        """A line and the return key."""
        self._ask("send-keys", "-t", f"s:{window}", "-l", line)
        self._ask("send-keys", "-t", f"s:{window}", "Enter")

    def press(self, window: str, key: str) -> None:
        self._ask("send-keys", "-t", f"s:{window}", key)

    def screen(self, window: str) -> str:
        """What stands there, with what has left at the top; lines that the terminal has folded are whole."""
        return self._ask("capture-pane", "-p", "-J", "-S", "-", "-t", f"s:{window}")

    def shows(self, window: str, words: str, times: int = 1) -> str:
        """The screen once these words are there so often."""
        until(lambda: self.screen(window).count(words) >= times, lambda: f"no {words!r}:\n{self.screen(window)}")
        return self.screen(window)

    def run(self, line: str) -> tuple[int, str]:
        """Type a line and wait for its end. Returns its exit status and what it has put on the screen."""
        self._typed += 1
        begin, end = f"begin-{self._typed}", f"end-{self._typed}"
        self.type("user", f"echo {begin}")
        self.shows("user", f"\n{begin}\n")  # else the shell may show what is typed meanwhile before it
        self.type("user", line)
        self.type("user", f"echo {end}=$?")
        screen = self.shows("user", f"\n{end}=")
        found = re.search(rf"\n{begin}\n(.*)\n{end}=(\d+)", screen, re.DOTALL)
        assert found is not None, screen
        return int(found[2]), found[1]


def until(holds: Callable[[], object], otherwise: Callable[[], str]) -> None:
    """Wait for another process, which has no event that could be awaited here. The gateway may be away."""
    give_up_s = time.monotonic() + WITHIN_S
    while True:
        with suppress(Unreachable):
            if holds():
                return
        assert time.monotonic() < give_up_s, otherwise()
        time.sleep(0.1)


@pytest.fixture
def folder(installed: Path, tmp_path: Path) -> Iterator[Path]:
    """A user's project, with the environment where the README has it."""
    (tmp_path / "home").mkdir()
    project = tmp_path / "project"
    project.mkdir()
    (project / ".venv").symlink_to(installed.parent)
    (project / ".gitignore").write_text(".venv\n")
    (project / "train.py").write_text(SCRIPT)
    yield project
    # Where the session was broken off, the cell has lost its terminal and may still be there.
    subprocess.run([".venv/bin/sanjaya", "down"], cwd=project, env=outside_the_clone(tmp_path), check=False)
    assert nothing_left_of(tmp_path) == []


def test_a_day_of_a_new_user(folder: Path) -> None:
    port, end = free_port(), folder.parent / "end"
    gateway = f"http://127.0.0.1:{port}"
    path = f"{folder / '.venv' / 'bin'}:{os.environ['PATH']}"
    variables = outside_the_clone(
        folder.parent, SANJAYA_GATEWAY=gateway, PATH=path, LC_ALL="C.UTF-8", TERM="xterm-256color"
    )
    up, *others = commands()
    assert up.endswith("sanjaya up &"), up
    with ExitStack() as stack:
        terminal = stack.enter_context(Terminal(folder, variables))
        # In a pane of its own instead of in the background, and on a port that no other test has.
        up = f"{up.removesuffix('&').strip()} --port {port}"
        terminal.type("cell", up)
        terminal.shows("cell", "Ctrl-C ends it")
        token = folder.parent / "home" / ".sanjaya" / "local" / "token"
        cell = stack.enter_context(Client(gateway, token.read_text().strip()))

        said = [terminal.run(line) for line in others]
        screen = "\n".join(text for _, text in said)
        run, fetched, looked, audited = said
        assert run[0] == 0 and "trained in attempt 1" in run[1] and "SUCCEEDED" in run[1], run[1]
        assert fetched[0] == 0 and "runs/" in fetched[1], fetched[1]
        assert (folder / "runs" / "model").read_text() == "weights"
        for words in (
            "ID ",
            "SUCCEEDED",
            "submits 'train'",
            "attempt 1 gets n1:0",
            "attempt 1 runs on n1",
            "succeeded with attempt 1",
        ):
            assert words in looked[1], screen
        assert audited[0] == 0 and "0 differences" in audited[1], audited[1]

        # The cell is stopped and started again while a job runs, which does not notice.
        assert terminal.run(f"sanjaya submit -n long --no-upload -- {UNTIL_END.format(end=end)}")[0] == 0
        until(lambda: cell.job("long")["state"] == "RUNNING", lambda: terminal.run("sanjaya why long")[1])
        terminal.press("cell", "C-c")
        stopped = terminal.shows("cell", "to go on:  ")
        assert "1 task waits for the next start" in stopped and "long" in stopped
        terminal.type("cell", stopped.rsplit("to go on:  ", 1)[1].splitlines()[0])
        terminal.shows("cell", "Ctrl-C ends it", times=2)

        # A service is killed; its supervisor starts it again, and nothing is lost.
        [supervisor] = [
            process
            for process in psutil.process_iter(["cmdline", "cwd"])
            if process.info["cwd"] == str(folder) and "up" in (process.info["cmdline"] or [])
        ]
        placement = [child for child in supervisor.children() if "placement" in child.cmdline()]
        assert len(placement) == 1
        assert terminal.run(f"kill -9 {placement[0].pid}")[0] == 0
        second = terminal.run("sanjaya run -n second -- python train.py")
        assert second[0] == 0 and "trained in attempt 1" in second[1], second[1]

        end.touch()
        assert terminal.run("sanjaya wait long")[0] == 0
        assert "over" in terminal.run("sanjaya logs long")[1]
        assert terminal.run("sanjaya cp second:runs/model model")[0] == 0 and (folder / "model").is_file()
        assert "SUCCEEDED" in terminal.run("sanjaya why long")[1]
        story = terminal.run("sanjaya story long")[1]
        assert "long" in story and "attempt 2" not in story, story
        history = terminal.run("sanjaya history")[1]
        assert history.count("SUCCEEDED") == 3, history
        assert "default" in terminal.run("sanjaya usage")[1]
        audited = terminal.run("sanjaya replay --verify")
        assert audited[0] == 0 and "0 differences" in audited[1], audited[1]
        terminal.press("cell", "C-c")
        terminal.shows("cell", "no task was left running")
