"""A multi-layer perceptron that reads handwritten digits."""

from common import arguments, train
from digits import digit_batches
from torch import nn
from torch.nn.functional import cross_entropy

options = arguments(__doc__, steps=1500, batch_size=64)
model = nn.Sequential(nn.Flatten(), nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))
train("mlp", model, digit_batches(options.batch_size), lambda m, x, y: cross_entropy(m(x), y), options)
