"""The REST API as Python methods. Answers are the API's JSON objects, as its OpenAPI document describes them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

import httpx2

from libs.client.errors import ApiError, Unreachable

Json = dict[str, Any]
TIMEOUT_S = 35.0
PAGE = 500


class Client:
    """A connection to one gateway. Not thread-safe; close it, or use it as a context manager.

    All methods raise ApiError when the gateway refuses, and Unreachable when it does not answer.
    """

    def __init__(self, base_url: str, token: str | None = None) -> None:
        self.base_url = base_url
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._http = httpx2.Client(base_url=base_url, headers=headers, timeout=TIMEOUT_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Give back the connection."""
        self._http.close()

    def submit(self, job: Json, *, idempotency_key: str | None = None) -> Json:
        """Accept a job; the answer has its `id` and the `offset` of its event. Repeating a key repeats the answer."""
        headers = {"Idempotency-Key": idempotency_key} if idempotency_key else {}
        return self._ask("POST", "/v1/jobs", json=job, headers=headers)

    def dry_run(self, job: Json) -> Json:
        """What would become of a job; nothing is appended."""
        return self._ask("POST", "/v1/jobs", json=job, params={"dry_run": True})

    def upload_code(self, archive: bytes) -> str:
        """Store a tar.gz of a working directory; returns its id for `code_id`."""
        answer = self._ask("POST", "/v1/code", content=archive, headers={"Content-Type": "application/gzip"})
        return str(answer["code_id"])

    def jobs(self, **filters: Any) -> Iterator[Json]:
        """Jobs, newest first; filters are the API's: state, tenant, user, label."""
        yield from self._pages("/v1/jobs", filters)

    def job(self, job: str, *, at_least_offset: int | None = None) -> Json:
        """One job by id, name, or the beginning of its id."""
        return self._ask("GET", _job(job), params={"at_least_offset": at_least_offset})

    def why(self, job: str) -> Json:
        """Why it waits, or is where it is."""
        return self._ask("GET", _job(job, "why"))

    def story(self, job: str) -> Json:
        """Its events in sentences, each under its cause."""
        return self._ask("GET", _job(job, "story"))

    def metrics(self, job: str) -> Json:
        """Its curves: rate, loss, memory over time."""
        return self._ask("GET", _job(job, "metrics"))

    def cancel(self, job: str, *, grace_s: float = 10.0, note: str = "") -> Json:
        """Ask for its end."""
        return self._ask("POST", _job(job, "cancel"), json={"grace_s": grace_s, "note": note})

    def pause(self, job: str) -> Json:
        """Hold it."""
        return self._ask("POST", _job(job, "pause"))

    def resume(self, job: str) -> Json:
        """Let it go on."""
        return self._ask("POST", _job(job, "resume"))

    def set_priority(self, job: str, priority: int) -> Json:
        """Change its place in the queue."""
        return self._ask("PATCH", _job(job), json={"priority": priority})

    def log_lines(self, job: str, *, follow: bool = False, **filters: Any) -> Iterator[Json]:
        """Its output, line by line; with `follow` until it has ended."""
        yield from self._lines(_job(job, "logs"), {"follow": follow, **filters})

    def events(self, *, follow: bool = False, **filters: Any) -> Iterator[Json]:
        """Events on control as CloudEvents, oldest first; filters: job, node, type, source, from_offset."""
        yield from self._lines("/v1/events", {"follow": follow, **filters})

    def nodes(self) -> list[Json]:
        """All nodes."""
        return list(self._ask("GET", "/v1/nodes")["items"])

    def gpus(self) -> list[Json]:
        """All GPUs and who has them."""
        return list(self._ask("GET", "/v1/gpus")["items"])

    def drain(self, node: str, reason: str) -> Json:
        """Move away what runs on the node and give it nothing new."""
        return self._ask("POST", f"/v1/nodes/{quote(node, safe='')}/drain", json={"reason": reason})

    def undrain(self, node: str) -> Json:
        """Use the node again."""
        return self._ask("POST", f"/v1/nodes/{quote(node, safe='')}/undrain")

    def tenants(self) -> list[Json]:
        """All tenants, with limit and use."""
        return list(self._ask("GET", "/v1/tenants")["items"])

    def set_tenant(self, name: str, gpu_limit: int | None, weight: float = 1.0) -> Json:
        """Set a tenant's limit; None: no limit."""
        return self._ask("PUT", f"/v1/tenants/{quote(name, safe='')}", json={"gpu_limit": gpu_limit, "weight": weight})

    def policy(self) -> Json:
        """The placement policy, and those available."""
        return self._ask("GET", "/v1/policy")

    def set_policy(self, policy: str, note: str = "") -> Json:
        """Switch the policy."""
        return self._ask("PUT", "/v1/policy", json={"policy": policy, "note": note})

    def settings(self) -> list[Json]:
        """The numbers that cores decide by."""
        return list(self._ask("GET", "/v1/settings")["items"])

    def set_setting(self, service: str, name: str, value: float) -> Json:
        """Change one of them."""
        return self._ask("PUT", f"/v1/settings/{quote(service, safe='')}/{quote(name, safe='')}", json={"value": value})

    def status(self) -> Json:
        """How the cell is: lag, counts, the conservation light."""
        return self._ask("GET", "/v1/status")

    def export(self) -> Iterator[bytes]:
        """The raw log, line by line (`sanjaya-log/1`)."""
        with self._stream("/v1/log/export", {}) as answer:
            for line in answer.iter_lines():
                yield line.encode() + b"\n"

    def save_code(self, code_id: str, path: Path) -> None:
        """Fetch an uploaded working directory."""
        path.write_bytes(self._send("GET", f"/v1/code/{code_id}").content)

    def _ask(self, method: str, path: str, **arguments: Any) -> Json:
        answer: Json = self._send(method, path, **arguments).json()
        return answer

    def _send(self, method: str, path: str, **arguments: Any) -> httpx2.Response:
        if "params" in arguments:
            arguments["params"] = {k: v for k, v in arguments["params"].items() if v is not None}
        try:
            answer = self._http.request(method, path, **arguments)
        except httpx2.TransportError as error:
            raise Unreachable(f"no gateway answers at {self.base_url}: {error}") from error
        _check(answer)
        return answer

    def _pages(self, path: str, filters: Json) -> Iterator[Json]:
        cursor = None
        while True:
            page = self._ask("GET", path, params={**filters, "limit": PAGE, "cursor": cursor})
            yield from page["items"]
            cursor = page["next_cursor"]
            if cursor is None:
                return

    def _lines(self, path: str, filters: Json) -> Iterator[Json]:
        with self._stream(path, filters) as answer:
            for line in answer.iter_lines():
                if line:
                    yield json.loads(line)

    def _stream(self, path: str, filters: Json) -> _Streaming:
        params = {name: value for name, value in filters.items() if value is not None}
        return _Streaming(self._http, self.base_url, path, params)


class _Streaming:
    """A response that lasts, with the client's own errors."""

    def __init__(self, http: httpx2.Client, base_url: str, path: str, params: Json) -> None:
        headers = {"Accept": "application/x-ndjson"}
        self._base_url = base_url
        timeout = httpx2.Timeout(TIMEOUT_S, read=None)
        self._opening = http.stream("GET", path, params=params, headers=headers, timeout=timeout)

    def __enter__(self) -> httpx2.Response:
        try:
            answer = self._opening.__enter__()
        except httpx2.TransportError as error:
            raise Unreachable(f"no gateway answers at {self._base_url}: {error}") from error
        if answer.is_error:
            answer.read()
            _check(answer)
        return answer

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._opening.__exit__(kind, error, trace)
        if isinstance(error, httpx2.TransportError):
            raise Unreachable(f"the gateway at {self._base_url} broke off: {error}") from error


def _job(job: str, view: str = "") -> str:
    path = f"/v1/jobs/{quote(job, safe='')}"
    return f"{path}/{view}" if view else path


def _check(answer: httpx2.Response) -> None:
    if not answer.is_error:
        return
    try:
        document = answer.json()
    except ValueError:
        document = {"detail": answer.text[:500]}
    raise ApiError(answer.status_code, document if isinstance(document, dict) else {"detail": str(document)})
