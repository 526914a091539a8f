"""Decodes every event and every row for the first time in this process; prints what msgspec had to ask about them."""

from __future__ import annotations

import sys
from importlib import import_module
from types import FrameType

import msgspec

from libs.contracts.base import event_classes
from libs.contracts.read_models import ROW_TYPES


def asked(frame: FrameType, happened: str, _: object) -> None:
    """The profiler's view: Python code of msgspec runs only to learn a class."""
    module = frame.f_globals.get("__name__", "")
    if happened == "call" and module.startswith("msgspec"):
        print(f"{module}.{frame.f_code.co_name}")


if __name__ == "__main__":
    import_module("libs.contracts.wire")
    types = [*event_classes(), *ROW_TYPES]
    assert len(types) > 50
    sys.setprofile(asked)
    for cls in types:
        msgspec.json.Decoder(cls)
    sys.setprofile(None)
