"""A script with the Trainer of Lightning, as its documentation has it: no loop of its own."""

import argparse
import os

import lightning
import torch
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--max_steps", type=int, default=6)
parser.add_argument("--devices", type=int, default=1)
options = parser.parse_args()


class Regression(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def training_step(self, batch, _):
        x, y = batch
        return (self.layer(x) - y).square().mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


lightning.seed_everything(0)
x = torch.rand(64, 4)
trainer = lightning.Trainer(
    accelerator="cpu",
    devices=options.devices,
    strategy="ddp" if options.devices > 1 else "auto",
    max_steps=options.max_steps,
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
)
trainer.fit(Regression(), DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=4))
names = ("RANK", "WORLD_SIZE", "LOCAL_RANK")
os.write(1, f"places {' '.join(os.environ.get(name, '-') for name in names)} {trainer.global_step}\n".encode())
