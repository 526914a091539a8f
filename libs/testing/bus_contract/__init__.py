"""What every adapter of the bus must do, as tests.

A test module subclasses `BusContract` and gives it a fixture `log`, an empty `LogUnderTest`. The tests say what
a caller of the port may rely on; offsets may have gaps, so none of them computes one.
"""

from libs.testing.bus_contract.crashes import CrashContract
from libs.testing.bus_contract.interleavings import InterleavingContract
from libs.testing.bus_contract.limits import LimitContract
from libs.testing.bus_contract.log import LAYOUT, LogUnderTest
from libs.testing.bus_contract.messages import MessageContract
from libs.testing.bus_contract.readers import ReaderContract
from libs.testing.bus_contract.removals import RemovalContract
from libs.testing.bus_contract.sessions import SessionContract

__all__ = ["LAYOUT", "BusContract", "LogUnderTest"]


class BusContract(
    MessageContract,
    SessionContract,
    ReaderContract,
    RemovalContract,
    LimitContract,
    CrashContract,
    InterleavingContract,
):
    """The whole contract."""
