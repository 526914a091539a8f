"""What a process imports of the policies when it starts."""

from __future__ import annotations

import subprocess
import sys

LOOK_NAMES_UP = ("services.gateway.__main__", "services.migration.service", "services.placement.service")
PROGRAM = """
import importlib, sys
for name in sys.argv[1:]:
    importlib.import_module(name)
print(*sorted({"highspy", "numpy", "scipy"} & set(sys.modules)))
"""


def test_no_service_imports_a_solver_before_it_has_a_problem():
    command = [sys.executable, "-c", PROGRAM, *LOOK_NAMES_UP]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
