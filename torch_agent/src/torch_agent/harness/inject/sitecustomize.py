"""Python imports this by itself at every start, also in torchrun's workers and spawned children.

It costs a process without torch about a millisecond, and must never disturb it.
"""

import os
import sys


def _load_harness() -> None:
    """Load the harness by path: this process may run on an interpreter that does not have it installed."""
    from importlib.util import module_from_spec, spec_from_file_location

    folder = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    spec = spec_from_file_location(
        "_sanjaya_harness", os.path.join(folder, "__init__.py"), submodule_search_locations=[folder]
    )
    assert spec is not None and spec.loader is not None
    sys.modules["_sanjaya_harness"] = module = module_from_spec(spec)
    spec.loader.exec_module(module)
    from _sanjaya_harness import injection

    injection.when_torch_is_imported()


def _run_the_next_sitecustomize() -> None:
    """The one that Python would have found without us, if there is any."""
    from importlib.machinery import PathFinder

    own = os.path.dirname(os.path.abspath(__file__))
    others = [path for path in sys.path if os.path.abspath(path or ".") != own]
    spec = PathFinder.find_spec("sitecustomize", others)
    if spec is not None and spec.loader is not None:
        from importlib.util import module_from_spec

        spec.loader.exec_module(module_from_spec(spec))


if os.environ.get("SANJAYA_HARNESS_DIR") and os.environ.get("SANJAYA_HARNESS") != "0":
    try:
        _load_harness()
    except Exception as error:
        print(f"sanjaya: no mini-batches will be counted: {error!r}", file=sys.stderr)

_run_the_next_sitecustomize()
