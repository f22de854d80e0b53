"""Random arguments for the engine's kernels, within the limits of their binding functions."""

from __future__ import annotations

import importlib
import itertools
import math
import pkgutil
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

import tflm.delegates.compiled
from tflm.compiler.language import Emitted, Kernel
from tflm.delegates.compiled import (
    arithmetic,
    batch_matmul,
    elementwise,
    fourier,
    gathering,
    images,
    movement,
    normalization,
    plain_products,
    pooling,
    products,
    recurrent,
    reduction,
    signal,
    unary,
    variable_copies,
)
from tflm.delegates.compiled.arithmetic import Factors, Terms
from tflm.delegates.compiled.plain_products import Layer, Windows
from tflm.delegates.compiled.quotients import Division, Roots
from tflm.delegates.compiled.recurrent import Cells, Memory
from tflm.kernels.arithmetic.fixed_point import SIGMOID_TABLE, rounding_divide_by_pot
from tflm.kernels.layers.geometry import Axis
from tflm.kernels.reference.signal.fft import FLOAT32, INT16, INT32, KissFftrConfig
from tflm.kernels.reference.signal.filter_bank import log2_beyond_line

Values = dict[str, Any]
Constants = dict[str, str]

COUNT = 37
"""Elements of arrays, unless a kernel says otherwise."""


def engine_kernels() -> list[Kernel]:
    """Return every kernel of the engine that is written in Python."""
    found: list[Kernel] = []
    for module in pkgutil.iter_modules(tflm.delegates.compiled.__path__):
        names = vars(importlib.import_module(f"tflm.delegates.compiled.{module.name}"))
        of_module = [value for value in names.values() if isinstance(value, Kernel)]
        found += [kernel for kernel in of_module if kernel.function.__module__.endswith("." + module.name)]
    return [kernel for kernel in found if not isinstance(kernel, Emitted)]


# --- Members of families -----------------------------------------------------------------------------------------


def _same(*names: str) -> Callable[[str], Constants]:
    return lambda dtype: dict.fromkeys(names, dtype)


def _functions(names: str, **types: str) -> list[Constants]:
    return [{"function": name, **types} for name in names.split()]


def _transforms(*more: str, **functions: Iterable[str]) -> list[Constants]:
    names = ("times", "part", "turned", "first_turned", "halved", "plus", "x", "y", "roots", "super_twiddles", *more)
    chosen = [dict(zip(functions, each)) for each in itertools.product(*functions.values())]
    return [{**each, **of} for of in chosen for each in map(_same(*names), ("int16", "int32", "float32"))]


def _products() -> list[Constants]:
    def of(sums: str, x: str, weights: str, bias: str) -> Constants:
        limits = "float32" if sums == "float32" else "int32"
        functions = dict.fromkeys(("start", "add", "output"), sums)
        return {**functions, "x": x, "weights": weights, "bias": bias, "limits": limits, "y": x}

    return [
        of("int32", "int8", "int8", "int32"),
        {**of("int32", "int8", "int8", "int32"), "add": "symmetric"},
        of("int64", "int16", "int8", "int64"),
        of("float32", "float32", "float32", "float32"),
    ]


_ALL_FLOAT32 = " ".join(
    [
        "ABS CEIL COS ELU EXP FLOOR HARD_SWISH LOG LOGISTIC NEG ROUND RSQRT SIN SQRT SQUARE TANH",
        "LIBRARY_COS LIBRARY_ELU LIBRARY_EXP LIBRARY_LOG LIBRARY_LOGISTIC LIBRARY_SIN LIBRARY_TANH",
    ]
)

MEMBERS: dict[Kernel, list[Constants]] = {
    arithmetic.combine: [
        {"combination": "ADD", "rounding": "away", "clamp": "int16", **_same("x1", "x2", "y")("int16")},
        {"combination": "SUB", "rounding": "stepwise", "clamp": "limits", **_same("x1", "x2", "y")("int16")},
        {"combination": "SQUARED_DIFFERENCE", "rounding": "left", "clamp": "limits", **_same("x1", "x2", "y")("int8")},
    ],
    arithmetic.combine_linearly: [{"clamp": "int8"}, {"clamp": "limits"}],
    arithmetic.multiply: [
        {"rounding": "away", "clamp": "int8", **_same("x1", "x2", "y")("int8")},
        {"rounding": "stepwise", "clamp": "limits", **_same("x1", "x2", "y")("int16")},
    ],
    batch_matmul.matmul: [
        {"product": dtype, "output": dtype, "x": dtype, "w": dtype, "y": dtype, "sums": sums}
        for dtype, sums in (("float32", "float32"), ("int8", "int32"), ("int16", "int64"))
    ],
    batch_matmul.multiply_matrices: [*map(_same("total", "output", "x", "w", "y"), ("float32", "int8", "int16"))],
    movement.broadcast_shapes: [*map(_same("shape1", "shape2", "y"), ("int32", "int64"))],
    unary.convert: [
        {"x": x, "y": y} for x, y in (("int8", "int32"), ("int32", "int8"), ("int64", "float32"), ("uint8", "int64"))
    ],
    unary.is_not_zero: [{"x": dtype} for dtype in ("float32", "int8", "int64")],
    unary.truncate: [
        *({"truncation": "int32", **_same("y", "highest")(dtype)} for dtype in ("int8", "int32", "uint8")),
        {"truncation": "int64", **_same("y", "highest")("uint32")},
    ],
    elementwise.each: [
        *_functions("WRAPPING_ADD WRAPPING_SUB MAXIMUM", x1="int32", x2="int32", y="int32"),
        *_functions("WRAPPING_ADD WRAPPING_MUL WRAPPING_SQUARED_DIFFERENCE", x1="int64", x2="int64", y="int64"),
        *_functions("DIV FLOOR_MOD PRELU MINIMUM", x1="float32", x2="float32", y="float32"),
        *_functions("LESS EQUAL", x1="float32", x2="float32", y="uint8"),
        *_functions("GREATER_EQUAL NOT_EQUAL", x1="int32", x2="int32", y="uint8"),
    ],
    elementwise.each_within: [
        *_functions("ADD MUL DIV", x1="float32", x2="float32", y="float32", limits="float32"),
        *_functions("WRAPPING_ADD WRAPPING_MUL", x1="int32", x2="int32", y="int32", limits="int32"),
        *_functions("WRAPPING_SUB", x1="int64", x2="int64", y="int64", limits="int64"),
    ],
    elementwise.compare_quantized: _functions("LESS EQUAL"),
    elementwise.prelu_quantized: [*map(_same("x1", "y"), ("int8", "int16"))],
    **{key: [*map(_same("x1", "x2", "y"), ("int8", "float32"))] for key in (elementwise.select, elementwise.blend)},
    fourier.rfft: _transforms(order=fourier.ORDERS, odd=fourier.ODD_STAGES),
    fourier.irfft: _transforms("divided", odd=fourier.ODD_STAGES),
    gathering.interpolate: [
        {"mean": "int8", "x": "int8", "y": "int8", "row_weights": "int32", "column_weights": "int32"},
        dict.fromkeys(("mean", "x", "y", "row_weights", "column_weights"), "float32"),
    ],
    images.fill_image: [{"x": "int8", "image": "int16"}, {"x": "uint8", "image": "uint8"}],
    normalization.log_softmax_float32: [*map(_same("real_exp", "real_log"), ("series", "library"))],
    movement.move_elements: [*map(_same("target", "source"), ("uint8", "int16", "int64", "float32"))],
    movement.fill: [*map(_same("target", "source"), ("uint8", "int16", "int64", "float32"))],
    plain_products.convolve: _products(),
    plain_products.convolve_transposed: _products(),
    pooling.pool: [
        _same("start_at", "combination", "result")(kind) | _same("x", "y")(dtype) | {"limits": limits}
        for kind, dtype, limits in (
            *((kind, dtype, "int32") for kind in ("AVERAGE", "MAX") for dtype in ("int8", "int16")),
            *((kind, "float32", "float32") for kind in ("FLOAT_AVERAGE", "L2", "MAX")),
        )
    ],
    pooling.pool_vectors: [
        {**_same("start_at", "combination")(kind), "result": result, **_same("x", "y")(dtype), "limits": "int32"}
        for kind, result, dtype in (("AVERAGE", "REAL_AVERAGE", "int8"), ("MAX", "MAX", "int16"))
    ],
    products.take_rows: [*map(_same("source", "target"), ("int8", "int16", "float32"))],
    recurrent.lstm_step_float32: [*map(_same("sigmoid_of_gate", "tanh"), ("series", "library"))],
    recurrent.filter_over_time: [
        {"rounding": "away", "clamp": "limits", **_same("newest", "weights", "state")("int16")},
        {"rounding": "stepwise", "clamp": "limits", **_same("newest", "weights", "state")("int8")},
    ],
    recurrent.lstm_step: [
        {"cell_gate": gate, "saturation": gates, "rounding": "away", "output_rounding": output, "clamp": "limits"}
        | {"hidden": dtype}
        for gate, gates, output, dtype in (("tanh", "none", "away", "int8"), ("none", "int16", "stepwise", "int16"))
    ],
    recurrent.svdf_integers: [*map(_same("newest", "weights", "state"), ("int8", "int16"))],
    reduction.sum_integers: [*map(_same("x", "y"), ("int8", "int16"))],
    reduction.combine: [
        {"combination": kind, "result": kind, **_same("x", "y", "ends")(dtype)}
        for kind, dtype in (("greater", "int8"), ("less", "float32"), ("sum", "float32"), ("all", "uint8"))
    ],
    reduction.index_of_extreme: [
        {"better": better, "x": dtype} for better, dtype in (("less", "int8"), ("greater", "float32"))
    ],
    signal.overlap_add: [*map(_same("added", "x", "y", "sums"), ("int16", "float32"))],
    normalization.softmax_float32: [*map(_same("exps"), ("series", "library"))],
    normalization.softmax_int8: [{"y": dtype} for dtype in ("int8", "int16")],
    unary.each: [
        *_functions(_ALL_FLOAT32, x="float32", y="float32"),
        *_functions("LOGICAL_NOT", x="uint8", y="uint8"),
    ],
    unary.clamp: [
        {"bound": bound, **_same("x", "y", "limits")(dtype)}
        for bound in unary.BOUNDS
        for dtype in ("int8", "int64", "float32")
    ],
    unary.look_up: [{"x": "uint8", "table": "int8", "y": "int8"}, {"x": "uint16", "table": "int16", "y": "int16"}],
    unary.refuse_below: [{"x": dtype} for dtype in ("int8", "int16")],
    unary.quantize: [{"y": dtype} for dtype in ("int8", "int16", "int32", "uint8")],
    unary.dequantize: [
        *({"conversion": "float32", "scale": "float32", "x": dtype} for dtype in ("int8", "int16")),
        {"conversion": "float64", "scale": "float64", "x": "int16"},
    ],
    unary.requantize: [{"x": x, "y": y} for x, y in (("int32", "int8"), ("int16", "int16"), ("int16", "int32"))],
    unary.sigmoid_int16: _functions("LOGISTIC TANH"),
    variable_copies.take_mirrored: [
        {"x": x, "y": x, "paddings": p} for x, p in (("int8", "int32"), ("float32", "int64"))
    ],
    variable_copies.set_blocks: [*map(_same("x", "y"), ("int8", "float32"))],
    variable_copies.set_slice: [{"x": x, "y": x, "start": s} for x, s in (("int8", "int32"), ("float32", "int64"))],
    variable_copies.take_blocks: [*map(_same("x", "y", "padding"), ("int8", "float32"))],
    variable_copies.take_reversed: [*map(_same("x", "y"), ("int16", "float32"))],
    variable_copies.take_slice: [
        {"x": x, "y": x, "begin": b, "size": b} for x, b in (("int16", "int32"), ("float32", "int64"))
    ],
}
"""The types and functions that generic kernels are tested with."""


def members() -> Iterator[Kernel]:
    """The kernels that are tested."""
    for kernel in engine_kernels():
        if any(kind.is_generic for kind in kernel.parameters.values()):
            yield from (kernel.of(**constants) for constants in MEMBERS[kernel])
        else:
            yield kernel


def one_member_each() -> Iterator[Kernel]:
    """One member of each kernel, of another type or function from kernel to kernel."""
    of_kernels: dict[object, list[Kernel]] = {}
    for member in members():
        of_kernels.setdefault(member.function, []).append(member)
    return (of_kernel[place % len(of_kernel)] for place, of_kernel in enumerate(of_kernels.values()))


# --- Arguments ---------------------------------------------------------------------------------------------------


def array(rng: np.random.Generator, dtype: str, size: int = COUNT) -> npt.NDArray[Any]:
    """Random elements. Floats have many magnitudes and include NaN and infinities."""
    if dtype.startswith("float"):
        values = rng.standard_normal(size) * 10.0 ** rng.integers(-3, 4, size)
        values[rng.random(size) < 0.05] = rng.choice([np.nan, np.inf, -np.inf, 0.0, -0.0])
        return values.astype(dtype)
    limits = np.iinfo(dtype)
    values = rng.integers(limits.min, limits.max, size, np.dtype(dtype), endpoint=True)
    extremes = rng.random(size) < 0.1
    values[extremes] = rng.choice(np.array([limits.min, limits.max, 0], dtype), int(extremes.sum()))
    return values


def _shifts(rng: np.random.Generator) -> tuple[int, int]:
    shift = int(rng.integers(-20, 8))
    return max(shift, 0), max(-shift, 0)


def number(rng: np.random.Generator, name: str, values: Values) -> int:
    """A random integer for a parameter of this name."""
    suffix = next((name.removeprefix(part) for part in ("left", "right") if name.startswith(part)), None)
    if suffix is not None:
        shifts = values.setdefault(f"shifts{suffix}", _shifts(rng))
        return int(shifts[name.startswith("right")])
    ranges = {
        "significand": (1 << 30, (1 << 31) - 1),
        "zero": (-128, 127),
        "input_zero": (-128, 127),
        "activation_min": (-128, 0),
        "activation_max": (0, 127),
        "count": (COUNT, COUNT),
    }
    key = next((key for key in ranges if name.startswith(key)), "zero")
    return int(rng.integers(*ranges[key], endpoint=True))


def arguments(kernel: Kernel, rng: np.random.Generator) -> Values:
    """Random arguments of a kernel, by name."""
    special = SPECIAL.get(kernel.function_name)
    chosen = {name: str(kernel.constants[name]) for name in kernel.functions}
    dtypes = chosen | {name: kind.dtype for name, kind in kernel.parameters.items() if kind.is_pointer}
    values: Values = {} if special is None else special(rng, dtypes)
    scratch: Values = {}
    for name, kind in kernel.parameters.items():
        if name.partition(".")[0] in values:
            continue
        if kind.is_pointer:
            values[name] = array(rng, kind.dtype)
        else:
            values[name] = number(rng, name, scratch)
    if "limits" in dtypes and (special is None or "limits" not in special(rng, dtypes)):
        values["limits"] = np.sort(array(rng, dtypes["limits"], 2)) if dtypes["limits"] != "float32" else _limits()
    order = dict.fromkeys(name if name in values else name.partition(".")[0] for name in kernel.parameters)
    return {name: values[name] for name in order}


def _limits() -> npt.NDArray[np.float32]:
    return np.array([-1.5, 6], np.float32)


def _matmul(rng: np.random.Generator, dtypes: dict[str, str]) -> Values:
    batches, rows, depth, columns = 2, 3, 4, 5
    sizes = {"batches": batches, "rows": rows, "depth": depth, "columns": columns}
    values: Values = {
        "x": array(rng, dtypes["x"], 2 * rows * depth),
        "w": array(rng, dtypes["w"], 2 * depth * columns),
        "y": array(rng, dtypes["y"], batches * rows * columns),
        "sums": array(rng, dtypes["sums"], columns),
        "places": np.array([1, 0, 0, 1], np.int32),
        **sizes,
    }
    if dtypes["y"] == "int16":
        values |= {"significand": int(rng.integers(1, 1 << 15)), "right": int(rng.integers(1, 30))}
    return values


def _matrices(rng: np.random.Generator, dtypes: dict[str, str]) -> Values:
    """Matrices whose dimensions are swapped, or not."""
    rows, depth, columns = 3, 4, 5
    left, right = _shifts(rng)
    significand = int(rng.integers(1 << 30, 1 << 31))
    if dtypes["y"] == "int16":
        left, right, significand = 0, int(rng.integers(1, 30)), significand >> 16
    x_row, x_step = (depth, 1) if rng.integers(2) else (1, rows)
    w_step, w_column = (columns, 1) if rng.integers(2) else (1, depth)
    x_zero_point, w_zero_point = rng.integers(-128, 128, 2).tolist()
    return {
        "x": array(rng, dtypes["x"], 2 * rows * depth),
        "w": array(rng, dtypes["w"], 2 * depth * columns),
        "y": array(rng, dtypes["y"], 2 * rows * columns),
        "places": np.array([1, 0, 0, 1], np.int32),
        "shape": batch_matmul.Matrices(
            2,
            rows,
            depth,
            columns,
            x_size=rows * depth,
            w_size=depth * columns,
            x_row=x_row,
            x_step=x_step,
            w_column=w_column,
            w_step=w_step,
            x_zero_point=x_zero_point,
            w_zero_point=w_zero_point,
            significand=significand,
            left=left,
            right=right,
            zero_point=7,
        ),
    }


SCALARS = {"int16": INT16, "int32": INT32, "float32": FLOAT32}


def _spectrum(rng: np.random.Generator, dtypes: dict[str, str], *, is_inverse: bool = False) -> Values:
    length = int(rng.choice({"odd": [30, 60, 72, 96], "none": [32, 64, 128]}[dtypes["odd"]]))
    rows, pairs, dtype = 2, length // 2, dtypes["x"]
    config = KissFftrConfig(SCALARS[dtype], pairs, inverse=is_inverse)
    sources = fourier.sources_of(config)
    sizes = [rows * 2 * (pairs + 1), rows * length]
    x, y = sizes if is_inverse else sizes[::-1]
    return {
        "x": rng.integers(-99, 99, x).astype(dtype),
        "y": array(rng, dtype, y),
        "factors": np.array(config.factors[::-1], np.int16),
        "places": np.argsort(sources).astype(np.uint16) if is_inverse else sources,
        "roots": config.twiddles.astype(dtype).reshape(-1),
        "super_twiddles": config.super_twiddles.astype(dtype).reshape(-1),
        "spectrum": fourier.Spectrum(rows, length, pairs + 1, pairs, len(config.factors)),
    }


def _interpolate(rng: np.random.Generator, dtypes: dict[str, str]) -> Values:
    batches, height, width, depth, rows, columns = 2, 3, 4, 2, 5, 6
    kind = dtypes["row_weights"]

    def weights(count: int) -> npt.NDArray[Any]:
        upper = rng.integers(0, 1025, count)
        both = np.concatenate([upper, 1024 - upper])
        return both.astype(kind) / np.float32(1024) if kind == "float32" else both.astype(kind)

    return {
        "x": array(rng, dtypes["x"], batches * height * width * depth),
        "y": array(rng, dtypes["y"], batches * rows * columns * depth),
        "rows": rng.integers(0, height, 2 * rows, np.int32),
        "columns": rng.integers(0, width, 2 * columns, np.int32),
        "row_weights": weights(rows),
        "column_weights": weights(columns),
        "shape": np.array([batches, height, width, depth, rows, columns], np.int32),
    }


def _gather(rng: np.random.Generator, dtypes: dict[str, str]) -> Values:
    batches, outer, size, count, slice_bytes = 2, 3, 4, 5, 6
    outside = int(rng.random() < 0.2)
    return {
        "x": array(rng, "uint8", batches * outer * size * slice_bytes),
        "indices": rng.integers(0, size + outside, batches * count, np.int32),
        "y": array(rng, "uint8", batches * outer * count * slice_bytes),
        "batches": batches,
        "outer": outer,
        "size": size,
        "count": count,
        "slice_bytes": slice_bytes,
    }


def _gather_slices(rng: np.random.Generator, dtypes: dict[str, str]) -> Values:
    count, slice_bytes = 5, 6
    outside = int(rng.random() < 0.2)
    return {
        "x": array(rng, "uint8", 3 * 4 * slice_bytes),
        "indices": rng.integers(0, 3 + outside, 2 * count, np.int32),
        "y": array(rng, "uint8", count * slice_bytes),
        "steps": np.array([4, 1], np.int32),
        "length": 2,
        "size": 3 * 4,
        "count": count,
        "slice_bytes": slice_bytes,
    }


def _dequantize_rows(rng: np.random.Generator, dtypes: dict[str, str]) -> Values:
    indices = rng.integers(0, 4 + int(rng.random() < 0.2), 5, np.int32)
    return {"x": array(rng, "int8", 4 * 7), "indices": indices, "size": 4, "count": 5, "depth": 7}


def _classify(rng: np.random.Generator, dtypes: dict[str, str]) -> Values:
    return {"classes": rng.integers(0, 9 + int(rng.random() < 0.2), 5, np.int32), "size": 9, "count": 5}


def _broadcast(rng: np.random.Generator, dtypes: dict[str, str]) -> Values:
    shape = rng.integers(1, 4, 4)
    shapes = [np.where(rng.random(4) < 0.4, 1, shape).astype(dtypes["y"]) for _ in range(2)]
    rank1 = int(rng.integers(1, 5))
    return {"shape1": shapes[0][-rank1:].copy(), "shape2": shapes[1], "rank1": rank1, "rank2": 4, "rank": 4}


def _cumulation(rng: np.random.Generator, dtypes: dict[str, str]) -> Values:
    exclusive, backwards = (int(number) for number in rng.integers(0, 2, 2))
    return {
        "x": array(rng, dtypes["x"], 24),
        "axis": rng.integers(-3, 4, 1, np.int32),
        "dims": np.array([2, 3, 4], np.int32),
        "rank": 3,
        "is_exclusive": exclusive,
        "is_reversed": backwards,
    }


def _axes(rng: np.random.Generator, dtypes: dict[str, str]) -> Values:
    """Two axes with 8 positions, or others, or one outside."""
    axes = np.array([[0, 2], [-3, 0], [2, -3], [0, 1], [3, 0]][int(rng.integers(5))], np.int32)
    sizes = reduction.Strided(rank=3, axis_count=2, along=8, outputs=3)
    return {"axes": axes, "dims": np.array([2, 3, 4], np.int32), "sizes": sizes}


def _reduction(rng: np.random.Generator, dtypes: dict[str, str]) -> Values:
    """Two axes with 8 positions."""
    axes = np.array([[0, 2], [-3, 2], [0, -1]][int(rng.integers(3))], np.int32)
    sizes = reduction.Strided(rank=3, axis_count=2, along=8, outputs=3)
    values: Values = {"x": array(rng, dtypes["x"], 24), "y": array(rng, dtypes["y"], 3)}
    ends = {"ends": np.array([1, 3], dtypes["ends"])} if "ends" in dtypes else {}
    return values | {"axes": axes, "dims": np.array([2, 3, 4], np.int32), "sizes": sizes} | ends


def _extremes(rng: np.random.Generator, dtypes: dict[str, str]) -> Values:
    """One axis."""
    dimension = int(rng.integers(3))
    outputs = 24 // _DIMS[dimension]
    values: Values = {"x": array(rng, dtypes["x"], 24), "y": array(rng, "int32", outputs), "outputs": outputs}
    axis = np.array([dimension - 3 * int(rng.integers(2))], np.int32)
    return values | {"axis": axis, "dims": np.array(_DIMS, np.int32), "rank": 3}


_DIMS, _STEPS = (2, 3, 4), (12, 4, 1)


def _ends(rng: np.random.Generator, dtypes: dict[str, str], taken: int, made: int) -> Values:
    """Arrays of 2 x 3 x 4 elements, and of others that are copied from there or to there."""
    shape = {"dims": np.array(_DIMS, np.int32), "steps": np.array(_STEPS, np.int32), "rank": 3}
    return {"x": array(rng, dtypes["x"], taken), "y": array(rng, dtypes["y"], made), **shape}


def _take_slice(rng: np.random.Generator, dtypes: dict[str, str]) -> Values:
    begin = np.array([int(rng.integers(0, size)) for size in _DIMS])
    size = np.where(rng.random(3) < 0.3, -1, [int(rng.integers(0, n + 1 - i)) for n, i in zip(_DIMS, begin)])
    count = int(np.prod(np.where(size == -1, np.array(_DIMS) - begin, size))) + int(rng.random() < 0.2)
    ends = _ends(rng, dtypes, 24, 25)
    return {"begin": begin.astype(dtypes["begin"]), "size": size.astype(dtypes["size"]), "count": count, **ends}


def _take_mirrored(rng: np.random.Generator, dtypes: dict[str, str]) -> Values:
    offset = int(rng.integers(0, 2))
    paddings = np.array([rng.integers(0, size + 1 - offset + (rng.random() < 0.05), 2) for size in _DIMS])
    sizes = [int(size + both.sum()) for size, both in zip(_DIMS, paddings)]
    padded = {"paddings": paddings.reshape(-1).astype(dtypes["paddings"]), "sizes": np.array(sizes, np.int32)}
    return {**padded, **_ends(rng, dtypes, 24, math.prod(sizes)), "offset": offset, "rows": sizes[0] * sizes[1]}


def _take_reversed(rng: np.random.Generator, dtypes: dict[str, str]) -> Values:
    axes = [[0], [-1], [0, 1], [2, -2], [0, 2], [1, 1], [3]][int(rng.integers(7))]
    return {"axes": np.array(axes, np.int32), **_ends(rng, dtypes, 24, 24), "count": len(axes), "rows": 6}


def _set_slice(rng: np.random.Generator, dtypes: dict[str, str]) -> Values:
    sizes = np.array([int(rng.integers(1, size + 1)) for size in _DIMS], np.int32)
    start = rng.integers(-2, 6, 3).astype(dtypes["start"])
    ends = _ends(rng, dtypes, int(sizes.prod()), 24)
    return {"start": start, "sizes": sizes, **ends, "rows": int(sizes[0] * sizes[1])}


def _blocks(rng: np.random.Generator, dtypes: dict[str, str]) -> Values:
    """Images of 3 x 4 with a border of one, in blocks of 2 x 3."""
    batches, shape = 6 * 2, np.array([2, 3, 4, 12, 2, 2, 2, 1], np.int32)
    image, blocks = array(rng, dtypes["x"], 2 * 12 * 2), array(rng, dtypes["x"], batches * 4 * 2)
    block = np.array([2, 3] if rng.random() < 0.8 else [0, 3], np.int32)
    x, y = (image, blocks) if "padding" in dtypes else (blocks, image)
    return {"x": x, "y": y, "block": block, "border": np.array([1, 0, 1, 1], np.int32), "shape": shape}


def _boxes(rng: np.random.Generator, dtypes: dict[str, str]) -> Values:
    """Overlapping boxes, with equal scores among them."""
    starts, extents = rng.random((6, 2)), rng.random((6, 2)) + 0.1
    classes, step = 3, 4
    values: Values = {
        "boxes": np.concatenate([starts, starts + extents], axis=1).astype(np.float32).reshape(-1),
        "scores": (rng.integers(0, 8, 6 * step) / 8).astype(np.float32),
        "thresholds": np.array([0.2, 0.4], np.float32),
        "left": array(rng, "uint8", 6),
        "y_boxes": array(rng, "float32", 4 * 8),
        "count": 6,
        "step": step,
        "classes": classes,
        "max_detections": 4,
        "room": int(rng.integers(3, 9)),
    }
    return values | ({"classes_of_box": 2} if "largest" in dtypes else {"max_of_class": 2})


def _encoded_boxes(rng: np.random.Generator, dtypes: dict[str, str]) -> Values:
    scales = np.array([10, 10, 5, 5], np.float64)
    anchors = np.abs(rng.standard_normal(24)).astype(np.float32)
    return {"encodings": rng.standard_normal(30).astype(np.float32), "anchors": anchors, "scales": scales} | {
        "boxes": array(rng, "float32", 24),
        "count": 6,
        "step": 5,
    }


def _log_softmax_int8(rng: np.random.Generator, dtypes: dict[str, str]) -> Values:
    distances = np.arange(256)
    scaled = np.maximum(-distances * (1 << 21), -(1 << 31)).astype(np.int32)
    addends = np.floor(np.exp(-distances / 32) * (1 << 19)).astype(np.int32)
    return {"scaled": scaled, "addends": addends, "rows": 3, "depth": 12}


def _rows(rng: np.random.Generator, dtypes: dict[str, str]) -> Values:
    return {"x": (10 * rng.standard_normal(36)).astype(np.float32), "rows": 3, "depth": 12}


def _fill_image(rng: np.random.Generator, dtypes: dict[str, str]) -> Values:
    copies = int(rng.integers(1, 3))
    shape = (2, 3, 4, 5)
    strides = [60, 20, 5, *(copies * step for step in (90, 30, 5))]
    is_unsigned = dtypes["x"] == "uint8"
    return {
        "x": array(rng, dtypes["x"], 120),
        "image": array(rng, dtypes["image"], 200 * copies),
        "sizes": np.array([*shape, *strides], np.int64),
        "copies": copies,
        "flip": 128 if is_unsigned else 0,
        "zero_point": 0 if is_unsigned else int(rng.integers(-128, 128)),
    }


def _move(rng: np.random.Generator, dtypes: dict[str, str]) -> Values:
    return {"target": array(rng, "uint8"), "source": array(rng, "uint8"), "count": COUNT}


def _move_rows(rng: np.random.Generator, dtypes: dict[str, str]) -> Values:
    steps = {"rows": 3, "target_step": 7, "source_step": 9, "count": 5}
    return {"target": array(rng, "uint8"), "source": array(rng, "uint8"), **steps}


def _move_elements(rng: np.random.Generator, dtypes: dict[str, str]) -> Values:
    sizes, found = rng.integers(1, 4, 6), []
    target = source = 1
    for size in sizes:
        found += [int(size), target, source]
        target, source = target * int(size), (source + int(rng.integers(0, 2))) * int(size)
    return {
        "target": array(rng, dtypes["target"], target),
        "source": array(rng, dtypes["source"], 4 * source),
        "steps": np.array(found, np.int32),
    }


def _convolution(rng: np.random.Generator, dtypes: dict[str, str], *, transposed: bool = False) -> Values:
    depth, groups, group, batches = int(rng.integers(1, 5)), int(rng.integers(1, 3)), int(rng.integers(1, 7)), 2
    groups = 1 if transposed else groups
    x_rows, x_columns, y_rows, y_columns = (int(size) for size in rng.integers(1, 6, 4))
    row_taps, column_taps, row_stride, column_stride = (int(size) for size in rng.integers(1, 4, 4))
    channels, taps = groups * group, row_taps * column_taps
    windows = Windows(
        batches=batches,
        x_rows=x_rows,
        x_columns=x_columns,
        x_step=groups * depth,
        y_rows=y_rows,
        y_columns=y_columns,
        y_step=channels + 1,
        y_channels=channels,
        row_taps=row_taps,
        column_taps=column_taps,
        row_stride=row_stride,
        column_stride=column_stride,
        row_dilation=int(rng.integers(1, 3)),
        column_dilation=int(rng.integers(1, 3)),
        rows_before=int(rng.integers(0, 3)),
        columns_before=int(rng.integers(0, 3)),
    )
    is_float, is_wide = dtypes["x"] == "float32", dtypes["bias"] == "int64"
    zero_points = [int(value) for value in rng.integers(-128, 128, 3)]
    x_zero_point, weights_zero_point, zero_point = [0] * 3 if is_float or is_wide else zero_points
    together = min(channels, 4) if groups == 1 and rng.random() < 0.7 else 1
    steps = taps * depth, depth
    layer = Layer(depth, group, *steps, x_zero_point, weights_zero_point, zero_point, 1, 1, together)
    limits = np.array([-100, 90], np.float32 if is_float else np.int32)
    bias = array(rng, dtypes["bias"], channels) if is_float else rng.integers(-9999, 9999, channels, dtypes["bias"])
    return {
        "windows": windows,
        "layer": layer,
        "x": array(rng, dtypes["x"], batches * x_rows * x_columns * groups * depth),
        "weights": array(rng, dtypes["weights"], channels * taps * depth),
        "bias": bias,
        "significands": rng.integers(1 << 30, (1 << 31) - 1, channels, np.int32) >> (16 if is_wide else 0),
        "shifts": rng.integers(5, 40, channels, np.int8) if is_wide else rng.integers(-20, 5, channels, np.int8),
        "limits": limits,
        "y": array(rng, dtypes["y"], batches * y_rows * y_columns * (channels + 1)),
    }


def _pooling(rng: np.random.Generator, dtypes: dict[str, str]) -> Values:
    rows, columns, channels = 5, 4, int(rng.integers(1, 8))
    axes = Axis(rows, 3, 3, 2, before=1), Axis(columns, 2, 3, 1, before=0)
    return {
        "x": array(rng, dtypes["x"], rows * columns * channels),
        "y": array(rng, dtypes["y"], 9 * channels),
        "limits": _limits() if dtypes["limits"] == "float32" else np.array([-100, 90], np.int32),
        "pools": pooling.pools_of(np.zeros((1, rows, columns, channels), np.int8), *axes),
    }


def _take_rows(rng: np.random.Generator, dtypes: dict[str, str]) -> Values:
    places = rng.integers(0, 7, 4, np.int32)
    return {"source": array(rng, dtypes["source"], 35), "places": places, "count": 4, "size": 5} | {
        "target": array(rng, dtypes["source"], 20)
    }


def _lstm(rng: np.random.Generator, dtypes: dict[str, str]) -> Values:
    batches, units = 2, 5
    gates = 4 * batches * units
    kind = "float32" if "clip" in dtypes else "int16"
    values: Values = {name: array(rng, kind, gates) for name in ("from_input", "from_hidden")}
    values |= {name: array(rng, dtypes[name], batches * units) for name in ("hidden", "cell")}
    values |= {"batches": batches, "units": units}
    if kind == "float32":
        return values | {"clip": np.array([2.5], np.float32), "is_tanh": int(rng.integers(0, 2))}
    del values["batches"], values["units"]
    constants = {
        f"{name}_{part}": value
        for name in ("forget", "update", "output")
        for part, value in (("significand", int(rng.integers(1 << 30, 1 << 31))), ("addend", 1 << 13), ("shift", 14))
    }
    cell = {"cell_min": -30000, "cell_max": 29999, "factor": 3 << int(rng.integers(0, 12)), "half": 4, "right": 3}
    limits = {"hidden_min": -128, "hidden_max": 127}
    return values | {
        "table": SIGMOID_TABLE.astype(np.uint16),
        "cells": Cells(batches=batches, units=units, **constants, **cell, **limits),
    }


def _svdf(rng: np.random.Generator, dtypes: dict[str, str]) -> Values:
    batches, units, rank, memory = 2, 3, 2, 4
    sizes = {"batches": batches, "units": units, "rank": rank, "memory": memory}
    counts = {
        "newest": batches * units * rank,
        "weights": units * rank * memory,
        "bias": units,
        "state": batches * units * rank * memory,
        "y": batches * units,
    }
    values: Values = {name: array(rng, dtypes[name], count) for name, count in counts.items() if name in dtypes}
    if "table" in dtypes:
        fields = {"batches": batches, "units": units, "rank": rank, "size": memory, "zero_point": 3}
        table = [[int(rng.integers(-999, 999)), int(rng.integers(1 << 30, 1 << 31)), 1 << 7, 8] for _ in range(units)]
        values["table"] = np.array(table, np.int32).reshape(-1)
        return values | {"memory": Memory(**fields, activation_min=-128, activation_max=int(rng.integers(0, 128)))}
    if "limits" in dtypes:
        values["limits"] = np.array([0, 6, 0], np.float32)
    return values | sizes


def _samples(rng: np.random.Generator, dtypes: dict[str, str]) -> Values:
    return {"frames": 3, "length": 5, "shift": int(rng.integers(0, 15)), "weights": array(rng, "int16", 5)}


def _filter_bank(rng: np.random.Generator, dtypes: dict[str, str]) -> Values:
    """Bands of 19 values, sometimes with one that is outside."""
    numbers = {name: rng.integers(0, 12, 4).astype(np.int16) for name in ("starts", "weight_starts")}
    widths = rng.integers(-1, 8 + int(rng.random() < 0.3), 4).astype(np.int16)
    y = array(rng, "int64", 3)
    return {**numbers, "widths": widths, "y": y, "bands": signal.Bands(channels=3, checked=4, values=19, weights=19)}


def _subtraction(rng: np.random.Generator, dtypes: dict[str, str]) -> Values:
    return {
        "factors": rng.integers(0, 1 << 14, 5).astype(np.uint32),
        "smoothing_bits": int(rng.integers(0, 12)),
        "fractional_bits": 14,
        "clamping": int(rng.integers(0, 2)),
    }


def _gain(rng: np.random.Generator, dtypes: dict[str, str]) -> Values:
    largest = (1 << 31) - 1 if rng.random() < 0.8 else (1 << 20)
    noise = rng.integers(0, 1 << int(rng.integers(1, 31)), COUNT).astype(np.uint32)
    gains = rng.integers(-(1 << 13), 1 << 13, 200, np.int16)
    return {"noise": noise, "gains": gains, "largest": largest, "shift": int(rng.integers(0, 20))}


def _logarithm(rng: np.random.Generator, dtypes: dict[str, str]) -> Values:
    return {"beyond_line": log2_beyond_line().astype(np.int32), "shift": int(rng.integers(0, 8)), "scale": 1600}


def _queue(rng: np.random.Generator, capacity: int) -> Values:
    state = np.array([rng.integers(0, capacity), 0], np.int32)
    return {"samples": array(rng, "int16", capacity), "state": state, "capacity": capacity}


def _delay(rng: np.random.Generator, dtypes: dict[str, str]) -> Values:
    values = _queue(rng, 21)
    values["state"][1] = 8
    return {**values, "count": 13}


def _frame(rng: np.random.Generator, dtypes: dict[str, str]) -> Values:
    return {**_queue(rng, 12), "frames": 3, "size": 8, "step": 4, "is_first": int(rng.integers(0, 2))}


def _stack(rng: np.random.Generator, dtypes: dict[str, str]) -> Values:
    repeats = np.array([rng.integers(1, 4)], np.int32)
    return {**_queue(rng, 20), "repeats": repeats, "channels": 4, "size": 12, "step": 4}


def _overlap(rng: np.random.Generator, dtypes: dict[str, str]) -> Values:
    return {"frames": 3, "size": 8, "step": 4, "sums": array(rng, dtypes["sums"], 8)}


def _softmax_int8(rng: np.random.Generator, dtypes: dict[str, str]) -> Values:
    exps = np.floor(np.exp(-np.arange(256) * 0.05) * ((1 << 31) - 1)).astype(np.int32)
    bits = 8 if dtypes["y"] == "int8" else 16
    return {
        "exps": exps,
        "addends": rounding_divide_by_pot(exps, 12).astype(np.int32),
        "rows": 3,
        "depth": 12,
        "largest_sum": normalization.LARGEST_SUMS[bits],
        "bits": bits,
    }


def _softmax_int16(rng: np.random.Generator, dtypes: dict[str, str]) -> Values:
    numbers = np.arange(513) / 512
    tables = {"exps": np.exp(10 * (numbers - 1)), "inverses": 1 / (1 + numbers)}
    return {name: np.floor(32767 * table).astype(np.int16) for name, table in tables.items()} | {"rows": 3, "depth": 12}


def _look_up(rng: np.random.Generator, dtypes: dict[str, str]) -> Values:
    return {"table": array(rng, dtypes["table"], 1 << (16 if dtypes["x"] == "uint16" else 8))}


INT32_EDGES = [-(1 << 31), 1 - (1 << 31), -1000, -3, -1, 1, 2, 999, (1 << 31) - 2, (1 << 31) - 1]


def _division(rng: np.random.Generator, dtypes: dict[str, str]) -> Values:
    fields = {"shift": -20, "zero_point1": 3, "zero_point2": -128, "zero_point": 7, **_requantization(rng)}
    if dtypes["x1"] == "int8":
        return {"division": Division(**fields)}
    fields |= {"step1": 1, "step2": 1, "activation_min": -(1 << 31), "activation_max": (1 << 31) - 1}
    edges = rng.choice(INT32_EDGES, (2, COUNT)).astype(np.int32)
    return {"x1": edges[0], "x2": edges[1], "division": Division(**fields)}


def _roots(rng: np.random.Generator, dtypes: dict[str, str]) -> Values:
    limits = {"activation_min": -32768, "activation_max": 32767}
    shifts = {"left": 0, "right": int(rng.integers(0, 12)), "significand": int(rng.integers(1 << 30, 1 << 31))}
    x = rng.integers(0, 32768, COUNT).astype(np.int16)
    return {"x": x, "roots": Roots(size=COUNT, zero_point=0, output_zero_point=-5, **shifts, **limits)}


def _turns(rng: np.random.Generator, dtypes: dict[str, str]) -> Values:
    cycles = np.array([rng.integers(1, 3), 2], np.int32)
    return {
        "buffer": array(rng, "uint8", 20),
        "newest": array(rng, "uint8", 5),
        "buffer_bytes": 20,
        "newest_bytes": 5,
        "cycles": cycles,
    }


def _requantization(rng: np.random.Generator) -> dict[str, int]:
    """A significand, limits of the output, and the steps of two inputs."""
    limits = {"activation_min": -128, "activation_max": int(rng.integers(0, 128))}
    significand = int(rng.integers(1 << 30, 1 << 31))
    return {"size": COUNT, "step1": 1, "step2": int(rng.integers(0, 2)), "significand": significand, **limits}


ROUNDING = {"addend": 1 << 12, "shift": 13}


def _terms(rng: np.random.Generator, dtypes: dict[str, str]) -> Values:
    multipliers = {f"significand{i}": int(rng.integers(1 << 30, 1 << 31)) for i in (1, 2)}
    rights = {"right1": 0, "right2": int(rng.integers(0, 4))}
    return {
        "terms": Terms(
            zero_point1=-3, zero_point2=7, left=7, **multipliers, **rights, **ROUNDING, **_requantization(rng)
        )
    }


def _factors(rng: np.random.Generator, dtypes: dict[str, str]) -> Values:
    zero_points = {f"zero_point{i}": int(rng.integers(-128, 128)) if dtypes["x1"] == "int8" else 0 for i in (1, 2)}
    return {"factors": Factors(**zero_points, **ROUNDING, **_requantization(rng))}


def _line(rng: np.random.Generator, dtypes: dict[str, str]) -> Values:
    factors = rng.integers(-(1 << 19), 1 << 19, 3)
    return {"line": np.array([*factors, 19, -100, 120], np.int32), "size": COUNT}


def _sigmoid(rng: np.random.Generator, dtypes: dict[str, str]) -> Values:
    shift = int(rng.choice([0, rng.integers(1, 31), 31]))
    return {"table": SIGMOID_TABLE.astype(np.uint16), "factor": int(rng.integers(1, 32768)), "shift": shift}


def _dequantize(rng: np.random.Generator, dtypes: dict[str, str]) -> Values:
    return {"scale": rng.random(1).astype(dtypes["scale"])}


def _truncate(rng: np.random.Generator, dtypes: dict[str, str]) -> Values:
    info = np.iinfo(dtypes["y"])
    ends = np.array([info.min, info.max + 1], np.float32)
    special = [*ends, *np.nextafter(ends, np.float32(0)), -0.5, 0.5, np.nan, np.inf, -np.inf]
    x = np.concatenate([special, rng.normal(0, info.max, 12)]).astype(np.float32)
    y, highest = np.zeros(x.size, info.dtype), np.array([info.max], info.dtype)
    return {"x": x, "y": y, "limits": ends, "highest": highest, "count": x.size}


def _quantize(rng: np.random.Generator, dtypes: dict[str, str]) -> Values:
    limits = np.iinfo(dtypes["y"])
    return {"activation_min": int(limits.min), "activation_max": int(limits.max)}


SPECIAL: dict[str, Callable[[np.random.Generator, dict[str, str]], Values]] = {
    f"delegates.compiled.{name}": values
    for name, values in {
        "arithmetic.combine": _terms,
        "arithmetic.combine_linearly": _line,
        "arithmetic.multiply": _factors,
        "batch_matmul.matmul": _matmul,
        "batch_matmul.multiply_matrices": _matrices,
        "movement.broadcast_shapes": _broadcast,
        "unary.truncate": _truncate,
        "custom.classify": _classify,
        "reduction.add_up_float32": _cumulation,
        "reduction.add_up_int8": _cumulation,
        "custom.decode_boxes": _encoded_boxes,
        "custom.select_boxes": _boxes,
        "custom.select_boxes_of_classes": _boxes,
        "elementwise.accumulate": lambda rng, dtypes: {"addends": array(rng, "int64", 256) >> 34, "is_first": 0},
        "fourier.irfft": partial(_spectrum, is_inverse=True),
        "fourier.rfft": _spectrum,
        "gathering.dequantize_rows": _dequantize_rows,
        "gathering.gather": _gather,
        "gathering.gather_slices": _gather_slices,
        "gathering.interpolate": _interpolate,
        "images.fill_image": _fill_image,
        "normalization.log_softmax_float32": _rows,
        "normalization.log_softmax_int8": _log_softmax_int8,
        "movement.move": _move,
        "movement.fill": lambda rng, dtypes: {"rows": 3, "target_step": 7, "source_step": 2, "count": 5},
        "movement.move_elements": _move_elements,
        "movement.move_rows": _move_rows,
        "normalization.normalize_float32": _rows,
        "normalization.normalize_int8": lambda rng, dtypes: {"rows": 3, "depth": 12},
        "plain_products.convolve": _convolution,
        "plain_products.convolve_transposed": lambda rng, dtypes: _convolution(rng, dtypes, transposed=True),
        "pooling.pool": _pooling,
        "pooling.pool_vectors": _pooling,
        "products.take_rows": _take_rows,
        "products.refuse_nans": lambda rng, dtypes: {"y": rng.choice(np.array([1, np.nan], np.float32), COUNT)},
        "quotients.divide_int32": _division,
        "quotients.divide_int8": _division,
        "quotients.rsqrt_int16": _roots,
        "recurrent.lstm_step_float32": _lstm,
        "recurrent.filter_over_time": _svdf,
        "recurrent.lstm_step": _lstm,
        "recurrent.svdf_float32": _svdf,
        "recurrent.svdf_integers": _svdf,
        "reduction.check_axes": _axes,
        "reduction.combine": _reduction,
        "reduction.index_of_extreme": _extremes,
        "reduction.sum_integers": _reduction,
        "signal.automatic_gain": _gain,
        "signal.delay": _delay,
        "signal.energy": lambda rng, dtypes: {"x": array(rng, "int16", 2 * COUNT)},
        "signal.filter_bank": _filter_bank,
        "signal.frame": _frame,
        "signal.logarithm": _logarithm,
        "signal.overlap_add": _overlap,
        "signal.spectral_subtraction": _subtraction,
        "signal.stack": _stack,
        "signal.window": _samples,
        "normalization.softmax_float32": _rows,
        "normalization.softmax_int16": _softmax_int16,
        "normalization.softmax_int8": _softmax_int8,
        "state.take_turns": _turns,
        "unary.look_up": _look_up,
        "unary.dequantize": _dequantize,
        "unary.quantize": _quantize,
        "unary.sigmoid_int16": _sigmoid,
        "variable_copies.set_blocks": _blocks,
        "variable_copies.set_slice": _set_slice,
        "variable_copies.take_blocks": _blocks,
        "variable_copies.take_mirrored": _take_mirrored,
        "variable_copies.take_reversed": _take_reversed,
        "variable_copies.take_slice": _take_slice,
    }.items()
}
"""By kernel: the arguments that depend on each other; the others are drawn by name and type."""
