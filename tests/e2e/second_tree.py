"""A second copy of the tree in which rules and stored forms are others, as in a later release.

Each replacement must match exactly once: a refactoring that takes the ground from under one is noticed at once.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from libs.testing.processes import ROOT

PARTS = ("libs", "services", "torch_agent", "schemas")
TIE = "last name"
"""What JobPlaced says in its new field."""
AGENT_VERSION = "0.2.0"
NEWER_EVENT = "setting.changed.v2"
"""The event that has a new version; the others that have changed have a field more."""


@dataclass(frozen=True)
class Replacement:
    """One change of a file: `before` stands in it exactly once, and becomes `after`."""

    path: str
    before: str
    after: str


TIE_BREAK = Replacement(
    "services/placement/core/cluster/servers.py",
    "    return node_id\n",
    '    return "".join(chr(0x10FFFF - ord(letter)) for letter in node_id)\n',
)
"""Among servers that fit equally well the last name wins, not the first."""
ROUND_ORDER = Replacement(
    "services/placement/core/mechanisms/rounds/selection.py",
    'by_arrival = sorted(claims, key=attrgetter("order"))',
    'by_arrival = sorted(claims, key=attrgetter("order"), reverse=True)',
)
"""Among rows that are owed as much the latest goes first."""
STATE_FIELD = (
    Replacement(
        "services/placement/core/cell.py",
        "    next_seq: int = 0\n",
        "    next_seq: int = 0\n    placements: int = 0\n",
    ),
    Replacement(
        "services/placement/core/lifecycle/placing.py",
        "    cell.looked_s = now_s\n    dequeue(cell, job)\n",
        "    cell.looked_s = now_s\n    cell.placements += 1\n    dequeue(cell, job)\n",
    ),
)
"""Placement counts; its snapshots have another schema with that."""
EVENT_FIELD = (
    Replacement(
        "libs/contracts/placement.py",
        '    """Jobs that may hold the same GPUs at the same time (space sharing)."""\n',
        '    """Jobs that may hold the same GPUs at the same time (space sharing)."""\n    tie: str = ""\n',
    ),
    Replacement(
        "services/placement/core/lifecycle/placing.py",
        "packed_with=list(packed_with), reason=reason)\n",
        f'packed_with=list(packed_with), reason=reason, tie="{TIE}")\n',
    ),
)
"""JobPlaced says how ties were broken; older records have the default."""
EVENT_VERSION = (
    Replacement(
        "libs/contracts/gateway.py",
        '@event("setting.changed.v1", owner=OWNER, subject="service")\nclass SettingChanged(Event',
        '@upcasts("setting.changed.v1", to="setting.changed.v2")\n'
        "def _with_origin(data: Json) -> Json:\n"
        '    return {**data, "origin": "unknown"}\n\n\n'
        '@event("setting.changed.v2", owner=OWNER, subject="service")\nclass SettingChanged(Event',
    ),
    Replacement(
        "libs/contracts/gateway.py",
        "    value: Number\n    requested_by: str\n",
        "    value: Number\n    requested_by: str\n    origin: str\n",
    ),
    Replacement(
        "services/gateway/api/cluster.py",
        "value=body.value, requested_by=caller.name)",
        'value=body.value, requested_by=caller.name, origin="gateway")',
    ),
)
"""SettingChanged has a field without a default: a breaking change, so a new version and the step to it."""
READ_MODELS = (
    Replacement(
        "libs/contracts/read_models.py",
        '    """A user has paused it."""\n',
        '    """A user has paused it."""\n    tie: str = ""\n',
    ),
    Replacement(
        "services/projection/core/attempts.py",
        "    job.reserved_nodes, job.placed_s = [], at.time_s\n",
        "    job.reserved_nodes, job.placed_s, job.tie = [], at.time_s, event.tie\n",
    ),
)
"""A column of the read models, which the fold fills: the tables follow from the row class."""
PAGE = (
    Replacement("torch_agent/src/torch_agent/harness/page.py", 'VERSION = b"SJHP", 7', 'VERSION = b"SJHP", 8'),
    Replacement("torch_agent/src/torch_agent/harness/page.py", "ACKNOWLEDGED_AT = 512", "ACKNOWLEDGED_AT = 768"),
    Replacement(
        "torch_agent/src/torch_agent/layouts.py",
        "    7: Layout(_BODY, _ACKNOWLEDGED, _HANDOVER_4, _MEETING, _RHYTHM, _SIGNS, _MEMORY, _GATE),\n",
        "    7: Layout(_BODY, _ACKNOWLEDGED, _HANDOVER_4, _MEETING, _RHYTHM, _SIGNS, _MEMORY, _GATE),\n"
        "    8: Layout(\n"
        "        _BODY, Part(768, _ACKNOWLEDGED.values, _ACKNOWLEDGED.names), _HANDOVER_4, _MEETING, _RHYTHM, _SIGNS,\n"
        "        _MEMORY, _GATE\n"
        "    ),\n",
    ),
)
"""Processes say elsewhere on their page that they stand still; those that run already say it where they did."""
AGENT = Replacement("torch_agent/src/torch_agent/__init__.py", 'VERSION = "0.1.0"', f'VERSION = "{AGENT_VERSION}"')

PATCH = (TIE_BREAK, ROUND_ORDER, *STATE_FIELD, *EVENT_FIELD, *EVENT_VERSION, *READ_MODELS, *PAGE, AGENT)


def second_tree(folder: Path, patch: Iterable[Replacement] = PATCH) -> Path:
    """Copy the tree to a folder that does not exist, and patch the copy.

    Raises:
        AssertionError: a replacement does not match exactly once.
    """
    for part in PARTS:
        shutil.copytree(ROOT / part, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
    for replacement in patch:
        file = folder / replacement.path
        text = file.read_text()
        count = text.count(replacement.before)
        assert count == 1, f"{replacement.path}: expected once, found {count} times: {replacement.before!r}"
        file.write_text(text.replace(replacement.before, replacement.after))
    return folder


def environment(tree: Path) -> dict[str, str]:
    """What makes a Python process run the code of a tree, wherever it is started."""
    return {"PYTHONPATH": f"{tree}:{tree / 'torch_agent' / 'src'}", "PYTHONSAFEPATH": "1"}
