"""What the example scripts share: arguments, data parallelism as torchrun sets it up, and a plain training loop."""

import argparse
import os
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def arguments(description, steps=300, batch_size=32):
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--steps", type=int, default=steps)
    parser.add_argument("--batch-size", type=int, default=batch_size)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(options.seed + int(os.environ.get("RANK", "0")))
    return options


def distributed(model):
    """The model as it is on one process; wrapped when the environment says that there are more (as torchrun does)."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        return model
    dist.init_process_group("gloo")
    return DistributedDataParallel(model)


def train(name, model, batches, loss_of, options):
    """`batches` is an endless iterator of inputs for `loss_of(model, *batch)`."""
    model = distributed(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.lr)
    began = time.time()
    for step in range(1, options.steps + 1):
        optimizer.zero_grad()
        loss = loss_of(model, *next(batches))
        loss.backward()
        optimizer.step()
        if step % 50 == 0 or step == options.steps:
            print(f"{name} step {step}/{options.steps} loss {loss.item():.4f}", flush=True)
    print(f"{name} done: {options.steps} steps in {time.time() - began:.1f} s", flush=True)
    if dist.is_initialized():
        dist.destroy_process_group()


def forever(loader):
    """Epoch after epoch."""
    while True:
        yield from loader
