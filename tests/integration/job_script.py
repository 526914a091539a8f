"""A training script with everything that has a state, in the care of a Job.

python job_script.py FOLDER    # leaves every loss in FOLDER/losses.<rank>, one a line, as float.hex() has it

STOP_AFTER: batches (1-based, over all attempts) after which it says so (FOLDER/stopped-<n>.<rank>), and waits until
it may go on (FOLDER/go-<n>). ACCUMULATE: batches per step. CHECKPOINT_EVERY: batches. SAMPLES: of an
epoch. KEEP_WORKERS: over all epochs. STUCK: as `stuck` has it.
"""

import libs.testing.quick_torch  # noqa: F401 - before torch

# isort: split
import os
import random
import sys
from pathlib import Path

import numpy
import torch
from sanjaya_job import Job
from stopping import RANK, WORLD_SIZE, stop_after
from stuck import stick_in_the_middle
from torch import distributed, nn
from torch.utils.data import DataLoader, Dataset

EPOCHS, SAMPLES, BATCH = 3, int(os.environ.get("SAMPLES", "40")), 4
ACCUMULATE = int(os.environ.get("ACCUMULATE", "1"))

folder = Path(sys.argv[1])
torch.set_num_threads(1)
torch.manual_seed(RANK)
random.seed(RANK)
numpy.random.seed(RANK)


class Augmented(Dataset):
    """Every sample is another one each time."""

    samples = torch.randn(SAMPLES, 8)

    def __len__(self):
        return SAMPLES

    def __getitem__(self, index):
        stick_in_the_middle()
        noise = torch.randn(8) * 0.1 + random.random() + numpy.random.rand()
        return self.samples[index] + noise, self.samples[index].sum()


def note(line):
    with (folder / f"losses.{RANK}").open("a") as file:
        file.write(f"{line}\n")


def train():
    model = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.3), nn.Linear(16, 1))
    if WORLD_SIZE > 1:
        distributed.init_process_group("gloo")
        model = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-2, total_steps=EPOCHS * SAMPLES // BATCH)
    scaler = torch.amp.GradScaler("cpu", growth_interval=5)
    own = torch.Generator().manual_seed(7) if ACCUMULATE > 1 else None
    keep = "KEEP_WORKERS" in os.environ
    workers = 2 // WORLD_SIZE
    loader = DataLoader(Augmented(), BATCH, shuffle=True, num_workers=workers, generator=own, persistent_workers=keep)

    every = os.environ.get("CHECKPOINT_EVERY")
    job = Job(
        model=model,
        optimizer=optimizer,
        scheduler=scheduler,
        scaler=scaler,
        checkpoint_every=int(every) if every else None,
    )
    for epoch in job.epochs(EPOCHS):
        factor = torch.rand(())
        for x, y in job.batches(loader):
            loss = nn.functional.mse_loss(model(x).squeeze(1) * factor, y * random.random() + numpy.random.rand())
            scaler.scale(loss / ACCUMULATE).backward()
            number = job.batches_done + 1
            if number % ACCUMULATE == 0:
                scaler.step(optimizer)
                scaler.update()
                optimizer.zero_grad()
                scheduler.step()
            note(f"{number} {loss.item().hex()}")
            stop_after(number)
        note(f"epoch {epoch} {float(next(model.parameters()).detach().sum()).hex()}")
    if WORLD_SIZE > 1:
        distributed.destroy_process_group()


if __name__ == "__main__":
    train()
