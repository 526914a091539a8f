"""`python -m torch_agent.probes.self_test`: does the visible GPU compute as it should? Status 0: yes; 3: not known."""

from __future__ import annotations

import sys
from typing import Any

SIZE, ROUNDS = 512, 20
CANNOT_BE_TOLD = 3


def wrong(torch: Any, device: str) -> int:
    """How many products of matrices of whole numbers, which have one right result, come out wrong."""
    generator = torch.Generator().manual_seed(1)
    a, b = (torch.randint(-8, 8, (SIZE, SIZE), generator=generator).double() for _ in range(2))
    right, on_a, on_b = a @ b, a.to(device), b.to(device)
    return sum(not torch.equal((on_a @ on_b).cpu(), right) for _ in range(ROUNDS))


def main() -> int:
    """The status of the process; an error that CUDA raises ends it with 1 and says so."""
    try:
        import torch
    except ImportError:
        return CANNOT_BE_TOLD
    if torch.version.cuda is None and torch.version.hip is None:
        return CANNOT_BE_TOLD
    if found := wrong(torch, "cuda:0"):
        print(f"{found} of {ROUNDS} products of matrices were wrong", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
