"""Writes everything in this folder that is derived from code.

python -m schemas.generate            write
python -m schemas.generate --check    write nothing; exit 1 when something is out of date or incompatible
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import yaml

from libs.contracts import wire
from libs.contracts.base import event_classes
from schemas import asyncapi, examples, json_schema
from schemas.compatibility import breaks

FOLDER = Path(__file__).parent


def documents() -> dict[str, str]:
    """{path below this folder: text} of every generated document but the examples and OpenAPI's."""
    texts = {f"events/{cls.wire_type}.schema.json": _json(json_schema.of(cls)) for cls in event_classes()}
    texts["asyncapi.yaml"] = yaml.safe_dump(asyncapi.document(), sort_keys=False, width=120, allow_unicode=True)
    texts["openapi.json"] = _openapi()
    return texts


def missing_examples() -> dict[str, str]:
    """Examples of event versions that have none yet. One that is stored is never written again."""
    texts = {}
    for cls in event_classes():
        path = f"events/{cls.wire_type}.example.json"
        if not (FOLDER / path).exists():
            texts[path] = wire.encode_data(examples.of(cls)).decode() + "\n"
    return texts


def problems() -> list[str]:
    """What stands between the stored documents and the code: nothing, when all is well."""
    found = []
    for path, text in documents().items():
        stored = (FOLDER / path).read_text() if (FOLDER / path).exists() else ""
        if stored != text:
            found.append(f"schemas/{path} is out of date: run `make schemas`")
        if stored and path.startswith("events/"):
            found += [f"schemas/{path}: {why}" for why in breaks(json.loads(stored), json.loads(text))]
    return found + [f"schemas/{path} is missing: run `make schemas`" for path in missing_examples()]


def write() -> list[str]:
    """Write what is out of date; refuses to overwrite a schema by one that breaks its readers.

    Raises:
        SystemExit: an event was changed incompatibly; the message says how, and to make a new version.
    """
    broken = [problem for problem in problems() if "out of date" not in problem and "missing" not in problem]
    if broken:
        raise SystemExit("\n".join([*broken, "declare a new version of the event instead"]))
    written = []
    for path, text in {**documents(), **missing_examples()}.items():
        target = FOLDER / path
        if not target.exists() or target.read_text() != text:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text)
            written.append(path)
    return written


def _json(document: object) -> str:
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def _openapi() -> str:
    """The gateway's own document. The application is built but never served, so it needs no gateway behind it."""
    from services.gateway.app import openapi_document

    return _json(openapi_document())


def main() -> None:
    if sys.argv[1:] == ["--check"]:
        found = problems()
        print("\n".join(found) or "schemas are up to date")
        sys.exit(1 if found else 0)
    for path in write():
        print(f"wrote schemas/{path}")


if __name__ == "__main__":
    main()
