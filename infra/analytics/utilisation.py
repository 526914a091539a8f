"""GPU time of each tenant's training, in windows of a minute: an app of Faust on the control topic of a cell.

It prints a line of JSON for every profile of a job: the tenant, the window, GPU seconds of its training in it so far,
and which part of them the GPUs were busy (null where that is not measured).
"""

import json
import os
import sys
from tempfile import mkdtemp

import faust

WINDOW_S = 60.0
CELL = os.environ.get("CELL", "local")

app = faust.App(
    "tenant-utilisation",
    broker=os.environ.get("BROKER", "kafka://localhost:9092"),
    store="memory://",
    datadir=mkdtemp(prefix="tenant-utilisation-"),
    consumer_auto_offset_reset="earliest",
    topic_partitions=1,
    web_enabled=False,
)
control = app.topic(f"{CELL}.control", key_serializer="raw", value_serializer="raw", allow_empty=True)
jobs = app.Table("jobs", partitions=1)
trained_s = app.Table("trained_s", default=float, partitions=1).tumbling(WINDOW_S)
measured_s = app.Table("measured_s", default=float, partitions=1).tumbling(WINDOW_S)
busy_s = app.Table("busy_s", default=float, partitions=1).tumbling(WINDOW_S)


@app.agent(control)
async def follow(stream: faust.Stream) -> None:
    async for event in stream.events():
        headers = dict(event.message.headers or {})
        data = json.loads(event.value)
        match headers["ce_type"].decode():
            case "job.arrived.v1":
                spec = data["spec"]
                jobs[data["job_id"]] = {"tenant": spec["tenant"], "gpus": spec["gpus"]["count"]}
            case "job.profiled.v1" if job := jobs.get(data["job_id"]):
                window_s = event.message.timestamp // WINDOW_S * WINDOW_S
                profiled(job["tenant"], window_s, job["gpus"] * data["window_s"], data["gpu_utilisation_ratio"])


def profiled(tenant: str, window_s: float, gpu_s: float, busy_ratio: float | None) -> None:
    """Count the GPU seconds of one profile in the window of its record, and print what the window has now."""
    trained_s[tenant] += gpu_s
    if busy_ratio is not None:
        measured_s[tenant] += gpu_s
        busy_s[tenant] += gpu_s * busy_ratio
    measured = measured_s[tenant].current()
    line = {
        "tenant": tenant,
        "window_start_s": window_s,
        "gpu_s": round(trained_s[tenant].current(), 3),
        "busy_ratio": round(busy_s[tenant].current() / measured, 4) if measured else None,
    }
    print(json.dumps(line), file=sys.__stdout__, flush=True)  # Faust takes sys.stdout for its log
