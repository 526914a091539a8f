"""Settings of cells whose agents are killed or exchanged."""

from __future__ import annotations

PATIENT = {"SANJAYA_NODE_TIMEOUT_S": "300"}
"""An agent that is slow to be back, on a busy machine, is not lost."""
