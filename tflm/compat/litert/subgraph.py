"""A subgraph of a model with an arena of the size it needs, which LiteRT's `Interpreter` is built on.

Results and errors are those of LiteRT's own wrapper.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

from tflm.errors import OperatorError, TflmError
from tflm.rewriting.resizing import resized, with_main_subgraph
from tflm.runtime.micro_interpreter import MicroInterpreter
from tflm.schema.enums import ELEMENT_TYPES, TENSOR_TYPES, DimensionType, TensorType
from tflm.schema.model import Model
from tflm.schema.tables import QuantizationParameters, SparsityParameters, Tensor

OTHER_DTYPES: dict[TensorType, type[Any]] = {
    TensorType.STRING: np.bytes_,
    TensorType.RESOURCE: np.object_,
    TensorType.VARIANT: np.object_,
    TensorType.UINT4: np.uint8,
}
"""LiteRT's dtypes of element types that have another dtype here, or none."""


class RunnableSubgraph:
    """A subgraph of a model, ready to run by itself.

    Args:
        model: the model.
        index: of the subgraph.
        allocated: returns an allocated interpreter of a model.
    """

    def __init__(self, model: Model, index: int, allocated: Callable[[Model], MicroInterpreter]):
        self._model, self._index, self._allocated = model, index, allocated
        self._shapes: dict[int, tuple[int, ...]] = {}
        self._resized = model
        self._running: MicroInterpreter | None = None

    @property
    def tensors(self) -> Sequence[Tensor]:
        """The tensors of the subgraph in the model."""
        return self._model.subgraphs[self._index].tensors or ()

    def tensor_details(self, tensor_index: int) -> dict[str, Any]:
        """LiteRT's details of a tensor.

        Raises:
            ValueError: there is no such tensor.
        """
        table = self._table(tensor_index)
        shape = np.array(self._shape(tensor_index), np.int32)
        quantization = table.quantization or QuantizationParameters()
        scales, zero_points = quantization.scale or (), quantization.zero_point or ()
        whole = len(scales) == len(zero_points) == 1
        return {
            "name": table.name or "",
            "index": tensor_index,
            "shape": shape,
            "shape_signature": np.array(table.shape_signature, np.int32) if table.shape_signature else shape.copy(),
            "dtype": OTHER_DTYPES.get(table.type) or ELEMENT_TYPES[table.type].dtype.type,
            "quantization": (float(np.float32(scales[0])), int(zero_points[0])) if whole else (0.0, 0),
            "quantization_parameters": {
                "scales": np.array(scales, np.float32),
                "zero_points": np.array(zero_points if scales else (), np.int32),
                "quantized_dimension": quantization.quantized_dimension if scales else 0,
                "block_size": 0,
            },
            "sparsity_parameters": _sparsity(table.sparsity),
        }

    def resize(self, tensor_index: int, size: npt.NDArray[np.int32], strict: bool = False) -> None:
        """Change the shape of a tensor; the subgraph must then be allocated again.

        Raises:
            ValueError: `size` is not a shape.
            RuntimeError: the tensor can't be resized, or not to this shape.
        """
        if size.ndim != 1:
            raise ValueError(f"Shape should be 1D instead of {size.ndim}.")
        if not 0 <= tensor_index < len(self.tensors):
            raise RuntimeError(f"there is no tensor {tensor_index} in subgraph {self._index}")
        table, shape = self.tensors[tensor_index], tuple(size.tolist())
        if shape == self._shape(tensor_index):
            return
        inputs = self._model.subgraphs[self._index].inputs or ()
        if self._model.constant(table) is not None or tensor_index not in inputs:
            raise RuntimeError("Attempting to resize a fixed-size tensor.")
        if any(dimension < 0 for dimension in shape):
            raise RuntimeError(f"a shape has no negative dimensions, {list(shape)} has")
        if strict:
            self._require_unknown(tensor_index, shape)
        self._shapes[tensor_index] = shape
        self._running = None

    def allocate(self) -> None:
        """Place the subgraph in an arena, unless this has been done.

        Raises:
            RuntimeError: it can't be placed; the message says why.
        """
        if self._running is not None:
            return
        with _runtime_errors():
            model = self._model
            if self._shapes:
                model = self._resized = Model(resized(model, self._shapes, self._index), model.checks)
            if self._index:
                model = Model(with_main_subgraph(model, self._index), model.checks)
            self._running = self._allocated(model)

    def invoke(self) -> None:
        """Run the subgraph.

        Raises:
            RuntimeError: it is not allocated, or an operator fails.
        """
        if self._running is None:
            raise RuntimeError("Invoke called on model that is not ready.")
        with _runtime_errors():
            self._running.invoke()

    def reset_variables(self) -> None:
        """Reset variables and the state of operators to their initial values."""
        if self._running is not None:
            self._running.reset()

    def data(self, tensor_index: int) -> npt.NDArray[Any]:
        """The elements of a tensor, not copied.

        Raises:
            ValueError: there is no such tensor, or it has no data yet.
        """
        table = self._table(tensor_index)
        if self._running is not None:
            data = self._running.eval_tensors()[tensor_index].data
        else:
            constant = self._model.constant(table)
            element = ELEMENT_TYPES[table.type]
            data = None if constant is None else np.frombuffer(constant, element.dtype)
            if data is not None and element.bits >= 8:
                data = data.reshape(table.shape or ())
        if data is None:
            raise ValueError("Tensor data is null. Run allocate_tensors() first")
        return data

    def view(self, tensor_index: int) -> npt.NDArray[Any]:
        """The elements of a tensor, not copied, as an array that keeps a reference to this object."""
        self.__array_interface__ = self.data(tensor_index).__array_interface__
        try:
            return np.asarray(self, None)
        finally:
            del self.__array_interface__

    def set_tensor(self, tensor_index: int, value: Any) -> None:
        """Copy values to a tensor.

        Raises:
            ValueError: their type or shape is not that of the tensor, or it has no memory yet.
        """
        table = self._table(tensor_index)
        values = np.asarray(value, None)
        found = "STRING" if values.dtype.kind in "US" else _type_name(values.dtype)
        if found != table.type.name:
            raise ValueError(
                f"Cannot set tensor: Got value of type {found} but expected type {table.type.name} for input "
                f"{tensor_index}, name: {table.name or ''} "
            )
        shape = self._shape(tensor_index)
        if values.ndim != len(shape):
            reason = f"Got {values.ndim} but expected {len(shape)} for input {tensor_index}."
            raise ValueError(f"Cannot set tensor: Dimension mismatch. {reason}")
        for dimension, (given, expected) in enumerate(zip(values.shape, shape)):
            if given != expected:
                reason = f"Got {given} but expected {expected} for dimension {dimension} of input {tensor_index}."
                raise ValueError(f"Cannot set tensor: Dimension mismatch. {reason}")
        if self._running is None:
            raise ValueError("Cannot set tensor: Tensor is unallocated. Try calling allocate_tensors() first")
        data = self.data(tensor_index)
        if not data.flags.writeable:
            raise ValueError(f"Cannot set tensor: {table.name or tensor_index} is a constant of the model.")
        data[...] = values

    def _table(self, tensor_index: int) -> Tensor:
        if not isinstance(tensor_index, (int, np.integer)):
            raise TypeError(f"a tensor index must be an integer, not {tensor_index!r}")
        if not 0 <= tensor_index < len(self.tensors):
            raise ValueError(f"Invalid tensor index {tensor_index} exceeds max tensor index {len(self.tensors)}")
        return self.tensors[tensor_index]

    def _shape(self, tensor_index: int) -> tuple[int, ...]:
        """The current shape: as requested, as inferred by `allocate` from requested ones, or as in the model."""
        tensors = self._resized.subgraphs[self._index].tensors or []
        return self._shapes.get(tensor_index, tensors[tensor_index].shape or ())

    def _require_unknown(self, tensor_index: int, shape: Sequence[int]) -> None:
        table, current = self._table(tensor_index), self._shape(tensor_index)
        signature = table.shape_signature or current
        if len(shape) != len(signature):
            reason = f"Attempting to resize tensor {tensor_index} from {len(signature)} dimensions to {len(shape)}."
            raise RuntimeError(f"{reason} ResizeInputTensorStrict only allows mutating unknown dimensions.")
        for dimension, (known, now, wanted) in enumerate(zip(signature, current, shape)):
            if known != -1 and known != wanted:
                raise RuntimeError(
                    f"Attempting to resize dimension {dimension} of tensor {tensor_index} with value {now} to "
                    f"{wanted}. ResizeInputTensorStrict only allows mutating unknown dimensions identified by -1."
                )


def _type_name(dtype: np.dtype[Any]) -> str:
    found: Mapping[Any, TensorType] = TENSOR_TYPES
    return found[dtype].name if dtype in found else "NOTYPE"


def _sparsity(sparsity: SparsityParameters | None) -> dict[str, Any]:
    """LiteRT's description of a sparse tensor; empty for a dense one."""
    if sparsity is None:
        return {}
    dimensions: list[dict[str, Any]] = []
    for dimension in sparsity.dim_metadata or ():
        if dimension.format is DimensionType.DENSE:
            dimensions.append({"format": 0, "dense_size": dimension.dense_size})
        else:
            parts = {"array_segments": dimension.array_segments, "array_indices": dimension.array_indices}
            arrays = {name: np.array(getattr(part, "values", None) or (), np.int32) for name, part in parts.items()}
            dimensions.append({"format": 1, **arrays})
    found: dict[str, Any] = {"traversal_order": np.array(sparsity.traversal_order or (), np.int32)}
    if sparsity.block_map is not None:
        found["block_map"] = np.array(sparsity.block_map, np.int32)
    return {**found, "dim_metadata": dimensions}


@contextmanager
def _runtime_errors() -> Iterator[None]:
    """Raise a RuntimeError for any error of a loaded model, as LiteRT does."""
    try:
        yield
    except OperatorError as error:
        number = "" if error.operator_index is None else f"Node number {error.operator_index} ({error.operator}) failed"
        raise RuntimeError(f"{error}. {number}".rstrip(". ") + ".") from error
    except TflmError as error:
        raise RuntimeError(str(error)) from error
