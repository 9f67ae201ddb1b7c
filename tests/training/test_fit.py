"""The training loop: every lot once, callbacks after every step, and stopping where a callback says so."""

from contextlib import contextmanager

import pytest
import torch

from support.small_runs import small_run
from tacit.training.fit import fit


@pytest.mark.slow
def test_all_steps_are_made_and_callbacks_see_each_of_them():
    run, seen = small_run(steps=4), []
    optimizer = torch.optim.SGD(run.model.parameters(), lr=0.1)
    assert fit(run, optimizer, [lambda step: seen.append((step.number, step.lot.step))])
    assert seen == [(1, 0), (2, 1), (3, 2), (4, 3)]


def test_the_loop_does_what_a_loop_by_hand_does():
    by_fit, by_hand = small_run(steps=5, seed=3), small_run(steps=5, seed=3)
    with torch.no_grad():
        for ours, theirs in zip(by_fit.model.parameters(), by_hand.model.parameters(), strict=True):
            ours.copy_(theirs)
    fit(by_fit, torch.optim.SGD(by_fit.model.parameters(), lr=0.3))
    optimizer = torch.optim.SGD(by_hand.model.parameters(), lr=0.3)
    for lot in by_hand:
        by_hand.backward(lot)
        optimizer.step()
    for ours, theirs in zip(by_fit.model.parameters(), by_hand.model.parameters(), strict=True):
        assert torch.equal(ours, theirs)


def test_a_callback_that_returns_true_stops_after_its_step_and_every_other_callback_has_seen_it():
    run, seen = small_run(steps=6), []
    optimizer = torch.optim.SGD(run.model.parameters(), lr=0.1)
    assert not fit(run, optimizer, [lambda step: step.number == 2, lambda step: seen.append(step.number)])
    assert (run.step, seen) == (2, [1, 2])
    assert fit(run, optimizer)
    assert run.step == 6


def test_a_callback_that_is_a_context_is_entered_once_and_left_also_after_an_error():
    happened = []

    @contextmanager
    def watch():
        happened.append("in")
        try:
            yield
        finally:
            happened.append("out")

    class Watch:
        def __init__(self):
            self._context = watch()

        def __enter__(self):
            return self._context.__enter__()

        def __exit__(self, *error):
            return self._context.__exit__(*error)

        def __call__(self, step):
            happened.append(step.number)
            if step.number == 2:
                raise RuntimeError("stop")

    run = small_run(steps=4)
    with pytest.raises(RuntimeError, match="stop"):
        fit(run, torch.optim.SGD(run.model.parameters(), lr=0.1), [Watch()])
    assert happened == ["in", 1, 2, "out"]
