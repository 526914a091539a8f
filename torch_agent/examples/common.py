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
    parser.add_argument("--pause", type=float, default=0.0, help="seconds of rest per mini-batch")
    parser.add_argument("--movable", action="store_true", help="hand the training over when the agent asks for it")
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


class PlainLoops:
    """What a script without Sanjaya's Job does; that one can be moved to another process in the middle of an epoch."""

    batches_done = 0

    def epochs(self, count):
        yield from range(count)

    def batches(self, batches):
        for batch in batches:
            yield batch
            self.batches_done += 1


def loops(options, **parts):
    """The loops over epochs and batches; --movable is for scripts that an agent has started, which finds the module."""
    if not options.movable:
        return PlainLoops()
    from sanjaya_job import Job

    return Job(**parts)


def train(name, model, batches, loss_of, options):
    """`batches` is iterated over once per epoch; each is an input for `loss_of(model, *batch)`."""
    model = distributed(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.lr)
    job = loops(options, model=model, optimizer=optimizer)
    began = time.time()
    for batch in (batch for _ in job.epochs(options.steps) for batch in job.batches(batches)):
        optimizer.zero_grad()
        loss = loss_of(model, *batch)
        loss.backward()
        optimizer.step()
        time.sleep(options.pause)
        step = job.batches_done + 1
        if step % 50 == 0 or step == options.steps:
            print(f"{name} step {step}/{options.steps} loss {loss.item():.4f}", flush=True)
        if step == options.steps:
            break
    print(f"{name} done: {options.steps} steps in {time.time() - began:.1f} s", flush=True)
    if dist.is_initialized():
        dist.destroy_process_group()
