"""Before a trial: do the script and the modules beside it compile, and can what they import be found?

    python beforehand.py python [options] train.py [arguments]

Run by the interpreter of the job, in its environment, before the GPU is used; then this process becomes the command.
Nothing of the script is run. What is found is written as Python would have said it, so that it is classified as that.
Standard library only.
"""

from __future__ import annotations

import ast
import os
import sys
import traceback
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

WITH_A_WORD = ("-X", "-W", "--check-hash-based-pycs")
"""Options of the interpreter with a value in the next word."""
MOST_FILES = 1000
"""So many files are read at most: a script may lie in a folder that is large."""


class Missing(Exception):
    """A module that is imported where a module begins cannot be found."""

    def __init__(self, file: str, line: int, text: str, name: str) -> None:
        self.file, self.line, self.text, self.name = file, line, text, name


def script_of(command: list[str]) -> tuple[str, str]:
    """(file, module) that the command line of an interpreter runs; both empty: neither, but `-c` or standard input."""
    words = iter(command[1:])
    for word in words:
        if word in WITH_A_WORD:
            next(words, None)
        elif word == "-m":
            return "", next(words, "")
        elif word == "-" or word.startswith("-c"):
            return "", ""
        elif not word.startswith("-"):
            return word, ""
    return "", ""


def check(file: str) -> None:
    """Read a script and, one after the other, the modules in its folder and below that it imports.

    Raises:
        SyntaxError: one of them does not compile.
        Missing: one imports what cannot be found.
    """
    folder = Path(file).resolve().parent
    waiting, seen = [file], {str(Path(file).resolve())}
    while waiting and len(seen) <= MOST_FILES:
        current = waiting.pop()
        source = Path(current).read_bytes()
        compile(source, current, "exec", dont_inherit=True)
        for node, name in _imports(ast.parse(source, current)):
            origin = _origin(name)
            if origin is None:
                lines = source.decode(errors="replace").splitlines()
                raise Missing(current, node.lineno, lines[node.lineno - 1].strip(), name)
            path = Path(origin)
            if path.suffix == ".py" and folder in path.resolve().parents and str(path.resolve()) not in seen:
                seen.add(str(path.resolve()))
                waiting.append(origin)


def _imports(tree: ast.Module) -> Iterator[tuple[ast.stmt, str]]:
    """(statement, module) of what is imported whatever happens: not in a function, a branch or a `try`."""
    for node in tree.body:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node, alias.name.partition(".")[0]
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            yield node, node.module.partition(".")[0]


def _origin(name: str) -> str | None:
    """Where a module of the first level is; None: nowhere, empty: it has no file."""
    if name in sys.builtin_module_names or name in sys.modules:
        return ""
    try:
        spec = find_spec(name)
    except Exception:  # a finder that cannot say is no finding
        return ""
    return None if spec is None else spec.origin or ""


def main(command: list[str]) -> None:
    """Check, then become the command; ends with 1 where something is found."""
    file, _ = script_of(command)
    if file and Path(file).is_file():
        own = sys.path[0]
        sys.path[0] = str(Path(file).resolve().parent)
        try:
            check(file)
        except SyntaxError:
            traceback.print_exc(limit=0)
            sys.exit(1)
        except Missing as missing:
            print("Traceback (most recent call last):", file=sys.stderr)
            print(f'  File "{missing.file}", line {missing.line}, in <module>', file=sys.stderr)
            print(f"    {missing.text}", file=sys.stderr)
            print(f"ModuleNotFoundError: No module named {missing.name!r}", file=sys.stderr)
            sys.exit(1)
        except Exception as error:  # what cannot be looked at is for the script to say
            print(f"sanjaya: {file} was not looked at beforehand: {error!r}", file=sys.stderr)
        finally:
            sys.path[0] = own
    os.execvp(command[0], command)


if __name__ == "__main__":
    main(sys.argv[1:])
