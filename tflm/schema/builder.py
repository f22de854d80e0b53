"""Makes models in code.

    builder = ModelBuilder("y = relu(w x)")
    main = builder.subgraph()
    x = main.input("x", (1, 4), TensorType.FLOAT32)
    w = main.constant("w", np.eye(4, dtype=np.float32))
    y = main.tensor("y", (1, 4), TensorType.FLOAT32)
    main.operator(BuiltinOperator.FULLY_CONNECTED, [x, w, -1], [y], FullyConnectedOptions())
    main.output(y)
    data = builder.build()

Tensors are identified by their index, as in the format. An invalid argument raises `ArgumentError`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar, cast

import numpy as np
import numpy.typing as npt

from tflm.errors import ArgumentError
from tflm.hooks import needed_version
from tflm.schema.enums import TENSOR_TYPES, BuiltinOperator, TensorType
from tflm.schema.options import BuiltinOptions, BuiltinOptions2
from tflm.schema.tables import (
    Buffer,
    Metadata,
    Model,
    Operator,
    OperatorCode,
    QuantizationParameters,
    SignatureDef,
    SubGraph,
    Tensor,
    TensorMap,
)
from tflm.schema.verifier import SCHEMA_VERSION
from tflm.schema.version_rules import signature_of
from tflm.schema.writer import write_model


def quantized(
    scale: float | Sequence[float], zero_point: int | Sequence[int] = 0, quantized_dimension: int = 0
) -> QuantizationParameters:
    """Affine quantization, real = scale * (integer - zero_point).

    Args:
        scale: one scale for the tensor, or one for each slice along `quantized_dimension`; kept as float32.
        zero_point: likewise; a single one serves all slices.
        quantized_dimension: the dimension that the slices count along.
    """
    scales = np.atleast_1d(np.asarray(scale, np.float32))
    zero_points = np.broadcast_to(np.asarray(zero_point, np.int64), scales.shape)
    return QuantizationParameters(
        scale=tuple(scales.tolist()),
        zero_point=tuple(zero_points.tolist()),
        quantized_dimension=quantized_dimension,
    )


class ModelBuilder:
    """Collects subgraphs, constants and metadata, and writes them as a `.tflite` file."""

    def __init__(self, description: str = ""):
        self.model = Model(
            version=SCHEMA_VERSION,
            operator_codes=[],
            subgraphs=[],
            description=description,
            buffers=[Buffer()],  # tensors without data point here, by custom
        )

    def __repr__(self) -> str:
        return f"ModelBuilder({self.model.description!r}, subgraphs: {len(_list(self.model.subgraphs))})"

    def subgraph(self, name: str = "main") -> SubgraphBuilder:
        """Add a subgraph; the first one is what `invoke` runs."""
        _require(isinstance(name, str), "a subgraph's name is a string", name)
        table = SubGraph(tensors=[], inputs=(), outputs=(), operators=[], name=name)
        _list(self.model.subgraphs).append(table)
        return SubgraphBuilder(self, table)

    def metadata(self, name: str, data: bytes) -> None:
        """Add an entry of metadata."""
        _require(isinstance(name, str), "the name of metadata is a string", name)
        self.model.metadata = [*(self.model.metadata or ()), Metadata(name=name, buffer=self.buffer(data))]

    def signature(
        self, key: str, inputs: Mapping[str, int], outputs: Mapping[str, int], subgraph_index: int = 0
    ) -> None:
        """Add a signature: names for the tensors that go in and out of a subgraph."""
        _require(isinstance(key, str), "a signature's key is a string", key)
        for side in (inputs, outputs):
            _require(isinstance(side, Mapping), "the tensors of a signature are a dict of indices by name", side)
        maps = ([TensorMap(name=n, tensor_index=i) for n, i in side.items()] for side in (inputs, outputs))
        signature = SignatureDef(
            inputs=next(maps), outputs=next(maps), signature_key=key, subgraph_index=subgraph_index
        )
        self.model.signature_defs = [*(self.model.signature_defs or ()), signature]

    def buffer(self, data: bytes) -> int:
        """Add constant data; returns the index of its buffer."""
        _require(isinstance(data, bytes | bytearray | memoryview), "a buffer's data are bytes", data)
        buffers = _list(self.model.buffers)
        buffers.append(Buffer(data=data))
        return len(buffers) - 1

    def operator_code(self, operator: BuiltinOperator | str, version: int) -> int:
        """The index of the code for an operator of that version, added if it is new."""
        if isinstance(operator, str):
            builtin, name = BuiltinOperator.CUSTOM, operator
        else:
            builtin, name = operator, None
        code = OperatorCode(
            deprecated_builtin_code=min(builtin, BuiltinOperator.PLACEHOLDER_FOR_GREATER_OP_CODES).value,
            custom_code=name,
            version=version,
            builtin_code=builtin,
        )
        codes = _list(self.model.operator_codes)
        if code not in codes:
            codes.append(code)
        return codes.index(code)

    def build(self) -> bytes:
        """The bytes of the model. They are not verified: `tflm.Model` does that when it reads them."""
        return write_model(self.model)


class SubgraphBuilder:
    """Collects the tensors and operators of one subgraph. Made by `ModelBuilder.subgraph`."""

    def __init__(self, builder: ModelBuilder, table: SubGraph):
        self.builder, self.table = builder, table

    def tensor(
        self,
        name: str,
        shape: Sequence[int] | None,
        type: TensorType,
        quantization: QuantizationParameters | None = None,
        *,
        buffer: int = 0,
        is_variable: bool = False,
    ) -> int:
        """Add a tensor that operators write; returns its index. A shape of None or () is a scalar."""
        _require(isinstance(name, str), "a tensor's name is a string", name)
        _require(shape is None or _are_integers(shape), "a tensor's shape is a list of integers", shape)
        _require(isinstance(type, TensorType), "a tensor's type is one of TensorType", type)
        is_quantization = quantization is None or isinstance(quantization, QuantizationParameters)
        _require(is_quantization, "a tensor's quantization is tflm.quantized(scale, zero_point)", quantization)
        tensors = _list(self.table.tensors)
        tensors.append(
            Tensor(
                shape=None if shape is None else tuple(int(dimension) for dimension in shape),
                type=type,
                buffer=buffer,
                name=name,
                quantization=quantization,
                is_variable=is_variable,
            )
        )
        return len(tensors) - 1

    def input(
        self,
        name: str,
        shape: Sequence[int] | None,
        type: TensorType,
        quantization: QuantizationParameters | None = None,
    ) -> int:
        """Add a tensor that the caller fills; returns its index."""
        index = self.tensor(name, shape, type, quantization)
        self.table.inputs = (*(self.table.inputs or ()), index)
        return index

    def constant(
        self,
        name: str,
        values: npt.ArrayLike,
        quantization: QuantizationParameters | None = None,
        *,
        type: TensorType | None = None,
        shape: Sequence[int] | None = None,
    ) -> int:
        """Add a tensor with data; returns its index.

        Args:
            values: the elements, whose dtype (INT64 for Python's integers) and shape are the defaults.
            type, shape: override these if numpy cannot represent the elements, as for 4-bit weights.
        """
        array = _as_array(values)
        if type is None and array.dtype not in TENSOR_TYPES:
            known = ", ".join(sorted(str(dtype) for dtype in TENSOR_TYPES))
            raise ArgumentError(f"constant {name!r} is {array.dtype}, which has no tensor type; use one of {known}")
        kind = TENSOR_TYPES[array.dtype] if type is None else type
        buffer = self.builder.buffer(array.tobytes())
        return self.tensor(name, np.shape(values) if shape is None else shape, kind, quantization, buffer=buffer)

    def operator(
        self,
        operator: BuiltinOperator | str,
        inputs: Sequence[int],
        outputs: Sequence[int],
        options: BuiltinOptions | BuiltinOptions2 | None = None,
        *,
        version: int | None = None,
        custom_options: bytes | None = None,
        intermediates: Sequence[int] | None = None,
    ) -> None:
        """Add an operator: a builtin one, or a custom one by its name. An input of -1 is omitted.

        Args:
            operator, inputs, outputs, options, custom_options, intermediates: as in the format.
            version: None for the version that its current options and tensors need, or 1 for a custom operator.
        """
        is_operator = isinstance(operator, BuiltinOperator | str)
        _require(is_operator, "an operator is one of BuiltinOperator, or a name", operator)
        is_options = options is None or isinstance(options, BuiltinOptions | BuiltinOptions2)
        _require(is_options, "an operator's options are one of the tables of options, such as AddOptions()", options)
        table = Operator(
            inputs=self._indices(inputs, "inputs"),
            outputs=self._indices(outputs, "outputs"),
            custom_options=custom_options,
            intermediates=None if intermediates is None else self._indices(intermediates, "intermediates"),
        )
        if isinstance(options, BuiltinOptions2):
            table.builtin_options_2 = options
        else:
            table.builtin_options = options
        if version is None:
            version = 1 if isinstance(operator, str) else needed_version(signature_of(operator, table, self.table))
        table.opcode_index = self.builder.operator_code(operator, version)
        _list(self.table.operators).append(table)

    def output(self, *tensors: int) -> None:
        """Add outputs of the subgraph."""
        self.table.outputs = (*(self.table.outputs or ()), *self._indices(tensors, "outputs"))

    def _indices(self, tensors: Sequence[int], what: str) -> tuple[int, ...]:
        """Check tensor indices of the subgraph; -1 stands for an omitted tensor."""
        _require(_are_integers(tensors), f"{what} are a list of tensors by their index", tensors)
        count = len(_list(self.table.tensors))
        for tensor in tensors:
            _require(-1 <= tensor < count, f"{what} are tensors of the subgraph, which has {count}", tensor)
        return tuple(int(tensor) for tensor in tensors)


def _require(holds: bool, wanted: str, given: object) -> None:
    """Raise `ArgumentError` unless an argument is valid."""
    if not holds:
        raise ArgumentError(f"{wanted}, not {given!r}")


def _are_integers(values: object) -> bool:
    """Whether this is a sequence of integers of Python or numpy."""
    is_row = isinstance(values, Sequence | np.ndarray) and not isinstance(values, str | bytes)
    return is_row and all(isinstance(value, int | np.integer) for value in cast(Sequence[object], values))


def _as_array(values: npt.ArrayLike) -> npt.NDArray[Any]:
    """Convert to an array in C order; Python's integers become INT64 on every machine."""
    array = np.ascontiguousarray(values, None)
    is_from_numpy = isinstance(values, np.ndarray | np.generic)
    return array if is_from_numpy or array.dtype.kind != "i" else array.astype(np.int64)


Item = TypeVar("Item")


def _list(items: list[Item] | None) -> list[Item]:
    assert items is not None  # the builder starts each of its lists
    return items
