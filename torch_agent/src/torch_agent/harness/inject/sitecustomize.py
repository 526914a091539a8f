"""Python imports this by itself at every start, also in torchrun's workers and spawned children.

It costs a process without torch about a millisecond, and must never disturb it. A job may have a harness of its own on
PYTHONPATH, e.g. one that starts agents: the first that Python finds counts, each later one only passes on.
"""

import os
import sys

_met: list[str] = sys.__dict__.setdefault("_sanjaya_been", [])
"""Folders of the harnesses that this process has met, in order. Each looks for the next one, so two would go round."""
_own = os.path.dirname(os.path.abspath(__file__))


def _run_the_next_sitecustomize() -> None:
    """The one that Python would have found without us, if there is any."""
    from importlib.machinery import PathFinder

    others = [path for path in sys.path if os.path.abspath(path or ".") not in _met]
    spec = PathFinder.find_spec("sitecustomize", others)
    if spec is not None and spec.loader is not None:
        from importlib.util import module_from_spec

        spec.loader.exec_module(module_from_spec(spec))


def _hook_in() -> None:
    try:
        from sanjaya_harness import part

        part("injection").when_torch_is_imported()
    except Exception as error:
        print(f"sanjaya: no mini-batches will be counted: {error!r}", file=sys.stderr)
    try:
        from sanjaya_harness import part

        part("stacks").listen(os.environ["SANJAYA_HARNESS_DIR"])
    except Exception as error:
        print(f"sanjaya: the stacks of this process cannot be shown: {error!r}", file=sys.stderr)


if _own not in _met:
    _met.append(_own)
    if len(_met) == 1 and os.environ.get("SANJAYA_HARNESS_DIR") and os.environ.get("SANJAYA_HARNESS") != "0":
        _hook_in()
    _run_the_next_sitecustomize()
