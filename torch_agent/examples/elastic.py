"""Data parallelism on as many GPUs as there happen to be: a multi-layer perceptron that reads handwritten digits.

    sanjaya submit --gpus 1 --elastic 1:4 -- python elastic.py

Its losses are the same to the bit on any number of processes; --losses leaves them in a file, one a line, to see it.
"""

import argparse
import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
from digits import digit_batches
from sanjaya_job import Job
from torch import nn
from torch.nn.functional import cross_entropy


def options():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batches", type=int, default=1000)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--pause", type=float, default=0.0, help="seconds of rest per sample")
    parser.add_argument("--losses", type=Path, help="the first process appends time, batch and loss of each batch")
    parser.add_argument("--stop", type=Path, help="a file that says after which batch to stop, once it is there")
    return parser.parse_args()


def main(given):
    torch.set_num_threads(1)
    torch.manual_seed(given.seed)
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        dist.init_process_group("gloo")
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 128), nn.ReLU(), nn.Dropout(0.2), nn.Linear(128, 10))
    optimizer = torch.optim.AdamW(model.parameters(), lr=given.lr)
    batches = digit_batches(given.batch_size)
    job = Job(elastic=True, model=model, optimizer=optimizer, checkpoint_every=200)
    for batch in (batch for _ in job.epochs(given.batches) for batch in job.batches(batches)):
        optimizer.zero_grad()
        losses = []
        for images, labels in job.shards(batch):
            losses.append(cross_entropy(model(images), labels))
            losses[-1].backward()
            time.sleep(given.pause * len(labels))
        optimizer.step()
        tell(job.batches_done + 1, job.mean(losses).item(), given)
        if job.batches_done + 1 >= last_batch(given):
            break
    if dist.is_initialized():
        dist.destroy_process_group()


def tell(number, loss, given):
    if os.environ.get("RANK", "0") != "0":
        return
    if given.losses:
        with given.losses.open("a") as file:
            file.write(f"{time.time():.3f} {number} {loss.hex()}\n")
    if number % 50 == 0:
        print(f"batch {number} on {os.environ.get('WORLD_SIZE', '1')} GPUs: loss {loss:.4f}", flush=True)


def last_batch(given):
    return int(given.stop.read_text()) if given.stop and given.stop.exists() else given.batches


if __name__ == "__main__":
    main(options())
