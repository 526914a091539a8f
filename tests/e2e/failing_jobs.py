"""Jobs that fail in as many ways, each a script of its own: what is found, and what follows.

All of them are real processes. What a test machine has not (a GPU, a hub) is played by the lines that it leads to.
"""

from __future__ import annotations

import textwrap
from dataclasses import dataclass, field
from typing import Any

MIB = 1 << 20


@dataclass(frozen=True)
class Failing:
    """One way."""

    cause: str
    consequence: str
    script: str
    """Python; `once()` is true in the first attempt alone."""
    state: str = "FAILED"
    attempts: int = 1
    fields: dict[str, Any] = field(default_factory=dict)
    command: list[str] = field(default_factory=list)
    """Instead of a script."""

    def job(self, name: str, folder: str) -> dict[str, Any]:
        """As it is submitted."""
        head = "import os, sys, time\ndef once(): return os.environ['SANJAYA_ATTEMPT'] == '1'\n"
        script = f"{head}FOLDER = {folder!r}\n{textwrap.dedent(self.script)}"
        return {"name": name, "command": self.command or ["python", "-u", "-c", script], **self.fields}


ONCE_MORE = {"max_retries": 1}
WAYS: dict[str, Failing] = {
    "syntax": Failing("syntax", "never", "compile('def f(:\\n', 'train.py', 'exec')", fields=ONCE_MORE),
    "import": Failing("module_missing", "never", "import apex_of_no_machine", fields=ONCE_MORE),
    "file": Failing("file_missing", "never", "open('/no/such/train.csv')", fields=ONCE_MORE),
    "json": Failing("json_broken", "never", "import json; json.loads('oops')", fields=ONCE_MORE),
    "permission": Failing("file_permission", "never", "raise PermissionError(13, 'Permission denied', '/data/x')"),
    "key": Failing("key_error", "never", "{}['label']", fields=ONCE_MORE),
    "nan": Failing(
        "nan_values", "never", "raise RuntimeError(\"Function 'MulBackward0' returned nan values in its 0th output.\")"
    ),
    "command": Failing("command_not_found", "never", "", command=["sh", "-c", "no_such_command_of_any_machine"]),
    "segfault": Failing(
        "segmentation_fault", "later", "import ctypes; ctypes.string_at(0)", attempts=2, fields=ONCE_MORE
    ),
    "abort": Failing("aborted", "later", "os.abort()", attempts=2, fields=ONCE_MORE),
    "port": Failing(
        "port_in_use",
        "later",
        """
        import socket
        first = socket.create_server(("127.0.0.1", 0))
        socket.create_server(first.getsockname()[:2])
        """,
        attempts=2,
        fields=ONCE_MORE,
    ),
    "hub": Failing(
        "hub_throttled",
        "later",
        """
        if once():
            url = "https://huggingface.co/api/models/x"
            sys.exit(f"requests.exceptions.HTTPError: 429 Client Error: Too Many Requests for url: {url}")
        """,
        state="SUCCEEDED",
        attempts=2,
        fields=ONCE_MORE,
    ),
    "xid": Failing(
        "xid_79",
        "elsewhere",
        """
        if once():
            sys.exit("NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, GPU has fallen off the bus.")
        """,
        state="SUCCEEDED",
        attempts=2,
        fields=ONCE_MORE,
    ),
    "ecc": Failing(
        "ecc_uncorrectable",
        "elsewhere",
        """
        if once():
            raise RuntimeError("CUDA error: uncorrectable ECC error encountered")
        """,
        state="SUCCEEDED",
        attempts=2,
        fields=ONCE_MORE,
    ),
    "shm": Failing(
        "dev_shm_full",
        "elsewhere",
        """
        if once():
            raise RuntimeError("DataLoader worker (pid 4711) is killed by signal: Bus error. It is possible that "
                "dataloader's workers are out of shared memory. Please try to raise your shared memory limit.")
        """,
        state="SUCCEEDED",
        attempts=2,
        fields=ONCE_MORE,
    ),
    "gpu_memory": Failing(
        "gpu_memory_full",
        "allocator",
        """
        class OutOfMemoryError(RuntimeError):
            __module__ = "torch"
        if "PYTORCH_CUDA_ALLOC_CONF" not in os.environ:
            raise OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of "
                "15.78 GiB of which 1.1 GiB is free.")
        """,
        state="SUCCEEDED",
        attempts=2,
        fields={**ONCE_MORE, "changeable": True},
    ),
    "host_memory": Failing(
        "",
        "more_memory",
        "held = bytearray(os.urandom(1)) * (400 << 20); time.sleep(120)",
        attempts=2,
        fields={**ONCE_MORE, "changeable": True, "memory_bytes": 96 * MIB},
    ),
    "checkpoint": Failing(
        "checkpoint_write",
        "resume",
        """
        if once():
            raise RuntimeError("PytorchStreamWriter failed writing file data/0: file write failed")
        """,
        state="SUCCEEDED",
        attempts=2,
        fields={**ONCE_MORE, "restartable": True},
    ),
    "gang": Failing(
        "json_broken",
        "never",
        """
        import json
        met = FOLDER + "/met"
        if os.environ["RANK"] == "0":
            print("RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer "
                "[10.0.0.2]:4242", file=sys.stderr)
            open(met, "w").close()
            time.sleep(120)
        while not os.path.exists(met):
            time.sleep(0.05)
        json.loads("oops")
        """,
        fields={**ONCE_MORE, "gpus": {"count": 2}},
    ),
}
