"""The simulated cluster: how many servers of which GPU type, from `v100=36,p100=36,k80=36`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from libs.contracts import features
from libs.contracts.agent import NodeJoined
from libs.contracts.bad_input import BadInput
from libs.contracts.cluster import GpuInfo, PortRange, TaskRef

GIB = 1024**3
MEMORY_BYTES = {
    "k80": 12 * GIB,
    "p100": 16 * GIB,
    "v100": 16 * GIB,
    "v100-32g": 32 * GIB,
    "t4": 16 * GIB,
    "a100": 40 * GIB,
    "h100": 80 * GIB,
}
"""Per GPU, of the usual models; any other is taken to have 16 GiB."""
CPUS_PER_GPU, HOST_BYTES_PER_GPU = 8, 64 * GIB
"""Of a simulated server's host."""
SERVERS_PER_RACK = 16
MOST_GPUS = 1_000_000
"""Of one type; more are taken for a mistake."""
_TYPE = re.compile(r"[a-z0-9][a-z0-9_.+-]*")


@dataclass(frozen=True)
class Server:
    """One simulated server; its GPUs are of one type."""

    node_id: str
    gpu_type: str
    gpus: int
    rack: str = "r0"
    pool: str = ""
    """What it is set apart for; empty: for nothing."""

    @property
    def memory_bytes(self) -> int:
        """Of each of its GPUs."""
        return MEMORY_BYTES.get(self.gpu_type, 16 * GIB)

    def joined(self, incarnation: int, tasks: list[TaskRef], *, scales: bool = False) -> NodeJoined:
        """What its agent says when it has started and found these tasks.

        Args:
            scales: whether guests can be made as small, and as slow, as need be.
        """
        return NodeJoined(
            node_id=self.node_id,
            incarnation=incarnation,
            address=self.node_id,
            rack=self.rack,
            gpus=[GpuInfo(index=i, gpu_type=self.gpu_type, memory_bytes=self.memory_bytes) for i in range(self.gpus)],
            tasks=tasks,
            rendezvous_ports=PortRange(first=29500, last=29999),
            virtual=True,
            remaps=True,
            agent_version="simulated",
            cpus=CPUS_PER_GPU * self.gpus,
            memory_bytes=HOST_BYTES_PER_GPU * self.gpus,
            bounds_by="simulation",
            features=[features.pool(self.pool)] if self.pool else [],
            scales_memory="all" if scales else "",
            scales_compute=scales,
            spill_bytes=HOST_BYTES_PER_GPU * self.gpus if scales else 0,
        )


@dataclass(frozen=True)
class Cluster:
    """The servers, in the order in which they join."""

    servers: tuple[Server, ...]

    @property
    def gpus(self) -> dict[str, int]:
        """{GPU type: GPUs}, in order of first appearance."""
        counts: dict[str, int] = {}
        for server in self.servers:
            counts[server.gpu_type] = counts.get(server.gpu_type, 0) + server.gpus
        return counts

    @property
    def total_gpus(self) -> int:
        """GPUs of all types."""
        return sum(server.gpus for server in self.servers)

    @property
    def shared_gpus(self) -> int:
        """The same without those of servers that are set apart."""
        return sum(server.gpus for server in self.servers if not server.pool)

    def with_trial_pool(self, servers: int) -> Cluster:
        """The same, of which the last servers are set apart for trials.

        Raises:
            BadInput: none would be left for the jobs themselves.
        """
        if not 0 <= servers < len(self.servers):
            expected = f"fewer servers than the cluster has, {len(self.servers)}"
            raise BadInput("--trial-pool", str(servers), expected)
        first = len(self.servers) - servers
        return Cluster((*self.servers[:first], *(replace(each, pool=features.TRIALS) for each in self.servers[first:])))


def cluster_of(gpus: Mapping[str, int], gpus_per_server: int) -> Cluster:
    """Servers with `gpus_per_server` GPUs each; a remainder becomes one smaller server per type.

    A rack holds 16 servers of one type.
    """
    servers = []
    for gpu_type, count in gpus.items():
        for number, first in enumerate(range(0, count, gpus_per_server)):
            servers.append(
                Server(
                    node_id=f"{gpu_type}-{number:03d}",
                    gpu_type=gpu_type,
                    gpus=min(gpus_per_server, count - first),
                    rack=f"{gpu_type}-r{number // SERVERS_PER_RACK}",
                )
            )
    return Cluster(tuple(servers))


def parse_cluster(text: str, gpus_per_server: int = 4) -> Cluster:
    """Read `TYPE=COUNT,TYPE=COUNT`, e.g. `v100=36,p100=36,k80=36`.

    Raises:
        BadInput: not of that form, a type twice, or a count below 1 or above a million.
    """
    if gpus_per_server < 1:
        raise BadInput("--gpus-per-server", str(gpus_per_server), "a whole number from 1 on")
    gpus: dict[str, int] = {}
    for part in text.split(","):
        gpu_type, _, count = (piece.strip() for piece in part.partition("="))
        if not _TYPE.fullmatch(gpu_type) or not count.isascii() or not count.isdigit() or not count.strip("0"):
            raise BadInput("--cluster", repr(part), "TYPE=COUNT with a lower-case type and a count from 1 on")
        if len(count) > len(str(MOST_GPUS)) or int(count) > MOST_GPUS:
            raise BadInput("--cluster", repr(part)[:80], f"at most {MOST_GPUS:,} GPUs of a type")
        if gpu_type in gpus:
            raise BadInput("--cluster", f"type {gpu_type!r} twice", "each GPU type once")
        gpus[gpu_type] = int(count)
    return cluster_of(gpus, gpus_per_server)
