"""One Apache Kafka broker as a child process."""

import base64
import os
import subprocess
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from string import Template
from types import TracebackType
from typing import Self

from libs.bus.local_broker.archive import ClassArchive
from libs.bus.local_broker.child import spawn
from libs.bus.local_broker.errors import LocalBrokerError
from libs.bus.local_broker.jars import fetch_jars
from libs.bus.local_broker.java import Java, find_java
from libs.bus.local_broker.network import LOOPBACK, free_port, is_free, serves

_HERE = Path(__file__).parent
_POLL_S = 0.05
_LOG_TAIL_LINES = 30

# The serial collector and the quick compiler alone: what starts fastest and needs the least memory.
_JVM_FLAGS = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.awt.headless=true")
_BROKER_HEAP = ("-Xms64m", "-Xmx384m")
_FORMAT_HEAP = ("-Xmx64m",)


class LocalBroker:
    """A single-node Kafka (KRaft) on the loopback address, without replication, for tests and demonstrations.

    All its state is in `data_dir`: records, `server.properties`, and `broker.log`. `start()` after `stop()` or
    `kill()` continues on the same data and port. The calls block; in a coroutine use `asyncio.to_thread`. Not for
    use by two threads at once. On Linux the broker dies with the process that started it.
    """

    def __init__(
        self,
        data_dir: Path,
        *,
        port: int | None = None,
        cache_dir: Path | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        """A broker that is not running yet.

        Args:
            data_dir: all its state.
            port: None picks a free one.
            cache_dir: where the jars are kept, see `default_cache_dir`.
            properties: settings that take the place of those in `server.properties.in`.
        """
        self.data_dir = data_dir.absolute()
        self.port = port if port is not None else free_port()
        self._controller_port = free_port()
        self._cache_dir = cache_dir
        self._own_properties = dict(properties or {})
        self._process: subprocess.Popen[bytes] | None = None
        self._archive: ClassArchive | None = None

    @property
    def bootstrap(self) -> str:
        """The address for clients, `host:port`; the same before, during and after a run."""
        return f"{LOOPBACK}:{self.port}"

    @property
    def pid(self) -> int | None:
        """The process id of the broker that was started, None when there is none."""
        return self._process.pid if self._process else None

    @property
    def log_file(self) -> Path:
        """What the broker and the storage tool printed in all runs on this data."""
        return self.data_dir / "broker.log"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def start(self, timeout_s: float = 180.0) -> None:
        """Fetch the jars and format the storage if need be, start, and return when the broker serves requests.

        After a kill this takes at least the 2 s in which the controller still believes in the killed broker.
        Raises LocalBrokerError when there is no usable Java or Maven, when the broker ends at once, or when it does
        not serve within `timeout_s` (which does not count the download); then nothing is left running.
        """
        if self._process is not None:
            raise LocalBrokerError("the broker was started already")
        if not is_free(self.port):
            raise LocalBrokerError(f"port {self.port} is in use")
        java, libs = find_java(), fetch_jars(self._cache_dir)
        self._write_properties()
        self._archive = ClassArchive(java, libs)
        if not (self._log_dir / "meta.properties").exists():
            self._format(java, libs, *self._archive.reading_flags())
        jvm = _java_command(java, libs, *_BROKER_HEAP, self._archive.flag())
        self._process = spawn([*jvm, "kafka.Kafka", str(self._properties)], self.log_file)
        try:
            self._wait_until_it_serves(timeout_s)
        except BaseException:
            self.kill()
            raise

    def stop(self, timeout_s: float = 30.0) -> None:
        """Shut down in order (SIGTERM), by force if that takes longer than `timeout_s`. Harmless if not running."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
            return
        self._process = None
        if self._archive is not None:
            self._archive.publish()

    def kill(self) -> None:
        """End it as a crash would (SIGKILL), with no chance to tidy up. Harmless if not running."""
        if self._process is None:
            return
        self._process.kill()
        self._process.wait()
        self._process = None

    def check(self) -> None:
        """Raise LocalBrokerError, with the end of the log, if the broker is not running (any more)."""
        if self._process is None:
            raise LocalBrokerError("the broker is not running")
        status = self._process.poll()
        if status is not None:
            raise LocalBrokerError(f"the broker ended with status {status}\n{self._log_tail()}")

    @property
    def _properties(self) -> Path:
        return self.data_dir / "server.properties"

    @property
    def _log_dir(self) -> Path:
        return self.data_dir / "log"

    def _write_properties(self) -> None:
        self.data_dir.mkdir(parents=True, exist_ok=True)
        template = Template((_HERE / "server.properties.in").read_text())
        values = {"port": self.port, "controller_port": self._controller_port, "log_dir": self._log_dir}
        own = "".join(f"{name}={value}\n" for name, value in self._own_properties.items())
        self._properties.write_text(template.substitute(values) + own)  # of two lines of one name the last counts

    def _format(self, java: Java, libs: Path, *flags: str) -> None:
        tool = [*_java_command(java, libs, *_FORMAT_HEAP, *flags), "kafka.tools.StorageTool", "format"]
        process = spawn([*tool, "--cluster-id", _new_cluster_id(), "--config", str(self._properties)], self.log_file)
        if process.wait() != 0:
            raise LocalBrokerError(f"formatting {self._log_dir} failed\n{self._log_tail()}")

    def _wait_until_it_serves(self, timeout_s: float) -> None:
        give_up_at = time.monotonic() + timeout_s
        while not serves(self.port):
            self.check()
            if time.monotonic() > give_up_at:
                raise LocalBrokerError(f"the broker does not answer after {timeout_s} s\n{self._log_tail()}")
            time.sleep(_POLL_S)

    def _log_tail(self) -> str:
        lines = self.log_file.read_text(errors="replace").splitlines()
        return "\n".join([f"the end of {self.log_file}:", *lines[-_LOG_TAIL_LINES:]])


def _java_command(java: Java, libs: Path, *flags: str) -> list[str]:
    # The class path in a fixed order: a class-data archive is valid for exactly one.
    class_path = os.pathsep.join(str(jar) for jar in sorted(libs.glob("*.jar")))
    logging = f"-Dlog4j2.configurationFile={_HERE / 'log4j2.properties'}"
    return [java.executable, *_JVM_FLAGS, *flags, logging, "-cp", class_path]


def _new_cluster_id() -> str:
    """A random cluster id as Kafka writes it: 16 bytes in URL-safe base64 without padding, not starting with a dash."""
    while (text := base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")).startswith("-"):
        pass
    return text
