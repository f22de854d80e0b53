"""Files that are no good models: each is refused with the place and the reason, and none does anything worse."""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
import re
import struct
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import flatbuffers
import numpy as np
import outcomes
import pytest
from flatbuffers import flexbuffers
from hypothesis import given, settings
from hypothesis import strategies as st
from sampling import CHARACTERS, some
from test_schema import tables_of, values_of

import tflm
from tflm import schema
from tflm.kernels import REGISTRATIONS
from tflm.schema import BuiltinOperator, TensorType
from tflm.schema.layout import Field, Scalar, SubTable, Table, TableUnion, TableVector, fields_of
from tflm.testing.operators import OPERATORS

THOROUGH = settings(max_examples=10 * settings().max_examples)
FOR_EACH_OPERATOR = settings(max_examples=settings().max_examples // 5)

INT8 = TensorType.INT8
HALF = tflm.quantized(0.5)


def small_net() -> bytes:
    """FULLY_CONNECTED -> RELU -> SOFTMAX in int8, with metadata, a signature and a subgraph that is never run."""
    builder = tflm.ModelBuilder("a small net")
    main = builder.subgraph()
    x = main.input("x", (1, 8), INT8, tflm.quantized(0.25, 3))
    w = main.constant("w", -np.repeat(np.arange(4, dtype=np.int8), 8).reshape(4, 8), HALF)
    b = main.constant("b", np.arange(4, dtype=np.int32), tflm.quantized(0.125))
    h = main.tensor("h", (1, 4), INT8, HALF)
    r = main.tensor("r", (1, 4), INT8, HALF)
    y = main.tensor("y", (1, 4), INT8, tflm.quantized(1 / 256, -128))
    main.operator(BuiltinOperator.FULLY_CONNECTED, [x, w, b], [h], schema.FullyConnectedOptions())
    main.operator(BuiltinOperator.RELU, [h], [r])
    main.operator(BuiltinOperator.SOFTMAX, [r], [y], schema.SoftmaxOptions(beta=1.0))
    main.output(y)
    spare = builder.subgraph("spare")
    u = spare.input("u", (4,), INT8, HALF)
    v = spare.tensor("v", (4,), INT8, HALF)
    spare.operator(BuiltinOperator.RELU, [u], [v])
    spare.output(v)
    builder.metadata("note", b"kept as it is")
    builder.signature("serving_default", {"in": x}, {"out": y})
    return builder.build()


NET = small_net()
SCHEMA_TABLES = {kind.__name__ for base in (Table, *TableUnion.__subclasses__()) for kind in base.__subclasses__()}  # type: ignore[attr-defined]


# --- Ways to break a model -------------------------------------------------------------------------------------------


def word(data: bytes, at: int) -> int:
    return int(struct.unpack_from("<I", data, at)[0])


def with_word(data: bytes, at: int, value: int) -> bytes:
    return data[:at] + struct.pack("<I", value) + data[at + 4 :]


def with_byte(data: bytes, at: int, value: int) -> bytes:
    return data[:at] + bytes([value]) + data[at + 1 :]


def target_of(data: bytes, at: int) -> int:
    """Return the target of the offset at byte `at`."""
    return at + word(data, at)


def slot_at(data: bytes, table: int, slot: int) -> int:
    """Return the position in the file of a field that is present."""
    vtable = table - struct.unpack_from("<i", data, table)[0]
    offset = struct.unpack_from("<H", data, vtable + 4 + 2 * slot)[0]
    assert offset, "the field is not in the file"
    return int(table + offset)


def steps_of(path: str) -> list[tuple[str, int | None]]:
    """`a[1].b` as (a, 1), (b, None)."""
    steps = re.findall(r"(\w+)(?:\[(\d+)\])?", path)
    return [(name, int(index) if index else None) for name, index in steps]


def field_called(kind: type[Table], name: str) -> Field:
    return next(field for field in fields_of(kind) if field.name == name)


def find(data: bytes, path: str) -> tuple[int, int, Field | None]:
    """Find `path`, such as `subgraphs[0].tensors[1].name`; return the positions of its table and field, and the
    field."""
    kind: type[Table] = schema.Model
    table, at, field = target_of(data, 0), 0, None
    for name, index in steps_of(path):
        if field is not None:
            table = target_of(data, at)
        field = field_called(kind, name)
        at = slot_at(data, table, field.slot)
        if isinstance(field.wire, (TableVector, SubTable)):
            kind = field.wire.table
            at = at if index is None else target_of(data, at) + 4 + 4 * index
    return table, at, field


def place_of(data: bytes, path: str) -> int:
    return find(data, path)[1]


def with_value(path: str, value: Any) -> bytes:
    """The small net with another value at `path`, written anew."""
    model = schema.read_model(memoryview(NET))
    *way, (name, _) = steps_of(path)
    table: Any = model
    for step, index in way:
        table = getattr(table, step) if index is None else getattr(table, step)[index]
    assert name in {field.name for field in fields_of(type(table))}
    setattr(table, name, value)
    return schema.write_model(model)


def calling(options: Callable[[int], schema.BuiltinOptions], operator: BuiltinOperator, *callees: int) -> bytes:
    """A model in which each subgraph runs one other: subgraph i runs subgraph callees[i]."""
    builder = tflm.ModelBuilder()
    for callee in callees:
        builder.subgraph().operator(operator, [], [], options(callee))
    return builder.build()


def if_(callee: int) -> schema.IfOptions:
    return schema.IfOptions(then_subgraph_index=callee, else_subgraph_index=callee)


def while_(callee: int) -> schema.WhileOptions:
    return schema.WhileOptions(cond_subgraph_index=callee, body_subgraph_index=callee)


def call_once(callee: int) -> schema.CallOnceOptions:
    return schema.CallOnceOptions(init_subgraph_index=callee)


def refusal_of(data: Any) -> tflm.ModelError:
    """The error that a broken model is refused with."""
    with pytest.raises(tflm.ModelError) as raised:
        tflm.Model(data)
    return raised.value


def where(error: tflm.ModelError) -> tuple[str, str, str]:
    return error.table, error.field, error.place


# --- One fault -------------------------------------------------------------------------------------------------------


def test_the_small_net_is_sound_and_runs() -> None:
    """Everything below breaks this model: it must be a good one to begin with."""
    assert tflm.verify(NET) == []
    interpreter = tflm.MicroInterpreter(tflm.Model(NET), tflm.AllOpsResolver(), bytearray(4096))
    interpreter.allocate_tensors()
    interpreter.input(0).data[:] = 0
    interpreter.invoke()
    logits = np.arange(4) * (8 * 0.5 * 0.75 + 0.125)  # x is -0.75 everywhere, row i of the weights -i / 2
    expected = np.exp(logits) / np.exp(logits).sum()
    np.testing.assert_allclose(interpreter.output(0).dequantized(), [expected], atol=0.01)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "0 bytes are too few"),
        (NET[:3], "3 bytes are too few"),
        (b"\x08\0\0\0TFL2" + b"\0" * 90, "identifier b'TFL2' at byte 4, expected b'TFL3'"),
        (b"PK\x03\x04" + NET[4:6] + b"\0" * 90, "this is not a .tflite model"),
        (None, "not from NoneType"),
        ([84, 70, 76, 51], "not from list"),
        (memoryview(NET)[::2], "contiguous"),
        (np.zeros(8, "datetime64[s]"), "not from ndarray"),
    ],
    ids=["empty", "3 bytes", "identifier", "zip", "None", "list", "not contiguous", "datetime array"],
)
def test_what_is_no_tflite_file_at_all_is_refused_as_such(data: Any, reason: str) -> None:
    error = refusal_of(data)
    assert where(error) == ("file", "", "")
    assert reason in str(error)
    assert [str(finding) for finding in tflm.verify(data)] == [str(error)]


@pytest.mark.parametrize("length", [8, 12, 100, len(NET) // 2, len(NET) - 200])
def test_a_file_that_was_cut_off_is_refused_with_the_table_that_is_gone(length: int) -> None:
    error = refusal_of(NET[:length])
    assert error.table in SCHEMA_TABLES
    assert re.search(rf"\({length} bytes\)|{length} bytes", str(error))


def corrupted(path: str, change: Callable[[bytes, int], bytes]) -> bytes:
    """The small net, changed at the place where `path` stands in the file."""
    return change(NET, place_of(NET, path))


DANGLING = 0x7FFFFFF0
"""An offset or a length that leads out of any small file."""


def at_target(value: int) -> Callable[[bytes, int], bytes]:
    """Put a word where an offset leads to: the length of a vector or string, or a table's way to its vtable."""
    return lambda data, at: with_word(data, target_of(data, at), value)


def in_vtable(index: int, value: int) -> bytes:
    """The small net with another number in the vtable of its root: its size, the table's size, offsets of fields."""
    table = target_of(NET, 0)
    at = table - struct.unpack_from("<i", NET, table)[0] + 2 * index
    return NET[:at] + struct.pack("<H", value) + NET[at + 2 :]


def offset_in_root(field: str) -> int:
    return place_of(NET, field) - target_of(NET, 0)


def at_end_of_string(data: bytes, at: int) -> bytes:
    start = target_of(data, at)
    return with_byte(data, start + 4 + word(data, start), ord("!"))


def in_tag(value: int) -> Callable[[bytes, int], bytes]:
    """Change the tag of the first operator's options."""

    def change(data: bytes, at: int) -> bytes:
        table, _, field = find(data, "subgraphs[0].operators[0].builtin_options")
        assert field is not None
        return with_byte(data, slot_at(data, table, field.slot - 1), value)

    return change


STRUCTURAL = {
    "the root's offset leads out of the file": (
        with_word(NET, 0, DANGLING),
        ("Model", "", ""),
        "leads out of the file",
    ),
    "a string's offset leads out of the file": (
        corrupted("subgraphs[0].tensors[1].name", lambda data, at: with_word(data, at, DANGLING)),
        ("Tensor", "name", "subgraphs[0].tensors[1]"),
        "leads out of the file",
    ),
    "an offset of zero": (
        corrupted("subgraphs[0].tensors[2].quantization", lambda data, at: with_word(data, at, 0)),
        ("QuantizationParameters", "", "subgraphs[0].tensors[2].quantization"),
        "offset 0",
    ),
    "a table's offset is not aligned": (
        corrupted("buffers[1]", lambda data, at: with_word(data, at, word(data, at) + 2)),
        ("Buffer", "", "buffers[1]"),
        "not aligned",
    ),
    "a table that runs past the end": (in_vtable(1, 65532), ("Model", "", ""), "lies outside the file"),
    "a table smaller than its first word": (in_vtable(1, 0), ("Model", "", ""), "vtable"),
    "a vtable of an odd size": (in_vtable(0, 7), ("Model", "", ""), "vtable"),
    "a vtable that runs past the end": (in_vtable(0, 65534), ("Model", "", ""), "lies outside the file"),
    "a field outside of its table": (
        in_vtable(2 + 3, 65532),
        ("Model", "description", ""),
        "lies outside the table's",
    ),
    "a number that its table cuts off": (
        in_vtable(1, offset_in_root("version") + 2),
        ("Model", "version", ""),
        "do not fit in the table's",
    ),
    "a vector of 64-bit numbers that is not aligned": (
        corrupted(
            "subgraphs[0].tensors[0].quantization.zero_point", lambda data, at: with_word(data, at, word(data, at) + 4)
        ),
        ("QuantizationParameters", "zero_point", "subgraphs[0].tensors[0].quantization"),
        "not aligned to 8 bytes",
    ),
    "a table without a vtable": (
        corrupted("subgraphs[1]", at_target(DANGLING)),
        ("SubGraph", "", "subgraphs[1]"),
        "vtable",
    ),
    "a vector of numbers that is too long": (
        corrupted("subgraphs[0].inputs", at_target(2**30)),
        ("SubGraph", "inputs", "subgraphs[0]"),
        "runs past the end",
    ),
    "a vector whose size in bytes is more than 32 bits": (
        corrupted("subgraphs[0].operators[2].outputs", at_target(2**32 - 1)),
        ("Operator", "outputs", "subgraphs[0].operators[2]"),
        "runs past the end",
    ),
    "a vector of tables that is too long": (
        corrupted("operator_codes", at_target(2**20)),
        ("Model", "operator_codes", ""),
        "runs past the end",
    ),
    "a constant that is too long": (
        corrupted("buffers[2].data", at_target(DANGLING)),
        ("Buffer", "data", "buffers[2]"),
        "runs past the end",
    ),
    "a string that is too long": (
        corrupted("signature_defs[0].signature_key", at_target(DANGLING)),
        ("SignatureDef", "signature_key", "signature_defs[0]"),
        "runs past the end",
    ),
    "a string that does not end": (
        corrupted("description", at_end_of_string),
        ("Model", "description", ""),
        "not terminated by zero",
    ),
    "an unknown tag of a union": (
        corrupted("subgraphs[0].operators[0].builtin_options", in_tag(127)),
        ("Operator", "builtin_options", "subgraphs[0].operators[0]"),
        "union tag 127 is not one of 1 to 126",
    ),
    "a union with a value and no tag": (
        corrupted("subgraphs[0].operators[0].builtin_options", in_tag(0)),
        ("Operator", "builtin_options", "subgraphs[0].operators[0]"),
        "union tag 0",
    ),
    "an unknown tensor type": (
        corrupted("subgraphs[0].tensors[3].type", lambda data, at: with_byte(data, at, 99)),
        ("Tensor", "type", "subgraphs[0].tensors[3]"),
        "99 is not a known TensorType",
    ),
    "an unknown operator": (
        corrupted("operator_codes[1].builtin_code", lambda data, at: with_word(data, at, 2**31)),
        ("OperatorCode", "builtin_code", "operator_codes[1]"),
        "-2147483648 is not a known BuiltinOperator",
    ),
}


MAY_BE_CUT_OFF = {
    "the root's offset leads out of the file",
    "a table that runs past the end",
    "a vtable that runs past the end",
    "a vector of tables that is too long",
}
"""The others do not lead past the end, or further than any model is long."""


@pytest.mark.parametrize("fault", STRUCTURAL)
def test_a_damaged_structure_is_refused_with_its_place(fault: str) -> None:
    data, place, reason = STRUCTURAL[fault]
    error = refusal_of(data)
    assert where(error) == place
    assert reason in error.reason
    assert ("the file was cut off, with at least" in error.reason) is (fault in MAY_BE_CUT_OFF)
    assert place in [where(finding) for finding in tflm.verify(data)]


FOUND_ELSEWHERE = {
    "operator_codes[0].builtin_code": ("operator_codes[0]", "custom_code"),
    "subgraphs[0].inputs": ("subgraphs[0].operators[0]", "inputs"),
    "subgraphs[1].operators": ("subgraphs[1]", "outputs"),
}
"""Where a name is missing, the name is what is wrong; and where a tensor is not made, those who use it."""


@pytest.mark.parametrize(
    ("path", "value", "reason"),
    [
        ("operator_codes[0].builtin_code", BuiltinOperator.CUSTOM, "needs a name"),
        ("subgraphs[1].inputs", (2,), "tensor index 2 is out of range, the subgraph has 2"),
        ("subgraphs[1].inputs", (-1,), "tensor index -1 is out of range"),
        ("subgraphs[0].outputs", (5, 2**31 - 1), "tensor index 2147483647 is out of range"),
        ("subgraphs[0].tensors[3].buffer", 99, "index 99 is out of range"),
        ("subgraphs[0].tensors[3].buffer", 4, "index 4 is out of range, there are 4"),
        ("subgraphs[0].tensors[3].buffer", 2**32 - 1, "index 4294967295 is out of range"),
        ("subgraphs[0].tensors[0].shape", (1, -8), "negative dimension"),
        ("subgraphs[0].tensors[0].shape", (-1, -8), "negative dimension"),
        ("subgraphs[0].tensors[5].shape", (1, -2), "negative dimension"),
        ("subgraphs[0].tensors[0].shape", (2**16, 2**15), "takes 2147483648 bytes, more than 2 GiB"),
        ("subgraphs[0].tensors[5].shape", (2**31 - 1,) * 6, "more than 2 GiB"),
        ("subgraphs[0].tensors[0].shape", (0, 2**31 - 1, 2**31 - 1), "more than 2 GiB"),
        ("subgraphs[0].tensors[0].shape", (1,) * 33, "33 dimensions, at most 32 are supported"),
        ("subgraphs[0].tensors[3].buffer", 1, "buffer 1 has data, but an operator writes the tensor"),
        ("subgraphs[0].tensors[0].quantization.zero_point", (128,), "128 is out of range for INT8: -128 to 127"),
        ("subgraphs[0].tensors[2].quantization.zero_point", (-(2**31) - 1,), "is out of range for"),
        *(
            ("subgraphs[0].tensors[3].quantization.scale", (scale,), "invalid scale")
            for scale in (0.0, -0.5, 1e-39, 1e-45, float("inf"), float("nan"))
        ),
        ("subgraphs[0].tensors[1].quantization.scale", (0.5, 0.5, 0.5, 0.0), "invalid scale 0"),
        ("subgraphs[0].tensors[2].quantization.scale", (float("nan"),), "invalid scale nan"),
        ("subgraphs[0].tensors[2].quantization.scale", (-0.125,), "invalid scale -0.125"),
        ("subgraphs[0].tensors[1].quantization.scale", (0.5,) * 3, "3 scales along dimension 0, which has 4 elements"),
        ("subgraphs[0].tensors[3].external_buffer", 1, "outside of the model itself"),
        ("subgraphs[0].operators[0].large_custom_options_offset", 4096, "outside of the model itself"),
        ("buffers[0].offset", 4096, "outside of the model itself"),
        ("buffers[0].offset", 2**64 - 1, "outside of the model itself"),
        ("subgraphs[0].operators[0].inputs", (5, 1, 2), "tensor 5 is used before operator 2 writes it"),
        ("subgraphs[0].operators[1].inputs", (4,), "tensor 4 is used before operator 1 writes it"),
        ("subgraphs[0].inputs", (), "tensor 0 has no value: it is not an input, constant or variable"),
        ("subgraphs[1].operators", [], "tensor 1 has no value"),
        ("subgraphs[0].operators[2].outputs", (5, 4), "tensor 4 is also written by operator 1"),
        ("subgraphs[0].operators[2].outputs", (5, 5), "tensor 5 is also written by operator 2"),
        ("subgraphs[0].operators[1].outputs", (4, 0), "tensor 0 is also written by the subgraph's caller"),
        ("subgraphs[0].operators[0].opcode_index", 3, "index 3 is out of range, there are 3"),
        ("subgraphs[0].operators[0].inputs", (0, 6, -1), "tensor index 6 is out of range"),
        ("subgraphs[0].operators[0].inputs", (0, 1, -2), "tensor index -2 is out of range"),
        ("subgraphs[0].operators[1].outputs", (-1,), "tensor index -1 is out of range"),
        ("subgraphs[1].operators[0].outputs", (2,), "tensor index 2 is out of range, the subgraph has 2"),
        ("subgraphs[0].operators[2].intermediates", (7,), "tensor index 7 is out of range"),
        ("metadata[0].buffer", 4, "index 4 is out of range, there are 4"),
        ("signature_defs[0].subgraph_index", 2, "index 2 is out of range, there are 2"),
        ("signature_defs[0].outputs[0].tensor_index", 6, "index 6 is out of range, there are 6"),
    ],
)
def test_a_wrong_value_is_refused_with_its_place(path: str, value: Any, reason: str) -> None:
    data = with_value(path, value)
    error = refusal_of(data)
    place, _, field = path.rpartition(".")
    if path in FOUND_ELSEWHERE:
        place, field = FOUND_ELSEWHERE[path]
    assert (error.place, error.field) == (place, field)
    assert error.table == type_at(place)
    assert reason in error.reason
    assert [str(finding) for finding in tflm.verify(data)] == [str(error)]


@pytest.mark.parametrize("dimension", [-1, 2, 2**31 - 1])
def test_scales_along_no_dimension_are_refused(dimension: int) -> None:
    data = with_value("subgraphs[0].tensors[3].quantization", tflm.quantized([0.5] * 4, 0, dimension))
    error = refusal_of(data)
    assert where(error) == ("QuantizationParameters", "quantized_dimension", "subgraphs[0].tensors[3].quantization")
    assert f"dimension {dimension} is out of range for shape [1, 4]" in error.reason


@pytest.mark.parametrize(
    ("tensor", "quantization"),
    [
        (2, tflm.quantized(0.0)),  # of a bias: a product that underflowed
        (2, tflm.quantized(1e-45)),
        (2, tflm.quantized([0.5] * 4, [0] * 4, 3)),  # along a dimension of the weights
        (1, tflm.quantized([0.5] * 4, 0)),  # one zero point for all
        (3, tflm.quantized(1.2e-38)),
        (3, tflm.quantized(0.5, 0, 77)),  # a single scale needs no dimension
        (3, schema.QuantizationParameters(min=(0.0,), max=(1.0,))),
    ],
)
def test_quantization_may_be(tensor: int, quantization: schema.QuantizationParameters) -> None:
    assert tflm.verify(with_value(f"subgraphs[0].tensors[{tensor}].quantization", quantization)) == []


@pytest.mark.parametrize("use", ["decoded", "not a decoder", "also added", "an output", "an input", "written"])
def test_only_codes_that_are_decoded_may_have_scales_of_another_shape(use: str) -> None:
    builder = schema.ModelBuilder()
    main = builder.subgraph()
    scales = tflm.quantized([0.5] * 3, 0, 0)
    head = main.constant("head", np.zeros(16, np.uint8))
    x, y = (main.tensor(name, (4,), schema.TensorType.INT8) for name in "xy")
    if use == "written":
        codes = main.tensor("codes", (2,), schema.TensorType.UINT8, scales)
        main.operator("mine", [head], [codes])
    else:
        codes = main.constant("codes", np.zeros(2, np.uint8), scales)
    main.operator("OTHER_DECODE" if use == "not a decoder" else "TFLM_DECODE", [codes, head], [x])
    main.operator("mine", [x, codes] if use == "also added" else [x], [y])
    main.output(*([codes, y] if use == "an output" else [y]))
    model = schema.read_model(memoryview(builder.build()))
    assert model.subgraphs
    if use == "an input":
        model.subgraphs[0].inputs = (codes,)
    found = [finding.reason for finding in tflm.verify(schema.write_model(model))]
    wrong = "3 scales along dimension 0, which has 2 elements"
    assert found == ([] if use == "decoded" else [wrong])


@pytest.mark.parametrize(
    ("path", "value"),
    [("buffers[1].offset", 4096), ("buffers[0].offset", 1), ("subgraphs[0].tensors[1].external_buffer", 1)],
)
def test_data_inside_the_model_comes_before_data_elsewhere(path: str, value: int) -> None:
    assert tflm.verify(with_value(path, value)) == []


def test_a_variable_may_be_read_before_it_is_written() -> None:
    model = schema.read_model(memoryview(NET))
    assert model.subgraphs
    main = model.subgraphs[0]
    assert main.tensors
    assert main.operators
    main.operators[0].inputs = (4, 1, 2)
    main.tensors[4].shape, main.tensors[4].is_variable = (1, 8), True
    assert tflm.verify(schema.write_model(model)) == []


@pytest.mark.parametrize("subgraphs", [None, []])
def test_a_model_without_a_subgraph_is_refused(subgraphs: list[schema.SubGraph] | None) -> None:
    error = refusal_of(schema.write_model(schema.Model(version=3, subgraphs=subgraphs)))
    assert where(error) == ("Model", "subgraphs", "")
    assert "at least one subgraph" in error.reason
    buffers = [schema.Buffer()]
    nameless = bytearray(schema.write_model(schema.Model(version=3, subgraphs=subgraphs, buffers=buffers)))
    nameless[4:8] = b"TFL2"
    with pytest.raises(tflm.ModelError, match=r"identifier b'TFL2' at byte 4, expected b'TFL3': this is not"):
        tflm.Model(nameless)


def type_at(place: str) -> str:
    kind: type[Table] = schema.Model
    for name, _ in steps_of(place):
        kind = field_called(kind, name).wire.table  # type: ignore[union-attr]  # only vectors of tables are on the way
    return kind.__name__


@pytest.mark.parametrize(
    ("path", "value"),
    [("buffers[1].data", bytes(31)), ("subgraphs[0].tensors[1].shape", (4, 9))],
    ids=["less data", "larger shape"],
)
def test_a_constant_shorter_than_its_shape_is_refused(path: str, value: Any) -> None:
    error = refusal_of(with_value(path, value))
    assert where(error) == ("Tensor", "buffer", "subgraphs[0].tensors[1]")
    assert re.search(r"takes (32|36) bytes, buffer 1 has (31|32)", error.reason)


@pytest.mark.parametrize("shape", [(2**31 - 1,), (2**15, 2**16 - 1), (0, 5), ()])
def test_a_tensor_of_any_size_below_2_gib_is_a_good_one(shape: tuple[int, ...]) -> None:
    """Whether the arena can hold it is seen later."""
    assert tflm.verify(with_value("subgraphs[0].tensors[0].shape", shape)) == []


@pytest.mark.parametrize(
    ("options", "operator"),
    [(if_, BuiltinOperator.IF), (while_, BuiltinOperator.WHILE), (call_once, BuiltinOperator.CALL_ONCE)],
)
@pytest.mark.parametrize("callees", [(0,), (1, 2, 0), (1, 1)], ids=["itself", "in a ring", "another that does"])
def test_a_subgraph_that_runs_itself_is_refused(
    options: Callable[[int], schema.BuiltinOptions], operator: BuiltinOperator, callees: tuple[int, ...]
) -> None:
    error = refusal_of(calling(options, operator, *callees))
    assert (error.table, error.field) == ("SubGraph", "operators")
    assert error.place in [f"subgraphs[{callee}]" for callee in callees]
    assert "runs itself" in error.reason


@pytest.mark.parametrize(("options", "field"), [(if_, "then_subgraph_index"), (while_, "cond_subgraph_index")])
@pytest.mark.parametrize("callee", [-1, 1, 2**31 - 1])
def test_a_subgraph_that_is_not_there_can_not_be_run(
    options: Callable[[int], schema.BuiltinOptions], field: str, callee: int
) -> None:
    error = refusal_of(calling(options, BuiltinOperator.IF, callee))
    assert where(error) == (type(options(0)).__name__, field, "subgraphs[0].operators[0].builtin_options")
    assert f"index {callee} is out of range" in error.reason


def test_the_message_starts_with_table_field_and_place() -> None:
    error = refusal_of(with_value("subgraphs[0].tensors[3].buffer", 99))
    assert str(error) == f"Tensor.buffer at subgraphs[0].tensors[3]: {error.reason}"


# --- Several faults --------------------------------------------------------------------------------------------------


def test_verify_lists_every_wrong_value() -> None:
    model = schema.read_model(memoryview(NET))
    main, spare = model.subgraphs
    model.version = 1
    main.tensors[0].shape = (1, -8)
    main.tensors[3].buffer = 77
    main.operators[1].inputs = (50,)
    main.operators[2].opcode_index = 9
    spare.outputs = (0, 5)
    model.metadata[0].buffer = 12
    assert {where(finding) for finding in tflm.verify(schema.write_model(model))} == {
        ("Model", "version", ""),
        ("Tensor", "shape", "subgraphs[0].tensors[0]"),
        ("Tensor", "buffer", "subgraphs[0].tensors[3]"),
        ("Operator", "inputs", "subgraphs[0].operators[1]"),
        ("Operator", "opcode_index", "subgraphs[0].operators[2]"),
        ("SubGraph", "outputs", "subgraphs[1]"),
        ("Metadata", "buffer", "metadata[0]"),
    }


def test_verify_lists_every_damage_to_the_structure() -> None:
    data = NET
    for path in ("subgraphs[0].tensors[1].name", "subgraphs[0].operators[2].inputs", "metadata[0].name"):
        data = with_word(data, place_of(NET, path), DANGLING)
    data = with_byte(data, place_of(NET, "subgraphs[0].tensors[4].type"), 99)
    assert {where(finding) for finding in tflm.verify(data)} == {
        ("Tensor", "name", "subgraphs[0].tensors[1]"),
        ("Tensor", "type", "subgraphs[0].tensors[4]"),
        ("Operator", "inputs", "subgraphs[0].operators[2]"),
        ("Metadata", "name", "metadata[0]"),
    }


# --- Any fault -------------------------------------------------------------------------------------------------------


def run(data: bytes, arena_size: int = 4096) -> bool:
    """Take a model all the way, if it lets itself be taken: on zeros, then on anything. Whether it was."""
    with contextlib.suppress(tflm.TflmError):
        interpreter = tflm.MicroInterpreter(
            tflm.Model(data), tflm.AllOpsResolver(), bytearray(arena_size), while_limit=100
        )
        interpreter.allocate_tensors()
        interpreter.invoke()
        rng = np.random.default_rng(len(data))
        for index in range(interpreter.inputs_size()):
            values = interpreter.input(index).data
            values[...] = np.frombuffer(rng.bytes(values.nbytes), values.dtype).reshape(values.shape)
        interpreter.invoke()
        for index in range(interpreter.outputs_size()):
            interpreter.output(index).dequantized()
        return outcomes.count(ran=True)
    return outcomes.count(ran=False)


def check_verdicts(data: bytes) -> None:
    """`Model` refuses just what `verify` finds an error in, and for the first one that it lists."""
    findings = [finding for finding in tflm.verify(data) if finding.level == "error"]
    if not findings:
        tflm.Model(data)
    else:
        assert str(refusal_of(data)) == str(findings[0])


POSITIONS = st.integers(0, 400) | st.integers(0, len(NET) - 1)
BYTES = st.sampled_from([0, 1, 2, 0x7F, 0x80, 0xFF]) | st.integers(0, 255)
NUMBERS = st.sampled_from([0, 1, 2**16, 2**31 - 1, 2**31, 2**32 - 1]) | st.integers(0, 2 * len(NET))


@st.composite
def with_bytes_changed(draw: st.DrawFn) -> bytes:
    """The small net with 1 to 8 of its bytes overwritten or with some of their bits flipped."""
    data = bytearray(NET)
    for position, value, flip in draw(
        st.lists(st.tuples(POSITIONS, BYTES, st.booleans()), min_size=1, max_size=8, unique_by=lambda change: change[0])
    ):
        data[position] = data[position] ^ value if flip else value
    return bytes(data)


@st.composite
def with_words_changed(draw: st.DrawFn) -> bytes:
    """The small net with 1 to 8 of its words overwritten: most offsets, lengths and indices are words."""
    data = NET
    for position, value in draw(st.lists(st.tuples(POSITIONS, NUMBERS), min_size=1, max_size=8)):
        data = with_word(data, min(position // 4 * 4, len(NET) - 4), value)
    return data


@st.composite
def with_values_changed(draw: st.DrawFn) -> bytes:
    """The small net, sound as a file, with 1 to 4 fields of its tables set to anything that they can hold."""
    model = schema.read_model(memoryview(NET))
    for _ in range(draw(st.integers(1, 4))):
        table = draw(st.sampled_from(list(tables_in(model))))
        field = draw(st.sampled_from(fields_of(type(table)) or fields_of(schema.Model)))
        setattr(table if fields_of(type(table)) else model, field.name, draw(values_of(field.wire)))
    model.version = 3
    return schema.write_model(model)


def tables_in(table: Table) -> Iterator[Table]:
    """A table, and all below it."""
    yield table
    for field in fields_of(type(table)):
        value = getattr(table, field.name)
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, Table):
                yield from tables_in(child)


DAMAGED = {
    "cut off": st.integers(0, len(NET) - 1).map(lambda length: NET[:length]),
    "bytes": with_bytes_changed(),
    "words": with_words_changed(),
    "values": with_values_changed(),
}


@pytest.mark.parametrize("damage", DAMAGED)
@given(data=st.data())
@THOROUGH
def test_a_damaged_file_is_judged_without_accident(damage: str, data: st.DataObject) -> None:
    check_verdicts(data.draw(DAMAGED[damage]))


HARMLESS_SHARE = {"values": 0.3, "words": 0.05, "bytes": 0.05, "cut off": 0.0}
"""At least this share of the damaged files runs."""


@pytest.mark.parametrize("damage", [pytest.param(d, marks=pytest.mark.runs(HARMLESS_SHARE[d])) for d in DAMAGED])
@given(data=st.data())
@THOROUGH
def test_a_damaged_file_is_run_or_refused(damage: str, data: st.DataObject) -> None:
    """Whatever is not caught when the model is read must be caught when it is prepared, or do no harm."""
    run(data.draw(DAMAGED[damage]))


# --- Sound files that can't be run -----------------------------------------------------------------------------------


def one_operator(
    operator: BuiltinOperator,
    *,
    x: dict[str, Any] | None = None,
    y: dict[str, Any] | None = None,
    options: schema.BuiltinOptions | None = None,
    type: TensorType = INT8,
) -> bytes:
    """Return a model of one operator with one input and one output of 4 elements, except as the arguments say."""
    builder = tflm.ModelBuilder()
    main = builder.subgraph()
    common = {"type": type, "quantization": HALF, "shape": (4,)}
    main.input("x", **{**common, **(x or {})})
    main.tensor("y", **{**common, **(y or {})})
    main.operator(operator, [0], [1], options)
    main.output(1)
    return builder.build()


def relu(**changes: Any) -> bytes:
    return one_operator(BuiltinOperator.RELU, **changes)


def softmax(**changes: Any) -> bytes:
    y = {"quantization": tflm.quantized(1 / 256, -128), **changes.pop("y", {})}
    return one_operator(BuiltinOperator.SOFTMAX, y=y, options=schema.SoftmaxOptions(beta=1.0), **changes)


def fully_connected(x: tuple[int, ...], w: tuple[int, ...]) -> bytes:
    """The small net with other shapes in its first operator."""
    model = schema.read_model(memoryview(NET))
    for tensor, shape in zip(model.subgraphs[0].tensors, (x, w)):
        tensor.shape = shape
    return schema.write_model(model)


UNUSUAL = {
    "as many dimensions as there can be": relu(x={"shape": (1,) * 32}, y={"shape": (1,) * 32}),
    "a constant of as many dimensions": with_value("subgraphs[0].tensors[1].shape", (*(1,) * 30, 4, 8)),
    "no elements in a large shape": relu(x={"shape": (0, 2**31 - 1)}, y={"shape": (0,)}),
    "an empty input": relu(x={"shape": (0,)}, y={"shape": (0,)}),
    "a constant with more data than its shape": with_value("buffers[1].data", bytes(100)),
    "a constant without elements": with_value("subgraphs[0].tensors[2].shape", (0,)),
    "shapes that are left to the operator": relu(y={"shape": (-1, -1)}),
    "softmax over no elements": softmax(x={"shape": (0,)}, y={"shape": (0,)}),
    "softmax over no floats": softmax(x={"shape": (0,)}, y={"shape": (0,)}, type=TensorType.FLOAT32),
    "an input without depth": with_value("subgraphs[0].tensors[0].shape", (1, 0)),
    "weights without depth": with_value("subgraphs[0].tensors[1].shape", (4, 0)),
    "weights of one dimension": with_value("subgraphs[0].tensors[1].shape", (32,)),
    "input and weights without depth": fully_connected((1, 0), (4, 0)),
    "no batches": fully_connected((0, 8), (4, 8)),
    "weights that are too short": fully_connected((1, 8), (2, 8)),
    "an output that is its own input": with_value("subgraphs[0].operators[1].inputs", (4,)),
    "operators in the wrong order": with_value("subgraphs[0].operators[0].inputs", (5, 1, 2)),
    "weights that are not constant": with_value("subgraphs[0].tensors[1].buffer", 0),
    "a variable constant": with_value("subgraphs[0].tensors[1].is_variable", True),
    "an operator without inputs": with_value("subgraphs[0].operators[1].inputs", ()),
    "an operator without outputs": with_value("subgraphs[0].operators[1].outputs", None),
    "another operator's options": with_value("subgraphs[0].operators[0].builtin_options", schema.SoftmaxOptions()),
    "a plan that is cut off": with_value("metadata[0].name", "OfflineMemoryAllocation"),
}


def test_the_model_that_is_damaged_runs() -> None:
    assert run(NET)


@pytest.mark.runs(0.2)
def test_an_unusual_model_is_run_or_refused() -> None:
    for model in UNUSUAL.values():
        run(model)


@pytest.mark.runs(0.02)
def test_any_quantization_is_run_or_refused() -> None:
    """Scales that overflow when they are divided, zero points beyond the type of the tensor, and the like."""
    scales = (0.5, 0.25, 3e38, 1e-38, 1e-45, 0.0, -1.0, float("inf"), float("nan"))
    zero_points = (-(2**63), 2**63 - 1, 2**31, -129, 0)
    for tensor, scale, zero_point in itertools.product(range(6), scales, zero_points):
        run(with_value(f"subgraphs[0].tensors[{tensor}].quantization", tflm.quantized(scale, zero_point)))


OPTIONS = {kind.__name__.removesuffix("Options").upper(): kind for kind in schema.BuiltinOptions.__subclasses__()}
"""Options by the name of the operator that they are for, without underscores; some serve several operators."""

SCALES = st.sampled_from([0.5, 1 / 128, 1 / 256, 1 / 32768, 3e38, 1e-38, 1e-45, 0.0, -1.0, float("inf"), float("nan")])
QUANTIZATIONS = st.builds(tflm.quantized, SCALES, st.sampled_from([0, 0, -128, 127, -(2**31)]))
DIMENSIONS = st.lists(st.sampled_from([1, 2, 3, 0, -1]), max_size=4).map(tuple)


CUSTOM_OPTIONS = ["T", "fft_length", "shift", "num_channels", "start_index", "end_index", "frame_step", "cycles_max"]
CUSTOM_NUMBERS = st.sampled_from([0, 1, 2, 3, 4, 7, 8, 31, -1, 2**31 - 1, -(2**31), 2**62, 0.5, 1e30, True])
CUSTOM_MAPS: st.SearchStrategy[Any] = st.dictionaries(
    st.sampled_from(CUSTOM_OPTIONS), CUSTOM_NUMBERS | st.text(CHARACTERS, max_size=2)
) | st.builds(dict, T=st.sampled_from([0, 2, 7]), fft_length=CUSTOM_NUMBERS)
"""Options of custom operators. Most of them go by their places, so that the names matter little."""


@st.composite
def of_one_operator(draw: st.DrawFn, operator: BuiltinOperator | str) -> bytes:
    """A model of one operator, with any number of tensors of any kind; half of the models are plain ones."""
    plain = draw(st.booleans())
    int16, unsigned = [TensorType.INT16], [TensorType.UINT32]
    one_type = [[TensorType.FLOAT32], [INT8], int16, unsigned]
    types = st.sampled_from(draw(st.sampled_from(one_type if plain else [*one_type, TensorType])))
    shape = draw(st.lists(st.integers(1, 3), max_size=4).map(tuple) if plain else DIMENSIONS)
    shapes = st.just(shape) if plain else st.just(shape) | DIMENSIONS
    quantization = st.just(tflm.quantized(0.5)) if plain else st.none() | QUANTIZATIONS
    builder = tflm.ModelBuilder()
    main = builder.subgraph()
    inputs = draw(st.integers(1, 2) if plain else st.integers(0, 6))
    outputs = 1 if plain else draw(st.sampled_from([1, 1, 1, 2, 0]))
    for i in range(inputs + outputs):
        type, shape = draw(types), draw(shapes)
        constant = i < inputs and not plain and draw(st.sampled_from([False, False, True]))
        buffer = builder.buffer(draw(st.binary(max_size=3)) * 64) if constant else 0
        variable = not plain and draw(st.integers(0, 9)) == 9
        main.tensor(f"tensor {i}", shape, type, draw(quantization), buffer=buffer, is_variable=variable)
    main.table.inputs = tuple(range(inputs))
    main.output(*range(inputs, inputs + outputs))
    kind = OPTIONS.get(operator.name.replace("_", "")) if isinstance(operator, BuiltinOperator) else None
    options = draw(st.just(kind()) if plain else st.none() | st.just(kind()) | tables_of(kind)) if kind else None
    custom = st.none() | st.binary(max_size=24) | st.builds(bytes, CUSTOM_MAPS.map(flexbuffers.Dumps))
    custom_options = None if isinstance(operator, BuiltinOperator) else draw(custom)
    tensors = range(inputs), range(inputs, inputs + outputs)
    main.operator(operator, *tensors, options, custom_options=custom_options)
    return builder.build()


@pytest.mark.parametrize("operator", REGISTRATIONS)
@given(data=st.data())
@FOR_EACH_OPERATOR
def test_any_tensors_of_an_operator_are_run_or_refused(operator: str, data: st.DataObject) -> None:
    """Tensors of any number, type, rank, size and quantization, with any options."""
    run(data.draw(of_one_operator(REGISTRATIONS[operator].operator)))


@pytest.mark.runs(0.1)
@given(data=st.data())
def test_of_any_tensors_of_a_simple_operator_some_run(data: st.DataObject) -> None:
    """The others ask for more of their tensors than comes by chance; see `with_one_thing_changed`."""
    operators = ("ABS", "ADD", "CAST", "MAXIMUM", "NEG", "RELU", "RELU6", "RESHAPE", "SQUARED_DIFFERENCE", "SQUEEZE")
    run(data.draw(of_one_operator(REGISTRATIONS[data.draw(st.sampled_from(operators))].operator)))


STEPS = st.sampled_from([-(2**31), -1, 0, 1, 2, 3, 7, 2**15, 2**31 - 1])


@st.composite
def with_one_thing_changed(draw: st.DrawFn, operator: str) -> bytes:
    """Draw a valid model of one operator in which one tensor, the options, or an input is changed."""
    data, _ = draw(OPERATORS[operator])
    model = schema.read_model(memoryview(data))
    assert model.subgraphs
    subgraph = model.subgraphs[0]
    assert subgraph.tensors
    assert subgraph.operators
    node, tensor = subgraph.operators[0], draw(st.sampled_from(subgraph.tensors))
    things = ["dimension", "rank", "type", "quantization", "buffer", "inputs", "options", "step"]
    thing = draw(st.sampled_from(things))
    numbers = [field.name for field in fields_of(type(node.builtin_options)) if field.wire == Scalar("i")]
    if thing == "dimension" and tensor.shape:
        at = draw(st.integers(0, len(tensor.shape) - 1))
        tensor.shape = (*tensor.shape[:at], draw(st.integers(-1, 9)), *tensor.shape[at + 1 :])
    elif thing == "rank":
        tensor.shape = draw(st.sampled_from([(tensor.shape or ())[1:], (*(tensor.shape or ()), 1), ()]))
    elif thing == "type":
        tensor.type = draw(st.sampled_from(TensorType))
    elif thing == "quantization":
        scales = draw(st.lists(SCALES, min_size=1, max_size=3))
        tensor.quantization = draw(st.none() | st.just(tflm.quantized(scales, 0, draw(st.integers(-1, 4)))))
    elif thing == "buffer":
        tensor.buffer = 0
    elif thing == "inputs":
        node.inputs = draw(st.lists(st.integers(-1, len(subgraph.tensors) - 1), max_size=5).map(tuple))
    elif thing == "step" and numbers:
        setattr(node.builtin_options, draw(st.sampled_from(numbers)), draw(STEPS))
    elif node.builtin_options is not None:
        node.builtin_options = draw(st.none() | tables_of(type(node.builtin_options)))
    return schema.write_model(model)


@pytest.mark.parametrize("operator", OPERATORS)
@given(data=st.data())
@FOR_EACH_OPERATOR
def test_a_model_with_one_thing_changed_is_run_or_refused(operator: str, data: st.DataObject) -> None:
    run(data.draw(with_one_thing_changed(operator)), arena_size=1 << 18)


@pytest.mark.runs(0.15)
@given(data=st.data())
@settings(max_examples=max(100, settings().max_examples))
def test_of_models_with_one_thing_changed_some_run(data: st.DataObject) -> None:
    run(data.draw(with_one_thing_changed(data.draw(st.sampled_from([*OPERATORS])))), arena_size=1 << 18)


def of_scalars(operator: str, inputs: int, types: tuple[TensorType, TensorType], scales: tuple[float, float]) -> bytes:
    """A model of one operator, with inputs of one type and scale and an output of others; all are scalars."""
    builder = tflm.ModelBuilder()
    main = builder.subgraph()
    x = [main.input(f"x{i}", (), types[0], tflm.quantized(scales[0])) for i in range(inputs)]
    y = main.tensor("y", (), types[1], tflm.quantized(scales[1]))
    main.operator(REGISTRATIONS[operator].operator, x, [y])
    main.output(y)
    return builder.build()


EXTREME_SCALES, OTHER_SCALES = (3e38, 1e-45, math.inf), (-math.inf, 0.0, 0.25)
OPERATORS_AND_SCALES = some(
    itertools.product(REGISTRATIONS, (*EXTREME_SCALES, *OTHER_SCALES)),
    *zip(REGISTRATIONS, itertools.cycle(EXTREME_SCALES)),
)


@pytest.mark.parametrize(("operator", "scale"), OPERATORS_AND_SCALES)
@pytest.mark.parametrize("inputs", [1, 2])
def test_any_scale_of_an_operator_is_run_or_refused(operator: str, scale: float, inputs: int) -> None:
    """Scales of the inputs or of the output, for all types."""
    for types in types_of_scalars(operator, inputs):
        for scales in ((scale, 0.5), (0.5, scale), (scale, scale)):
            run(of_scalars(operator, inputs, types, scales))


@pytest.mark.runs(0.1)
def test_of_operators_on_scalars_some_run() -> None:
    for registration, type in itertools.product(REGISTRATIONS, (TensorType.FLOAT32, INT8)):
        run(of_scalars(registration, 1, (type, type), (0.5, 0.5)))


@functools.cache
def types_of_scalars(operator: str, inputs: int) -> list[tuple[TensorType, TensorType]]:
    """Return types of inputs and output: those that the operator accepts with valid scales, and one that it may
    reject."""
    types = (TensorType.FLOAT32, INT8, TensorType.INT16, TensorType.INT32)
    model = tflm.Model(of_scalars(operator, inputs, (INT8, INT8), (0.5, 0.5)))
    return [(INT8, TensorType.INT16)] + [pair for pair in itertools.product(types, repeat=2) if accepts(model, pair)]


def accepts(model: tflm.Model, types: tuple[TensorType, TensorType]) -> bool:
    """Change the types of the inputs and the output of a model, and return whether its operators accept them."""
    (*inputs, output) = model.subgraphs[0].tensors or ()
    for tensor in inputs:
        tensor.type = types[0]
    output.type = types[1]
    interpreter = tflm.MicroInterpreter(model, tflm.AllOpsResolver(), bytearray(4096), delegates=())
    with contextlib.suppress(tflm.TflmError):
        interpreter.allocate_tensors()
        return True
    return False


@pytest.mark.runs(0.3)
def test_any_beta_of_softmax_is_run_or_refused() -> None:
    for beta in (3e38, 1e-45, 0.0, -1.0, float("inf"), float("nan")):
        run(with_value("subgraphs[0].operators[2].builtin_options", schema.SoftmaxOptions(beta=beta)))


OFFSETS = st.integers(-(2**31), 2**31 - 1) | st.integers(-2, 70)
FREE_OFFSETS = st.just(-1) | st.integers(0, 40).map(lambda i: 16 * i)


@pytest.mark.runs(0.1)
@given(st.lists(OFFSETS, min_size=8, max_size=8) | st.lists(FREE_OFFSETS, min_size=8, max_size=8))
def test_any_offline_plan_is_obeyed_or_refused(offsets: list[int]) -> None:
    """Offsets may be negative, unaligned, vast, or the same for several tensors."""
    run(with_plan(struct.pack("<11i", 1, 0, 8, *offsets)))


@pytest.mark.parametrize("length", [0, 4, 11, 12, 40, 43])
def test_a_plan_that_is_cut_off_is_refused(length: int) -> None:
    error = refusal_of_plan(struct.pack("<11i", 1, 0, 8, *[-1] * 8)[:length])
    assert "too few" in error.reason


@pytest.mark.parametrize("count", [7, 9, 0, -1, 2**31 - 1])
def test_a_plan_for_another_number_of_tensors_is_refused(count: int) -> None:
    error = refusal_of_plan(struct.pack("<12i", 1, 0, count, *[-1] * 9))
    assert f"{count} tensors, the model has 8" in error.reason


def with_plan(plan: bytes) -> bytes:
    """The small net with a memory plan in its metadata."""
    model = schema.read_model(memoryview(NET))
    model.metadata[0].name = "OfflineMemoryAllocation"
    model.buffers[model.metadata[0].buffer].data = plan
    return schema.write_model(model)


def refusal_of_plan(plan: bytes) -> tflm.ModelError:
    """The error that a broken plan is refused with."""
    data = with_plan(plan)
    error = refusal_of(data)
    assert "offline plan is broken" in error.reason
    assert where(error) == ("Metadata", "buffer", "OfflineMemoryAllocation")
    assert [str(finding) for finding in tflm.verify(data)] == [str(error)]
    return error


ONLINE = -1


@pytest.mark.parametrize(
    ("offsets", "reason"),
    [
        ((-2, *[ONLINE] * 7), "offset -2 is negative"),
        ((*[ONLINE] * 7, -(2**31)), "offset -2147483648 is negative"),
        ((0, ONLINE, ONLINE, 0, *[ONLINE] * 4), "tensor 0 ('x') and tensor 3 ('h')"),
        ((ONLINE, ONLINE, ONLINE, 16, 18, *[ONLINE] * 3), "tensor 3 ('h') and tensor 4 ('r')"),
    ],
)
def test_a_plan_with_an_overlap_or_a_negative_offset_is_refused(offsets: tuple[int, ...], reason: str) -> None:
    assert reason in refusal_of_plan(struct.pack("<11i", 1, 0, 8, *offsets)).reason


@pytest.mark.parametrize(
    "offsets",
    [
        (0, ONLINE, ONLINE, 16, 0, 16, ONLINE, ONLINE),  # x and r, h and y are never alive together
        (ONLINE, ONLINE, ONLINE, 16, 14, *[ONLINE] * 3),  # RELU writes what it has read
        (0, 0, 0, 16, ONLINE, ONLINE, ONLINE, ONLINE),  # constants are not planned
        (0, ONLINE, ONLINE, 16, ONLINE, ONLINE, 0, 0),  # the second subgraph is never run
    ],
)
def test_a_plan_may_use_bytes_again(offsets: tuple[int, ...]) -> None:
    data = with_plan(struct.pack("<11i", 1, 0, 8, *offsets))
    assert tflm.verify(data) == []
    interpreter = tflm.MicroInterpreter(tflm.Model(data), tflm.AllOpsResolver(), bytearray(4096))
    interpreter.allocate_tensors()
    interpreter.invoke()


@pytest.mark.parametrize(
    ("offsets", "kept", "is_good"),
    [
        ((0, 0, 0, 16), None, True),
        ((0, 1, 16, 32), None, False),
        ((0, 0, 0, 0), None, True),
        ((0, 0, 0, 2), None, False),
        ((0, 0, 0, 16), "x", True),
        ((0, 0, 0, 0), "x", False),
        ((0, 0, 0, 0), "b", False),
    ],
)
def test_an_output_may_be_planned_in_place(offsets: tuple[int, ...], kept: str | None, is_good: bool) -> None:
    """x -> RESHAPE -> RESHAPE -> RELU: all tensors may be one, the last only if none before it is an output as well."""
    builder = tflm.ModelBuilder()
    main = builder.subgraph()
    x = main.input("x", (4,), INT8, HALF)
    a, b = main.tensor("a", (2, 2), INT8, HALF), main.tensor("b", (4, 1), INT8, HALF)
    y = main.tensor("y", (4, 1), INT8, HALF)
    main.operator(BuiltinOperator.RESHAPE, [x], [a], schema.ReshapeOptions(new_shape=(2, 2)))
    main.operator(BuiltinOperator.RESHAPE, [a], [b], schema.ReshapeOptions(new_shape=(4, 1)))
    main.operator(BuiltinOperator.RELU, [b], [y])
    main.output(y)
    if kept is not None:
        main.output({"x": x, "b": b}[kept])
    builder.metadata("OfflineMemoryAllocation", struct.pack("<7i", 1, 0, 4, *offsets))
    assert (tflm.verify(builder.build()) == []) is is_good
    if is_good:
        interpreter = tflm.MicroInterpreter(tflm.Model(builder.build()), tflm.AllOpsResolver(), bytearray(4096))
        interpreter.allocate_tensors()
        interpreter.input(0).data = [-1, 2, 0, 9]
        interpreter.invoke()
        assert interpreter.output(0).data.tolist() == [[0], [2], [0], [9]]


@pytest.mark.parametrize(("in_subgraph", "is_good"), [(0, False), (64, True)])
def test_a_plan_is_judged_across_the_subgraphs_that_are_run(in_subgraph: int, is_good: bool) -> None:
    """A variable of a subgraph that runs once is alive for ever, and so are inputs that are read later."""
    builder = tflm.ModelBuilder()
    main = builder.subgraph()
    x, y = main.input("x", (4,), INT8, HALF), main.tensor("y", (4,), INT8, HALF)
    main.operator(BuiltinOperator.CALL_ONCE, [], [], call_once(1))
    main.operator(BuiltinOperator.RELU, [x], [y])
    main.output(y)
    other = builder.subgraph("other")
    u = other.constant("u", np.ones(4, np.int8), HALF)
    v = other.tensor("v", (4,), INT8, HALF)
    other.operator(BuiltinOperator.RELU, [u], [v])
    builder.metadata("OfflineMemoryAllocation", struct.pack("<7i", 1, 0, 4, 0, 16, ONLINE, in_subgraph))
    assert (tflm.verify(builder.build()) == []) is is_good


@pytest.mark.parametrize(
    ("path", "value", "reason"),
    [
        ("version", 2, "schema version 2, only version 3 is known"),
        ("version", 0, "schema version 0"),
        ("subgraphs[0].tensors[1].quantization.zero_point", (0, 0), "2 zero points for 1 scales"),
    ],
)
def test_what_is_odd_and_runs_in_tflm_is_a_warning(path: str, value: Any, reason: str) -> None:
    model = schema.read_model(memoryview(NET))
    *parents, field = path.split(".")
    setattr(functools.reduce(_part, parents, model), field, value)
    data = schema.write_model(model)
    (finding,) = tflm.verify(data)
    assert finding.level == "warning"
    assert reason in finding.reason
    run(data)


def _part(table: Any, name: str) -> Any:
    name, _, index = name.partition("[")
    part = getattr(table, name)
    return part[int(index.rstrip("]"))] if index else part


def test_a_model_without_the_identifier_is_a_model() -> None:
    data = NET[:4] + bytes(4) + NET[8:]
    (finding,) = tflm.verify(data)
    assert finding.level == "warning"
    assert "identifier" in finding.reason
    run(data)


@pytest.mark.parametrize(
    ("operator", "inputs", "outputs"), [(1, (4,), (4,)), (0, (5, 1, 2), (3,)), (2, (3, 4), (4,)), (0, (3, 1, 2), (3,))]
)
def test_what_reads_before_it_is_written_runs_only_if_that_is_wanted(
    operator: int, inputs: tuple[int, ...], outputs: tuple[int, ...]
) -> None:
    model = schema.read_model(memoryview(NET))
    changed = (model.subgraphs or [])[0].operators[operator]
    changed.inputs, changed.outputs = inputs, outputs
    data = schema.write_model(model)
    assert refusal_of(data).unsound
    tflm.Model(data, checks="tflm")


# --- Small files that describe vast models --------------------------------------------------------------------------


class TooMuchWork(Exception):
    """More function calls than anything that grows with the size of the file could need."""


@contextlib.contextmanager
def calls_limited_to(limit: int) -> Iterator[None]:
    """Stop a computation that would not end: it fails by what it does, on a machine of any speed."""
    calls = 0

    def count(*_: object) -> None:
        nonlocal calls
        calls += 1
        if calls > limit:
            raise TooMuchWork(f"more than {limit} calls")

    previous = sys.getprofile()
    sys.setprofile(count)
    try:
        yield
    finally:
        sys.setprofile(previous)


def finished(builder: flatbuffers.Builder, root: int) -> bytes:
    builder.Finish(root, file_identifier=b"TFL3")
    return bytes(builder.Output())


def vector_of(builder: flatbuffers.Builder, tables: list[int]) -> int:
    builder.StartVector(4, len(tables), 4)
    for table in reversed(tables):
        builder.PrependUOffsetTRelative(table)
    return int(builder.EndVector())


def table_of(builder: flatbuffers.Builder, version: int = 0, **offsets: int) -> int:
    """A table with offsets at slots: `slot3=...`."""
    builder.StartObject(10)
    for slot, offset in offsets.items():
        builder.PrependUOffsetTRelativeSlot(int(slot.removeprefix("slot")), offset, 0)
    builder.PrependUint32Slot(0, version, 0)
    return int(builder.EndObject())


def shared_tables(count: int) -> bytes:
    """`count` references to one subgraph that has `count` references to one tensor."""
    builder = flatbuffers.Builder(0)
    tensor = table_of(builder)
    subgraph = table_of(builder, slot0=vector_of(builder, [tensor] * count))
    return finished(builder, table_of(builder, 3, slot2=vector_of(builder, [subgraph] * count)))


def test_a_tag_without_a_value_is_refused_where_the_table_ends_with_it() -> None:
    builder = flatbuffers.Builder(0)
    builder.StartObject(4)
    builder.PrependUint8Slot(3, 8, 0)
    operators = vector_of(builder, [builder.EndObject()])
    subgraphs = vector_of(builder, [table_of(builder, slot3=operators)])
    with pytest.raises(tflm.ModelError, match=r"union tag 8 \(FullyConnectedOptions\) without a value"):
        tflm.Model(finished(builder, table_of(builder, 3, slot2=subgraphs)))


def overlapping_numbers(count: int) -> bytes:
    """Shapes of `count` tensors, each of `count` numbers, that begin 4 bytes apart."""
    builder = flatbuffers.Builder(0)
    numbers = builder.CreateNumpyVector(np.full(2 * count, count, np.int32))
    tensors = [table_of(builder, slot0=numbers - 4 * i) for i in range(1, count)]
    subgraph = table_of(builder, slot0=vector_of(builder, tensors))
    return finished(builder, table_of(builder, 3, slot2=vector_of(builder, [subgraph])))


def overlapping_strings(count: int) -> bytes:
    """Names of `count` tensors, each of about 4 x `count` characters, that begin 4 bytes apart."""
    builder = flatbuffers.Builder(0)
    length = 4 * count + 2  # behind so many characters is the upper half of another such number: the zero at the end
    lengths = builder.CreateNumpyVector(np.full(2 * count + 2, length, np.int32))
    tensors = [table_of(builder, slot3=lengths - 4 * i) for i in range(1, count)]
    subgraph = table_of(builder, slot0=vector_of(builder, tensors))
    return finished(builder, table_of(builder, 3, slot2=vector_of(builder, [subgraph])))


def shared_vector(operators: int, count: int) -> bytes:
    """Operators that have one vector of `count` inputs between them."""
    builder = flatbuffers.Builder(0)
    inputs = builder.CreateNumpyVector(np.full(count, -1, np.int32))
    tables = [table_of(builder, slot1=inputs) for _ in range(operators)]
    subgraph = table_of(builder, slot3=vector_of(builder, tables))
    return finished(builder, table_of(builder, 3, slot2=vector_of(builder, [subgraph])))


BOMBS = {
    "shared numbers": (shared_vector(2000, 2000), "Operator", "shared so often"),
    "shared tables": (shared_tables(2000), "Tensor", "more references to tables than a file"),
    "overlapping numbers": (overlapping_numbers(2000), "Tensor", "they overlap"),
    "overlapping strings": (overlapping_strings(2000), "Tensor", "they overlap"),
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_parts_that_overlap_are_refused_before_they_multiply(bomb: str) -> None:
    """Read one by one, each of these files of a few kilobytes is a model of millions of elements."""
    data, table, reason = BOMBS[bomb]
    assert len(data) < 200_000
    with calls_limited_to(20 * len(data)):
        error = refusal_of(data)
    assert error.table == table
    assert reason in error.reason


@pytest.mark.parametrize("bomb", BOMBS)
def test_verify_gives_up_on_parts_that_overlap(bomb: str) -> None:
    """It goes on after a finding, and still neither lists nor does more than the size of the file allows."""
    data, _, reason = BOMBS[bomb]
    with calls_limited_to(40 * len(data)):
        findings = tflm.verify(data)
    assert any(reason in finding.reason for finding in findings)
    assert len(findings) <= len(data)


def overlapping_vectors(tables: int, count: int, dtype: type[np.generic]) -> bytes:
    """Tensors with a vector each of `count` numbers, which begin one number apart."""
    builder = flatbuffers.Builder(0)
    width = np.dtype(dtype).itemsize
    lengths = np.full((tables + count + 1) * width // 4, count, np.uint32)  # 4 bytes before a number are a length
    numbers = builder.CreateNumpyVector(lengths.view(dtype))
    if width == 4:
        tensors = [table_of(builder, slot0=numbers - width * i) for i in range(1, tables + 1)]
    else:
        zero_points = [table_of(builder, slot3=numbers - width * i) for i in range(1, tables + 1)]
        tensors = [table_of(builder, slot4=each) for each in zero_points]
    subgraph = table_of(builder, slot0=vector_of(builder, tensors))
    return finished(builder, table_of(builder, 3, slot2=vector_of(builder, [subgraph])))


BUDGETS = {
    "numbers of 4 bytes": (overlapping_vectors(8, 100, np.int32), 8 * 100 * 4, "they overlap"),
    "numbers of 8 bytes": (overlapping_vectors(8, 100, np.int64), 8 * 100 * 8, "they overlap"),
    "elements of shared vectors": (shared_vector(60, 1000), 60 * 1000 // 8, "shared so often"),
    "references to tables": (shared_tables(20), (1 + 20 * (1 + 20)) * 4, "more references to tables than a file"),
}
"""Files, the size from which they may have as much as they do, and why a smaller one is refused."""


@pytest.mark.parametrize("budget", BUDGETS)
def test_a_file_has_as_much_as_its_size_allows(budget: str) -> None:
    """Bytes that follow a model belong to the file."""
    data, size, reason = BUDGETS[budget]
    assert len(data) < size
    schema.read_model(memoryview(data.ljust(size, b"\0")))
    with pytest.raises(tflm.ModelError, match=reason):
        schema.read_model(memoryview(data.ljust(size - 1, b"\0")))


def overlapping_vtables(count: int) -> bytes:
    """`count` tables without anything in them, each with a vtable of 65520 bytes; these begin 4 bytes apart."""
    vtable_bytes, table_bytes = 65520, 65532  # the first is the offset of every other field too
    root_vtable = struct.pack("<12H", 24, 12, 4, *[0] * 7, 8, 0)
    head = struct.pack("<I4s", 8 + len(root_vtable), b"TFL3") + root_vtable
    head += struct.pack("<iIII", len(root_vtable), 3, 4, count)
    references = struct.pack(f"<{count}I", *[4 * count] * count)
    tables = struct.pack(f"<{count}i", *[-4 * count] * count)
    vtables = struct.pack("<HH", vtable_bytes, table_bytes) * (count + vtable_bytes // 4)
    return head + references + tables + vtables + bytes(table_bytes)


def test_overlapping_vtables_are_read_no_further_than_the_schema_goes() -> None:
    """Each has room for 32758 fields; to look at all of them, for each table, takes forever, and memory at once."""
    data = overlapping_vtables(20_000)
    refusal_of(data)  # exclude what is computed on first use
    tracemalloc.start()
    error = refusal_of(data)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 65520
    assert where(error) == ("ExternalBufferGroup", "name", "external_buffer_groups[0]")
    assert len(tflm.verify(data)) == 20_000


def chain_of_subgraphs(length: int, calls: int) -> bytes:
    """y = relu(x), in the first of many subgraphs, each of which runs the next one `calls` times."""
    builder = tflm.ModelBuilder()
    main = builder.subgraph()
    x, y = main.input("x", (4,), INT8, HALF), main.tensor("y", (4,), INT8, HALF)
    main.operator(BuiltinOperator.RELU, [x], [y])
    main.output(y)
    caller = main
    for callee in range(1, length):
        for _ in range(calls):
            caller.operator(BuiltinOperator.CALL_ONCE, [], [], call_once(callee))
        caller = builder.subgraph(f"subgraph {callee}")
    return builder.build()


@pytest.mark.parametrize(("length", "calls"), [(1500, 1), (60, 2)], ids=["deep", "doubling"])
def test_subgraphs_that_run_others_without_an_end_in_sight_are_refused(length: int, calls: int) -> None:
    """A long chain does not end in a RecursionError, and one that doubles at each step ends at all."""
    data = chain_of_subgraphs(length, calls)
    with calls_limited_to(50 * len(data)):
        error = refusal_of(data)
        findings = tflm.verify(data)
    assert (error.table, error.field) == ("SubGraph", "operators")
    assert re.fullmatch(r"subgraphs\[\d+\]", error.place)
    assert [str(finding) for finding in findings] == [str(error)]


def subgraphs_of(calls: dict[int, list[int]], relus: int = 0) -> bytes:
    """Return subgraphs that each run others by CALL_ONCE; the first one also has this many RELUs."""
    builder = tflm.ModelBuilder()
    for caller, callees in calls.items():
        subgraph = builder.subgraph(f"subgraph {caller}")
        for callee in callees:
            subgraph.operator(BuiltinOperator.CALL_ONCE, [], [], call_once(callee))
        if caller == 0:
            x = subgraph.input("x", (1,), TensorType.FLOAT32)
            for i in range(relus):
                y = subgraph.tensor(f"y{i}", (1,), TensorType.FLOAT32)
                subgraph.operator(BuiltinOperator.RELU, [x], [y])
            subgraph.output(x)
    return builder.build()


def test_subgraphs_are_counted_as_they_run_not_as_they_stand() -> None:
    """Several may run one, and a tree may be as wide as it likes to, up to 100,000 steps and a depth of 100."""
    assert tflm.verify(subgraphs_of({0: [1, 2, 3, 3], 1: [4, 4], 2: [4], 3: [2, 4], 4: []})) == []
    wide = {0: [1] * 250, 1: [2] * 199, 2: []}  # 250 * (2 + 199 * 2) steps
    assert tflm.verify(subgraphs_of(wide)) == []
    (finding,) = tflm.verify(subgraphs_of(wide, relus=1))
    assert "100001 operators in all" in str(finding)
    assert tflm.verify(chain_of_subgraphs(100, 1)) == []
    assert len(tflm.verify(chain_of_subgraphs(101, 1))) == 1
    for cycle in ({0: [1], 1: [0]}, {0: [1], 1: [2], 2: [1]}, {0: [1], 1: [], 2: [2]}):
        (finding,) = tflm.verify(subgraphs_of(cycle))
        assert "runs itself" in str(finding)


@pytest.mark.parametrize(("length", "calls"), [(90, 1), (8, 2)], ids=["deep", "doubling"])
def test_subgraphs_may_run_others_within_reason(length: int, calls: int) -> None:
    data = chain_of_subgraphs(length, calls)
    assert tflm.verify(data) == []
    interpreter = tflm.MicroInterpreter(tflm.Model(data), tflm.AllOpsResolver(), bytearray(1 << 18))
    with calls_limited_to(3_000_000):
        interpreter.allocate_tensors()
        interpreter.input(0).data[:] = [-1, 2, 0, -7]
        interpreter.invoke()
    assert interpreter.output(0).data.tolist() == [0, 2, 0, 0]
    (output,) = (buffer for buffer in interpreter.planned_buffers() if buffer.name == "y")
    assert output.last_use >= (length - 1) * calls  # one step at least for each subgraph that is run


@pytest.mark.parametrize(("length", "is_good"), [(100, True), (101, False)])
def test_subgraphs_run_others_a_hundred_deep(length: int, is_good: bool) -> None:
    assert (tflm.verify(chain_of_subgraphs(length, 1)) == []) is is_good


@pytest.mark.parametrize(("more", "is_good"), [(0, True), (1, False)])
def test_one_pass_has_a_hundred_thousand_operators(more: int, is_good: bool) -> None:
    """A thousand times CALL_ONCE, a subgraph, and the 98 operators of that; and some more."""
    builder = tflm.ModelBuilder()
    main, called = builder.subgraph(), builder.subgraph("called")
    x, constant = main.input("x", (1,), INT8, HALF), called.constant("x", np.ones(1, np.int8), HALF)
    for _ in range(1000):
        main.operator(BuiltinOperator.CALL_ONCE, [], [], call_once(1))
    for i in range(98):
        called.operator(BuiltinOperator.RELU, [constant], [called.tensor(f"y{i}", (1,), INT8, HALF)])
    for i in range(more):
        main.operator(BuiltinOperator.RELU, [x], [main.tensor(f"y{i}", (1,), INT8, HALF)])
    main.output(x)
    assert (tflm.verify(builder.build()) == []) is is_good


@pytest.mark.parametrize(
    ("type", "shape", "is_good"),
    [
        (INT8, (2**31 - 1,), True),
        (INT8, (2**31 - 1, 0), True),
        (INT8, (2**16, 2**15), False),
        (TensorType.INT16, (2**30 - 1,), True),
        (TensorType.INT16, (2**30,), False),
        (TensorType.INT4, (2**31 - 1, 2), True),
        (INT8, (1,) * 32, True),
        (INT8, (1,) * 33, False),
    ],
)
def test_tensors_have_less_than_2_gib_and_32_dimensions(
    type: TensorType, shape: tuple[int, ...], is_good: bool
) -> None:
    builder = tflm.ModelBuilder()
    main = builder.subgraph()
    main.output(main.input("x", shape, type))
    assert (tflm.verify(builder.build()) == []) is is_good


@pytest.mark.parametrize(
    ("type", "low", "high"),
    [
        (INT8, -128, 127),
        (TensorType.UINT8, 0, 255),
        (TensorType.INT16, -32768, 32767),
        (TensorType.UINT16, 0, 65535),
        (TensorType.INT32, -(2**31), 2**31 - 1),
        (TensorType.FLOAT32, -(2**31), 2**31 - 1),
    ],
)
def test_zero_points_end_where_the_type_does(type: TensorType, low: int, high: int) -> None:
    for zero_point, is_good in ((low, True), (high, True), (low - 1, False), (high + 1, False)):
        builder = tflm.ModelBuilder()
        main = builder.subgraph()
        main.output(main.input("x", (2,), type, tflm.quantized(0.5, zero_point)))
        assert (tflm.verify(builder.build()) == []) is is_good


def test_scales_end_where_floats_of_full_precision_do() -> None:
    limits = np.finfo(np.float32)
    for scale, is_good in ((limits.tiny, True), (limits.max, True), (float(limits.tiny) / 2, False), (math.inf, False)):
        builder = tflm.ModelBuilder()
        main = builder.subgraph()
        main.output(main.input("x", (2,), INT8, tflm.quantized(float(scale))))
        assert (tflm.verify(builder.build()) == []) is is_good


@pytest.mark.parametrize(
    ("type", "bits"),
    [(INT8, 8), (TensorType.INT4, 4), (TensorType.INT2, 2), (TensorType.INT16, 16), (TensorType.INT32, 32)],
)
@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 8])
def test_a_constant_has_as_many_bytes_as_its_elements_take(type: TensorType, bits: int, count: int) -> None:
    needed = math.ceil(count * bits / 8)
    for size, is_good in ((needed, True), (needed - 1, needed == 1), (needed + 1, True)):
        builder = tflm.ModelBuilder()
        main = builder.subgraph()
        main.output(main.input("x", (1,), INT8, HALF))
        tensor = main.constant("c", np.zeros(size, np.uint8))
        tables = main.table.tensors or []
        tables[tensor].type, tables[tensor].shape = type, (count,)
        # No bytes at all are those of a tensor that is made by an operator; here nobody reads it.
        assert (tflm.verify(builder.build()) == []) is is_good


@pytest.mark.parametrize(("name", "is_good"), [("", False), ("Mine", True)])
def test_a_custom_operator_has_a_name(name: str, is_good: bool) -> None:
    model = schema.read_model(memoryview(NET))
    codes = model.operator_codes or []
    codes[0].builtin_code, codes[0].deprecated_builtin_code, codes[0].custom_code = BuiltinOperator.CUSTOM, 32, name
    assert (tflm.verify(schema.write_model(model)) == []) is is_good


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ([1, 0, 1, -1], ""),
        ([1, 0, 1, 0], ""),
        ([1, 0, 1, 0, 99], ""),
        ([1, 0], "8 bytes are too few for its header"),
        ([1, 0, 2, 0, 16], "it has offsets for 2 tensors, the model has 1"),
        ([1, 0, 0], "it has offsets for 0 tensors, the model has 1"),
        ([1, 0, 1], "12 bytes are too few for 1 offsets"),
        ([1, 0, 1, -2], "offset -2 is negative"),
    ],
)
def test_an_offline_plan_has_an_offset_for_each_tensor(words: list[int], reason: str) -> None:
    builder = tflm.ModelBuilder()
    main = builder.subgraph()
    main.output(main.input("x", (1,), INT8, HALF))
    builder.metadata("OfflineMemoryAllocation", struct.pack(f"<{len(words)}i", *words))
    findings = tflm.verify(builder.build())
    assert [reason in str(finding) for finding in findings] == ([True] if reason else [])
