"""A class-data archive: the broker's classes as a memory image, which halves its start-up time."""

import uuid
from pathlib import Path

from libs.bus.local_broker.java import Java


class ClassArchive:
    """The archive beside the jars, which fits exactly one Java and one folder of jars.

    A JVM writes it when it ends in order (2 s longer, once) and ignores one that does not fit. `publish` moves it to
    its place in one step, as several brokers may write at once.
    """

    def __init__(self, java: Java, libs: Path) -> None:
        self._path = libs / f"classes-java-{java.version}.jsa"
        self._draft = libs / f"{self._path.name}.{uuid.uuid4().hex}"

    def flag(self) -> str:
        """The JVM flag that uses the archive; where there is none yet, the one that writes it."""
        if self._path.exists():
            return f"-XX:SharedArchiveFile={self._path}"
        return f"-XX:ArchiveClassesAtExit={self._draft}"

    def reading_flags(self) -> tuple[str, ...]:
        """JVM flags for another program of the same jars: they use the archive where there is one."""
        return (f"-XX:SharedArchiveFile={self._path}",) if self._path.exists() else ()

    def publish(self) -> None:
        """Call after a JVM ended in order: from now on others use what it wrote, if it did."""
        if self._draft.exists():
            self._draft.replace(self._path)
