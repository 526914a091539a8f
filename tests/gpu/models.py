"""The models of the papers' measurements on a GPU, by their layers, and mini-batches of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
RESNET_LAYERS = ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2))
"""Width, blocks and stride of ResNet-50's four stages."""
VGG_WIDTHS = (64, 64, 0, 128, 128, 0, 256, 256, 256, 0, 512, 512, 512, 0, 512, 512, 512, 0)
"""Convolutions of VGG16; 0: the picture is halved."""


class Bottleneck(nn.Module):
    """A block of ResNet-50."""

    def __init__(self, before: int, width: int, stride: int) -> None:
        super().__init__()
        after = 4 * width
        self.path = nn.Sequential(
            nn.Conv2d(before, width, 1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.Conv2d(width, width, 3, stride, 1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.Conv2d(width, after, 1, bias=False),
            nn.BatchNorm2d(after),
        )
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or before != after:
            self.shortcut = nn.Sequential(nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after))

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.path(x) + self.shortcut(x))


def resnet_50() -> nn.Module:
    """25.6 million parameters."""
    layers: list[nn.Module] = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True)]
    layers.append(nn.MaxPool2d(3, 2, 1))
    before = 64
    for width, blocks, stride in RESNET_LAYERS:
        for place in range(blocks):
            layers.append(Bottleneck(before, width, stride if place == 0 else 1))
            before = 4 * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, 1000))


def vgg_16() -> nn.Module:
    """138 million parameters."""
    layers: list[nn.Module] = []
    before = 3
    for width in VGG_WIDTHS:
        if width:
            layers += [nn.Conv2d(before, width, 3, padding=1), nn.ReLU(inplace=True)]
            before = width
        else:
            layers.append(nn.MaxPool2d(2))
    layers += [nn.Flatten(), nn.Linear(512 * 7 * 7, 4096), nn.ReLU(inplace=True), nn.Linear(4096, 4096)]
    return nn.Sequential(*layers, nn.ReLU(inplace=True), nn.Linear(4096, 1000))


def super_resolution() -> nn.Module:
    """Four convolutions and a sub-pixel shuffle: few parameters, large activations."""
    layers: list[nn.Module] = [nn.Conv2d(1, 64, 5, padding=2), nn.ReLU(), nn.Conv2d(64, 64, 3, padding=1), nn.ReLU()]
    layers += [nn.Conv2d(64, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 9, 3, padding=1), nn.PixelShuffle(3)]
    return nn.Sequential(*layers)


@dataclass(frozen=True)
class Kind:
    """A model, and what one record of its mini-batches looks like."""

    make: Callable[[], nn.Module]
    record: tuple[int, ...]


KINDS = {
    "resnet-50": Kind(resnet_50, (3, 224, 224)),
    "vgg-16": Kind(vgg_16, (3, 224, 224)),
    "super-resolution": Kind(super_resolution, (1, 224, 224)),
}


class Training:
    """One model that trains, with momentum, on the same records again and again."""

    def __init__(self, kind: str, batch_size: int, *, seed: int = 0) -> None:
        """On this machine's device."""
        torch.manual_seed(seed)
        self._model = KINDS[kind].make().to(DEVICE)
        self._optimizer = torch.optim.SGD(self._model.parameters(), lr=1e-3, momentum=0.9)
        self._shape = (batch_size, *KINDS[kind].record)
        self._batch = torch.randn(*self._shape, device=DEVICE)

    def forward(self) -> Tensor:
        """Returns the loss."""
        loss: Tensor = self._model(self._batch).float().square().mean()
        return loss

    def minibatch(self) -> Tensor:
        """Forward, back, a step. Returns the loss, which is not waited for."""
        self._optimizer.zero_grad()
        loss = self.forward()
        loss.backward()  # type: ignore[no-untyped-call]
        self._optimizer.step()
        return loss.detach()
