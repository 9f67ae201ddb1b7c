"""Truncated, corrupted and foreign files: a clear error, nothing executed, and the save before is still usable."""

import json
import pickle
import shutil
import sys
from contextlib import suppress

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import save, save_file
from torch.nn.functional import cross_entropy

import tacit
from tacit import methods
from tacit.accounting import EpsilonDelta, Gaussian, Laplace, StudentT, curve, from_json
from tacit.accounting.events import Event
from tacit.errors import CannotResume, TacitError
from tacit.training.folder import RUN, _hash, lost_steps, read_checkpoint, write_checkpoint

N, STEPS = 40, 8
DATA = (torch.randn(N, 3, generator=torch.Generator().manual_seed(0)), torch.arange(N) % 2)
STEP = Gaussian(2.0)


def begun(seed=None):
    torch.manual_seed(0)
    mechanism, sampling = methods.dpsgd(1.0, 2.0), tacit.FullBatch(N)
    settings = {"data": DATA, "mechanism": mechanism, "sampling": sampling, "steps": STEPS, "seed": seed}
    return tacit.PrivateRun(torch.nn.Linear(3, 2), cross_entropy, **settings)


def resumed(folder):
    return tacit.PrivateRun.resume(folder, torch.nn.Linear(3, 2), cross_entropy, data=DATA)


def go(run, steps=STEPS):
    for lot in run:
        if run.step >= steps:
            break
        run.backward(lot)
        with torch.no_grad():
            for parameter in run.model.parameters():
                parameter -= 0.1 * parameter.grad
    return run


def weights(run):
    return torch.cat([parameter.detach().flatten() for parameter in run.model.parameters()])


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    """A run that was saved at steps 2 and 4, and went on to step 5."""
    folder = tmp_path_factory.mktemp("original")
    run = begun()
    for steps in (2, 4):
        go(run, steps).save(folder)
    go(run, 5)
    return folder


@pytest.fixture
def folder(original, tmp_path):
    return shutil.copytree(original, tmp_path / "run")


def spoilt(data, whole: bytes) -> bytes:
    """The content with bytes overwritten, put in, taken out or cut off."""
    place = data.draw(st.integers(0, len(whole) - 1))
    garbage = data.draw(st.binary(min_size=1, max_size=30))
    kinds = {
        "cut": whole[:place],
        "overwritten": whole[:place] + garbage + whole[place + len(garbage) :],
        "longer": whole[:place] + garbage + whole[place:],
        "shorter": whole[:place] + whole[place + len(garbage) :],
    }
    return kinds[data.draw(st.sampled_from(sorted(kinds)))]


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_damaged_save_is_refused_or_says_the_same(folder, original, data):
    whole = (original / "run.safetensors").read_bytes()
    (folder / "run.safetensors").write_bytes(spoilt(data, whole))
    with suppress(CannotResume):
        assert torch.equal(read_checkpoint(folder)["model"]["weight"], read_checkpoint(original)["model"]["weight"])


@pytest.mark.parametrize("place", [0.02, 0.5, 0.999])
def test_one_bit_anywhere_is_noticed_and_the_save_before_is_named(folder, place):
    path = folder / "run.safetensors"
    content = bytearray(path.read_bytes())
    content[int(place * len(content))] ^= 1
    path.write_bytes(content)
    with pytest.raises(CannotResume, match=r"rename .*run\.previous\.safetensors to run\.safetensors"):
        resumed(folder)


def test_the_save_before_is_usable_and_what_came_after_it_is_charged(folder):
    (folder / "run.safetensors").write_bytes(b"nothing")
    with pytest.raises(CannotResume):
        resumed(folder)
    (folder / "run.previous.safetensors").rename(folder / "run.safetensors")
    run = resumed(folder)
    assert run.step == 2
    # Steps 2 to 4 were saved and step 4 was drawn after that: all three are drawn again.
    assert go(run).guarantee().epsilon(1e-5) == pytest.approx(curve(STEP * (STEPS + 3)).epsilon(1e-5))


def test_a_seeded_run_goes_on_from_the_save_before_to_the_same_bits(tmp_path):
    expected = weights(go(begun(seed=3)))
    run = begun(seed=3)
    for steps in (2, 4):
        go(run, steps).save(tmp_path)
    (tmp_path / "run.safetensors").unlink()
    with pytest.raises(CannotResume, match="The previous save still exists"):
        resumed(tmp_path)
    (tmp_path / "run.previous.safetensors").rename(tmp_path / "run.safetensors")
    assert torch.equal(weights(go(resumed(tmp_path))), expected)


class Explosive:
    def __reduce__(self):
        return sys.exit, (99,)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{}",
        pickle.dumps({"model": 1}),
        pickle.dumps(Explosive()),
        save({"weight": torch.zeros(3)}),
        save({"weight": torch.zeros(3)}, metadata={"format": "pt"}),
        save({}, metadata={"tacit": "{}", "sha256": "00"}),
        b"\xff" * 1000,
    ],
    ids=["empty", "json", "pickle", "explosive", "weights", "other program", "wrong hash", "garbage"],
)
def test_a_foreign_file_is_refused_and_nothing_in_it_runs(folder, content):
    (folder / "run.safetensors").write_bytes(content)
    with pytest.raises(CannotResume, match=r"run\.safetensors"):
        resumed(folder)


def test_a_folder_in_place_of_the_save_is_refused(folder):
    (folder / "run.safetensors").unlink()
    (folder / "run.safetensors").mkdir()
    with pytest.raises(CannotResume, match=r"run\.safetensors"):
        resumed(folder)


def forged(folder, tree) -> None:
    """A save with a right hash that tacit did not write."""
    header = json.dumps({"version": 1, "tree": tree})
    metadata = {"tacit": header, "sha256": _hash(header, {})}
    save_file({}, folder / "run.safetensors", metadata=metadata)


TEXTS = st.sampled_from(
    ["dict", "list", "tuple", "stage", "event", "enum", "tensor", "tacit.training.plan:Plan", "os:system"]
)
LEAVES = st.none() | st.booleans() | st.integers(-3, 3) | st.floats(allow_nan=True) | TEXTS
TREES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["$", "class", "settings", "items", "pairs", "at", "json", "value"]), inner)
    ),
    max_leaves=12,
)


@pytest.mark.slow
@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(tree=TREES)
def test_a_forged_save_is_refused(folder, tree):
    forged(folder, tree)
    with pytest.raises(CannotResume):
        read_checkpoint(folder, needs=RUN)


@pytest.mark.parametrize(
    "name",
    [
        "tacit.__main__:main",
        "tacit.nowhere:Thing",
        "tacit.training.run:PrivateRun",
        "subprocess:Popen",
        "tacit:x",
        ":",
        "",
    ],
)
def test_a_forged_save_loads_nothing_but_values(folder, name):
    forged(folder, {"$": "stage", "class": name, "settings": {"$": "dict", "pairs": []}})
    with pytest.raises(CannotResume):
        read_checkpoint(folder)


def test_a_save_of_another_version_is_refused(folder):
    forged(folder, {"$": "dict", "pairs": []})
    with pytest.raises(CannotResume, match="holds no bound_state, events"):
        resumed(folder)


@pytest.mark.parametrize(
    ("name", "odd"),
    [
        *(("plan", "x"), ("events", [(1, 2)]), ("events", {}), ("realised", 3), ("lost", {"$": "no"}), ("lost", [1])),
        *(("forgiven", "x"), ("forgiven", -1), ("ledger", "x"), ("ledger", {"path": 3}), ("micro_batch", "x")),
        *(("seed", "x"), ("torch_random", [1]), ("bound_state", 3), ("post_states", {}), ("model", [])),
    ],
)
def test_a_forged_run_is_refused_by_the_name_of_what_is_wrong(folder, name, odd):
    write_checkpoint(folder, {**read_checkpoint(folder), name: odd})
    with pytest.raises(CannotResume, match=f"holds no run, as its {name} cannot be read"):
        resumed(folder)


@given(st.binary(max_size=200))
def test_a_damaged_journal_is_an_error_or_forgets_no_whole_note(tmp_path_factory, content):
    folder = tmp_path_factory.mktemp("journal")
    note = b'\n{"attempt": "a", "start": 3, "stop": 5}\n'
    (folder / "journal.jsonl").write_bytes(content + note)
    with suppress(CannotResume):
        assert {3, 4} <= set(lost_steps(folder, 0))


@pytest.mark.parametrize(
    "line",
    ['{"attempt": "a", "start": 3, "sto?": 5}', '{"attempt": 7, "start": 3, "stop": 5}', '{"attempt"; "a"}', "[]", "3"],
)
def test_a_note_that_was_changed_is_an_error(tmp_path, line):
    (tmp_path / "journal.jsonl").write_text(f"{line}\n")
    with pytest.raises(CannotResume, match="is damaged"):
        lost_steps(tmp_path, 0)


EVENTS = st.recursive(
    st.sampled_from([Gaussian(1.1), Laplace(2.0), EpsilonDelta(0.5, 1e-6), StudentT(5.0, 2.0, (1.0, 0.5))]),
    lambda inner: (
        st.tuples(inner, st.integers(0, 5)).map(lambda pair: pair[0] * pair[1])
        | st.tuples(inner, inner).map(lambda pair: pair[0] + pair[1])
        | inner.map(lambda event: event.sampled(0.1))
    ),
    max_leaves=5,
)


@given(EVENTS)
def test_every_event_comes_back_from_json_as_it_was(event):
    assert from_json(event.to_json()) == event


@pytest.mark.slow
@settings(max_examples=300)
@given(event=EVENTS, data=st.data())
def test_damaged_events_are_refused_or_events(event, data):
    """Nothing but a sentence of tacit's comes out of a text that is not what `to_json` wrote."""
    text = spoilt(data, event.to_json().encode()).decode(errors="replace")
    with suppress(TacitError):
        assert isinstance(from_json(text), Event)


JSONS = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["version", "event", "inside", "parts", "times", "rate", "multiplier", "adjacency", "density"]
            ),
            inner | st.sampled_from(["gaussian", "repeated", "composed", "sampled", "product_noise", "add_remove", 1]),
        )
    ),
    max_leaves=8,
)


@pytest.mark.slow
@settings(max_examples=300)
@given(JSONS)
def test_any_json_is_an_event_or_refused(value):
    with suppress(TacitError):
        assert isinstance(from_json(json.dumps(value)), Event)
    if isinstance(value, dict):
        with suppress(TacitError):
            assert isinstance(from_json(json.dumps({**value, "version": 1})), Event)


@pytest.mark.parametrize("depth", [400, 5000])
def test_events_nested_beyond_reason_are_refused(depth):
    level = '"event": "repeated", "times": 1, "inside": '
    text = f'{{"version": 1, {level}' + f"{{{level}" * depth + "{}" + "}" * (depth + 1)
    with pytest.raises(TacitError):
        from_json(text)
