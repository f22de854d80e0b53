"""What stands behind LiteRT's `Interpreter`: the subgraphs of a model, each with an arena of the size that it needs.

Its methods have the names, arguments, results and errors of LiteRT's own wrapper.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

from tflm.delegates import default_delegates
from tflm.errors import OperatorError, TflmError
from tflm.rewriting.shapes import resized, with_main_subgraph
from tflm.runtime.delegate import Delegate
from tflm.runtime.growing_arena import ready_interpreter
from tflm.runtime.micro_interpreter import MicroInterpreter
from tflm.runtime.micro_op_resolver import MicroMutableOpResolver
from tflm.schema.element_types import ELEMENT_TYPES, TENSOR_TYPES
from tflm.schema.enums import DimensionType, TensorType
from tflm.schema.model import Model
from tflm.schema.tables import QuantizationParameters, SparsityParameters, SubGraph, Tensor

OTHER_DTYPES: dict[TensorType, type[Any]] = {
    TensorType.STRING: np.bytes_,
    TensorType.RESOURCE: np.object_,
    TensorType.VARIANT: np.object_,
    TensorType.UINT4: np.uint8,
}
"""What LiteRT says of tensors whose elements here have no dtype of their own, or another."""


class InterpreterWrapper:
    """The subgraphs of a model, ready to run one by one.

    Args:
        model: the model.
        resolver: the operators that there are.
        delegates: what the caller gave.
        has_default_delegates: whether those that are there by default come after them.
        preserve_all_tensors: every tensor gets memory of its own.
    """

    def __init__(
        self,
        model: Model,
        resolver: MicroMutableOpResolver,
        delegates: Sequence[Delegate],
        has_default_delegates: bool,
        preserve_all_tensors: bool,
    ):
        self._model, self._resolver = model, resolver
        self._delegates, self._has_default_delegates = list(delegates), has_default_delegates
        self._preserve_all_tensors = preserve_all_tensors
        self._shapes: dict[int, dict[int, tuple[int, ...]]] = {}
        self._resized: dict[int, Model] = {}
        self._running: dict[int, MicroInterpreter] = {}

    # Numbers and names.

    def num_subgraphs(self) -> int:
        """Number of subgraphs."""
        return len(self._model.subgraphs)

    def num_tensors(self, subgraph_index: int) -> int:
        """Number of tensors of a subgraph."""
        return len(self._subgraph(subgraph_index).tensors or ())

    def num_nodes(self) -> int:
        """Number of operators of the first subgraph."""
        return len(self._model.subgraphs[0].operators or ())

    def input_indices(self) -> npt.NDArray[np.int32]:
        """The tensors that go into the first subgraph."""
        return np.array(self._model.subgraphs[0].inputs or (), np.int32)

    def output_indices(self) -> npt.NDArray[np.int32]:
        """The tensors that come out of it."""
        return np.array(self._model.subgraphs[0].outputs or (), np.int32)

    def node(self, index: int) -> tuple[str, npt.NDArray[np.int32], npt.NDArray[np.int32]]:
        """Name, inputs and outputs of an operator of the first subgraph.

        Raises:
            ValueError: there is none of that number.
        """
        if not 0 <= index < self.num_nodes():
            raise ValueError("Invalid node index")
        operator = (self._model.subgraphs[0].operators or [])[index]
        sides = (np.array(side or (), np.int32) for side in (operator.inputs, operator.outputs))
        return self._model.operator_name(operator), next(sides), next(sides)

    def signatures(self) -> dict[str, dict[str, dict[str, int]]]:
        """For each signature the tensors that it names, as `inputs` and `outputs`, in the order of the names."""
        return {
            signature.signature_key or "": {
                side: {entry.name or "": entry.tensor_index for entry in sorted(maps or (), key=lambda m: m.name or "")}
                for side, maps in (("inputs", signature.inputs), ("outputs", signature.outputs))
            }
            for signature in self._model.root.signature_defs or ()
        }

    def subgraph_of_signature(self, key: str) -> int:
        """The subgraph that a signature stands for.

        Raises:
            ValueError: there is no such signature.
        """
        for signature in self._model.root.signature_defs or ():
            if signature.signature_key == key:
                return signature.subgraph_index
        raise ValueError("No matching signature.")

    def tensor_details(self, tensor_index: int, subgraph_index: int) -> dict[str, Any]:
        """What LiteRT tells of a tensor.

        Raises:
            ValueError: there is no such tensor.
        """
        table = self._table(tensor_index, subgraph_index)
        shape = np.array(self._shape(tensor_index, subgraph_index), np.int32)
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

    # Running.

    def resize_input(self, tensor_index: int, size: npt.NDArray[np.int32], strict: bool, subgraph_index: int) -> None:
        """Give a tensor another shape; the subgraph has to be allocated anew.

        Raises:
            ValueError: the shape is none.
            RuntimeError: the tensor is none that can be resized, or not to this shape.
        """
        if size.ndim != 1:
            raise ValueError(f"Shape should be 1D instead of {size.ndim}.")
        self._require_subgraph(subgraph_index)
        if not 0 <= tensor_index < self.num_tensors(subgraph_index):
            raise RuntimeError(f"there is no tensor {tensor_index} in subgraph {subgraph_index}")
        table, shape = self._table(tensor_index, subgraph_index), tuple(size.tolist())
        if shape == self._shape(tensor_index, subgraph_index):
            return
        if self._model.constant(table) is not None or tensor_index not in (self._subgraph(subgraph_index).inputs or ()):
            raise RuntimeError("Attempting to resize a fixed-size tensor.")
        if any(dimension < 0 for dimension in shape):
            raise RuntimeError(f"a shape has no negative dimensions, {list(shape)} has")
        if strict:
            self._require_unknown(tensor_index, subgraph_index, shape)
        self._shapes.setdefault(subgraph_index, {})[tensor_index] = shape
        self._running.pop(subgraph_index, None)

    def allocate(self, subgraph_index: int = 0) -> None:
        """Place a subgraph in an arena, unless it is there already.

        Raises:
            RuntimeError: it can't be, for the reason that is said.
        """
        self._require_subgraph(subgraph_index)
        if subgraph_index in self._running:
            return
        with _runtime_errors():
            model, shapes = self._model, self._shapes.get(subgraph_index)
            if shapes:
                model = Model(resized(model, shapes, subgraph_index), model.checks)
                self._resized[subgraph_index] = model
            if subgraph_index:
                model = Model(with_main_subgraph(model, subgraph_index), model.checks)
            self._running[subgraph_index] = self._allocated(model)

    def invoke(self, subgraph_index: int = 0) -> None:
        """Run a subgraph.

        Raises:
            RuntimeError: it is not allocated, or an operator can't go on.
        """
        self._require_subgraph(subgraph_index)
        running = self._running.get(subgraph_index)
        if running is None:
            raise RuntimeError("Invoke called on model that is not ready.")
        with _runtime_errors():
            running.invoke()

    def reset_variables(self) -> None:
        """Put variables and the state of operators back to their beginnings."""
        for running in self._running.values():
            running.reset()

    def data(self, tensor_index: int, subgraph_index: int = 0) -> npt.NDArray[Any]:
        """The elements of a tensor where they are.

        Raises:
            ValueError: there is no such tensor, or it has no data yet.
        """
        table = self._table(tensor_index, subgraph_index)
        running = self._running.get(subgraph_index)
        if running is not None:
            # The subgraph that runs is the first of its model.
            data = running.eval_tensors()[tensor_index].data
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
        """The elements of a tensor of the first subgraph where they are, as an array that holds on to this object."""
        self.__array_interface__ = self.data(tensor_index).__array_interface__
        try:
            return np.asarray(self, None)
        finally:
            del self.__array_interface__

    def set_tensor(self, tensor_index: int, value: Any, subgraph_index: int = 0) -> None:
        """Copy values to a tensor.

        Raises:
            ValueError: their type or shape is not that of the tensor, or it has no memory yet.
        """
        table = self._table(tensor_index, subgraph_index)
        values = np.asarray(value, None)
        found = "STRING" if values.dtype.kind in "US" else _type_name(values.dtype)
        if found != table.type.name:
            raise ValueError(
                f"Cannot set tensor: Got value of type {found} but expected type {table.type.name} for input "
                f"{tensor_index}, name: {table.name or ''} "
            )
        shape = self._shape(tensor_index, subgraph_index)
        if values.ndim != len(shape):
            reason = f"Got {values.ndim} but expected {len(shape)} for input {tensor_index}."
            raise ValueError(f"Cannot set tensor: Dimension mismatch. {reason}")
        for dimension, (given, expected) in enumerate(zip(values.shape, shape)):
            if given != expected:
                reason = f"Got {given} but expected {expected} for dimension {dimension} of input {tensor_index}."
                raise ValueError(f"Cannot set tensor: Dimension mismatch. {reason}")
        if subgraph_index not in self._running:
            raise ValueError("Cannot set tensor: Tensor is unallocated. Try calling allocate_tensors() first")
        data = self.data(tensor_index, subgraph_index)
        if not data.flags.writeable:
            raise ValueError(f"Cannot set tensor: {table.name or tensor_index} is a constant of the model.")
        data[...] = values

    # What others stand on.

    def _allocated(self, model: Model) -> MicroInterpreter:
        defaults = default_delegates(model) if self._has_default_delegates else []
        return ready_interpreter(
            model,
            self._resolver,
            preserve_all_tensors=self._preserve_all_tensors,
            delegates=[*self._delegates, *defaults],
        )

    def _subgraph(self, index: int) -> SubGraph:
        return self._model.subgraphs[index]

    def _require_subgraph(self, index: int) -> None:
        if not 0 <= index < self.num_subgraphs():
            raise ValueError(f"Invalid subgraph index {index} exceeds max subgraph index {self.num_subgraphs()}")

    def _table(self, tensor_index: int, subgraph_index: int) -> Tensor:
        self._require_subgraph(subgraph_index)
        tensors = self._subgraph(subgraph_index).tensors or []
        if not isinstance(tensor_index, (int, np.integer)):
            raise TypeError(f"a tensor is asked for by its index, not by {tensor_index!r}")
        if not 0 <= tensor_index < len(tensors):
            raise ValueError(f"Invalid tensor index {tensor_index} exceeds max tensor index {len(tensors)}")
        return tensors[tensor_index]

    def _shape(self, tensor_index: int, subgraph_index: int) -> tuple[int, ...]:
        """The shape as it is now: the one asked for, the one that follows from it once allocated, or the model's."""
        asked = self._shapes.get(subgraph_index, {}).get(tensor_index)
        if asked is not None:
            return asked
        model = self._resized.get(subgraph_index, self._model)
        tensors = model.subgraphs[subgraph_index].tensors or []
        return tensors[tensor_index].shape or ()

    def _require_unknown(self, tensor_index: int, subgraph_index: int, shape: Sequence[int]) -> None:
        table, current = self._table(tensor_index, subgraph_index), self._shape(tensor_index, subgraph_index)
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
    """How a sparse tensor is packed; an empty dictionary for a dense one."""
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
    """LiteRT knows a RuntimeError for whatever goes wrong with a model that was opened."""
    try:
        yield
    except OperatorError as error:
        number = "" if error.operator_index is None else f"Node number {error.operator_index} ({error.operator}) failed"
        raise RuntimeError(f"{error}. {number}".rstrip(". ") + ".") from error
    except TflmError as error:
        raise RuntimeError(str(error)) from error
