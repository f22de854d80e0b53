"""Operators that move elements, where TFLM can't be asked: what it gets wrong, and what it does not check."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from differential import run
from large_operators import LARGE

import tflm
from tflm.compiler import language
from tflm.delegates.compiled.variable_copies import set_blocks, take_blocks
from tflm.kernels.support.elementwise import Copying, make_copies
from tflm.memory.tensor import UNSIZED_TYPES
from tflm.schema import (
    ELEMENT_TYPES,
    BuiltinOperator,
    ConcatenationOptions,
    DepthToSpaceOptions,
    MirrorPadOptions,
    ModelBuilder,
    PackOptions,
    ReshapeOptions,
    SpaceToDepthOptions,
    SqueezeOptions,
    StridedSliceOptions,
    TensorType,
    UnpackOptions,
    quantized,
)
from tflm.testing.drawing import SingleOperator

FLOAT32, INT8, INT32 = TensorType.FLOAT32, TensorType.INT8, TensorType.INT32


@pytest.mark.parametrize(("type", "zero_point", "border"), [(INT8, -5, -5), (FLOAT32, 0, 0)])
def test_a_border_in_space_to_batch_is_the_zero_point(type: TensorType, zero_point: int, border: int) -> None:
    """TFLM takes a number for it that it never sets."""
    parameters = quantized(0.5, zero_point) if type == INT8 else None
    x = np.arange(1, 7, dtype=ELEMENT_TYPES[type].dtype).reshape(1, 2, 3, 1)
    model = SingleOperator(invokes=2)
    model.input(type, [x, 2 * x], parameters)
    model.constant(np.array([2, 2], np.int32))
    model.constant(np.array([(1, 1), (0, 1)], np.int32))
    case = model.case(BuiltinOperator.SPACE_TO_BATCH_ND, [((4, 2, 2, 1), type, parameters)])
    padded = np.pad(x, ((0, 0), (1, 1), (0, 1), (0, 0)))
    inside = np.pad(np.ones_like(x), ((0, 0), (1, 1), (0, 1), (0, 0)))
    for factor, (y,) in zip((1, 2), run(*case)):
        image = np.where(inside == 1, factor * padded, border)
        blocks = [image[0, row::2, column::2] for row in range(2) for column in range(2)]
        np.testing.assert_array_equal(y, np.stack(blocks))


@pytest.mark.parametrize("type", [t for t in ELEMENT_TYPES if t not in UNSIZED_TYPES])
def test_reshape_takes_every_type_that_has_a_size(type: TensorType) -> None:
    x = np.zeros(6, ELEMENT_TYPES[type].dtype)
    x.view(np.uint8)[:] = np.arange(x.nbytes) % 2
    model = SingleOperator()
    model.input(type, [x])
    ((y,),) = run(*model.case(BuiltinOperator.RESHAPE, [((2, 3), type, None)]))
    assert y.tobytes() == x.tobytes()


class Said:
    """Numbers that an operator takes from an input, as they are in two invokes: first good ones, then others."""

    def __init__(self, good: Any, bad: Any):
        self.numbers = [np.asarray(numbers, np.int32) for numbers in (good, bad)]


RUN_TIME: dict[str, tuple[BuiltinOperator, list[Said], tuple[int, ...], str]] = {
    "a slice from before the beginning": (
        BuiltinOperator.SLICE,
        [Said([0, 0, 1, 0], [0, 0, -1, 0]), Said([1, 4, 2, 2], [1, 4, 2, 2])],
        (1, 4, 2, 2),
        "2 elements from -1",
    ),
    "a slice to beyond the end": (
        BuiltinOperator.SLICE,
        [Said([0, 0, 1, 0], [0, 0, 3, 0]), Said([1, 4, 2, 2], [1, 4, 2, 2])],
        (1, 4, 2, 2),
        "2 elements from 3",
    ),
    "a slice of another size": (
        BuiltinOperator.SLICE,
        [Said([0, 0, 1, 0], [0, 0, 1, 0]), Said([1, 4, 2, 2], [1, 4, 1, 2])],
        (1, 4, 2, 2),
        "the slice has [1, 4, 1, 2]",
    ),
    "a dimension that is not there": (
        BuiltinOperator.REVERSE_V2,
        [Said([1], [4])],
        (1, 4, 4, 2),
        "axis 4 is out of range for 4 dimensions",
    ),
    "dimensions that are no neighbours": (
        BuiltinOperator.REVERSE_V2,
        [Said([1, 2], [1, 3])],
        (1, 4, 4, 2),
        "must be adjacent",
    ),
    "a dimension twice": (BuiltinOperator.REVERSE_V2, [Said([1, 2, 3], [1, 1, 3])], (1, 4, 4, 2), "must be adjacent"),
    "more than can be mirrored": (
        BuiltinOperator.MIRROR_PAD,
        [Said([(0, 0), (4, 0), (0, 0), (0, 0)], [(0, 0), (5, -1), (0, 0), (0, 0)])],
        (1, 8, 4, 2),
        "cannot pad",
    ),
    "blocks of nothing": (
        BuiltinOperator.SPACE_TO_BATCH_ND,
        [Said([2, 2], [2, 0]), Said([(0, 0), (0, 0)], [(0, 0), (0, 0)])],
        (4, 2, 2, 2),
        "blocks of 2 x 0",
    ),
    "other blocks than the output has": (
        BuiltinOperator.SPACE_TO_BATCH_ND,
        [Said([2, 2], [4, 2]), Said([(0, 0), (0, 0)], [(0, 0), (0, 0)])],
        (4, 2, 2, 2),
        "do not turn",
    ),
    "a crop to beyond the end": (
        BuiltinOperator.BATCH_TO_SPACE_ND,
        [Said([1, 1], [1, 1]), Said([(1, 1), (0, 0)], [(3, 0), (0, 0)])],
        (1, 2, 4, 2),
        "crops 3 rows",
    ),
    **{
        f"a crop of less than nothing {where}": (
            BuiltinOperator.BATCH_TO_SPACE_ND,
            [Said([1, 1], [1, 1]), Said(good, bad)],
            shape,
            "crops",
        )
        for where, good, bad, shape in (
            ("above", [(1, 1), (0, 0)], [(-1, 3), (0, 0)], (1, 2, 4, 2)),
            ("below", [(1, 1), (0, 0)], [(3, -1), (0, 0)], (1, 2, 4, 2)),
            ("to the left", [(0, 0), (1, 1)], [(0, 0), (-1, 3)], (1, 4, 2, 2)),
            ("to the right", [(0, 0), (1, 1)], [(0, 0), (3, -1)], (1, 4, 2, 2)),
        )
    },
}


@pytest.mark.parametrize("case", RUN_TIME)
def test_numbers_that_come_at_run_time_are_checked_then(case: str) -> None:
    operator, said, shape, reason = RUN_TIME[case]
    model = SingleOperator(invokes=2)
    model.input(INT8, [np.ones((1, 4, 4, 2), np.int8)] * 2)
    for numbers in said:
        model.input(INT32, numbers.numbers)
    data, (good, bad) = model.case(operator, [(shape, INT8, None)])
    interpreter = tflm.MicroInterpreter(tflm.Model(data), tflm.AllOpsResolver(), bytearray(1 << 16))
    interpreter.allocate_tensors()
    invoke(interpreter, good)
    with pytest.raises(tflm.OperatorError, match=reason.replace("[", r"\[")) as error:
        invoke(interpreter, bad)
    assert error.value.operator == operator.name
    invoke(interpreter, good)
    assert np.all(np.asarray(interpreter.output(0).data) == 1)


def invoke(interpreter: tflm.MicroInterpreter, inputs: Sequence[npt.NDArray[Any]]) -> None:
    """One invoke with these inputs."""
    for i, values in enumerate(inputs):
        interpreter.input(i).data[...] = values
    interpreter.invoke()


def refusal(
    operator: BuiltinOperator,
    shapes: Sequence[tuple[int, ...]],
    outputs: Sequence[tuple[int, ...]],
    constants: Sequence[npt.ArrayLike] = (),
    options: Any = None,
) -> str:
    """Why an operator on floats is refused before it runs; its inputs are floats, then constants of int32."""
    builder = ModelBuilder()
    main = builder.subgraph()
    inputs = [main.input(f"x{i}", shape, FLOAT32) for i, shape in enumerate(shapes)]
    numbers = [main.constant(f"c{i}", np.asarray(c, np.int32)) for i, c in enumerate(constants)]
    ys = [main.tensor(f"y{i}", shape, FLOAT32) for i, shape in enumerate(outputs)]
    main.operator(operator, numbers + inputs if operator == BuiltinOperator.SPLIT else inputs + numbers, ys, options)
    main.output(*ys)
    interpreter = tflm.MicroInterpreter(tflm.Model(builder.build()), tflm.AllOpsResolver(), bytearray(1 << 16))
    with pytest.raises(tflm.OperatorError) as error:
        interpreter.allocate_tensors()
    return str(error.value)


REFUSED: dict[str, tuple[str, tuple[Any, ...]]] = {
    "elements that would be left unwritten": (
        "there are 2 slices",
        (BuiltinOperator.PACK, [(2,), (2,)], [(3, 2)], [], PackOptions(values_count=2)),
    ),
    "fewer inputs than it says": (
        "input 2 is missing",
        (BuiltinOperator.PACK, [(2,), (2,)], [(3, 2)], [], PackOptions(values_count=3)),
    ),
    "an input that is too small": (
        "has 2 elements",
        (BuiltinOperator.PACK, [(2,), (1,)], [(2, 2)], [], PackOptions(values_count=2)),
    ),
    "an output too many": (
        "has 3 outputs, must have 2",
        (BuiltinOperator.UNPACK, [(2, 2)], [(2,)] * 3, [], UnpackOptions(num=2)),
    ),
    "fewer slices than there are": (
        "there are 2 slices",
        (BuiltinOperator.UNPACK, [(3, 2)], [(2,)] * 2, [], UnpackOptions(num=2)),
    ),
    "unequal parts": ("sizes must match", (BuiltinOperator.SPLIT, [(6,)], [(1,), (2,), (3,)], [[0]])),
    "parts that don't fill the whole": (
        "its parts have 3 in total",
        (BuiltinOperator.CONCATENATION, [(2,), (1,)], [(4,)], [], ConcatenationOptions()),
    ),
    "padding by less than nothing": ("requires [3]", (BuiltinOperator.PAD, [(4,)], [(3,)], [[(-1, 0)]])),
    "more mirrored than there is": (
        "cannot pad",
        (BuiltinOperator.MIRROR_PAD, [(3,)], [(8,)], [[(3, 2)]], MirrorPadOptions()),
    ),
    "a dimension twice": ("must occur once", (BuiltinOperator.TRANSPOSE, [(3, 3)], [(3, 3)], [[0, 0]])),
    "a dimension that shrinks to nothing": (
        "is out of range",
        (
            BuiltinOperator.STRIDED_SLICE,
            [(3,)],
            [()],
            [[3], [4], [1]],
            StridedSliceOptions(shrink_axis_mask=1),
        ),
    ),
    "a step beyond 32 bits": (
        "leads from 1 beyond 32 bits",
        (BuiltinOperator.STRIDED_SLICE, [(3,)], [(1,)], [[1], [3], [2**31 - 1]], StridedSliceOptions()),
    ),
    "too few numbers for a slice": ("has shape [1]", (BuiltinOperator.SLICE, [(3, 2)], [(2, 2)], [[1], [2]])),
    "more dimensions than there is room for": (
        "at most 8 are supported",
        (BuiltinOperator.RESHAPE, [(1,)], [(1,) * 9], [], ReshapeOptions(new_shape=(1,) * 9)),
    ),
    "more dimensions to squeeze than there is room for": (
        "at most 8 are supported",
        (BuiltinOperator.SQUEEZE, [(1,)], [()], [], SqueezeOptions(squeeze_dims=(0,) * 9)),
    ),
    "blocks of no size": (
        "at least 1",
        (BuiltinOperator.SPACE_TO_DEPTH, [(1, 2, 2, 1)], [(1, 1, 1, 4)], [], SpaceToDepthOptions()),
    ),
    "blocks that the depth does not hold": (
        "cannot be divided among",
        (BuiltinOperator.DEPTH_TO_SPACE, [(1, 1, 1, 6)], [(1, 2, 2, 1)], [], DepthToSpaceOptions(block_size=2)),
    ),
    "an output without the depth": (
        "must have 4 dimensions",
        (BuiltinOperator.SPACE_TO_DEPTH, [(1, 2, 2, 1)], [(1, 4)], [], SpaceToDepthOptions(block_size=2)),
    ),
}
"""Models that TFLM reads or writes beyond tensors for, or leaves elements unwritten in; and what we say to them."""


@pytest.mark.parametrize("case", REFUSED)
def test_what_tflm_does_not_check_is_refused(case: str) -> None:
    reason, arguments = REFUSED[case]
    assert reason in refusal(*arguments)


@pytest.mark.parametrize("elements", [1, 3])
def test_a_shape_has_as_many_elements_as_dimensions(elements: int) -> None:
    model = SingleOperator()
    model.input(FLOAT32, [np.ones((2, 2), np.float32)])
    with pytest.raises(tflm.OperatorError, match="must have 2 elements"):
        run(*model.case(BuiltinOperator.SHAPE, [((elements,), INT32, None)]))


@pytest.mark.parametrize("operator", [BuiltinOperator.RESHAPE, BuiltinOperator.SQUEEZE])
def test_a_constant_with_two_elements_in_a_byte_is_not_copied(operator: BuiltinOperator) -> None:
    """TFLM would read twice as many bytes as there are."""
    model = SingleOperator()
    packed = model.main.constant("packed", np.zeros(3, np.int8), type=TensorType.INT4, shape=(1, 5))
    model.operands.append(packed)
    with pytest.raises(tflm.OperatorError, match="two elements to a byte"):
        run(*model.case(operator, [((5,), TensorType.INT4, None)]))


def test_copies_read_all_sources_before_they_write_a_target() -> None:
    halves = np.arange(4)
    make_copies([(halves[:2], halves[2:]), (halves[2:], halves[:2])])
    assert halves.tolist() == [2, 3, 0, 1]


def test_the_engine_copies_without_binding_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("llvmlite")
    from tflm.delegates import Compiled

    model, (inputs, *_) = LARGE["PAD-INT8"]()
    (expected,) = run(model, [inputs], 1 << 24, delegates=())
    monkeypatch.delattr(Copying, "__call__")
    (answer,) = run(model, [inputs], 1 << 24, delegates=[Compiled()])
    assert np.array_equal(answer[0], expected[0])


@pytest.mark.parametrize(("top", "left"), [(0, 0), (1, 0), (0, 2), (1, 1)])
def test_blocks_are_put_back_where_they_were_taken_from(top: int, left: int) -> None:
    """In Python, up to the last pixel; a crop that leaves too few is refused."""
    image = np.arange(2 * 4 * 6 * 3, dtype=np.int8).reshape(2, 4, 6, 3)
    batches = image.reshape(2, 2, 2, 2, 3, 3).transpose(2, 4, 0, 1, 3, 5).reshape(12, 2, 2, 3)
    block, border = np.array([2, 3], np.int32), np.array([top, 0, left, 0], np.int32)
    for more in (0, 1):
        cropped = np.zeros((2, 4 - top + more, 6 - left, 3), np.int8)
        shape = np.array([*cropped.shape[:3], *batches.shape[:3], 3, 1], np.int32)
        done = set_blocks.function(batches.reshape(-1), cropped.reshape(-1), block, border, shape)
        assert done == (language.REFUSED if more else language.DONE)
        assert (cropped == (0 if more else image[:, top:, left:])).all()
    taken = np.zeros_like(batches)
    shape = np.array([2, 4 - top, 6 - left, 12, 2, 2, 3, 1], np.int32)
    cropped = np.ascontiguousarray(image[:, top:, left:])
    assert take_blocks.function(cropped.reshape(-1), taken.reshape(-1), block, border, shape, [-1]) == language.DONE
    padded = np.pad(cropped, ((0, 0), (top, 0), (left, 0), (0, 0)), constant_values=-1)
    assert (taken == padded.reshape(2, 2, 2, 2, 3, 3).transpose(2, 4, 0, 1, 3, 5).reshape(12, 2, 2, 3)).all()
