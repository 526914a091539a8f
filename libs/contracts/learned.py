"""Structs that several threads decode.

msgspec learns a Struct's fields when the first decoder of it is made or something is first converted to it, and (0.22)
not safely: a thread that meets a class while another one is still learning it follows pointers not yet set, and
the process dies. So modules with Structs that threads decode learn them as they are imported, before there are threads.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec

T = TypeVar("T", bound=msgspec.Struct)


def learned(cls: type[T]) -> msgspec.json.Decoder[T]:
    """Its decoder; from now on any thread may decode the class, in any way. For use while modules are imported."""
    return msgspec.json.Decoder(cls)
