"""The gateway's index of requests on SQLite and PostgreSQL: one suite."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import sqlalchemy as sa

from libs.contracts.base import Event, Topic
from libs.contracts.envelope import Envelope, Record
from libs.contracts.gateway import JobCancelRequested
from libs.testing.core_case import arrival
from services.gateway.adapters.keys import PRUNED_AT_ONCE, Found, Keys, KeysAway, KeysTaken
from services.gateway.core.idempotency import Accepted, accepted
from services.projection.adapters.store import Store
from services.projection.core import Rows, apply

pytest_plugins = ["libs.testing.postgres"]

DAY_S = 86_400.0
LOG = "first-event"


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'folder' / 'read_models.db'}"
    return str(request.getfixturevalue("postgres_url"))


@pytest.fixture
def keys(url: str) -> Iterator[Keys]:
    keys = Keys(url)
    assert keys.open(LOG, 0) == 0
    yield keys
    keys.close()


def appended(event: Event, offset: int, event_id: str = "", source: str = "gateway") -> Envelope:
    return Envelope(id=event_id or f"e-{offset}", source=source, time_s=offset * DAY_S, event=event)


def job(offset: int, job_id: str = "") -> Accepted:
    return accepted(appended(arrival(job_id or f"j-{offset}"), offset), offset)


def projected(url: str, envelopes: dict[int, Envelope], log_id: str = LOG) -> Store:
    """The read models of these records, up to the last of them."""
    store = Store(url, "lab")
    store.build()
    assert store.swap()
    rows = Rows(store.live.load)
    for offset, envelope in envelopes.items():
        apply(rows, Record(topic=Topic.CONTROL, partition=0, offset=offset, appended_at_s=0.0, envelope=envelope))
    before = store.live.checkpoint()
    store.live.save(rows, before, replace(before, next_offset=max(envelopes) + 1, log_id=log_id), 0.0)
    return store


def test_what_is_stored_is_found_by_event_and_by_what_arrived(keys: Keys) -> None:
    cancel = accepted(appended(JobCancelRequested(job_id="j-1", requested_by="a"), 2), 2)
    keys.add([job(1), cancel], 3, LOG)
    keys.add([job(1)], 3, LOG)
    found = keys.find(["e-1", "e-2", "e-3"], ["j-1", "j-9"])
    assert (found.accepted, found.arrived) == ({"e-1": job(1), "e-2": cancel}, {"j-1": 1})
    assert found.is_complete
    assert (keys.arrival_of("j-1"), keys.arrival_of("j-9")) == (job(1), None)


def test_an_index_goes_on_where_it_was_and_its_position_does_not_go_back(keys: Keys, url: str) -> None:
    keys.add([job(1)], 7, LOG)
    keys.add([job(2)], 3, LOG)
    newer = Keys(url)
    assert newer.open(LOG, 7) == 7
    assert newer.find(["e-1", "e-2"]).accepted.keys() == {"e-1", "e-2"}
    newer.close()


@pytest.mark.parametrize(("log_id", "end"), [("another-event", 7), ("", 0), (LOG, 6)])
def test_an_index_of_another_log_or_of_a_longer_one_is_dropped(keys: Keys, url: str, log_id: str, end: int) -> None:
    keys.add([job(1)], 7, LOG)
    newer = Keys(url)
    assert newer.open(log_id, end) == 0
    assert newer.find(["e-1"], ["j-1"]) == Found()
    newer.close()


def test_an_older_gateway_can_neither_write_nor_trust_the_index(keys: Keys, url: str) -> None:
    newer = Keys(url)
    newer.open(LOG, 0)
    with pytest.raises(KeysTaken):
        keys.add([job(1)], 9, LOG)
    with pytest.raises(KeysTaken):
        keys.find(["e-1"])
    with pytest.raises(KeysTaken):
        keys.prune(0.0)
    assert newer.open(LOG, 9) == 0
    assert newer.find(["e-1"]).accepted == {}
    newer.close()


def test_an_index_that_has_gone_is_away_and_not_empty(keys: Keys, url: str) -> None:
    engine = sa.create_engine(url)
    with engine.begin() as connection:
        connection.execute(sa.text("DROP TABLE gateway_keys"))
    engine.dispose()
    with pytest.raises(KeysAway):
        keys.find(["e-1"])
    assert keys.open(LOG, 9) == 0
    assert keys.find(["e-1"]).accepted == {}


def test_what_is_older_than_the_window_is_found_in_the_read_models(keys: Keys, url: str) -> None:
    events = {offset: appended(arrival(f"j-{offset}"), offset) for offset in range(1, 5)}
    events[5] = appended(arrival("j-5"), 5, source="sweeps")
    keys.add([job(offset) for offset in range(1, 5)], 6, LOG)
    store = projected(url, events)
    assert not keys.prune(before_s=3 * DAY_S)
    assert [keys.arrival_of(f"j-{offset}") is not None for offset in range(1, 6)] == [False, False, True, True, False]
    found = keys.find(["e-1", "e-3", "e-5", "new"], ["j-1", "j-3", "j-5", "j-6"])
    assert found.accepted == {"e-1": job(1), "e-3": job(3)}, "e-5 is no request of the gateway"
    assert found.arrived == {"j-1": 1, "j-3": 3, "j-5": 5}
    assert found.is_complete
    store.build(anew=True)
    assert store.swap(store.found())
    found = keys.find(["e-1"])
    assert (found.accepted, found.is_complete) == ({}, False), "the read models are being made anew"
    store.close()


def test_nothing_is_forgotten_that_the_read_models_of_this_log_lack(keys: Keys, url: str) -> None:
    keys.add([job(offset) for offset in range(1, 5)], 5, LOG)
    assert not keys.prune(before_s=100 * DAY_S)
    store = projected(url, {2: appended(arrival("j-2"), 2)}, log_id="another-log")
    keys.prune(before_s=100 * DAY_S)
    assert keys.find(["new"], ["j-9"]).read_models_next == 0
    assert all(keys.arrival_of(f"j-{offset}") for offset in range(1, 5))
    store.build(anew=True)
    assert store.swap(store.found())
    store.close()
    projected(url, {2: appended(arrival("j-2"), 2)}).close()
    keys.prune(before_s=100 * DAY_S)
    assert [keys.arrival_of(f"j-{offset}") is not None for offset in range(1, 5)] == [False, False, True, True]


def test_a_long_past_is_forgotten_piece_by_piece(keys: Keys, url: str) -> None:
    last = PRUNED_AT_ONCE + 10
    keys.add([job(offset) for offset in range(last + 1)], last + 1, LOG)
    projected(url, {last: appended(arrival(f"j-{last}"), last)}).close()
    assert keys.prune(before_s=1e12)
    assert keys.arrival_of(f"j-{PRUNED_AT_ONCE - 1}") is None
    assert keys.arrival_of(f"j-{PRUNED_AT_ONCE}") is not None
    assert not keys.prune(before_s=1e12)
    assert keys.arrival_of(f"j-{last}") is None


def test_a_log_that_begins_later_is_complete_with_the_read_models_of_what_was_before(keys: Keys, url: str) -> None:
    keys.add([job(8)], 9, LOG, kept_from=8)
    assert not keys.find(["e-1"]).is_complete
    projected(url, {7: appended(arrival("j-7"), 7)}).close()
    found = keys.find(["e-7", "e-8"])
    assert found.is_complete
    assert found.accepted.keys() == {"e-7", "e-8"}
