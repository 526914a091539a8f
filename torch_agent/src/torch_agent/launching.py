"""From an order to a running shim."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import shlex
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from libs.contracts.base import Event
from libs.contracts.cluster import GpuInfo
from libs.contracts.placement import LaunchTask
from libs.kernel.launchers import PER_GPU, PYTHON, conflict_here, filled_in
from libs.node.seen import Setup
from libs.node.task import task_key
from libs.runtime.disk_room import lacks_room
from torch_agent.cell_gateway import CellGateway
from torch_agent.cgroups import Groups
from torch_agent.code import CodeBroken, unpack
from torch_agent.data_check import DataWrong, check_data, first_of
from torch_agent.environment import limited, place_of, rank_environments, session_environment
from torch_agent.environments.activation import Activation, NotThere, activation_of, with_variables
from torch_agent.environments.commands import SetupFailed
from torch_agent.environments.data import Data, NoSuchData, data_variables, wanted
from torch_agent.environments.images import RUNNERS, Container, Mount, variables_for
from torch_agent.environments.setups import Setups, Wanted
from torch_agent.files.outputs import Outputs
from torch_agent.folders import Refusal, TaskFolder
from torch_agent.former import in_spec
from torch_agent.harness import inject_path
from torch_agent.harness.control import turn_to
from torch_agent.leasing import Leasing
from torch_agent.options import Options
from torch_agent.probes.scaling import Scaling
from torch_agent.processes import most_processes

AGENTS_OWN = ("SANJAYA_", "OTEL_")
"""Prefixes of variables that are for the agent and not for the tasks."""
PROGRAM_BYTES = 6 << 30
"""What a process with torch maps privately before it allocates anything of its own, generously."""
BEFOREHAND = Path(inject_path()).with_name("beforehand.py")
SRUN = Path(__file__).with_name("srun.py")
REFUSAL_RETRY_S = 5.0
"""Until the result of a task that cannot be started is written again, on a node that cannot write at the moment."""
LOOPBACK = "127.0.0.1"
GANG_PORTS = range(10_000, 15_000)
"""Where gangs of one node meet. Their first rank listens seconds after the port was chosen, and by then those that the
kernel gives to connections (32768 and above, as a rule) may be taken."""

log = logging.getLogger(__name__)


class NotLaunched(Exception):
    """The task cannot be started, here or elsewhere, as it was submitted; the message says what was expected."""


def _unheard(facts: Sequence[Event]) -> None:
    """Before there is anything that brings facts to the log."""


def _all_is_well() -> None:
    """Before there is anything that waits for room."""


class Launcher:
    """Starts shims."""

    def __init__(
        self,
        options: Options,
        gpus: list[GpuInfo],
        begins_on: Callable[[LaunchTask], list[int]],
        prepares: Callable[[LaunchTask, Path], None],
        scales: Scaling,
        groups: Groups | None = None,
    ) -> None:
        """Of a node with these GPUs.

        Args:
            begins_on: the CPUs for a task that begins, none: all of the agent's.
            prepares: the folder of its pages, for the sharing of its GPUs.
            scales: what is done about the memory of tasks.
            groups: where tasks have control groups; None: they have none.
        """
        self._groups = groups
        self._options, self._begins_on, self._prepares, self._scales = options, begins_on, prepares, scales
        self.outputs = Outputs(options.state_dir / "outputs", options.outputs_most_bytes, options.outputs_longest_s)
        self._gpus = {gpu.index: gpu for gpu in gpus}
        self.setups = Setups(options.state_dir / "setups", options.setups_most_bytes, options.setups_longest_s)
        self.setting_up: dict[str, Setup] = {}
        """{task key: the setup that it waits for, or waited for before its start}."""
        self.doing: dict[str, str] = {}
        """{task key: what is being done for it}, of tasks that are being launched, or were when that was broken off."""
        self.say: Callable[[Sequence[Event]], None] = _unheard
        """Brings facts about tasks that are being launched to the log."""
        self.leasing: Leasing | None = None
        """The lease under which tasks run; None: there is none."""
        self.ran_out: Callable[[], None] = _all_is_well
        """Called when a launch fails for want of room on the disk: it is tried again when there is some."""
        self._base = {k: v for k, v in os.environ.items() if not k.startswith(AGENTS_OWN)}

    async def launch(self, order: LaunchTask, folder: TaskFolder) -> subprocess.Popen[bytes] | None:
        """Start the task's shim; when the task cannot be started, leave that as its result and return None.

        One for which the disk has no room is not refused, and nothing of it has been started: it waits.

        Whatever goes wrong is the task's result: an exception would have the agent try the same again for ever, with
        the task's GPUs.
        """
        key = task_key(order.job_id, order.attempt)
        try:
            shim = await self._launched(order, folder, key)
            del self.doing[key]
            return shim
        except (CodeBroken, DataWrong, NotLaunched, NotThere, NoSuchData) as error:
            await _refuse(folder, str(error), outcome="launch_failed")
        except SetupFailed as error:
            await _refuse(folder, str(error), outcome="setup_failed")
        except Exception as error:
            if lacks_room(error, self._options.state_dir):
                log.error("%s.%d waits for room on the disk: %s", order.job_id, order.attempt, error)
                self.ran_out()
                return None
            log.exception("%s.%d cannot be launched", order.job_id, order.attempt)
            await _refuse(folder, f"{type(error).__name__}: {error}", outcome="node_failed")
        return None

    async def _launched(self, order: LaunchTask, folder: TaskFolder, key: str) -> subprocess.Popen[bytes]:
        self.doing[key] = "making its folder"
        folder.make()
        self._prepares(order, folder.pages)
        if order.restores:
            turn_to(folder.pages, suspend=True)
        if order.code_id is not None:
            self.doing[key] = f"fetching and unpacking code {order.code_id} from {self._options.gateway}"
            cache = self._options.state_dir / "code"
            gateway = CellGateway(self._options.gateway, self._options.token)
            await asyncio.to_thread(unpack, order.code_id, gateway, cache, folder.work)
        found = wanted(self._options.data, order.mounts)
        activation = activation_of(order, sys.executable, folder.path / "bin", self._base)
        activation = with_variables(activation, data_variables(found, order.mounts))
        if order.setup:
            activation = await self._set_up(order, folder, key, activation)
        if order.trial_schema:
            await self._check_data(order, folder, key)
        if self.leasing is not None:
            self.doing[key] = "waiting for the log to acknowledge a heartbeat of this node"
            await self.leasing.until_it_holds()
        self.doing[key] = "starting its processes"
        return folder.start_shim(self._spec(order, folder, activation, found))

    async def _check_data(self, order: LaunchTask, folder: TaskFolder, key: str) -> None:
        """Raises DataWrong when a trial's data is not as its schema says."""
        self.doing[key] = f"checking its data: {', '.join(order.trial_data)}"
        checked = await check_data(order, Path(order.working_dir or folder.work))
        self.say([checked])
        if checked.violations:
            raise DataWrong(first_of(checked))

    async def _set_up(self, order: LaunchTask, folder: TaskFolder, key: str, base: Activation) -> Activation:
        """The environment that the job's setup prepares, made now or before."""
        cwd = Path(order.working_dir or folder.work)
        want = Wanted(
            command=order.setup,
            content=order.code_id or order.working_dir or "",
            base=base,
            cwd=cwd,
            environment=self._environment_of_setup(order, folder, base),
            limit_s=self._options.setup_limit_s,
        )
        name, interpreter = await self.setups.key_of(want)
        folder.use_setup(self.setups.folder / name)
        self.doing[key] = f"setting up: {order.setup}"
        if not self.setups.is_ready(name):
            self.setting_up[key] = Setup(command=order.setup, limit_s=self._options.setup_limit_s)
        return await self.setups.prepared(name, interpreter, want, folder.path / f"rank-{order.first_rank}.out")

    def _environment_of_setup(self, order: LaunchTask, folder: TaskFolder, base: Activation) -> dict[str, str]:
        """That of a command which a user starts beside the first rank."""
        environments = self._environments(order, folder, base, self._base, _rendezvous(order))
        return session_environment(environments[0], session_id="", term=None)

    def checkpoints(self, job_id: str) -> Path:
        """Kept over the job's attempts."""
        return self._options.checkpoint_dir / job_id

    def _checkpoints_of(self, order: LaunchTask, folder: TaskFolder) -> Path:
        """Those of a trial are not its job's, because they hold the work of one rank; only an elastic job goes on from
        them."""
        of_its_own = order.trial_steps is not None and order.virtual_ranks is None
        return folder.path / "checkpoints" if of_its_own else self.checkpoints(order.job_id)

    def _output(self, order: LaunchTask, folder: TaskFolder) -> dict[str, str]:
        """Where the job finds the folder that is kept of it; linked into a working directory of its own alone."""
        if order.output_dir is None:
            return {}
        return {"SANJAYA_OUTPUT_DIR": str(self.outputs.link(order.job_id, order.output_dir, folder.work))}

    def _spec(
        self, order: LaunchTask, folder: TaskFolder, activation: Activation, found: Mapping[str, Data]
    ) -> dict[str, Any]:
        gpus = [self._gpus[index] for index in order.gpu_indices]
        self._checkpoints_of(order, folder).mkdir(parents=True, exist_ok=True)
        rendezvous = _rendezvous(order)
        place, command = place_of(order, [gpu.uuid for gpu in gpus], rendezvous), order.command
        if order.launcher != PER_GPU:
            if (why := conflict_here(command, place)) is not None:
                raise NotLaunched(why)
            command = filled_in(command, place)
        elif order.trial_steps is not None and PYTHON.fullmatch(Path(command[0]).name):
            command = [command[0], str(BEFOREHAND), *command]
        # An image brings an environment of its own: nothing of the agent's is for what runs in it.
        base = {} if order.image else self._base
        environments = self._environments(order, folder, activation, base | self._output(order, folder), rendezvous)
        if order.image:
            command, environments = self._contained(order, folder, found, command, environments)
        return {
            "command": command,
            "cwd": order.working_dir or str(folder.work),
            "environments": environments,
            "time_limit_s": order.time_limit_s,
            "data_limit_bytes": _data_limit(order, gpus) if place.virtual else 0,
            "nice": 5 if place.virtual else 0,
            "cpus": self._begins_on(order),
            "lease": self.leasing.spec if self.leasing is not None else None,
            **in_spec(order),
            "cgroup": self._cgroup(order, gpus),
        }

    def _cgroup(self, order: LaunchTask, gpus: list[GpuInfo]) -> dict[str, Any] | None:
        """The task's control group and its bounds.

        What a task asks for is the agent's to enforce, with a sentence. The kernel's bound is for what is taken faster
        than the agent looks, and above it by the memory of the GPUs, which is on the host while the task is suspended.
        """
        if self._groups is None:
            return None
        parked = sum(gpu.memory_bytes for gpu in gpus)
        most = None if order.memory_bytes is None else order.memory_bytes * len(gpus) + parked
        path = self._groups.of(task_key(order.job_id, order.attempt))
        return {"path": str(path), "memory_bytes": most, "processes": most_processes()}

    def _environments(
        self,
        order: LaunchTask,
        folder: TaskFolder,
        activation: Activation,
        base: Mapping[str, str],
        rendezvous: tuple[str, int],
    ) -> list[dict[str, str]]:
        gpus = [self._gpus[index] for index in order.gpu_indices]
        environments = rank_environments(
            order,
            base=base,
            gpu_uuids=[gpu.uuid for gpu in gpus],
            rendezvous=rendezvous,
            checkpoint_dir=str(self._checkpoints_of(order, folder)),
            harness_dir=str(folder.pages),
            reports=str(folder.reports),
            inject_path=inject_path(),
            interpreter_dir=str(Path(sys.executable).parent),
            commands_dir=str(self._commands()),
            activation=activation,
            gpu_memory_bytes=gpus[0].memory_bytes,
            share_cpus=max(1, len(self._options.cpus) // len(self._gpus)),
        )
        if not self._scales.memory or (self._scales.preload and order.image):
            return environments
        return [limited(environment, self._scales.preload) for environment in environments]

    def _contained(
        self,
        order: LaunchTask,
        folder: TaskFolder,
        found: Mapping[str, Data],
        command: list[str],
        environments: list[dict[str, str]],
    ) -> tuple[list[str], list[dict[str, str]]]:
        """The command line of the runner, and its environments.

        Raises:
            NotLaunched: the node has no runner (any more).
        """
        runner = self._options.image_runner
        if not runner:
            raise NotLaunched(f"image {order.image}: this node has no runner; expected one of {', '.join(RUNNERS)}")
        gpus = tuple(index for index in order.gpu_indices if self._gpus[index].uuid)
        folders = [folder.path, self._checkpoints_of(order, folder)]
        folders += [Path(order.working_dir)] if order.working_dir else []
        folders += [self.outputs.folder / order.job_id] if order.output_dir else []
        mounts = [Mount(str(path), str(path)) for path in folders]
        harness = str(Path(inject_path()).parent)
        mounts += [Mount(harness, harness, read_only=True)]
        mounts += [Mount(str(d.path), order.mounts[name] or str(d.path), d.read_only) for name, d in found.items()]
        variables = [{k: v for k, v in each.items() if k != "PATH"} for each in environments]
        workdir = order.working_dir or str(folder.work)
        inside = Container(order.image, workdir, tuple(mounts), tuple(sorted(variables[0])), gpus)
        line = RUNNERS[runner](runner, inside, command)
        return line, [self._base | variables_for(runner, each, gpus) for each in variables]

    def _commands(self) -> Path:
        """The folder of commands that tasks find besides the machine's: `srun`, which runs without the harness."""
        folder = self._options.state_dir / "bin"
        path = folder / "srun"
        content = f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -I {shlex.quote(str(SRUN))} "$@"\n'
        if not path.exists() or path.read_text() != content:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            part = folder / "srun.part"
            part.write_text(content)
            part.chmod(0o755)
            part.rename(path)
        return folder


async def _refuse(folder: TaskFolder, why: str, *, outcome: Refusal) -> None:
    while True:
        try:
            folder.refuse(why, outcome=outcome)
            return
        except OSError as error:
            log.error("%s: the task's result cannot be written: %s", folder.path, error)
            await asyncio.sleep(REFUSAL_RETRY_S)


def _data_limit(order: LaunchTask, gpus: list[GpuInfo]) -> int:
    """What one process may map privately: its GPUs' memory, and what the program itself takes."""
    per_process = 1 if order.launcher == PER_GPU else len(gpus)
    return gpus[0].memory_bytes * per_process + PROGRAM_BYTES


def _rendezvous(order: LaunchTask) -> tuple[str, int]:
    """Where the gang meets: as ordered, or on a port of this node that is free now."""
    if order.rendezvous_host is not None and order.rendezvous_port is not None:
        return order.rendezvous_host, order.rendezvous_port
    for port in random.sample(GANG_PORTS, 50):
        with socket.socket() as probe, suppress(OSError):
            probe.bind((LOOPBACK, port))
            return LOOPBACK, port
    raise NotLaunched(f"no port for the ranks to meet: 50 of {GANG_PORTS.start} to {GANG_PORTS[-1]} are in use")
