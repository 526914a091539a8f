"""An archive, read back. Nothing of a segment is given out before its hash was found right."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from libs.bus.port import Message, Partition
from libs.contracts.bad_input import BadInput
from libs.contracts.base import Topic
from libs.inspect.archive.files import FileSum, sum_of
from libs.inspect.archive.manifest import MANIFEST, Manifest, Segment, read_manifest
from libs.inspect.jsonl import read_jsonl
from libs.inspect.logs import AUDITED, Header, Log, Walk, place
from libs.kernel.words import counted


class Archive:
    """A directory with a manifest that holds together."""

    def __init__(self, directory: Path, manifest: Manifest) -> None:
        self.directory, self.manifest = directory, manifest

    @classmethod
    def open(cls, directory: Path) -> Archive:
        """Read the manifest and see that its files are there.

        Raises:
            BadInput: with the file, what was found and what was expected.
        """
        opened = cls(directory, read_manifest(directory))
        for segment in opened.manifest.segments:
            for file in segment.files:
                opened._check_size(segment, file)
        return opened

    def next_offset(self, partition: Partition) -> int:
        """Offset of the first record of a partition that is not in the archive."""
        return self.manifest.next_offset(partition)

    def messages(self, partition: Partition, start: int = 0) -> Iterator[Message]:
        """The archived records of a partition from an offset on.

        Raises:
            BadInput: while walking, before the first record of a segment that was altered.
        """
        for segment in self.manifest.segments:
            if segment.of == partition and segment.next_offset > start:
                for message in self._segment(segment):
                    if message.offset >= start:
                        yield message

    def check(self) -> None:
        """Read every file again and compare it with the manifest.

        Raises:
            BadInput: for the first one that is not what it should be.
        """
        for segment in self.manifest.segments:
            for file in segment.files:
                self._check_sum(segment, file)

    def check_log(self, cell: str, log_id: str) -> None:
        """Raises BadInput when the archive is of another log than this cell's with this first event."""
        manifest = self.manifest
        if (manifest.cell, manifest.log_id) != (cell, log_id):
            what = f"of the log of cell {manifest.cell!r} that begins with event {manifest.log_id or 'none'}"
            expected = f"cell {cell!r}, which begins with {log_id or 'none'}"
            raise BadInput(str(self.directory / MANIFEST), what, expected)

    def log(self, topics: Sequence[Topic] = AUDITED) -> Log:
        """The archive alone, as a log that ends where the archive ends."""
        header = Header(
            cell=self.manifest.cell, contiguous=self.manifest.contiguous, topics=tuple(topic.value for topic in topics)
        )
        return Log(header, Walk(partial(self._all, topics)))

    def _all(self, topics: Sequence[Topic]) -> Iterator[Message]:
        archived = {segment.of for segment in self.manifest.segments if segment.topic in topics}
        for partition in sorted(archived, key=lambda partition: (topics.index(partition.topic), partition.index)):
            yield from self.messages(partition)

    def _segment(self, segment: Segment) -> Iterator[Message]:
        self._check_sum(segment, segment.jsonl)
        path = self.directory / segment.jsonl.name
        records, last = 0, segment.first_offset - 1
        try:
            with gzip.open(path, "rb") as lines:
                for message in read_jsonl(lines, str(path)).messages:
                    inside = last < message.offset <= segment.last_offset and message.partition == segment.of
                    if not inside or (records == 0 and message.offset != segment.first_offset):
                        raise self._wrong(
                            segment, f"a record {place(message)}", f"offsets after {last} of its partition"
                        )
                    records, last = records + 1, message.offset
                    yield message
        except (OSError, EOFError, zlib.error) as error:
            raise self._wrong(segment, str(error), "a gzip file") from None
        if (records, last) != (segment.records, segment.last_offset):
            raise self._wrong(segment, f"{counted(records, 'record')} up to {last}", f"{segment.records}")

    def _check_size(self, segment: Segment, file: FileSum) -> None:
        try:
            size = (self.directory / file.name).stat().st_size
        except OSError as error:
            raise self._bad(segment, file, error.strerror or str(error), f"{file.bytes} bytes") from None
        if size != file.bytes:
            raise self._bad(segment, file, f"{size} bytes", f"{file.bytes}")

    def _check_sum(self, segment: Segment, file: FileSum) -> None:
        self._check_size(segment, file)
        try:
            found = sum_of(self.directory / file.name)
        except OSError as error:
            raise self._bad(segment, file, error.strerror or str(error), "a file that can be read") from None
        if found.sha256 != file.sha256:
            raise self._bad(segment, file, f"SHA-256 {found.sha256}", file.sha256)

    def _wrong(self, segment: Segment, what: str, expected: str) -> BadInput:
        return self._bad(segment, segment.jsonl, what, expected)

    def _bad(self, segment: Segment, file: FileSum, what: str, expected: str) -> BadInput:
        return BadInput(f"{self.directory / file.name}: segment {segment.place}", what, expected)
