"""Handwritten digits: 1,797 real images of 8 x 8 pixels, bundled with scikit-learn."""

from importlib.util import find_spec
from pathlib import Path

import numpy
import torch
from torch.utils.data import DataLoader, TensorDataset


def digits():
    """Images with pixels from 0 to 1, and labels."""
    # The file itself: scikit-learn would take longer to be imported than many a job here takes to train.
    file = Path(find_spec("sklearn").origin).parent / "datasets" / "data" / "digits.csv.gz"
    data = torch.tensor(numpy.loadtxt(file, delimiter=",", dtype=numpy.float32))
    return data[:, :-1].reshape(-1, 8, 8) / 16.0, data[:, -1].long()


def digit_batches(batch_size):
    return DataLoader(TensorDataset(*digits()), batch_size, shuffle=True, drop_last=True)
