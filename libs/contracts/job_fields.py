"""What users are told of a job's fields, and within which limits they may set them.

`JobSpec` says what a field is called, its type and its default. From both the gateway makes its request
(`services/gateway/models/job_request.py`) and the command line its options (`libs/cli/job_options.py`). The table does
not stand in `JobSpec` because no core reads it: another word of help is not to change the rules of a service.
"""

from __future__ import annotations

from types import NoneType, UnionType
from typing import Any, Literal, get_args

import msgspec
from msgspec.structs import FieldInfo

Limit = Literal["ge", "gt", "le", "lt", "min_length", "max_length", "pattern"]


class JobField(msgspec.Struct, frozen=True, kw_only=True):
    """One field of a job."""

    limits: dict[Limit, Any] = {}
    """What the gateway refuses beyond the type."""
    says: str = ""
    """A sentence in the API's document."""
    options: tuple[str, ...] = ()
    """Of the command line; none: the field is given in a file, or by an option that is read in a way of its own."""
    help: str = ""
    """What stands beside the option."""
    has_forms: bool = False
    """A number that may be written otherwise, such as `32GB`: the command line passes the text on."""


def type_of(field: FieldInfo) -> tuple[Any, bool]:
    """The type of a field of `JobSpec` but for None, and whether it may be None."""
    kinds = get_args(field.type) if isinstance(field.type, UnionType) else (field.type,)
    return kinds[0], NoneType in kinds


JOB_FIELDS: dict[str, JobField] = {
    "command": JobField(),
    "name": JobField(options=("-n", "--name"), help="Name in lists; default: made of the command."),
    "gpus": JobField(options=("--gpus",), help="A number, or TYPE:NUMBER such as v100:2."),
    "tenant": JobField(options=("-q", "--tenant", "--queue"), help="Team that it is accounted to."),
    "user": JobField(),
    "job_class": JobField(
        options=("--class",),
        help="guaranteed: by quota. opportunistic: on what is left. automatic (default): whichever starts sooner.",
    ),
    "priority": JobField(
        limits={"ge": -1_000_000, "le": 1_000_000}, options=("--priority",), help="Higher goes first."
    ),
    "max_retries": JobField(
        limits={"ge": 0, "le": 1000}, options=("--max-retries",), help="Most attempts after a failed one."
    ),
    "env": JobField(),
    "working_dir": JobField(
        limits={"min_length": 1, "max_length": 4096},
        options=("--workdir-on-node",),
        help="Directory that the nodes have; nothing is uploaded.",
    ),
    "code_id": JobField(
        limits={"pattern": r"^c-[a-z2-7]{32}$"}, says="Of an uploaded working directory (`POST /v1/code`)."
    ),
    "output_dir": JobField(
        limits={"max_length": 255, "pattern": r"^[A-Za-z0-9_][A-Za-z0-9._-]*(/[A-Za-z0-9_][A-Za-z0-9._-]*)*$"},
        says="Folder below the working directory that is kept on its node beyond the job's end; `SANJAYA_OUTPUT_DIR`.",
        options=("--output",),
        help="Folder of the job that its node keeps beyond the job's end: sanjaya cp JOB:DIR .",
    ),
    "elastic": JobField(options=("--elastic",), help="MIN:MAX: its GPUs may be halved or doubled within."),
    "deadline_s": JobField(options=("--deadline-s",), help="Seconds from now, for policies with deadlines."),
    "time_limit_s": JobField(),
    "labels": JobField(),
    "launcher": JobField(
        options=("--launch",), help="per-gpu or per-node: processes to start. Known launchers: one per node."
    ),
    "simulated": JobField(),
    "model": JobField(
        limits={"max_length": 128},
        says="What is trained; names its configuration.",
        options=("--model",),
        help="What it trains: jobs of one model and batch size are alike.",
    ),
    "batch_size": JobField(limits={"ge": 1, "le": 2**31}, options=("--batch-size",), help="Examples per mini-batch."),
    "throughputs": JobField(),
    "total_steps": JobField(
        limits={"gt": 0, "le": 1e15}, options=("--total-steps",), help="Mini-batches that it will do."
    ),
    "weight": JobField(
        limits={"gt": 0, "le": 1e6},
        says="Its part of the share, compared with other jobs.",
        options=("--weight",),
        help="Its part beside others of weight 1 under fair policies.",
    ),
    "restartable": JobField(
        says="Told to stop, the script saves what it has done, and goes on from there elsewhere.",
        options=("--restartable",),
        help="When it is told to stop it saves what it has done, and goes on from there elsewhere.",
    ),
    "changeable": JobField(
        says="After a failure for want of memory it may be tried again with more host memory, or another allocator.",
        options=("--changeable",),
        help="When memory runs out it may be tried again with more host memory, or another allocator of GPU memory.",
    ),
    "cpus": JobField(
        limits={"ge": 1, "le": 65_536},
        says="CPUs for each GPU, promised to no other job; default: a share of what is promised to none.",
        options=("--cpus",),
        help="CPUs per GPU, for this job alone. Default: a share of what no job asks for.",
    ),
    "memory_bytes": JobField(
        options=("--mem",),
        help="Memory of the host per GPU, such as 32GB: promised, and a limit. Default: neither.",
        has_forms=True,
    ),
    "setup": JobField(
        limits={"max_length": 16_384},
        says="Shell command that prepares the environment, once per node for the same command, code and interpreter.",
        options=("--setup",),
        help='Prepares its environment, once per node: "pip install -r requirements.txt".',
    ),
    "python": JobField(
        limits={"max_length": 4096},
        says="Interpreter on the nodes that is `python` to the job.",
        options=("--python",),
        help="Interpreter on the nodes.",
    ),
    "venv": JobField(
        limits={"max_length": 4096},
        says="Virtual environment on the nodes that is active for the job.",
        options=("--venv",),
        help="Virtual environment on the nodes.",
    ),
    "conda": JobField(
        limits={"max_length": 4096, "pattern": r"^(/.*|[^/ :#-][^/ :#]*)?$"},
        says="Conda environment on the nodes that is active for the job: its name, or its prefix.",
        options=("--conda",),
        help="Conda environment on the nodes: name or prefix.",
    ),
    "image": JobField(
        limits={"max_length": 1024, "pattern": r"^([^\s-]\S*)?$"},
        says="Container image to run in, on a node with podman, apptainer or enroot.",
        options=("--image",),
        help="Container image to run in.",
    ),
    "mounts": JobField(),
    "data_schema": JobField(
        limits={"max_length": 262_144},
        says="JSON Schema of a row of its data, as text.",
    ),
    "data": JobField(),
    "trial": JobField(
        limits={"ge": 0, "le": 1_000_000},
        says="Mini-batches that it runs on one GPU before its gang starts; 0: none; default: the cell's settings.",
        options=("--trial",),
        help="Mini-batches of a trial on one GPU before its gang starts; 0: none. Default: the cell's settings.",
    ),
    "when_converged": JobField(
        limits={"pattern": "^(tell|stop)?$"},
        says="What follows when its loss improves no more: `tell` says so (JobConverged), `stop` also ends the job.",
        options=("--when-converged",),
        help="tell or stop: what follows when its loss improves no more.",
    ),
    "loss_metric": JobField(
        limits={"min_length": 1, "max_length": 64},
        says="Name of the reported metric that is the loss.",
        options=("--loss-metric",),
        help="Reported metric that is the loss.",
    ),
    "loss_line": JobField(
        limits={"max_length": 256},
        says="Lines of its output that tell the loss, as `epoch {epoch} loss {loss}`: any text may stand between.",
        options=("--loss-line",),
        help='Lines that tell the loss, as "epoch {epoch} loss {loss}": any text may stand between.',
    ),
    "converge_epochs": JobField(
        limits={"ge": 1, "le": 1_000_000},
        says="Epochs without improvement after which it has converged; default: the cell's setting.",
        options=("--converge-epochs",),
        help="Epochs without improvement. Default: the cell's setting.",
    ),
    "converge_ratio": JobField(
        limits={"gt": 0, "lt": 1},
        says="Part of the loss that counts as an improvement; default: the cell's setting.",
        options=("--converge-ratio",),
        help="Part of the loss that is an improvement. Default: the cell's setting.",
    ),
}
"""{name of a field of `JobSpec`: its row}, in the order in which requests are documented and checked.

Limits and sentences of a field with forms of its own in JSON, such as "v100:2", stand where these are read."""
