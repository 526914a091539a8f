"""The broker's jars: resolved by Maven once, then kept in a cache."""

import contextlib
import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from pathlib import Path

from libs.bus.local_broker.errors import LocalBrokerError

_POM = Path(__file__).with_name("pom.xml")
FETCHING = "fetching"
"""With this word a line begins, the last one as long as the broker is being downloaded."""


def default_cache_dir() -> Path:
    """`$SANJAYA_CACHE`, else `~/.cache/sanjaya`."""
    return Path(os.environ.get("SANJAYA_CACHE") or "~/.cache/sanjaya").expanduser()


def kafka_version() -> str:
    """The version that pom.xml asks for."""
    version = ElementTree.parse(_POM).findtext(".//{*}kafka.version")
    if version is None:
        raise LocalBrokerError(f"{_POM} does not set kafka.version")
    return version


def fetch_jars(cache_dir: Path | None = None) -> Path:
    """The folder with the broker's jars, `<cache_dir>/kafka-<version>`; the first call downloads about 45 MB.

    The folder appears complete or not at all, and several processes may call at once: one downloads, the others
    wait for it. Progress goes to stderr. Raises LocalBrokerError when Maven is missing or fails.
    """
    cache_dir = cache_dir or default_cache_dir()
    libs = cache_dir / f"kafka-{kafka_version()}"
    if libs.is_dir():
        return libs
    cache_dir.mkdir(parents=True, exist_ok=True)
    with _locked(libs.with_name(f"{libs.name}.lock")):
        if not libs.is_dir():
            _download(libs)
    return libs


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock between processes. The kernel drops it with its holder, so it cannot be left behind."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _download(libs: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise LocalBrokerError("no mvn on the PATH: install Apache Maven, or set KAFKA_BOOTSTRAP_SERVERS to a broker")
    print(f"{FETCHING} {libs.name} with Maven, about 45 MB, once", file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory(dir=libs.parent, prefix=f"{libs.name}.") as scratch:
        _copy_dependencies(maven, Path(scratch, "libs")).rename(libs)
    print(f"fetched {libs}", file=sys.stderr, flush=True)


def _copy_dependencies(maven: str, target: Path) -> Path:
    command = [maven, "-q", "-B", "-f", str(_POM), "dependency:copy-dependencies", f"-Dlibs.directory={target}"]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != 0:
        raise LocalBrokerError(f"Maven failed with status {done.returncode}:\n{done.stdout[-4000:]}")
    return target
