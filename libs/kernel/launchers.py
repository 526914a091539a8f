"""Commands that start the ranks of a job themselves, such as `torchrun`: how they are known, and what they are told.

A process per GPU of such a command would train the whole job once per GPU. It is started once per node instead, and is
told where the ranks of all nodes meet, as far as its own options do not say so. Submission says what is recognised and
refuses numbers that contradict the job; the agent starts the command by the same table.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import PurePath

import msgspec

from libs.kernel.words import counted

PER_GPU, PER_NODE = "ranks", "command"
"""What `JobSpec.launcher` says."""
ACCELERATE_KINDS = {"cpu", "multi_gpu", "tpu", "use_deepspeed", "use_fsdp", "use_megatron_lm", "use_xpu"}
"""Options of `accelerate launch` that exclude each other (1.15). Without one it starts one process per node."""
PYTHON = re.compile(r"python[0-9.]*")
SHELLS = ("sh", "bash", "dash", "zsh")
WITH_A_WORD = ("-X", "-W")
"""Options of the Python interpreter before `-m` with a value in the next word."""


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """One node's part of a gang."""

    gpus: int
    """Of this node."""
    world_size: int
    """GPUs of the whole gang."""
    node_rank: int
    nodes: int
    host: str
    """Where the ranks meet."""
    port: int
    virtual: bool = False


class Launcher(msgspec.Struct, frozen=True, kw_only=True):
    """One command that starts ranks; the rows are in `LAUNCHERS`."""

    name: str
    words: tuple[tuple[str, ...], ...] = ()
    """How its command begins; of the first word the file's name counts."""
    modules: tuple[str, ...] = ()
    """The same of `python -m`."""
    flags: tuple[str, ...] = ()
    """Its options without a value; every other one has one."""
    pairs: tuple[str, ...] = ()
    """Its options with two."""
    processes: tuple[str, ...] = ()
    """Names of the option that says how many processes there are."""
    of_the_gang: bool = False
    """That number counts the processes of all nodes, not of one."""
    nodes: tuple[str, ...] = ()
    """Names of the option that says how many nodes there are."""
    told: tuple[tuple[str, str], ...] = ()
    """(option, value in terms of `Place`), put behind the command's first words unless it is given; an option without a
    value is a flag. An option with its name in one of the tuples above is the same under each of these names."""
    told_between_nodes: tuple[tuple[str, str], ...] = ()
    """The same, for gangs on several nodes alone."""
    one_node: bool = False
    """It cannot join ranks that are started on several nodes."""


LAUNCHERS = (
    Launcher(
        name="torchrun",
        words=(("torchrun",),),
        modules=("torch.distributed.run", "torch.distributed.launch"),
        flags=("standalone", "m", "module", "no_python", "run_path", "use_env"),
        processes=("nproc_per_node",),
        nodes=("nnodes",),
        # What it is told stands in its environment: see `torchrun_variables`.
    ),
    Launcher(
        name="accelerate launch",
        words=(("accelerate", "launch"), ("accelerate-launch",)),
        modules=("accelerate.commands.launch",),
        flags=(
            *("cpu", "multi_gpu", "tpu", "use_deepspeed", "use_fsdp", "use_megatron_lm", "use_xpu", "quiet", "q"),
            *("m", "module", "no_python", "debug", "same_network", "enable_cpu_affinity"),
        ),
        processes=("num_processes",),
        of_the_gang=True,
        nodes=("num_machines",),
        told=(("--num_processes", "{world_size}"), ("--num_machines", "{nodes}"), ("--main_process_port", "{port}")),
        told_between_nodes=(("--machine_rank", "{node_rank}"), ("--main_process_ip", "{host}")),
    ),
    Launcher(
        name="deepspeed",
        words=(("deepspeed",),),
        modules=("deepspeed.launcher.runner",),
        flags=("module", "no_python", "no_local_rank", "no_ssh_check", "no_ssh", "force_multi", "save_pid"),
        processes=("num_gpus",),
        nodes=("num_nodes",),
        told=(("--num_gpus", "{gpus}"), ("--master_port", "{port}")),
        told_between_nodes=(
            ("--no_ssh", ""),
            ("--num_nodes", "{nodes}"),
            ("--node_rank", "{node_rank}"),
            ("--master_addr", "{host}"),
        ),
    ),
    Launcher(
        name="mpirun",
        words=(("mpirun",), ("mpiexec",)),
        flags=("allow_run_as_root", "oversubscribe", "q", "quiet", "v", "verbose", "tag_output", "report_bindings"),
        pairs=("mca", "gmca"),
        processes=("np", "n", "c"),
        told=(("-np", "{gpus}"),),
        one_node=True,
    ),
    Launcher(
        name="lightning run",
        words=(("lightning", "run", "model"), ("lightning", "run"), ("fabric", "run", "model"), ("fabric", "run")),
        processes=("devices",),
        nodes=("num_nodes",),
        told=(("--devices", "{gpus}"), ("--main_port", "{port}")),
        told_between_nodes=(
            ("--num_nodes", "{nodes}"),
            ("--node_rank", "{node_rank}"),
            ("--main_address", "{host}"),
        ),
    ),
    Launcher(name="srun", words=(("srun",),), processes=("ntasks", "n"), of_the_gang=True, nodes=("nodes", "N")),
)
"""A row per launcher; of two rows that fit, the first counts."""


class Recognised(msgspec.Struct, frozen=True, kw_only=True):
    """A command that starts ranks itself."""

    launcher: Launcher
    words: list[str]
    """The command, without the shell that would have run it as one line."""
    behind: int
    """How many words name the launcher: its options begin there."""

    def given(self) -> dict[str, str]:
        """{option of the launcher without dashes, `_` for `-`: value}; what stands behind them is the script's."""
        found: dict[str, str] = {}
        words = self.words[self.behind :]
        while words and words[0].startswith("-") and words[0] != "--":
            name, equals, value = words.pop(0).lstrip("-").partition("=")
            name = name.replace("-", "_")
            if not equals and name not in self.launcher.flags and words:
                value = words.pop(0)
            if name in self.launcher.pairs and words:
                value = f"{value} {words.pop(0)}"
            found[name] = value
        return found

    def number(self, names: tuple[str, ...]) -> tuple[str, int] | None:
        """The option as it is given under one of its names, and its value; None where it is not, or is no number."""
        for name, value in self.given().items():
            if name in names and value.isdecimal():
                return f"{'-' if len(name) < 3 else '--'}{name}", int(value)
        return None


def recognise(command: Sequence[str]) -> Recognised | None:
    """Which launcher a command is; None: it is none, or a line of several commands for a shell."""
    words = _one_command(list(command))
    start = 0
    if words[:1] == ["env"]:
        start = 1
    while start < len(words) and re.match(r"[A-Za-z_]\w*=", words[start]):
        start += 1
    rest = words[start:]
    if not rest:
        return None
    program = PurePath(rest[0]).name
    for launcher in LAUNCHERS:
        for first in launcher.words:
            if (program, *rest[1 : len(first)]) == first:
                return Recognised(launcher=launcher, words=words, behind=start + len(first))
    if not PYTHON.fullmatch(program):
        return None
    at = 1
    while at < len(rest) and rest[at].startswith("-") and rest[at] != "-m":
        at += 2 if rest[at] in WITH_A_WORD else 1
    for launcher in LAUNCHERS:
        if rest[at : at + 1] == ["-m"] and rest[at + 1 : at + 2] in [[module] for module in launcher.modules]:
            return Recognised(launcher=launcher, words=words, behind=start + at + 2)
    return None


def found_in(text: str) -> Launcher | None:
    """The first launcher that a shell script starts; None: it starts none."""
    for line in text.replace("\\\n", " ").splitlines():
        for part in re.split(r"&&|\|\||[;|&(){}]", line.split(" #")[0]):
            words = part.split()
            while words and words[0] in ("exec", "time", "then", "do", "else", "!", "nice", "nohup"):
                words.pop(0)
            if words and not words[0].startswith("#") and (found := recognise(words)) is not None:
                return found.launcher
    return None


def starts_ranks(command: Sequence[str]) -> Launcher | None:
    """The launcher that a command is, or that one of the commands of its line for a shell is."""
    found = recognise(command)
    if found is not None:
        return found.launcher
    line = _line(command)
    return found_in(line) if line is not None else None


def conflict(command: Sequence[str], gpus: int, max_nodes: int | None) -> str | None:
    """What a launcher's numbers say against the job's, and what was expected; None: nothing.

    Args:
        gpus: of the whole gang.
        max_nodes: over which it may be spread at most.
    """
    found = recognise(command)
    if found is None:
        return None
    name, launcher = found.launcher.name, found.launcher
    most = gpus if launcher.one_node or max_nodes is None else min(max_nodes, gpus)
    nodes, processes = found.number(launcher.nodes), found.number(launcher.processes)
    if nodes is not None and not 1 <= nodes[1] <= most:
        at_most = counted(most, "node")
        return f"{name} {nodes[0]}={nodes[1]}, but the job runs on at most {at_most}; expected 1 to {most}, or nothing"
    if processes is None or launcher.one_node:
        return None
    times = 1 if launcher.of_the_gang or nodes is None else nodes[1]
    total = processes[1] * times
    if total == 0 or gpus % total:
        what = f"{processes[0]}={processes[1]}" + (f" on {counted(times, 'node')}" if times > 1 else "")
        return (
            f"{name} {what} starts {counted(total, 'process', 'processes')}, but the job has {counted(gpus, 'GPU')}; "
            f"expected as many processes as GPUs (or as many GPUs for each), or nothing"
        )
    return None


def conflict_here(command: Sequence[str], place: Place) -> str | None:
    """The same where the gang has been placed: whether the ranks that the launcher waits for can be there."""
    found = recognise(command)
    if found is None:
        return None
    launcher, nodes = found.launcher, found.number(found.launcher.nodes)
    if launcher.one_node and place.nodes > 1:
        return f"{launcher.name} joins the ranks of one node, but the gang has {place.nodes}; expected --nodes 1"
    if launcher.name != "srun" and nodes is not None and nodes[1] != place.nodes:
        has = counted(place.nodes, "node")
        return f"{launcher.name} {nodes[0]}={nodes[1]}, but the gang has {has}; expected {place.nodes}, or nothing"
    return None


def filled_in(command: Sequence[str], place: Place) -> list[str]:
    """The command with what it is told of its gang; as it is where it is no launcher."""
    found = recognise(command)
    if found is None:
        return list(command)
    launcher, given = found.launcher, found.given()
    told = [*launcher.told, *(launcher.told_between_nodes if place.nodes > 1 else ())]
    if launcher.name == "accelerate launch" and place.world_size > 1 and not ACCELERATE_KINDS & given.keys():
        told.append(("--multi_gpu", ""))
    options: list[str] = []
    for option, value in told:
        names = next((n for n in (launcher.processes, launcher.nodes) if option.lstrip("-") in n), ())
        if not any(name in given for name in (option.lstrip("-"), *names)):
            options += [option, *([value.format(**msgspec.structs.asdict(place))] if value else [])]
    return [*found.words[: found.behind], *options, *found.words[found.behind :]] if options else list(command)


def torchrun_variables(command: Sequence[str], place: Place) -> dict[str, str]:
    """What torchrun takes for options that it is not given (torch/distributed/argparse_util.py): in scripts, too."""
    variables = {
        "PET_NNODES": str(place.nodes),
        "PET_NODE_RANK": str(place.node_rank),
        "PET_NPROC_PER_NODE": str(place.gpus),
        "PET_MASTER_ADDR": place.host,
        "PET_MASTER_PORT": str(place.port),
    }
    found = recognise(command)
    given = found.given() if found is not None else {}
    if given.get("rdzv_backend", "static") != "static" and "rdzv_endpoint" not in given:
        # The other rendezvous do not look at the master's address, and without an endpoint each node meets itself.
        variables["PET_RDZV_ENDPOINT"] = f"{place.host}:{place.port}"
    return variables


def said(launcher: str, command: Sequence[str], gpus: int) -> str:
    """How many processes there will be, in a sentence; empty where that goes without saying: one on one GPU.

    Args:
        launcher: `PER_GPU` or `PER_NODE`.
        gpus: of the gang.
    """
    found = starts_ranks(command)
    if launcher == PER_NODE:
        if found is None:
            return "1 process per node" if gpus > 1 else ""
        return f"{found.name} starts the ranks itself: 1 process per node"
    if gpus == 1 and found is None:
        return ""
    return f"{counted(gpus, 'process', 'processes')}, one per GPU, with RANK and WORLD_SIZE (--launch per-node for one)"


def _one_command(words: list[str]) -> list[str]:
    """The words of a line for a shell that is one plain command; anything else as it is."""
    line = _line(words)
    if line is None or re.search(r"[;&|<>$`(){}*?~#\n\\]", line):
        return words
    try:
        return shlex.split(line)
    except ValueError:
        return words


def _line(words: Sequence[str]) -> str | None:
    """The line that a shell is given; None: it is no such command."""
    if len(words) == 3 and PurePath(words[0]).name in SHELLS and words[1] == "-c":
        return words[2]
    return None
