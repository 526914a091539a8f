"""Handwritten digits: 1,797 real images of 8 x 8 pixels, bundled with scikit-learn."""

import torch
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset


def digit_batches(batch_size):
    data = load_digits()
    images = torch.tensor(data.images, dtype=torch.float32) / 16.0
    labels = torch.tensor(data.target)
    return DataLoader(TensorDataset(images, labels), batch_size, shuffle=True, drop_last=True)
