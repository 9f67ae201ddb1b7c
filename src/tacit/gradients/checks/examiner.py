"""Follows the examples of a lot through every operation that torch runs, down to its kernels.

Each operation is looked up in the list of those that act on each example alone (`operations.py`), and the axis along
which the examples lie is followed from one tensor to the next. What is computed from several examples is marked, and so
is everything made of it, independently of the values: a gate that happens to be closed cannot hide it. Writing
something of the examples into a parameter, a buffer or any other tensor that existed before is refused before it
happens.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterable
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from tacit.errors import MixesExamples
from tacit.gradients.checks.labels import (
    ORDER,
    POSITIONS,
    PUBLIC,
    UNIFORM,
    Label,
    Mixed,
    Operands,
    Operation,
    Rows,
    Stride,
    find_room,
    is_private,
    locate_rows,
)
from tacit.gradients.checks.operations import CONSTANTS, HOST, OPERATIONS, RANDOM
from tacit.gradients.trace import Unclear, iter_tensors

# These read values only to check them, and raise if they are not valid.
_CHECKING = {torch.nn.functional.one_hot}
# Tensors made from numbers by hand are no longer than the first; tensors longer than the second are not compared.
_FEW, _MANY = 64, 4096
_TORCH, _OURS = str(Path(torch.__file__).parent), str(Path(__file__).parent.parent)

# An operation, the numbers that it computed with, and the line of the user's code.
Step = tuple[str, list[Any], str]


class Examiner(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Follows the examples of one lot through everything that torch computes while it is active."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # Compiled layers run eagerly meanwhile; the compiler, which takes a second to load, is not needed.
        return False

    def __init__(self, lot: Iterable[Tensor], size: int, names: dict[int, str]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.size = size
        # By storage: PUBLIC for tensors that were there before, and for everything made of them alone.
        self._labels: dict[int, Label | Stride] = {}
        self._kept: dict[int, int] = {}
        # The type in which a storage is constant: seen as another type, it is not.
        self._types: dict[int, torch.dtype] = {}
        # Storages with random numbers, or with memory that was not initialised.
        self._drawn: set[int] = set()
        self._names = names
        # The function of torch's Python interface that is being run.
        self.calling: object = None
        # The numbers that operations compute with: they must not depend on how many examples there are.
        self.trail: list[Step] = []
        # The sums of public tensors that were made in this pass and met the examples.
        self.values: set[float] = set()
        # Why the pass was stopped: scripted code turns every error into another one.
        self.stopped: Exception | None = None
        # The names of parameters and buffers that were written to, without anything of the examples.
        self.writes: set[str] = set()
        # Whether the pass changes its inputs in place.
        self.writes_lot = False
        self._lot = set[int]()
        for tensor in lot:
            self._label_fresh(tensor, Rows(0))
            self._lot.add(tensor.untyped_storage()._cdata)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        try:
            # Scripted code runs its operations while function modes are still active.
            with torch._C.DisableTorchFunction():
                return self._follow(func, args, kwargs or {})
        except (Unclear, MixesExamples) as reason:
            self.stopped = reason
            raise

    def _follow(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        operation = Operation.of(func)
        given = operation.name_arguments(args, kwargs)
        tensors = [tensor for value in given.values() for tensor in iter_tensors(value)]
        for tensor in tensors:
            if tensor.layout is torch.strided:
                self._keep(tensor)
        labels = {id(tensor): self.label(tensor) for tensor in tensors}
        is_host = operation.name in HOST or (operation.is_sized_by_values and operation.name not in OPERATIONS)
        if is_host and any(map(is_private, labels.values())):
            if self.calling not in _CHECKING:
                raise Unclear(f"{operation.name}{_show_line()} reads values of the examples")
            return func(*args, **kwargs)
        written = [tensor for name in operation.written for tensor in iter_tensors(given.get(name))]
        before = {key: self._labels[key] for key in map(_storage, written) if key in self._labels}
        shapes = [(tensor.shape, _storage(tensor)) for tensor in written]
        # An empty tensor gets its shape from the operation.
        self._write_all(operation, given, labels, [tensor for tensor in written if tensor.numel()])
        try:
            result = func(*args, **kwargs)
        except Exception:
            self._labels |= before
            raise
        if any(
            tensor.shape != shape and _storage(tensor) == key
            for tensor, (shape, key) in zip(written, shapes, strict=True)
        ):
            self._write_all(operation, given, labels, written)
        made = list(iter_tensors(result))
        if any(tensor.layout is not torch.strided for tensor in made) and any(map(is_private, labels.values())):
            raise Unclear(f"{operation.name}{_show_line()} makes a tensor of another layout of the examples")
        if any(map(self._is_fresh, made)):
            for tensor, label in zip(made, self._label_results(operation, given, labels, made), strict=True):
                if self._is_fresh(tensor):
                    self._label_fresh(tensor, label)
        if any(labels[id(tensor)] is UNIFORM or _storage(tensor) in self._drawn for tensor in tensors):
            self._drawn |= set(map(_storage, (*made, *written)))
        if operation.name == "lift_fresh" and result.numel() <= _FEW:
            self.trail.append((operation.name, result.reshape(-1).tolist(), _show_line()))
        self._note(operation, given, tensors)
        return result

    def _write_all(
        self, operation: Operation, given: dict[str, Any], labels: dict[int, Label], written: list[Tensor]
    ) -> None:
        if not written:
            return
        others = {
            _storage(t) for name, value in given.items() if name not in operation.written for t in iter_tensors(value)
        }
        for tensor, label in zip(written, self._label_results(operation, given, labels, written), strict=True):
            # A tensor that is read while it is written is no longer the same for all examples.
            is_torn = not is_private(label) and _storage(tensor) in others
            self._write(tensor, PUBLIC if is_torn else label, operation.name)

    def _note(self, operation: Operation, given: dict[str, Any], tensors: list[Tensor]) -> None:
        """Note the numbers that an operation computes with, including tensors that hold a single public one."""
        known = [(tensor, self.label(tensor)) for tensor in tensors if tensor.layout is torch.strided]
        public = [tensor for tensor, label in known if label is PUBLIC]
        numbers = [*operation.numbers(given), *(tensor.item() for tensor in public if not tensor.dim())]
        if numbers:
            self.trail.append((operation.name, numbers, _show_line()))
        if any(is_private(label) for _, label in known):
            some = [tensor for tensor, label in known if label is POSITIONS and tensor.numel() < self.size]
            # Tensors that were there before are the same for every lot.
            some += [tensor for tensor in public if tensor.dim() and _storage(tensor) in self._labels]
            self.values |= {
                float(tensor.double().sum())
                for tensor in some
                if _storage(tensor) not in self._drawn and tensor.numel() <= _MANY and not tensor.is_complex()
            }

    def label(self, tensor: Tensor) -> Label:
        """The label of a tensor."""
        if not tensor.numel() or tensor.layout is not torch.strided:
            return PUBLIC
        known = self._labels.get(tensor.untyped_storage()._cdata, PUBLIC)
        if isinstance(known, Stride):
            found = locate_rows(tensor, known, self.size)
            if isinstance(found, str):
                return PUBLIC if known.loose else Mixed(f"an operation{_show_line()} {found}", is_order=True)
            return found
        if known is PUBLIC:
            return self._label_expanded(tensor)
        if known is UNIFORM and self._types.get(tensor.untyped_storage()._cdata) is not tensor.dtype:
            return PUBLIC
        return known

    def _label_expanded(self, tensor: Tensor) -> Label:
        """A public tensor that was expanded over the examples is the same for each of them."""
        axes = [
            axis
            for axis, (length, step) in enumerate(zip(tensor.shape, tensor.stride(), strict=True))
            if step == 0 and length > 1 and length % self.size == 0
        ]
        return Rows(axes[0], 1, tensor.shape[axes[0]] // self.size, loose=True) if len(axes) == 1 else PUBLIC

    def _label_results(
        self, operation: Operation, given: dict[str, Any], labels: dict[int, Label], made: list[Tensor]
    ) -> list[Label]:
        name = operation.name
        known = [label for label in labels.values() if label is not PUBLIC]
        if not known:
            if name in RANDOM or name in CONSTANTS:
                return [UNIFORM] * len(made)
            if name == "arange":
                return [POSITIONS if tensor.numel() == self.size else PUBLIC for tensor in made]
            if name == "randperm":
                return [ORDER if tensor.numel() == self.size else PUBLIC for tensor in made]
            if name != "repeat":
                return [PUBLIC] * len(made)
        if name.endswith("_like"):
            # The values of the tensor itself do not matter.
            known = [
                label
                for tensor in iter_tensors(list(given.values()))
                if tensor is not given["self"] and (label := labels[id(tensor)]) is not PUBLIC
            ]
        mixed = next((label for label in known if isinstance(label, Mixed)), None)
        if mixed is not None and name not in CONSTANTS:
            return [mixed] * len(made)
        if name.endswith("_like") or name.startswith("new_"):
            return [UNIFORM] * len(made)
        rule = OPERATIONS.get(name)
        if rule is None:
            if not any(isinstance(label, Rows) and not label.loose for label in known):
                return [PUBLIC] * len(made)
            because = f"{name}{_show_line()} is not on the list of operations that act on each example alone"
            return [Mixed(because, is_order=True)] * len(made)
        found = rule(Operands(name, given, labels, made, self.size))
        each = found if isinstance(found, list) else [found] * len(made)
        return [_add_line(label) for label in each]

    def _is_fresh(self, tensor: Tensor) -> bool:
        """Whether the storage of a result is new: a view shares that of an argument."""
        return tensor.layout is torch.strided and tensor.untyped_storage()._cdata not in self._kept

    def _keep(self, tensor: Tensor) -> int:
        storage = tensor.untyped_storage()
        key: int = storage._cdata
        if key not in self._kept:
            # A weak reference: the address is not reused while it is held, and it shows which storages are kept.
            self._kept[key] = storage._weak_ref()  # type: ignore[assignment]
        return key

    def _label_fresh(self, tensor: Tensor, label: Label) -> None:
        self._labels[self._keep(tensor)] = self._find_stride(tensor, label) if tensor.numel() else label
        self._types[_storage(tensor)] = tensor.dtype

    def _find_stride(self, tensor: Tensor, label: Label) -> Label | Stride:
        """How the examples follow each other in the storage of a tensor, if they do so at equal distances."""
        if not isinstance(label, Rows):
            return label
        stride = Stride.of(tensor, label)
        if stride.bytes and locate_rows(tensor, stride, self.size) == label:
            return stride
        if label.loose:
            return PUBLIC
        return Mixed(f"an operation{_show_line()} puts examples at unequal distances", is_order=True)

    def _write(self, tensor: Tensor, label: Label, name: str) -> None:
        """Note what an operation in place leaves in the storage of a tensor."""
        key = self._keep(tensor)
        self.writes_lot |= key in self._lot
        if key not in self._labels:
            if is_private(label):
                kept = repr(self._names[key]) if key in self._names else "a tensor that was there before"
                raise MixesExamples(
                    f"The forward pass writes something of the examples into {kept} ({name}{_show_line()}), which "
                    "would be released without noise. Leave such statistics out, or compute them on public data and "
                    "keep them fixed."
                )
            self.writes |= {self._names[key]} if key in self._names else set()
            return
        before = self._labels[key]
        after = self._find_stride(tensor, label)
        if _is_whole(tensor):
            self._labels[key] = before if isinstance(before, Mixed) else after
        else:
            self._labels[key] = self._overwrite(tensor, before, after, name)
        self._types[key] = tensor.dtype

    def _overwrite(self, tensor: Tensor, before: Label | Stride, after: Label | Stride, name: str) -> Label | Stride:
        """What a storage holds after a part of it was overwritten."""
        if isinstance(after, Mixed) or isinstance(before, Mixed):
            return after if isinstance(after, Mixed) else before
        if before is UNIFORM:
            return self._find_stride(tensor, find_room(tensor.shape, self.size)) if after is UNIFORM else after
        is_private = any(isinstance(label, Stride) and not label.loose for label in (before, after))
        is_same = isinstance(before, Stride) and isinstance(after, Stride) and before.bytes == after.bytes
        is_everywhere = isinstance(before, Stride) and after is UNIFORM and isinstance(self.label(tensor), Rows)
        if is_same or is_everywhere:
            return Stride(before.bytes, loose=not is_private)  # type: ignore[union-attr]
        if is_private:
            return Mixed(
                f"{name}{_show_line()} writes examples among other values, or over some of them", is_order=True
            )
        return PUBLIC

    def refuse_kept(self, named: Iterable[tuple[str, Tensor]]) -> None:
        """Raise `MixesExamples` if one of these tensors holds something of the examples."""
        for name, tensor in named:
            if is_private(self.label(tensor)):
                raise MixesExamples(
                    f"The forward pass keeps something of the examples in {name!r}, which would be released with the "
                    "model, without noise. Return it, or do not store it."
                )

    def refuse_survivors(self) -> None:
        """Raise `MixesExamples` if a tensor made of the examples outlives the pass."""
        if self._has_survivors():
            gc.collect()
        if self._has_survivors():
            raise MixesExamples(
                "The model or the loss keeps a tensor that was computed from the examples (in a list, a closure or a "
                "global variable), so a later lot could see it. Store nothing of a lot; keep .item() values of public "
                "quantities only."
            )

    def _has_survivors(self) -> bool:
        return any(
            not torch.UntypedStorage._expired(self._kept[key])
            for key, label in self._labels.items()
            if (isinstance(label, Mixed) or (isinstance(label, Stride) and not label.loose)) and key not in self._lot
        )

    def close(self) -> None:
        """Release all storages."""
        for reference in self._kept.values():
            torch.UntypedStorage._free_weak_ref(reference)  # type: ignore[no-untyped-call]
        self._kept.clear()
        self._labels.clear()


def _storage(tensor: Tensor) -> int:
    return int(tensor.untyped_storage()._cdata) if tensor.layout is torch.strided else 0


def _is_whole(tensor: Tensor) -> bool:
    """Whether a tensor covers its whole storage, each number once."""
    expected = 1
    for step, length in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if length > 1 and step != expected:
            return False
        expected *= length
    return tensor.numel() * tensor.element_size() == tensor.untyped_storage().nbytes()


def _add_line(label: Label) -> Label:
    if isinstance(label, Mixed) and not label.because.endswith(")"):
        return Mixed(f"{label.because}{_show_line()}", label.is_order)
    return label


def _show_line() -> str:
    """The line of the user's code that is being run, in parentheses."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        if not name.startswith((_TORCH, _OURS)) and "contextlib" not in name:
            return f" ({Path(name).name}, line {frame.f_lineno})"
        frame = frame.f_back
    return ""


def refuse_different(one: list[Step], other: list[Step]) -> None:
    """Raise if operations on two lots of different sizes computed with different numbers."""
    for (name, numbers, where), (its, its_numbers, _) in zip(one, other, strict=False):
        if name != its or len(numbers) != len(its_numbers):
            raise Unclear(f"{name}{where} depends on how many examples there are")
        if not all(map(_is_equal, numbers, its_numbers)):
            raise MixesExamples(
                f"{name}{where} uses a number that depends on how many examples there are, so an example's gradient "
                "depends on the others. Divide by no number of examples: the sum of all gradients is divided by the "
                "public lot size later."
            )
    if len(one) != len(other):
        raise Unclear("the number of operations depends on how many examples there are")


def _is_equal(one: Any, other: Any) -> bool:
    return bool(one == other) or (one != one and other != other)
