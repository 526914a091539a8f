"""Files of a job, from the node that has them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated, Any

import httpx2
import msgspec
from fastapi import APIRouter, Header, Path, Query, Response
from starlette.responses import StreamingResponse

from libs.contracts.read_models import NodeRow
from libs.runtime.agents import AgentAway, JobPath
from services.gateway.adapters.tokens import Principal
from services.gateway.api.callers import Reader
from services.gateway.api.common import Door, JobReference, answer, media, responses
from services.gateway.api.finding import own_job
from services.gateway.api.holding import holding_node
from services.gateway.core.whereabouts import agent_of
from services.gateway.door import Gateway
from services.gateway.models.answers import FileList, JobFile
from services.gateway.problems import Problem, unavailable
from services.gateway.strict import StrictRoute

router = APIRouter(prefix="/v1/jobs/{job}/files", tags=["jobs"], route_class=StrictRoute)

_PASSED_ON = ("content-length", "content-range", "accept-ranges", "etag", "content-digest")
_BINARY: dict[str, Any] = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
_PATH = r"^[^\x00]*$"

Rank = Annotated[int, Query(ge=0, le=2**31, description="Of a gang: from the node that ran this rank.")]


@router.get("", operation_id="listJobFiles", responses=responses("FileList", 404, 409))
async def list_files(
    gateway: Door,
    caller: Reader,
    job: JobReference,
    path: Annotated[
        str, Query(max_length=4096, pattern=_PATH, description="Below the job's working directory; empty: that itself.")
    ] = "",
    rank: Rank = 0,
) -> Response:
    """What is in a folder of the job's latest attempt, on its node. Of a file: that file."""
    node, wanted = await _whereabouts(gateway, caller, job, path, rank)
    found = await _asked(gateway, node, "list", wanted, {})
    try:
        listing = msgspec.json.decode(await found.aread())
    except (httpx2.TransportError, msgspec.DecodeError) as error:
        raise unavailable(f"node {node.id} broke off: {error!r}") from None
    finally:
        await found.aclose()
    items = [JobFile(**item) for item in listing["items"]]
    return answer(
        FileList(
            job_id=wanted.job_id,
            attempt=wanted.attempt,
            node_id=node.id,
            folder=listing["folder"],
            path=path,
            items=items,
        )
    )


@router.get(
    "/{path:path}",
    operation_id="readJobFile",
    responses=media("The content.", _BINARY, 400, 404, 409, 412, 416)
    | {206: {"description": "A part.", "content": _BINARY}},
    response_class=StreamingResponse,
)
async def read_file(
    gateway: Door,
    caller: Reader,
    job: JobReference,
    path: Annotated[str, Path(min_length=1, max_length=4096, pattern=_PATH)],
    rank: Rank = 0,
    wanted_range: Annotated[str | None, Header(alias="Range", description="One range: `bytes=0-1023`.")] = None,
    if_match: Annotated[
        str | None, Header(alias="If-Match", description="Refuse (412) a file that has changed.")
    ] = None,
) -> Response:
    """A file of the job's latest attempt. `Content-Digest` (RFC 9530) has the SHA-256 of an answer up to 64 MiB.

    A large file is fetched in parts, with the first one's ETag in `If-Match`.
    """
    node, wanted = await _whereabouts(gateway, caller, job, path, rank)
    asked = {"Range": wanted_range, "If-Match": if_match}
    found = await _asked(gateway, node, "read", wanted, {name: value for name, value in asked.items() if value})
    headers = {name: found.headers[name] for name in _PASSED_ON if name in found.headers}
    return StreamingResponse(_passed_on(found), found.status_code, headers, "application/octet-stream")


async def _passed_on(found: httpx2.Response) -> AsyncIterator[bytes]:
    try:
        async for chunk in found.aiter_raw():
            yield chunk
    finally:
        await found.aclose()


async def _whereabouts(
    gateway: Gateway, caller: Principal, reference: str, path: str, rank: int
) -> tuple[NodeRow, JobPath]:
    """The node that has the files, and what is to be asked of it.

    Raises:
        Problem: 403 for a job of another tenant, 404 for an unknown job or rank, 409 where there can be no files, 503
            while the node is away.
    """
    job_id = (await own_job(gateway, caller, reference)).id
    node, attempt = await holding_node(gateway, job_id, rank, what=f"the files of {job_id} are")
    return node, JobPath(job_id, attempt, path)


async def _asked(
    gateway: Gateway, node: NodeRow, what: str, wanted: JobPath, headers: dict[str, str]
) -> httpx2.Response:
    """The agent's answer, unless it refuses.

    Raises:
        Problem: the agent's own, or 503 when it does not answer.
    """
    try:
        found = await gateway.agents.ask(agent_of(node), what, wanted, headers)
    except AgentAway as error:
        raise unavailable(f"{error}; the files of {wanted.job_id} are there", 5) from None
    if not found.is_error:
        return found
    try:
        detail = str(msgspec.json.decode(await found.aread())["detail"])
    except (httpx2.TransportError, msgspec.DecodeError, KeyError, TypeError):
        detail = f"status {found.status_code}"
    finally:
        await found.aclose()
    about = f"attempt {wanted.attempt} of {wanted.job_id} on node {node.id}: {detail}"
    slug = {404: "not-found", 412: "changed", 416: "range"}.get(found.status_code)
    raise Problem(slug, about) if slug else unavailable(f"{about} (status {found.status_code})", 5)
