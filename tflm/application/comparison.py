"""Compare two models, or a model with recorded outputs, tensor by tensor."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tflm.application.errors import RequestError
from tflm.application.models import load_model
from tflm.application.progress import Progress, silent
from tflm.application.running import answers, set_inputs
from tflm.delegates import Delegate
from tflm.evaluation.input_files import Arrays, read_inputs, recorded
from tflm.evaluation.runner import inputs_of, outputs_of
from tflm.report import NAME, NUMBER, TEXT, AnyFloat, Figure, Report, Table
from tflm.runtime.execution_plan import PlannedNode
from tflm.runtime.growing_arena import ready_interpreter
from tflm.schema.reader import C_SUFFIXES, IDENTIFIER

Real = npt.NDArray[np.float64]


@dataclass
class Difference:
    """The error of a tensor over all steps, in real values.

    Attributes:
        tensor: its name in the first model.
        operator: index and name of the operator that writes it in the first model; empty for an output.
        largest_error: the largest absolute difference of real values; infinite if only one of two values is NaN.
        relative_error: `largest_error` divided by the counterpart's largest finite magnitude; None if only that is 0.
        snr_db: signal-to-noise ratio in decibels; None if both are equal.
    """

    tensor: str
    operator: str
    largest_error: AnyFloat
    relative_error: AnyFloat | None
    snr_db: AnyFloat | None


def difference(tensor: str, operator: str, ours: Real, theirs: Real) -> Difference:
    """Compare `ours` with `theirs`; both have the same shape, with the steps along the first axis."""
    with np.errstate(invalid="ignore", over="ignore"):
        error = np.where((ours == theirs) | (np.isnan(ours) & np.isnan(theirs)), 0.0, ours - theirs)
        error[np.isnan(error)] = np.inf
        finite = theirs[np.isfinite(theirs)]
        largest, scale = float(abs(error).max(initial=0)), float(abs(finite).max(initial=0))
        noise, signal = float((error**2).sum(dtype=np.float64)), float((finite**2).sum(dtype=np.float64))
    relative = largest / scale if scale else (0.0 if largest == 0 else None)
    snr = None if noise == 0 else (10 * (math.log10(signal) - math.log10(noise)) if signal else -math.inf)
    return Difference(tensor, operator, largest, relative, snr)


def first_beyond(differences: list[Difference], tolerance: float) -> Difference | None:
    """Return the first tensor whose error exceeds `tolerance` times its counterpart's largest magnitude, or None."""
    for candidate in differences:
        if candidate.relative_error is None or candidate.relative_error > tolerance:
            return candidate
    return None


def difference_table(title: str, differences: list[Difference]) -> Table:
    """Return a table with a row for each tensor."""
    return Table.of(
        title,
        differences,
        Figure("operator", TEXT, "operator"),
        Figure("tensor", NAME, "tensor"),
        Figure("largest error", NUMBER, "largest_error", ".6g"),
        Figure("relative", NUMBER, "relative_error", ".2%"),
        Figure("SNR dB", NUMBER, lambda each: "equal" if each.snr_db is None else f"{each.snr_db:.1f}"),
    )


TOLERANCE = 0.1
"""Default relative error above which a tensor diverges."""


class Probe:
    """A model that runs on real inputs and preserves the real values of every tensor."""

    def __init__(self, path: Path, delegates: Sequence[Delegate] | None = None):
        self.model = load_model(path)
        self.interpreter = ready_interpreter(self.model, preserve_all_tensors=True, delegates=delegates)
        self.inputs, self.outputs = inputs_of(self.interpreter), outputs_of(self.interpreter)
        main = self.model.subgraphs[0]
        operators = enumerate(main.operators or ())
        self.makers = {tensor: (i, self.model.operator_name(op)) for i, op in operators for tensor in op.outputs or ()}
        names = [tensor.name or "" for tensor in main.tensors or ()]
        hidden = _hidden_tensors(self.interpreter.execution_plan())
        shown = [tensor for tensor in self.makers if tensor not in hidden]
        self.made = {names[tensor]: tensor for tensor in shown if names.count(names[tensor]) == 1}

    def step(self, real_inputs: list[Real]) -> tuple[list[Real], dict[str, Real]]:
        """Invoke; return real values of the outputs, and of every tensor that an operator writes, by name."""
        set_inputs(self.inputs, [tensor.quantized(values) for tensor, values in zip(self.inputs, real_inputs)])
        self.interpreter.invoke()
        tensors = {name: _real(self.interpreter.get_tensor(index)) for name, index in self.made.items()}
        return [_real(tensor) for tensor in self.outputs], tensors

    def maker(self, name: str) -> str:
        """Return the number and name of the operator that writes a tensor."""
        index, operator = self.makers[self.made[name]]
        return f"{index} {operator}"


def _hidden_tensors(plan: Sequence[PlannedNode]) -> set[int]:
    """Return tensors inside nodes that a delegate fuses: it need not write them."""
    nodes = [planned for planned in plan if planned.delegate is not None and not planned.delegate.runs_in_order]
    made = {tensor for planned in nodes for replaced in planned.replaced for tensor in replaced.node.outputs}
    return made.difference(*(planned.node.outputs for planned in nodes))


def _real(tensor: Any) -> Real:
    return np.asarray(tensor.dequantized(), np.float64)


def compare_models(
    a: Probe, b: Probe, steps: list[list[Real]], progress: Progress = silent
) -> tuple[list[Difference], list[Difference]]:
    """Compare outputs by position, and tensors with the same name and shape in both models, in the first one's order.

    The inputs and outputs of both models must have the same shapes.
    """
    ours, theirs = [], []
    with progress("comparing", len(steps)) as advance:
        for values in steps:
            ours.append(a.step(values))
            theirs.append(b.step(values))
            advance()
    outputs = [
        difference(tensor.name, "", *(np.stack([step[0][j] for step in side]) for side in (ours, theirs)))
        for j, tensor in enumerate(a.outputs)
    ]
    return outputs, list(_tensor_differences(a, ours, theirs))


def require_same_shapes(a: Probe, b: Probe) -> None:
    """Check that two models can be compared.

    Raises:
        RequestError: their inputs or outputs have different shapes.
    """
    for side in ("inputs", "outputs"):
        shapes = [[list(tensor.dims) for tensor in getattr(probe, side)] for probe in (a, b)]
        if shapes[0] != shapes[1]:
            raise RequestError(f"the models have different {side}: shapes {shapes[0]} and {shapes[1]}")


def _tensor_differences(a: Probe, ours: list[Any], theirs: list[Any]) -> Iterator[Difference]:
    for name in a.made:
        if name in theirs[0][1] and ours[0][1][name].shape == theirs[0][1][name].shape:
            yield difference(
                name, a.maker(name), *(np.stack([step[1][name] for step in side]) for side in (ours, theirs))
            )


def compare_recorded(model: Path, recording: Path, progress: Progress = silent) -> list[Difference]:
    """Compare a model's outputs with recorded ones: an .npz with in_<step>_<i> and out_<step>_<i>.

    Raises:
        RequestError: the recording does not fit the model.
        OSError: a file cannot be read.
    """
    interpreter = ready_interpreter(load_model(model))
    steps, expected = read_inputs(recording, inputs_of(interpreter)), recorded(recording, "out")
    outputs = outputs_of(interpreter)
    given = [step.outputs for step in answers(interpreter, steps, progress=progress)]
    return [_against_recorded(recording, j, tensor, given, expected) for j, tensor in enumerate(outputs)]


def _against_recorded(recording: Path, j: int, tensor: Any, given: list[Arrays], expected: Any) -> Difference:
    pairs = []
    for step, outputs in enumerate(given):
        if (step, j) not in expected:
            raise RequestError(f"{recording}: out_{step}_{j} is missing")
        ours, stored = outputs[j], expected[step, j]
        if ours.shape != stored.shape or ours.dtype != stored.dtype:
            reason = f"is {stored.dtype} of {list(stored.shape)}, the model returns {ours.dtype} of {list(ours.shape)}"
            raise RequestError(f"{recording}: out_{step}_{j} {reason}")
        pairs.append((ours.astype(np.float64), stored.read().astype(np.float64)))
    ours, theirs = (np.stack(side) for side in zip(*pairs))
    scale = tensor.scale or 1.0  # integers are compared in units of the output's scale
    return difference(tensor.name, "", ours * scale, theirs * scale)


class OtherKind(Enum):
    """Kinds of files that a model can be compared with."""

    MODEL = "model"
    RECORDING = "recording"
    LOG = "log"


MODEL_SUFFIXES = (".tflite", ".lite", *C_SUFFIXES)


def other_kind(path: Path) -> OtherKind:
    """Determine the kind of a file from its name or first bytes; a file that is neither a model nor a recording is a
    log.

    Missing files, standard input and pipes count as models unless their name says otherwise.

    Raises:
        OSError: it cannot be read.
    """
    if path.suffix == ".npz":
        return OtherKind.RECORDING
    if path.suffix in (".txt", ".log"):
        return OtherKind.LOG
    if path.suffix in MODEL_SUFFIXES or not path.is_file():
        return OtherKind.MODEL
    with path.open("rb") as file:
        begin = file.read(8)
    if begin[4:] == IDENTIFIER:
        return OtherKind.MODEL
    return OtherKind.RECORDING if begin[:4] == b"PK\3\4" else OtherKind.LOG


def real_inputs(
    probes: tuple[Probe, Probe], path: Path | None = None, seed: int = 0, steps: int = 10
) -> list[list[Real]]:
    """Read inputs for the first model, or draw random ones from the range of whichever model's input is quantized."""
    if path is None:
        rng = np.random.default_rng(seed)
        drawn = [a if a.quantization is not None else b for a, b in zip(*(probe.inputs for probe in probes))]
        return [[_random_real(tensor, rng) for tensor in drawn] for _ in range(steps)]
    given = read_inputs(path, probes[0].inputs, real=None)
    return [[_dequantized(tensor, values) for tensor, values in zip(probes[0].inputs, step)] for step in given]


def _random_real(tensor: Any, rng: np.random.Generator) -> Real:
    """Draw uniform values from the range of a quantized input, or normally distributed ones for floats."""
    dtype = tensor.data.dtype
    if dtype.kind not in "iu":
        return np.asarray(rng.standard_normal(tensor.dims), np.float64)
    limits = np.iinfo(dtype)
    return _dequantized(tensor, rng.integers(limits.min, limits.max, tensor.dims, dtype, endpoint=True))


def _dequantized(tensor: Any, values: npt.NDArray[Any]) -> Real:
    set_inputs([tensor], [values])
    return _real(tensor)


def comparison_report(outputs: list[Difference], tensors: list[Difference], tolerance: float = TOLERANCE) -> Report:
    """Report the errors of outputs and tensors, and the first tensor that diverges."""
    tables, notes = [difference_table("Outputs", outputs)], []
    if tensors:
        tables.append(difference_table("Tensors of both models", tensors))
        diverging = first_beyond(tensors, tolerance)
        if diverging is None:
            notes.append(f"no tensor is off by more than {tolerance:g} of its largest magnitude")
        else:
            notes.append(f"first to diverge: {diverging.tensor} of operator {diverging.operator}")
    return Report("", tables=tables, notes=notes)
