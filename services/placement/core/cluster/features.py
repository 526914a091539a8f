"""Which servers have what a job needs beside GPUs (`libs/contracts/features.py`)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

from libs.contracts.features import missing
from services.placement.core.cluster.nodes import Node

N = TypeVar("N")


def has(node: Node, needs: Sequence[str]) -> bool:
    """Whether the server has all of these features."""
    return not needs or not missing(needs, node.features, node.node_id)


def lacking(nodes: Iterable[Node], needs: Sequence[str]) -> Iterator[str]:
    """The servers that lack one of these features."""
    return (node.node_id for node in nodes if not has(node, needs)) if needs else iter(())


def with_all(servers: Iterable[tuple[Node, N]], needs: Sequence[str]) -> list[tuple[Node, N]]:
    """Those of the servers, each with something that is known of it, that have all of these features."""
    return [pair for pair in servers if has(pair[0], needs)]
