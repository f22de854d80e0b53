"""Run a model on the frames of a stream: its outputs over time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tflm.application.errors import OptionError, RequestError
from tflm.application.image_files import write_image
from tflm.application.running import Step, input_names
from tflm.evaluation.input_files import Arrays, fitted, read_given, read_sound
from tflm.evaluation.runner import has_state, inputs_of, outputs_of
from tflm.memory.tensor import TfLiteTensor
from tflm.report import NUMBER, Report, Table, printable
from tflm.rewriting.streaming import StreamedModel, stream
from tflm.runtime.growing_arena import ready_interpreter
from tflm.schema.model import Model

INCHES = (10, 4)
MAX_COLUMNS = 16
"""Elements of outputs in the table; all are in the plot and in JSON."""


@dataclass(frozen=True)
class Frontend:
    """A model that makes frames of sound.

    Attributes:
        model: it has one input of samples, 16 bits each, and one output.
        step: samples from one frame to the next; None for those of the input.
    """

    model: Model
    step: int | None = None

    def frames(self, path: Path) -> list[npt.NDArray[Any]]:
        """The features of a WAV file.

        Raises:
            RequestError: the model takes no sound, or the file is shorter than its input.
            DataError: it is not a WAV file.
            OSError: it can't be read.
        """
        interpreter = ready_interpreter(self.model)
        inputs = inputs_of(interpreter)
        if len(inputs) != 1 or len(outputs_of(interpreter)) != 1 or inputs[0].data.dtype != np.int16:
            raise RequestError("the model of --frontend needs one input of 16-bit samples and one output")
        samples, size = read_sound(path), inputs[0].data.size
        if samples.size < size:
            raise RequestError(f"{path}: has {samples.size} samples; a frame has {size}")
        found = []
        for first in range(0, samples.size - size + 1, self.step or size):
            inputs[0].data[...] = samples[first : first + size].reshape(inputs[0].data.shape).astype(np.int16)
            interpreter.invoke()
            found.append(np.array(interpreter.output(0).data, None))
        return found


class _FrameInput(TfLiteTensor):
    """An input of several frames, as one that takes a single frame."""

    def __init__(self, tensor: TfLiteTensor, streamed: StreamedModel):
        self.__dict__.update(tensor.__dict__)
        self._data = tensor.data.take(range(streamed.frame), streamed.axis)


def streaming_form(model: Model, hop: int | None) -> StreamedModel | None:
    """The streaming form of a model; None for one that keeps state, which takes new frames as it is.

    Raises:
        OptionError: a hop is given for a model that keeps state.
        ArgumentError: the model cannot be streamed.
    """
    if not has_state(model):
        return stream(model, hop=hop or 1)
    if hop is not None:
        raise OptionError("--hop needs a model over a window; this one keeps state and takes new frames as it is")
    return None


def read_frames(
    files: Sequence[str], model: Model, streamed: StreamedModel | None, real: bool, frontend: Frontend | None
) -> list[Arrays]:
    """The inputs of each invoke; frames that do not fill an invoke are left out.

    Args:
        files: as for `read_given`; with one input, arrays of frames or numbers, or sound.
        model: the model that takes frames.
        streamed: where its frames are; None if it takes one at a time.
        real: the files hold real values.
        frontend: makes frames of sound.

    Raises:
        RequestError: there are fewer frames than an invoke takes.
        DataError: a file does not fit the input.
        OSError: it can't be read.
    """
    tensors = inputs_of(ready_interpreter(model))
    if len(tensors) != 1:
        if frontend is not None:
            raise RequestError(f"--frontend needs a model with one input; this one has {len(tensors)}")
        return read_given(files, tensors, input_names(model), real)
    if streamed is not None:
        tensors = [_FrameInput(tensors[0], streamed)]
    if frontend is None:
        frames = [values for (values,) in read_given(files, tensors, input_names(model), real)]
    else:
        shape = tensors[0].data.shape
        frames = [fitted(each, tensors[0], f) for f in files for each in _filling(frontend.frames(Path(f)), shape)]
    hop, axis = (1, 0) if streamed is None else (streamed.hop, streamed.axis)
    if len(frames) < hop:
        raise RequestError(f"an invoke takes {hop} frames; found {len(frames)}")
    return [[np.concatenate(frames[i : i + hop], axis)] for i in range(0, len(frames) - hop + 1, hop)]


def _filling(frames: Sequence[npt.NDArray[Any]], shape: Sequence[int]) -> list[npt.NDArray[Any]]:
    """Frames one after another in inputs of this shape, if it holds a whole number of them."""
    count, rest = divmod(math.prod(shape), frames[0].size)
    if rest:
        return list(frames)
    return [
        np.concatenate(frames[i : i + count], None).reshape(shape) for i in range(0, len(frames) - count + 1, count)
    ]


def curves(names: Sequence[str], results: Sequence[Step]) -> dict[str, list[float]]:
    """The real value of each element of the outputs in each step, by output and element."""
    found: dict[str, list[float]] = {}
    for step in results:
        for name, array, real in zip(names, step.outputs, step.real):
            for place, value in enumerate((array if real is None else real).reshape(-1).tolist()):
                found.setdefault(f"{name} {place}" if len(names) > 1 else f"{place}", []).append(value)
    return found


def stream_report(title: str, streamed: StreamedModel | None, names: Sequence[str], results: Sequence[Step]) -> Report:
    """A table of the outputs over time."""
    hop, facts, unit = 1, [], "invoke"
    if streamed is not None:
        hop, unit = streamed.hop, "frames"
        facts.append(("an invoke takes", f"{hop} new frame{'s' if hop > 1 else ''}"))
        facts.append(("warm-up", f"{streamed.warm_up} invokes; before, zeros are part of the window"))
    values = dict(list(curves(names, results).items())[:MAX_COLUMNS])
    rows = [
        (f"{(step + 1) * hop:,}", *(f"{value:.4g}" for value in row)) for step, row in enumerate(zip(*values.values()))
    ]
    columns = dict.fromkeys([unit, *values], NUMBER)
    return Report(title, facts, [Table("Outputs after each invoke", columns, rows)], [])


def plot_outputs(
    path: Path, title: str, streamed: StreamedModel | None, names: Sequence[str], results: Sequence[Step]
) -> None:
    """Draw the elements of the outputs over time.

    Raises:
        RequestError: the image cannot be drawn; see `write_image`.
        OSError: the file can't be written.
    """

    def draw(figure: Any) -> None:
        axes, hop = figure.subplots(), 1 if streamed is None else streamed.hop
        for name, values in curves(names, results).items():
            axes.plot(range(hop, (len(values) + 1) * hop, hop), values, label=printable(name))
        axes.set_title(printable(title))
        axes.set_xlabel("invoke" if streamed is None else "frames")
        axes.set_ylabel("output")
        if 1 < len(axes.lines) <= MAX_COLUMNS:
            figure.legend(loc="outside right upper")

    write_image(path, INCHES, draw)
