"""Inputs of a model from files: arrays, raw bytes, pictures, sound, and numbers as text."""

from __future__ import annotations

import itertools
import math
import wave
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tflm.errors import DataError
from tflm.memory.tensor import TfLiteTensor

Array = npt.NDArray[Any]
Arrays = list[Array]

FILE_KINDS = ".npz, .npy, .png, .jpg, .wav, .csv or raw bytes"
PICTURE_MODES = {1: "L", 3: "RGB", 4: "RGBA"}
"""Pillow's modes, by channels."""
SAMPLE_TYPES = {1: "u1", 2: "<i2", 4: "<i4"}
"""Of the samples of a WAV file, by their bytes."""


def read_given(
    files: Sequence[str], tensors: Sequence[TfLiteTensor], names: Mapping[str, int], real: bool
) -> list[Arrays]:
    """The inputs of each step, from one file for all of them, or one file for each: `NAME=FILE`.

    Args:
        files: as given.
        tensors: the inputs.
        names: what the inputs are called, with their places.
        real: the files hold real values, which each input gets in its own quantization.

    Raises:
        DataError: a file does not fit the model's inputs; or an input is missing, or there twice.
        OSError: a file can't be read.
    """
    by_name: dict[int, list[Array]] = {}
    for file in files:
        name, equals, path = file.partition("=")
        if not equals or (name not in names and Path(file).exists()):
            if len(files) > 1:
                raise DataError(f"{file}: which input is it for? Write one of {_named(names, file)}")
            return read_inputs(Path(file), tensors, names, real)
        if name not in names:
            raise DataError(f"no input is called {name!r}; there are {', '.join(names)}")
        if names[name] in by_name:
            raise DataError(f"input {name!r} is given twice")
        by_name[names[name]] = read_tensor(Path(path), tensors[names[name]], real)
    return _in_steps(by_name, tensors)


def read_inputs(
    path: Path, tensors: Sequence[TfLiteTensor], names: Mapping[str, int] | None = None, real: bool = False
) -> list[Arrays]:
    """The inputs of each step that one file holds: an .npz with `in_<step>_<i>` or the inputs' names, or any other file
    for a single input.

    Raises:
        DataError: the file does not fit the model's inputs.
        OSError: it can't be read.
    """
    if path.suffix.lower() != ".npz":
        if len(tensors) != 1:
            keys = ", ".join(f"in_0_{i}" for i in range(len(tensors)))
            raise DataError(f"{path}: the model has {len(tensors)} inputs; give them in an .npz as {keys}")
        return [[values] for values in read_tensor(path, tensors[0], real)]
    arrays = loaded(path)
    named = {i: arrays[name] for name, i in (names or {}).items() if name in arrays}
    if len(named) == len(tensors):
        return _in_steps({i: [_held(path, tensors[i], array, real)] for i, array in named.items()}, tensors)
    steps = _steps_in(path, recorded(path, "in"), len(tensors))
    return [[_held(path, tensor, array, real) for tensor, array in zip(tensors, step)] for step in steps]


def read_tensor(path: Path, tensor: TfLiteTensor, real: bool) -> list[Array]:
    """The values of one input in each step that a file holds.

    A picture's channels are bytes: for uint8 as they are, for int8 less 128; for floats and as real values they go from
    0 to 1. Samples are numbers of 16 bits, for int8 of 8 bits; for floats and as real values they go from -1 to 1.
    Samples and numbers may go on for several steps.

    Raises:
        DataError: the file does not fit the input.
        OSError: it can't be read.
    """
    readers: dict[str, Callable[[Path, TfLiteTensor, bool], list[Array]]] = {
        ".npy": _npy,
        ".png": _picture,
        ".jpg": _picture,
        ".jpeg": _picture,
        ".wav": _sound,
        ".csv": _numbers,
    }
    return readers.get(path.suffix.lower(), _raw)(path, tensor, real)


def recorded(path: Path, side: str) -> dict[tuple[int, int], Array]:
    """The arrays called `<side>_<step>_<i>` in an .npz, by step and i.

    Raises:
        DataError: it is no .npz, or a name has another form.
        OSError: it can't be read.
    """
    arrays = {}
    for key, values in loaded(path).items():
        kind, _, numbers = key.partition("_")
        if kind != side:
            continue
        step, _, index = numbers.partition("_")
        if not (step.isdecimal() and index.isdecimal()):
            raise DataError(f"{path}: {key!r} should be called {side}_<step>_<i>")
        arrays[int(step), int(index)] = values
    return arrays


def loaded(path: Path) -> Any:
    """What numpy reads from a file: an array, or a dictionary of them.

    Raises:
        DataError: it can't make sense of it.
        OSError: it can't be read.
    """
    try:
        content = np.load(path, allow_pickle=False)
        arrays = dict(content) if isinstance(content, Mapping) else content
    except (ValueError, EOFError, zipfile.BadZipFile) as error:
        raise DataError(f"{path}: is no {path.suffix} file that numpy can read: {error}") from error
    if isinstance(arrays, dict):
        for key, values in arrays.items():
            if not isinstance(values, np.ndarray):  # numpy gives what is no array as bytes
                raise DataError(f"{path}: {key!r} is no array")
    return arrays


def _steps_in(path: Path, arrays: dict[tuple[int, int], Array], count: int) -> list[Arrays]:
    if not arrays:
        raise DataError(
            f"{path}: has no inputs; they are called in_0_0 for the first input of the first step, or as the inputs are"
        )
    steps = 1 + max(step for step, _ in arrays)
    places = ((step, i) for step in range(steps) for i in range(count))
    wanted = set(
        itertools.islice(places, len(arrays) + 1)
    )  # a step's number may be any; one beyond all there are is missing
    for step, i in sorted(wanted - arrays.keys()):
        raise DataError(f"{path}: in_{step}_{i} is missing; the model has {count} inputs for each step")
    for step, i in sorted(arrays.keys() - wanted):
        raise DataError(f"{path}: in_{step}_{i} is too many; the model has {count} inputs")
    return [[arrays[step, i] for i in range(count)] for step in range(steps)]


def _in_steps(by_index: Mapping[int, list[Array]], tensors: Sequence[TfLiteTensor]) -> list[Arrays]:
    for i, tensor in enumerate(tensors):
        if i not in by_index:
            raise DataError(f"input {i} ({tensor.name}) is missing")
    counts = {len(steps) for steps in by_index.values()}
    if len(counts) > 1:
        raise DataError(f"the inputs have different numbers of steps: {', '.join(map(str, sorted(counts)))}")
    return [list(step) for step in zip(*(by_index[i] for i in range(len(tensors))))]


def _named(names: Mapping[str, int], file: str) -> str:
    return ", ".join(f"--inputs {name}={file}" for name in names)


def _held(path: Path, tensor: TfLiteTensor, values: Array, real: bool) -> Array:
    """Values as the tensor holds them: real ones quantized, others as they are."""
    if not real:
        return values
    if values.shape != tensor.data.shape:
        shapes = f"shape {list(tensor.data.shape)}, not {list(values.shape)}"
        raise DataError(f"{path}: input {tensor.name!r} takes {shapes}")
    return tensor.quantized(values)


def _npy(path: Path, tensor: TfLiteTensor, real: bool) -> list[Array]:
    return [_held(path, tensor, loaded(path), real)]


def _raw(path: Path, tensor: TfLiteTensor, real: bool) -> list[Array]:
    wanted, raw = tensor.data, path.read_bytes()
    dtype = np.dtype(np.float32) if real else wanted.dtype
    if len(raw) != wanted.size * dtype.itemsize:
        kind = f"{dtype} of shape {list(wanted.shape)}"
        raise DataError(f"{path}: has {len(raw)} bytes; the input is {kind}, {wanted.size * dtype.itemsize} bytes")
    return [_held(path, tensor, np.frombuffer(raw, dtype).reshape(wanted.shape), real)]


def _picture(path: Path, tensor: TfLiteTensor, real: bool) -> list[Array]:
    try:
        from PIL import Image, UnidentifiedImageError
    except ImportError:
        raise DataError(f"{path}: pictures need Pillow: pip install pillow") from None
    shape = tensor.data.shape
    try:
        with Image.open(path) as image:
            size = image.size
            channels = _channels(shape, size)
            if channels is None:
                takes = f"takes shape {list(shape)}; this picture is {size[0]} wide and {size[1]} high"
                raise DataError(f"{path}: input {tensor.name!r} {takes}")
            pixels = np.asarray(image.convert(PICTURE_MODES[channels]), np.uint8).reshape(shape)
    except UnidentifiedImageError as error:
        raise DataError(f"{path}: {error}") from error
    dtype = tensor.data.dtype
    if real or dtype.kind == "f":
        return [tensor.quantized(pixels.astype(np.float32) / np.float32(255))]
    return [(pixels.astype(np.int16) - 128).astype(dtype) if dtype == np.int8 else pixels.astype(dtype)]


def _channels(shape: tuple[int, ...], size: tuple[int, int]) -> int | None:
    """How many channels a picture of some width and height has as an input of a shape; None where it does not fit."""
    width, height = size
    inner = shape[1:] if shape[:1] == (1,) else shape
    for channels in PICTURE_MODES:
        fitting = [(height, width, channels), (height * width * channels,)]
        if inner in fitting or (channels == 1 and inner == (height, width)):
            return channels
    return None


def _sound(path: Path, tensor: TfLiteTensor, real: bool) -> list[Array]:
    try:
        with wave.open(str(path)) as file:
            width, raw = file.getsampwidth(), file.readframes(file.getnframes())
    except (wave.Error, EOFError) as error:
        raise DataError(f"{path}: is no WAV file of plain samples: {error}") from error
    if width not in SAMPLE_TYPES:
        raise DataError(f"{path}: has samples of {8 * width} bits; 8, 16 or 32 can be read")
    samples = np.frombuffer(raw, SAMPLE_TYPES[width]).astype(np.int64)
    samples = (samples - 128) << 8 if width == 1 else samples >> (8 * (width - 2))  # all as 16 bits
    dtype = tensor.data.dtype
    if real or dtype.kind == "f":
        return [tensor.quantized(step) for step in _split(path, tensor, samples / 32768)]
    return [step.astype(dtype) for step in _split(path, tensor, samples >> 8 if dtype == np.int8 else samples)]


def _numbers(path: Path, tensor: TfLiteTensor, real: bool) -> list[Array]:
    try:
        rows = [line.split(",") for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
        numbers = np.array([float(cell) for row in rows for cell in row if cell.strip()], np.float64)
    except ValueError as error:
        raise DataError(f"{path}: holds something that is no number: {error}") from error
    steps, dtype = _split(path, tensor, numbers), tensor.data.dtype
    if real or dtype.kind == "f":
        return [tensor.quantized(step) for step in steps]
    limits = np.iinfo(np.uint8 if dtype.kind == "b" else dtype)
    wrong = numbers[(numbers != np.trunc(numbers)) | (numbers < limits.min) | (numbers > limits.max)]
    if wrong.size:
        raise DataError(f"{path}: {wrong[0]:g} is no {dtype}; --real takes real values, and quantizes them")
    return [step.astype(dtype) for step in steps]


def _split(path: Path, tensor: TfLiteTensor, values: Array) -> list[Array]:
    """Values one after the other as those of one step after the other."""
    shape = tensor.data.shape
    count = math.prod(shape)
    if not values.size or values.size % count:
        takes = f"takes {count} values in each step (shape {list(shape)})"
        raise DataError(f"{path}: input {tensor.name!r} {takes}; the file has {values.size}")
    return list(values.reshape(-1, *shape))
