"""Instructions, cycles and time of a model on a Cortex-M, from how often loops run.

What a trip through each loop takes is in `data/instructions.json`, fitted by `tools/fit_instructions.py` to operators
that were counted under emulation. What has no formula is left out of the figures and said: `Estimate.covered`.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple, Union

from tflm import targets
from tflm.boards import Board, boards
from tflm.errors import FirmwareError
from tflm.firmware.loop_trips import PATHS, Layer, LoopTrips
from tflm.kernels import REGISTRATIONS
from tflm.kernels.layers.geometry import axes
from tflm.libraries import Kernels
from tflm.runtime.operator_facts import multiply_accumulates
from tflm.schema.enums import TensorType
from tflm.schema.model import Model
from tflm.schema.options import Conv2DOptions, DepthwiseConv2DOptions, Pool2DOptions
from tflm.schema.tables import Operator, SubGraph, Tensor

OPTIMIZATIONS = ("-O2", "-Os")
"""How CMSIS-NN, or the reference kernels, may have been compiled."""

COUNTED_AS = {"arduino": "cmsis-nn"}
"""Libraries that others stand for: the one for Arduino is an older CMSIS-NN, which the nRF52840 was measured with."""

ENOUGH = 0.9
"""What must be covered of a model for a time to be given."""


class Silicon(NamedTuple):
    """Cycles of a chip for each of the table's.

    Attributes:
        cycles: measured over the table's: waits of the flash, and what the table leaves out.
        within: how far models were off that had no part in it; None where too few were measured to say.
        measured: on what.
    """

    cycles: float
    within: float | None
    measured: str


SILICON = {
    "cortex-m4": Silicon(1.33, 0.20, "nRF52840 at 64 MHz and STM32L4R5 at 120 MHz, five models"),
    "cortex-m33": Silicon(1.07, None, "one board, provisional"),
}
"""By part. There is none where nothing was measured, or figures differed too much to be of use."""


class OperatorEstimate(NamedTuple):
    """What an operator takes.

    Attributes:
        operator_index: its place in the model.
        operator: its name.
        path: the code that runs it, as the data names it; empty where there is no formula.
        instructions: executed from the operator's begin to its end; None where there is no formula.
        cycles: what these cost by the table of the Cortex-M4's manual, without wait states.
        multiply_accumulates: of its weights.
        reason: why there is no formula.
    """

    operator_index: int
    operator: str
    path: str
    instructions: int | None
    cycles: int | None
    multiply_accumulates: int
    reason: str = ""


@dataclass(frozen=True)
class Estimate:
    """What an invoke of a model takes, as far as there are formulas.

    Attributes:
        target, kernels, optimization: what it is of.
        instructions, cycles: of the operators that are covered; `cycles` by the table of the Cortex-M4's manual.
        milliseconds: None where nothing was measured that they could follow from, or less than nine tenths is covered.
        within: how far off the milliseconds are at most, as a share; None where that is not known.
        covered: share of the multiply-accumulates that formulas cover; an operator without any counts with the
            elements of its outputs.
        operators: each of the first subgraph.
        note: what the figures assume, in a sentence.
    """

    target: str
    kernels: str
    optimization: str
    instructions: int
    cycles: int
    milliseconds: float | None
    within: float | None
    covered: float
    operators: tuple[OperatorEstimate, ...] = field(repr=False)
    note: str = ""


@cache
def coefficients() -> dict[str, Any]:
    """The file of coefficients, by configuration: kernels/extension/optimization."""
    text = (files("tflm.firmware") / "data" / "instructions.json").read_text()
    configurations: dict[str, Any] = json.loads(text)["configurations"]
    return configurations


def estimate(
    model: Model,
    *,
    target: str | targets.Target | None = None,
    kernels: Kernels | None = None,
    optimization: str | None = None,
    board: str | None = None,
    mhz: float | None = None,
) -> Estimate:
    """Instructions of an invoke on a Cortex-M, and its time where that can be said.

    Args:
        target: a part, such as "cortex-m4"; the board's, if it is left out.
        kernels: "cmsis-nn" or "reference", or "arduino", which is a CMSIS-NN; the board's, or "cmsis-nn".
        optimization: what the kernels are compiled with, "-O2" or "-Os"; the board's, or "-O2".
        board: one of those whose chip was measured, by name; `clocked_boards` lists them.
        mhz: the clock of a part that is on no such board.

    Raises:
        FirmwareError: nothing was counted for this part, library or optimization; the message lists what was.
    """
    usual = None if board is None else _clocked(board)
    if target is None and usual is None:
        raise FirmwareError(f"give a target, such as 'cortex-m4', or a board: {', '.join(clocked_boards())}")
    part = usual.target if usual is not None and target is None else _part(target)
    library = kernels or (usual.kernels if usual else "cmsis-nn")
    name = library if isinstance(library, str) else library.name
    name = COUNTED_AS.get(name, name)
    optimization = _optimization(optimization or (usual.optimization if usual else "-O2"))
    mhz = mhz or (usual.mhz if usual else None)
    configuration, paths = _configuration(part, name, optimization)
    subgraph = model.subgraphs[0]
    found = tuple(
        _operator(model, subgraph, index, paths, configuration)
        for index, operator in enumerate(subgraph.operators or ())
    )
    covered = _covered(model, subgraph, found)
    instructions = sum(operator.instructions or 0 for operator in found)
    cycles = sum(operator.cycles or 0 for operator in found)
    silicon = SILICON.get(part.name) if name == "cmsis-nn" and covered >= ENOUGH else None
    note = f"int8 kernels compiled with {optimization} by {configuration['compiler']}, {configuration['library']}"
    if silicon is None or mhz is None:
        return Estimate(part.name, name, optimization, instructions, cycles, None, None, covered, found, note)
    milliseconds = cycles * silicon.cycles / mhz / 1e3
    note += f"; {silicon.cycles} cycles for each of the table's at {mhz:g} MHz, measured on {silicon.measured}"
    return Estimate(
        part.name, name, optimization, instructions, cycles, milliseconds, silicon.within, covered, found, note
    )


def clocked_boards() -> list[str]:
    """The boards with a chip on which times were measured (nRF52840, STM32L4R5), by name."""
    return [board.name for board in boards().values() if board.mhz is not None]


def _clocked(board: str) -> Board:
    known = clocked_boards()
    if board not in known:
        raise FirmwareError(f"no time was measured on a chip as {board!r} has it; there are {', '.join(known)}")
    return boards()[board]


def _part(target: Any) -> targets.Target:
    return targets.by_name(target) if isinstance(target, str) else targets.require_target(target)


def _optimization(text: str) -> str:
    name = text if text.startswith("-") else f"-{text}"
    if name not in OPTIMIZATIONS:
        raise FirmwareError(f"instructions were counted for {' and '.join(OPTIMIZATIONS)}, not for {text!r}")
    return name


def _configuration(part: targets.Target, kernels: str, optimization: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The coefficients, and the paths that operators take."""
    extension = next((name for name in ("mve", "dsp") if name in part.extensions), "none")
    name = f"{kernels}/{extension}/{optimization}"
    if name not in coefficients():
        raise FirmwareError(
            f"no instructions were counted for {name} ({part.name}); there are {', '.join(coefficients())}, "
            "where dsp is cortex-m4, cortex-m7 and cortex-m33, mve cortex-m52, cortex-m55 and cortex-m85"
        )
    return coefficients()[name], dict(PATHS["reference" if kernels == "reference" else f"{kernels}/{extension}"])


def _operator(
    model: Model, subgraph: SubGraph, index: int, paths: dict[str, Any], configuration: dict[str, Any]
) -> OperatorEstimate:
    operator = (subgraph.operators or [])[index]
    name = model.operator_name(operator)
    count = multiply_accumulates(model, subgraph, operator)
    if _changes_shape_alone(name):
        return OperatorEstimate(index, name, "", 0, 0, count)
    if name not in paths:
        return OperatorEstimate(index, name, "", None, None, count, "no operators of this kind were counted")
    layer = layer_of(model, subgraph, operator)
    if isinstance(layer, str):
        return OperatorEstimate(index, name, "", None, None, count, layer)
    trips: LoopTrips | None = paths[name](layer)
    if trips is None or trips.path not in configuration["paths"]:
        return OperatorEstimate(index, name, "", None, None, count, "none of its shape was counted")
    costs = configuration["paths"][trips.path]["trips"]
    instructions, cycles = (
        round(sum(costs[loop][what] * times for loop, times in trips.trips.items())) for what in (0, 1)
    )
    return OperatorEstimate(index, name, trips.path, instructions, cycles, count)


def _changes_shape_alone(operator: str) -> bool:
    """Whether it takes a few hundred instructions, which are left out without being missed."""
    return operator in REGISTRATIONS and REGISTRATIONS[operator].only_copies


def _covered(model: Model, subgraph: SubGraph, operators: tuple[OperatorEstimate, ...]) -> float:
    weights = [_weight(subgraph, (subgraph.operators or [])[op.operator_index], op) for op in operators]
    total = sum(weights)
    covered = sum(weight for weight, op in zip(weights, operators) if op.instructions is not None)
    return covered / total if total else 1.0


def _weight(subgraph: SubGraph, operator: Operator, estimated: OperatorEstimate) -> int:
    tensors = subgraph.tensors or []
    elements = sum(math.prod(tensors[i].shape or ()) for i in operator.outputs or ())
    return estimated.multiply_accumulates or (0 if _changes_shape_alone(estimated.operator) else elements)


# --- Operators of models -----------------------------------------------------------------------------------------

WindowOptions = Union[Conv2DOptions, DepthwiseConv2DOptions, Pool2DOptions]


def layer_of(model: Model, subgraph: SubGraph, operator: Operator) -> Layer | str:
    """What the loops of an operator go by, or why formulas don't hold for it."""
    tensors = subgraph.tensors or []
    inputs = [tensors[i] for i in operator.inputs or () if i >= 0]
    outputs = [tensors[i] for i in operator.outputs or ()]
    if not inputs or not outputs:
        return "it lacks tensors"
    if any(tensor.type != TensorType.INT8 for tensor in (*inputs[:2], outputs[0])):
        types = sorted({tensor.type.name.lower() for tensor in (*inputs[:2], outputs[0])})
        return f"formulas are for int8; it has {', '.join(types)}"
    name = model.operator_name(operator)
    if name == "FULLY_CONNECTED" and not _one_symmetric_scale(inputs[1]):
        return "its weights have a scale for each channel, or a zero point"
    shapes = tuple(tuple(tensor.shape or ()) for tensor in inputs)
    output = tuple(outputs[0].shape or ())
    options = operator.builtin_options
    if isinstance(options, (Conv2DOptions, DepthwiseConv2DOptions, Pool2DOptions)):
        return _windowed(name, shapes, output, options)
    return Layer(name, shapes, output)


def _one_symmetric_scale(weights: Tensor) -> bool:
    quantization = weights.quantization
    if quantization is None:
        return False
    return len(quantization.scale or ()) == 1 and not any(quantization.zero_point or ())


def _windowed(
    name: str, shapes: tuple[tuple[int, ...], ...], output: tuple[int, ...], options: WindowOptions
) -> Layer | str:
    if len(shapes[0]) != 4 or len(output) != 4:
        return "it has no image of four dimensions"
    if isinstance(options, Pool2DOptions):
        taps, dilations = (options.filter_height, options.filter_width), (1, 1)
    else:
        taps = shapes[1][1], shapes[1][2]
        dilations = options.dilation_h_factor, options.dilation_w_factor
    strides = options.stride_h, options.stride_w
    rows, columns = axes(options.padding, shapes[0][1:3], taps, output[1:3], strides, dilations)
    return Layer(name, shapes, output, rows, columns)
