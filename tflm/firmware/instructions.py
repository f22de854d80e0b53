"""Estimate instructions, cycles and time of a model on a Cortex-M, from the trip counts of loops.

Instructions per trip are in `data/instructions.json`, fitted by `tools/fit_instructions.py` to counts under emulation.
Operators without a formula are not included; see `Estimate.covered`.

Calibrations say how many cycles a board takes for each estimated one, by kind of operator.
"""

from __future__ import annotations

import json
import math
import pathlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple, Union

import numpy as np

from tflm import targets
from tflm.boards import Board, boards, by_name
from tflm.errors import FirmwareError, OperatorError
from tflm.firmware.decoding_trips import decoding_trips, encoded_tensors
from tflm.firmware.loop_trips import PATHS, LoopShape, Path
from tflm.graph import multiply_accumulates
from tflm.kernels import REGISTRATIONS
from tflm.kernels.layers.geometry import axes
from tflm.kernels.reference.decode import TFLM_DECODE
from tflm.libraries import Kernels
from tflm.schema.enums import TensorType
from tflm.schema.model import Model
from tflm.schema.options import Conv2DOptions, DepthwiseConv2DOptions, Pool2DOptions
from tflm.schema.tables import Operator, SubGraph, Tensor

FORMAT = "tflm calibration 1"


class Calibration(NamedTuple):
    """Times of a board.

    Attributes:
        target, kernels: what was measured.
        mhz: the clock.
        cycles: measured cycles for each cycle of the manual's table, by operator.
    """

    target: str
    kernels: str
    mhz: float
    cycles: Mapping[str, float]

    def text(self) -> str:
        """The contents of a file."""
        return json.dumps({"format": FORMAT, **self._asdict()}, indent=2) + "\n"

    @classmethod
    def read(cls, path: pathlib.Path) -> Calibration:
        """Read a file.

        Raises:
            FirmwareError: it is not a calibration.
            OSError: it cannot be read.
        """
        try:
            raw = json.loads(path.read_text(encoding="utf-8"))
            found = cls(raw["target"], raw["kernels"], float(raw["mhz"]), raw["cycles"])
            is_valid = raw["format"] == FORMAT and all(float(each) > 0 for each in found.cycles.values())
        except (ValueError, TypeError, KeyError, AttributeError):
            is_valid = False
        if not is_valid:
            raise FirmwareError(f"{path}: not a calibration; tflm device calibrate writes one")
        return found


OPTIMIZATIONS = ("-O2", "-Os")
"""How CMSIS-NN, or the reference kernels, may have been compiled."""

COUNTED_AS = {"arduino": "cmsis-nn", "cmsis-nn:size": "cmsis-nn"}
"""Library data to use for others: Arduino's library is an older CMSIS-NN, measured on the nRF52840."""

FORMULA_ERROR = 0.08
"""Largest relative error of a formula for an operator of more than a few thousand instructions."""

FLOAT_ERROR = 0.5
"""The same for floats in software: zeros take half as long as other values, and an FPU takes far less."""

FLOAT_PATHS = frozenset({"dequantize", "quantize, float32"})

GUESS_ERROR = 2.0
"""How much an operator without a formula may exceed its rough estimate, as a share of it."""

ENOUGH = 0.9
"""Share of a model that formulas must cover for a time estimate."""


class Silicon(NamedTuple):
    """Cycles of a real chip per cycle of the manual's table.

    Attributes:
        cycles: measured ratio, which includes flash wait states and effects that the table omits.
        within: largest relative error, for measured chips on models that were not used for the fit.
        measured: the chips and models measured.
    """

    cycles: float
    within: float
    measured: str


NOT_MEASURED = "no chip with this part: a wide bracket from its pipeline and its memories"

SILICON = {
    "cortex-m0": Silicon(1.3, 0.6, NOT_MEASURED),
    "cortex-m0plus": Silicon(1.3, 0.6, NOT_MEASURED),
    "cortex-m23": Silicon(1.3, 0.6, NOT_MEASURED),
    "cortex-m3": Silicon(1.33, 0.4, NOT_MEASURED),
    "cortex-m4": Silicon(1.33, 0.20, "nRF52840 at 64 MHz and STM32L4R5 at 120 MHz, five models"),
    "cortex-m33": Silicon(1.07, 0.35, "one board, provisional"),
    "cortex-m7": Silicon(0.8, 0.5, NOT_MEASURED),
    "cortex-m52": Silicon(1.5, 0.6, NOT_MEASURED),
    "cortex-m55": Silicon(1.5, 0.6, NOT_MEASURED),
    "cortex-m85": Silicon(1.0, 0.6, NOT_MEASURED),
}
"""Measured chips, by part of Cortex-M."""


class TripCost(NamedTuple):
    """Cost of one trip through a loop, in the order of the data file."""

    instructions: float
    cycles: float


class CountedPath(NamedTuple):
    """A path through a kernel whose instructions were counted.

    Attributes:
        largest_error: largest relative error of its formula.
        trips: cost of a trip through each of its loops.
    """

    largest_error: float
    trips: dict[str, TripCost]


class Configuration(NamedTuple):
    """Kernels whose instructions were counted in one build.

    Attributes:
        compiler, library: name and version of each.
        paths: paths by name.
    """

    compiler: str
    library: str
    paths: dict[str, CountedPath]

    @classmethod
    def read(cls, raw: dict[str, Any]) -> Configuration:
        """Read the JSON of a configuration."""
        paths = {}
        for name, counted in raw["paths"].items():
            trips = {loop: TripCost(*cost) for loop, cost in counted["trips"].items()}
            paths[name] = CountedPath(counted["largest_error"], trips)
        return cls(raw["compiler"], raw["library"], paths)


class StandIn(NamedTuple):
    """The configuration whose coefficients are used for another, and the largest relative error of doing so."""

    configuration: str
    error: float = 0.0


STAND_INS = {
    "cmsis-nn/none/-Os": StandIn("cmsis-nn/none/-O2", 0.4),
    "cmsis-nn/mve/-Os": StandIn("cmsis-nn/mve/-O2", 0.4),
    "reference/dsp/-Os": StandIn("reference/dsp/-O2", 0.4),
    "reference/none/-O2": StandIn("reference/dsp/-O2", 0.5),
    "reference/none/-Os": StandIn("reference/dsp/-O2", 0.6),
    "reference/mve/-O2": StandIn("reference/dsp/-O2", 0.5),
    "reference/mve/-Os": StandIn("reference/dsp/-O2", 0.6),
}
"""Stand-ins, by the configuration that was not counted."""


class OperatorEstimate(NamedTuple):
    """Estimated cost of an operator.

    Attributes:
        operator_index: its index in the model.
        operator: its name.
        path: the code that runs it, as named in the data; empty without a formula.
        instructions: instructions from the operator's start to its end; None without a formula.
        cycles: their cycles by the Cortex-M4 manual's table, without wait states.
        multiply_accumulates: multiply-accumulates with its weights.
        reason: why there is no formula.
        guessed_instructions: rough estimate from multiply-accumulates or elements if there is no formula, else 0.
    """

    operator_index: int
    operator: str
    path: str
    instructions: int | None
    cycles: int | None
    multiply_accumulates: int
    reason: str = ""
    guessed_instructions: int = 0


@dataclass(frozen=True)
class Estimate:
    """Estimated cost of an invoke, for the operators that have a formula.

    Attributes:
        target: the part.
        kernels: the kernel library.
        optimization: compiler optimization of the kernels.
        instructions: instructions of the operators that have a formula.
        cycles: their cycles by the Cortex-M4 manual's table.
        instructions_within: largest relative error of `instructions` for the whole invoke; operators without a formula
            count as three times their rough estimate.
        device_cycles: cycles of the part's clock, including memory and pipeline effects.
        milliseconds: None if the clock is unknown, or formulas cover less than nine tenths.
        within: largest relative error of `device_cycles` and `milliseconds`.
        covered: share of the invoke's instructions that formulas cover; the rest is a rough estimate.
        operators: each operator of the first subgraph.
        note: assumptions of the figures, in a sentence.
    """

    target: str
    kernels: str
    optimization: str
    instructions: int
    cycles: int
    instructions_within: float
    device_cycles: int
    milliseconds: float | None
    within: float
    covered: float
    operators: tuple[OperatorEstimate, ...] = field(repr=False)
    note: str = ""


@cache
def coefficients() -> dict[str, Configuration]:
    """The file of coefficients, by configuration: kernels/extension/optimization."""
    text = (files("tflm.firmware") / "data" / "instructions.json").read_text()
    return {name: Configuration.read(raw) for name, raw in json.loads(text)["configurations"].items()}


def estimate(
    model: Model,
    *,
    target: str | targets.Target | None = None,
    kernels: Kernels | None = None,
    optimization: str | None = None,
    board: str | None = None,
    mhz: float | None = None,
    calibration: Calibration | None = None,
) -> Estimate:
    """Estimate the instructions of an invoke on a Cortex-M, and its time if the clock is known.

    Args:
        target: a part, such as "cortex-m4"; by default the board's.
        kernels: "cmsis-nn", "reference" or "arduino", which is an older CMSIS-NN; by default the board's, or
            "cmsis-nn".
        optimization: compiler optimization of the kernels, "-O2" or "-Os"; by default the board's, or "-O2".
        board: name of a board with a Cortex-M; `clocked_boards` lists them.
        mhz: the clock; by default the board's.
        calibration: cycles that were measured on a board; its operators replace the part's usual factor.

    Raises:
        FirmwareError: no data for this part, library or optimization; the message lists what is available.
    """
    usual = None if board is None else _clocked(board)
    if target is None and usual is None:
        raise FirmwareError(f"pass a target, such as 'cortex-m4', or a board: {', '.join(clocked_boards())}")
    part = usual.target if usual is not None and target is None else _part(target)
    name = _counted_name(kernels or (usual.kernels if usual else "cmsis-nn"))
    optimization = _optimization(optimization or (usual.optimization if usual else "-O2"))
    mhz = mhz or (usual.mhz if usual else None) or (calibration.mhz if calibration else None)
    counted = _counted(part, name, optimization)
    configuration = coefficients()[counted.configuration]
    subgraph = model.subgraphs[0]
    found = tuple(
        _operator(model, subgraph, index, _formulas(counted.configuration), configuration)
        for index, operator in enumerate(subgraph.operators or ())
    )
    instructions = sum(operator.instructions or 0 for operator in found)
    cycles = sum(operator.cycles or 0 for operator in found)
    guessed = sum(operator.guessed_instructions for operator in found)
    total = instructions + guessed
    covered = instructions / total if total else 1.0
    instructions_within = counted.error + _within(found, configuration.paths, instructions, guessed)
    silicon = SILICON[part.name]
    measured = {} if calibration is None else _calibrated(calibration, part.name, name)
    device_cycles = sum((each.cycles or 0) * measured.get(each.operator, silicon.cycles) for each in found)
    milliseconds = device_cycles / mhz / 1e3 if mhz and covered >= ENOUGH else None
    return Estimate(
        target=part.name,
        kernels=name,
        optimization=optimization,
        instructions=instructions,
        cycles=cycles,
        instructions_within=instructions_within,
        device_cycles=round(device_cycles),
        milliseconds=milliseconds,
        within=silicon.within + max(instructions_within - FORMULA_ERROR, 0),
        covered=covered,
        operators=found,
        note=_note(configuration, optimization, silicon, counted.error, mhz)
        + (f"; calibrated: {', '.join(measured)}" if measured else ""),
    )


def _calibrated(calibration: Calibration, part: str, kernels: str) -> Mapping[str, float]:
    """The factors of a calibration, which must be of the same part and kernels."""
    if (calibration.target, _counted_name(calibration.kernels)) != (part, kernels):
        measured = f"{calibration.target} with {calibration.kernels} kernels"
        raise FirmwareError(f"the calibration is of {measured}, not of {part} with {kernels} kernels")
    return calibration.cycles


def decoding_instructions(
    model: Model,
    operators: Iterable[tuple[int, int]],
    *,
    target: targets.Target,
    kernels: Kernels,
    optimization: str = "-O2",
) -> list[list[int]]:
    """Estimate the instructions with which each TFLM_DECODE decodes each of its tensors.

    Args:
        operators: subgraph and index of each TFLM_DECODE.
        model, target, kernels, optimization: as for `estimate`.

    Raises:
        FirmwareError: no data for this part, library or optimization.
        OperatorError: TFLM_DECODE rejects the model's tensors.
    """
    counted = _counted(target, _counted_name(kernels), _optimization(optimization))
    path = coefficients()[counted.configuration].paths["tflm_decode"]
    found = []
    for subgraph, index in operators:
        table = model.subgraphs[subgraph]
        tensors = encoded_tensors(model, table, (table.operators or [])[index])
        found.append([_instructions(path, decoding_trips([encoded])) for encoded in tensors])
    return found


def _within(
    operators: Sequence[OperatorEstimate], paths: Mapping[str, CountedPath], instructions: int, guessed: int
) -> float:
    """Return the maximum relative error of the total instructions that formulas compute."""

    def error(path: str) -> float:
        if path in FLOAT_PATHS:
            return FLOAT_ERROR
        return max(FORMULA_ERROR, paths[path].largest_error)

    errors = sum((operator.instructions or 0) * error(operator.path) for operator in operators if operator.path)
    return (errors + guessed * (1 + GUESS_ERROR)) / max(instructions, 1)


def _note(
    configuration: Configuration, optimization: str, silicon: Silicon, stand_in_error: float, mhz: float | None
) -> str:
    note = f"int8 kernels compiled with {optimization} by {configuration.compiler}, {configuration.library}"
    if stand_in_error:
        note += f" (another build was counted, which may be {stand_in_error:.0%} off)"
    clock = f" at {mhz:g} MHz" if mhz else ""
    return f"{note}; {silicon.cycles} cycles for each of the table's{clock}, from {silicon.measured}"


def clocked_boards() -> list[str]:
    """Boards with a Cortex-M and a known clock, by name."""
    return [board.name for board in boards().values() if board.mhz is not None]


def _clocked(board: str) -> Board:
    found = by_name(board)
    if found.mhz is None:
        known = ", ".join(clocked_boards())
        raise FirmwareError(f"no timing data for {found.name}; use a board with a Cortex-M: {known}")
    return found


def _counted_name(kernels: Kernels) -> str:
    name = kernels if isinstance(kernels, str) else kernels.name
    return COUNTED_AS.get(name, name)


def _part(target: Any) -> targets.Target:
    return targets.by_name(target) if isinstance(target, str) else targets.require_target(target)


def _optimization(text: str) -> str:
    name = text if text.startswith("-") else f"-{text}"
    if name not in OPTIMIZATIONS:
        raise FirmwareError(f"no timing data for optimization {text!r}; use {' or '.join(OPTIMIZATIONS)}")
    return name


def _counted(part: targets.Target, kernels: str, optimization: str) -> StandIn:
    """The data of a configuration, or of a similar one."""
    extension = next((name for name in ("mve", "dsp") if name in part.extensions), "none")
    wanted = f"{kernels}/{extension}/{optimization}"
    found = STAND_INS.get(wanted, StandIn(wanted))
    if part.name not in SILICON or found.configuration not in coefficients():
        raise FirmwareError(
            f"no timing data for {kernels} on {part.name}; use cmsis-nn or reference on {', '.join(SILICON)}"
        )
    return found


def _formulas(configuration: str) -> Mapping[str, Path]:
    """The formulas, by operator."""
    kernels, extension, _ = configuration.split("/")
    return PATHS["reference" if kernels == "reference" else f"{kernels}/{extension}"]


def _operator(
    model: Model, subgraph: SubGraph, index: int, formulas: Mapping[str, Path], configuration: Configuration
) -> OperatorEstimate:
    operator = (subgraph.operators or [])[index]
    name = model.operator_name(operator)
    count = multiply_accumulates(model, subgraph, operator)
    if name in REGISTRATIONS and REGISTRATIONS[name].only_copies:
        return OperatorEstimate(index, name, "", 0, 0, count)
    guess = _guess(subgraph, operator, name, count)
    if name not in formulas:
        return OperatorEstimate(index, name, "", None, None, count, "no formula for this operator", guess)
    layer = layer_of(model, subgraph, operator)
    if isinstance(layer, str):
        return OperatorEstimate(index, name, "", None, None, count, layer, guess)
    trips = formulas[name](layer)
    if trips is None:
        return OperatorEstimate(index, name, "", None, None, count, "no formula for its shape", guess)
    path = configuration.paths[trips.path]
    cycles = round(sum(path.trips[loop].cycles * times for loop, times in trips.trips.items()))
    return OperatorEstimate(index, name, trips.path, _instructions(path, trips.trips), cycles, count)


def _instructions(path: CountedPath, trips: Mapping[str, int]) -> int:
    return round(sum(path.trips[loop].instructions * times for loop, times in trips.items()))


INSTRUCTIONS_A_PRODUCT = {TensorType.FLOAT32: 90, TensorType.INT8: 8, TensorType.INT16: 18}
INSTRUCTIONS_AN_ELEMENT = {TensorType.FLOAT32: 150, TensorType.INT8: 60, TensorType.INT16: 80}
OTHERWISE = 60
"""Counted instructions per element of operators without a formula, by output type; floats in software."""


FUNCTIONS, FUNCTION_FACTOR = frozenset({"ELU", "EXP", "LOG", "LOGISTIC", "LOG_SOFTMAX", "SOFTMAX", "TANH"}), 8
"""Operators that compute a function of each element, with their relative cost."""


def _guess(subgraph: SubGraph, operator: Operator, name: str, multiply_accumulates: int) -> int:
    """Rough estimate for an operator without a formula, usually within a factor of three."""
    tensors = subgraph.tensors or []
    outputs = [tensors[i] for i in operator.outputs or ()]
    if multiply_accumulates:
        return multiply_accumulates * INSTRUCTIONS_A_PRODUCT.get(outputs[0].type, OTHERWISE)
    inputs = [tensors[i] for i in operator.inputs or () if i >= 0]
    return (FUNCTION_FACTOR if name in FUNCTIONS else 1) * sum(
        max(math.prod(each.shape or ()) for each in (output, *inputs[:1]))
        * INSTRUCTIONS_AN_ELEMENT.get(output.type, OTHERWISE)
        for output in outputs
    )


# --- Operators of models -----------------------------------------------------------------------------------------

WindowOptions = Union[Conv2DOptions, DepthwiseConv2DOptions, Pool2DOptions]


def layer_of(model: Model, subgraph: SubGraph, operator: Operator) -> LoopShape | str:
    """The parameters of an operator's loops, or the reason why there is no formula."""
    tensors = subgraph.tensors or []
    inputs = [tensors[i] for i in operator.inputs or () if i >= 0]
    outputs = [tensors[i] for i in operator.outputs or ()]
    if not inputs or not outputs:
        return "tensors are missing"
    name = model.operator_name(operator)
    if name in CONVERSIONS:
        return _conversion(name, inputs[0], outputs[0])
    if name == TFLM_DECODE.name:
        return _decoded(model, subgraph, operator)
    activations = inputs[:1] if name == "PAD" else inputs[:2]
    if any(tensor.type != TensorType.INT8 for tensor in (*activations, outputs[0])):
        types = sorted({tensor.type.name.lower() for tensor in (*activations, outputs[0])})
        return f"no formula for {', '.join(types)}, only for int8"
    if name == "PAD":
        return _pad(model, inputs, outputs[0])
    if name == "FULLY_CONNECTED" and not _one_symmetric_scale(inputs[1]):
        return "no formula for weights with per-channel scales or a zero point"
    shapes = tuple(tuple(tensor.shape or ()) for tensor in inputs)
    output = tuple(outputs[0].shape or ())
    options = operator.builtin_options
    if isinstance(options, (Conv2DOptions, DepthwiseConv2DOptions, Pool2DOptions)):
        return _windowed(name, shapes, output, options)
    return LoopShape(name, shapes, output)


CONVERSIONS = frozenset({"DEQUANTIZE", "QUANTIZE"})
"""Operators with formulas for other types than int8."""


def _conversion(name: str, source: Tensor, result: Tensor) -> LoopShape | str:
    types = source.type.name.lower(), result.type.name.lower()
    return LoopShape(name, (tuple(source.shape or ()),), tuple(result.shape or ()), types=types)


def _decoded(model: Model, subgraph: SubGraph, operator: Operator) -> LoopShape | str:
    try:
        trips = decoding_trips(encoded_tensors(model, subgraph, operator))
    except OperatorError as error:
        return error.reason
    return LoopShape(TFLM_DECODE.name, (), (), decoding=tuple(trips.items()))


def _pad(model: Model, inputs: Sequence[Tensor], output: Tensor) -> LoopShape | str:
    values = model.constant(inputs[1])
    if values is None:
        return "no formula for paddings that are not constant"
    kind = np.int64 if inputs[1].type == TensorType.INT64 else np.int32
    pairs = tuple((int(before), int(after)) for before, after in np.frombuffer(values, kind).reshape(-1, 2))
    return LoopShape("PAD", (tuple(inputs[0].shape or ()),), tuple(output.shape or ()), paddings=pairs)


def _one_symmetric_scale(weights: Tensor) -> bool:
    quantization = weights.quantization
    if quantization is None:
        return False
    return len(quantization.scale or ()) == 1 and not any(quantization.zero_point or ())


def _windowed(
    name: str, shapes: tuple[tuple[int, ...], ...], output: tuple[int, ...], options: WindowOptions
) -> LoopShape | str:
    if len(shapes[0]) != 4 or len(output) != 4:
        return "no formula for an input without four dimensions"
    if isinstance(options, Pool2DOptions):
        taps, dilations = (options.filter_height, options.filter_width), (1, 1)
    else:
        taps = shapes[1][1], shapes[1][2]
        dilations = options.dilation_h_factor, options.dilation_w_factor
    strides = options.stride_h, options.stride_w
    rows, columns = axes(options.padding, shapes[0][1:3], taps, output[1:3], strides, dilations)
    return LoopShape(name, shapes, output, rows, columns)
