"""A multi-layer perceptron that reads handwritten digits, with parameters that a sweep may choose.

They are called lr, hidden and weight_decay. After every epoch it reports its loss, and as accuracy which part it reads
right of digits that it has not been trained on.
"""

import argparse
import time

import torch
from digits import digits
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

try:
    from sanjaya_job import parameters, report
except ModuleNotFoundError:  # run by hand: only tasks of an agent find the module

    def parameters():
        return {}

    def report(step, **metrics):
        pass


HELD_OUT = 360
"""Digits that the model is judged by: a fifth."""


def options():
    """A sweep's parameters stand in for the defaults."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--weight-decay", type=float, default=1e-4)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--pause", type=float, default=0.0, help="seconds of rest per mini-batch")
    parser.add_argument("--seed", type=int, default=0)
    parser.set_defaults(**parameters())
    return parser.parse_args()


def train_epoch(model, optimizer, batches, pause_s):
    """The mean loss."""
    total = 0.0
    for images, labels in batches:
        optimizer.zero_grad()
        loss = cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        total += loss.item()
        time.sleep(pause_s)
    return total / len(batches)


def accuracy_of(model, images, labels):
    with torch.no_grad():
        return (model(images).argmax(1) == labels).float().mean().item()


def main():
    chosen = options()
    torch.set_num_threads(1)
    torch.manual_seed(chosen.seed)
    images, labels = digits()
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))  # the same digits in every trial
    held_out, trained_on = order[:HELD_OUT], order[HELD_OUT:]
    batches = DataLoader(TensorDataset(images[trained_on], labels[trained_on]), chosen.batch_size, shuffle=True)
    hidden = int(chosen.hidden)
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, hidden), nn.ReLU(), nn.Linear(hidden, 10))
    optimizer = torch.optim.SGD(model.parameters(), chosen.lr, momentum=0.9, weight_decay=chosen.weight_decay)
    for epoch in range(1, chosen.epochs + 1):
        loss = train_epoch(model, optimizer, batches, chosen.pause)
        accuracy = accuracy_of(model, images[held_out], labels[held_out])
        report(epoch, accuracy=accuracy, loss=loss)
        print(f"epoch {epoch}/{chosen.epochs} loss {loss:.4f} accuracy {accuracy:.4f}", flush=True)


main()
