"""Products, linear algebra and diagonals of matrices in the two innermost dimensions; computed in double precision."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tflm.delegates.flex.registry import INT32, Array, exact, ints, operator, require

ALIGN_LEFT = {b"LEFT_LEFT": (True, True), b"LEFT_RIGHT": (True, False), b"RIGHT_LEFT": (False, True)}
"""Whether superdiagonals and subdiagonals begin at the left of their row; to the right otherwise."""


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


@operator("Cross")
def _cross(a: Array, b: Array) -> Array:
    return np.cross(a, b)


def _solved(a: Array, solve: Any) -> Any:
    try:
        return solve(exact(a))
    except np.linalg.LinAlgError as error:
        require(False, f"can't be computed: {error}")


@operator("MatrixInverse", "BatchMatrixInverse")
def _inverse(a: Array, *, adjoint: bool = False) -> Array:
    made = np.asarray(_solved(a, np.linalg.inv), None).astype(a.dtype)
    return _adjoint(made) if adjoint else made


@operator("MatrixDeterminant", "BatchMatrixDeterminant")
def _determinant(a: Array) -> Array:
    return np.asarray(np.linalg.det(exact(a)), None).astype(a.dtype)


@operator("LogMatrixDeterminant")
def _log_determinant(a: Array) -> tuple[Array, Array]:
    sign, logarithm = np.linalg.slogdet(exact(a))
    return np.asarray(sign, None).astype(a.dtype), np.asarray(logarithm, None).astype(a.dtype)


@operator("Cholesky", "BatchCholesky")
def _cholesky(a: Array) -> Array:
    return np.asarray(_solved(a, np.linalg.cholesky), None).astype(a.dtype)


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
    return np.asarray(_solved(left, lambda matrix: np.linalg.solve(matrix, exact(b))), None).astype(a.dtype)


@operator("MatrixTriangularSolve", "BatchMatrixTriangularSolve")
def _triangular_solve(a: Array, b: Array, *, lower: bool = True, adjoint: bool = False) -> Array:
    triangle = np.tril(a) if lower else np.triu(a)
    return _solve(triangle, b, adjoint=adjoint)


@operator("MatrixSolveLs")
def _least_squares(a: Array, b: Array, regularizer: Array, *, fast: bool = True) -> Array:
    left, right = exact(a), exact(b)
    if not fast:
        return np.matmul(np.linalg.pinv(left), right).astype(a.dtype)
    gram = np.matmul(_adjoint(left), left) + regularizer.item() * np.eye(a.shape[-1], dtype=np.float64)
    return np.asarray(_solved(gram, lambda g: np.linalg.solve(g, np.matmul(_adjoint(left), right))), None).astype(
        a.dtype
    )


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


@operator("MatrixBandPart", "BatchMatrixBandPart")
def _band_part(a: Array, lower: Array, upper: Array) -> Array:
    (below,), (above,) = ints(lower), ints(upper)
    distance = np.subtract.outer(np.arange(a.shape[-2], dtype=np.int64), np.arange(a.shape[-1], dtype=np.int64))
    keep = ((below < 0) | (distance <= below)) & ((above < 0) | (-distance <= above))
    return np.where(keep, a, np.zeros((), a.dtype))


# Diagonals. Diagonal d runs from row max(0, -d) and column max(0, d); bands list the highest first.


@operator("Diag")
def _diag(x: Array) -> Array:
    return np.diag(x.reshape(-1)).reshape(x.shape * 2)


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


def _diagonal_part(x: Array, k: Array, padding: Any, align: bytes) -> Array:
    rows, columns = x.shape[-2:]
    band = _band(k)
    longest = max(_length(d, rows, columns) for d in band)
    made = np.full((*x.shape[:-2], len(band), longest), padding, x.dtype)
    for i, d in enumerate(band):
        length = _length(d, rows, columns)
        start = _row_start(d, length, longest, align)
        made[..., i, start : start + length] = x.diagonal(d, -2, -1)
    return made if np.asarray(k, None).size > 1 and len(band) > 1 else made[..., 0, :]


def _set_diagonals(made: Array, diagonals: Array, k: Array, align: bytes) -> Array:
    band = _band(k)
    longest = diagonals.shape[-1]
    for i, d in enumerate(band):
        length = _length(d, *made.shape[-2:])
        start = _row_start(d, length, longest, align)
        row = diagonals[..., i, :] if len(band) > 1 or diagonals.ndim == made.ndim else diagonals
        places = np.arange(length, dtype=np.int64)
        made[..., places + max(0, -d), places + max(0, d)] = row[..., start : start + length]
    return made


@operator("MatrixDiagPart", "BatchMatrixDiagPart")
def _matrix_diag_part(x: Array) -> Array:
    return x.diagonal(0, -2, -1)


@operator("MatrixDiagPartV2")
def _matrix_diag_part_v2(x: Array, k: Array, padding: Array) -> Array:
    return _diagonal_part(x, k, padding.item(), b"LEFT_LEFT")


@operator("MatrixDiagPartV3")
def _matrix_diag_part_v3(x: Array, k: Array, padding: Array, *, align: bytes = b"RIGHT_LEFT") -> Array:
    return _diagonal_part(x, k, padding.item(), align)


@operator("MatrixDiag", "BatchMatrixDiag")
def _matrix_diag(diagonal: Array) -> Array:
    return _set_diagonals(
        np.zeros((*diagonal.shape, diagonal.shape[-1]), diagonal.dtype), diagonal, np.array(0, np.int32), b""
    )


@operator("MatrixDiagV2")
def _matrix_diag_v2(diagonal: Array, k: Array, rows: Array, columns: Array, padding: Array) -> Array:
    return _matrix_diag_v3(diagonal, k, rows, columns, padding, align=b"LEFT_LEFT")


@operator("MatrixDiagV3")
def _matrix_diag_v3(
    diagonal: Array, k: Array, rows: Array, columns: Array, padding: Array, *, align: bytes = b"RIGHT_LEFT"
) -> Array:
    band = _band(k)
    (row_count,), (column_count,) = ints(rows), ints(columns)
    longest = diagonal.shape[-1]
    least_rows, least_columns = longest + max(0, -band[0]), longest + max(0, band[-1])
    if row_count == column_count == -1:
        row_count = column_count = max(least_rows, least_columns)
    row_count = least_rows if row_count == -1 else row_count
    column_count = least_columns if column_count == -1 else column_count
    batch = diagonal.shape[: -2 if len(band) > 1 else -1]
    made = np.full((*batch, row_count, column_count), padding.item(), diagonal.dtype)
    return _set_diagonals(made, diagonal, k, align)


@operator("MatrixSetDiag", "BatchMatrixSetDiag")
def _matrix_set_diag(x: Array, diagonal: Array) -> Array:
    return _set_diagonals(np.array(x, None), diagonal, np.array(0, np.int32), b"")


@operator("MatrixSetDiagV2")
def _matrix_set_diag_v2(x: Array, diagonal: Array, k: Array) -> Array:
    return _set_diagonals(np.array(x, None), diagonal, k, b"LEFT_LEFT")


@operator("MatrixSetDiagV3")
def _matrix_set_diag_v3(x: Array, diagonal: Array, k: Array, *, align: bytes = b"RIGHT_LEFT") -> Array:
    return _set_diagonals(np.array(x, None), diagonal, k, align)
