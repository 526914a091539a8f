"""Which processes a cell on one machine consists of, with their commands and environments."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from libs.cli.cell.access import Access
from libs.cli.cell.joining import Joining
from libs.cli.installation import program
from libs.runtime.roster import roster

BROKER, GATEWAY = "broker", "gateway"
PORTS_PER_AGENT = 50
FIRST_RENDEZVOUS_PORT = 24500
"""Below the range from which the kernel takes ports for outgoing connections."""

OF_ACCESS = ("SANJAYA_TOKEN", "SANJAYA_TOKEN_FILE", "SANJAYA_TOKENS_FILE", "SANJAYA_CELL_TOKENS_FILE")
"""Variables that say what each token allows: the plan's own, and none that the command was started with."""


@dataclass(frozen=True)
class Command:
    """One process of a cell."""

    name: str
    argv: list[str]
    environment: dict[str, str]


@dataclass(frozen=True)
class CellPlan:
    """What kind of cell is wanted."""

    state_dir: Path
    cell: str = "local"
    kafka: str | None = None
    """None: the embedded log. Empty: a broker of the cell's own. Else the bootstrap servers of a broker elsewhere."""
    agents: int = 1
    gpus_per_agent: int = 4
    """Virtual GPUs; 0: the real GPUs of this machine, with one agent."""
    pin_virtual_gpus: bool | None = None
    """Whether each virtual GPU has a CPU; None: where there are as many CPUs as virtual GPUs."""
    gateway_port: int = 8420
    host: str = ""
    """A name or address of this machine where agents of others may join, with TLS; empty: none may."""
    broker_port: int = 0
    """Of the cell's own broker; 0: a free one is chosen."""
    on_exit: str = "requeue"
    """What becomes of running tasks when the cell ends. `keep`: they go on, and the next start adopts them; `requeue`:
    they save what they can and end, and their jobs are queued again."""
    auth: bool = False
    """Whether requests need a token (`access`); without, every user of this machine may do everything."""
    tokens_file: Path | None = None
    """Further tokens, of other users (`SANJAYA_TOKENS_FILE`)."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Further environment variables for the services."""

    @property
    def own_broker(self) -> bool:
        """Whether a Kafka broker belongs to the cell."""
        return self.kafka == ""

    @property
    def gateway_url(self) -> str:
        """Where clients reach the cell."""
        return f"http://127.0.0.1:{self.gateway_port}"

    @property
    def bus(self) -> str:
        """The bus URL."""
        if self.kafka is None:
            return f"sqlite:///{self.state_dir / 'log.db'}"
        return f"kafka://{self.kafka or f'127.0.0.1:{self.broker_port}'}"

    @property
    def key_file(self) -> Path:
        """The secret that the gateway and the agents share."""
        return self.state_dir / "cell.key"

    @property
    def node_ids(self) -> tuple[str, ...]:
        """The nodes of the cell's own agents."""
        return tuple(f"n{number}" for number in range(1, self.agents + 1))

    @property
    def joining(self) -> Joining | None:
        """How agents of other machines join; None: they do not."""
        if not self.host:
            return None
        return Joining(self.state_dir, self.cell, self.host, self.gateway_port, self.node_ids)

    @property
    def access(self) -> Access | None:
        """The tokens of the cell's user and of its agents; None: none are needed."""
        return Access(self.state_dir) if self.auth else None

    def environment(self) -> dict[str, str]:
        """What the cell's processes share."""
        return {
            **{name: value for name, value in os.environ.items() if name not in OF_ACCESS},
            "SANJAYA_CELL": self.cell,
            "SANJAYA_BUS": self.bus,
            "SANJAYA_STATE_DIR": str(self.state_dir),
            "SANJAYA_DATABASE": f"sqlite:///{self.state_dir / 'read_models.db'}",
            "SANJAYA_GATEWAY": self.gateway_url,
            "SANJAYA_CELL_KEY_FILE": str(self.key_file),
            **(self.joining.settings() if self.joining is not None else {}),
            **self._access_settings(),
            **self.settings,
        }

    def _access_settings(self) -> dict[str, str]:
        if self.access is None:
            return {}
        others = {} if self.tokens_file is None else {"SANJAYA_TOKENS_FILE": str(self.tokens_file)}
        return {
            "SANJAYA_CELL_TOKENS_FILE": str(self.access.tokens_file),
            "SANJAYA_TOKEN_FILE": str(self.access.agents_token_file),
            **others,
        }

    def broker(self) -> Command:
        """The cell's own Kafka."""
        data = ["--data", str(self.state_dir / "kafka"), "--port", str(self.broker_port)]
        return self._python(BROKER, "libs.bus.local_broker", "run", *data)

    def services(self) -> list[Command]:
        """Every service, the gateway last."""
        others = ("failure_analysis", "introspection", "projection", GATEWAY)
        cores = [self._python(name, "libs.runtime", name) for name in roster().NAMES if name not in others]
        return [*cores, *(self._python(name, f"services.{name}") for name in others)]

    def agent_commands(self) -> list[Command]:
        """One agent per node, `n1`, `n2`, …"""
        return [self._agent(number) for number in range(1, self.agents + 1)]

    def _agent(self, number: int) -> Command:
        node_id = f"n{number}"
        first = FIRST_RENDEZVOUS_PORT + (number - 1) * PORTS_PER_AGENT
        command = self._python(
            f"agent-{node_id}",
            "torch_agent.service",
            *("--node-id", node_id),
            *("--virtual-gpus", str(self.gpus_per_agent)),
            *(("--part-of-machine", str(self.agents)) if self.agents > 1 else ()),
            *("--state-dir", str(self.state_dir / "nodes" / node_id)),
            *("--checkpoint-dir", str(self.state_dir / "checkpoints")),
            *("--rendezvous-ports", f"{first}-{first + PORTS_PER_AGENT - 1}"),
            *("--on-exit", self.on_exit),
            *(("--address", self.joining.address()) if self.joining is not None else ()),
        )
        # In variables: an older agent, in the middle of an upgrade, would not know the options.
        pins = {} if self.pin_virtual_gpus is None else {"SANJAYA_PIN_VIRTUAL_GPUS": str(int(self.pin_virtual_gpus))}
        part = {"SANJAYA_PART": str(number)} if self.agents > 1 else {}
        return replace(command, environment=command.environment | part | pins)

    def _python(self, name: str, module: str, *arguments: str) -> Command:
        return Command(name, program(module, *arguments), self.environment())
