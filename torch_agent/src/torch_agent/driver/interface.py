"""The checkpoint interface of the NVIDIA driver (570 and later), for processes that know nothing of it.

RUNNING ──lock──> LOCKED ──checkpoint──> CHECKPOINTED ──restore──> LOCKED ──unlock──> RUNNING

A locked process waits in its next CUDA call. At a checkpoint its device memory and its context go to the host. What
fails half-way leaves the process FAILED: it cannot use its GPU any more (CUDA driver API, "CUDA Checkpointing").
"""

from __future__ import annotations

import ctypes
from enum import IntEnum

LIBRARY = "libcuda.so.1"
NEEDED = (
    "cuCheckpointProcessGetState",
    "cuCheckpointProcessLock",
    "cuCheckpointProcessCheckpoint",
    "cuCheckpointProcessRestore",
    "cuCheckpointProcessUnlock",
)
LOCK_TIMEOUT_MS = 30_000


class State(IntEnum):
    """Of a process, as the driver counts."""

    RUNNING = 0
    LOCKED = 1
    CHECKPOINTED = 2
    FAILED = 3


class DriverFailed(Exception):
    """An operation has not succeeded; the message says which, on what, and the driver's error."""


class _LockArguments(ctypes.Structure):
    _fields_ = [("timeout_ms", ctypes.c_uint), ("reserved", ctypes.c_uint * 15)]


class Driver:
    """Of this machine. Calls take as long as the memory takes to move, and other threads go on meanwhile."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library

    @classmethod
    def load(cls) -> Driver | None:
        """None where there is no driver, or one without this interface."""
        try:
            library = ctypes.CDLL(LIBRARY)
        except OSError:
            return None
        if not all(hasattr(library, name) for name in NEEDED) or library.cuInit(0) != 0:
            return None
        return cls(library)

    def state(self, pid: int) -> State | None:
        """None for a process that does not use CUDA."""
        found = ctypes.c_int()
        if self._library.cuCheckpointProcessGetState(pid, ctypes.byref(found)) != 0:
            return None
        return State(found.value)

    def take_off(self, pid: int) -> None:
        """Bring the process's device memory to the host, from whatever state it is in.

        Raises:
            DriverFailed: that is not possible; the process goes on with its memory where it is, if it can.
        """
        if self.state(pid) is State.RUNNING:
            self._call("Lock", pid, ctypes.byref(_LockArguments(timeout_ms=LOCK_TIMEOUT_MS)))
        if self.state(pid) is not State.LOCKED:
            return
        try:
            self._call("Checkpoint", pid, None)
        except DriverFailed:
            if self.state(pid) is State.LOCKED:
                self._call("Unlock", pid, None)
            raise

    def bring_back(self, pid: int) -> None:
        """Bring the memory back, and let the process use its GPU.

        Raises:
            DriverFailed: that is not possible.
        """
        if self.state(pid) is State.CHECKPOINTED:
            self._call("Restore", pid, None)
        if self.state(pid) is State.LOCKED:
            self._call("Unlock", pid, None)

    def _call(self, operation: str, pid: int, arguments: object) -> None:
        error = getattr(self._library, f"cuCheckpointProcess{operation}")(pid, arguments)
        if error != 0:
            raise DriverFailed(f"the driver cannot {operation.lower()} process {pid}: CUDA error {error}")
