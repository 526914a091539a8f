"""The picture of the house in the root README, made from the imports: `python -m tests.architecture.house`."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
BEGINS, ENDS = "<!-- house -->\n", "<!-- /house -->"
CORES = "services/*/core"


def room_of(module: str) -> str:
    """The room that a module of ours is in; empty for other modules."""
    parts = module.split(".")
    if parts[0] == "torch_agent":
        return "torch_agent"
    if parts[0] == "services" and len(parts) > 1:
        return CORES if "core" in parts[2:3] else "services"
    return f"libs/{parts[1]}" if parts[0] == "libs" and len(parts) > 1 else ""


def imports() -> dict[str, set[str]]:
    """{room: rooms that it imports}."""
    found: dict[str, set[str]] = {}
    for folder, base in (("libs", ROOT), ("services", ROOT), ("torch_agent", ROOT / "torch_agent" / "src")):
        for path in sorted((base / folder).rglob("*.py")):
            room = room_of(".".join(path.relative_to(base).with_suffix("").parts))
            for node in ast.walk(ast.parse(path.read_text())):
                names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
                names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
                found.setdefault(room, set()).update(map(room_of, names))
    # A service is looked at from outside: how its core and its other modules use each other is its own business.
    found.get(CORES, set()).discard("services")
    return {room: others - {room, ""} for room, others in found.items() if room and room != "libs/__init__"}


def picture() -> str:
    """The rooms and what each imports, as a picture in Mermaid, without what follows from other arrows."""
    rooms = imports()
    lines = ["flowchart BT"]
    for room in sorted(rooms):
        for other in sorted(rooms[room]):
            between = rooms[room] - {other}
            if not any(other in rooms.get(middle, ()) and room not in rooms.get(middle, ()) for middle in between):
                lines.append(f'    {_id(other)}["{other}"] --> {_id(room)}["{room}"]')
    return "\n".join(lines)


def _id(room: str) -> str:
    return room.replace("/", "_").replace("*", "x")


def block() -> str:
    """What stands in the README."""
    return f"{BEGINS}```mermaid\n{picture()}\n```\n{ENDS}"


def main() -> None:
    """Write it there."""
    text = README.read_text()
    README.write_text(text.replace(text[text.index(BEGINS) : text.index(ENDS) + len(ENDS)], block()))


if __name__ == "__main__":
    main()
