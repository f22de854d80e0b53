"""The options of a Flex operator: TensorFlow's NodeDef, read with the protobuf package from descriptors made here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from tflm.errors import OperatorError

DTYPES = {
    1: np.dtype(np.float32),
    2: np.dtype(np.float64),
    3: np.dtype(np.int32),
    4: np.dtype(np.uint8),
    5: np.dtype(np.int16),
    6: np.dtype(np.int8),
    8: np.dtype(np.complex64),
    9: np.dtype(np.int64),
    10: np.dtype(np.bool_),
    11: np.dtype(np.int8),
    12: np.dtype(np.uint8),
    13: np.dtype(np.int32),
    15: np.dtype(np.int16),
    16: np.dtype(np.uint16),
    17: np.dtype(np.uint16),
    18: np.dtype(np.complex128),
    19: np.dtype(np.float16),
    22: np.dtype(np.uint32),
    23: np.dtype(np.uint64),
}
"""numpy's dtype for each number of TensorFlow's DataType; quantized types are integers."""

MESSAGES: dict[str, list[tuple[str, int, str]]] = {
    "Dim": [("size", 1, "int64")],
    "TensorShapeProto": [("dim", 2, "Dim*"), ("unknown_rank", 3, "bool")],
    "ListValue": [
        ("s", 2, "bytes*"),
        ("i", 3, "int64*"),
        ("f", 4, "float*"),
        ("b", 5, "bool*"),
        ("type", 6, "int32*"),
        ("shape", 7, "TensorShapeProto*"),
    ],
    "AttrValue": [
        ("list", 1, "ListValue"),
        ("s", 2, "bytes"),
        ("i", 3, "int64"),
        ("f", 4, "float"),
        ("b", 5, "bool"),
        ("type", 6, "int32"),
        ("shape", 7, "TensorShapeProto"),
    ],
    "AttrEntry": [("key", 1, "string"), ("value", 2, "AttrValue")],
    "NodeDef": [("name", 1, "string"), ("op", 2, "string"), ("input", 3, "string*"), ("attr", 5, "AttrEntry*")],
}
"""Fields of TensorFlow's messages: name, number, type, * for repeated. Unlisted fields are skipped."""


@dataclass(frozen=True)
class FlexNode:
    """A node of TensorFlow's graph.

    Attributes:
        operator: TensorFlow's name, without `Flex`.
        attributes: bytes, int, float, bool, numpy dtypes for types, lists of dimensions for shapes (None for an unknown
            rank, -1 for an unknown dimension), and lists of those.
        serialized: the NodeDef.
    """

    operator: str
    attributes: Mapping[str, Any]
    serialized: bytes


def flex_node(custom_options: bytes | memoryview) -> FlexNode:
    """Read the custom options of a Flex operator.

    Raises:
        OperatorError: they are not a Flex operator's options, or the protobuf package is missing.
    """
    name, serialized = _name_and_node(bytes(custom_options))
    try:
        message = _messages()["NodeDef"].FromString(serialized)
    except ImportError:
        raise OperatorError("needs the protobuf package to read its options: pip install protobuf") from None
    except Exception as error:  # protobuf's DecodeError, whichever of its implementations raises it
        raise OperatorError(f"has custom options without a readable NodeDef: {error}") from None
    return FlexNode(message.op or name, {entry.key: _value(entry.value) for entry in message.attr}, serialized)


def _name_and_node(options: bytes) -> tuple[str, bytes]:
    from flatbuffers import flexbuffers

    try:
        root = flexbuffers.GetRoot(options)
        name, node = list(root.AsVector)
        return name.AsString, bytes(node.AsBlob if node.IsBlob else node.AsStringBytes)
    except Exception as error:  # whatever the reader raises for arbitrary bytes
        reason = "has custom options that are not a flexbuffer of a name and a NodeDef"
        raise OperatorError(f"{reason}: {type(error).__name__} {error}") from None


@cache
def _messages() -> dict[str, Any]:
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    field_types = descriptor_pb2.FieldDescriptorProto
    scalars = {
        kind: getattr(field_types, f"TYPE_{kind.upper()}")
        for kind in ("int64", "int32", "float", "bool", "bytes", "string")
    }
    file = descriptor_pb2.FileDescriptorProto(name="tflm_flex.proto", package="tflm_flex", syntax="proto3")
    for message, fields in MESSAGES.items():
        described = file.message_type.add(name=message)
        for name, number, kind in fields:
            base = kind.rstrip("*")
            field = described.field.add(name=name, number=number, type=scalars.get(base, field_types.TYPE_MESSAGE))
            field.label = field_types.LABEL_REPEATED if kind.endswith("*") else field_types.LABEL_OPTIONAL
            if base not in scalars:
                field.type_name = f".tflm_flex.{base}"
            elif message == "AttrValue":
                field.proto3_optional = True
                field.oneof_index = len(described.oneof_decl)
                described.oneof_decl.add(name=f"_{name}")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"tflm_flex.{name}")) for name in MESSAGES}


def _value(value: Any) -> Any:
    for kind in ("list", "s", "i", "f", "b", "type", "shape"):
        if value.HasField(kind):
            return _LISTS[kind](getattr(value, kind)) if kind in _LISTS else getattr(value, kind)
    return None


def _shape(shape: Any) -> list[int] | None:
    return None if shape.unknown_rank else [dim.size for dim in shape.dim]


def _dtype(number: int) -> np.dtype[Any] | int:
    """A type that numpy lacks, such as strings, is left as its number."""
    return DTYPES[number] if number in DTYPES else number  # type: ignore[return-value]  # noqa: SIM401


def _list(values: Any) -> list[Any]:
    for kind, convert in (("s", bytes), ("i", int), ("f", float), ("b", bool), ("type", _dtype), ("shape", _shape)):
        if len(getattr(values, kind)):
            return [convert(value) for value in getattr(values, kind)]
    return []


_LISTS = {"list": _list, "type": _dtype, "shape": _shape}
