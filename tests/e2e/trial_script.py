"""A data-parallel job that fails as it is told to: in a mini-batch, in its validation, or for want of memory.

python trial_script.py none|batch|validation|memory|import [--pause S] [--batches N]
"""

import argparse
import os
import time

import libs.testing.quick_torch  # noqa: F401

# isort: split
import torch
from sanjaya_job import validation
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("fails")
parser.add_argument("--pause", type=float, default=0.0)
parser.add_argument("--batches", type=int, default=8)
arguments = parser.parse_args()
torch.set_num_threads(1)
world = int(os.environ.get("WORLD_SIZE", "1"))
if world > 1:
    torch.distributed.init_process_group("gloo")
if arguments.fails == "memory" and world < 8:
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 96.00 GiB. GPU 0 has a total of 80.00 GiB")

model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
data = TensorDataset(torch.randn(4 * arguments.batches, 4), torch.randn(4 * arguments.batches, 1))
loader, held_out = DataLoader(data, 4), validation(DataLoader(data, 4))
for number, (x, y) in enumerate(loader, start=1):
    optimizer.zero_grad()
    ((model(x) - y) ** 2).mean().backward()
    optimizer.step()
    time.sleep(arguments.pause)
    if arguments.fails == "batch" and number == 2:
        raise ValueError("expected 5 features, found 4")
with torch.no_grad():
    for x, _ in held_out:
        if arguments.fails == "validation":
            model(x)[:, 7]
print("done", flush=True)
