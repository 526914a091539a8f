"""The web page: one HTML file, its style and its script, served as they are."""

from __future__ import annotations

from pathlib import Path

from fastapi import APIRouter, Response
from starlette.responses import FileResponse

from services.gateway.problems import not_found

router = APIRouter(include_in_schema=False)

_WEB = Path(__file__).parent.parent / "web"
_FILES = {path.name: path for path in _WEB.iterdir() if path.suffix in (".html", ".css", ".js", ".svg")}
_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}


@router.get("/")
async def page() -> Response:
    """The page."""
    return _serve("index.html")


@router.get("/web/{name}")
async def file(name: str) -> Response:
    """What the page consists of."""
    return _serve(name)


def _serve(name: str) -> Response:
    path = _FILES.get(name)
    if path is None:
        raise not_found("file", name, list(_FILES))
    return FileResponse(path, media_type=_TYPES[path.suffix], headers={"Cache-Control": "no-cache"})
