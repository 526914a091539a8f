"""What a rule, a cause and a marker are."""

from __future__ import annotations

import msgspec

REASONS: dict[str, tuple[str, ...]] = {
    "cpu_out_of_memory": ("ai_engine", "user"),
    "incorrect_inputs": ("infrastructure", "user"),
    "semantic_error": ("infrastructure", "user"),
    "core_dump": ("ai_engine", "user"),
    "invalid_mem_access": ("user",),
    "model_ckpt_error": ("infrastructure",),
    "cuda_failure": ("ai_engine",),
    "syntax_error": ("infrastructure", "user"),
    "traceback_from_crash": ("infrastructure", "ai_engine", "user"),
    "mpi_error": ("infrastructure",),
    "gpu_out_of_memory": ("ai_engine",),
    "mpi_runtime_failure": ("infrastructure",),
    "permission_error": ("user",),
    "import_error": ("infrastructure", "user"),
    "job_preempted": ("infrastructure",),
    "cuda_init_failed": ("ai_engine",),
    "model_diverged": ("user",),
    "cuda_ver_mismatch": ("ai_engine",),
    "gpu_ecc_error": ("ai_engine",),
    "output_node_error": ("user",),
    "cannot_load_libs": ("ai_engine",),
    "no_signature": ("",),
}
"""{reason: categories that it can have}: Table 6 of the Philly study (Jeon et al., ATC'19), in snake_case."""

STREAMS = ("stdout", "stderr", "kernel", "manager")
"""Where a line comes from: the program's two streams, the kernel log of its node, the resource manager or launcher."""
MERGED = "merged"
"""A stream in which all of these are mixed, as in a log file; every rule looks at it."""

CONTEXTS = ("saving", "reading", "diverging", "lookup")
"""What the lines before a line say about the program at that time."""
MARKERS = (*CONTEXTS, "saved", "progress", "handled", "traceback", "frame", "chained")
"""Kinds of lines that decide nothing by themselves."""


class Versions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The releases of a package that print a line: from `since`, up to and without `until`; empty = open."""

    package: str
    since: str = ""
    until: str = ""


class Rule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One kind of line, and what it says about the end of a job."""

    id: str
    reason: str
    """Of the study's Table 6."""
    cause: str
    """Finer than the reason; a name of the causes' table."""
    category: str
    """`infrastructure`, `ai_engine` or `user`."""
    rank: int
    """From root cause (0) to consequence (99); the bands are in the README of this room."""
    pattern: str
    """RE2 syntax, searched for in a line without its prefix (rank, time stamp) and without colours."""
    example: str
    """A line, or lines that end with one, that this rule decides."""
    counter_example: str
    """A similar line that it does not match."""
    negative: str = ""
    """A line that matches this, too, is none of this rule's."""
    streams: tuple[str, ...] = STREAMS
    context: str = ""
    """The rule holds only where the lines before say this (one of CONTEXTS); empty = anywhere."""
    fallback: bool = False
    """On a line that another rule knows, that one decides."""
    even_if_handled: bool = False
    """Decides although the line has words of a warning or of an error that was dealt with."""
    needs_exit: bool = False
    """Decides only once the process has ended badly: healthy jobs print such lines, too."""
    versions: Versions | None = None
    action: str = ""
    """What the maker of the hardware says to do at once."""


class Cause(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A finer reason."""

    meaning: str
    retry: bool
    """Whether the same program on the same input may succeed."""


class Marker(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A line that decides nothing, but changes what others mean."""

    kind: str
    pattern: str
    example: str
    counter_example: str
