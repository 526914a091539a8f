"""Which attempts are on which GPUs: from their launch until all of their tasks have ended."""

from __future__ import annotations

from libs.sim.processes import Key
from libs.sim.sharing.gpus import Gpu
from libs.sim.work import Attempt


class Places:
    """The attempts of a simulated cell."""

    def __init__(self) -> None:
        self._attempts: dict[Key, Attempt] = {}
        self._on_gpu: dict[Gpu, list[Attempt]] = {}
        """Attempts that were launched on each GPU and have not ended, in the order of their coming."""

    def get(self, key: Key) -> Attempt | None:
        """The attempt; None: it has no place (any more)."""
        return self._attempts.get(key)

    def all(self) -> list[Attempt]:
        """The attempts that have a place, in the order of their launch."""
        return list(self._attempts.values())

    def launch(self, key: Key, attempt: Attempt, gpus: list[Gpu]) -> None:
        """A node has begun to start its part of the gang on these GPUs."""
        self._attempts[key] = attempt
        for gpu in gpus:
            attempt.gpus.append(gpu)
            self._on_gpu.setdefault(gpu, []).append(attempt)

    def withdraw(self, key: Key, node_id: str) -> None:
        """The node's part was never started."""
        attempt = self._attempts.get(key)
        if attempt is None:
            return
        for gpu in [gpu for gpu in attempt.gpus if gpu[0] == node_id]:
            attempt.gpus.remove(gpu)
            self._on_gpu[gpu].remove(attempt)
        if not attempt.gpus:
            del self._attempts[key]

    def move(self, key: Key, node_id: str, gpu_indices: list[int]) -> None:
        """The node's part of the gang comes back on these GPUs, which may be others than it left."""
        attempt = self._attempts.get(key)
        if attempt is None:
            return
        left = [gpu for gpu in attempt.gpus if gpu[0] == node_id]
        taken = [(node_id, index) for index in gpu_indices]
        if left == taken:
            return
        for gpu in left:
            self._on_gpu[gpu].remove(attempt)
        for gpu in taken:
            self._on_gpu.setdefault(gpu, []).append(attempt)
        attempt.gpus = [gpu for gpu in attempt.gpus if gpu[0] != node_id] + taken

    def leave(self, key: Key, attempt: Attempt) -> None:
        """All tasks of the attempt have ended."""
        del self._attempts[key]
        for gpu in attempt.gpus:
            self._on_gpu[gpu].remove(attempt)

    def on(self, gpu: Gpu) -> list[Attempt]:
        """The attempts on a GPU, in the order of their coming."""
        return self._on_gpu[gpu]

    def neighbours(self, attempt: Attempt) -> list[Attempt]:
        """Attempts that make progress on some of the same GPUs."""
        found: list[Attempt] = []
        for gpu in attempt.gpus:
            for other in self._on_gpu[gpu]:
                if other is not attempt and other.going and other not in found:
                    found.append(other)
        return found
