"""Nodes of TensorFlow's operators with inputs, by family; `tools/flex_answers.py` records TensorFlow's results."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


class Case(NamedTuple):
    """An operator with attributes of its NodeDef and inputs; a list of arrays is an input of several."""

    operator: str
    attributes: dict[str, Any]
    inputs: list[Any]


ONE_OUTPUT = {"Svd", "SelfAdjointEigV2"}
"""Only the first output is recorded: vectors have a sign that nothing defines."""

F32, F64, C64 = np.float32, np.float64, np.complex64
I8, I16, I32, I64, U8 = np.int8, np.int16, np.int32, np.int64, np.uint8


def values(shape: tuple[int, ...], dtype: Any = F32, low: float = -4, high: float = 4, seed: int = 0) -> Array:
    """Random numbers in a range."""
    rng = np.random.default_rng([seed, *shape])
    if np.dtype(dtype).kind == "c":
        return (rng.uniform(low, high, shape) + 1j * rng.uniform(low, high, shape)).astype(dtype)
    if np.dtype(dtype).kind == "f":
        return rng.uniform(low, high, shape).astype(dtype)
    if np.dtype(dtype).kind == "b":
        return rng.integers(0, 2, shape).astype(bool)
    return rng.integers(max(low, np.iinfo(dtype).min), high, shape, endpoint=True).astype(dtype)


def cases() -> list[Case]:
    """All of them."""
    made = [
        *_unary(),
        *_binary(),
        *_gradients(),
        *_reductions(),
        *_segments(),
        *_shapes(),
        *_indices(),
        *_matrices(),
        *_spectra(),
        *_images(),
        *_windows(),
        *_neural(),
        *_quantization(),
    ]
    return [Case(*case) if isinstance(case, tuple) else case for case in made]


def _unary() -> Iterator[Any]:
    reals = (
        "Abs Atan Ceil Cos Cosh Elu Erf Erfc Exp Expm1 Floor IsFinite IsInf IsNan Neg OnesLike Relu Relu6 Rint Round "
        "Selu Sigmoid Sign Sin Sinh Softplus Softsign Square Tan Tanh ZerosLike Identity StopGradient Asinh"
    )
    for name in reals.split():
        yield name, {}, [values((3, 5))]
    for name in ["Acosh", "Digamma", "Lgamma", "Log", "Log1p", "Rsqrt", "Sqrt", "Inv", "Reciprocal"]:
        yield name, {}, [values((7,), low=1.1, high=9)]
    for name in ["Acos", "Asin", "Atanh"]:
        yield name, {}, [values((7,), low=-0.9, high=0.9)]
    for name in ["Abs", "Neg", "Sign", "Square", "Relu"]:
        yield name, {}, [values((2, 4), I32)]
    for name in ["Conj", "Exp", "Sin", "Cos", "Square", "Neg", "Sigmoid", "Tanh", "Sign", "Inv"]:
        yield name, {}, [values((2, 3), C64, -2, 2)]
    for name in ["ComplexAbs", "Real", "Imag", "Angle"]:
        yield name, {}, [values((2, 3), C64)]
    for dtype in (I8, U8, I16, I32, I64):
        yield "Invert", {}, [values((6,), dtype, -100, 100)]
        yield "PopulationCount", {}, [values((6,), dtype, -100, 100)]
    yield "LogicalNot", {}, [values((6,), bool)]
    for target in (I32, U8, bool, F64, C64):
        yield "Cast", {"DstT": np.dtype(target)}, [values((6,), low=0.5)]
    yield "Cast", {"DstT": np.dtype(F32)}, [values((6,), C64)]
    yield "Bitcast", {"type": np.dtype(I32)}, [values((2, 3))]
    yield "Bitcast", {"type": np.dtype(I16)}, [values((2, 3))]
    yield "Bitcast", {"type": np.dtype(I32)}, [values((3, 2), I16, -99, 99)]
    yield "Bucketize", {"boundaries": [-1.0, 0.0, 2.5]}, [values((2, 5))]
    yield "CheckNumerics", {"message": b"m"}, [values((4,))]
    yield "LeakyRelu", {"alpha": 0.1}, [values((2, 5))]


def _binary() -> Iterator[Any]:
    floats = (
        "Add AddV2 Atan2 Div DivNoNan FloorDiv FloorMod Greater GreaterEqual Less LessEqual Maximum Minimum Mod Mul "
        "MulNoNan RealDiv SquaredDifference Sub"
    )
    for name in floats.split():
        yield name, {}, [values((2, 1, 4)), values((3, 4), seed=1)]
    for name in ["Pow", "Xdivy", "Xlogy", "Xlog1py"]:
        yield name, {}, [values((2, 4), low=0.1), values((4,), low=0.1, seed=1)]
    for name in ["DivNoNan", "MulNoNan", "Xdivy", "Xlogy"]:
        yield name, {}, [np.array([0, 0, 2, 3], F32), np.array([0, 5, 0, 4], F32)]
    divisor = np.array([3, -2, 7, -5, 1, -1], I32)
    for name in ["Div", "FloorDiv", "FloorMod", "TruncateDiv", "Mod"]:
        yield name, {}, [np.array([7, 7, -8, -9, 5, -6], I32), divisor]
    for name in ["Add", "Mul", "Sub", "Maximum", "SquaredDifference", "Less", "Pow"]:
        yield name, {}, [values((5,), I32), values((5,), I32, 0, 4, seed=1)]
    for name in ["BitwiseAnd", "BitwiseOr", "BitwiseXor"]:
        for dtype in (I8, U8, I32, I64):
            yield name, {}, [values((2, 4), dtype, 0, 99), values((4,), dtype, 0, 99, seed=1)]
    for name in ["LeftShift", "RightShift"]:
        for dtype in (I8, I32):
            yield name, {}, [values((6,), dtype, -99, 99), np.array([0, 1, 3, 6, 5, 2], dtype)]
    for name in ["LogicalAnd", "LogicalOr"]:
        yield name, {}, [values((6,), bool), values((6,), bool, seed=1)]
    for name in ["Equal", "NotEqual"]:
        yield name, {"incompatible_shape_error": True}, [values((9,), I32, 0, 2), values((9,), I32, 0, 2, seed=1)]
    yield "ApproximateEqual", {"tolerance": 0.5}, [values((9,), low=0), values((9,), low=0, seed=1)]
    for name in ["Add", "Mul", "Sub", "RealDiv", "Pow"]:
        yield name, {}, [values((4,), C64, 1, 2), values((4,), C64, 1, 2, seed=1)]
    yield "Complex", {"Tout": np.dtype(C64)}, [values((4,)), values((4,), seed=1)]
    yield "AddN", {}, [[values((2, 3)), values((2, 3), seed=1), values((2, 3), seed=2)]]
    yield "Select", {}, [values((3,), bool), values((3, 2)), values((3, 2), seed=1)]
    yield "SelectV2", {}, [values((3, 1), bool), values((2,)), values((3, 2), seed=1)]


def _gradients() -> Iterator[Any]:
    for name in ["EluGrad", "Relu6Grad", "ReluGrad", "SeluGrad", "SoftplusGrad", "SoftsignGrad"]:
        yield name, {}, [values((9,)), values((9,), low=-1.5, high=7, seed=1)]
    for name in ["InvGrad", "ReciprocalGrad", "RsqrtGrad", "SigmoidGrad", "SqrtGrad", "TanhGrad"]:
        yield name, {}, [values((9,), low=0.1, high=0.9), values((9,), seed=1)]
        yield name, {}, [values((4,), C64, 0.1, 0.9), values((4,), C64, seed=1)]
    yield "LeakyReluGrad", {"alpha": 0.3}, [values((9,)), values((9,), seed=1)]


def _reductions() -> Iterator[Any]:
    axes = [np.array([1], I32), np.array([0, -1], I32), np.array([], I32)]
    for name, axis, keep in itertools.product(("Sum", "Prod", "Max", "Min", "Mean"), axes, (False, True)):
        yield name, {"keep_dims": keep}, [values((2, 3, 4)), axis]
    for name in ("Sum", "Prod", "Max", "Min", "Mean"):
        yield name, {"keep_dims": False}, [values((2, 5), I32, -9, 9), axes[0]]
    for name in ("Sum", "Mean", "Prod"):
        yield name, {"keep_dims": False}, [values((2, 5), C64), axes[0]]
    yield "EuclideanNorm", {"keep_dims": False}, [values((2, 5)), axes[0]]
    for name in ("All", "Any"):
        yield name, {"keep_dims": True}, [values((5, 3), bool), axes[0]]
    for name, output in itertools.product(("ArgMax", "ArgMin"), (I32, I64)):
        yield name, {"output_type": np.dtype(output)}, [values((4, 6)), np.array(1, I32)]
    for name, exclusive, reverse in itertools.product(
        ("Cumsum", "Cumprod", "CumulativeLogsumexp"), (False, True), (False, True)
    ):
        yield name, {"exclusive": exclusive, "reverse": reverse}, [values((3, 4), low=0.5), np.array(-1, I32)]
    yield "Cumsum", {}, [values((3, 4), I32), np.array(0, I32)]
    yield "TopKV2", {"sorted": True}, [np.array([[3, 1, 4, 1, 5, 9], [2, 6, 5, 3, 5, 8]], F32), np.array(4, I32)]
    yield "InTopKV2", {}, [values((4, 5)), np.array([0, 4, 2, 9], I32), np.array(2, I32)]
    yield "InTopK", {"k": 3}, [values((4, 5)), np.array([0, 4, 2, 1], I32)]
    yield "Bincount", {}, [np.array([1, 2, 2, 7], I32), np.array(5, I32), np.array([0.5, 1, 2, 3], F32)]
    yield "DenseBincount", {}, [np.array([[1, 2, 2], [0, 0, 4]], I32), np.array(5, I32), np.zeros((0,), F32)]
    yield "DenseBincount", {"binary_output": True}, [np.array([1, 2, 2, 9], I32), np.array(5, I32), np.zeros((0,), F32)]
    yield "Where", {}, [values((3, 4), bool)]
    yield "Unique", {}, [np.array([4, 1, 4, 2, 1], I32)]
    yield "UniqueWithCounts", {}, [np.array([4, 1, 4, 2, 1], I32)]
    yield "UniqueV2", {}, [np.array([4, 1, 4, 2, 1], I32), np.array([0], I32)]
    yield "ListDiff", {}, [np.array([4, 1, 5, 2, 1], I32), np.array([1, 2], I32)]


def _segments() -> Iterator[Any]:
    ids = np.array([0, 0, 2, 3, 3], I32)
    for name in ("Max", "Min", "Prod", "Sum", "Mean"):
        yield f"Segment{name}", {}, [values((5, 2)), ids]
    unsorted = np.array([3, 0, -1, 3, 1], I32)
    for name in ("Max", "Min", "Prod", "Sum"):
        yield f"UnsortedSegment{name}", {}, [values((5, 2)), unsorted, np.array(5, I32)]
        yield f"UnsortedSegment{name}", {}, [values((5, 2), I32), unsorted, np.array(5, I32)]
    for name in ("Sum", "Mean", "SqrtN"):
        given = [values((4, 3)), np.array([0, 3, 2], I32), np.array([0, 0, 2], I32)]
        yield f"SparseSegment{name}", {}, given
        yield f"SparseSegment{name}WithNumSegments", {}, [*given, np.array(4, I32)]
        yield f"SparseSegment{name}Grad", {}, [values((3, 3)), *given[1:], np.array(5, I32)]


def _shapes() -> Iterator[Any]:
    x = values((2, 3, 4))
    yield "Reshape", {}, [x, np.array([4, -1], I32)]
    yield "ExpandDims", {}, [x, np.array(-1, I32)]
    yield "Squeeze", {"squeeze_dims": [1]}, [values((2, 1, 3, 1))]
    yield "Squeeze", {}, [values((2, 1, 3, 1))]
    for output in (I32, I64):
        yield "Shape", {"out_type": np.dtype(output)}, [x]
        yield "Size", {"out_type": np.dtype(output)}, [x]
    yield "Rank", {}, [x]
    yield "Fill", {}, [np.array([2, 3], I32), np.array(1.5, F32)]
    yield "Range", {}, [np.array(1, I32), np.array(10, I32), np.array(3, I32)]
    yield "Range", {}, [np.array(1, F32), np.array(-1, F32), np.array(-0.5, F32)]
    yield "LinSpace", {}, [np.array(1, F32), np.array(2, F32), np.array(5, I32)]
    yield "Tile", {}, [x, np.array([1, 2, 3], I32)]
    yield "BroadcastTo", {}, [values((3, 1)), np.array([2, 3, 4], I32)]
    yield "BroadcastArgs", {}, [np.array([3, 1], I32), np.array([2, 1, 4], I32)]
    yield "ConcatV2", {}, [[x, values((2, 1, 4))], np.array(1, I32)]
    yield "Split", {"num_split": 2}, [np.array(2, I32), x]
    yield "SplitV", {"num_split": 3}, [values((6, 2)), np.array([1, -1, 2], I32), np.array(0, I32)]
    yield "Pack", {"axis": 1}, [[values((2, 3)), values((2, 3), seed=1)]]
    yield "Unpack", {"axis": 1, "num": 3}, [x]
    yield "Slice", {}, [x, np.array([0, 1, 1], I32), np.array([1, -1, 2], I32)]
    bounds = [np.array([0, 2], I32), np.array([2, 0], I32), np.array([1, -1], I32)]
    yield "StridedSlice", {"begin_mask": 1, "end_mask": 2}, [x, *bounds]
    yield "StridedSlice", {"ellipsis_mask": 1, "shrink_axis_mask": 2}, [x, *bounds[:2], np.array([1, 1], I32)]
    yield "StridedSlice", {"new_axis_mask": 1}, [x, *(np.array([v], I32) for v in (0, 1, 1))]
    yield "Transpose", {}, [x, np.array([2, 0, 1], I32)]
    yield "ConjugateTranspose", {}, [values((2, 3), C64), np.array([1, 0], I32)]
    yield "InvertPermutation", {}, [np.array([2, 0, 3, 1], I32)]
    yield "Reverse", {}, [x, np.array([True, False, True])]
    yield "ReverseV2", {}, [x, np.array([-1], I32)]
    yield "ReverseSequence", {"seq_dim": 1, "batch_dim": 0}, [x, np.array([2, 3], I32)]
    yield "Roll", {}, [x, np.array([1, -2], I32), np.array([0, 2], I32)]
    yield "DataFormatDimMap", {}, [np.array([0, 1, 2, 3], I32)]
    yield "DataFormatVecPermute", {}, [np.array([7, 4, 9, 3], I32)]
    yield "Pad", {}, [values((2, 3)), np.array([[1, 0], [2, 1]], I32)]
    yield "PadV2", {}, [values((2, 3)), np.array([[1, 0], [2, 1]], I32), np.array(9, F32)]
    for mode in (b"REFLECT", b"SYMMETRIC"):
        yield "MirrorPad", {"mode": mode}, [values((2, 3)), np.array([[1, 0], [2, 1]], I32)]
    yield "SpaceToBatchND", {}, [values((2, 3, 4, 2)), np.array([2, 2], I32), np.array([[1, 0], [0, 0]], I32)]
    yield "BatchToSpaceND", {}, [values((4, 2, 3, 2)), np.array([2, 2], I32), np.array([[0, 1], [1, 0]], I32)]
    yield "SpaceToDepth", {"block_size": 2}, [values((1, 4, 6, 3))]
    yield "DepthToSpace", {"block_size": 2}, [values((1, 2, 3, 12))]


def _indices() -> Iterator[Any]:
    x = values((4, 3, 2))
    yield "Gather", {}, [x, np.array([[0, 3]], I32)]
    yield "GatherV2", {"batch_dims": 0}, [x, np.array([[0, 2]], I32), np.array(1, I32)]
    yield "GatherV2", {"batch_dims": 1}, [x, np.array([[0, 2], [1, 1], [2, 0], [0, 0]], I32), np.array(1, I32)]
    yield "GatherNd", {}, [x, np.array([[0, 2], [3, 1]], I32)]
    yield "ScatterNd", {}, [np.array([[1], [3], [1]], I32), values((3, 2)), np.array([5, 2], I32)]
    for name in ("Add", "Sub", "Max", "Min"):
        yield f"TensorScatter{name}", {}, [values((5, 2)), np.array([[1], [3], [1]], I32), values((3, 2), seed=1)]
    yield "TensorScatterUpdate", {}, [values((5, 2)), np.array([[1], [3]], I32), values((2, 2), seed=1)]
    yield "DynamicStitch", {}, [[np.array([0, 2], I32), np.array([1], I32)], [values((2, 3)), values((1, 3))]]
    yield "DynamicPartition", {"num_partitions": 2}, [values((4, 2)), np.array([0, 1, 1, 0], I32)]
    for axis in (-1, 0):
        inputs = [np.array([[0, 2], [9, -1]], I32), np.array(3, I32), np.array(5, F32), np.array(-1, F32)]
        yield "OneHot", {"axis": axis}, inputs
    yield "Diag", {}, [values((2, 3))]
    yield "DiagPart", {}, [values((2, 3, 2, 3))]


def _positive(shape: tuple[int, ...], dtype: Any = F32) -> Array:
    a = values(shape, dtype)
    return (a @ np.conj(np.swapaxes(a, -1, -2)) + 3 * np.eye(shape[-1])).astype(dtype)


def _matrices() -> Iterator[Any]:
    square = values((2, 4, 4)) + 5 * np.eye(4, dtype=F32)
    yield "MatMul", {"transpose_b": True}, [values((2, 3)), values((4, 3))]
    yield "BatchMatMulV2", {"adj_x": True}, [values((2, 4, 3)), values((1, 4, 5))]
    yield "BatchMatMulV2", {"adj_y": True}, [values((2, 3, 4), C64), values((2, 5, 4), C64)]
    yield "Einsum", {"equation": b"bij,bjk->bik"}, [[values((2, 3, 4)), values((2, 4, 5))]]
    yield "Cross", {}, [values((4, 3)), values((4, 3), seed=1)]
    for matrix in (square, values((3, 3), C64) + 5 * np.eye(3, dtype=C64)):
        for adjoint in (False, True):
            yield "MatrixInverse", {"adjoint": adjoint}, [matrix]
        yield "MatrixDeterminant", {}, [matrix]
        yield "LogMatrixDeterminant", {}, [matrix]
    yield "Cholesky", {}, [_positive((2, 3, 3))]
    for full in (False, True):
        yield "Qr", {"full_matrices": full}, [values((2, 4, 3))]
    yield "Lu", {}, [square]
    yield "SelfAdjointEigV2", {"compute_v": False}, [_positive((3, 3))]
    yield "Svd", {"compute_uv": False}, [values((2, 4, 3))]
    for adjoint, lower in itertools.product((False, True), (False, True)):
        yield "MatrixSolve", {"adjoint": adjoint}, [square, values((2, 4, 3))]
        yield "MatrixTriangularSolve", {"adjoint": adjoint, "lower": lower}, [square, values((2, 4, 3))]
    yield "MatrixBandPart", {}, [values((2, 4, 5)), np.array(1, I64), np.array(-1, I64)]
    zero, some = np.array(0, F32), np.array(9, F32)
    yield "MatrixDiag", {}, [values((2, 3))]
    yield "MatrixDiagPart", {}, [values((2, 3, 4))]
    yield "MatrixSetDiag", {}, [values((2, 3, 4)), values((2, 3))]
    for align in (b"LEFT_LEFT", b"LEFT_RIGHT", b"RIGHT_LEFT", b"RIGHT_RIGHT"):
        band, parts = np.array([-2, 1], I32), values((2, 4, 3))
        yield "MatrixDiagPartV3", {"align": align}, [values((2, 3, 5)), band, some]
        yield "MatrixDiagV3", {"align": align}, [parts, band, np.array(-1, I32), np.array(-1, I32), zero]
        yield "MatrixSetDiagV3", {"align": align}, [values((2, 3, 4)), parts, band]
    yield "MatrixDiagPartV2", {}, [values((2, 3, 5)), np.array(1, I32), zero]
    yield "MatrixDiagV2", {}, [values((2, 3)), np.array(1, I32), np.array(3, I32), np.array(5, I32), some]
    yield "MatrixSetDiagV2", {}, [values((2, 3, 5)), values((2, 3)), np.array(1, I32)]


def _spectra() -> Iterator[Any]:
    for suffix, lengths in {"": [8], "2D": [4, 6], "3D": [4, 6, 8]}.items():
        shape = (2, 4, 6, 8)
        size = np.array(lengths, I32)
        yield f"FFT{suffix}", {}, [values(shape, C64)]
        yield f"IFFT{suffix}", {}, [values(shape, C64)]
        yield f"RFFT{suffix}", {}, [values(shape), size]
        yield f"IRFFT{suffix}", {}, [values((*shape[:-1], lengths[-1] // 2 + 1), C64), size]
    for squared in (False, True):
        yield "AudioSpectrogram", {"window_size": 6, "stride": 4, "magnitude_squared": squared}, [values((20, 2))]


def _images() -> Iterator[Any]:
    image = values((2, 5, 4, 3), low=0, high=1)
    yield "AdjustContrastv2", {}, [image, np.array(1.7, F32)]
    yield "AdjustHue", {}, [image, np.array(0.3, F32)]
    yield "AdjustSaturation", {}, [image, np.array(1.6, F32)]
    yield "RGBToHSV", {}, [image]
    yield "HSVToRGB", {}, [image]
    ways = [(False, False), (True, False), (False, True)]
    for (corners, centers), size in itertools.product(ways, ([7, 9], [3, 2], [5, 4], [1, 1])):
        attributes = {"align_corners": corners, "half_pixel_centers": centers}
        yield "ResizeBilinear", attributes, [image, np.array(size, I32)]
        yield "ResizeNearestNeighbor", attributes, [image, np.array(size, I32)]
        yield "ResizeBilinearGrad", attributes, [values((2, *size, 3)), image]
        yield "ResizeNearestNeighborGrad", attributes, [values((2, *size, 3)), np.array([5, 4], I32)]
    boxes = np.array([[0, 0, 1, 1], [0.2, -0.3, 1.4, 0.8], [0.9, 0.7, 0.1, 0.2]], F32)
    for method, size in itertools.product((b"bilinear", b"nearest"), ([4, 3], [1, 5])):
        attributes = {"method": method, "extrapolation_value": -2.0}
        yield "CropAndResize", attributes, [image, boxes, np.array([0, 1, 0], I32), np.array(size, I32)]
    for padding in (b"SAME", b"VALID"):
        attributes = {"ksizes": [1, 2, 3, 1], "strides": [1, 2, 1, 1], "rates": [1, 2, 1, 1], "padding": padding}
        yield "ExtractImagePatches", attributes, [values((1, 6, 5, 2))]
    found = np.array([[0, 0, 1, 1], [0, 0.1, 1, 1.1], [0, 2, 1, 3], [0, 2.05, 1, 3]], F32)
    given = [found, np.array([0.9, 0.75, 0.6, 0.95], F32), np.array(3, I32)]
    yield "NonMaxSuppressionV2", {}, [*given, np.array(0.5, F32)]
    yield "NonMaxSuppressionV3", {}, [*given, np.array(0.5, F32), np.array(0.7, F32)]
    yield "NonMaxSuppressionV4", {"pad_to_max_output_size": True}, [*given, np.array(0.5, F32), np.array(0.7, F32)]
    turn = np.array([[0.93, -0.21, 1.07, 0.19, 0.83, -0.47, 0, 0]], F32)
    for interpolation in (b"BILINEAR", b"NEAREST"):
        attributes = {"interpolation": interpolation, "fill_mode": b"CONSTANT"}
        yield "ImageProjectiveTransformV3", attributes, [image, turn, np.array([4, 5], I32), np.array(7, F32)]


def _windows() -> Iterator[Any]:
    x, filters = values((2, 6, 5, 4)), values((3, 2, 4, 3))
    for padding, strides in itertools.product((b"SAME", b"VALID"), ([1, 1, 1, 1], [1, 2, 3, 1])):
        sizes = {"ksize": [1, 3, 2, 1], "strides": strides, "padding": padding}
        rows = [-(-(n if padding == b"SAME" else n - k + 1) // s) for n, k, s in zip((6, 5), (3, 2), strides[1:])]
        slope = values((2, *rows, 4))
        yield "MaxPool", sizes, [x]
        yield "AvgPool", sizes, [x]
        yield "AvgPoolGrad", sizes, [np.array([2, 6, 5, 4], I32), slope]
        yield "MaxPoolGrad", sizes, [x, values(slope.shape), slope]
        yield "MaxPoolWithArgmax", sizes, [x]
        attributes = {"strides": strides, "padding": padding}
        yield "Conv2D", attributes, [x, filters]
        yield "DepthwiseConv2dNative", attributes, [x, values((3, 2, 4, 2))]
        yield "Conv2DBackpropInput", attributes, [np.array(x.shape, I32), filters, values((2, *rows, 3))]
        yield "Conv2DBackpropFilter", attributes, [x, np.array(filters.shape, I32), values((2, *rows, 3))]
        yield "Dilation2D", {**attributes, "rates": [1, 2, 1, 1]}, [x, values((2, 2, 4))]
    yield (
        "MaxPoolWithArgmax",
        {"ksize": [1, 2, 2, 1], "strides": [1, 2, 2, 1], "padding": b"VALID", "include_batch_in_index": True},
        [x],
    )
    volume = values((1, 4, 5, 3, 2))
    sizes = {"ksize": [1, 2, 2, 2, 1], "strides": [1, 2, 1, 1, 1], "padding": b"SAME"}
    yield "MaxPool3D", sizes, [volume]
    yield "AvgPool3D", sizes, [volume]
    yield "AvgPool3DGrad", sizes, [np.array(volume.shape, I32), values((1, 2, 5, 3, 2))]
    attributes, filters = {"strides": [1, 1, 2, 1, 1], "padding": b"SAME"}, values((2, 2, 3, 2, 3))
    slope = values((1, 4, 3, 3, 3))
    yield "Conv3D", attributes, [volume, filters]
    yield "Conv3DBackpropInputV2", attributes, [np.array(volume.shape, I32), filters, slope]
    yield "Conv3DBackpropFilterV2", attributes, [volume, np.array(filters.shape, I32), slope]


def _neural() -> Iterator[Any]:
    x = values((2, 3, 4, 5))
    yield "BiasAdd", {}, [x, values((5,))]
    yield "BiasAdd", {"data_format": b"NCHW"}, [x, values((3,))]
    yield "BiasAddGrad", {}, [x]
    statistics = [values((5,), low=0.5), values((5,)), values((5,)), values((5,), low=0.5, seed=1)]
    yield "FusedBatchNormV3", {"is_training": False, "epsilon": 0.001}, [x, *statistics]
    yield "LRN", {"depth_radius": 2, "bias": 1.5, "alpha": 0.3, "beta": 0.75}, [x]
    yield "L2Loss", {}, [x]
    yield "Softmax", {}, [values((3, 5))]
    yield "LogSoftmax", {}, [values((3, 5))]
    labels = np.abs(values((3, 5), seed=1))
    yield "SoftmaxCrossEntropyWithLogits", {}, [values((3, 5)), labels / labels.sum(1, keepdims=True)]
    yield "SparseSoftmaxCrossEntropyWithLogits", {}, [values((3, 5)), np.array([0, 4, 2], I32)]


def _quantization() -> Iterator[Any]:
    x = values((4, 3), low=-2, high=3)
    for narrow, bits in itertools.product((False, True), (8, 4)):
        attributes = {"num_bits": bits, "narrow_range": narrow}
        yield "FakeQuantWithMinMaxArgs", {**attributes, "min": -1.0, "max": 2.2}, [x]
        yield "FakeQuantWithMinMaxArgsGradient", {**attributes, "min": -1.0, "max": 2.2}, [x, x]
        low, high = np.array([-1, -0.3, 0], F32), np.array([1, 2.2, 1.7], F32)
        yield "FakeQuantWithMinMaxVars", attributes, [x, low[0], high[1]]
        yield "FakeQuantWithMinMaxVarsPerChannel", attributes, [x, low, high]
        yield "FakeQuantWithMinMaxVarsGradient", attributes, [x, x, low[0], high[1]]
        yield "FakeQuantWithMinMaxVarsPerChannelGradient", attributes, [x, x, low, high]
    for signed in (False, True):
        attributes = {"signed_input": signed, "range_given": True}
        yield "QuantizeAndDequantizeV2", attributes, [x, np.array(-1, F32), np.array(2, F32)]
