"""A cell from Python: `Client("http://127.0.0.1:8420").submit(command=["python", "train.py"], gpus=1)`."""

from libs.client.client import Client
from libs.client.errors import ApiError, ClientError, Unreachable

__all__ = ["ApiError", "Client", "ClientError", "Unreachable"]
