"""When the gates of guests may be open outside of the owner's gaps: a ledger of interference.

Mini-batches of the owner with closed gates say what it takes alone, now: a baseline that was frozen would charge the
guests with changes of the owner itself. Each mini-batch earns a part of the baseline; those with open gates pay what
they took longer, as the median of the last three, so that a single outlier costs nothing. Gates open for at most
`grant_s` when the credit covers the cost that is expected.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from libs.coordination.readings import TaskReading
from libs.coordination.settings import Settings
from libs.coordination.state import Ledger

KNOWN_AFTER = 10
"""Mini-batches with closed gates, before which there is no baseline."""
PHASE = 3
"""Mini-batches in a row that make a new phase, and that are looked at where one is suspected."""
NOISE = 5.0
"""In median absolute deviations: what differs by less is no other phase."""
MEMORY = 100.0
"""Mini-batches over which the part of closed ones is counted."""
LEARNING = 0.3
"""Weight of the newest cost."""


def begun(owner: TaskReading) -> Ledger:
    """A ledger that begins with the owner's next mini-batch."""
    return Ledger(minibatches=owner.minibatches, closed_minibatches=owner.closed_minibatches)


def scatter(samples: Sequence[float]) -> float:
    """Median absolute deviation by median; samples of zero seconds do not scatter."""
    middle = median(samples)
    return median([abs(each - middle) for each in samples]) / middle if middle > 0 else 0.0


def is_stable(ledger: Ledger, numbers: Settings) -> bool:
    """Whether the baseline is known, and says something."""
    return len(ledger.baseline) >= KNOWN_AFTER and scatter(ledger.baseline) <= numbers.settle_scatter


def account(
    ledger: Ledger, numbers: Settings, owner: TaskReading, elapsed_s: float, share_ratio: float, *, earns: bool
) -> None:
    """Take in the owner's mini-batches since the last step, during which gates were open with this share.

    Args:
        earns: false while an operator's bounds let no guest compute. They are no savings: guests would spend these at
            once when the bounds are lifted, and cost the owner several times the target meanwhile.
    """
    if share_ratio > 0:
        ledger.open_s += elapsed_s
        ledger.used_s += elapsed_s * share_ratio
    done = owner.minibatches - ledger.minibatches
    closed = min(done, owner.closed_minibatches - ledger.closed_minibatches)
    ledger.minibatches, ledger.closed_minibatches = owner.minibatches, owner.closed_minibatches
    if done < 0 or closed < 0:  # its processes have begun anew
        ledger.baseline, ledger.opened = [], []
        return
    if not done:
        return
    fading = max(0.0, 1.0 - done / MEMORY)
    ledger.recent_closed = ledger.recent_closed * fading + closed
    ledger.recent_open = ledger.recent_open * fading + done - closed
    if closed == done:
        _closed(ledger, numbers, owner.last_minibatch_s, closed)
    elif closed == 0:
        _opened(ledger, owner.last_minibatch_s)
    if earns:
        _earn(ledger, numbers, done)
    if done > closed:
        _charge(ledger, done - closed)


def balance(ledger: Ledger) -> float:
    """Credit without what is reserved for grants that no mini-batch has shown yet."""
    return ledger.credit_s - ledger.reserved_s


def expected_cost_s(ledger: Ledger, numbers: Settings, share_ratio: float) -> float:
    """Of a grant."""
    return ledger.cost_ratio * share_ratio * numbers.grant_s


def decide(ledger: Ledger, numbers: Settings, share_ratio: float, now_s: float) -> bool:
    """Whether gates are open from now until the next step, with this share."""
    if not _allowed(ledger, numbers, share_ratio):
        ledger.open_until_s = None
        return False
    if ledger.open_until_s is not None and now_s + numbers.period_s <= ledger.open_until_s + 1e-9:
        return True
    cost_s = expected_cost_s(ledger, numbers, share_ratio)
    if balance(ledger) < cost_s:
        ledger.open_until_s = None
        return False
    ledger.reserved_s += cost_s
    ledger.open_until_s = now_s + numbers.grant_s
    return True


def _allowed(ledger: Ledger, numbers: Settings, share_ratio: float) -> bool:
    """Whether the owner is steady, enough of its mini-batches are closed, and what is open is paid for."""
    if share_ratio <= 0 or ledger.probes or not is_stable(ledger, numbers) or ledger.credit_s < 0:
        return False
    counted = ledger.recent_open + ledger.recent_closed
    return ledger.recent_closed >= numbers.closed_ratio * counted


def _closed(ledger: Ledger, numbers: Settings, took_s: float, minibatches: int) -> None:
    ledger.probes = max(0, ledger.probes - minibatches)
    if ledger.open_until_s is None:  # mini-batches of earlier grants are accounted for, or were not touched by them
        ledger.reserved_s = ledger.open_s = ledger.used_s = 0.0
    ledger.baseline = [*ledger.baseline, took_s][-numbers.baseline_minibatches :]
    latest, before = ledger.baseline[-PHASE:], ledger.baseline[:-PHASE]
    if len(before) >= KNOWN_AFTER and _is_another_phase(latest, before, numbers):
        ledger.baseline = latest
        ledger.credit_s = ledger.reserved_s = 0.0
        ledger.opened = []


def _is_another_phase(latest: Sequence[float], before: Sequence[float], numbers: Settings) -> bool:
    middle = median(before)
    far = middle * max(numbers.phase_ratio, NOISE * scatter(before))
    return all(each > middle + far for each in latest) or all(each < middle - far for each in latest)


def _opened(ledger: Ledger, took_s: float) -> None:
    ledger.opened = [*ledger.opened, took_s][-PHASE:]
    if len(ledger.baseline) < KNOWN_AFTER:
        return
    middle = median(ledger.baseline)
    if took_s < middle * (1.0 - max(0.05, NOISE * scatter(ledger.baseline))):
        ledger.probes = PHASE  # nothing gets faster beside guests: the owner itself has changed


def _earn(ledger: Ledger, numbers: Settings, minibatches: int) -> None:
    if not ledger.baseline:
        return
    most = max(2 * expected_cost_s(ledger, numbers, 1.0), numbers.interference_target * numbers.credit_s)
    earned = numbers.interference_target * median(ledger.baseline) * minibatches
    ledger.credit_s = min(most, ledger.credit_s + earned)


def _charge(ledger: Ledger, minibatches: int) -> None:
    """Take what mini-batches with open gates have cost, and learn from it what a grant will cost.

    That is never more than the time for which gates were open: what is beyond it, the owner itself has caused.
    """
    open_s, used_s = ledger.open_s, ledger.used_s
    ledger.open_s = ledger.used_s = ledger.reserved_s = 0.0
    if not ledger.opened or len(ledger.baseline) < KNOWN_AFTER:
        return
    excess_s = min(open_s, minibatches * (median(ledger.opened) - median(ledger.baseline)))
    ledger.credit_s -= excess_s
    if used_s > 0:
        ledger.cost_ratio += LEARNING * (max(0.0, excess_s / used_s) - ledger.cost_ratio)
