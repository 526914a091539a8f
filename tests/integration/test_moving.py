"""The parts of a move, each on its own and within this process."""

from __future__ import annotations

import io
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader
from torch_agent.harness import hooks
from torch_agent.harness.control import ControlReader, ask_to_save, create_control
from torch_agent.harness.gradients import Gradients
from torch_agent.harness.job import Job
from torch_agent.harness.leaving import Leaving
from torch_agent.harness.mover import Mover
from torch_agent.harness.moving.saving import save
from torch_agent.harness.page import Handover, PageWriter
from torch_agent.harness.parking.parking import Parker
from torch_agent.pages import read_page

from tests.integration.test_parking import kinds


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta")
def test_every_kind_of_tensor_is_saved_from_where_it_is_parked():
    tensors = {**kinds(), "conjugated": torch.randn(3, dtype=torch.complex64).conj()}
    expected = {name: tensor.detach().clone() for name, tensor in tensors.items()}
    parker, file = Parker(torch), io.BytesIO()
    parker.park()
    with parker.on_host() as parked:
        save({"nested": [tensors]}, file, parked)
    parker.unpark()
    file.seek(0)
    [found] = torch.load(file, weights_only=False)["nested"]
    for name, tensor in found.items():
        assert type(tensor) is type(tensors[name]) and tensor.layout == tensors[name].layout, name
        assert tensor.stride() == tensors[name].stride() if tensor.layout is torch.strided else True
        assert torch.equal(tensor.detach().to_dense(), expected[name].to_dense()), name
    found["view"].fill_(7.0)
    assert float(found["base"][3, 0]) == float(found["transposed"][0, 3]) == 7.0  # still one memory


class Unsaveable:
    """A job with whatever state it is given."""

    elastic = False

    def __init__(self, state: Any) -> None:
        self._state = state

    def keep(self, state: Any, parked: Any) -> None:
        raise AssertionError("it was not asked to leave")

    def state(self) -> Any:
        if isinstance(self._state, Exception):
            raise self._state
        return self._state

    def restore(self, state: Any) -> None:
        self._state = state


@pytest.mark.parametrize("state", [lambda: None, RuntimeError("not now")])
def test_a_state_that_cannot_be_saved_is_answered_for(state: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    create_control(tmp_path)
    page = PageWriter(str(tmp_path), rank=0, world_size=1)
    job = Unsaveable(state)
    leaving = Leaving()
    leaving.undo()
    mover = Mover(job, ControlReader(str(tmp_path)), page, leaving)
    mover.hold()
    request = ask_to_save(tmp_path)
    mover.save_if_asked(None)
    told = handover(tmp_path)
    assert (told.movable, told.saved, told.save_failed, told.save_fd) == (True, request, True, -1)
    assert "sanjaya: the state of this job cannot be" in capfd.readouterr().err
    mover.let_go()
    job.restore("something else")
    mover.hold()
    ask_to_save(tmp_path)
    mover.save_if_asked(None)
    assert handover(tmp_path).saved == request + 1 and not handover(tmp_path).save_failed
    mover.let_go()


def handover(folder: Path) -> Handover:
    [path] = folder.glob("*.page")
    reading = read_page(path)
    assert reading is not None
    return reading.handover


class Harnessed:
    """Stands in for the harness: nothing asks for anything, and no training is seen."""

    def __init__(self) -> None:
        self.gradients = Gradients()
        self.epochs = None

    def register(self, job: Job, leaving: object) -> bool:
        return False

    def job_boundary(self, number: int, agreed: bool | None) -> None:
        pass


@pytest.fixture
def harnessed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Jobs of this process hook into nothing."""
    monkeypatch.delenv("SANJAYA_CHECKPOINT_DIR", raising=False)
    monkeypatch.setattr(hooks, "_harness", Harnessed())
    yield
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


@pytest.mark.usefixtures("harnessed")
def test_epochs_and_batches_that_are_done_are_not_given_again():
    def batches(job: Job, *, until: int) -> Iterator[tuple[int, int]]:
        for epoch in job.epochs(range(5, 8)):
            order = torch.randperm(100).tolist()
            for batch in job.batches(order):
                if job.batches_done == until:
                    return
                yield epoch, batch

    torch.manual_seed(1)
    expected = list(batches(Job(), until=300))
    torch.manual_seed(1)
    source, destination = Job(), Job()
    seen = list(batches(source, until=142))
    destination.restore(source.state())
    torch.manual_seed(2)
    assert seen + list(batches(destination, until=300)) == expected
    assert destination.batches_done == 300


@pytest.mark.usefixtures("harnessed")
def test_workers_that_outlive_an_epoch_keep_its_order():
    def orders(job: Job, *, until: int) -> Iterator[int]:
        loader = DataLoader(range(12), batch_size=None, shuffle=True, num_workers=1, persistent_workers=True)
        for _ in job.epochs(3):
            for number in job.batches(loader):
                if job.batches_done == until:
                    return
                yield number

    torch.manual_seed(1)
    expected = list(orders(Job(), until=36))
    torch.manual_seed(1)
    source, destination = Job(), Job()
    seen = list(orders(source, until=17))
    destination.restore(source.state())
    assert seen + list(orders(destination, until=36)) == expected


@pytest.mark.usefixtures("harnessed")
def test_what_a_job_cannot_keep_track_of_is_refused():
    with pytest.raises(TypeError, match="rate has no state_dict"):
        Job(rate=0.1)
    job = Job(model=torch.nn.Linear(2, 2))
    for _ in job.epochs(2):
        assert list(job.batches([1, 2])) == [1, 2]
        with pytest.raises(RuntimeError, match="one loop over its batches"):
            next(job.batches([1, 2]))
    with pytest.raises(RuntimeError, match="one loop over its epochs"):
        next(job.epochs(2))
    with pytest.raises(ValueError, match="the state is of"):
        Job(net=torch.nn.Linear(2, 2)).restore(job.state())


@pytest.mark.usefixtures("harnessed")
def test_a_pass_that_has_become_shorter_is_noticed():
    source, destination = Job(), Job()
    for _ in zip(range(5), source.batches(range(10)), strict=False):
        pass
    destination.restore(source.state())
    with pytest.raises(RuntimeError, match="batches of this epoch were done, now there are 3"):
        next(destination.batches(range(3)))
