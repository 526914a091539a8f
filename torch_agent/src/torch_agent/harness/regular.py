"""Files in a task's folder, where the task may have put anything in their place."""

from __future__ import annotations

import errno
import os
import stat


def regular(path: str, flags: int) -> int:
    """For `open(..., opener=regular)`: opens regular files only, and waits for nothing.

    The opening of a pipe lasts until another process opens its other end: a task that leaves one where a file is
    expected would stop the agent. A look before the opening would not do: the task may change the file between.

    Raises:
        OSError: it is no regular file, or cannot be opened.
    """
    descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    raise OSError(errno.EINVAL, "expected a regular file", path)
