"""Finding a Java that is new enough."""

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from libs.bus.local_broker.errors import LocalBrokerError

OLDEST_JAVA = 17
"""Feature release that Kafka 4 brokers ask for."""


@dataclass(frozen=True, slots=True)
class Java:
    """A usable Java: `executable` to run, and `version` in full, such as "17.0.15"."""

    executable: str
    version: str


def find_java() -> Java:
    """The Java of `JAVA_HOME`, else the one on the `PATH`.

    Raises LocalBrokerError when there is none, when it does not run, or when it is older than OLDEST_JAVA.
    """
    executable = _executable()
    version = _version(executable)
    if _feature_release(version) < OLDEST_JAVA:
        raise LocalBrokerError(f"Java {version} ({executable}) is too old: Kafka needs Java {OLDEST_JAVA} or newer")
    return Java(executable, version)


def _executable() -> str:
    home = os.environ.get("JAVA_HOME")
    found = shutil.which(str(Path(home, "bin", "java"))) if home else shutil.which("java")
    if found is None:
        where = f"in JAVA_HOME={home}" if home else "on the PATH, and JAVA_HOME is not set"
        raise LocalBrokerError(f"no java {where}: install a JRE, version {OLDEST_JAVA} or newer")
    return found


def _version(executable: str) -> str:
    said = subprocess.run([executable, "-version"], capture_output=True, text=True, check=False).stderr
    match = re.search(r'version "([^"]+)"', said)
    if match is None:
        raise LocalBrokerError(f"`{executable} -version` does not name a version:\n{said}")
    return match[1]


def _feature_release(version: str) -> int:
    """17 for "17.0.15", 8 for the old spelling "1.8.0_402", 25 for "25-ea"."""
    numbers = re.findall(r"\d+", version)
    return int(numbers[1] if numbers[0] == "1" else numbers[0])
