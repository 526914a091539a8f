"""One line per log record on stderr: time, level, service, logger, message, then `key=value` pairs."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any

_QUOTED = set(' ="\n\t\\')


def setup(service: str, level: str) -> None:
    """Send the process's log to stderr.

    Args:
        service: name that every line carries.
        level: least level that is shown.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LineFormatter(service))
    logging.basicConfig(handlers=[handler], level=level, force=True)
    for chatty in ("aiokafka", "faust", "mode"):
        logging.getLogger(chatty).setLevel(max(logging.WARNING, logging.getLevelName(level)))


def fields(**values: Any) -> dict[str, Any]:
    """The `extra` argument of a log call: named values that end up at the line's end."""
    return {"fields": values}


class LineFormatter(logging.Formatter):
    """Never more than one line: a traceback is quoted."""

    def __init__(self, service: str) -> None:
        super().__init__()
        self._service = service

    def format(self, record: logging.LogRecord) -> str:
        """The line, without its end."""
        moment = datetime.fromtimestamp(record.created, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3]
        parts = [
            f"{moment}Z",
            record.levelname,
            self._service,
            record.name,
            f"msg={_value(record.getMessage())}",
        ]
        values: dict[str, Any] = getattr(record, "fields", {})
        parts += [f"{name}={_value(value)}" for name, value in values.items()]
        if record.exc_info:
            parts.append(f"traceback={_value(self.formatException(record.exc_info))}")
        return " ".join(parts)


def _value(value: Any) -> str:
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    return json.dumps(text, ensure_ascii=False) if not text or not _QUOTED.isdisjoint(text) else text
