"""An autoencoder that squeezes handwritten digits through eight numbers."""

from common import arguments, train
from digits import digit_batches
from torch import nn
from torch.nn.functional import mse_loss

options = arguments(__doc__, steps=2500, batch_size=64)
model = nn.Sequential(
    nn.Flatten(), nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 8), nn.Linear(8, 256), nn.ReLU(), nn.Linear(256, 64)
)
train("autoencoder", model, digit_batches(options.batch_size), lambda m, x, y: mse_loss(m(x), x.flatten(1)), options)
