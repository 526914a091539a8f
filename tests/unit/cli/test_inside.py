"""What `sanjaya forward` understands."""

from __future__ import annotations

import pytest

from libs.cli.inside import ports
from libs.contracts.bad_input import BadInput


@pytest.mark.parametrize(
    ("text", "found"), [("6006", (6006, 6006)), ("8888:9999", (8888, 9999)), ("80:0", (80, 0)), ("1:65535", (1, 65535))]
)
def test_ports(text: str, found: tuple[int, int]):
    assert ports(text) == found


@pytest.mark.parametrize("text", ["", "0", "http", "80:", ":80", "80:x", "65536", "1:65536", "-1", "1:2:3", "²"])
def test_what_is_no_port_is_refused(text: str):
    with pytest.raises(BadInput, match="6006:16006"):
        ports(text)
