"""Models as C never take more RAM than TFLM's head on a Cortex-M, and what stays from invoke to invoke."""

from __future__ import annotations

import functools
import hashlib
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from checked_program import CheckedProgram, needs_compiler
from hypothesis import given, settings
from hypothesis import strategies as st
from image_graphs import Images, shrinking_network
from large_operators import LARGE
from sampling import drawn
from test_real_models import NAMES

import tflm
from tflm.c.binding import StateAndScratch, bind_model
from tflm.c.row_binding import bind_small
from tflm.c.source import written
from tflm.errors import ArgumentError
from tflm.schema import (
    AddOptions,
    BuiltinOperator,
    ConcatenationOptions,
    FullyConnectedOptions,
    Padding,
    ReducerOptions,
    SplitOptions,
    StridedSliceOptions,
    TensorType,
    TransposeOptions,
    VarHandleOptions,
)
from tflm.targets import CORTEX_M, align_up


def interpreter_bytes(model: tflm.Model) -> int:
    """Bytes that TFLM takes for tensors, scratch buffers, variables and state."""
    head = tflm.measure_arena(model, tflm.AllOpsResolver(), target=CORTEX_M).head_bytes
    persistent = StateAndScratch(bind_model(model, bind_small), written).persistent.values()
    return align_up(head + sum(align_up(each.initial.nbytes, 4) for each in persistent), 16)


SLOW = {"kws_ref_model", "okay_nabu_v2", "person_detect", "pretrainedResnet", "pretrainedResnet_quant", "vww_96_int8"}
"""Models that are planned for more than half a second; other tests compile them."""


@pytest.mark.parametrize("name", sorted({*NAMES} - SLOW))
def test_real_models_take_at_most_what_tflm_takes(corpus: Path, name: str) -> None:
    model = tflm.Model.from_file(corpus / "models" / f"{name}.tflite")
    assert tflm.compile_model(model).ram_bytes <= interpreter_bytes(model)


def test_the_order_of_state_does_not_depend_on_hashes() -> None:
    """A compiled model is the same in each process."""
    bound = bind_model(tflm.Model(LARGE["SignalStacker"]()[0]), bind_small)
    one, other = (
        [state.title for state in StateAndScratch(bound, parameters).persistent.values()]
        for parameters in (
            lambda kernel: sorted(written(kernel)),
            lambda kernel: sorted(written(kernel), reverse=True),
        )
    )
    assert one == other
    assert len(one) > 1


WITHOUT_SCRATCH = (
    *("BATCH_MATMUL", "DYNAMIC_UPDATE_SLICE", "L2_POOL_2D", "MIRROR_PAD", "REVERSE_V2", "SLICE"),
    *("SignalFilterBank", "SignalIrfft", "SignalPCAN", "SignalRfft"),
)
"""Operators that TFLM needs no scratch buffers for, or only a small one."""


@pytest.mark.parametrize("operator", WITHOUT_SCRATCH)
def test_single_operators_take_at_most_what_tflm_takes(operator: str) -> None:
    compared = 0
    for data, _ in drawn(operator, 4):
        model = tflm.Model(data)
        try:
            compiled = tflm.compile_model(model)
        except tflm.TflmError:
            continue
        assert compiled.ram_bytes <= interpreter_bytes(model)
        compared += 1
    assert compared


@pytest.mark.parametrize("is_constant", [True, False])
@pytest.mark.parametrize("axes", [(1, 2), (1, 3), (2,)])
@pytest.mark.parametrize(
    ("operator", "type"),
    [("MEAN", TensorType.FLOAT32), ("SUM", TensorType.INT8), ("REDUCE_MAX", TensorType.INT8)],
)
def test_reductions_need_no_copy_of_their_input(
    operator: str, type: TensorType, axes: tuple[int, ...], is_constant: bool
) -> None:
    builder = tflm.ModelBuilder()
    main = builder.subgraph()
    quantization = None if type == TensorType.FLOAT32 else tflm.quantized(0.1, 3)
    x = main.input("x", (1, 5, 6, 40), type, quantization)
    numbers = np.array(axes, np.int32)
    axis = main.constant("axis", numbers) if is_constant else main.input("axis", numbers.shape, TensorType.INT32)
    shape = tuple(1 if d in axes else size for d, size in enumerate((1, 5, 6, 40)))
    y = main.tensor("y", shape, type, quantization)
    main.operator(BuiltinOperator[operator], [x, axis], [y], ReducerOptions(keep_dims=True))
    main.output(y)
    model = tflm.Model(builder.build())
    assert tflm.compile_model(model).ram_bytes <= interpreter_bytes(model)


def test_handles_of_variables_take_no_ram() -> None:
    builder = tflm.ModelBuilder()
    main = builder.subgraph()
    x = main.input("x", (4,), TensorType.FLOAT32)
    handle = main.tensor("handle", (), TensorType.RESOURCE)
    y = main.tensor("y", (4,), TensorType.FLOAT32)
    main.operator(BuiltinOperator.VAR_HANDLE, [], [handle], VarHandleOptions(container="", shared_name="v"))
    main.operator(BuiltinOperator.ASSIGN_VARIABLE, [handle, x], [])
    main.operator(BuiltinOperator.READ_VARIABLE, [handle], [y])
    main.output(y)
    model = tflm.Model(builder.build())
    assert tflm.compile_model(model).ram_bytes == interpreter_bytes(model) == 2 * 16


def test_floats_are_added_in_their_sum() -> None:
    builder = tflm.ModelBuilder()
    main = builder.subgraph()
    terms = [main.input(f"x{i}", (5, 6), TensorType.FLOAT32) for i in range(3)]
    y = main.tensor("y", (5, 6), TensorType.FLOAT32)
    main.operator(BuiltinOperator.ADD_N, terms, [y])
    main.output(y)
    model = tflm.Model(builder.build())
    assert tflm.compile_model(model).ram_bytes <= interpreter_bytes(model)


def test_windows_of_one_channel_need_no_tile_where_it_would_set_the_ram() -> None:
    builder = tflm.ModelBuilder()
    images = Images(builder.subgraph(), (1, 17, 10, 1))
    images.main.output(images.convolution(images.last, taps=(1, 3), strides=(3, 5)))
    model = tflm.Model(builder.build())
    assert tflm.compile_model(model).ram_bytes <= interpreter_bytes(model)


def result_of(model: tflm.Model, x: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the interpreter's result."""
    interpreter = tflm.MicroInterpreter(model, tflm.AllOpsResolver(), bytearray(1 << 16))
    interpreter.allocate_tensors()
    interpreter.input(0).data[...] = x
    interpreter.invoke()
    return interpreter.output(0).data


def planes() -> tflm.Model:
    """A network whose input has one plane for each channel, with padding before a convolution."""
    builder = tflm.ModelBuilder()
    images = Images(builder.subgraph(), (1, 24, 24, 3))
    main, x = images.main, images.last
    (main.table.tensors or [])[x].shape = (1, 3, 24, 24)
    order = main.constant("order", np.array([0, 2, 3, 1], np.int32))
    image = main.tensor("image", (1, 24, 24, 3), TensorType.INT8, tflm.quantized(0.05, -3))
    main.operator(BuiltinOperator.TRANSPOSE, [x, order], [image], TransposeOptions())
    images.shapes[image] = (1, 24, 24, 3)
    padded = images.pad(image, (0, 1), (0, 1))
    y = images.convolution(images.convolution(padded, 4, strides=(2, 2), padding=Padding.VALID))
    main.output(images.convolution(images.beside(y, y), 4, strides=(2, 2)))
    return tflm.Model(builder.build())


@functools.cache
def compiled_planes(optimize: str | None) -> tflm.CompiledModel:
    return tflm.compile_model(planes(), optimize=optimize)


@needs_compiler
@pytest.mark.parametrize(
    ("optimize", "most"), [("ram", 1.6), (None, 1.7), pytest.param("speed", 9, marks=pytest.mark.long)]
)
def test_planes_are_transposed_in_little_more_ram_than_they_take(
    tmp_path: Path, optimize: str | None, most: float
) -> None:
    compiled = compiled_planes(optimize)
    assert compiled.ram_bytes <= most * 3 * 24 * 24
    x = np.random.default_rng(1).integers(-128, 128, (1, 3, 24, 24)).astype(np.int8)
    (found,) = CheckedProgram(compiled, tmp_path).run([[x]])
    assert found is not None
    np.testing.assert_array_equal(found[0], result_of(planes(), x))


def parts_of_an_image(count: int, axis: int, strides: tuple[int, int], along: int) -> tflm.Model:
    """Two convolutions and a SPLIT; of each part, some rows and columns, means along a dimension, a convolution."""
    builder = tflm.ModelBuilder()
    images = Images(builder.subgraph(), (1, 24, 24, 3))
    main, x = images.main, images.convolution(images.convolution(images.last, 12), 12)

    def image(shape: Any) -> int:
        y = main.tensor("part", shape, TensorType.INT8, (main.table.tensors or [])[x].quantization)
        images.shapes[y] = shape
        return y

    shape = tuple(size // count if d == axis else size for d, size in enumerate(images.shapes[x]))
    parts = [image(shape) for _ in range(count)]
    main.operator(
        BuiltinOperator.SPLIT,
        [main.constant("axis", np.array(axis, np.int32)), x],
        parts,
        SplitOptions(num_splits=count),
    )
    steps = 1, *strides, 1
    ends = [main.constant("ends", np.array(numbers, np.int32)) for numbers in ([0, 1, 0, 0], shape, steps)]
    for part in parts:
        taken = image(tuple(-(-(size - (d == 1)) // step) for d, (size, step) in enumerate(zip(shape, steps))))
        main.operator(BuiltinOperator.STRIDED_SLICE, [part, *ends], [taken], StridedSliceOptions())
        means = image(tuple(1 if d == along else size for d, size in enumerate(images.shapes[taken])))
        axes = main.constant("along", np.array([along], np.int32))
        main.operator(BuiltinOperator.MEAN, [taken, axes], [means], ReducerOptions(keep_dims=True))
        main.output(images.convolution(means, 4))
    return tflm.Model(builder.build())


@needs_compiler
@settings(max_examples=2)
@given(
    count=st.integers(2, 3),
    axis=st.integers(2, 3),
    strides=st.tuples(st.integers(1, 3), st.integers(1, 2)),
    along=st.integers(2, 3),
)
def test_parts_of_an_image_and_their_means_keep_rows(
    count: int, axis: int, strides: tuple[int, int], along: int
) -> None:
    model = parts_of_an_image(count, axis, strides, along)
    compiled = tflm.compile_model(model)
    assert compiled.ram_bytes <= 24 * 24 * 12
    x = np.random.default_rng(3).integers(-128, 128, (1, 24, 24, 3)).astype(np.int8)
    interpreter = tflm.MicroInterpreter(model, tflm.AllOpsResolver(), bytearray(1 << 17))
    interpreter.allocate_tensors()
    interpreter.input(0).data[...] = x
    interpreter.invoke()
    with tempfile.TemporaryDirectory() as folder:
        (found,) = CheckedProgram(compiled, Path(folder)).run([[x]])
    assert found is not None
    for number, output in enumerate(found):
        np.testing.assert_array_equal(output, interpreter.output(number).data.reshape(-1).reshape(output.shape))


PADDED = (
    *(((1, 1), (1, 1), (2, 2), 4), ((1, 1), (1, 1), (2, 2), 0), ((2, 2), (0, 1), (1, 2), 8)),
    *(((0, 2), (2, 1), (3, 1), 0), ((2, 0), (1, 2), (1, 3), 3)),
)
"""Rows and columns of padding that SAME does not have, then strides, and channels of a CONV_2D."""


@needs_compiler
def test_convolutions_pad_their_image_themselves(tmp_path: Path) -> None:
    """All but the one whose first windows would read no row of the image."""
    builder = tflm.ModelBuilder()
    images = Images(builder.subgraph(), (1, 14, 15, 4))
    x = images.last
    for rows, columns, strides, channels in (*PADDED, ((3, 0), (0, 0), (1, 1), 4)):
        padded = images.pad(x, rows, columns)
        images.main.output(images.convolution(padded, channels, strides=strides, padding=Padding.VALID))
    model = tflm.Model(builder.build())
    compiled = tflm.compile_model(model)
    names = [model.operator_name((model.subgraphs[0].operators or [])[i]) for i in compiled.origins]
    assert names.count("PAD") == 1
    assert names.count("CONV_2D") + names.count("DEPTHWISE_CONV_2D") == len(PADDED) + 1
    given = np.random.default_rng(4).integers(-128, 128, (1, 14, 15, 4)).astype(np.int8)
    interpreter = tflm.MicroInterpreter(model, tflm.AllOpsResolver(), bytearray(1 << 17))
    interpreter.allocate_tensors()
    interpreter.input(0).data[...] = given
    interpreter.invoke()
    (found,) = CheckedProgram(compiled, tmp_path).run([[given]])
    for number, output in enumerate(found or ()):
        np.testing.assert_array_equal(output, interpreter.output(number).data)


def test_a_padded_image_keeps_no_padded_rows() -> None:
    """As PyTorch pads before strided convolutions: a row and a column on each side."""
    sizes = []
    for rows in ((1, 1), (0, 1)):
        builder = tflm.ModelBuilder()
        images = Images(builder.subgraph(), (1, 32, 32, 8))
        x = images.convolution(images.pad(images.last, rows, rows), 16, strides=(2, 2), padding=Padding.VALID)
        x = images.convolution(x, 32, taps=(1, 1))
        x = images.convolution(images.pad(x, rows, rows), strides=(2, 2), padding=Padding.VALID)
        images.main.output(images.convolution(x, 8, taps=(1, 1)))
        sizes.append(tflm.compile_model(tflm.Model(builder.build())).ram_bytes)
    explicit, same = sizes
    assert explicit < same + 34 * 8


@needs_compiler
@pytest.mark.parametrize("operator", ["columns", "channels", "transposed"])
def test_joined_and_transposed_images_keep_rows(tmp_path: Path, operator: str) -> None:
    """A CONCATENATION of an image with the largest values around each, or a TRANSPOSE of columns and channels."""
    builder = tflm.ModelBuilder()
    images = Images(builder.subgraph(), (1, 32, 16, 3))
    main, x = images.main, images.convolution(images.last, 8)
    most = images.pool(x, BuiltinOperator.MAX_POOL_2D, (3, 3), (1, 1), Padding.SAME)
    shape = {"columns": (1, 32, 32, 8), "channels": (1, 32, 16, 16), "transposed": (1, 32, 8, 16)}[operator]
    made = main.tensor("made", shape, TensorType.INT8, (main.table.tensors or [])[x].quantization)
    if operator == "transposed":
        order = main.constant("order", np.array([0, 1, 3, 2], np.int32))
        main.operator(BuiltinOperator.TRANSPOSE, [most, order], [made], TransposeOptions())
    else:
        options = ConcatenationOptions(axis=2 if operator == "columns" else 3)
        main.operator(BuiltinOperator.CONCATENATION, [x, most], [made], options)
    images.shapes[made] = shape
    main.output(images.convolution(made, 4, strides=(4, 4)))
    model = tflm.Model(builder.build())
    compiled = tflm.compile_model(model)
    rows = 16 * 8 * (4 + 1) + 16 * 16 * 4  # of the convolution, the pool and their union
    assert compiled.ram_bytes <= 32 * 16 * 3 + rows + 8 * 4 * 4 + 1024
    given = np.random.default_rng(5).integers(-128, 128, (1, 32, 16, 3)).astype(np.int8)
    (found,) = CheckedProgram(compiled, tmp_path).run([[given]])
    assert found is not None
    np.testing.assert_array_equal(found[0], result_of(model, given))


def test_parts_of_more_dimensions_than_slice_supports_are_split() -> None:
    builder = tflm.ModelBuilder()
    main = builder.subgraph()
    x = main.input("x", (1, 2, 1, 2, 2, 4), TensorType.FLOAT32)
    parts = [main.tensor("part", (1, 2, 1, 2, 2, 2), TensorType.FLOAT32) for _ in range(2)]
    axis = main.constant("axis", np.array(5, np.int32))
    main.operator(BuiltinOperator.SPLIT, [axis, x], parts, SplitOptions(num_splits=2))
    for part in parts:
        main.output(part)
    assert tflm.compile_model(tflm.Model(builder.build())).ram_bytes == 2 * 32 * 4


@needs_compiler
def test_depthwise_convolutions_move_their_tensor_to_and_fro(tmp_path: Path) -> None:
    """Each runs in one call. Its output lies a row and a position before its input, or after it."""
    size, channels = 12, 8
    builder = tflm.ModelBuilder()
    images = Images(builder.subgraph(), (1, size, size, channels))
    last = images.last
    for _ in range(3):
        last = images.convolution(images.convolution(last), channels, taps=(1, 1))
    images.main.output(last)
    model = tflm.Model(builder.build())
    compiled = tflm.compile_model(model)
    assert compiled.ram_bytes <= align_up(channels * (size * size + size + 1), 16)
    assert len(compiled.program.plan.calls) == 6
    x = np.random.default_rng(2).integers(-128, 128, (1, size, size, channels)).astype(np.int8)
    (found,) = CheckedProgram(compiled, tmp_path).run([[x]])
    assert found is not None
    np.testing.assert_array_equal(found[0], result_of(model, x))


def test_a_tenth_more_ram_is_taken_for_far_fewer_instructions(corpus: Path) -> None:
    compiled = tflm.compile_model(tflm.Model.from_file(corpus / "stream" / "str_ww_ref_model.tflite"))
    least, taken = compiled.optimized()["ram"], compiled.instructions.total
    assert taken is not None
    assert least.instructions is not None
    assert compiled.ram_bytes <= align_up(int(1.1 * least.ram_bytes), 16)
    assert taken["cortex-m4", "-O2"] <= 0.8 * least.instructions


def transposed_plane() -> tflm.Model:
    builder = tflm.ModelBuilder()
    main = builder.subgraph()
    x = main.input("x", (1, 12, 20), TensorType.INT8)
    y = main.tensor("y", (1, 20, 12), TensorType.INT8)
    main.operator(BuiltinOperator.TRANSPOSE, [x, main.constant("order", np.array([0, 2, 1], np.int32))], [y])
    main.output(y)
    return tflm.Model(builder.build())


def convolution_of_few_channels() -> tflm.Model:
    builder = tflm.ModelBuilder()
    images = Images(builder.subgraph(), (1, 11, 9, 6))
    images.main.output(images.convolution(images.last, 9, taps=(3, 2)))
    return tflm.Model(builder.build())


@pytest.mark.parametrize("model", [transposed_plane(), convolution_of_few_channels()], ids=["TRANSPOSE", "CONV_2D"])
def test_kernels_that_only_save_ram_are_not_used_where_they_are_much_slower(model: tflm.Model) -> None:
    compiled = tflm.compile_model(model)
    least, taken = compiled.optimized()["ram"], compiled.instructions.total
    assert least.ram_bytes < compiled.ram_bytes <= interpreter_bytes(model)
    assert taken is not None
    assert least.instructions is not None
    assert 1.1 * taken["cortex-m4", "-O2"] < least.instructions


@pytest.mark.parametrize("options", [{"optimize": "size"}, {"optimize": "ram", "ram": 1000}])
def test_optimizations_that_leave_no_choice_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ArgumentError, match="optimization"):
        tflm.compile_model(planes(), **options)


def test_both_ends_are_told_beside_the_program() -> None:
    compiled = compiled_planes(None)
    sizes = compiled.optimized()
    assert sizes["ram"].ram_bytes <= compiled.ram_bytes <= sizes["speed"].ram_bytes
    assert sizes["ram"].ram_bytes == compiled_planes("ram").ram_bytes


@needs_compiler
def test_info_takes_no_memory_unless_it_is_called(tmp_path: Path) -> None:
    model = shrinking_network(16)
    tflm.compile_model(model, "net").write(tmp_path)
    digest = hashlib.sha256(model.data).hexdigest().encode()
    for body, is_called in (("", False), ("const char *text(void) { return net_info(); }", True)):
        (tmp_path / "log.c").write_text(f'#include "net.h"\n{body}\n')
        flags = ["-std=c99", "-Wall", "-Wextra", "-Werror", "-Wno-missing-prototypes", "-O0"]
        subprocess.run(["cc", *flags, "-c", "log.c"], cwd=tmp_path, check=True)
        assert (digest in (tmp_path / "log.o").read_bytes()) == is_called


def test_lines_are_short_and_each_operator_is_named() -> None:
    model = shrinking_network(16)
    files = tflm.compile_model(model, "net").files
    assert max(len(line) for text in files.values() for line in text.splitlines()) <= 120
    for index, operator in enumerate(model.subgraphs[0].operators or ()):
        assert f"/* {index} {model.operator_name(operator)}: " in files["net.c"]


def crossing_branches() -> tflm.Model:
    """Two branches that widen and narrow a vector, each wide vector made before either is narrowed."""
    rng, builder = np.random.default_rng(3), tflm.ModelBuilder()
    main = builder.subgraph()

    def dense(x: int, size: int, units: int) -> int:
        weights = main.constant("w", rng.integers(-127, 128, (units, size)).astype(np.int8), tflm.quantized(0.01))
        y = main.tensor("y", (1, units), TensorType.INT8, tflm.quantized(0.1))
        main.operator(BuiltinOperator.FULLY_CONNECTED, [x, weights, -1], [y], FullyConnectedOptions())
        return y

    x = main.input("x", (1, 16), TensorType.INT8, tflm.quantized(0.05))
    wide = [dense(x, 16, 400) for _ in range(2)]
    narrow = [dense(each, 400, 8) for each in wide]
    total = main.tensor("total", (1, 8), TensorType.INT8, tflm.quantized(0.2))
    main.operator(BuiltinOperator.ADD, narrow, [total], AddOptions())
    main.output(total)
    return tflm.Model(builder.build())


@needs_compiler
def test_operators_run_in_the_order_that_takes_less_ram(tmp_path: Path) -> None:
    model = crossing_branches()
    compiled = tflm.compile_model(model)
    assert compiled.ram_bytes < 2 * 400
    x = np.random.default_rng(4).integers(-128, 128, (1, 16)).astype(np.int8)
    (found,) = CheckedProgram(compiled, tmp_path).run([[x]])
    assert found is not None
    np.testing.assert_array_equal(found[0], result_of(model, x))
