"""Keeps the files of a version for ever: `python -m tests.golden.keep COMMIT ...`.

For each commit a folder `old/<date>-<commit>/` is made, with what that commit's own code has written:

    cell.jsonl.gz       its golden log, byte for byte
    snapshots.db.gz     a snapshot of every service in the middle of that log
    readmodels.db.gz    the read models of the whole log
    agent/              an agent's journal, and the folder of a task that has ended, with its page

A commit is kept when it changes the golden log or how something is stored, before the change after it.
"""

from __future__ import annotations

import gzip
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
OLD = HERE / "old"
LOG = "tests/golden/cell.jsonl"
RECORDER = "tests/golden/keeping.py"


def keep(commit: str) -> Path:
    """Make the folder of one commit.

    Returns:
        The folder.

    Raises:
        FileExistsError: it is there already; what is kept is never written again.
        subprocess.CalledProcessError: git does not know the commit, or its code has failed.
    """
    name = _git("show", "--no-patch", "--format=%cd-%h", "--date=format:%Y-%m-%d", "--abbrev=7", commit)
    kept = OLD / name
    kept.mkdir(parents=True)
    with tempfile.TemporaryDirectory(prefix="kept-") as folder:
        tree = Path(folder) / "tree"
        _git("worktree", "add", "--detach", str(tree), commit)
        try:
            record(tree, Path(folder), kept)
        except BaseException:
            _remove(kept)
            raise
        finally:
            _git("worktree", "remove", "--force", str(tree))
    return kept


def record(tree: Path, scratch: Path, kept: Path) -> None:
    """Let the code in `tree` write everything, and pack what is large.

    Args:
        tree: the files of a commit.
        scratch: an empty folder for what is needed meanwhile; its name stands in some of the files.
        kept: where the files are to be.

    Raises:
        subprocess.CalledProcessError: the code has failed.
    """
    own = tree / RECORDER
    recorder = own if own.exists() else ROOT / RECORDER
    environment = {
        "PATH": "/usr/bin:/bin",
        "PYTHONPATH": f"{tree}:{tree / 'torch_agent' / 'src'}",
        "HOME": str(scratch),
        "TMPDIR": str(scratch),
    }
    command = [_interpreter(scratch), "-P", str(recorder), str(tree / LOG), str(kept)]
    subprocess.run(command, env=environment, cwd=scratch, check=True)
    _pack((tree / LOG).read_bytes(), kept / "cell.jsonl.gz")
    for database in kept.glob("*.db"):
        _pack(database.read_bytes(), kept / f"{database.name}.gz")
        database.unlink()


def _interpreter(scratch: Path) -> str:
    """This interpreter under a path of the scratch folder: the kept files name no place of this machine."""
    (scratch / "python").symlink_to(sys.prefix)
    return str(scratch / "python" / "bin" / "python")


def _pack(data: bytes, path: Path) -> None:
    path.write_bytes(gzip.compress(data, 9, mtime=0))


def _remove(folder: Path) -> None:
    for path in sorted(folder.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    folder.rmdir()


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def main() -> None:
    """Keep the commits that are named."""
    if not sys.argv[1:]:
        raise SystemExit("which commits? python -m tests.golden.keep COMMIT ...")
    for commit in sys.argv[1:]:
        kept = keep(commit)
        size = sum(path.stat().st_size for path in kept.rglob("*") if path.is_file())
        print(f"{kept.relative_to(ROOT)}: {size:,} bytes")


if __name__ == "__main__":
    main()
