"""The demonstration: a fresh cell, real training jobs, what happened, and the proof that it replays."""

from libs.cli.demo.run import run

__all__ = ["run"]
