"""`tflm compare`: two models, or a model and recorded answers or a device, tensor by tensor."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
import typer

from tflm.cli.command_line import (
    AsJson,
    BoardName,
    CheckFailed,
    CommandError,
    KernelsName,
    ModelPath,
    ReleaseName,
    TargetName,
    load_model,
    machine_from,
    print_json,
    print_line,
    progress,
    show,
)
from tflm.cli.compare_device import compare_device
from tflm.cli.difference import Difference, Real, difference, difference_table, first_beyond
from tflm.cli.run import answers, delegates_from, set_inputs
from tflm.delegates import Delegate
from tflm.evaluation.input_files import Arrays, read_inputs, recorded
from tflm.evaluation.runner import inputs_of, outputs_of
from tflm.report import Report
from tflm.runtime.execution_plan import PlannedNode
from tflm.runtime.growing_arena import ready_interpreter
from tflm.schema.reader import IDENTIFIER

TOLERANCE = 0.1
"""Relative error from which on a tensor diverges, if nothing else is said."""


class Probe:
    """A model that is run with real inputs, and keeps the real values of every tensor it makes."""

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
        """Real values of the outputs, and of every tensor that an operator makes, by name."""
        set_inputs(self.inputs, [tensor.quantized(values) for tensor, values in zip(self.inputs, real_inputs)])
        self.interpreter.invoke()
        tensors = {name: _real(self.interpreter.get_tensor(index)) for name, index in self.made.items()}
        return [_real(tensor) for tensor in self.outputs], tensors

    def maker(self, name: str) -> str:
        """The operator that makes a tensor, with its number."""
        index, operator = self.makers[self.made[name]]
        return f"{index} {operator}"


def _hidden_tensors(plan: Sequence[PlannedNode]) -> set[int]:
    """Those inside of what a delegate computes as it likes: it need not write them."""
    nodes = [planned for planned in plan if planned.delegate is not None and not planned.delegate.runs_in_order]
    made = {tensor for planned in nodes for replaced in planned.replaced for tensor in replaced.node.outputs}
    return made.difference(*(planned.node.outputs for planned in nodes))


def _real(tensor: Any) -> Real:
    return np.asarray(tensor.dequantized(), np.float64)


def compare_models(a: Probe, b: Probe, steps: list[list[Real]]) -> tuple[list[Difference], list[Difference]]:
    """Outputs by place, then tensors that both models make under one name and in one shape, in the order of the first.

    The models have inputs and outputs of the same shapes.
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
        CommandError: their inputs or outputs have different shapes.
    """
    for side in ("inputs", "outputs"):
        shapes = [[list(tensor.dims) for tensor in getattr(probe, side)] for probe in (a, b)]
        if shapes[0] != shapes[1]:
            raise CommandError(f"the models have different {side}: shapes {shapes[0]} against {shapes[1]}")


def _tensor_differences(a: Probe, ours: list[Any], theirs: list[Any]) -> Iterator[Difference]:
    for name in a.made:
        if name in theirs[0][1] and ours[0][1][name].shape == theirs[0][1][name].shape:
            yield difference(
                name, a.maker(name), *(np.stack([step[1][name] for step in side]) for side in (ours, theirs))
            )


def compare_recorded(model: Path, recording: Path) -> list[Difference]:
    """A model's answers to recorded inputs beside the recorded outputs: both in one .npz, as in_ and out_<step>_<i>.

    Raises:
        CommandError: the recording does not fit the model.
        OSError: a file can't be read.
    """
    interpreter = ready_interpreter(load_model(model))
    steps, expected = read_inputs(recording, inputs_of(interpreter)), recorded(recording, "out")
    outputs = outputs_of(interpreter)
    given = [step.outputs for step in answers(interpreter, steps)]
    return [_against_recorded(recording, j, tensor, given, expected) for j, tensor in enumerate(outputs)]


def _against_recorded(recording: Path, j: int, tensor: Any, given: list[Arrays], expected: Any) -> Difference:
    pairs = []
    for step, outputs in enumerate(given):
        if (step, j) not in expected:
            raise CommandError(f"{recording}: out_{step}_{j} is missing")
        ours, stored = outputs[j], expected[step, j]
        if ours.shape != stored.shape or ours.dtype != stored.dtype:
            reason = f"is {stored.dtype} of {list(stored.shape)}, the model gives {ours.dtype} of {list(ours.shape)}"
            raise CommandError(f"{recording}: out_{step}_{j} {reason}")
        pairs.append((ours.astype(np.float64), stored.read().astype(np.float64)))
    ours, theirs = (np.stack(side) for side in zip(*pairs))
    scale = tensor.scale or 1.0  # differences of integers count in steps of the output's scale
    return difference(tensor.name, "", ours * scale, theirs * scale)


class OtherKind(Enum):
    """What a model can be compared with."""

    MODEL = "model"
    RECORDING = "recording"
    LOG = "log"


MODEL_SUFFIXES = (".tflite", ".lite")


def other_kind(path: Path) -> OtherKind:
    """What a file is, by its name or its first bytes: what is neither model nor recording is a device's log.

    A file that is not there, standard input, and what can be read only once are models, unless the name says otherwise.

    Raises:
        OSError: it can't be read.
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


def compare(
    model: ModelPath,
    other: Annotated[
        Path | None,
        typer.Argument(metavar="[OTHER]", help="Another model, an .npz of inputs and outputs, or a device's log."),
    ] = None,
    inputs: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Inputs for both models, as for run; random ones otherwise.")
    ] = None,
    seed: Annotated[int, typer.Option(metavar="SEED", min=0, help="For the random inputs.")] = 0,
    steps: Annotated[int, typer.Option(metavar="COUNT", min=1, help="How many random inputs.")] = 10,
    tolerance: Annotated[
        float, typer.Option(metavar="SHARE", min=0, help="Relative error from which on a tensor diverges.")
    ] = TOLERANCE,
    delegate: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Compare the model as this delegate runs it with the reference kernels."),
    ] = None,
    target: TargetName = None,
    kernels: KernelsName = None,
    release: ReleaseName = None,
    board: BoardName = None,
    check: Annotated[bool, typer.Option("--check", help="Exit with status 1 where an output diverges.")] = False,
    as_json: AsJson = False,
) -> None:
    """Compare a model with another, a recording or a device.

    Shows where they differ, tensor by tensor. With --delegate, a model is compared with itself.

    With a delegate, the first tensor to diverge is of the first operator where the delegate departs from the kernels.

    Inputs are real values: each model gets them in its own quantization, so a float model can be compared with its
    quantized form. Errors are of real values.

    A device's log has what the firmware prints that tflm export --dump writes: inputs, and every tensor that they gave.

    \b
    Examples:
      tflm compare float.tflite int8.tflite
      tflm compare model.tflite --delegate flex --tolerance 0
      tflm compare model.tflite golden.npz --tolerance 0 --check
      tflm compare model.tflite serial.txt --board nano33ble --tolerance 0
    """
    tensors: list[Difference] = []
    lost: list[str] = []
    kind = None if other is None else other_kind(other)
    of_device = kind is OtherKind.LOG
    if (target, kernels, release, board) != (None, None, None, None) and not of_device:
        raise typer.BadParameter("--target, --kernels, --tflm and --board are for a device's log")
    if (other is None) == (delegate is None):
        raise typer.BadParameter("compare takes another model, a recording, or --delegate")
    if other is None:
        a, b = Probe(model, delegates_from(delegate)), Probe(model, [])
        outputs, tensors = compare_models(a, b, real_inputs((a, b), inputs, seed, steps))
    elif inputs is not None and kind is not OtherKind.MODEL:
        raise typer.BadParameter("--inputs is for two models; a recording or a log has its own inputs")
    elif of_device:
        machine = machine_from(target, kernels, board, "host", release=release)
        outputs, tensors, lost = compare_device(model, other, machine)
    elif kind is OtherKind.RECORDING:
        outputs = compare_recorded(model, other)
    else:
        a, b = Probe(model), Probe(other)
        require_same_shapes(a, b)
        outputs, tensors = compare_models(a, b, real_inputs((a, b), inputs, seed, steps))
    diverging, diverging_output = first_beyond(tensors, tolerance), first_beyond(outputs, tolerance)
    if as_json:
        print_json(
            {
                "model": str(model),
                "other": f"--delegate {delegate}" if other is None else str(other),
                "tolerance": tolerance,
                "outputs": [asdict(d) for d in outputs],
                "tensors": [asdict(d) for d in tensors],
                "first_diverging": None if diverging is None else asdict(diverging),
                "outputs_agree": diverging_output is None,
                "lost": lost,
            }
        )
    else:
        show(comparison_report(outputs, tensors, tolerance))
        for reason in lost:
            print_line(reason)
    if check and diverging_output is not None:
        raise CheckFailed(
            f"output {diverging_output.tensor!r} is off by {diverging_output.largest_error:g}, "
            f"more than {tolerance:g} of its largest magnitude"
        )


def real_inputs(
    probes: tuple[Probe, Probe], path: Path | None = None, seed: int = 0, steps: int = 10
) -> list[list[Real]]:
    """Inputs from a file for the first model; or random ones, over the range of the model whose input is quantized."""
    if path is None:
        rng = np.random.default_rng(seed)
        drawn = [a if a.quantization is not None else b for a, b in zip(*(probe.inputs for probe in probes))]
        return [[_random_real(tensor, rng) for tensor in drawn] for _ in range(steps)]
    given = read_inputs(path, probes[0].inputs)
    return [[_dequantized(tensor, values) for tensor, values in zip(probes[0].inputs, step)] for step in given]


def _random_real(tensor: Any, rng: np.random.Generator) -> Real:
    """Real values over the range that a quantized input can hold; a normal curve for floats."""
    dtype = tensor.data.dtype
    if dtype.kind not in "iu":
        return np.asarray(rng.standard_normal(tensor.dims), np.float64)
    limits = np.iinfo(dtype)
    return _dequantized(tensor, rng.integers(limits.min, limits.max, tensor.dims, dtype, endpoint=True))


def _dequantized(tensor: Any, values: npt.NDArray[Any]) -> Real:
    set_inputs([tensor], [values])
    return _real(tensor)


def comparison_report(outputs: list[Difference], tensors: list[Difference], tolerance: float = TOLERANCE) -> Report:
    """How far outputs and tensors are from their counterparts, and where they begin to diverge."""
    tables, notes = [difference_table("Outputs", outputs)], []
    if tensors:
        tables.append(difference_table("Tensors of both", tensors))
        diverging = first_beyond(tensors, tolerance)
        if diverging is None:
            notes.append(f"no tensor is off by more than {tolerance:g} of its largest magnitude")
        else:
            notes.append(f"first to diverge: {diverging.tensor} of operator {diverging.operator}")
    return Report("", tables=tables, notes=notes)
