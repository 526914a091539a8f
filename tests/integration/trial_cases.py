"""Scripts that are run as trials of three mini-batches; each says what it has come to."""

import sys

import libs.testing.quick_torch  # noqa: F401

# isort: split
import torch
from sanjaya_job import Job, validation
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
torch.set_num_threads(1)
model = nn.Linear(4, 1)
sgd = torch.optim.SGD(model.parameters(), 0.01)
data = TensorDataset(torch.randn(400, 4), torch.randn(400, 1))


def train(x, y):
    sgd.zero_grad()
    ((model(x) - y) ** 2).mean().backward()
    sgd.step()


def plain():
    for x, y in DataLoader(data, 4):
        train(x, y)
        print("trained")


def workers_and_validation():
    held_out = validation(DataLoader(data, 4, num_workers=1))
    for _ in range(2):
        for x, y in DataLoader(data, 4, num_workers=2):
            train(x, y)
            print("trained")
        for _ in held_out:
            print("validated")
        print("epoch")


def no_loader():
    for _ in range(100):
        train(*data[:4])
        print("trained")


def stubborn():
    for x, y in DataLoader(data, 4):
        try:
            train(x, y)
            print("trained")
        except BaseException:
            print("caught")


def elastic():
    job = Job(elastic=True, model=model, optimizer=sgd)
    held_out = validation(DataLoader(data, 4))
    for _ in job.epochs(2):
        for batch in job.batches(DataLoader(data, 4)):
            sgd.zero_grad()
            for x, y in job.shards(batch):
                ((model(x) - y) ** 2).mean().backward()
            sgd.step()
            print("trained")
        for _ in held_out:
            print("validated")


globals()[sys.argv[1]]()
print("ended")
