"""A small convolutional network that reads handwritten digits."""

from common import arguments, train
from digits import digit_batches
from torch import nn
from torch.nn.functional import cross_entropy

options = arguments(__doc__, steps=300, batch_size=64)
model = nn.Sequential(
    nn.Conv2d(1, 32, 3, padding=1),
    nn.BatchNorm2d(32),
    nn.ReLU(),
    nn.Conv2d(32, 64, 3, padding=1),
    nn.BatchNorm2d(64),
    nn.ReLU(),
    nn.AdaptiveAvgPool2d(2),
    nn.Flatten(),
    nn.Dropout(0.2),
    nn.Linear(256, 10),
)
train("cnn", model, digit_batches(options.batch_size), lambda m, x, y: cross_entropy(m(x.unsqueeze(1)), y), options)
