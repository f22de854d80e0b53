"""Data sets: samples with names, inputs and labels, from arrays, mapped files, folders, tables, or any iterable.

A sample is a clip of one or more steps: the inputs of a streaming model between two resets.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from tflm.bounded_reading import read_text
from tflm.errors import DataError
from tflm.evaluation.input_files import (
    INPUT_SUFFIXES,
    LABEL_NAMES,
    NUMBERS,
    StoredArray,
    complete_steps,
    count_samples,
    files_in,
    fitted,
    fitted_clip,
    read_rows,
    read_tensor,
    recorded,
    require_room,
    sizes,
    stored_array,
    stored_arrays,
)
from tflm.memory.tensor import TfLiteTensor
from tflm.schema.model import Model

Array = npt.NDArray[Any]
BYTES_OF_A_PART = 4 << 20
SAMPLES_OF_A_PART = 512


class Sample(NamedTuple):
    """One sample: its name, the inputs of each of its steps in order, and a label or None."""

    name: str
    steps: list[list[Array]]
    label: Any = None


class SampleBatch(Protocol):
    """Consecutive samples. A part can be pickled, and contains only their data."""

    def samples(self, tensors: Sequence[TfLiteTensor]) -> Iterator[Sample | DataError]:
        """The samples for these inputs; an unreadable sample is replaced by its error."""


class DataSet(Protocol):
    """A data set, divided into parts.

    Attributes:
        count: number of samples; None for an iterable of unknown length.
        classes: names of the classes, by label; empty if there are none.
    """

    count: int | None
    classes: tuple[str, ...]

    def parts(self, start: int) -> Iterator[tuple[int, SampleBatch]]:
        """Parts from sample `start` on, in order, each with its number of samples."""


@dataclass(frozen=True)
class Arrays:
    """Samples along the first dimension of one array for each input, in memory or mapped from a file.

    Attributes:
        inputs: an array for each input.
        labels: one for each sample, or None.
        path: the file that the only input is mapped from; a part then carries its name instead of the values.
        first: the number of the first sample in the file.
    """

    inputs: tuple[Array, ...]
    labels: Array | None = None
    classes: tuple[str, ...] = ()
    path: str | None = None
    first: int = 0

    @property
    def count(self) -> int:
        """Number of samples."""
        return len(self.inputs[0])

    def parts(self, start: int) -> Iterator[tuple[int, SampleBatch]]:
        """Slices of some megabytes."""
        each = max(1, sum(array[:1].nbytes for array in self.inputs))
        size = max(1, min(BYTES_OF_A_PART // each, SAMPLES_OF_A_PART))
        for begin in range(start, self.count, size):
            count = min(size, self.count - begin)
            yield count, self._slice(begin, count)

    def _slice(self, begin: int, count: int) -> Arrays:
        labels = None if self.labels is None else self.labels[begin : begin + count]
        if self.path is not None:
            inputs: tuple[Array, ...] = (_mapped(self.path, begin, count),)
        else:
            inputs = tuple(array[begin : begin + count] for array in self.inputs)
        return replace(self, inputs=inputs, labels=labels, first=begin)

    def samples(self, tensors: Sequence[TfLiteTensor]) -> Iterator[Sample | DataError]:
        """Each row, reshaped to the input if their shapes differ only in dimensions of 1; see also `fitted_clip`."""
        if len(self.inputs) != len(tensors):
            raise DataError(f"the data has {len(self.inputs)} arrays, but the model has {len(tensors)} inputs")
        held = [_as_held(array, tensor) for array, tensor in zip(self.inputs, tensors)]
        is_unlike = any(ready is None for ready in held)
        for i in range(self.count):
            name = f"sample {self.first + i}"
            try:
                values = [array[i] if ready is None else ready[i] for array, ready in zip(self.inputs, held)]
                steps = fitted_clip(values, tensors, name) if is_unlike else [values]
            except DataError as error:
                yield error
                continue
            yield Sample(name, steps, None if self.labels is None else self.labels[i])

    def __getstate__(self) -> dict[str, Any]:
        state = dict(self.__dict__)
        if self.path is not None:
            state["inputs"] = self.count
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        if isinstance(state["inputs"], int):
            state = {**state, "inputs": (_mapped(state["path"], state["first"], state["inputs"]),)}
        self.__dict__.update(state)


def _mapped(path: str, begin: int, count: int) -> Array:
    """Samples of a `.npy` file, in a separate mapping whose pages are released with it."""
    mapped: Array = np.load(path, mmap_mode="r", allow_pickle=False)[begin : begin + count]
    return mapped


@dataclass(frozen=True)
class Files:
    """A file for each sample: pictures, sound, arrays or numbers, in a folder per class."""

    paths: tuple[str, ...]
    labels: tuple[int, ...] | None = None
    classes: tuple[str, ...] = ()

    @property
    def count(self) -> int:
        """Number of samples."""
        return len(self.paths)

    def parts(self, start: int) -> Iterator[tuple[int, SampleBatch]]:
        """A number of files at a time."""
        size = 64
        for begin in range(start, self.count, size):
            paths = self.paths[begin : begin + size]
            labels = None if self.labels is None else self.labels[begin : begin + size]
            yield len(paths), replace(self, paths=paths, labels=labels)

    def samples(self, tensors: Sequence[TfLiteTensor]) -> Iterator[Sample | DataError]:
        """A clip for each file, with as many steps as the file has values for."""
        if len(tensors) != 1:
            raise DataError(f"a folder of samples needs a model with one input; this one has {len(tensors)}")
        for i, path in enumerate(self.paths):
            try:
                values = read_tensor(Path(path), tensors[0], None)
                steps = [[fitted(step, tensors[0], path)] for step in values]
            except (DataError, OSError) as error:
                yield error if isinstance(error, DataError) else DataError(f"{path}: {error.strerror or error}")
                continue
            yield Sample(path, steps, None if self.labels is None else self.labels[i])


@dataclass(frozen=True)
class Stream:
    """An iterable of samples, numbered from `first` on; a part has a tuple of them."""

    items: Iterable[Any]
    classes: tuple[str, ...] = ()
    first: int = 0

    @property
    def count(self) -> int | None:
        """Number of samples; None if the iterable has no length."""
        return len(self.items) if isinstance(self.items, Sized) else None

    def parts(self, start: int) -> Iterator[tuple[int, SampleBatch]]:
        """A number of items at a time; those before `start` are skipped."""
        items = iter(self.items)
        next(islice(items, start, start), None)
        while part := tuple(islice(items, 64)):
            yield len(part), replace(self, items=part, first=start)
            start += len(part)

    def samples(self, tensors: Sequence[TfLiteTensor]) -> Iterator[Sample | DataError]:
        """Each item: an array, or a sequence with one array per input; or a pair of that and a label."""
        for i, item in enumerate(self.items, self.first):
            name = f"sample {i}"
            inputs, label = item if isinstance(item, tuple) and len(item) == 2 else (item, None)
            arrays = inputs if isinstance(inputs, (list, tuple)) else [inputs]
            if len(arrays) != len(tensors):
                yield DataError(f"{name}: has {len(arrays)} arrays, the model takes {len(tensors)} inputs")
                continue
            try:
                yield Sample(name, fitted_clip(arrays, tensors, name), label)
            except DataError as error:
                yield error


def _as_held(samples: Array, tensor: TfLiteTensor) -> Array | None:
    """Samples with the type and shape of the input, except for dimensions of 1; None if each must be fitted."""
    wanted = tensor.data
    fits = samples.dtype == wanted.dtype and sizes(samples.shape[1:]) == sizes(wanted.shape)
    return samples.reshape(len(samples), *wanted.shape) if fits else None


def data_set(inputs: Any, labels: Any = None, model: Model | None = None) -> DataSet:
    """The data set of a path, an array, several arrays, or an iterable.

    Args:
        model: the model that takes the samples: arrays with the shapes of its inputs are one sample, and arrays with
            the names of its inputs are in their order.

    Raises:
        DataError: the contents of a file do not match its name, or labels do not match the samples.
        OSError: a file can't be read.
    """
    found: Any
    if isinstance(inputs, (str, os.PathLike)):
        found = _from_path(Path(inputs), model)
    elif isinstance(inputs, np.ndarray):
        found = _arrays({"the array": inputs}, model)
    elif isinstance(inputs, (list, tuple)) and inputs and all(isinstance(a, np.ndarray) for a in inputs):
        same = len({len(a) for a in inputs if a.ndim}) == 1 and isinstance(inputs, tuple)
        found = _arrays(dict(enumerate(inputs)), model) if same else Stream(inputs)
    elif hasattr(inputs, "parts"):
        found = inputs
    else:
        found = Stream(inputs)
    chosen: DataSet = found if labels is None else _with_labels(found, labels)
    return chosen


def _arrays(named: Mapping[Any, Array], model: Model | None, path: Path | None = None) -> Arrays:
    """The samples in arrays, which may have the names of the model's inputs.

    Args:
        path: the file that the only array is mapped from.
    """
    main = None if model is None else model.subgraphs[0]
    tensors = [] if main is None else [(main.tensors or [])[index] for index in main.inputs or ()]
    names = [tensor.name or "" for tensor in tensors]
    inputs = tuple(named[name] for name in (names if sorted(names) == sorted(map(str, named)) else named))
    wanted = [tensor.shape or () for tensor in tensors]
    if len(wanted) == len(inputs) and all(count_samples(a.shape, w) == 1 for a, w in zip(inputs, wanted)):
        return Arrays(tuple(np.reshape(a, (1, *w)) for a, w in zip(inputs, wanted)))
    lengths = {name: len(array) for name, array in named.items()}
    if len(set(lengths.values())) > 1:
        raise DataError(f"{path or 'inputs'}: the arrays have different numbers of samples: {lengths}")
    return Arrays(inputs, path=None if path is None or path.suffix.lower() == ".npz" else str(path))


def _from_path(path: Path, model: Model | None) -> Any:
    if path.is_dir():
        return _from_folder(path)
    suffix = path.suffix.lower()
    if suffix == ".npy":
        return _arrays({path.stem: _mapped(str(path), 0, _samples_of(stored_array(path)))}, model, path)
    if suffix == ".npz":
        arrays = stored_arrays(path)
        if steps := recorded(path, "in", arrays):
            return Stream([[each.read() for each in step] for step in complete_steps(path, steps)])
        require_room(path, arrays.values())
        labels = next((arrays.pop(name) for name in LABEL_NAMES if name in arrays), None)
        if not arrays:
            raise DataError(f"{path}: has labels but no array of samples")
        for array in arrays.values():
            _samples_of(array)
        data = _arrays({name: array.read() for name, array in arrays.items()}, model, path)
        return data if labels is None else _with_labels(data, labels.read())
    if suffix == ".csv":
        return _from_table(path)
    if suffix in INPUT_SUFFIXES:
        return Files((str(path),))
    raise DataError(
        f"{path}: data is a .npy, .npz or .csv file, a folder with a folder for each class, or one sample: "
        f"{', '.join(INPUT_SUFFIXES)}"
    )


def _samples_of(stored: StoredArray) -> int:
    if not stored.shape:
        raise DataError(f"{stored.name}: is a single number; samples lie along the first dimension of an array")
    if stored.dtype.kind not in NUMBERS:
        raise DataError(f"{stored.name}: holds {stored.dtype}; samples are arrays of numbers")
    if 0 in stored.shape[1:]:
        raise DataError(f"{stored.name}: has samples of shape {list(stored.shape[1:])}, without values")
    return stored.shape[0]


def _from_folder(folder: Path) -> Files:
    classes = sorted(entry.name for entry in folder.iterdir() if entry.is_dir())
    found = [(path, label) for label, name in enumerate(classes) for path in files_in(folder / name)]
    if found:
        return Files(tuple(str(path) for path, _ in found), tuple(label for _, label in found), tuple(classes))
    paths = files_in(folder)
    if not paths:
        raise DataError(f"{folder}: holds no {', '.join(INPUT_SUFFIXES)} file, nor folders of them")
    return Files(tuple(map(str, paths)))


def _from_table(path: Path) -> Arrays:
    lines = [cells for cells in read_rows(path) if "".join(cells).strip()]
    if not lines:
        raise DataError(f"{path}: is empty")
    names = [cell.strip().lower() for cell in lines[0]]
    has_header = any(_number(cell) is None for cell in names)
    values = array("d")
    for place, line in enumerate(lines[has_header:]):
        row = [number for number in map(_number, line) if number is not None]
        if not len(row) == len(line) == len(names):
            line_number = place + 1 + has_header
            raise DataError(f"{path}, line {line_number}: expected {len(names)} numbers, as in the first line")
        values.extend(row)
    table: Array = np.array(values, np.float64).reshape(-1, len(names))
    column = next((names.index(name) for name in LABEL_NAMES if has_header and name in names), None)
    if column is None:
        return Arrays((_float32(table),))
    data = Arrays((_float32(np.delete(table, column, axis=1)),))
    return replace(data, labels=_classes(table[:, column], str(path)))


def _float32(values: Array) -> Array:
    with np.errstate(over="ignore"):  # to infinity, as when they are written so
        return values.astype(np.float32)


def _classes(labels: Any, name: str) -> Array:
    """The labels as integers of 64 bits.

    Raises:
        DataError: they are not whole numbers, or not one-dimensional.
    """
    values = np.asarray(labels, None)
    if values.ndim != 1 or values.dtype.kind not in "biuf":
        raise DataError(
            f"{name}: labels are whole numbers, one for each sample, not {values.dtype} of {list(values.shape)}"
        )
    with np.errstate(invalid="ignore"):
        converted = values.astype(np.int64)
    wrong = values[converted.astype(values.dtype) != values]
    if wrong.size:
        raise DataError(f"{name}: label {wrong[0]} is not a whole number of 64 bits")
    return converted


def _number(cell: str) -> float | None:
    try:
        return float(cell)
    except ValueError:
        return None


def _with_labels(data: Any, labels: Any) -> Any:
    """The data set with these labels in place of its own: an array, a sequence, or a file of them."""
    if isinstance(labels, (str, os.PathLike)):
        path = Path(labels)
        labels = stored_array(path).read() if path.suffix.lower() == ".npy" else _labels_of_text(path)
        values = _classes(labels, str(path))
    else:
        values = _classes(labels, "labels")
    count = data.count
    if count is None:
        raise DataError("separate labels need a known number of samples; pass pairs of sample and label instead")
    if len(values) != count:
        raise DataError(f"there are {len(values)} labels for {count} samples; each sample needs one")
    if isinstance(data, Stream):
        return Stream([(item, label) for item, label in zip(data.items, values.tolist())], data.classes)
    return replace(data, labels=tuple(values.tolist()) if isinstance(data, Files) else values)


def _labels_of_text(path: Path) -> list[int]:
    cells = read_text(path).replace(",", " ").split()
    try:
        return [int(cell) for cell in cells]
    except ValueError as error:
        raise DataError(f"{path}: labels are whole numbers, one for each sample: {error}") from None
