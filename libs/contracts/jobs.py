"""What a user asks for: the job specification."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

import msgspec

from libs.contracts import features


class JobClass(StrEnum):
    """AntMan's two classes (section 3.3): resource-guarantee jobs, and opportunistic ones that use what is left."""

    GUARANTEED = "guaranteed"
    OPPORTUNISTIC = "opportunistic"
    AUTOMATIC = "automatic"
    """Guaranteed, or opportunistic where a guarantee would be long in coming; quota decides when its turn comes."""


class GpuRequest(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """How many GPUs a job needs, and of which types."""

    count: int
    """Scale factor: GPUs of the whole gang, >= 1."""
    types: list[str] = []
    """Acceptable GPU types, any of them; empty: every type."""
    excluded_types: list[str] = []
    max_nodes: int | None = None
    """Most servers that the gang may be spread over; None: as few as possible, any number after relaxation."""

    def accepts(self, gpu_type: str) -> bool:
        """Whether the job may run on this GPU type."""
        return gpu_type not in self.excluded_types and (not self.types or gpu_type in self.types)

    def acceptable(self, gpu_types: Sequence[str]) -> Sequence[str]:
        """Those of the GPU types that the job may run on, in the same order."""
        return [t for t in gpu_types if self.accepts(t)] if self.types or self.excluded_types else gpu_types


class ElasticRange(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Data-parallel world sizes between which a job may be grown and shrunk (Gandiva, section 4.1)."""

    min_gpus: int
    max_gpus: int


class SimulatedWork(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What a simulated node needs to play the job: the columns of the `traces/1` format."""

    model: str = ""
    batch_size: int | None = None
    total_steps: float | None = None
    duration_s: float | None = None
    """Run time on dedicated GPUs of the reference type; used when no rate for the model is known."""
    profiled_utilisation: float | None = None
    """Part of a GPU that it uses, as profiled before it was submitted; None: not known before it runs."""
    profiled_memory_bytes: int = 0
    """The most that it wants on a GPU, likewise; 0: not known."""


class JobSpec(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A job as its user described it. Valid by construction: the gateway checks before it appends."""

    name: str
    command: list[str]
    gpus: GpuRequest
    tenant: str = "default"
    user: str = ""
    job_class: JobClass = msgspec.field(name="class", default=JobClass.GUARANTEED)
    priority: int = 0
    """Higher goes first; equal priorities in order of arrival."""
    max_retries: int = 0
    """Failed attempts that are repeated; 3 means at most 4 attempts."""
    env: dict[str, str] = {}
    working_dir: str | None = None
    """Directory on the node; None: the uploaded code, or an empty directory of the attempt's own."""
    code_id: str | None = None
    """Id of an uploaded working directory (content hash), unpacked before the command starts."""
    output_dir: str | None = None
    """Folder below the working directory that is kept on its node beyond the job's end."""
    elastic: ElasticRange | None = None
    deadline_s: float | None = None
    """Seconds after submission by which the user wants it done."""
    time_limit_s: float | None = None
    """An attempt that runs longer is stopped."""
    labels: dict[str, str] = {}
    launcher: str = "ranks"
    """`ranks`: one process per GPU with torchrun's environment variables; `command`: one process per node, which starts
    the ranks itself if it is to have several. The gateway knows such commands: `libs/kernel/launchers.py`."""
    simulated: SimulatedWork | None = None
    model: str = ""
    """Name of what is trained; with the batch size and the GPUs it is the job's configuration in throughput tables."""
    batch_size: int | None = None
    throughputs: dict[str, float] = {}
    """{GPU type: steps per second of the whole job}, where the user knows them; they win over any table."""
    total_steps: float | None = None
    """Steps until it is done, where the user knows them."""
    weight: float = 1.0
    """Its part of the share, compared with other jobs."""
    restartable: bool = False
    """Told to stop, its script saves what it has done, and goes on from there when it is started elsewhere."""
    changeable: bool = False
    """After a failure for want of memory it may be tried again with more of the host's memory than it asks for, or with
    another setting of the allocator of GPU memory."""
    cpus: int | None = None
    """CPUs for each of its GPUs, promised to no other job while it runs; None: a share of those that none is promised.
    """
    memory_bytes: int | None = None
    """Memory of the host for each of its GPUs, promised to no other job for as long as its processes are there, running
    or suspended; None: none is promised, and no limit is set."""

    @property
    def is_host_bound(self) -> bool:
        """Whether it fits only where CPUs or memory of the host can be promised to it."""
        return self.cpus is not None or self.memory_bytes is not None

    def needs_quota(self, *, guests: bool) -> bool:
        """Whether it runs within its tenant's quota or not at all.

        An opportunistic job uses none; an automatic one needs it only where there are no guests (AntMan, OSDI'20,
        section 3.3).
        """
        return self.job_class is JobClass.GUARANTEED or (self.job_class is JobClass.AUTOMATIC and not guests)

    setup: str = ""
    """Shell command that prepares the environment of the tasks: run once per node for the same command, code and
    interpreter, in a virtual environment that is kept."""
    python: str = ""
    """Interpreter on the node that is `python` to the tasks; empty: the agent's."""
    venv: str = ""
    """Virtual environment on the node that is active for the tasks."""
    conda: str = ""
    """Conda environment on the node that is active for the tasks: its name or its prefix."""
    image: str = ""
    """Container image that the tasks run in."""
    mounts: dict[str, str] = {}
    """{name of a data set that nodes have: path that it is to have in the image}; empty path: that of the node."""
    data_schema: str = ""
    """What its data has to look like: a JSON Schema of a row, as text (`libs/datasets/schema.py`); empty: anything."""
    data: list[str] = []
    """Files of the nodes with its data, which are to be so: paths, and patterns such as `/data/train-*.parquet`."""
    trial: int | None = None
    """Mini-batches that it runs on one GPU before its gang starts; 0: none; None: as the cell's settings say."""
    when_converged: str = ""
    """What follows when its loss improves no more: `tell` (JobConverged), `stop` (JobConverged, then the job is
    cancelled); empty: its loss is not followed."""
    loss_metric: str = "loss"
    """Name of the reported metric that is the loss."""
    loss_line: str = ""
    """Which lines of its output tell the loss, as `epoch {epoch} loss {loss}` (`libs/node/loss_lines.py`); empty:
    what the script reports, else what the harness sees of its epochs."""
    converge_epochs: int | None = None
    """Epochs without improvement after which it has converged; None: as the cell's setting says."""
    converge_ratio: float | None = None
    """Part of the loss by which it has to fall to be an improvement; None: as the cell's setting says."""

    @property
    def needs(self) -> list[str]:
        """Features that every node of the job must have (`features.py`)."""
        if not self.image and not self.mounts:
            return []
        return [*([features.IMAGES] if self.image else []), *(features.data(name) for name in self.mounts)]

    @property
    def widths(self) -> list[int]:
        """On how many GPUs it may run, ascending: as many as it asks for, and twice or half as many as often as its
        elastic range allows. Then no sum of its gradients depends on how many it has."""
        asked = self.gpus.count
        if self.elastic is None:
            return [asked]
        fewer, more = [asked], [asked]
        while fewer[0] % 2 == 0 and fewer[0] // 2 >= self.elastic.min_gpus:
            fewer.insert(0, fewer[0] // 2)
        while 2 * more[-1] <= self.elastic.max_gpus:
            more.append(2 * more[-1])
        return [*fewer[:-1], *more]
