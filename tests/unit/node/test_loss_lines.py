"""Losses in lines of output, by a rule of their user."""

from __future__ import annotations

import pytest

from libs.node.loss_lines import loss_line


@pytest.mark.parametrize(
    ("rule", "line", "found"),
    [
        ("epoch {epoch} loss {loss}", "epoch 3/12 loss 0.4173 accuracy 0.9", (3, 0.4173)),
        ("step {epoch} loss {loss}", "mlp step 50/1500 loss 1.5e-3", (50, 0.0015)),
        ("Epoch: {epoch} val_loss={loss}", "Epoch:   7  loss=0.2 val_loss=-3", (7, -3)),
        ("'loss': {loss} 'epoch': {epoch}", "{'loss': 0.5, 'lr': 1e-05, 'epoch': 1.25}", (1.25, 0.5)),
        ("epoch {epoch} loss {loss}", "epoch ends; epoch 4: loss of nan, loss .5", (4, 0.5)),
        ("epoch {epoch} loss {loss}", "epoch 4 of 12", None),
        ("epoch {epoch} loss {loss}", "loss 0.5 in epoch 4", None),
        ("epoch {epoch} loss {loss}", "", None),
    ],
)
def test_a_rule_finds_the_two_numbers(rule: str, line: str, found: tuple[float, float] | None):
    assert loss_line(rule).read(line) == found


@pytest.mark.parametrize(
    "rule", ["loss {loss}", "epoch {epoch}{loss}", "{epoch} a {loss}", "a {epoch} b {loss} c {x}", ""]
)
def test_a_rule_without_both_numbers_is_refused_with_what_it_has(rule: str):
    with pytest.raises(ValueError, match="expected"):
        loss_line(rule)


def test_a_line_takes_time_in_proportion_to_its_length():
    """A million places at which the rule begins, none at which it goes on: a search that goes back would not end."""
    assert loss_line("a {epoch} a {loss}").read("a " * 1_000_000) is None
