"""The `.tflite` format: models are read back as they were written, and an independent flatbuffer reader agrees."""

from __future__ import annotations

import functools
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from enum import EnumMeta
from pathlib import Path
from typing import Any

import flatbuffers
import numpy as np
import pytest
from example_models import INT8_MODEL
from flatbuffers import number_types
from hypothesis import given
from hypothesis import strategies as st
from sampling import CHARACTERS

import tflm
from tflm import schema
from tflm.schema import enums, options, tables, verifier
from tflm.schema.layout import (
    Bytes,
    Field,
    Scalar,
    ScalarVector,
    StringType,
    SubTable,
    Table,
    TableUnion,
    TableVector,
    UnionType,
    Wire,
    fields_of,
)

ALL_TABLES = {
    name: kind
    for module in (options, tables)
    for name, kind in vars(module).items()
    if isinstance(kind, type) and issubclass(kind, Table) and kind is not Table and TableUnion not in kind.mro()[:2]
}


# --- Tables filled in by their own declarations ----------------------------------------------------------------------


def children_of(wire: Wire) -> tuple[type[Table], ...]:
    """The tables that a field can hold."""
    if isinstance(wire, UnionType):
        return wire.members
    return (wire.table,) if isinstance(wire, (TableVector, SubTable)) else ()


def find_parents() -> dict[type[Table], tuple[type[Table], Field]]:
    """Return, for every table below the root, a table that refers to it, and the field that does."""
    parents: dict[type[Table], tuple[type[Table], Field]] = {}
    pending: list[type[Table]] = [schema.Model]
    for parent in pending:
        for field in fields_of(parent):
            for child in children_of(field.wire):
                if child not in parents:
                    parents[child] = parent, field
                    pending.append(child)
    return parents


PARENTS = find_parents()


def model_with(table: Table) -> schema.Model:
    """A model in which nothing is set but this table, and the way to it."""
    while not isinstance(table, schema.Model):
        parent, field = PARENTS[type(table)]
        table = parent(**{field.name: [table] if isinstance(field.wire, TableVector) else table})
    return table


def empty_value(field: Field) -> Any:
    """Return a value that is present but empty."""
    wire = field.wire
    if isinstance(wire, Scalar):
        return field.default
    if isinstance(wire, StringType):
        return ""
    if isinstance(wire, ScalarVector):
        return ()
    if isinstance(wire, Bytes):
        return b""
    return [] if isinstance(wire, TableVector) else children_of(wire)[0]()


def lowest(code: str) -> Any:
    """The smallest value of a wire type; of floats, one that needs all its bits."""
    if code == "f":
        return float(np.float32(-1 / 3))
    if code == "?":
        return True
    bits = 8 * struct.calcsize(code)
    return 1 if code.isupper() else -(2 ** (bits - 1))


def highest(code: str) -> Any:
    """The largest value of a wire type."""
    if code in "f?":
        return {"f": float(np.finfo(np.float32).max), "?": True}[code]
    bits = 8 * struct.calcsize(code)
    return 2**bits - 1 if code.isupper() else 2 ** (bits - 1) - 1


def full_value(field: Field) -> Any:
    """Something other than the default, as far as the type has anything else."""
    wire = field.wire
    if isinstance(wire, Scalar):
        if wire.enum is not None:
            return next((member for member in reversed(wire.enum) if member != field.default), field.default)
        return not field.default if wire.code == "?" else lowest(wire.code)
    if isinstance(wire, StringType):
        return "größe \N{CHECK MARK}"
    if isinstance(wire, ScalarVector):
        return tuple(wire.enum) if wire.enum else (lowest(wire.code), highest(wire.code), lowest(wire.code))
    if isinstance(wire, Bytes):
        return bytes(range(19))
    if isinstance(wire, TableVector):
        return [filled(wire.table, full_value), wire.table()]
    return filled(children_of(wire)[-1], full_value)


def filled(kind: type[Table], value: Callable[[Field], Any]) -> Table:
    """A table with a value for each of its fields."""
    return kind(**{field.name: value(field) for field in fields_of(kind)})


FILLINGS = {"unset": lambda field: field.default, "empty": empty_value, "full": full_value}


# --- Random models ---------------------------------------------------------------------------------------------------

STRINGS = st.text(CHARACTERS, max_size=6) | st.binary(max_size=6).map(
    lambda raw: raw.decode("utf-8", "surrogateescape")
)


def scalars(code: str) -> st.SearchStrategy[Any]:
    """All values of a wire type but NaN, which is not equal to itself."""
    if code == "f":
        return st.floats(width=32, allow_nan=False)
    if code == "?":
        return st.booleans()
    bits = 8 * struct.calcsize(code)
    return st.integers(0, 2**bits - 1) if code.isupper() else st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def values_of(wire: Wire) -> st.SearchStrategy[Any]:
    """Everything that a field can hold; vectors are short."""
    if isinstance(wire, Scalar):
        return scalars(wire.code) if wire.enum is None else st.sampled_from(list(wire.enum))
    if isinstance(wire, StringType):
        return st.none() | STRINGS
    if isinstance(wire, ScalarVector):
        return st.none() | st.lists(values_of(Scalar(wire.code, wire.enum)), max_size=3).map(tuple)
    if isinstance(wire, Bytes):
        return st.none() | st.binary(max_size=20)
    if isinstance(wire, TableVector):
        return (
            st.none()
            | st.lists(tables_of(wire.table), max_size=2)
            | st.lists(tables_of(wire.table), min_size=1, max_size=2)
        )
    return st.none() | st.sampled_from(children_of(wire)).flatmap(tables_of)


@functools.cache
def tables_of(kind: type[Table]) -> st.SearchStrategy[Any]:
    """Tables of one kind, with anything in their fields."""
    return st.builds(kind, **{field.name: values_of(field.wire) for field in fields_of(kind)})


ANY_TABLE = st.sampled_from(list(ALL_TABLES.values())).flatmap(tables_of)
MODELS: st.SearchStrategy[schema.Model] = tables_of(schema.Model) | ANY_TABLE.map(model_with)


def read_back(model: schema.Model) -> schema.Model:
    return schema.read_model(memoryview(schema.write_model(model)))


# --- Round trips -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("filling", FILLINGS)
@pytest.mark.parametrize("name", ALL_TABLES)
def test_every_table_survives_a_round_trip(name: str, filling: str) -> None:
    """Unset, with everything there but empty, and with every field at an unusual value."""
    model = model_with(filled(ALL_TABLES[name], FILLINGS[filling]))
    assert read_back(model) == model


@pytest.mark.parametrize("name", [name for name, kind in ALL_TABLES.items() if fields_of(kind)])
def test_tables_that_differ_in_one_field_are_not_equal(name: str) -> None:
    """Otherwise the round trips above would prove nothing."""
    kind = ALL_TABLES[name]
    for field in fields_of(kind):
        if full_value(field) != field.default:
            assert kind(**{field.name: full_value(field)}) != kind(), field.name


def test_a_table_shows_what_differs_from_its_defaults() -> None:
    tensor = schema.Tensor(shape=(1, 2), name="x" * 60, type=schema.TensorType.INT8, quantization=tflm.quantized(0.5))
    shown = "QuantizationParameters(scale=(0.5,), zero_point=(0,))"
    assert (
        repr(tensor)
        == f"Tensor(shape=(1, 2), type={schema.TensorType.INT8!r}, name={'x' * 60!r}, quantization={shown})"
    )
    assert repr(schema.Tensor()) == "Tensor()"
    assert repr(schema.Tensor(shape=(1,) * 8, name="x" * 61)) == f"Tensor(shape={(1,) * 8}, name={'x' * 60!r}...)"
    assert repr(schema.Tensor(shape=(1,) * 9)) == "Tensor(shape=<9 of int>)"
    assert repr(schema.Buffer(data=b"abc")) == repr(schema.Buffer(data=memoryview(b"abc"))) == "Buffer(data=<3 bytes>)"
    subgraph = schema.SubGraph(tensors=[tensor], operators=[])
    assert repr(subgraph) == "SubGraph(tensors=<1 of Tensor>, operators=[])"


def test_a_table_has_no_other_fields_and_equals_no_other_table() -> None:
    with pytest.raises(TypeError, match="Tensor has no field 'nmae', 'size'"):
        schema.Tensor(nmae="x", shape=(1,), size=3)  # type: ignore[call-arg]
    assert schema.Tensor() != schema.Buffer()
    assert schema.AbsOptions() != schema.AddNOptions()
    assert schema.Tensor() == schema.Tensor(shape=None)


@given(MODELS)
def test_a_model_that_is_written_is_read_back(model: schema.Model) -> None:
    assert read_back(model) == model


@given(MODELS)
def test_the_same_model_always_gives_the_same_bytes(model: schema.Model) -> None:
    """Whether it is the model that was made in code, or the one that was read from a file."""
    data = schema.write_model(model)
    assert schema.write_model(model) == data
    assert schema.write_model(schema.read_model(memoryview(data))) == data


def test_text_that_is_not_utf_8_is_kept() -> None:
    """Other writers may put any bytes into names: these are read without an error, and written unchanged."""
    data = schema.write_model(schema.Model(version=3, description="name"))
    broken = data.replace(b"name", b"n\xff\xfee")
    model = schema.read_model(memoryview(broken))
    assert model.description != "name"
    assert schema.write_model(model) == broken


@pytest.mark.parametrize(
    ("table", "field"),
    [
        (schema.Tensor(buffer=2**32), "buffer"),
        (schema.Tensor(buffer=-1), "buffer"),
        (schema.Tensor(shape=(1, 2**31)), "shape"),
        (schema.Tensor(shape=("a",)), "shape"),
        (schema.Tensor(is_variable=2), "is_variable"),
        (schema.Tensor(name=5), "name"),
        (schema.Tensor(name="\ud800"), "name"),
        (schema.Buffer(data=5.5), "data"),
        (schema.OperatorCode(deprecated_builtin_code=128), "deprecated_builtin_code"),
        (schema.Operator(builtin_options=schema.Tensor()), "builtin_options"),
    ],
    ids=lambda value: repr(value) if isinstance(value, Table) else None,
)
def test_a_value_that_does_not_fit_is_not_written(table: Table, field: str) -> None:
    with pytest.raises(tflm.ModelError, match="can't be written") as raised:
        schema.write_model(model_with(table))
    assert (raised.value.table, raised.value.field) == (type(table).__name__, field)


# --- The bytes, seen with the runtime of the flatbuffers project -----------------------------------------------------


def root_of(data: bytes) -> flatbuffers.table.Table:
    return flatbuffers.table.Table(bytearray(data), struct.unpack_from("<I", data)[0])


def offset_of(table: flatbuffers.table.Table, slot: int) -> int:
    """Return the offset of a field inside of its table; 0 if it is missing."""
    return int(table.Offset(4 + 2 * slot))


def child_of(table: flatbuffers.table.Table, slot: int) -> flatbuffers.table.Table:
    return flatbuffers.table.Table(table.Bytes, table.Indirect(table.Pos + offset_of(table, slot)))


def children_at(table: flatbuffers.table.Table, slot: int) -> list[flatbuffers.table.Table]:
    offset = offset_of(table, slot)
    start = table.Vector(offset)
    places = [table.Indirect(start + 4 * i) for i in range(table.VectorLen(offset))]
    return [flatbuffers.table.Table(table.Bytes, place) for place in places]


def number_at(table: flatbuffers.table.Table, slot: int, flags: Any) -> Any:
    return table.Get(flags, table.Pos + offset_of(table, slot))


def text_at(table: flatbuffers.table.Table, slot: int) -> bytes:
    return bytes(table.String(table.Pos + offset_of(table, slot)))


def small_model() -> bytes:
    """y = W x + b, with a constant, two subgraphs and a name that is not ASCII."""
    builder = tflm.ModelBuilder("small")
    main = builder.subgraph()
    x = main.input("größe", (1, 3), schema.TensorType.INT8, tflm.quantized(0.5, -3))
    w = main.constant("w", np.arange(6, dtype=np.int8).reshape(2, 3), tflm.quantized([0.25, 0.125]))
    y = main.tensor("y", (1, 2), schema.TensorType.INT8, tflm.quantized(2.0, 7))
    main.operator(schema.BuiltinOperator.FULLY_CONNECTED, [x, w, -1], [y], schema.FullyConnectedOptions())
    main.output(y)
    builder.subgraph("spare")
    builder.metadata("note", b"five!")
    return builder.build()


def test_another_reader_finds_what_was_written() -> None:
    """Slots counted by hand from the schema: nothing here goes through the declarations."""
    data = small_model()
    assert data[4:8] == b"TFL3"
    model = root_of(data)
    assert number_at(model, 0, number_types.Uint32Flags) == 3
    assert text_at(model, 3) == b"small"
    (code,) = children_at(model, 1)
    assert number_at(code, 0, number_types.Int8Flags) == number_at(code, 3, number_types.Int32Flags) == 9
    main, spare = children_at(model, 2)
    assert [text_at(main, 4), text_at(spare, 4)] == [b"main", b"spare"]
    x, w, y = children_at(main, 0)
    assert text_at(x, 3).decode() == "größe"
    assert number_at(y, 1, number_types.Int8Flags) == 9
    assert [x.GetVectorAsNumpy(number_types.Int32Flags, offset_of(x, 0)).tolist() for x in (x, w)] == [[1, 3], [2, 3]]
    scales = child_of(w, 4)
    assert scales.GetVectorAsNumpy(number_types.Float32Flags, offset_of(scales, 2)).tolist() == [0.25, 0.125]
    (operator,) = children_at(main, 3)
    assert operator.GetVectorAsNumpy(number_types.Int32Flags, offset_of(operator, 1)).tolist() == [0, 1, -1]
    assert number_at(operator, 3, number_types.Uint8Flags) == 8  # tag of FullyConnectedOptions
    constant = children_at(model, 4)[number_at(w, 2, number_types.Uint32Flags)]
    elements = constant.GetVectorAsNumpy(number_types.Uint8Flags, offset_of(constant, 0))
    assert elements.tolist() == [0, 1, 2, 3, 4, 5]


def test_the_last_of_several_metadata_entries_of_a_name_counts() -> None:
    builder = tflm.ModelBuilder()
    builder.subgraph()
    for text in (b"first", b"last"):
        builder.metadata("note", text)
    assert bytes(tflm.Model(builder.build()).metadata("note") or b"") == b"last"


def test_scales_are_those_that_the_file_will_have() -> None:
    builder = tflm.ModelBuilder()
    builder.subgraph().constant("w", np.zeros(2, np.int8), tflm.quantized([0.1, 0.3], 3))
    assert schema.read_model(builder.build()).subgraphs == builder.model.subgraphs


@given(st.lists(st.binary(max_size=40), max_size=5), st.text(CHARACTERS, max_size=20))
def test_the_data_of_every_buffer_starts_at_a_multiple_of_16(contents: list[bytes], description: str) -> None:
    """Firmware reads constants in place, from a file that is itself aligned to 16 bytes."""
    buffers = [schema.Buffer(data=content) for content in contents]
    model = root_of(schema.write_model(schema.Model(version=3, description=description, buffers=buffers)))
    for buffer, content in zip(children_at(model, 4), contents, strict=True):
        start = buffer.Vector(offset_of(buffer, 0))
        assert start % 16 == 0
        assert buffer.Bytes[start : start + len(content)] == content


@given(st.sampled_from("BhHiIqf"), st.integers(1, 9), st.text(CHARACTERS, max_size=20))
def test_a_buffer_may_be_a_view_of_elements_of_any_size(code: str, count: int, description: str) -> None:
    """They are written as the bytes that they are, aligned like any others."""
    elements = memoryview(bytes(range(count * struct.calcsize(code)))).cast(code)
    model = schema.Model(version=3, description=description, buffers=[schema.Buffer(data=elements)])
    (buffer,) = children_at(root_of(schema.write_model(model)), 4)
    start = buffer.Vector(offset_of(buffer, 0))
    assert start % 16 == 0
    assert buffer.Bytes[start : start + buffer.VectorLen(offset_of(buffer, 0))] == elements.tobytes()


def slots_present(table: Table) -> set[int]:
    """The slots that a table uses in the file that `model_with` makes of it."""
    way: list[Field] = []
    kind = type(table)
    while kind is not schema.Model:
        kind, field = PARENTS[kind]
        way.insert(0, field)
    here = root_of(schema.write_model(model_with(table)))
    for field in way:
        here = children_at(here, field.slot)[0] if isinstance(field.wire, TableVector) else child_of(here, field.slot)
    return {slot for slot in range(64) if offset_of(here, slot)}


@pytest.mark.parametrize("filling", ["unset", "full"])
@pytest.mark.parametrize("name", ALL_TABLES)
def test_a_field_is_in_the_file_just_where_it_differs_from_its_default(name: str, filling: str) -> None:
    table = filled(ALL_TABLES[name], FILLINGS[filling])
    expected = set()
    for field in fields_of(type(table)):
        if getattr(table, field.name) != field.default:
            expected |= {field.slot, field.slot - 1} if isinstance(field.wire, UnionType) else {field.slot}
    assert slots_present(table) == expected


# --- Facts of the schema ---------------------------------------------------------------------------------------------


def test_every_table_can_be_reached_from_the_root() -> None:
    assert {*PARENTS, schema.Model} == set(ALL_TABLES.values())


def test_the_schema_has_210_operators_without_a_gap() -> None:
    assert [operator.value for operator in schema.BuiltinOperator] == list(range(210))


def test_the_schema_has_23_tensor_types_without_a_gap() -> None:
    assert [kind.value for kind in schema.TensorType] == list(range(23))
    assert set(schema.ELEMENT_TYPES) == set(schema.TensorType)


@pytest.mark.parametrize(
    ("member", "value"),
    [
        (schema.BuiltinOperator.FULLY_CONNECTED, 9),
        (schema.BuiltinOperator.SVDF, 27),
        (schema.BuiltinOperator.CUSTOM, 32),
        (schema.BuiltinOperator.QUANTIZE, 114),
        (schema.BuiltinOperator.WHILE, 119),
        (schema.BuiltinOperator.PLACEHOLDER_FOR_GREATER_OP_CODES, 127),
        (schema.BuiltinOperator.CUMSUM, 128),
        (schema.BuiltinOperator.ASSIGN_VARIABLE, 144),
        (schema.BuiltinOperator.STABLEHLO_CASE, 209),
        (schema.TensorType.INT8, 9),
        (schema.TensorType.INT4, 17),
        (schema.ActivationFunctionType.RELU6, 3),
        (schema.Padding.VALID, 1),
    ],
)
def test_enumerators_have_the_numbers_of_the_schema(member: int, value: int) -> None:
    assert member == value


@pytest.mark.parametrize(("union", "count"), [(options.BuiltinOptions, 126), (options.BuiltinOptions2, 23)])
def test_unions_have_as_many_members_as_the_schema(union: Any, count: int) -> None:
    assert len(union.__subclasses__()) == count


@pytest.mark.parametrize(
    ("table", "tag"),
    [
        (schema.Conv2DOptions(), 1),
        (schema.Pool2DOptions(), 5),
        (schema.SVDFOptions(), 6),
        (schema.FullyConnectedOptions(), 8),
        (schema.SoftmaxOptions(), 9),
        (schema.AddOptions(), 11),
        (schema.ReshapeOptions(), 17),
        (schema.LeakyReluOptions(), 75),
        (schema.IfOptions(), 92),
        (schema.WhileOptions(), 93),
        (schema.CallOnceOptions(), 103),
        (schema.VarHandleOptions(), 111),
        (schema.RightShiftOptions(), 126),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Table) else None,
)
def test_options_are_written_with_the_tag_of_the_schema(table: Table, tag: int) -> None:
    data = schema.write_model(model_with(schema.Operator(builtin_options=table)))
    (subgraph,) = children_at(root_of(data), 2)
    (operator,) = children_at(subgraph, 3)
    assert number_at(operator, 3, number_types.Uint8Flags) == tag


@pytest.mark.parametrize(
    ("kind", "slots"),
    [
        (schema.Model, {"version": 0, "subgraphs": 2, "buffers": 4, "metadata": 6, "signature_defs": 7}),
        (schema.SubGraph, {"tensors": 0, "inputs": 1, "outputs": 2, "operators": 3, "name": 4}),
        (schema.Operator, {"inputs": 1, "builtin_options": 4, "custom_options": 5, "builtin_options_2": 12}),
        (schema.OperatorCode, {"deprecated_builtin_code": 0, "custom_code": 1, "version": 2, "builtin_code": 3}),
        (schema.Tensor, {"type": 1, "buffer": 2, "quantization": 4, "is_variable": 5, "variant_tensors": 9}),
        (schema.QuantizationParameters, {"scale": 2, "zero_point": 3, "details": 5, "quantized_dimension": 6}),
        (schema.DimensionMetadata, {"dense_size": 1, "array_segments": 3, "array_indices": 5}),
        (schema.SignatureDef, {"inputs": 0, "outputs": 1, "signature_key": 2, "subgraph_index": 4}),
        (schema.FullyConnectedOptions, {"keep_num_dims": 2, "quantized_bias_type": 4}),
    ],
)
def test_fields_have_the_slots_of_the_schema(kind: type[Table], slots: dict[str, int]) -> None:
    """The tag of a union takes the slot before its value."""
    declared = {field.name: field.slot for field in fields_of(kind)}
    assert {name: declared[name] for name in slots} == slots


@pytest.mark.parametrize(
    ("code", "name"),
    [
        (schema.OperatorCode(), "ADD"),
        (schema.OperatorCode(deprecated_builtin_code=9), "FULLY_CONNECTED"),
        (schema.OperatorCode(builtin_code=schema.BuiltinOperator.SOFTMAX), "SOFTMAX"),
        (schema.OperatorCode(deprecated_builtin_code=25, builtin_code=schema.BuiltinOperator.SOFTMAX), "SOFTMAX"),
        (schema.OperatorCode(deprecated_builtin_code=127, builtin_code=schema.BuiltinOperator.CUMSUM), "CUMSUM"),
        (schema.OperatorCode(builtin_code=schema.BuiltinOperator.STABLEHLO_CASE), "STABLEHLO_CASE"),
        (schema.OperatorCode(deprecated_builtin_code=32, custom_code="mine"), "mine"),
    ],
)
def test_old_and_new_operator_codes_are_understood(code: schema.OperatorCode, name: str) -> None:
    """Writers from before the 128th operator set only the old field; later ones the new, or both."""
    subgraph = schema.SubGraph(operators=[schema.Operator()])
    data = schema.write_model(schema.Model(version=3, operator_codes=[code], subgraphs=[subgraph]))
    model = tflm.Model(data)
    (operator,) = model.subgraphs[0].operators
    assert model.operator_name(operator) == name


@pytest.mark.parametrize(
    ("operator", "old"),
    [(schema.BuiltinOperator.RELU, 19), (schema.BuiltinOperator.CUMSUM, 127), ("mine", 32)],
)
def test_the_builder_sets_the_old_code_for_old_readers(operator: schema.BuiltinOperator | str, old: int) -> None:
    builder = tflm.ModelBuilder()
    builder.subgraph().operator(operator, [], [])
    (code,) = tflm.Model(builder.build()).operator_codes
    assert code.deprecated_builtin_code == old


# --- Constants are not copied ----------------------------------------------------------------------------------------


def as_array(buffer: Any) -> np.ndarray[Any, Any]:
    return np.frombuffer(buffer, np.uint8)


def constants_of(model: tflm.Model) -> list[memoryview]:
    tensors = model.subgraphs[0].tensors or []
    return [data for data in map(model.constant, tensors) if data is not None] + [model.metadata("note")]


def test_constants_are_views_of_the_callers_bytes() -> None:
    data = small_model()
    weights, note = constants_of(tflm.Model(data))
    assert bytes(weights) == bytes(range(6))
    assert bytes(note) == b"five!"
    assert np.shares_memory(as_array(data), as_array(weights))
    assert np.shares_memory(as_array(data), as_array(note))


def test_constants_of_a_mapped_file_are_views_of_the_map(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tflm.schema.model.LARGEST_COPY", 0)
    path = tmp_path / "small.tflite"
    path.write_bytes(small_model())
    model = tflm.Model.from_file(path)
    weights, note = constants_of(model)
    assert bytes(weights) == bytes(range(6))
    assert np.shares_memory(as_array(model.data), as_array(weights))
    assert np.shares_memory(as_array(model.data), as_array(note))


def test_nothing_can_be_written_through_a_model() -> None:
    model = tflm.Model(bytearray(small_model()))
    assert model.data.readonly
    assert all(constant.readonly for constant in constants_of(model))


def test_a_kernel_is_given_constants_in_place() -> None:
    model = tflm.Model(small_model())
    interpreter = tflm.MicroInterpreter(model, tflm.AllOpsResolver(), bytearray(4096))
    interpreter.allocate_tensors()
    weights = interpreter.eval_tensors()[1]
    assert weights.data.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert np.shares_memory(as_array(model.data), weights.data)


def test_a_file_may_change_once_its_model_is_loaded(tmp_path: Path) -> None:
    """This runs in a separate process, which a mapped file would crash."""
    file = tmp_path / "model.tflite"
    file.write_bytes(INT8_MODEL.read_bytes())
    script = (
        "import os, sys, tflm\n"
        "model = tflm.Model.from_file(sys.argv[1])\n"
        "os.truncate(sys.argv[1], 0)\n"
        "sys.stdout.buffer.write(bytes(model.data))"
    )
    done = subprocess.run([sys.executable, "-c", script, str(file)], capture_output=True, check=False)
    assert (done.returncode, done.stderr, done.stdout) == (0, b"", INT8_MODEL.read_bytes())


@pytest.mark.parametrize("levels", [["error", "warning"], ["warning", "error"], ["warning"], []])
def test_a_plan_is_looked_at_where_there_are_no_other_errors(
    levels: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = [tflm.ModelError("odd", level=level) for level in levels]
    lost = tflm.ModelError("a value is lost")
    monkeypatch.setattr(verifier, "_findings_in_tables", lambda _: iter(found))
    monkeypatch.setattr(verifier, "offline_offsets", lambda _: [0])
    monkeypatch.setattr(verifier, "plan_findings", lambda *_: iter([lost]))
    assert list(verifier.findings_in(tables.Model())) == (found if "error" in levels else [*found, lost])


@pytest.mark.parametrize("rank", [0, 6, 32, 33])
def test_a_tensor_has_at_most_32_dimensions(rank: int) -> None:
    builder = schema.ModelBuilder()
    main = builder.subgraph()
    main.output(main.input("x", (1,) * rank, schema.TensorType.INT8))
    found = [finding.reason for finding in tflm.verify(builder.build()) if finding.level == "error"]
    assert len(found) == (rank > 32)


@pytest.mark.parametrize(
    ("shape", "is_variable", "is_filled"),
    [((2, 3), False, False), ((2, 3), True, True), ((0,), False, True), ((2, 0), False, True), ((), False, False)],
)
def test_a_tensor_that_nothing_writes_may_be_read_if_it_is_empty_or_a_variable(
    shape: tuple[int, ...], is_variable: bool, is_filled: bool
) -> None:
    builder = schema.ModelBuilder()
    main = builder.subgraph()
    x = main.tensor("x", shape, schema.TensorType.INT8, is_variable=is_variable)
    y = main.tensor("y", shape, schema.TensorType.INT8)
    main.operator("mine", [x], [y])
    main.output(y)
    assert any("has no value" in finding.reason for finding in tflm.verify(builder.build())) is not is_filled


def places_of(data: bytes, kind: type[Table], at: int) -> Iterator[tuple[type[Table], int]]:
    """A table, and all tables below it that a vector or a field holds."""
    yield kind, at
    for field in fields_of(kind):
        place = slot_of(data, at, field)
        start = at + struct.unpack_from("<H", data, place)[0] if place else 0
        if start and isinstance(field.wire, (SubTable, TableVector)):
            start += struct.unpack_from("<I", data, start)[0]
            if isinstance(field.wire, SubTable):
                yield from places_of(data, field.wire.table, start)
            else:
                for each in range(start + 4, start + 4 + 4 * struct.unpack_from("<I", data, start)[0], 4):
                    yield from places_of(data, field.wire.table, each + struct.unpack_from("<I", data, each)[0])


def slot_of(data: bytes, at: int, field: Field) -> int:
    """Return the position of a field's entry in the vtable; 0 if the table lacks it."""
    vtable = at - struct.unpack_from("<i", data, at)[0]
    place = vtable + 4 + 2 * field.slot
    has_slot = place < vtable + struct.unpack_from("<H", data, vtable)[0]
    return place if has_slot and any(data[place : place + 2]) else 0


def test_a_reference_is_inside_of_its_table() -> None:
    """No byte of it may lie after the table's end, for any kind of field."""
    data = INT8_MODEL.read_bytes()
    tried = set()
    for kind, at in places_of(data, schema.Model, struct.unpack_from("<I", data)[0]):
        (size,) = struct.unpack_from("<H", data, at - struct.unpack_from("<i", data, at)[0] + 2)
        for field in fields_of(kind):
            place = slot_of(data, at, field)
            if isinstance(field.wire, Scalar) or not place:
                continue
            tried.add(type(field.wire))
            for missing in (1, 4):
                changed = bytearray(data)
                struct.pack_into("<H", changed, place, size - 4 + missing)
                with pytest.raises(tflm.ModelError, match=r"do not fit|outside"):
                    tflm.Model(changed)
    assert {UnionType, TableVector, ScalarVector, StringType} <= tried


# Beside the Python code that FlatBuffers generates from the same schema.


DEPRECATED = {"new_height", "new_width", "deprecated_tag"}
"""Fields that the generated code leaves out."""


@functools.cache
def generated() -> Any:
    return pytest.importorskip("ai_edge_litert.schema_py_generated", reason="ai-edge-litert has the generated code")


def test_fields_have_the_defaults_of_the_schema() -> None:
    compared = 0
    for name, table in [*vars(options).items(), *vars(tables).items()]:
        theirs = getattr(generated(), f"{name}T", None)
        if isinstance(table, type) and issubclass(table, Table) and theirs is not None:
            fields = {each.name: each.default for each in fields_of(table) if each.name not in DEPRECATED}
            words = {field: field.split("_") for field in fields}
            names = {field: first + "".join(map(str.capitalize, rest)) for field, (first, *rest) in words.items()}
            assert {field: getattr(theirs(), names[field]) for field in fields} == fields, name
            compared += len(fields)
    assert compared > 300


def test_enumerations_have_the_numbers_of_the_schema() -> None:
    compared = 0
    for name, each in vars(enums).items():
        if isinstance(each, EnumMeta) and each.__module__ == enums.__name__:
            numbers: dict[str, Any] = dict(vars(getattr(generated(), name)))
            theirs = {key: number for key, number in numbers.items() if key[0] != "_"}
            members: dict[str, Any] = dict(each.__members__)
            assert {key: int(member) for key, member in members.items()} == theirs
            compared += len(theirs)
    assert compared > 250
