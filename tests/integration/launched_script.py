"""A training script as users have it: argparse, a raw loop, DistributedDataParallel where its launcher says so."""

import argparse
import os

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=6)
parser.add_argument("--ddp", action="store_true")
parser.add_argument("--local-rank", "--local_rank", type=int, default=0)
options = parser.parse_args()

torch.manual_seed(0)
model = nn.Linear(4, 1)
if options.ddp and "RANK" in os.environ:
    torch.distributed.init_process_group("gloo")
    model = nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(options.steps):
    optimizer.zero_grad()
    loss = (model(torch.ones(8, 4)) - 1.0).square().mean()
    loss.backward()
    optimizer.step()
names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "SLURM_PROCID", "SLURM_LOCALID", "SLURM_NTASKS")
# In one write, because ranks of one launcher have one file for their output.
os.write(1, f"places {' '.join(os.environ.get(name, '-') for name in names)}\n".encode())
if torch.distributed.is_initialized():
    torch.distributed.destroy_process_group()
