"""Whether the files that a command names are there, before a node looks for them in vain."""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path

from libs.cli.workdir import Selection
from libs.contracts.bad_input import BadInput
from libs.kernel.launchers import LAUNCHERS, SHELLS

INTERPRETERS = re.compile(r"(python|pypy)[\d.]*")
LAUNCHING = tuple(dict.fromkeys(words[0] for launcher in LAUNCHERS for words in launcher.words))
"""Programs with options that cannot be told from a script by their form: the script is the first word ending in .py."""
LAUNCHING_MODULES = (*(module for launcher in LAUNCHERS for module in launcher.modules), "deepspeed")
SCRIPT = (".py", ".sh", ".bash")
OF_PYTHON, OF_SHELLS = ("-X", "-W"), ("-o", "+o", "+O")
"""Options that have a word of their own behind them."""
EXPANDED = re.compile(r"[|&;<>()$`*?\[\]{}~#!\n]")
"""What a shell or a sweep makes something else of."""
SHOWN = 8
"""How many names that are there are shown."""


def require_files(command: Sequence[str] | str, found: Selection) -> None:
    """Refuse a command with a program or script that should be a file of the uploaded directory and is not.

    Only what is certain is refused: absolute paths and programs without a path are the node's, and words that a shell
    or a sweep expands are not looked at.

    Raises:
        BadInput: the message says which file is missing, what was probably meant, and what is there.
    """
    words = _words(command)
    word = named_file(words)
    if word is None or EXPANDED.search(word):
        return
    name, is_program = os.path.normpath(word), word == words[0]
    if name not in found and name != ".":
        raise BadInput("command", f"{word}: {_why(name, found)}", f"a file that is uploaded{_instead(name, found)}")
    if is_program and "/" not in word:
        raise BadInput("command", f"{word} is a file, and no program that a node finds", _as_program(word))
    if is_program and not os.access(found.folder / name, os.X_OK):
        raise BadInput("command", f"{word} may not be executed", f"{_as_program(word)}, or chmod +x {word}")


def named_file(words: Sequence[str]) -> str | None:
    """The word of a command that names a file of its working directory: its program or its script; None: no word."""
    if not words:
        return None
    first, *rest = words
    if "/" in first:
        if not first.startswith("/"):
            return first
    elif first.endswith(SCRIPT):
        return first if shutil.which(first) is None else None
    script = _script(os.path.basename(first), rest)
    return None if script is None or script.startswith("/") else script


def _script(program: str, words: Sequence[str]) -> str | None:
    """What an interpreter, a shell or a launcher is told to run; None: no file, or not known."""
    if program in LAUNCHING:
        return next((word for word in words if word.endswith(SCRIPT)), None)
    is_python = INTERPRETERS.fullmatch(program) is not None
    if not (is_python or program in SHELLS):
        return None
    before = ""
    for number, word in enumerate(words):
        if is_python and word == "-m":
            module, *rest = words[number + 1 :] or [""]
            return _script(LAUNCHING[0], rest) if module in LAUNCHING_MODULES else None
        if word == "-" or (word.startswith("-") and not word.startswith("--") and word.endswith("c")):
            return None  # standard input, or a program in the next word
        if not word.startswith(("-", "+")) and before not in (OF_PYTHON if is_python else OF_SHELLS):
            return word
        before = word
    return None


def _words(command: Sequence[str] | str) -> list[str]:
    """The words of a command that no shell has to make sense of; else none."""
    if not isinstance(command, str):
        return [str(word) for word in command]
    try:
        return [] if EXPANDED.search(re.sub(r"\{\w+\}", "", command)) else shlex.split(command)
    except ValueError:
        return []


def _why(name: str, found: Selection) -> str:
    if name.split("/")[0] == "..":
        return f"it leads out of {found.folder}, which is all that is uploaded"
    if (found.folder / name).exists():
        return f"it is in {found.folder} and is not uploaded: a pattern of .gitignore or .sanjayaignore names it"
    return f"there is no such file in {found.folder}"


def _instead(name: str, found: Selection) -> str:
    """What was probably meant, and what is there."""
    names = [entry.name for entry in found.entries]
    same = [other for other in names if os.path.basename(other) == os.path.basename(name)]
    near = [*same, *(other for other in get_close_matches(name, names, 3, 0.6) if other not in same)][:3]
    beside = _beside(names, Path(name).suffix)
    meant = f" (did you mean {' or '.join(near)}?)" if near else ""
    return f"{meant}; there {'are ' + ', '.join(beside) if beside else 'is none'}"


def _as_program(word: str) -> str:
    """The command that runs a script."""
    return f"{'python' if word.endswith('.py') else 'bash'} {word}"


def _beside(names: Sequence[str], suffix: str) -> list[str]:
    """A few names that are there, those of the same kind and those outside of folders first."""
    ordered = sorted(names, key=lambda name: (Path(name).suffix != suffix, name.count("/"), name))
    return [*ordered[:SHOWN], *(["…"] if len(ordered) > SHOWN else [])]
