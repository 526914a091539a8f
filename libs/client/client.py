"""The REST API as Python methods. Answers are the API's JSON objects, as its OpenAPI document describes them."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx2

from libs.client.connection import Connection, Json
from libs.client.errors import ApiError, Unreachable
from libs.client.streams import NOT_NOW, followed, lines

PAGE = 500
FINAL = ("SUCCEEDED", "FAILED", "CANCELLED", "REJECTED")
"""States that a job does not leave."""
SWEEP_OVER = ("TARGET_REACHED", "EXHAUSTED", "CANCELLED")
"""States that a sweep does not leave."""
IN_DOUBT_S = 10.0
"""How long a submission without an answer is repeated."""
REPEAT_EVERY_S = 0.5
NOT_FOUND = 404
_NOT_SENT = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.UnsupportedProtocol)
"""Failures before anything of a request could have arrived."""


@dataclass(frozen=True)
class Part:
    """A part of a file of a job."""

    content: bytes
    first: int
    """The place of its first byte in the file."""
    total: int
    """Bytes of the whole file."""
    etag: str
    digest: str
    """`sha-256=:…:` of the content, as the node has sent it."""


class Client(Connection):
    """A connection to one gateway. Not thread-safe; close it, or use it as a context manager.

    All methods raise ApiError when the gateway refuses, and Unreachable when it does not answer.
    """

    def submit(self, job: Json, *, idempotency_key: str | None = None) -> Json:
        """Accept a job, or an array of jobs. Repeating a key repeats the answer.

        The answer has its `id` and the `offset` of its event.

        When the answer does not come, the request is repeated under its key: it is accepted once or not at all.

        Raises:
            Unreachable: no gateway answers; the message says the key when it may have been accepted.
        """
        return self._submit("/v1/jobs", job, idempotency_key)

    def _submit(self, path: str, body: Json, idempotency_key: str | None) -> Json:
        key = idempotency_key or uuid.uuid4().hex
        until_s = time.monotonic() + IN_DOUBT_S
        sent = False
        while True:
            try:
                return self._ask("POST", path, json=body, headers={"Idempotency-Key": key})
            except Unreachable as error:
                sent = sent or not isinstance(error.__cause__, _NOT_SENT)
                if not sent:
                    raise
                if time.monotonic() > until_s:
                    raise Unreachable(f"{error}; it may have been accepted: ask again with the key {key}") from error
            except ApiError as error:
                if error.status != NOT_NOW or time.monotonic() > until_s:
                    raise
                sent = True
            time.sleep(REPEAT_EVERY_S)

    def dry_run(self, job: Json, *, expected: bool = False) -> Json:
        """What would become of a job; nothing is appended.

        Args:
            job: as for `submit`.
            expected: say when it would start, too; that takes as long as many decisions.
        """
        asked = {"dry_run": True} | ({"expected": True} if expected else {})
        return self._ask("POST", "/v1/jobs", json=job, params=asked)

    def upload_limits(self) -> dict[str, int]:
        """How large an upload may be: `files`, `unpacked_bytes`, `packed_bytes`."""
        return self._ask("GET", "/v1/code")

    def has_code(self, code_id: str) -> bool:
        """Whether this working directory has been uploaded before."""
        try:
            self._send("HEAD", f"/v1/code/{code_id}")
        except ApiError as error:
            if error.status != NOT_FOUND:
                raise
            return False
        return True

    def upload_code(self, archive: bytes) -> str:
        """Store a tar.gz of a working directory; returns its id for `code_id`."""
        answer = self._ask("POST", "/v1/code", content=archive, headers={"Content-Type": "application/gzip"})
        return str(answer["code_id"])

    def jobs(self, *, limit: int | None = None, **filters: Any) -> Iterator[Json]:
        """Jobs, newest first; filters are the API's: state, tenant, user, label, array, dag, grouped,
        submitted_after_s, ended_after_s, ended_before_s."""
        page = min(limit or PAGE, PAGE)
        yield from islice(self._pages("/v1/jobs", {**filters, "limit": page}), limit)

    def job(self, job: str, *, at_least_offset: int | None = None) -> Json:
        """One job by id, name, or the beginning of its id."""
        return self._ask("GET", _job(job), params={"at_least_offset": at_least_offset})

    def why(self, job: str) -> Json:
        """Why it waits, or is where it is."""
        return self._ask("GET", _job(job, "why"))

    def forecast(self, job: str) -> Json:
        """What would start a job that waits at the next decision, and when it is expected to start."""
        return self._ask("GET", _job(job, "forecast"))

    def story(self, job: str) -> Json:
        """Its events in sentences, each under its cause."""
        return self._ask("GET", _job(job, "story"))

    def metrics(self, job: str) -> Json:
        """Its curves: rate, loss, memory over time, and what its script has reported."""
        return self._ask("GET", _job(job, "metrics"))

    def cancel(self, job: str, *, grace_s: float = 10.0, note: str = "") -> Json:
        """Ask for its end."""
        return self._ask("POST", _job(job, "cancel"), json={"grace_s": grace_s, "note": note})

    def pause(self, job: str) -> Json:
        """Suspend it while it runs; while it waits, keep it from being placed."""
        return self._ask("POST", _job(job, "pause"))

    def resume(self, job: str) -> Json:
        """Let a paused job go on, or be placed, in its turn."""
        return self._ask("POST", _job(job, "resume"))

    def set_priority(self, job: str, priority: int) -> Json:
        """Change its place in the queue."""
        return self._ask("PATCH", _job(job), json={"priority": priority})

    def set_max_gpus(self, job: str, max_gpus: int) -> Json:
        """Change the most GPUs that an elastic job may have."""
        return self._ask("PATCH", _job(job), json={"max_gpus": max_gpus})

    def set_limits(self, job: str, *, memory_limit_bytes: int | None, compute_share_ratio: float | None) -> Json:
        """Bound what it may have of each of its GPUs; None: no bound. Replaces what was asked for before."""
        body = {"memory_limit_bytes": memory_limit_bytes, "compute_share_ratio": compute_share_ratio}
        return self._ask("PUT", _job(job, "limits"), json=body)

    def job_files(self, job: str, path: str = "", *, rank: int = 0) -> Json:
        """What is in a folder of its latest attempt, below its working directory; of a file: that file."""
        return self._ask("GET", _job(job, "files"), params={"path": path, "rank": rank})

    def job_file_part(
        self, job: str, path: str, first: int, number: int, *, rank: int = 0, etag: str | None = None
    ) -> Part:
        """At most `number` bytes of a file from the byte `first` on; `etag`: refused when the content is another."""
        headers = {"Range": f"bytes={first}-{first + number - 1}", **({"If-Match": etag} if etag else {})}
        answer = self._send("GET", f"{_job(job, 'files')}/{quote(path)}", params={"rank": rank}, headers=headers)
        total = answer.headers.get("Content-Range", "").rpartition("/")[2]
        return Part(
            content=answer.content,
            first=first,
            total=int(total) if total.isdigit() else len(answer.content),
            etag=answer.headers.get("ETag", ""),
            digest=answer.headers.get("Content-Digest", ""),
        )

    def stacks(self, job: str, *, rank: int | None = None) -> Json:
        """What its processes do just now; of one rank, or of all."""
        return self._ask("GET", _job(job, "stacks"), params={"rank": rank})

    def change_code(self, job: str, code_id: str) -> Json:
        """Have it start with another upload; refused once it was placed."""
        return self._ask("PUT", _job(job, "code"), json={"code_id": code_id})

    def logs(self, job: str, *, follow: bool = False, **filters: Any) -> Iterator[Json]:
        """Its output, line by line; with `follow` until it has ended. Filters: tail, since_s, attempt, rank, stream."""
        if not follow:
            yield from self._json_lines(_job(job, "logs"), filters)
            return
        for sent in followed(lambda last: self._stream(_job(job, "logs"), {"follow": True, **filters}, last)):
            told = json.loads(sent.data)
            if sent.event == "lines":
                yield from told["lines"]
            elif sent.event == "end" and told["state"] in FINAL:
                return

    def events(self, *, follow: bool = False, **filters: Any) -> Iterator[Json]:
        """Events on control as CloudEvents, oldest first; filters: job, node, type, source, from_offset.

        With `follow` without end, and from now on when `from_offset` does not say otherwise.
        """
        if not follow:
            yield from self._json_lines("/v1/events", {**filters, "follow": False})
            return
        if filters.get("from_offset") is None:
            filters["from_offset"] = self.status()["next_offset"]
        for sent in followed(lambda last: self._stream("/v1/events", {**filters, "follow": True}, last)):
            yield json.loads(sent.data)

    def submit_sweep(self, sweep: Json, *, idempotency_key: str | None = None) -> Json:
        """Accept a sweep; as `submit`, once or not at all.

        Raises:
            Unreachable: no gateway answers; the message says the key when it may have been accepted.
        """
        return self._submit("/v1/sweeps", sweep, idempotency_key)

    def submit_dag(self, dag: Json, *, idempotency_key: str | None = None) -> Json:
        """Accept the `jobs` of a DAG, all or none; as `submit`, once or not at all.

        Raises:
            Unreachable: no gateway answers; the message says the key when it may have been accepted.
        """
        return self._submit("/v1/dags", dag, idempotency_key)

    def group(self, group: str) -> Json:
        """An array or a DAG by id, name, or the beginning of its id, and how its jobs are."""
        return self._ask("GET", _group(group))

    def cancel_group(self, group: str, *, grace_s: float = 10.0, note: str = "") -> Json:
        """Ask for the end of all of its jobs."""
        return self._ask("POST", _group(group, "cancel"), json={"grace_s": grace_s, "note": note})

    def pause_group(self, group: str) -> Json:
        """Hold all of its jobs."""
        return self._ask("POST", _group(group, "pause"))

    def resume_group(self, group: str) -> Json:
        """Let all of its jobs go on."""
        return self._ask("POST", _group(group, "resume"))

    def set_group_priority(self, group: str, priority: int) -> Json:
        """Change the place of all of its jobs in the queue."""
        return self._ask("PATCH", _group(group), json={"priority": priority})

    def sweeps(self, *, limit: int | None = None, state: list[str] | None = None) -> Iterator[Json]:
        """Sweeps, newest first."""
        page = min(limit or PAGE, PAGE)
        yield from islice(self._pages("/v1/sweeps", {"state": state, "limit": page}), limit)

    def sweep(self, sweep: str) -> Json:
        """One sweep with its trials, by id, name, or the beginning of its id."""
        return self._ask("GET", _sweep(sweep))

    def sweep_curves(self, sweep: str, *, limit: int | None = None) -> Json:
        """What its trials have reported of the objective, and the best value so far; `limit`: most points."""
        return self._ask("GET", _sweep(sweep, "curves"), params={"limit": limit})

    def cancel_sweep(self, sweep: str, *, note: str = "") -> Json:
        """Ask for its end, with that of all its trials."""
        return self._ask("POST", _sweep(sweep, "cancel"), json={"note": note})

    def nodes(self, *, at_least_offset: int | None = None) -> list[Json]:
        """All nodes, as of this offset of control or a later one."""
        return list(self._ask("GET", "/v1/nodes", params={"at_least_offset": at_least_offset})["items"])

    def gpus(self) -> list[Json]:
        """All GPUs and the jobs that have them."""
        return list(self._ask("GET", "/v1/gpus")["items"])

    def drain(self, node: str, reason: str, *, now: bool = False) -> Json:
        """Move away what runs on the node and give it nothing new."""
        body = {"reason": reason, **({"now": True} if now else {})}  # a gateway of an older version knows no other
        return self._ask("POST", f"/v1/nodes/{quote(node, safe='')}/drain", json=body)

    def undrain(self, node: str) -> Json:
        """Use the node again."""
        return self._ask("POST", f"/v1/nodes/{quote(node, safe='')}/undrain")

    def tenants(self) -> list[Json]:
        """All tenants, with limit and use."""
        return list(self._ask("GET", "/v1/tenants")["items"])

    def set_tenant(self, name: str, gpu_limit: int | None, weight: float = 1.0, **fields: Any) -> Json:
        """Set a tenant's limit (None: no limit) and its share.

        Args:
            fields: `parent`, `guarantees`, `limits`, `per_user`, `lend`, `borrow`, as in the API: what is left out is
                none, or yes. `on_stall`, `on_divergence`, `on_idle`: `tell`, `stop` or `requeue`; what is left out
                stays.
        """
        body = {"gpu_limit": gpu_limit, "weight": weight, **fields}
        return self._ask("PUT", f"/v1/tenants/{quote(name, safe='')}", json=body)

    def usage(self, by: str, *, since_s: float | None = None, until_s: float | None = None) -> Json:
        """GPU time between two times, seconds since the epoch; `by`: `tenant`, `user`, `job` or `gpu-type`."""
        return self._ask("GET", "/v1/usage", params={"by": by, "since_s": since_s, "until_s": until_s})

    def failures(self, by: str, *, since_s: float | None = None, until_s: float | None = None) -> Json:
        """Failed attempts between two times, seconds since the epoch.

        `by`: `reason`, `cause`, `user`, `tenant`, `node` or `input`.
        """
        return self._ask("GET", "/v1/failures", params={"by": by, "since_s": since_s, "until_s": until_s})

    def release_input(self, name: str) -> Json:
        """Let jobs run again that name an input in quarantine."""
        return self._ask("POST", "/v1/failures/release", json={"input": name})

    def policy(self) -> Json:
        """The placement policy, and those available."""
        return self._ask("GET", "/v1/policy")

    def set_policy(self, policy: str, note: str = "", **options: Any) -> Json:
        """Switch the policy; options as in the API: `space_sharing`, `heterogeneity_aware`, `guests`, …"""
        return self._ask("PUT", "/v1/policy", json={"policy": policy, "note": note, **options})

    def provide_throughputs(self, isolated: list[Json], colocated: list[Json]) -> Json:
        """Tell how fast configurations train, alone and in pairs."""
        return self._ask("PUT", "/v1/throughputs", json={"isolated": isolated, "colocated": colocated})

    def clock(self) -> Json:
        """By how much the services are ahead of the log's clock: `ahead_s`."""
        return self._ask("GET", "/v1/clock")

    def repair_clock(self, reason: str) -> Json:
        """Have the services go back to the log's clock."""
        return self._ask("POST", "/v1/clock/repair", json={"reason": reason})

    def settings(self) -> list[Json]:
        """The numbers that cores decide by."""
        return list(self._ask("GET", "/v1/settings")["items"])

    def set_setting(self, service: str, name: str, value: float) -> Json:
        """Change one of them."""
        return self._ask("PUT", f"/v1/settings/{quote(service, safe='')}/{quote(name, safe='')}", json={"value": value})

    def status(self) -> Json:
        """How the cell is: lag, counts, the conservation light."""
        return self._ask("GET", "/v1/status")

    def browser_login(self) -> Json:
        """A link that lets one browser in, once, with this client's rights: its `path` at the gateway."""
        return self._ask("POST", "/v1/browser-logins")

    def dead_letters(self, *, limit: int | None = None) -> Json:
        """Records that services could not take: their `total` number, and the newest of them as `items`."""
        return self._ask("GET", "/v1/deadletters", params={"limit": limit})

    def dead_letter(self, offset: int) -> Json:
        """One of them, whole, by its offset on their topic."""
        return self._ask("GET", f"/v1/deadletters/{offset}")

    def retry_dead_letter(self, offset: int) -> Json:
        """Give its record once more to the service that could not read it; the `event` is null when it was before."""
        return self._ask("POST", f"/v1/deadletters/{offset}/retry")

    def export(self) -> Iterator[bytes]:
        """The raw log, line by line (`sanjaya-log/1`): what it is, then every record of control and orders."""
        with self._stream("/v1/log/export", {}) as answer:
            yield from lines(answer.iter_bytes())

    def positions(self) -> dict[str, int] | None:
        """{service: the first offset of control that it has not handled}; None when the log cannot tell.

        A service that has no position, or one that the broker has forgotten, is left out.
        """
        with self._stream("/v1/log/export", {}) as answer:
            header = json.loads(next(lines(answer.iter_bytes())))
        found: dict[str, int] | None = header.get("positions")
        return found

    def save_code(self, code_id: str, path: Path) -> None:
        """Fetch an uploaded working directory."""
        path.write_bytes(self._send("GET", f"/v1/code/{code_id}").content)


def _job(job: str, view: str = "") -> str:
    return _path("jobs", job, view)


def _group(group: str, view: str = "") -> str:
    return _path("groups", group, view)


def _sweep(sweep: str, view: str = "") -> str:
    return _path("sweeps", sweep, view)


def _path(collection: str, reference: str, view: str) -> str:
    path = f"/v1/{collection}/{quote(reference, safe='')}"
    return f"{path}/{view}" if view else path
