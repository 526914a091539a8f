"""Where a guest's gates are: hooks into torch before groups of operations.

Before each module's forward pass, after each gradient that is accumulated (so that backward passes are gated, too),
and before each optimizer's step. Parameters are known from the first step of their optimizer on. Inside of compiled
code there are no gates: what is compiled is one group.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from typing import Any, Protocol

SAID_BY_COMPILED_MODULES = r"Using `torch.compile\(module\)` when there are global hooks on modules"


class Removable(Protocol):
    """What torch returns for a hook."""

    def remove(self) -> None:
        """No longer call it."""


class Gates:
    """Of one process."""

    def __init__(self, torch: Any, gate: Callable[[], None]) -> None:
        """Have torch call `gate` before each group of operations, from now on."""
        self._gate = gate
        self._is_compiling: Callable[[], bool] = torch.compiler.is_compiling
        self._known: dict[int, int] = {}
        """{id of an optimizer: its parameters that have gates}."""
        self._hooks: list[Removable] = []
        self._add(torch)

    def _add(self, torch: Any) -> None:
        from torch.optim.optimizer import register_optimizer_step_pre_hook

        warnings.filterwarnings("ignore", SAID_BY_COMPILED_MODULES)
        self._hooks.append(torch.nn.modules.module.register_module_forward_pre_hook(self._forward))
        self._hooks.append(register_optimizer_step_pre_hook(self._steps))

    def remove(self) -> None:
        """No gates any more."""
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()

    def _forward(self, module: Any, inputs: Any) -> None:
        if not self._is_compiling():
            self._pass()

    def _accumulated(self, parameter: Any) -> None:
        if not self._is_compiling():
            self._pass()

    def _steps(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        if self._is_compiling():
            return
        self._pass()
        parameters = sum(len(group["params"]) for group in optimizer.param_groups)
        if self._known.get(id(optimizer)) != parameters:
            self._known[id(optimizer)] = parameters
            self._learn(optimizer)

    def _learn(self, optimizer: Any) -> None:
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if parameter.requires_grad and not _has(parameter, self._accumulated):
                    self._hooks.append(parameter.register_post_accumulate_grad_hook(self._accumulated))

    def _pass(self) -> None:
        try:
            self._gate()
        except Exception as error:
            self.remove()
            print(f"sanjaya: this guest has no gates any more: {error!r}", file=sys.stderr)


def _has(parameter: Any, hook: Callable[[Any], None]) -> bool:
    return hook in (parameter._post_accumulate_grad_hooks or {}).values()
