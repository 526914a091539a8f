"""Run by an agent with the allocator preloaded: ends with 0 if memory moves to the host and back, and is the same.

Standard library only, without torch: the torch of a task is checked in its own process (harness/memory/preloaded.py).
"""

import ctypes
import errno
import os
import sys

DEVICE_BYTES = 1 << 26
SIZES = (1 << 20, 5 << 20)
"""Of blocks, which move in small pages, or in huge ones and small ones."""
UNLIMITED = 2**64 - 1


def main() -> str:
    """Returns what does not work; nothing if all does."""
    library = ctypes.CDLL(None)
    if not hasattr(library, "sanjaya_memory_begin"):
        return "the library was not loaded"
    error = library.sanjaya_memory_begin(ctypes.c_uint64(DEVICE_BYTES), ctypes.c_uint64(DEVICE_BYTES))
    if error:
        return f"no addresses can be reserved: {errno.errorcode.get(error, error)}"
    blocks = []
    for size in SIZES:
        at = ctypes.c_void_p()
        if library.posix_memalign(ctypes.byref(at), ctypes.c_size_t(64), ctypes.c_size_t(size)):
            return "no memory can be had"
        blocks.append((at, os.urandom(size)))
        ctypes.memmove(*blocks[-1], size)
    whole = sum(SIZES)
    for limit, expected in ((UNLIMITED, (whole, 0)), (0, (0, whole)), (UNLIMITED, (whole, 0))):
        usage = (ctypes.c_uint64 * 5)()  # device, cached, host, and two peaks
        library.sanjaya_memory_boundary(ctypes.c_uint64(limit), usage)
        if (usage[0], usage[2]) != expected:
            return (
                f"with a limit of {limit} bytes {usage[0]} are on the device and {usage[2]} on the host of {expected}"
            )
        if any(ctypes.string_at(at, len(kept)) != kept for at, kept in blocks):
            return "memory that was moved is not the same"
    return ""


if __name__ == "__main__":
    sys.exit(main() or 0)
