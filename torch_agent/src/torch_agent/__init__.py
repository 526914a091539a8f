"""Sanjaya on a node: the agent, which alone touches hardware, and the harness inside the training processes.

service.py (the agent) ─> core (pure: what to do about each task) ─> shim (one per task, outlives the agent)
                                                                     └─> ranks, each with the harness inside
"""

VERSION = "0.1.0"
