"""Predict from raw rows with the model of a run: `predict` is what `tacit predict` calls.

Predictions are post-processing of a released model: they cost the training rows nothing.
"""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tacit._files import write_atomic
from tacit.datasets import Data, Form
from tacit.datasets._data import TextForm
from tacit.datasets._own import RawRows, read_raw
from tacit.errors import CannotResume, InvalidArgument, TacitError
from tacit.estimators.by_recipe import score_by_recipe
from tacit.guarantee import Guarantee
from tacit.models import is_own_model
from tacit.recipes.run import read_model, read_weights
from tacit.reports.scores import predict_outputs
from tacit.training.folder import RunFolder
from tacit.workflows.defaults import network_for
from tacit.workflows.linear import NormalisedLinear
from tacit.workflows.progress import show_status
from tacit.workflows.saved import read_settings
from tacit.workflows.settings import FORM, NETWORK, Settings, describe_model
from tacit.workflows.text import Paragraph

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Predictor:
    """The model of a run. It predicts from raw rows, as the user has them: scaling and encoding are part of it.

    `classes_` holds the names of the classes, or None for a model that predicts a number; `guarantee_` what is proven
    about the model. `form` says what raw rows look like.
    """

    form: Form
    classes_: Array | None
    guarantee_: Guarantee
    score_inputs: Callable[[Any], Array]

    def predict(self, data: Any) -> Array:
        """The name of the most likely class of each row, or the expected number in the target's own unit."""
        return self.predict_inputs(read_raw(data, self.form).inputs)

    def predict_proba(self, data: Any) -> Array:
        """[rows, classes]: the probability of each class, in the order of `classes_`."""
        return self._to_probabilities(self.score_inputs(read_raw(data, self.form).inputs))

    def predict_inputs(self, inputs: Any) -> Array:
        """The same as `predict`, from inputs that are scaled already, such as those of `tacit.datasets.load`."""
        return self._to_labels(self.score_inputs(inputs))

    def predict_rows(self, rows: RawRows, *, probabilities: bool = False) -> Predictions:
        """Labels, and probabilities if asked for, with what identifies the rows."""
        scores = self.score_inputs(rows.inputs)
        shares = self._to_probabilities(scores) if probabilities else None
        return Predictions(self._to_labels(scores), self.classes_, shares, rows.ids, rows.notes)

    def _to_labels(self, scores: Array) -> Array:
        if self.classes_ is None:
            numbers = scores[:, 0]
            return numbers if self.form.range is None else self.form.range.unscale(numbers)
        labels: Array = self.classes_[scores.argmax(axis=1)]
        return labels

    def _to_probabilities(self, scores: Array) -> Array:
        if self.classes_ is None:
            raise InvalidArgument("This model predicts a number, so there are no probabilities of classes.")
        shares: Array = torch.softmax(torch.from_numpy(scores), dim=1).numpy()
        return shares


@dataclass(frozen=True, eq=False)
class Predictions:
    """Predicted labels or numbers, one for each row, with probabilities if they were asked for.

    `ids` are the columns that were declared as ignored, to tell rows apart; `notes` say what was not used.
    """

    labels: Array
    classes: Array | None
    probabilities: Array | None
    ids: Mapping[str, list[str]]
    notes: tuple[str, ...] = ()
    path: Path | None = None

    def to_csv(self) -> str:
        """One line per row: identifiers, the prediction, and the probability of each class."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        shares: list[Any] = [] if self.probabilities is None or self.classes is None else self.classes.tolist()
        writer.writerow([*self.ids, "prediction", *(f"probability_{name}" for name in shares)])
        parts: list[list[Any]] = [*self.ids.values(), self.labels.tolist()]
        if self.probabilities is not None:
            parts += [[f"{share:.6g}" for share in column] for column in self.probabilities.T]
        writer.writerows(zip(*parts, strict=True))
        return text.getvalue()

    def write(self, path: str | Path) -> Predictions:
        """Write them as CSV, for the owner only: what is predicted of people is about them."""
        try:
            write_atomic(Path(path), self.to_csv().encode(), is_private=True)
        except OSError as error:
            raise InvalidArgument(f"{path} cannot be written: {error.strerror}. Choose another --out.") from error
        return replace(self, path=Path(path))

    def paragraphs(self) -> list[Paragraph]:
        """How many rows there are of each class, or the range of the numbers, and the file."""
        if self.classes is None:
            lines = [f"From {self.labels.min():.6g} to {self.labels.max():.6g}, mean {self.labels.mean():.6g}."]
        else:
            counts = Counter(self.labels.tolist())
            lines = [f"{name}: {counts[name]:,}" for name in self.classes.tolist() if counts[name]]
        rows = "1 prediction" if len(self.labels) == 1 else f"{len(self.labels):,} predictions"
        files = [] if self.path is None else [f"Written to {self.path}."]
        return [(rows, [*lines, *self.notes, *files])]


def predict(run: str | Path, data: Any, probabilities: bool = False) -> Array:
    """Predict raw rows with the model of a run: class names, or numbers in the target's own unit.

    `run` is the folder of a run, or its model.safetensors. `data` are rows as the user has them: a file, a DataFrame,
    or arrays with the columns in their order. The target may be left out, and is not used. `InvalidArgument` lists
    everything in which the rows differ from what the model takes. With `probabilities`, [rows, classes] in the order of
    `tacit.load(run).classes_`. Costs no privacy: a released model is post-processed.
    """
    model = load(run)
    return model.predict_proba(data) if probabilities else model.predict(data)


def predict_file(
    run: str | Path, data: Any, *, out: str | Path | None = None, probabilities: bool = False
) -> Predictions:
    """What `tacit predict` does: predict the rows of a file and write the predictions to `out`, if that is given."""
    with show_status("Reading the model"):
        model = load(run)
    with show_status("Predicting"):
        found = model.predict_rows(read_raw(data, model.form), probabilities=probabilities)
    return found if out is None else found.write(out)


def load(path: str | Path) -> Predictor:
    """Load the model of any run that tacit made: from its folder, or from its model.safetensors.

    The model predicts from raw rows. A model of one's own (--model FILE:FUNCTION) needs the folder and that file.
    """
    folder, file = _find_file(Path(path))
    about, weights = read_weights(file)
    try:
        settings = read_settings(folder) if RunFolder(folder).settings.is_file() else None
    except CannotResume as error:
        raise InvalidArgument(str(error)) from error
    is_recipe = about.get("recipe", "auto") != "auto"
    if FORM not in about or not (is_recipe or NETWORK in about):
        about = {**_describe_again(file, settings), **about}
    form = Form.from_json(json.loads(about[FORM]))
    if is_recipe:
        saved = read_model(file)

        def score(inputs: Any) -> Array:
            rows = inputs if isinstance(form.inputs, TextForm) else inputs.reshape(len(inputs), -1)
            return score_by_recipe(saved.prepared, saved.model, rows)

        return Predictor(form, _name_classes(form, saved.outputs), saved.guarantee, score)
    return _load_network(file, folder, about, weights, form, settings)


def _find_file(path: Path) -> tuple[Path, Path]:
    """The folder of the run, and the file of its model."""
    if not path.is_dir():
        return path.parent, path
    run = RunFolder(path)
    if not run.model.is_file():
        finished = f"Finish it first: tacit train --resume {path}" if run.settings.is_file() else "It holds no run."
        raise InvalidArgument(f"{path} has no {run.model.name}. {finished}")
    return path, run.model


def _load_network(
    file: Path,
    folder: Path,
    about: Mapping[str, str],
    weights: dict[str, Tensor],
    form: Form,
    settings: Settings | None,
) -> Predictor:
    facts = json.loads(about[NETWORK])
    if facts.get("is_linear"):
        if weights.keys() != {"weight", "bias"}:
            raise InvalidArgument("The saved weights are not those of a linear model.")
        model: torch.nn.Module = NormalisedLinear(weights["weight"], weights["bias"])
    else:
        name = about.get("model", "")
        if is_own_model(name):
            if settings is None:
                raise InvalidArgument(f"{file} holds the weights of {name}. Give the folder of its run instead.")
            name = settings.model
        # Data without examples, for which a network can be made.
        nothing = np.zeros((0, *facts["shape"]), dtype=np.float32), np.zeros(0)
        public: dict[str, Any] = {"population": 1, "scaling": "", "vocabulary": tuple(facts["vocabulary"])}
        model = network_for(name, Data(about.get("data", ""), nothing, nothing, facts["classes"], **public))
    try:
        model.load_state_dict(weights)
    except RuntimeError as error:
        raise InvalidArgument(f"The weights in {file} do not fit the model: {error}") from None
    model.eval()

    def score(inputs: Any) -> Array:
        return predict_outputs(model, np.ascontiguousarray(inputs)).double().numpy()

    try:
        written = about.get("guarantee")
        guarantee = RunFolder(folder).read_guarantee() if written is None else Guarantee.from_json(written)
    except OSError as error:
        raise InvalidArgument(
            f"The guarantee of the model is missing: {error.strerror}. Give the run's folder."
        ) from None
    return Predictor(form, _name_classes(form, facts["classes"]), guarantee, score)


def _name_classes(form: Form, count: int | None) -> Array | None:
    """The names of the classes; their numbers if they have no names."""
    if count is None:
        return None
    return np.arange(count) if form.classes is None else np.array(form.classes)


def _describe_again(file: Path, settings: Settings | None) -> dict[str, str]:
    """What an earlier version did not write beside the weights, from public facts of the run's data."""
    try:
        if settings is None:
            raise InvalidArgument("Give the folder of the run instead.")
        return describe_model(settings.load(), settings)
    except TacitError as error:
        raise InvalidArgument(
            f"{file} was written by an earlier version and does not describe raw rows. The data of the run would, "
            f"but cannot be read: {error}"
        ) from error
