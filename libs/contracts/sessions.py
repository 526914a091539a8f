"""Sessions inside a job: the messages of a WebSocket between a client, the gateway and the agent of a node.

Binary messages are bytes of a stream, behind one byte that says which. Text messages are JSON objects, told apart by
`type`. Nothing of this is on the log; that a session was opened is (JobSessionOpened).
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

STDIN, STDOUT, STDERR = 0, 1, 2
"""Of a forwarded connection: STDIN goes to the node, STDOUT comes from there."""
LARGEST_BYTES = 1 << 20
"""Of a message."""
CHUNK_BYTES = 64 << 10
"""Most bytes of a stream that are sent in one message."""
LONGEST_COMMAND_BYTES = 64 << 10
"""All words of a command together: they go on the log."""

Cells = Annotated[int, msgspec.Meta(ge=1, le=0xFFFF)]
SignalName = Literal["INT", "TERM", "QUIT", "HUP", "USR1", "USR2"]


class Terminal(msgspec.Struct, frozen=True, kw_only=True):
    """The terminal that a session is to have."""

    rows: Cells
    columns: Cells
    term: Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9._+-]{1,64}$")] = "xterm"
    """The value of TERM."""


class _Message(msgspec.Struct, frozen=True, kw_only=True, tag_field="type"):
    """A text message."""


class Start(_Message, frozen=True, kw_only=True, tag="start"):
    """The client's first message of an `exec`."""

    command: list[str] = []
    """Empty: the user's shell on the node."""
    terminal: Terminal | None = None
    """None: three pipes."""


class Resize(_Message, frozen=True, kw_only=True, tag="resize"):
    """The client's terminal has another size now."""

    rows: Cells
    columns: Cells


class Signal(_Message, frozen=True, kw_only=True, tag="signal"):
    """The client passes a signal on to the command's process group."""

    name: SignalName


class EndOfInput(_Message, frozen=True, kw_only=True, tag="end_of_input"):
    """Nothing more comes from the client; the other direction stays."""


class Opened(_Message, frozen=True, kw_only=True, tag="opened"):
    """The gateway's first message: the session is on the log, and begins."""

    session_id: str
    job_id: str
    name: str
    """Of the job."""
    attempt: int
    node_id: str


class Notice(_Message, frozen=True, kw_only=True, tag="notice"):
    """Something that the user is to know; the session goes on."""

    text: str


class EndOfOutput(_Message, frozen=True, kw_only=True, tag="end_of_output"):
    """Nothing more comes from the node; the other direction stays."""


class Exited(_Message, frozen=True, kw_only=True, tag="exited"):
    """The last message: how the session has ended."""

    exit_code: int | None = None
    signal: int | None = None
    note: str = ""
    """Why, unless by the end of the command."""


FromClient = Start | Resize | Signal | EndOfInput
ToClient = Opened | Notice | EndOfOutput | Exited

from_client = msgspec.json.Decoder(FromClient)
"""Decodes the client's text messages; raises msgspec.DecodeError, ValidationError among them."""
to_client = msgspec.json.Decoder(ToClient)
"""Decodes text messages for the client; raises as `from_client`."""


def text_of(message: FromClient | ToClient) -> str:
    """The text message."""
    return msgspec.json.encode(message).decode()
