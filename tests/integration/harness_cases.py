"""Small training scripts of every kind, one per name; run in a process of its own with the harness injected."""

import sys

if sys.argv[1] not in ("plain", "compiled"):  # those meet torch as it is
    import libs.testing.quick_torch  # noqa: F401

# isort: split
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
torch.set_num_threads(1)
model = nn.Linear(4, 1)
data = TensorDataset(torch.randn(80, 4), torch.randn(80, 1))
sgd = torch.optim.SGD(model.parameters(), 0.01)


def loss_of(x, y):
    return ((model(x) - y) ** 2).mean()


def plain(optimizer=sgd, forward=loss_of, **loader):
    for x, y in DataLoader(data, 4, **loader):
        optimizer.zero_grad()
        forward(x, y).backward()
        optimizer.step()


def workers_and_evaluation():
    plain(num_workers=2)
    with torch.no_grad():
        for x, y in DataLoader(data, 4):
            loss_of(x, y)


def diverges():
    plain(forward=lambda x, y: loss_of(x, y) * float("nan"))


def accumulation():
    for number, (x, y) in enumerate(DataLoader(data, 4)):
        (loss_of(x, y) / 5).backward()
        if number % 5 == 4:
            sgd.step()
            sgd.zero_grad()


def two_optimizers():
    adam = torch.optim.Adam(model.parameters())
    for x, y in DataLoader(data, 4):
        loss_of(x, y).backward()
        sgd.step()
        adam.step()


def skipped_steps():
    scaler = torch.amp.GradScaler("cpu")
    for number, (x, y) in enumerate(DataLoader(data, 4)):
        sgd.zero_grad()
        loss = loss_of(x, y) * (float("inf") if number % 4 == 3 else 1.0)
        scaler.scale(loss).backward()
        scaler.step(sgd)
        scaler.update()


def closure():
    lbfgs = torch.optim.LBFGS(model.parameters(), max_iter=3)
    for x, y in DataLoader(data, 4):

        def again(x=x, y=y):
            lbfgs.zero_grad()
            loss = loss_of(x, y)
            loss.backward()
            return loss

        lbfgs.step(again)


def compiled():
    fast = torch.compile(model)
    plain(forward=lambda x, y: ((fast(x) - y) ** 2).mean())


def in_backward():
    optimizers = {p: torch.optim.SGD([p], 0.01) for p in model.parameters()}

    def step_at_once(parameter):
        optimizers[parameter].step()
        optimizers[parameter].zero_grad()

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(step_at_once)
    for x, y in DataLoader(data, 4):
        loss_of(x, y).backward()


def no_loader():
    for _ in range(20):
        loss_of(*data[:4]).backward()
        sgd.step()


def leaves_with_seven():
    plain()
    sys.exit(7)


if __name__ == "__main__":
    globals()[sys.argv[1]]()
