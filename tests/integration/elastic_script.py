"""A training script that runs its batches in shards, with everything that could depend on how many processes it has.

python elastic_script.py FOLDER    # leaves every loss in FOLDER/losses.0, one a line, as float.hex() has it

STOP_AFTER: batches (1-based, over all attempts) after which it says so (FOLDER/stopped-<n>.<rank>), and waits until
it may go on (FOLDER/go-<n>).
"""

import libs.testing.quick_torch  # noqa: F401 - before torch

# isort: split
import random
import sys
from pathlib import Path

import numpy
import torch
from sanjaya_job import Job
from stopping import RANK, WORLD_SIZE, stop_after
from torch import distributed, nn
from torch.utils.data import DataLoader, TensorDataset

EPOCHS, SAMPLES, BATCH = 2, 110, 16

folder = Path(sys.argv[1])
torch.set_num_threads(1)
torch.manual_seed(100 * RANK)  # what the first process begins with is that of all
random.seed(100 * RANK)
numpy.random.seed(100 * RANK)


def note(line):
    if RANK == 0:
        with (folder / "losses.0").open("a") as file:
            file.write(f"{line}\n")


def train():
    samples = torch.randn(SAMPLES, 8, generator=torch.Generator().manual_seed(3))
    model = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.3), nn.Linear(16, 1))
    model.unused = nn.Parameter(torch.ones(2))
    if WORLD_SIZE > 1:
        distributed.init_process_group("gloo")
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.99)
    scaler = torch.amp.GradScaler("cpu", growth_interval=5)
    loader = DataLoader(TensorDataset(samples, samples.sum(1)), BATCH, shuffle=True)

    job = Job(elastic=True, model=model, optimizer=optimizer, scheduler=scheduler, scaler=scaler)
    for _ in job.epochs(EPOCHS):
        for batch in job.batches(loader):  # the last one of an epoch has 14 samples, unequal parts
            optimizer.zero_grad()
            losses = []
            for x, y in job.shards(batch):
                noise = random.random() + numpy.random.rand()
                losses.append(nn.functional.mse_loss(model(x).squeeze(1), y * noise))
                scaler.scale(losses[-1]).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1e3)
            scaler.step(optimizer)
            scaler.update()
            scheduler.step()
            number = job.batches_done + 1
            note(f"{number} {job.mean(losses).item().hex()} {random.random().hex()} {model[1].running_mean.sum()}")
            stop_after(number)
    note(float(torch.cat([parameter.detach().reshape(-1) for parameter in model.parameters()]).sum()).hex())
    if WORLD_SIZE > 1:
        distributed.destroy_process_group()


if __name__ == "__main__":
    train()
