"""A working directory on its way to a cell: which of its files are uploaded, and how they are packed.

| found | what becomes of it |
|---|---|
| a file, or a link to a file anywhere | its content |
| a folder without any file | an empty folder |
| a link to a folder inside of the directory | a link |
| a link to a folder outside, or to nothing; a socket, a pipe, a device | left out, and said |
| a file or a folder that cannot be read | refused: a job without it would fail later, far from the cause |
| what `.gitignore` or `.sanjayaignore` names, in the directory, below, or above within one git repository | left out |

Of two patterns that are about one file the deeper, then that of `.sanjayaignore`, then the later one counts.
"""

from __future__ import annotations

import gzip
import io
import os
import posixpath
import tarfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from pathspec import GitIgnoreSpec

from libs.contracts.bad_input import BadInput
from libs.kernel.words import bytes_of, counted

IGNORE_FILES = (".gitignore", ".sanjayaignore")
ALWAYS_IGNORED = GitIgnoreSpec.from_lines(
    [".git", "__pycache__/", "*.pyc", ".venv/", ".ipynb_checkpoints/", ".mypy_cache/", ".pytest_cache/", ".ruff_cache/"]
)
NAMED = 5
"""How many of the largest files a refusal names."""
FASTER = 6
"""gzip's level: nearly as small as the best one, in a third of the time."""

Rules = tuple[tuple[str, GitIgnoreSpec], ...]
"""(absolute folder, its patterns), the outermost first."""


@dataclass(frozen=True)
class Limits:
    """What the cell takes as one upload."""

    files: int
    unpacked_bytes: int
    packed_bytes: int


@dataclass(frozen=True)
class Entry:
    """One member of an upload."""

    name: str
    """Relative to the directory."""
    path: Path
    bytes: int = 0
    link: str = ""
    """Where it leads, relative to its own folder; empty: it is a file or an empty folder."""
    is_folder: bool = False


@dataclass(frozen=True)
class Selection:
    """What of a directory is uploaded."""

    folder: Path
    entries: list[Entry]
    left_out: list[str]
    """A phrase per name that is no file and cannot be uploaded."""

    @property
    def files(self) -> list[Entry]:
        """The entries with content."""
        return [entry for entry in self.entries if not (entry.link or entry.is_folder)]

    @property
    def bytes(self) -> int:
        """Of all files, unpacked."""
        return sum(entry.bytes for entry in self.entries)

    def __contains__(self, name: str) -> bool:
        """Whether a file, a link or a folder of this name is uploaded."""
        return any(entry.name == name or entry.name.startswith(f"{name}/") for entry in self.entries)

    def size(self) -> str:
        """`3 files, 12 KiB`."""
        return f"{counted(len(self.files), 'file')}, {bytes_of(self.bytes)}"


def select(folder: Path, most_files: int) -> Selection:
    """Choose what is uploaded, without reading any content.

    Raises:
        BadInput: there is no such directory, part of it cannot be read, or it has too many files.
    """
    if not folder.is_dir():
        raise BadInput("--workdir", f"{folder} is no directory", "a directory to upload")
    root = Path(os.path.realpath(folder))
    found = Selection(folder, [], [])
    # A list and no recursion: directories may be nested deeper than Python's stack.
    waiting: list[tuple[Path, Rules]] = [(root, _rules_above(root))]
    while waiting:
        here, rules = waiting.pop()
        rules = (*rules, *_rules_in(here))
        kept = [item for item in _listed(here) if not _is_ignored(item, rules)]
        if not kept and here != root:
            found.entries.append(Entry(_name(here, root), here, is_folder=True))
        for item in kept:
            if item.is_dir(follow_symlinks=False):
                waiting.append((Path(item.path), rules))
            else:
                _take(item, root, found)
        if len(found.entries) > most_files:
            raise BadInput(
                "--workdir", _most_are_in(found, most_files), f"at most {most_files:,} files. {_advice(folder)}"
            )
    found.entries.sort(key=lambda entry: entry.name)
    return found


def placed_at(found: Selection, path: str) -> Selection:
    """The same selection, below a path of another directory."""
    entries = [replace(entry, name=posixpath.join(path, entry.name).rstrip("/")) for entry in found.entries]
    return replace(found, entries=entries)


def select_file(path: Path) -> Selection:
    """One file, whatever is ignored beside it.

    Raises:
        BadInput: it cannot be read.
    """
    if not os.access(path, os.R_OK):
        raise _unreadable(path, PermissionError(13, "permission denied"))
    return Selection(path.parent, [Entry("", path, bytes=path.stat().st_size)], [])


def pack(found: Selection, limits: Limits, onto: Path | None = None) -> bytes:
    """A tar.gz of what was selected. The same files give the same bytes, so that they are stored and sent once.

    Args:
        onto: an archive; its members are kept, but for those that the selection has as well.

    Raises:
        BadInput: it is larger than the cell takes, or has changed meanwhile.
    """
    if found.bytes > limits.unpacked_bytes:
        raise _too_large(found, f"at most {bytes_of(limits.unpacked_bytes)}")
    buffer = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=buffer, mode="wb", compresslevel=FASTER, mtime=0) as zipped,
        tarfile.open(fileobj=zipped, mode="w", dereference=True) as tar,
    ):
        if onto is not None:
            _keep(onto, {entry.name for entry in found.entries}, tar)
        for entry in found.entries:
            _add(tar, entry)
            if buffer.tell() > limits.packed_bytes:
                raise _too_large(found, f"at most {bytes_of(limits.packed_bytes)} packed")
    if buffer.tell() > limits.packed_bytes:  # with what was still in the compressor
        raise _too_large(found, f"at most {bytes_of(limits.packed_bytes)} packed")
    return buffer.getvalue()


def _listed(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as items:
            return sorted(items, key=lambda item: item.name)
    except OSError as error:
        raise _unreadable(folder, error) from None


def _take(item: os.DirEntry[str], root: Path, found: Selection) -> None:
    """Put what is no folder where it belongs: among the entries or among what is left out."""
    path = Path(item.path)
    name = _name(path, root)
    if _leads_to(item.is_file):
        if not os.access(path, os.R_OK):
            raise _unreadable(path, PermissionError(13, "permission denied"))
        found.entries.append(Entry(name, path, bytes=item.stat().st_size))
    elif not item.is_symlink():
        found.left_out.append(f"{name} (no file)")
    elif not _leads_to(item.is_dir):
        found.left_out.append(f"{name} (a link to {os.readlink(path)}, which cannot be reached)")
    else:
        target = Path(os.path.realpath(path))
        if target.is_relative_to(root):
            found.entries.append(Entry(name, path, link=os.path.relpath(target, path.parent)))
        else:
            found.left_out.append(f"{name} (a link to the folder {target}, outside)")


def _leads_to(kind: Callable[[], bool]) -> bool:
    """Whether a name is, or leads to, something of this kind; a link in a circle leads to nothing."""
    try:
        return kind()
    except OSError:
        return False


def _name(path: Path, root: Path) -> str:
    return path.relative_to(root).as_posix()


def _rules_above(root: Path) -> Rules:
    """What is always ignored, and the patterns of the folders between the top of the git repository and `root`."""
    rules: Rules = ((str(root), ALWAYS_IGNORED),)
    above: list[Path] = []
    for folder in (root, *root.parents):
        if folder != root:
            above.insert(0, folder)
        if (folder / ".git").exists():
            return (*rules, *(rule for outer in above for rule in _rules_in(outer)))
    return rules


def _rules_in(folder: Path) -> Iterator[tuple[str, GitIgnoreSpec]]:
    for name in IGNORE_FILES:
        path = folder / name
        try:
            if path.is_file():
                yield str(folder), GitIgnoreSpec.from_lines(path.read_text().splitlines())
        except OSError as error:
            raise _unreadable(path, error) from None
        except ValueError as error:  # no UTF-8, or no pattern
            raise BadInput(str(path), str(error), "patterns as in .gitignore") from None


def _is_ignored(item: os.DirEntry[str], rules: Rules) -> bool:
    """A link to a folder counts as a folder: `data/` is meant to keep out whatever `data` leads to."""
    path = f"{item.path}/" if _leads_to(item.is_dir) else item.path
    for folder, patterns in reversed(rules):
        verdict = patterns.check_file(path[len(folder.rstrip("/")) + 1 :]).include
        if verdict is not None:
            return verdict
    return False


def _keep(archive: Path, replaced: set[str], tar: tarfile.TarFile) -> None:
    with tarfile.open(archive) as before:
        for member in before:
            if member.name not in replaced:
                tar.addfile(member, before.extractfile(member) if member.isfile() else None)


def _add(tar: tarfile.TarFile, entry: Entry) -> None:
    try:
        if entry.link:
            member = tarfile.TarInfo(entry.name)
            member.type, member.linkname = tarfile.SYMTYPE, entry.link
            tar.addfile(member)
            return
        member = tar.gettarinfo(entry.path, entry.name)
        member.uid = member.gid = member.mtime = 0
        member.uname = member.gname = ""
        if entry.is_folder:
            tar.addfile(member)
            return
        with entry.path.open("rb") as file:
            tar.addfile(member, file)
    except OSError as error:  # also a file that has become shorter
        raise _unreadable(entry.path, error) from None


def _unreadable(path: Path, error: OSError) -> BadInput:
    expected = "what can be read; name in .sanjayaignore what the job does not need"
    return BadInput("--workdir", f"{path} cannot be read: {error.strerror or error}", expected)


def _too_large(found: Selection, limit: str) -> BadInput:
    largest = sorted(found.files, key=lambda entry: (-entry.bytes, entry.name))[:NAMED]
    named = ", ".join(f"{entry.name} {bytes_of(entry.bytes)}" for entry in largest)
    return BadInput(
        "--workdir", f"{found.folder} has {found.size()}; the largest: {named}", f"{limit}. {_advice(found.folder)}"
    )


def _most_are_in(found: Selection, most_files: int) -> str:
    """Where the files are that are too many."""
    folders = Counter(entry.name.partition("/")[0] for entry in found.entries if "/" in entry.name)
    most = ", ".join(f"{name}/ {number:,}" for name, number in folders.most_common(NAMED))
    return f"{found.folder} has more than {most_files:,} files" + (f"; most are in {most}" if most else "")


def _advice(folder: Path) -> str:
    return (
        f"Name in {folder / '.sanjayaignore'} what the job does not need (patterns as in .gitignore), "
        "have large data where the nodes find it, or upload nothing with --no-upload"
    )
