"""Scripts that do what a harness does not expect, by name: `sharing_troubles.py CASE`."""

from __future__ import annotations

import os
import sys

import torch
from torch.utils.data import DataLoader, TensorDataset

MINIBATCHES = 20
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data = TensorDataset(torch.randn(MINIBATCHES * 4, 8))


def train(batches, *, steps=True):
    for (batch,) in batches:
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        if steps:
            optimizer.step()


def patches_the_loader():
    def batches(self):
        yield from ([data.tensors[0][at : at + 4]] for at in range(0, len(data), 4))

    DataLoader.__iter__ = batches
    train(DataLoader(data, batch_size=4))


def never_waits():
    train([[data.tensors[0][at : at + 4]] for at in range(0, len(data), 4)])


def never_steps():
    train(DataLoader(data, batch_size=4), steps=False)


def forks():
    train(DataLoader(data, batch_size=4))
    child = os.fork()
    if not child:
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert status == 0


if __name__ == "__main__":
    globals()[sys.argv[1]]()
