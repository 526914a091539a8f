"""CPU and memory of the node's host, as its operating system has them."""

from __future__ import annotations

import psutil

from libs.contracts.agent import HostSample


class HostProbe:
    """Measures from one look to the next."""

    def __init__(self) -> None:
        psutil.cpu_percent()  # what it says next is measured from here on
        self._cpus = psutil.cpu_count() or 1

    def look(self) -> HostSample:
        """How it has been since the last look; looks should be a tenth of a second apart at least."""
        memory = psutil.virtual_memory()
        return HostSample(
            cpus=self._cpus,
            cpu_utilisation_ratio=round(psutil.cpu_percent() / 100.0, 4),
            memory_bytes=memory.total,
            memory_used_bytes=memory.total - memory.available,
        )
