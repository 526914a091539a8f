"""Inside the training process: counts mini-batches of an unmodified script, and suspends it between two of them.

Standard library and torch only, and relative imports only: it is loaded by path into processes with an
environment that may know nothing of this package.

inject/sitecustomize.py ─> injection.py (waits for torch) ─> hooks.py (hears of training) ─> counting.py (the rule)
                                         │                     recorder.py (what is measured) ─> page.py (for the agent)
                                         └ suspending.py (control.py: what the agent wants) ─> parking/ (out and in)
inject/sanjaya_job.py ─> job.py (what the script has) ─> moving/ (state and place) ─> mover.py (to another process)
                         └ reporting.py (what a sweep tries, and how good that is), without torch
inject/sanjaya_lease.py, job.py ─> leaving.py (when the task is stopped), gang.py (all ranks at once)
"""

from pathlib import Path


def inject_path() -> str:
    """To be put first on PYTHONPATH of every process of a task."""
    return str(Path(__file__).parent / "inject")
