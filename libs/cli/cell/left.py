"""The tasks that a cell which has ended has left running, as its nodes' state directories tell."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from libs.cli.cell.errors import CellError
from libs.cli.installation import program


def left_in(state_dir: Path, *, end: bool = False) -> list[dict[str, Any]]:
    """The tasks, by node: `job_id`, `attempt`, `name`, `node_id`, `gpus`, `pids` of the ranks, `status`.

    Asked of the agent's own code, which knows what older and newer agents leave on disk.

    Args:
        end: tell them to save what they can and to end, and wait for that.

    Raises:
        CellError: what an agent has left cannot be read; the message says which file, and why.
    """
    found: list[dict[str, Any]] = []
    for node in sorted((state_dir / "nodes").glob("*")):
        command = program("torch_agent.left", str(node), *(["--end"] if end else []))
        said = subprocess.run(command, capture_output=True, text=True, check=False)
        if said.returncode:
            raise CellError(f"what is left in {node} cannot be told: {said.stderr.strip()}")
        found += json.loads(said.stdout)
    return found
