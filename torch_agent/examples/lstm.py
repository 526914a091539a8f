"""An LSTM that learns to continue Python source, character by character."""

from common import arguments, train
from text import text_batches
from torch import nn
from torch.nn.functional import cross_entropy


class Model(nn.Module):
    def __init__(self, width=128):
        super().__init__()
        self.embedding = nn.Embedding(128, 64)
        self.lstm = nn.LSTM(64, width, batch_first=True)
        self.head = nn.Linear(width, 128)

    def forward(self, x):
        return self.head(self.lstm(self.embedding(x))[0])


options = arguments(__doc__, steps=300, batch_size=16)
batches = text_batches(options.batch_size, length=64)
train("lstm", Model(), batches, lambda m, x, y: cross_entropy(m(x).flatten(0, 1), y.flatten()), options)
