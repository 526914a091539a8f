"""Where an embedded log is and how it is to be used, read from its URL."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import parse_qsl

from libs.bus.port import BusError
from libs.contracts.base import Topic

_PREFIX = "sqlite:///"
_WEEK_S = 7 * 24 * 3600.0


@dataclass(frozen=True)
class Keep:
    """What is kept of each partition of a short-lived topic; whichever bound is reached first counts."""

    messages: int
    age_s: float = _WEEK_S


def _short_lived() -> dict[Topic, Keep]:
    return {Topic.TELEMETRY: Keep(50_000), Topic.PROFILES: Keep(50_000), Topic.LOGS: Keep(200_000)}


@dataclass(frozen=True)
class Address:
    """`sqlite:///relative/log.db`, `sqlite:////absolute/log.db`, with options after a `?`.

    Options: `mode` (`rw` or `ro`), `keep_messages` (per partition) and `keep_s`, both for the short-lived topics.
    """

    path: Path
    read_only: bool = False
    keep: Mapping[Topic, Keep] = field(default_factory=_short_lived)
    """{topic: what is kept}; topics that are not named are kept for ever."""

    @classmethod
    def parse(cls, url: str) -> Address:
        """Read a bus URL.

        Raises:
            BusError: no file is named, or an option is unknown or has no meaningful value.
        """
        place, _, query = url.partition("?")
        name = place.removeprefix(_PREFIX)
        if name == place or not name or name.endswith("/") or "\0" in name:
            raise BusError(f"bus url {url!r}: expected {_PREFIX}path/to/log.db, absolute with a fourth slash")
        try:
            options = dict(parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query)))
        except ValueError as error:
            raise BusError(f"bus url {url!r}: options cannot be read: {error}") from None
        if unknown := sorted(set(options) - {"mode", "keep_messages", "keep_s"}):
            raise BusError(f"bus url {url!r}: unknown option {unknown[0]!r}; there are mode, keep_messages, keep_s")
        mode = options.get("mode", "rw")
        if mode not in ("rw", "ro"):
            raise BusError(f"bus url {url!r}: mode {mode!r}, expected rw or ro")
        keep = {
            topic: Keep(
                int(_positive(url, options, "keep_messages", default.messages)),
                _positive(url, options, "keep_s", default.age_s),
            )
            for topic, default in _short_lived().items()
        }
        return cls(Path(name).expanduser().absolute(), mode == "ro", keep)


def _positive(url: str, options: Mapping[str, str], name: str, default: float) -> float:
    text = options.get(name, str(default))
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < 1e15:
        raise BusError(f"bus url {url!r}: {name} {text!r}, expected a number above 0")
    return number
