"""What an archive consists of: a chain of segments, each with the hashes of its files and of the segment before it."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

import msgspec

from libs.bus.port import Partition
from libs.contracts.bad_input import BadInput
from libs.contracts.base import Topic
from libs.inspect.archive.files import FileSum, publish, unfinished
from libs.kernel.words import counted

FORMAT = "sanjaya-archive/1"
MANIFEST = "manifest.json"


class Segment(msgspec.Struct, frozen=True, kw_only=True):
    """Some consecutive records of one partition, in two files that say the same."""

    topic: Topic
    partition: int
    begin_offset: int
    """The segment has every record from here on; the one before it in this partition ends here."""
    first_offset: int
    """Of its first record."""
    last_offset: int
    """Of its last record."""
    next_offset: int
    """The segment has every record before this offset."""
    records: int
    jsonl: FileSum
    """`sanjaya-log/1`, compressed: the records byte for byte."""
    parquet: FileSum
    """The same for analytics."""
    previous: str
    """Digest of the segment before this one in the manifest."""

    @property
    def place(self) -> str:
        """`control/0@0-4409`, as messages name a segment."""
        return f"{self.topic}/{self.partition}@{self.first_offset}-{self.last_offset}"

    @property
    def files(self) -> tuple[FileSum, FileSum]:
        """Both files."""
        return self.jsonl, self.parquet

    @property
    def of(self) -> Partition:
        """The partition that its records are from."""
        return Partition(self.topic, self.partition)

    @property
    def digest(self) -> str:
        """SHA-256 over everything that the manifest says of this segment, as 64 hexadecimal digits."""
        return hashlib.sha256(msgspec.json.encode(self)).hexdigest()


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """An archive's table of contents, written last: a file that it does not name is no part of the archive."""

    format: str = FORMAT
    cell: str
    log_id: str
    """Id of the log's first event, which names the log."""
    contiguous: bool
    """Offsets have no gaps. (Kafka leaves gaps.)"""
    segments: tuple[Segment, ...] = ()
    head: str = ""
    """Digest of the last segment; `root` while there is none."""

    @property
    def root(self) -> str:
        """What the first segment names as the one before it: binds the chain to the log."""
        return hashlib.sha256(msgspec.json.encode([FORMAT, self.cell, self.log_id, self.contiguous])).hexdigest()

    def next_offset(self, partition: Partition) -> int:
        """Offset of the first record of a partition that is not in the archive."""
        return max((segment.next_offset for segment in self.segments if segment.of == partition), default=0)

    def added(self, segment: Segment) -> Manifest:
        """The manifest with one more segment."""
        return msgspec.structs.replace(self, segments=(*self.segments, segment), head=segment.digest)


def new_manifest(cell: str, log_id: str, *, contiguous: bool) -> Manifest:
    """That of an archive without segments."""
    empty = Manifest(cell=cell, log_id=log_id, contiguous=contiguous)
    return msgspec.structs.replace(empty, head=empty.root)


def is_archive(directory: Path) -> bool:
    """Whether a directory has a manifest."""
    return (directory / MANIFEST).is_file()


def write_manifest(directory: Path, manifest: Manifest) -> None:
    """Replace the manifest in one step."""
    text = msgspec.json.format(msgspec.json.encode(manifest), indent=1) + b"\n"
    unfinished(directory, MANIFEST).write_bytes(text)
    publish(directory, MANIFEST)


def read_manifest(directory: Path) -> Manifest:
    """Read a manifest and check that it holds together.

    Raises:
        BadInput: there is none, or it cannot be read, or its segments do not follow each other.
    """
    path = directory / MANIFEST
    try:
        manifest = msgspec.json.decode(path.read_bytes(), type=Manifest)
    except FileNotFoundError:
        raise BadInput(str(path), "no such file", f"a manifest of {FORMAT}") from None
    except OSError as error:
        raise BadInput(str(path), error.strerror or str(error), f"a manifest of {FORMAT}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadInput(str(path), str(error), f"a manifest of {FORMAT}") from None
    if manifest.format != FORMAT:
        raise BadInput(str(path), f"format {manifest.format!r}", repr(FORMAT))
    _check_chain(path, manifest)
    _check_offsets(path, manifest.segments)
    return manifest


def _check_chain(path: Path, manifest: Manifest) -> None:
    expected = manifest.root
    for segment in manifest.segments:
        if segment.previous != expected:
            what = f"names {segment.previous} as the segment before it"
            raise BadInput(f"{path}: segment {segment.place}", what, expected)
        expected = segment.digest
    if manifest.head != expected:
        last = manifest.segments[-1].place if manifest.segments else "none"
        raise BadInput(f"{path}: after its last segment ({last})", f"head {manifest.head}", expected)


def _check_offsets(path: Path, segments: Sequence[Segment]) -> None:
    ends: dict[Partition, int] = {}
    for segment in segments:
        where, begin = f"{path}: segment {segment.place}", ends.get(segment.of, 0)
        if segment.begin_offset != begin:
            raise BadInput(where, f"begins at offset {segment.begin_offset}", f"{begin}, where the one before it ends")
        within = begin <= segment.first_offset <= segment.last_offset < segment.next_offset
        if not within or not 1 <= segment.records <= segment.last_offset - segment.first_offset + 1:
            what = f"{counted(segment.records, 'record')} from {begin} to {segment.next_offset}"
            raise BadInput(where, what, "offsets that enclose its records")
        for file in segment.files:
            if Path(file.name).name != file.name or file.name in ("", ".", ".."):
                raise BadInput(where, f"file {file.name!r}", "a name within the archive's directory")
        ends[segment.of] = segment.next_offset
