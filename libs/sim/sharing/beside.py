"""How the jobs on a GPU are kept from each other: AntMan, or what it is compared with."""

from enum import StrEnum


class Beside(StrEnum):
    """How the jobs on a GPU are kept from each other (AntMan, OSDI'20, table 2)."""

    ANTMAN = "antman"
    """Coordination scales their memory and their part of the GPU's time."""
    UMEM = "umem"
    """What does not fit lies on the host; a new task takes what is left, and nothing is moved or held back later."""
    PACK = "pack"
    """Nothing does: a job that finds too little memory fails."""
    LEAVE = "leave"
    """A guest leaves the GPU when an owner comes, and guests share one only where their memory fits."""

    @property
    def scales(self) -> bool:
        """Whether guests may be beside owners."""
        return self is not Beside.LEAVE
