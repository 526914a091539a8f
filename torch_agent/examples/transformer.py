"""A small transformer that learns to continue Python source, character by character."""

import torch
from common import arguments, train
from text import text_batches
from torch import nn
from torch.nn.functional import cross_entropy

LENGTH = 48


class Model(nn.Module):
    def __init__(self, width=64, layers=2):
        super().__init__()
        self.embedding = nn.Embedding(128, width)
        self.position = nn.Parameter(torch.zeros(LENGTH, width))
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.1, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, 128)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(LENGTH))

    def forward(self, x):
        return self.head(self.encoder(self.embedding(x) + self.position, mask=self.mask, is_causal=True))


options = arguments(__doc__, steps=150, batch_size=16)
batches = text_batches(options.batch_size, LENGTH)
train("transformer", Model(), batches, lambda m, x, y: cross_entropy(m(x).flatten(0, 1), y.flatten()), options)
