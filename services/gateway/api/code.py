"""Upload of a working directory, so that no image has to be built first."""

from __future__ import annotations

import errno
from typing import Annotated, Any

from fastapi import APIRouter, Path, Request, Response
from starlette.responses import FileResponse

from services.gateway.adapters.code_store import MAX_MEMBERS, CodeRefused
from services.gateway.api.callers import CodeReader, Submitter
from services.gateway.api.common import Door, answer, media, responses
from services.gateway.models.answers import Code, UploadLimits
from services.gateway.problems import Problem, no_room, not_found
from services.gateway.strict import StrictRoute, limited

router = APIRouter(prefix="/v1/code", tags=["code"], route_class=StrictRoute)

_MEDIA_TYPES = ("application/gzip", "application/x-gzip", "application/octet-stream", "application/x-tar+gzip")
_FILE: dict[str, Any] = {"content": {"application/gzip": {"schema": {"type": "string", "format": "binary"}}}}


_CodeId = Annotated[str, Path(pattern=r"^c-[a-z2-7]{32}$", examples=["c-" + "a" * 32])]


@router.get("", operation_id="getUploadLimits", responses=responses("UploadLimits"))
async def limits(gateway: Door, caller: Submitter) -> Response:
    """How large an upload may be."""
    settings = gateway.settings
    return answer(
        UploadLimits(
            files=MAX_MEMBERS,
            unpacked_bytes=settings.max_unpacked_code_bytes,
            packed_bytes=settings.max_code_bytes,
        )
    )


@router.post(
    "",
    operation_id="uploadCode",
    status_code=201,
    responses=responses("Code", 400, 413, 415, 507, status=201, also="Code"),
    openapi_extra={"requestBody": {"required": True, **_FILE}},
)
async def upload(gateway: Door, caller: Submitter, request: Request) -> Response:
    """Store a working directory, packed as tar.gz. The same content has the same `code_id`, and is stored once."""
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type not in _MEDIA_TYPES:
        raise Problem("media-type", f"the body is {media_type[:100] or 'of no media type'}; expected {_MEDIA_TYPES[0]}")
    if gateway.disks.is_short("uploads"):
        raise no_room(f"{gateway.disks.shortage}; nothing was stored")
    try:
        stored = await gateway.code.put(limited(request, gateway.settings.max_code_bytes))
    except CodeRefused as error:
        wrong = {"pointer": "", "in": "body", "message": str(error), "value": None}
        raise Problem("invalid", f"the upload is refused: {error}", errors=[wrong]) from None
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        raise no_room(f"the upload has no room: {error}; nothing was stored") from None
    body = Code(code_id=stored.code_id, bytes=stored.bytes, files=stored.files)
    return answer(body, 201 if stored.new else 200, headers={"Location": f"/v1/code/{stored.code_id}"})


@router.head("/{code_id}", operation_id="checkCode", responses=media("It is here.", {}, 404))
async def check(gateway: Door, caller: Submitter, code_id: _CodeId) -> Response:
    """Whether a working directory has been uploaded: the same content need not be sent again."""
    if gateway.code.path(code_id) is None:
        raise not_found("uploaded code", code_id)
    return Response(headers={"ETag": f'"{code_id}"'})


@router.get(
    "/{code_id}",
    operation_id="downloadCode",
    responses=media("The tar.gz.", _FILE["content"], 404),
    response_class=FileResponse,
)
async def download(gateway: Door, caller: CodeReader, code_id: _CodeId) -> Response:
    """An uploaded working directory, as it was sent. It never changes."""
    path = gateway.code.path(code_id)
    if path is None:
        raise not_found("uploaded code", code_id)
    headers = {"ETag": f'"{code_id}"', "Cache-Control": "private, max-age=31536000, immutable"}
    return FileResponse(path, media_type="application/gzip", filename=f"{code_id}.tar.gz", headers=headers)
