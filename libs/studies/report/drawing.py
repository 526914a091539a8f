"""A figure with its words and numbers, and how it becomes a file."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib.figure import Figure

from libs.studies.report.style import MUTED, styled

PNG_DPI = 160


@dataclass(frozen=True)
class Numbers:
    """What a figure shows, as a table."""

    heads: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True)
class Drawing:
    """One figure of a report."""

    name: str
    """Of its files."""
    title: str
    caption: str
    figure: Figure
    numbers: Numbers | None = None

    def alone(self) -> Drawing:
        """The drawing with its title and its caption in the picture itself, for a file that no page surrounds."""
        with styled():
            above = self.figure.get_suptitle()
            title = f"{self.title}: {above}" if above else self.title
            self.figure.suptitle(title, x=0.01, ha="left", fontsize=10.5)
            self.figure.supxlabel(self.caption, x=0.01, ha="left", fontsize=8, color=MUTED)
        return self

    def svg(self) -> bytes:
        """The same figure gives the same bytes."""
        out = io.BytesIO()
        with styled():
            self.figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
        return out.getvalue()

    def png(self) -> bytes:
        """The same figure gives the same bytes."""
        out = io.BytesIO()
        with styled():
            self.figure.savefig(out, format="png", dpi=PNG_DPI, metadata={"Software": None})
        return out.getvalue()

    def write(self, folder: Path) -> list[Path]:
        """Write `NAME.svg` and `NAME.png`."""
        files = [folder / f"{self.name}.svg", folder / f"{self.name}.png"]
        for file, content in zip(files, (self.svg(), self.png()), strict=True):
            file.write_bytes(content)
        return files
