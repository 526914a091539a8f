"""A whole cell on this machine: which processes it has, and a supervisor that keeps them running."""

from libs.cli.cell.cell import Cell
from libs.cli.cell.errors import CellError
from libs.cli.cell.plan import CellPlan

__all__ = ["Cell", "CellError", "CellPlan"]
