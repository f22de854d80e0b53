"""Products, linear algebra and diagonals of matrices in the two innermost dimensions; computed in double precision."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tflm.delegates.flex.registry import INT32, OPERATORS, Array, exact, ints, operator, require
from tflm.errors import OperatorError

ALIGN_LEFT = {b"LEFT_LEFT": (True, True), b"LEFT_RIGHT": (True, False), b"RIGHT_LEFT": (False, True)}
"""Whether superdiagonals and subdiagonals are aligned left in their row, rather than right."""


def _adjoint(x: Array) -> Array:
    return np.conj(np.swapaxes(x, -1, -2))


def _product(a: Array, b: Array) -> Array:
    return np.matmul(exact(a), exact(b)).astype(a.dtype)


@operator("MatMul")
def _mat_mul(a: Array, b: Array, *, transpose_a: bool = False, transpose_b: bool = False) -> Array:
    return _product(a.T if transpose_a else a, b.T if transpose_b else b)


@operator("BatchMatMul", "BatchMatMulV2", "BatchMatMulV3")
def _batch_mat_mul(a: Array, b: Array, *, adj_x: bool = False, adj_y: bool = False) -> Array:
    return _product(_adjoint(a) if adj_x else a, _adjoint(b) if adj_y else b)


@operator("Einsum")
def _einsum(*inputs: Array, equation: bytes) -> Array:
    made = np.einsum(equation.decode(), *map(exact, inputs))
    return np.asarray(made, None).astype(inputs[0].dtype)


def _solved(a: Array, solve: Callable[[Array], Any]) -> Array:
    try:
        return np.asarray(solve(exact(a)), None).astype(a.dtype)
    except np.linalg.LinAlgError as error:
        raise OperatorError(f"can't be computed: {error}") from None


@operator("MatrixInverse")
def _inverse(a: Array, *, adjoint: bool = False) -> Array:
    made = _solved(a, np.linalg.inv)
    return _adjoint(made) if adjoint else made


@operator("LogMatrixDeterminant")
def _log_determinant(a: Array) -> tuple[Array, Array]:
    sign, logarithm = np.linalg.slogdet(exact(a))
    return np.asarray(sign, None).astype(a.dtype), np.asarray(logarithm, None).astype(a.dtype)


@operator("Qr")
def _qr(a: Array, *, full_matrices: bool = False) -> tuple[Array, Array]:
    q, r = np.linalg.qr(exact(a), "complete" if full_matrices else "reduced")
    return q.astype(a.dtype), r.astype(a.dtype)


@operator("Svd")
def _svd(a: Array, *, compute_uv: bool = True, full_matrices: bool = False) -> tuple[Array, ...]:
    if not compute_uv:
        empty = np.zeros((), a.dtype)
        return np.linalg.svd(exact(a), compute_uv=False).astype(a.dtype), empty, empty
    u, s, v = np.linalg.svd(exact(a), full_matrices)
    return s.real.astype(a.real.dtype), u.astype(a.dtype), _adjoint(v).astype(a.dtype)


@operator("SelfAdjointEigV2")
def _self_adjoint_eigenvalues(a: Array, *, compute_v: bool = True) -> tuple[Array, Array]:
    values, vectors = np.linalg.eigh(exact(a))
    return values.astype(a.dtype), vectors.astype(a.dtype) if compute_v else np.zeros((), a.dtype)


@operator("MatrixSolve")
def _solve(a: Array, b: Array, *, adjoint: bool = False) -> Array:
    left = _adjoint(a) if adjoint else a
    return _solved(left, lambda matrix: np.linalg.solve(matrix, exact(b)))


@operator("MatrixSolveLs")
def _least_squares(a: Array, b: Array, regularizer: Array, *, fast: bool = True) -> Array:
    left, right = exact(a), exact(b)
    if not fast:
        return np.matmul(np.linalg.pinv(left), right).astype(a.dtype)
    gram = np.matmul(_adjoint(left), left) + regularizer.item() * np.eye(a.shape[-1], dtype=np.float64)
    return _solve(gram, np.matmul(_adjoint(left), right)).astype(a.dtype)


@operator("Lu")
def _lu(a: Array, *, output_idx_type: np.dtype[Any] = INT32) -> tuple[Array, Array]:
    """Rows are exchanged for the largest pivot; L below the diagonal, U on it and above."""
    lu = np.array(exact(a), None).reshape(-1, *a.shape[-2:])
    size = a.shape[-1]
    order = np.tile(np.arange(size, dtype=np.int64), (len(lu), 1))
    for matrix, rows in zip(lu, order):
        for k in range(size):
            pivot = k + int(abs(matrix[k:, k]).argmax())
            require(matrix[pivot, k], "is given a matrix that is not invertible")
            matrix[[k, pivot]], rows[[k, pivot]] = matrix[[pivot, k]], rows[[pivot, k]]
            matrix[k + 1 :, k] /= matrix[k, k]
            matrix[k + 1 :, k + 1 :] -= np.outer(matrix[k + 1 :, k], matrix[k, k + 1 :])
    return lu.reshape(a.shape).astype(a.dtype), order.reshape(a.shape[:-1]).astype(output_idx_type)


@operator("MatrixBandPart")
def _band_part(a: Array, lower: Array, upper: Array) -> Array:
    (below,), (above,) = ints(lower), ints(upper)
    distance = np.subtract.outer(np.arange(a.shape[-2], dtype=np.int64), np.arange(a.shape[-1], dtype=np.int64))
    keep = ((below < 0) | (distance <= below)) & ((above < 0) | (-distance <= above))
    return np.where(keep, a, np.zeros((), a.dtype))


# Diagonals. Diagonal d runs from row max(0, -d) and column max(0, d); bands list the highest first.


@operator("DiagPart")
def _diag_part(x: Array) -> Array:
    half = x.shape[: x.ndim // 2]
    size = math.prod(half)
    return x.reshape(size, size).diagonal().reshape(half)


def _band(k: Array) -> range:
    """The diagonals from the highest to the lowest."""
    bounds = ints(k)
    return range(bounds[-1], bounds[0] - 1, -1)


def _length(d: int, rows: int, columns: int) -> int:
    return min(rows + min(d, 0), columns - max(d, 0))


def _row_start(d: int, length: int, longest: int, align: bytes) -> int:
    left_above, left_below = ALIGN_LEFT.get(align, (False, False))
    return 0 if (d >= 0 and left_above) or (d <= 0 and left_below) else longest - length


def _diagonal_part(x: Array, k: Array, padding: Array, *, align: bytes = b"RIGHT_LEFT") -> Array:
    rows, columns = x.shape[-2:]
    band = _band(k)
    longest = max(_length(d, rows, columns) for d in band)
    made = np.full((*x.shape[:-2], len(band), longest), padding.item(), x.dtype)
    for i, d in enumerate(band):
        length = _length(d, rows, columns)
        start = _row_start(d, length, longest, align)
        made[..., i, start : start + length] = x.diagonal(d, -2, -1)
    return made if np.asarray(k, None).size > 1 and len(band) > 1 else made[..., 0, :]


def _with_diagonals(x: Array, diagonals: Array, k: Array, *, align: bytes = b"RIGHT_LEFT") -> Array:
    band, made = _band(k), np.array(x, None)
    longest = diagonals.shape[-1]
    for i, d in enumerate(band):
        length = _length(d, *made.shape[-2:])
        start = _row_start(d, length, longest, align)
        row = diagonals[..., i, :] if len(band) > 1 or diagonals.ndim == made.ndim else diagonals
        places = np.arange(length, dtype=np.int64)
        made[..., places + max(0, -d), places + max(0, d)] = row[..., start : start + length]
    return made


@operator("MatrixDiagV3")
def _matrix_diag_v3(
    diagonal: Array, k: Array, rows: Array, columns: Array, padding: Array, *, align: bytes = b"RIGHT_LEFT"
) -> Array:
    band = _band(k)
    (row_count,), (column_count,) = ints(rows), ints(columns)
    longest = diagonal.shape[-1]
    minimum_rows, minimum_columns = longest + max(0, -band[0]), longest + max(0, band[-1])
    if row_count == column_count == -1:
        row_count = column_count = max(minimum_rows, minimum_columns)
    row_count = minimum_rows if row_count == -1 else row_count
    column_count = minimum_columns if column_count == -1 else column_count
    batch = diagonal.shape[: -2 if len(band) > 1 else -1]
    made = np.full((*batch, row_count, column_count), padding.item(), diagonal.dtype)
    return _with_diagonals(made, diagonal, k, align=align)


OPERATORS |= {
    "Cholesky": lambda a: _solved(a, np.linalg.cholesky),
    "Cross": np.cross,
    "Diag": lambda x: np.diag(x.reshape(-1)).reshape(x.shape * 2),
    "MatrixDeterminant": lambda a: np.asarray(np.linalg.det(exact(a)), None).astype(a.dtype),
    "MatrixDiag": lambda x: np.where(np.eye(x.shape[-1], dtype=np.bool_), x[..., np.newaxis], np.zeros((), x.dtype)),
    "MatrixDiagPart": lambda x: x.diagonal(0, -2, -1),
    "MatrixDiagPartV2": lambda x, k, padding: _diagonal_part(x, k, padding, align=b"LEFT_LEFT"),
    "MatrixDiagPartV3": _diagonal_part,
    "MatrixDiagV2": lambda *inputs: _matrix_diag_v3(*inputs, align=b"LEFT_LEFT"),
    "MatrixSetDiag": lambda x, diagonal: _with_diagonals(x, diagonal, np.zeros((), np.int32)),
    "MatrixSetDiagV2": lambda x, diagonal, k: _with_diagonals(x, diagonal, k, align=b"LEFT_LEFT"),
    "MatrixSetDiagV3": _with_diagonals,
    "MatrixTriangularSolve": lambda a, b, *, lower=True, adjoint=False: _solve(
        np.tril(a) if lower else np.triu(a), b, adjoint=adjoint
    ),
}

HAVE_BATCH_NAMES = (
    *("Cholesky", "MatrixBandPart", "MatrixDeterminant", "MatrixDiag", "MatrixDiagPart", "MatrixInverse"),
    *("MatrixSetDiag", "MatrixTriangularSolve"),
)
"""Operators that TensorFlow also has under an older name."""

OPERATORS |= {f"Batch{name}": OPERATORS[name] for name in HAVE_BATCH_NAMES}
