"""Read inputs of a model from files: arrays, raw bytes, images, sound, and numbers as text.

Arrays are read from .npy and .npz files headers first, values only after their sizes were checked: a header may claim
any shape, and a member of an archive may be a thousand times larger than the archive. They are then fitted to the
shape, type and quantization of a model's inputs.
"""

from __future__ import annotations

import csv
import io
import itertools
import math
import wave
import zipfile
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from tflm.bounded_reading import read_at_most, read_text, require_regular
from tflm.errors import DataError, TensorError
from tflm.memory.tensor import TfLiteTensor
from tflm.report import short_size

MAX_HEADER_BYTES = 10_000
"""Numpy's size limit for headers of untrusted files, plus the few bytes before the header."""

MAX_ARRAY_BYTES = 1 << 30
"""Maximum bytes read into memory from one file. A data set's .npy file may be larger, because it is memory-mapped."""

HEADERS: dict[tuple[int, int], Callable[..., Any]] = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}
NUMBERS = "biufc"
"""Kinds of element types that a tensor may have."""


@dataclass(frozen=True)
class StoredArray:
    """An array in a file of which only the header was read.

    Attributes:
        path: the file.
        key: its name in an .npz file; empty for a .npy file.
        shape, dtype: from the header.
        opened: opens the stream that starts with the header.
    """

    path: Path
    key: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    opened: Callable[[], IO[bytes]]

    @property
    def name(self) -> str:
        """Its name in messages."""
        return f"{self.path}: {self.key!r}" if self.key else str(self.path)

    @property
    def nbytes(self) -> int:
        """Size of the values in bytes."""
        return math.prod(self.shape) * self.dtype.itemsize

    def read(self) -> Array:
        """The values.

        Raises:
            DataError: they take more than `MAX_ARRAY_BYTES`, or the file is truncated.
            OSError: the file can't be read.
        """
        require_room(self.path, [self])
        with _readable(self.path, self.key), self.opened() as stream:
            values: Array = np.lib.format.read_array(stream, allow_pickle=False)
        return values


def require_room(path: Path, arrays: Iterable[StoredArray]) -> None:
    """Check that arrays may be read into memory together.

    Raises:
        DataError: they take more than `MAX_ARRAY_BYTES`.
    """
    size = sum(array.nbytes for array in arrays)
    if size > MAX_ARRAY_BYTES:
        raise DataError(
            f"{path}: its values take {short_size(size)}; at most {short_size(MAX_ARRAY_BYTES)} are read into memory. "
            "For larger data sets, use tflm evaluate with a .npy file, which is mapped"
        )


def npy_of(array: npt.NDArray[Any]) -> bytes:
    """The contents of a .npy file with an array."""
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def stored_array(path: Path) -> StoredArray:
    """The array of a .npy file.

    Raises:
        DataError: it is a pipe, not a .npy file, or cut off.
        OSError: it can't be read.
    """
    require_regular(path)
    return _stored(path, "", lambda: path.open("rb"), path.stat().st_size)


def stored_arrays(path: Path) -> dict[str, StoredArray]:
    """The arrays of an .npz file, by name.

    Raises:
        DataError: it is a pipe or not an .npz file, or a member is cut off or not an array.
        OSError: it can't be read.
    """
    require_regular(path)
    with _readable(path):
        archive = zipfile.ZipFile(path)
        return {key: found for member in archive.infolist() for key, found in _member(path, archive, member)}


def _member(path: Path, archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> Iterator[tuple[str, StoredArray]]:
    key = member.filename.removesuffix(".npy")
    if key == member.filename:
        raise DataError(f"{path}: {key!r} is not an array")
    yield key, _stored(path, key, lambda: archive.open(member), member.file_size)


def _stored(path: Path, key: str, opened: Callable[[], IO[bytes]], size: int) -> StoredArray:
    with _readable(path, key), opened() as stream:
        head = io.BytesIO(stream.read(MAX_HEADER_BYTES + 64))
        version = np.lib.format.read_magic(head)
        if version not in HEADERS:
            raise ValueError(f"version {version} of the format holds records")
        shape, _, dtype = HEADERS[version](head, max_header_size=MAX_HEADER_BYTES)
        if dtype.hasobject or any(type(size) is not int or size < 0 for size in shape):  # True is an int, too
            raise ValueError(f"it holds {dtype} of shape {list(shape)}")
    found, there = StoredArray(path, key, shape, dtype, opened), max(size - head.tell(), 0)
    if found.nbytes > there:
        what = f"{dtype} of shape {list(shape)}, {found.nbytes:,} bytes"
        raise DataError(f"{found.name}: is truncated: its header says {what}; found {there:,}")
    return found


@contextmanager
def _readable(path: Path, key: str = "") -> Iterator[None]:
    """Convert the errors of numpy, zipfile and the decompressors about invalid bytes to `DataError`."""
    try:
        yield
    except DataError:
        raise
    except Exception as error:
        if isinstance(error, OSError) and error.filename is not None:
            raise
        what = f"{key!r} is not an array" if key else f"is not a {path.suffix} file"
        raise DataError(f"{path}: {what} that numpy can read: {error or type(error).__name__}") from error


Array = npt.NDArray[Any]
Arrays = list[Array]
T = TypeVar("T")

FILE_KINDS = ".npz, .npy, .png, .jpg, .wav, .csv or raw bytes"
INPUT_SUFFIXES = (".png", ".jpg", ".jpeg", ".wav", ".npy", ".csv")
LABEL_NAMES = ("labels", "label", "y")
MAX_STEPS = 1_000_000
"""Maximum number of samples of an array that are run in one call; a data set may have more."""
MAX_SOUND_BYTES = 128 << 20
"""An hour of samples of 16 bits at 16 kHz."""
PICTURE_MODES = {1: "L", 3: "RGB", 4: "RGBA"}
"""Pillow's modes, by channels."""
PICTURE_FORMATS = ("PNG", "JPEG")
"""Formats that Pillow may open; others run programs or read other files."""
SAMPLE_TYPES = {1: "u1", 2: "<i2", 4: "<i4"}
"""Dtypes of a WAV file's samples, by bytes per sample."""


def read_given(
    files: Sequence[str], tensors: Sequence[TfLiteTensor], names: Mapping[str, int], real: bool | None
) -> list[Arrays]:
    """Read the inputs of each step from one file for all inputs, or one file per input: `NAME=FILE`.

    Args:
        files: as given.
        tensors: the inputs.
        names: the inputs' names, with their indices.
        real: the files hold real values, to be quantized for each input; None if only floats and text do.

    Raises:
        DataError: a file does not fit the model's inputs, or an input is missing or duplicate.
        OSError: a file can't be read.
    """
    by_name: dict[int, list[Array]] = {}
    for file in files:
        name, equals, path = file.partition("=")
        if not equals or (name not in names and Path(file).exists()):
            if len(files) > 1:
                raise DataError(f"{file}: the model has several inputs; use one of {_named(names, file)}")
            return read_inputs(Path(file), tensors, names, real)
        if name not in names:
            raise DataError(f"unknown input {name!r} (available: {', '.join(names)})")
        if names[name] in by_name:
            raise DataError(f"input {name!r} is given twice")
        by_name[names[name]] = read_tensor(Path(path), tensors[names[name]], real)
    return _in_steps(by_name, tensors)


def read_inputs(
    path: Path, tensors: Sequence[TfLiteTensor], names: Mapping[str, int] | None = None, real: bool | None = False
) -> list[Arrays]:
    """Read the inputs of each step from a file: an .npz with `in_<step>_<i>`, input names or an array for each input.

    A folder or any other file holds the steps of a single input. Arrays hold one sample or several, as
    `count_samples` says.

    Raises:
        DataError: the file does not fit the model's inputs, or the folder holds no file.
        OSError: it can't be read.
    """
    if path.suffix.lower() != ".npz":
        if len(tensors) != 1:
            keys = ", ".join(f"in_0_{i}" for i in range(len(tensors)))
            raise DataError(f"{path}: the model has {len(tensors)} inputs; give them in an .npz as {keys}")
        files = files_in(path) if path.is_dir() else [path]
        if not files:
            raise DataError(f"{path}: holds no {', '.join(INPUT_SUFFIXES)} file")
        return [[values] for file in files for values in read_tensor(file, tensors[0], real)]
    arrays = stored_arrays(path)
    if found := recorded(path, "in", arrays):
        steps = complete_steps(path, found, len(tensors))
        require_room(path, (stored for step in steps for stored in step))
        return [[_one(stored, tensor, real) for stored, tensor in zip(step, tensors)] for step in steps]
    places = {i: arrays[name] for name, i in (names or {}).items() if name in arrays}
    if len(places) != len(tensors):
        places = dict(enumerate(stored for name, stored in arrays.items() if name not in LABEL_NAMES))
    if len(places) != len(tensors):
        keys = f"in_0_0 for the first input of the first step, or one of: {', '.join(names or ())}"
        raise DataError(
            f"{path}: has {len(places)} arrays, but the model has {len(tensors)} inputs; its keys are {keys}"
        )
    require_room(path, places.values())
    return _in_steps({i: _held(stored, tensors[i], real) for i, stored in places.items()}, tensors)


def files_in(folder: Path) -> list[Path]:
    """The files of samples in a folder, in order.

    Raises:
        OSError: it can't be read.
    """
    return sorted(path for path in folder.iterdir() if path.suffix.lower() in INPUT_SUFFIXES and path.is_file())


def read_tensor(path: Path, tensor: TfLiteTensor, real: bool | None) -> list[Array]:
    """Read the values of one input in each step from a file.

    A picture's channels are bytes: unchanged for uint8, less 128 for int8; as floats and real values they range from 0
    to 1. Sound samples have 16 bits, or 8 for int8; as floats and real values they range from -1 to 1. Sound and
    numbers may span several steps.

    Raises:
        DataError: the file does not fit the input.
        OSError: it can't be read.
    """
    readers: dict[str, Callable[[Path, TfLiteTensor, bool | None], list[Array]]] = {
        ".npy": _npy,
        ".png": _picture,
        ".jpg": _picture,
        ".jpeg": _picture,
        ".wav": _sound,
        ".csv": _numbers,
    }
    return readers.get(path.suffix.lower(), _raw)(path, tensor, real)


def read_rows(path: Path) -> list[list[str]]:
    """The cells of each line of a CSV file.

    Raises:
        DataError: it is too large, or is not CSV.
        OSError: it can't be read.
    """
    try:
        return list(csv.reader(read_text(path).splitlines()))
    except csv.Error as error:
        raise DataError(f"{path}: is not a CSV file: {error}") from error


def recorded(
    path: Path, side: str, arrays: Mapping[str, StoredArray] | None = None
) -> dict[tuple[int, int], StoredArray]:
    """The arrays called `<side>_<step>_<i>` in an .npz, by step and i.

    Args:
        arrays: the file's arrays, if already read.

    Raises:
        DataError: it is not an .npz, or a name has another form.
        OSError: it can't be read.
    """
    found = {}
    for key, stored in (stored_arrays(path) if arrays is None else arrays).items():
        kind, _, numbers = key.partition("_")
        if kind != side:
            continue
        step, _, index = numbers.partition("_")
        if not (step.isdecimal() and index.isdecimal()):
            raise DataError(f"{path}: {key!r} should be called {side}_<step>_<i>")
        found[int(step), int(index)] = stored
    return found


def complete_steps(
    path: Path, arrays: dict[tuple[int, int], StoredArray], count: int | None = None
) -> list[list[StoredArray]]:
    """The recorded inputs of each step.

    Args:
        count: number of the model's inputs; by default, as many as the first step has.

    Raises:
        DataError: an input is missing, or there are too many.
    """
    count = sum(step == 0 for step, _ in arrays) if count is None else count
    steps = 1 + max(step for step, _ in arrays)
    places = ((step, i) for step in range(steps) for i in range(count))
    wanted = set(
        itertools.islice(places, len(arrays) + 1)
    )  # step numbers come from the file; any number may be missing
    for step, i in sorted(wanted - arrays.keys()):
        raise DataError(f"{path}: in_{step}_{i} is missing; the model has {count} inputs for each step")
    for step, i in sorted(arrays.keys() - wanted):
        raise DataError(f"{path}: in_{step}_{i} is too many; the model has {count} inputs")
    return [[arrays[step, i] for i in range(count)] for step in range(steps)]


def _in_steps(by_index: Mapping[int, list[T]], tensors: Sequence[TfLiteTensor]) -> list[list[T]]:
    for i, tensor in enumerate(tensors):
        if i not in by_index:
            raise DataError(f"input {i} ({tensor.name}) is missing")
    counts = {len(steps) for steps in by_index.values()}
    if len(counts) > 1:
        raise DataError(f"the inputs have different numbers of steps: {', '.join(map(str, sorted(counts)))}")
    return [list(step) for step in zip(*(by_index[i] for i in range(len(tensors))))]


def _named(names: Mapping[str, int], file: str) -> str:
    return ", ".join(f"--inputs {name}={file}" for name in names)


def _held(stored: StoredArray, tensor: TfLiteTensor, real: bool | None) -> list[Array]:
    """Read the samples of a stored array for an input, after checking that they fit; with `real`, all are quantized."""
    count = require_samples(stored.shape, tensor, stored.name)
    if not 0 < count <= MAX_STEPS:
        raise DataError(f"{stored.name}: has {count:,} samples; from 1 to {MAX_STEPS:,} are run at once")
    values = stored.read().reshape(count, *tensor.data.shape)
    return [_quantized(each, tensor, stored.name) if real else fitted(each, tensor, stored.name) for each in values]


def _one(stored: StoredArray, tensor: TfLiteTensor, real: bool | None) -> Array:
    steps = _held(stored, tensor, real)
    if len(steps) != 1:
        raise DataError(f"{stored.name}: holds {len(steps)} samples; the key stands for one step")
    return steps[0]


def _npy(path: Path, tensor: TfLiteTensor, real: bool | None) -> list[Array]:
    return _held(stored_array(path), tensor, real)


def _raw(path: Path, tensor: TfLiteTensor, real: bool | None) -> list[Array]:
    wanted, dtype = tensor.data, np.dtype(np.float32) if real else tensor.data.dtype
    size = wanted.size * dtype.itemsize
    with path.open("rb") as file:
        raw = file.read(size + 1)
    if len(raw) != size:
        there = f"more than {size}" if len(raw) > path.stat().st_size else max(len(raw), path.stat().st_size)
        raise DataError(f"{path}: has {there} bytes; the input is {dtype} of shape {list(wanted.shape)}, {size} bytes")
    values = np.frombuffer(raw, dtype).reshape(wanted.shape)
    return [_quantized(values, tensor, path) if real else values]


def _picture(path: Path, tensor: TfLiteTensor, real: bool | None) -> list[Array]:
    try:
        from PIL import Image
    except ImportError:
        raise DataError(f"{path}: pictures need Pillow: pip install pillow") from None
    shape = tensor.data.shape
    try:
        with Image.open(path, formats=PICTURE_FORMATS) as image:
            size = image.size
            channels = _channels(shape, size)
            if channels is None:
                takes = f"takes shape {list(shape)}; this picture is {size[0]} wide and {size[1]} high"
                raise DataError(f"{path}: input {tensor.name!r} {takes}")
            pixels = np.asarray(image.convert(PICTURE_MODES[channels]), np.uint8).reshape(shape)
    except DataError:
        raise
    except Exception as error:  # decoders of Pillow raise various ones
        if isinstance(error, OSError) and error.filename is not None:
            raise
        raise DataError(f"{path}: is not a complete PNG or JPEG picture: {error}") from error
    dtype = tensor.data.dtype
    if real or dtype.kind == "f":
        return [_quantized(pixels.astype(np.float32) / np.float32(255), tensor, path)]
    return [(pixels.astype(np.int16) - 128).astype(dtype) if dtype == np.int8 else pixels.astype(dtype)]


def _channels(shape: tuple[int, ...], size: tuple[int, int]) -> int | None:
    """Number of channels of a picture as an input of this shape; None if it does not fit."""
    width, height = size
    inner = shape[1:] if shape[:1] == (1,) else shape
    for channels in PICTURE_MODES:
        fitting = [(height, width, channels), (height * width * channels,)]
        if inner in fitting or (channels == 1 and inner == (height, width)):
            return channels
    return None


def _sound(path: Path, tensor: TfLiteTensor, real: bool | None) -> list[Array]:
    samples, dtype = read_sound(path), tensor.data.dtype
    if real or dtype.kind == "f":
        return [_quantized(step, tensor, path) for step in _split(path, tensor, samples / 32768)]
    return [step.astype(dtype) for step in _split(path, tensor, samples >> 8 if dtype == np.int8 else samples)]


def read_sound(path: Path) -> npt.NDArray[np.int32]:
    """The samples of a WAV file as numbers of 16 bits.

    Raises:
        DataError: it is not a WAV file of 8, 16 or 32 bits.
        OSError: it can't be read.
    """
    content = io.BytesIO(read_at_most(path, MAX_SOUND_BYTES))
    try:
        with wave.open(content) as file:
            width, raw = file.getsampwidth(), file.readframes(file.getnframes())
    except (wave.Error, EOFError, RuntimeError, ValueError) as error:  # of wave, and of its chunks
        raise DataError(f"{path}: is not a WAV file of plain samples: {error}") from error
    if width not in SAMPLE_TYPES:
        raise DataError(f"{path}: has samples of {8 * width} bits; 8, 16 or 32 can be read")
    samples = np.frombuffer(raw[: len(raw) // width * width], SAMPLE_TYPES[width]).astype(np.int32)
    return (samples - 128) << 8 if width == 1 else samples >> (8 * (width - 2))


def _numbers(path: Path, tensor: TfLiteTensor, real: bool | None) -> list[Array]:
    values = array("d")
    try:
        for cells in read_rows(path):
            values.extend(float(cell) for cell in cells if cell.strip())
    except ValueError as error:
        raise DataError(f"{path}: invalid number: {error}") from error
    numbers: Array = np.array(values, np.float64)
    steps, dtype = _split(path, tensor, numbers), tensor.data.dtype
    if real is not False or dtype.kind == "f":
        return [_quantized(step, tensor, path) for step in steps]
    limits = np.iinfo(np.uint8 if dtype.kind == "b" else dtype)
    wrong = numbers[(numbers != np.trunc(numbers)) | (numbers < limits.min) | (numbers > limits.max)]
    if wrong.size:
        raise DataError(f"{path}: {wrong[0]:g} is not a valid {dtype}; --real takes real values, and quantizes them")
    return [step.astype(dtype) for step in steps]


def _split(path: Path, tensor: TfLiteTensor, values: Array) -> list[Array]:
    """Split a sequence of values into steps."""
    shape = tensor.data.shape
    count = math.prod(shape)
    if not values.size or values.size % count:
        takes = f"takes {count} values in each step (shape {list(shape)})"
        raise DataError(f"{path}: input {tensor.name!r} {takes}; the file has {values.size}")
    return list(values.reshape(-1, *shape))


def count_samples(shape: Sequence[int], wanted: Sequence[int]) -> int | None:
    """Number of samples in an array of this shape, for an input of the wanted shape; None if it fits neither way.

    An array with the input's shape is one sample. One with another dimension before it holds a sample at each index of
    that. Dimensions of 1 do not count, so that an input's own batch of 1 may become the number of samples.
    """
    if sizes(shape) == sizes(wanted):
        return 1
    return shape[0] if shape and sizes(shape[1:]) == sizes(wanted) else None


def require_samples(shape: Sequence[int], tensor: TfLiteTensor, name: str) -> int:
    """Number of samples in an array of this shape.

    Raises:
        DataError: it fits neither one sample nor several; the message names it and says what the input expects.
    """
    wanted = list(tensor.data.shape)
    count = count_samples(shape, wanted)
    if count is None:
        several = [*(["N"] if wanted[:1] == [1] else ["N", *wanted[:1]]), *wanted[1:]]
        takes = f"takes shape {wanted}, or [{', '.join(map(str, several))}] for N samples, not {list(shape)}"
        raise DataError(f"{name}: input {tensor.name!r} {takes}")
    return count


def sizes(shape: Sequence[int]) -> tuple[int, ...]:
    """The dimensions other than 1."""
    return tuple(size for size in shape if size != 1)


class Units(NamedTuple):
    """Quantization of a model's input: an integer represents (integer - zero_point) * scale."""

    dtype: np.dtype[Any]
    scale: float
    zero_point: int


class ReferenceInput(TfLiteTensor):
    """A float input of a reference, which is given the integers of another model's input."""

    def __init__(self, tensor: TfLiteTensor, units: Units):
        self.__dict__.update(tensor.__dict__)
        self.units = units

    def real(self, integers: Array) -> Array:
        """The real values that integers represent."""
        return ((integers.astype(np.float64) - self.units.zero_point) * self.units.scale).astype(self.data.dtype)


def units_of(inputs: Sequence[TfLiteTensor]) -> tuple[Units, ...]:
    """Quantization of the model's inputs."""
    return tuple(Units(each.data.dtype, each.scale or 1.0, each.zero_point) for each in inputs)


class ClipInput(TfLiteTensor):
    """An input of a model that keeps state: an array may hold what it takes in several invokes, one after the other."""

    def __init__(self, tensor: TfLiteTensor):
        self.__dict__.update(tensor.__dict__)


def fitted_clip(arrays: Sequence[Array], tensors: Sequence[TfLiteTensor], name: str) -> list[list[Array]]:
    """The inputs of each invoke for a sample of one array for each input.

    An array of one invoke is given in all of them.

    Raises:
        DataError: as for `fitted`, or the arrays are for different numbers of invokes.
    """
    inputs = [
        [fitted(part, tensor, name) for part in _invokes(np.asarray(values, None), tensor)]
        for values, tensor in zip(arrays, tensors)
    ]
    counts = {len(parts) for parts in inputs if len(parts) > 1}
    if len(counts) > 1:
        raise DataError(f"{name}: its arrays are for different numbers of invokes: {sorted(counts)}")
    return [[parts[step % len(parts)] for parts in inputs] for step in range(max(counts, default=1))]


def _invokes(values: Array, tensor: TfLiteTensor) -> list[Array]:
    """The parts of an array that invokes take; zeros come before it if it does not fill the first."""
    wanted = tensor.data.shape
    shape = (1,) * (len(wanted) - values.ndim) + values.shape
    longer = [axis for axis, (have, want) in enumerate(zip(shape, wanted)) if have != want]
    if not isinstance(tensor, ClipInput) or len(shape) != len(wanted) or len(longer) != 1:
        return [values]
    (axis,) = longer
    count = -(-shape[axis] // wanted[axis])
    before = [(0, 0)] * len(shape)
    before[axis] = count * wanted[axis] - shape[axis], 0
    zero = tensor.zero_point if values.dtype == tensor.data.dtype and tensor.scale else 0
    return np.split(np.pad(values.reshape(shape), before, constant_values=zero), count, axis)


def fitted(values: Array, tensor: TfLiteTensor, name: str) -> Array:
    """Values in the shape and type of the input; real values are quantized.

    Raises:
        DataError: they don't fit; the message names the sample and says what the input expects.
    """
    wanted = tensor.data
    if sizes(values.shape) != sizes(wanted.shape):
        takes = f"takes shape {list(wanted.shape)}"
        raise DataError(f"{name}: has shape {list(values.shape)}; input {tensor.name!r} {takes}")
    values = values.reshape(wanted.shape)
    if values.dtype == wanted.dtype:
        return values
    if values.dtype.kind == "f":
        return _quantized(values, tensor, name)
    if isinstance(tensor, ReferenceInput) and wanted.dtype.kind == "f" and tensor.units.dtype.kind in "iu":
        return tensor.real(_cast(values, tensor.units.dtype, tensor, name))
    if wanted.dtype.kind in "fc":
        raise DataError(f"{name}: has {values.dtype} numbers; input {tensor.name!r} takes {wanted.dtype}: give floats")
    return _cast(values, wanted.dtype, tensor, name)


def _quantized(values: Array, tensor: TfLiteTensor, name: object) -> Array:
    """Real values for an input, if it can hold them."""
    try:
        return tensor.quantized(values)
    except TensorError as error:
        raise DataError(f"{name}: {error}") from None


def _cast(values: Array, dtype: np.dtype[Any], tensor: TfLiteTensor, name: str) -> Array:
    """Integers in another type, if it can hold them."""
    limits = np.iinfo(np.uint8 if dtype.kind == "b" else dtype)
    if values.size and (values.min() < limits.min or values.max() > limits.max):
        raise DataError(
            f"{name}: has {values.dtype} numbers from {values.min()} to {values.max()}; input {tensor.name!r} takes "
            f"{dtype}. Real values are given as floats, which are quantized"
        )
    return values.astype(dtype)
