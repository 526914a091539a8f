"""Sleep until a word of shared memory changes, and wake what sleeps there: Linux's futex, between processes.

Where the kernel's call has no known number, sleeping is polling.
"""

from __future__ import annotations

import ctypes
import mmap
import platform
import time

_NUMBERS = {"x86_64": 202, "aarch64": 98}
_WAIT, _WAKE, _ALL = 0, 1, 2**31 - 1
_ARGUMENTS = (
    ctypes.c_long,
    ctypes.c_void_p,
    ctypes.c_int,
    ctypes.c_uint32,
    ctypes.c_void_p,
    ctypes.c_void_p,
    ctypes.c_uint32,
)
POLL_S = 0.0002
"""Between two looks, where there is no futex."""


class _Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


class Futex:
    """One aligned word of 32 bits in memory that several processes have mapped."""

    def __init__(self, memory: mmap.mmap, at: int) -> None:
        """Of `memory`, which has to be writable, `at` so many bytes from its beginning."""
        self._word = ctypes.c_uint32.from_buffer(memory, at)
        self._address = ctypes.addressof(self._word)
        self._number = _NUMBERS.get(platform.machine())
        self._call = ctypes.CDLL(None).syscall
        self._call.argtypes = _ARGUMENTS

    @property
    def value(self) -> int:
        """The word."""
        return self._word.value

    def wait(self, value: int, timeout_s: float) -> None:
        """Sleep while the word has this value, at most so long; signals end it, too. Other threads go on meanwhile."""
        if self._number is None:
            time.sleep(min(POLL_S, timeout_s))
            return
        seconds = int(timeout_s)
        limit = _Timespec(seconds, int((timeout_s - seconds) * 1e9))
        self._call(self._number, self._address, _WAIT, value, ctypes.addressof(limit), None, 0)

    def ring(self) -> None:
        """Change the word, and wake all that sleep there. Changes at the same moment may count as one."""
        self._word.value += 1
        if self._number is not None:
            self._call(self._number, self._address, _WAKE, _ALL, None, None, 0)
