"""Compressed weights in generated C: the same answers with codes in flash, and at most a row of weights in RAM."""

from __future__ import annotations

import math
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from checked_program import needs_compiler
from compressed_table import DOCUMENT, ROW, cells, compiled
from models import INT8
from test_compile import check

import tflm
from tflm.c.kernels.encoded import EncodedArray, encoded_rows
from tflm.kernels.reference import decode
from tflm.memory.tensor import TfLiteEvalTensor, TfLiteTensor
from tflm.rewriting.compression.encodings import smallest_encoding
from tflm.rewriting.compression.trials import with_decoded
from tflm.schema import BuiltinOperator, ModelBuilder, Padding, TensorType
from tflm.schema.options import Conv2DOptions, FullyConnectedOptions
from tflm.targets import align_up

SCHEMES = {"look-up table": decode.LOOK_UP_TABLE, "pruned": decode.PRUNE, "Huffman": decode.HUFFMAN}

LAYERS = {
    "windows of 3 x 3": ((1, 6, 7, 5), (9, 3, 3, 5)),
    "single elements": ((1, 5, 5, 6), (11, 1, 1, 6)),
    "groups": ((1, 5, 6, 6), (4, 2, 3, 3)),
    "windows of whole rows": ((1, 8, 3, 7), (6, 2, 3, 7)),
    "one vector": ((1, 37), (13, 37)),
    "many vectors": ((6, 21), (10, 21)),
}
"""Shapes of input and weights."""


def weights(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Few values, most of which are zero; one row is all zeros, one has none."""
    table = np.array([0, 0, 0, 0, 0, -128, -7, 3, 55, 127], np.int8)
    values = rng.choice(table, shape)
    values[0], values[1] = 0, -7
    return values


def model_of_layers() -> tflm.Model:
    """Return a model with all layers in parallel. Rows of weights end within a byte of the codes."""
    rng = np.random.default_rng(7)
    builder = ModelBuilder()
    main = builder.subgraph()
    for i, (x_shape, shape) in enumerate(LAYERS.values()):
        x = main.input(f"x{i}", x_shape, INT8, tflm.quantized(0.5, 3))
        is_window, channels = len(shape) == 4, shape[0]
        scales = tflm.quantized([0.01 + 0.001 * k for k in range(channels)], [0] * channels, 0)
        w = main.constant(f"w{i}", weights(rng, shape), scales if is_window else tflm.quantized(0.01, 0))
        bias = main.constant(f"b{i}", rng.integers(-900, 900, channels, np.int32), tflm.quantized(0.005, 0))
        sizes = [n - taps + 1 for n, taps in zip(x_shape[1:3], shape[1:3])] if is_window else []
        y = main.tensor(f"y{i}", (x_shape[0], *sizes, channels), INT8, tflm.quantized(0.9, -1))
        if is_window:
            options = Conv2DOptions(padding=Padding.VALID, stride_w=1, stride_h=1)
            main.operator(BuiltinOperator.CONV_2D, [x, w, bias], [y], options)
        else:
            main.operator(BuiltinOperator.FULLY_CONNECTED, [x, w, bias], [y], FullyConnectedOptions())
        main.output(y)
    return tflm.Model(builder.build())


def encoded(model: tflm.Model, scheme: decode.Scheme) -> tflm.Model:
    """The model with its weights in one of the encodings."""
    encodings = {}
    for index, tensor in enumerate(model.subgraphs[0].tensors or []):
        if (tensor.name or "").startswith("w"):
            encoding = smallest_encoding(TfLiteTensor(tensor, TfLiteEvalTensor(model, tensor)), (scheme,))
            assert encoding is not None
            encodings[index] = encoding
    return with_decoded(model, encodings)


TILE_BYTES = 96
"""Size of an im2col tile that encoded weights need; with plain weights, windows are read in place."""


@needs_compiler
@pytest.mark.parametrize("scheme", SCHEMES)
def test_c_decodes_a_row_at_a_time(tmp_path: Path, scheme: str) -> None:
    model = model_of_layers()
    compiled = tflm.compile_model(encoded(model, SCHEMES[scheme]), self_test=3, optimize="speed")
    names = [table.name for table in compiled.program.tables]
    assert sum("_codes" in name for name in names) == len(LAYERS)
    assert not any("_weights" in name for name in names)
    largest_row = max(math.prod(shape[1:]) for _, shape in LAYERS.values())
    added = 0 if scheme == "pruned" else align_up(largest_row, 16)
    assert compiled.ram_bytes <= tflm.compile_model(model, optimize="speed").ram_bytes + TILE_BYTES + added
    check(tmp_path, compiled)


@pytest.mark.parametrize(
    "row",
    [
        pytest.param(row, id=row[1], marks=() if row[1] == "ad01_int8" else pytest.mark.long)
        for row in ROW.finditer(DOCUMENT.read_text())
    ],
)
def test_the_sizes_of_compressed_models_are_those_of_the_page(row: re.Match[str], corpus: Path) -> None:
    """`python tools/compressed_table.py` writes them."""
    programs = plain, small = compiled(corpus / "models" / f"{row[1]}.tflite")
    assert row[0] == f"| {row[1]} {row[2]} | " + cells(programs)
    if row[1] == "vww_96_int8":  # its program decodes all weights a row at a time
        saved = tflm.compress(tflm.Model.from_file(corpus / "models" / f"{row[1]}.tflite")).saved_bytes
        assert plain.constant_bytes - small.constant_bytes > 0.98 * saved
        assert small.ram_bytes == plain.ram_bytes


@pytest.mark.parametrize("zero_points", [(0,), (0, 0, 0)])
def test_each_channel_has_its_table_or_all_share_one(zero_points: tuple[int, ...]) -> None:
    """Two indices of four bits are a byte."""
    metadata = np.array([0, 1, 0, 0, 1, 4, 5, *[0] * 9, *range(15)], np.uint8)
    values = decode.Encoded(np.arange(6, dtype=np.uint8), metadata, "w", INT8, (3, 4), zero_points, False)
    weights = EncodedArray.of(np.zeros((3, 4), np.int8), decode.LOOK_UP_TABLE, values)
    found = encoded_rows(weights, 1, 4, 0)
    assert found is not None
    step = 5 if len(zero_points) > 1 else 0
    assert found.rows[:5] == (16, step, 4, 4, step)


@pytest.mark.parametrize("zero_points", [(0, 0), (0, 3), (3, 0), (3, 3)])
def test_pruned_weights_have_the_zero_point_of_the_tensor(zero_points: tuple[int, ...]) -> None:
    values = decode.Encoded(np.zeros(1, np.uint8), np.zeros(16, np.uint8), "w", INT8, (2, 4), zero_points, False)
    weights = EncodedArray.of(np.zeros((2, 4), np.int8), decode.PRUNE, values)
    assert (encoded_rows(weights, 0, 4, 3) is not None) == (set(zero_points) == {3})


@pytest.mark.parametrize(
    ("tables", "stride", "axis", "dims", "channels", "is_last", "expected"),
    [
        (1, 4, 1, (3, 2, 5), 1, False, None),
        (3, 4, 0, (3, 2, 5), 3, False, None),
        (5, 4, 2, (3, 2, 5), 5, True, None),
        (5, 4, 0, (3, 2, 5), 5, True, None),
        (5, 4, 1, (3, 2, 5), 5, True, "5, along dimension 1, and the kernel reads 5, along dimension 2"),
        (3, 4, 2, (3, 2, 5), 3, False, "3, along dimension 2, and the kernel reads 3, along dimension 0"),
        (3, 16, 0, (3, 2, 5), 1, False, "3, along dimension 0, and the kernel reads one"),
        (1, 4, 0, (3, 2, 5), 3, False, "one, and the kernel reads 3, along dimension 0"),
        (0, 0, 0, (3, 2, 5), 3, False, None),
        (3, 4, 0, (), 1, False, None),
    ],
)
@pytest.mark.parametrize("type", [TensorType.INT8, TensorType.INT16])
def test_tables_that_the_kernel_does_not_read_are_told(
    type: TensorType,
    tables: int,
    stride: int,
    axis: int,
    dims: tuple[int, ...],
    channels: int,
    is_last: bool,
    expected: str | None,
) -> None:
    """The first dimension of a tool's tables may also mean the kernel's."""
    metadata = np.zeros(16 + tables * stride * (1 if type == TensorType.INT8 else 2), np.uint8)
    metadata[5:7] = axis << 4 | 2, stride
    encoded = decode.Encoded(np.zeros(0, np.uint8), metadata, "w", type, dims, (0,) * channels, is_last)
    tensor: Any = SimpleNamespace(bytes=metadata.size)
    assert decode.table_mismatch(encoded, tensor) == expected
