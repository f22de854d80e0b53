"""Mistakes of users: each is answered with a helpful error, and does no lasting harm."""

from __future__ import annotations

import mmap
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np
import pytest

import tflm
from tflm.schema import BuiltinOperator, FullyConnectedOptions, SqueezeOptions, TensorType

QUANTIZATION = tflm.quantized(0.5)


@cache
def doubling_model(type: TensorType = TensorType.INT8, *, version: int = 1, custom: str | None = None) -> tflm.Model:
    """y = max(2 x, 0), of 8 elements: FULLY_CONNECTED, then RELU, then a custom operator if one is named."""
    quantization = None if type == TensorType.FLOAT32 else QUANTIZATION
    dtype = {TensorType.FLOAT32: np.float32, TensorType.INT8: np.int8}[type]
    weight = 2 if quantization is None else 4  # at a scale of 0.5
    builder = tflm.ModelBuilder()
    main = builder.subgraph()
    x = main.input("x", (1, 8), type, quantization)
    w = main.constant("w", weight * np.eye(8, dtype=dtype), quantization)
    h = main.tensor("h", (1, 8), type, quantization)
    y = main.tensor("y", (1, 8), type, quantization)
    main.operator(BuiltinOperator.FULLY_CONNECTED, [x, w, -1], [h], FullyConnectedOptions(), version=version)
    main.operator(BuiltinOperator.RELU, [h], [y])
    if custom is not None:
        main.operator(custom, [h], [])
    main.output(y)
    return tflm.Model(builder.build())


INPUT = [1, -1, 2, -2, 30, 0, 5, -128]
DOUBLED = [2, 0, 4, 0, 60, 0, 10, 0]


def check_works(interpreter: tflm.MicroInterpreter) -> None:
    """Check that a correct call has the correct result."""
    interpreter.input(0).data[0] = INPUT
    interpreter.invoke()
    assert interpreter.output(0).data.tolist() == [DOUBLED]


def new_interpreter(arena: Any, **settings: Any) -> tflm.MicroInterpreter:
    """An interpreter of the doubling model that is not allocated yet."""
    return tflm.MicroInterpreter(doubling_model(), tflm.AllOpsResolver(), arena, **settings)


@pytest.fixture
def interpreter() -> tflm.MicroInterpreter:
    """An interpreter of the doubling model, ready to run."""
    interpreter = new_interpreter(bytearray(4096))
    interpreter.allocate_tensors()
    return interpreter


# --- Writing to an input ---------------------------------------------------------------------------------------------

ARRAY = np.arange(8, dtype=np.int64)

NOT_INT8 = {
    "a fraction": (0.5, "can't write 0.5 to a tensor of int8; quantize it first"),
    "a whole number as a float": (3.0, "quantize it first"),
    "not a number": (float("nan"), "can't write nan to a tensor of int8"),
    "one too many": (128, "can't write 128 to a tensor of int8"),
    "one too few": (-129, "can't write -129 to a tensor of int8"),
    "more than 64 bits": (2**70, "to a tensor of int8"),
    "a complex number": (1j, "to a tensor of int8"),
    "a boolean": (True, "can't write True to a tensor of int8"),
    "text": ("12", "can't write '12' to a tensor of int8"),
    "nothing": (None, "can't write None to a tensor of int8"),
    "one number out of range among others": ([0, 0, 0, 0, 0, 0, 0, 200], "to a tensor of int8"),
    "a list with a fraction": ([0, 0, 0, 0, 0, 0, 0, 0.5], "can't write float64 to a tensor of int8"),
    "floats": (ARRAY.astype(np.float32), r"can't write float32 .* convert it with \.astype\(np\.int8\)"),
    "wider integers": (ARRAY.astype(np.int16), r"can't write int16 .* convert it with \.astype\(np\.int8\)"),
    "unsigned integers": (ARRAY.astype(np.uint8), r"can't write uint8 .* convert it with \.astype\(np\.int8\)"),
}

NOT_FLOAT32 = {
    "wider floats": (ARRAY.astype(np.float64), r"can't write float64 .* convert it with \.astype\(np\.float32\)"),
    "narrower floats": (ARRAY.astype(np.float16), "can't write float16 to a tensor of float32"),
    "integers": (ARRAY, "can't write int64 to a tensor of float32"),
    "a complex number": (1j, "to a tensor of float32"),
    "a boolean": (True, "can't write True to a tensor of float32"),
    "text": ("0.5", "can't write '0.5' to a tensor of float32"),
    "nothing": (None, "can't write None to a tensor of float32"),
    "a number too large": (1e39, "to a tensor of float32"),
    "a negative number too large": (-1e39, "to a tensor of float32"),
    "an integer too large": (2**128, "to a tensor of float32"),
    "a number too large among others": ([0.0] * 7 + [1e39], "to a tensor of float32"),
}

WRONG_SHAPES = {
    "too few": ([1, 2, 3], r"can't write shape \(3,\) to shape \(8,\)"),
    "none": (np.zeros(0, np.int8), r"can't write shape \(0,\) to shape \(8,\)"),
    "one, as an array": (np.zeros(1, np.int8), r"can't write shape \(1,\) to shape \(8,\)"),
    "too many": (np.zeros(9, np.int8), r"can't write shape \(9,\) to shape \(8,\)"),
    "a column": (np.zeros((8, 1), np.int8), r"can't write shape \(8, 1\) to shape \(8,\)"),
    "two rows of four": (np.zeros((2, 4), np.int8), r"can't write shape \(2, 4\) to shape \(8,\)"),
    "two rows": (np.zeros((2, 8), np.int8), r"can't write shape \(2, 8\) to shape \(8,\)"),
    "rows of different lengths": ([[1], [2, 3]], "can't write"),
}


@pytest.mark.parametrize(("value", "message"), NOT_INT8.values(), ids=NOT_INT8)
def test_an_int8_input_takes_only_what_int8_holds(interpreter: tflm.MicroInterpreter, value: Any, message: str) -> None:
    """Nothing is written when anything does not fit; and no value is rounded, wrapped or cut off."""
    interpreter.input(0).data[:] = 7
    with pytest.raises(tflm.TensorError, match=message):
        interpreter.input(0).data[0] = value
    with pytest.raises(ValueError, match=message):  # for callers who know numpy, not tflm
        interpreter.input(0).data = value
    assert (interpreter.input(0).data == 7).all()
    check_works(interpreter)


@pytest.mark.parametrize(("value", "message"), NOT_FLOAT32.values(), ids=NOT_FLOAT32)
def test_a_float_input_takes_only_what_float32_holds(value: Any, message: str) -> None:
    model = doubling_model(TensorType.FLOAT32)
    interpreter = tflm.MicroInterpreter(model, tflm.AllOpsResolver(), bytearray(4096))
    interpreter.allocate_tensors()
    interpreter.input(0).data[:] = 7
    with pytest.raises(tflm.TensorError, match=message):
        interpreter.input(0).data[0] = value
    assert (interpreter.input(0).data == 7).all()
    check_works(interpreter)


@pytest.mark.parametrize(("value", "message"), WRONG_SHAPES.values(), ids=WRONG_SHAPES)
def test_an_input_takes_only_its_own_shape(interpreter: tflm.MicroInterpreter, value: Any, message: str) -> None:
    """A single number fills the input; other values are never repeated or truncated."""
    interpreter.input(0).data[:] = 7
    with pytest.raises(tflm.TensorError, match=message):
        interpreter.input(0).data[0] = value
    assert (interpreter.input(0).data == 7).all()
    check_works(interpreter)


@pytest.mark.parametrize("key", [99, -9, (0, 8), (0, 0, 0)], ids=str)
def test_an_element_that_is_not_there_can_not_be_written(interpreter: tflm.MicroInterpreter, key: Any) -> None:
    with pytest.raises(IndexError):
        interpreter.input(0).data[key] = 1
    check_works(interpreter)


@pytest.mark.parametrize(
    "value",
    [INPUT, [INPUT], tuple(INPUT), np.array(INPUT, np.int8), np.array([INPUT], np.int8)],
    ids=["list", "list of rows", "tuple", "array", "array of rows"],
)
def test_what_fits_is_taken_in_any_form(interpreter: tflm.MicroInterpreter, value: Any) -> None:
    interpreter.input(0).data[0] = value
    interpreter.invoke()
    assert interpreter.output(0).data.tolist() == [DOUBLED]


@pytest.mark.parametrize("number", [-128, 127, np.int8(5), np.int64(-7)])
def test_a_number_that_fits_fills_the_input(interpreter: tflm.MicroInterpreter, number: int) -> None:
    interpreter.input(0).data = number
    assert interpreter.input(0).data.tolist() == [[int(number)] * 8]


# --- Indices ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("index", [1, 2**40, -1])
@pytest.mark.parametrize("side", ["input", "output"])
def test_there_is_no_such_input_or_output(interpreter: tflm.MicroInterpreter, side: str, index: int) -> None:
    """Negative ones do not count from the end, as they would in a list."""
    with pytest.raises(tflm.TensorIndexError, match=rf"{side} {index} is out of range, there are 1") as raised:
        getattr(interpreter, side)(index)
    assert isinstance(raised.value, IndexError)
    check_works(interpreter)


@pytest.mark.parametrize(
    ("tensor", "subgraph", "what"), [(4, 0, "tensor 4"), (-1, 0, "tensor -1"), (0, 1, "subgraph 1")]
)
def test_there_is_no_such_tensor(tensor: int, subgraph: int, what: str) -> None:
    interpreter = new_interpreter(bytearray(16384), preserve_all_tensors=True)
    interpreter.allocate_tensors()
    with pytest.raises(tflm.TensorIndexError, match=f"{what} is out of range"):
        interpreter.get_tensor(tensor, subgraph)
    check_works(interpreter)
    assert interpreter.get_tensor(3).data.tolist() == [DOUBLED]


def test_tensors_that_share_memory_can_not_be_looked_at(interpreter: tflm.MicroInterpreter) -> None:
    with pytest.raises(tflm.InterpreterError, match="preserve_all_tensors=True"):
        interpreter.get_tensor(2)
    check_works(interpreter)


def test_an_input_that_is_a_constant_can_not_be_written() -> None:
    builder = tflm.ModelBuilder()
    main = builder.subgraph()
    x, y = main.constant("x", np.ones(8, np.float32)), main.tensor("y", (8,), TensorType.FLOAT32)
    main.table.inputs = (x,)
    main.operator(BuiltinOperator.RELU, [x], [y])
    main.output(y)
    interpreter = tflm.MicroInterpreter(tflm.Model(builder.build()), tflm.AllOpsResolver(), bytearray(4096))
    interpreter.allocate_tensors()
    with pytest.raises(tflm.TensorError, match="constant of the model, which a device has in flash"):
        interpreter.input(0).data[:] = np.ones(8, np.float32)


def test_scales_of_a_bias_may_have_the_dimension_of_its_weights() -> None:
    """It has one dimension; that of its weights, along which the scales count, may be another."""
    builder = tflm.ModelBuilder()
    main = builder.subgraph()
    main.output(main.input("x", (2,), TensorType.INT32, tflm.quantized([0.5, 0.25], 0, quantized_dimension=3)))
    interpreter = tflm.MicroInterpreter(tflm.Model(builder.build()), tflm.AllOpsResolver(), bytearray(4096))
    interpreter.allocate_tensors()
    interpreter.input(0).data = [3, 4]
    assert interpreter.output(0).dequantized().tolist() == [1.5, 1.0]


def test_scales_that_do_not_go_with_a_shape_that_was_left_open_can_not_be_applied() -> None:
    """The runtime needs only the first of them; the real values of all elements can't be told."""
    builder = tflm.ModelBuilder()
    main = builder.subgraph()
    x = main.input("x", (2, 4), TensorType.INT8, QUANTIZATION)
    shape = main.constant("shape", np.array([2, 4], np.int32))
    y = main.tensor("y", (-1, 4), TensorType.INT8, tflm.quantized([0.5, 0.5, 0.5], quantized_dimension=0))
    main.operator(BuiltinOperator.RESHAPE, [x, shape], [y])
    main.output(y)
    interpreter = tflm.MicroInterpreter(tflm.Model(builder.build()), tflm.AllOpsResolver(), bytearray(4096))
    interpreter.allocate_tensors()
    interpreter.input(0).data = 3
    interpreter.invoke()
    with pytest.raises(tflm.TensorError, match="'y' has 3 scales along dimension 0"):
        interpreter.output(0).dequantized()
    assert interpreter.output(0).data.tolist() == [[3] * 4] * 2


def test_what_is_not_a_number_can_not_be_quantized(interpreter: tflm.MicroInterpreter) -> None:
    """No integer represents it. Infinity is represented by the nearest integer."""
    with pytest.raises(tflm.TensorError, match="nan"):
        interpreter.input(0).quantized([0.5, float("nan")])
    assert interpreter.input(0).quantized([0.5, float("inf"), -float("inf")]).tolist() == [1, 127, -128]


@pytest.mark.parametrize("values", [[1j], np.ones(8, np.complex64), ["1"], [None]], ids=str)
def test_only_real_numbers_can_be_quantized(interpreter: tflm.MicroInterpreter, values: Any) -> None:
    with pytest.raises(tflm.TensorError, match="only real numbers"):
        interpreter.input(0).quantized(values)


@pytest.mark.parametrize("type", [TensorType.COMPLEX64, TensorType.COMPLEX128])
def test_complex_numbers_have_no_real_values(type: TensorType) -> None:
    """They can be written and read as they are; half of each would be lost on the way to real ones."""
    builder = tflm.ModelBuilder()
    main = builder.subgraph()
    x = main.input("x", (1, 2), type)
    y = main.tensor("y", (2,), type)
    main.operator(BuiltinOperator.SQUEEZE, [x], [y], SqueezeOptions(squeeze_dims=(0,)))
    main.output(y)
    interpreter = tflm.MicroInterpreter(tflm.Model(builder.build()), tflm.AllOpsResolver(), bytearray(4096))
    interpreter.allocate_tensors()
    interpreter.input(0).data[0] = [1j, 2.5]
    interpreter.invoke()
    with pytest.raises(tflm.TensorError, match="'y' holds complex"):
        interpreter.output(0).dequantized()
    assert interpreter.output(0).data.tolist() == [1j, 2.5]


def test_any_bits_of_a_float_are_looked_at_without_a_warning() -> None:
    """A signalling NaN is one that processors complain about when they convert it."""
    bits = np.array([[0x7F800001, 0xFFBFFFFF, 0x7F800000, 0x80000001, 0, 0, 0, 0]], np.uint32)
    interpreter = tflm.MicroInterpreter(doubling_model(TensorType.FLOAT32), tflm.AllOpsResolver(), bytearray(4096))
    interpreter.allocate_tensors()
    interpreter.input(0).data = bits.view(np.float32)
    real = interpreter.input(0).dequantized()
    assert np.isnan(real[0, :2]).all()
    assert real[0, 2] == np.inf
    interpreter.invoke()
    quantized = new_interpreter(bytearray(4096))
    quantized.allocate_tensors()
    with pytest.raises(tflm.TensorError, match="nan"):
        quantized.input(0).quantized(bits.view(np.float32))


# --- Out of turn -----------------------------------------------------------------------------------------------------

TOO_EARLY: dict[str, Callable[[tflm.MicroInterpreter], object]] = {
    "invoke": tflm.MicroInterpreter.invoke,
    "reset": tflm.MicroInterpreter.reset,
    "input": lambda interpreter: interpreter.input(0),
    "output": lambda interpreter: interpreter.output(0),
    "get_tensor": lambda interpreter: interpreter.get_tensor(0),
    "eval_tensors": tflm.MicroInterpreter.eval_tensors,
    "planned_buffers": tflm.MicroInterpreter.planned_buffers,
    "arena_used_bytes": tflm.MicroInterpreter.arena_used_bytes,
    "head_bytes": lambda interpreter: interpreter.head_bytes,
    "tail_bytes": lambda interpreter: interpreter.tail_bytes,
}


@pytest.mark.parametrize("call", TOO_EARLY)
def test_nothing_goes_before_allocate_tensors(call: str) -> None:
    interpreter = new_interpreter(bytearray(4096))
    with pytest.raises(tflm.InterpreterError, match=rf"{call} .* call allocate_tensors\(\) first"):
        TOO_EARLY[call](interpreter)
    interpreter.allocate_tensors()
    check_works(interpreter)


def test_inputs_and_outputs_can_be_counted_at_any_time() -> None:
    interpreter = new_interpreter(bytearray(4096))
    assert (interpreter.inputs_size(), interpreter.outputs_size()) == (1, 1)


@pytest.mark.parametrize(
    "arena_of", [bytearray, lambda size: tflm.MicroAllocator(bytearray(size))], ids=["bytearray", "allocator"]
)
def test_a_second_allocation_does_nothing(arena_of: Callable[[int], Any]) -> None:
    interpreter = new_interpreter(arena_of(4096))
    interpreter.allocate_tensors()
    check_works(interpreter)
    used = interpreter.arena_used_bytes()
    interpreter.allocate_tensors()
    assert interpreter.arena_used_bytes() == used
    assert interpreter.output(0).data.tolist() == [DOUBLED]


# --- The arena -------------------------------------------------------------------------------------------------------


def refusal_of(interpreter: tflm.MicroInterpreter) -> tflm.ArenaExhausted | None:
    """Return the error of an arena that is too small; None if it is large enough."""
    try:
        interpreter.allocate_tensors()
    except tflm.ArenaExhausted as error:
        return error
    return None


WORKING_BYTES = next(size for size in range(0, 1 << 14, 16) if refusal_of(new_interpreter(bytearray(size))) is None)
"""The smallest multiple of 16 that the doubling model can be placed in."""


@pytest.mark.parametrize("target", [tflm.targets.HOST, tflm.targets.CORTEX_M], ids=lambda target: target.name)
@pytest.mark.parametrize("planner", ["greedy", "linear"])
@pytest.mark.parametrize("step", [16, 7])
def test_an_arena_of_any_size_works_or_says_how_much_is_missing(
    target: tflm.targets.Target, planner: str, step: int
) -> None:
    """Each size below the first one that works fails in the same way, and each one above it works."""
    memory = bytearray(1 << 14)
    worked = []
    for size in [*range(0, 2 * WORKING_BYTES, step), len(memory)]:
        interpreter = new_interpreter(memoryview(memory)[:size], target=target, planner=planner)
        error = refusal_of(interpreter)
        worked.append(error is None)
        if error is None:
            assert interpreter.arena_used_bytes() <= size
            check_works(interpreter)
        else:
            check_figures(error, size)
    assert worked == sorted(worked)
    assert not worked[0]
    assert worked[-1]


def check_figures(error: tflm.ArenaExhausted, size: int) -> None:
    assert 0 <= error.available < error.requested
    assert error.available <= size
    if error.available > 0:
        assert error.missing == error.requested - error.available
    assert error.missing >= error.requested - error.available > 0  # more where alignment alone is too much
    for part in (error.what, f"{error.requested} bytes", f"{error.missing} missing", "larger arena"):
        assert part
        assert part in str(error)


def test_an_arena_that_was_too_small_for_one_model_is_free_for_another() -> None:
    """The memory itself, and a `MicroAllocator` over it."""
    builder = tflm.ModelBuilder()
    main = builder.subgraph()
    x = main.input("x", (1, 4096), TensorType.INT8, QUANTIZATION)
    y = main.tensor("y", (1, 4096), TensorType.INT8, QUANTIZATION)
    main.operator(BuiltinOperator.RELU, [x], [y])
    main.output(y)
    too_large = tflm.Model(builder.build())
    memory = bytearray(WORKING_BYTES)
    allocator = tflm.MicroAllocator(memory)
    for arena in (memory, allocator):
        with pytest.raises(tflm.ArenaExhausted, match="use a larger arena"):
            tflm.MicroInterpreter(too_large, tflm.AllOpsResolver(), arena).allocate_tensors()
        interpreter = new_interpreter(arena)
        interpreter.allocate_tensors()
        check_works(interpreter)


def test_an_interpreter_whose_arena_is_too_small_says_so_each_time() -> None:
    interpreter = new_interpreter(bytearray(WORKING_BYTES - 16))
    messages = set()
    for _ in range(3):
        with pytest.raises(tflm.ArenaExhausted) as raised:
            interpreter.allocate_tensors()
        messages.add(str(raised.value))
        with pytest.raises(tflm.InterpreterError, match="allocate_tensors"):
            interpreter.invoke()
    assert len(messages) == 1


def read_only(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    array.flags.writeable = False
    return array


NO_ARENAS = {
    "bytes": (bytes(4096), "read-only.*use a bytearray"),
    "a view of bytes": (memoryview(bytes(4096)), "read-only"),
    "a read-only view": (memoryview(bytearray(4096)).toreadonly(), "read-only"),
    "a read-only array": (read_only(np.zeros(4096, np.uint8)), "read-only"),
    "every second byte": (memoryview(bytearray(8192))[::2], "not contiguous"),
    "backwards": (memoryview(bytearray(4096))[::-1], "not contiguous"),
    "columns": (np.zeros((64, 64)).T, "not contiguous"),
    "a size": (4096, r"writable buffer such as bytearray\(2048\), not int"),
    "nothing": (None, "not NoneType"),
    "text": ("arena", "not str"),
    "a list": ([0] * 4096, "not list"),
    "objects": (np.zeros(4096, object), "ndarray|object"),
    "dates": (np.zeros(4096, "datetime64[s]"), "ndarray|datetime"),
}


@pytest.mark.parametrize(("buffer", "message"), NO_ARENAS.values(), ids=NO_ARENAS)
@pytest.mark.parametrize("taker", [new_interpreter, tflm.MicroAllocator], ids=["interpreter", "allocator"])
def test_what_can_not_be_an_arena_is_refused_at_once(taker: Callable[[Any], Any], buffer: Any, message: str) -> None:
    """Before a model is placed in it: memory that holds Python objects, above all, must never be written to."""
    with pytest.raises(tflm.ArenaError, match=message):
        taker(buffer)


ARENAS: dict[str, Callable[[], Any]] = {
    "bytearray": lambda: bytearray(4096),
    "memoryview": lambda: memoryview(bytearray(4096)),
    "part of a memoryview": lambda: memoryview(bytearray(5000))[3:4099],
    "memoryview of words": lambda: memoryview(bytearray(4096)).cast("I"),
    "mmap": lambda: mmap.mmap(-1, 4096),
    **{
        f"array of {dtype}": partial(np.zeros, 4096 // np.dtype(dtype).itemsize, dtype)
        for dtype in ("uint8", "int8", "int32", "float32", "float64", "bool", ">i4", "complex64")
    },
    "array of rows": lambda: np.zeros((64, 64), np.uint8),
    "array in the middle of another": lambda: np.zeros((3, 4096), np.uint8)[1],
}


@pytest.mark.parametrize("kind", ARENAS)
def test_any_writable_block_of_memory_can_be_the_arena(kind: str) -> None:
    """It is the memory that is used, no copy of it, and all kinds of it are used alike."""
    buffer = ARENAS[kind]()
    interpreter = new_interpreter(buffer)
    interpreter.allocate_tensors()
    check_works(interpreter)
    memory = np.frombuffer(buffer, np.uint8)
    offset = interpreter.eval_tensors()[3].offset
    assert np.shares_memory(memory, interpreter.output(0).data)
    assert memory[offset : offset + 8].tolist() == DOUBLED
    usual = new_interpreter(bytearray(4096))
    usual.allocate_tensors()
    assert interpreter.arena_used_bytes() == usual.arena_used_bytes()


@pytest.mark.parametrize("shape", [(0,), (0, 4), (4, 0)])
def test_an_arena_of_no_bytes_is_too_small_like_any_other(shape: tuple[int, ...]) -> None:
    with pytest.raises(tflm.ArenaExhausted) as raised:
        new_interpreter(np.zeros(shape, np.uint8)).allocate_tensors()
    assert raised.value.available == 0


# --- The resolver ----------------------------------------------------------------------------------------------------


def two_interpreters(resolver: tflm.MicroMutableOpResolver, **model: Any) -> list[tflm.MicroInterpreter]:
    """One with an arena of its own, one with an allocator that several models could share."""
    arenas = (bytearray(4096), tflm.MicroAllocator(bytearray(4096)))
    return [tflm.MicroInterpreter(doubling_model(**model), resolver, arena) for arena in arenas]


def test_an_operator_that_is_missing_is_named_with_the_method_that_adds_it() -> None:
    """Once it is added, the same interpreter can continue in the same arena."""
    resolver = tflm.MicroMutableOpResolver(2)
    interpreters = two_interpreters(resolver)
    for operator, version in (("FULLY_CONNECTED", 1), ("RELU", 2)):
        method = f"add_{operator.lower()}"
        for interpreter in interpreters:
            with pytest.raises(tflm.UnresolvedOperator, match=rf"{operator} .* call resolver\.{method}\(\)") as raised:
                interpreter.allocate_tensors()
            assert (raised.value.operator, raised.value.version) == (operator, version)
        getattr(resolver, method)()
    for interpreter in interpreters:
        interpreter.allocate_tensors()
        check_works(interpreter)


def test_an_operator_without_a_kernel_is_named() -> None:
    builder = tflm.ModelBuilder()
    builder.subgraph().operator(BuiltinOperator.HASHTABLE_LOOKUP, [], [])
    interpreter = tflm.MicroInterpreter(tflm.Model(builder.build()), tflm.AllOpsResolver(), bytearray(4096))
    with pytest.raises(tflm.UnresolvedOperator, match=r"HASHTABLE_LOOKUP .* no kernel for it") as raised:
        interpreter.allocate_tensors()
    assert raised.value.operator == "HASHTABLE_LOOKUP"


@pytest.mark.parametrize("version", [0, 99])
def test_a_strict_resolver_names_a_version_without_a_kernel_beside_those_that_have_one(version: int) -> None:
    for interpreter in two_interpreters(tflm.AllOpsResolver(strict_versions=True), version=version):
        message = rf"FULLY_CONNECTED version {version}, the resolver has versions 1 to \d+; .* convert the model"
        with pytest.raises(tflm.UnresolvedOperator, match=message) as raised:
            interpreter.allocate_tensors()
        assert (raised.value.operator, raised.value.version) == ("FULLY_CONNECTED", version)


def keep(_context: tflm.KernelContext, _node: tflm.Node) -> None:
    """A custom operator that leaves its output as it is."""


def test_a_custom_operator_that_is_missing_is_named_with_add_custom() -> None:
    resolver = tflm.AllOpsResolver()
    interpreters = two_interpreters(resolver, custom="MyOwn")
    for interpreter in interpreters:
        with pytest.raises(tflm.UnresolvedOperator, match=r"'MyOwn' .* resolver\.add_custom\(") as raised:
            interpreter.allocate_tensors()
        assert raised.value.operator == "MyOwn"
    resolver.add_custom(tflm.Registration("MyOwn", invoke=keep))
    for interpreter in interpreters:
        interpreter.allocate_tensors()
        check_works(interpreter)


def test_a_custom_operator_is_not_taken_for_a_builtin_one_of_that_name() -> None:
    interpreter, _ = two_interpreters(tflm.AllOpsResolver(), custom="RELU")
    with pytest.raises(tflm.UnresolvedOperator):
        interpreter.allocate_tensors()


@pytest.mark.parametrize("name", ["", "SOFTMAX", BuiltinOperator.SOFTMAX])
def test_a_custom_operator_needs_a_name_of_its_own(name: Any) -> None:
    resolver = tflm.MicroMutableOpResolver(1)
    with pytest.raises(tflm.ResolverError, match="a custom operator needs a name of its own"):
        resolver.add_custom(tflm.Registration(name, invoke=keep))
    resolver.add_softmax()
    assert "SOFTMAX" in resolver


@pytest.mark.parametrize("capacity", [0, 1, 2])
def test_a_resolver_takes_no_more_operators_than_it_was_made_for(capacity: int) -> None:
    resolver = tflm.MicroMutableOpResolver(capacity)
    adders = [resolver.add_relu, resolver.add_softmax, resolver.add_fully_connected]
    for add in adders[:capacity]:
        add()
    with pytest.raises(tflm.ResolverError, match=rf"no room for .* made for {capacity} operators.* larger capacity"):
        adders[capacity]()
    with pytest.raises(tflm.ResolverError, match="no room for MyOwn"):
        resolver.add_custom(tflm.Registration("MyOwn", invoke=keep))
    assert len(resolver) == capacity


def test_an_operator_is_added_only_once() -> None:
    """Adding it again is an error even if there is room, and uses none."""
    resolver = tflm.MicroMutableOpResolver(2)
    resolver.add_relu()
    with pytest.raises(tflm.ResolverError, match="RELU is in the resolver already; add each operator once"):
        resolver.add_relu()
    resolver.add_fully_connected()
    assert len(resolver) == 2
    for interpreter in two_interpreters(resolver):
        interpreter.allocate_tensors()
        check_works(interpreter)


@pytest.mark.parametrize(
    ("misspelt", "meant"),
    [
        ("add_fully_conected", "add_fully_connected"),
        ("add_soft_max", "add_softmax"),
        ("AddRelu", None),
        ("add_nothing_like_this", None),
    ],
)
def test_a_method_that_is_not_there_is_answered_with_one_that_is(misspelt: str, meant: str | None) -> None:
    resolver = tflm.MicroMutableOpResolver(1)
    with pytest.raises(AttributeError, match=f"has no {misspelt}") as raised:
        getattr(resolver, misspelt)
    if meant is not None:
        assert f"did you mean {meant}" in str(raised.value)
    assert not hasattr(resolver, misspelt)
    assert len(resolver) == 0


def test_every_operator_has_a_method_that_dir_lists() -> None:
    resolver = tflm.MicroMutableOpResolver(1000)
    methods = [name for name in dir(resolver) if name.startswith("add_") and name != "add_custom"]
    for method in methods:
        getattr(resolver, method)()
    assert len(resolver) == len(methods) == len(tflm.AllOpsResolver())


# --- Names -----------------------------------------------------------------------------------------------------------


def test_an_unknown_planner_is_answered_with_the_known_ones() -> None:
    arena = bytearray(4096)
    with pytest.raises(ValueError, match=r"unknown planner 'gready'; use one of .*greedy.*linear"):
        new_interpreter(arena, planner="gready").allocate_tensors()
    interpreter = new_interpreter(arena, planner="greedy")
    interpreter.allocate_tensors()
    check_works(interpreter)


def test_an_unknown_target_is_answered_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"unknown target 'cortex'; use one of host, .*cortex-m"):
        tflm.targets.by_name("cortex")
    assert tflm.targets.by_name("cortex-m") is tflm.targets.CORTEX_M
