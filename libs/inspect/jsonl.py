"""Exported logs as JSON lines: a header line, then one line per record, the data verbatim.

    {"format":"sanjaya-log/1","cell":"lab","positions":{"placement":812},"created_s":1.7e9,"topics":[…]}
    {"topic":"control","partition":0,"offset":0,"appended_at_s":…,"key":"j-7f3a","headers":{…},"data":{…}}

Data that is no JSON on one line stands under `data_base64` instead.
"""

from __future__ import annotations

import base64
import binascii
import io
from collections.abc import Iterable, Iterator
from functools import partial
from typing import IO

import msgspec

from libs.bus.port import Message, Partition
from libs.contracts.bad_input import BadInput
from libs.contracts.base import Topic
from libs.inspect.logs import FORMAT, Header, Log, Walk

_NO_DATA = msgspec.Raw()


class Line(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One record. Header values are text; one that is not UTF-8 stands under `headers_base64`."""

    topic: Topic
    partition: int
    offset: int
    appended_at_s: float
    key: str
    headers: dict[str, str]
    headers_base64: dict[str, str] = {}
    data: msgspec.Raw = _NO_DATA
    data_base64: str | None = None


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Line)


def write_jsonl(log: Log, out: IO[bytes]) -> int:
    """Write a log; returns the number of records."""
    out.write(header_line(log.header))
    count = 0
    for message in log.messages:
        out.write(record_line(message))
        count += 1
    return count


def header_line(header: Header) -> bytes:
    """The first line of an exported log."""
    return _encoder.encode(header) + b"\n"


def record_line(message: Message) -> bytes:
    """The line of one record."""
    return _encoder.encode(_line(message)) + b"\n"


def read_jsonl(lines: Iterable[bytes], name: str) -> Log:
    """Read an exported log; the records are read as they are walked over.

    Args:
        lines: a file opened in binary mode that can be read again, or a list of lines.
        name: what messages call it.

    Raises:
        BadInput: here for the header, while walking for a record; with file and line.
    """
    first = next(_from_start(lines), b"")
    try:
        header = msgspec.json.decode(first, type=Header)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadInput(f"{name}:1", str(error), f"a header line of {FORMAT}") from None
    if header.format != FORMAT:
        raise BadInput(f"{name}:1", f"format {header.format!r}", repr(FORMAT))
    return Log(header, Walk(partial(_messages, lines, name)))


def _from_start(lines: Iterable[bytes]) -> Iterator[bytes]:
    if isinstance(lines, io.IOBase):
        lines.seek(0)
    return iter(lines)


def _messages(lines: Iterable[bytes], name: str) -> Iterator[Message]:
    for number, text in enumerate(_from_start(lines), start=1):
        if number > 1 and text.strip():
            yield _read(text, f"{name}:{number}")


def _line(message: Message) -> Line:
    texts, others = _headers(message)
    raw = _is_one_line_of_json(message.value)
    return Line(
        topic=message.partition.topic,
        partition=message.partition.index,
        offset=message.offset,
        appended_at_s=message.appended_at_s,
        key=message.key,
        headers=texts,
        headers_base64=others,
        data=msgspec.Raw(message.value) if raw else _NO_DATA,
        data_base64=None if raw else base64.b64encode(message.value).decode(),
    )


def _headers(message: Message) -> tuple[dict[str, str], dict[str, str]]:
    texts: dict[str, str] = {}
    others: dict[str, str] = {}
    for header, value in message.headers:
        try:
            texts[header] = value.decode()
        except UnicodeDecodeError:
            others[header] = base64.b64encode(value).decode()
    return texts, others


def _is_one_line_of_json(value: bytes) -> bool:
    if b"\n" in value or b"\r" in value or value.strip() != value:
        return False
    try:
        msgspec.json.decode(value)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return True


def _read(text: bytes, where: str) -> Message:
    try:
        line = _decoder.decode(text)
        value = bytes(line.data)
        if line.data_base64 is not None:
            value = base64.b64decode(line.data_base64, validate=True)
        others = {header: base64.b64decode(data, validate=True) for header, data in line.headers_base64.items()}
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, binascii.Error) as error:
        raise BadInput(where, str(error), f"a record of {FORMAT}") from None
    if not value and line.data_base64 is None:
        raise BadInput(where, "neither data nor data_base64", "one of them")
    return Message(
        partition=Partition(line.topic, line.partition),
        offset=line.offset,
        key=line.key,
        headers=[(header, data.encode()) for header, data in line.headers.items()] + list(others.items()),
        value=value,
        appended_at_s=line.appended_at_s,
    )
