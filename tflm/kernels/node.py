"""A node as its kernel sees it, and the context: the runtime's services for kernels."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from tflm.errors import OperatorError
from tflm.kernels.requests import Request, nothing
from tflm.memory.tensor import TfLiteEvalTensor, TfLiteTensor
from tflm.releases import Release
from tflm.schema.layout import Table
from tflm.schema.model import Model
from tflm.schema.tables import Operator, SubGraph, called_subgraphs
from tflm.targets import Target

Options = TypeVar("Options", bound=Table)


class InvokeAborted(Exception):
    """Raised by an operator to end an invoke early without an error, because later operators have no input yet."""


def index_of(tensors: tuple[int, ...], index: int, what: str) -> int:
    """The tensor at a place of a node.

    Args:
        tensors: the node's inputs or outputs.
        what: their name for the error.

    Raises:
        OperatorError: the node has none there.
    """
    if index >= len(tensors) or tensors[index] < 0:
        raise OperatorError(f"{what} {index} is missing; it has {len(tensors)}")
    return tensors[index]


class NodeTensors(Protocol):
    """Access to a node's tensors, and the target and release it runs on.

    Getters raise `OperatorError` for an input or output that the node does not have.
    """

    @property
    def target(self) -> Target:
        """The machine whose data model the arena follows."""

    @property
    def release(self) -> Release:
        """The TFLM release that the model runs on."""

    def input_tensor(self, node: Node, index: int) -> TfLiteTensor:
        """Input `index` in full; takes nothing from the arena."""
        return self._tensor(index_of(node.inputs, index, "input"))

    def output_tensor(self, node: Node, index: int) -> TfLiteTensor:
        """Output `index` in full; takes nothing from the arena."""
        return self._tensor(index_of(node.outputs, index, "output"))

    def get_eval_input(self, node: Node, index: int) -> TfLiteEvalTensor:
        """Input `index`; its data is available from the bind phase on."""
        return self._eval_tensor(index_of(node.inputs, index, "input"))

    def get_eval_output(self, node: Node, index: int) -> TfLiteEvalTensor:
        """Output `index`; its data is available from the bind phase on."""
        return self._eval_tensor(index_of(node.outputs, index, "output"))

    def _tensor(self, index: int) -> TfLiteTensor:
        """A tensor of the subgraph in full."""

    def _eval_tensor(self, index: int) -> TfLiteEvalTensor:
        """A tensor of the subgraph."""


@dataclass
class Node:
    """An operator at its place in a subgraph.

    Attributes:
        operator: builtin name or custom name.
        index: its number in the subgraph.
        inputs, outputs, intermediates: tensor indices in the subgraph; -1 for an omitted input.
        builtin_options: the table of options, or None.
        custom_options: the options of a custom operator, as bytes; may be empty.
        version: the operator version that the model requires.
        called_subgraphs: the subgraphs that it runs, in planning order.
        op_data: data that the kernel keeps between phases; at first, the bytes reserved for its C structure.
        tensors: access to its tensors; set by the runtime before the first phase.
        pending: the current phase's requests that are not allocated yet.
        persistent, scratch: its allocated arrays of bytes and its handles for `KernelContext.get_scratch_buffer`, by
            the name of the request.
    """

    operator: str
    index: int
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    intermediates: tuple[int, ...]
    builtin_options: Table | None
    custom_options: memoryview
    version: int = 1
    called_subgraphs: tuple[int, ...] = ()
    op_data: Any = field(default=None, repr=False)
    tensors: NodeTensors | None = field(default=None, repr=False, compare=False)
    pending: Requests = field(default=nothing, repr=False)
    persistent: dict[str, npt.NDArray[np.uint8]] = field(default_factory=dict, repr=False)
    scratch: dict[str, int] = field(default_factory=dict, repr=False)

    def __repr__(self) -> str:
        return f"Node({self.index} {self.operator}, inputs={list(self.inputs)}, outputs={list(self.outputs)})"

    @classmethod
    def of(cls, model: Model, operator: Operator, index: int = 0, tensors: NodeTensors | None = None) -> Node:
        """The node for an operator of a model file."""
        return cls(
            operator=model.operator_name(operator),
            index=index,
            inputs=operator.inputs or (),
            outputs=operator.outputs or (),
            intermediates=operator.intermediates or (),
            builtin_options=operator.builtin_options,
            custom_options=memoryview(operator.custom_options or b""),
            version=model.operator_code(operator).version,
            called_subgraphs=tuple(called_subgraphs(operator)),
            tensors=tensors,
        )

    @property
    def _tensors(self) -> NodeTensors:
        if self.tensors is None:
            raise OperatorError(f"node {self.index} {self.operator} is not in a graph yet and has no tensors")
        return self.tensors

    @property
    def target(self) -> Target:
        """The machine whose data model the arena follows."""
        return self._tensors.target

    @property
    def release(self) -> Release:
        """The TFLM release that the node runs on."""
        return self._tensors.release

    @property
    def input_count(self) -> int:
        """Number of inputs, including omitted ones."""
        return len(self.inputs)

    @property
    def output_count(self) -> int:
        """Number of outputs."""
        return len(self.outputs)

    def input(self, index: int) -> TfLiteTensor:
        """Input `index` in full; takes nothing from the arena."""
        return self._tensors.input_tensor(self, index)

    def output(self, index: int) -> TfLiteTensor:
        """Output `index` in full; takes nothing from the arena."""
        return self._tensors.output_tensor(self, index)

    def eval_input(self, index: int) -> TfLiteEvalTensor:
        """Input `index` as TFLM's eval tensor; its data is available from the bind phase on."""
        return self._tensors.get_eval_input(self, index)

    def eval_output(self, index: int) -> TfLiteEvalTensor:
        """Output `index` as TFLM's eval tensor; its data is available from the bind phase on."""
        return self._tensors.get_eval_output(self, index)

    def options(self, kind: type[Options]) -> Options:
        """The node's options of this type; the defaults if it has none, or options of another type."""
        return self.builtin_options if isinstance(self.builtin_options, kind) else kind()

    def array(self, name: str, count: int, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """The array requested by that name, as elements. Kept on the host if the kernel library requests none."""
        held = self.persistent.get(name)
        return np.zeros(count, dtype) if held is None else held.view(dtype)[:count]

    def has_input(self, index: int) -> bool:
        """Whether the node has an input `index` that is not omitted."""
        return index < len(self.inputs) and self.inputs[index] >= 0

    def has_intermediate(self, index: int) -> bool:
        """Whether the node has an intermediate tensor `index` that is not omitted."""
        return index < len(self.intermediates) and self.intermediates[index] >= 0

    def expect(self, inputs: int | range | None = None, outputs: int | None = None) -> None:
        """Check the number of inputs and outputs.

        Raises:
            OperatorError: a number differs; the message names both.
        """
        allowed = range(inputs, inputs + 1) if isinstance(inputs, int) else inputs
        if allowed is not None and len(self.inputs) not in allowed:
            wanted = " or ".join(map(str, allowed))
            raise OperatorError(f"has {len(self.inputs)} inputs, must have {wanted}")
        if outputs is not None and len(self.outputs) != outputs:
            raise OperatorError(f"has {len(self.outputs)} outputs, must have {outputs}")

    def expect_tensors(self, inputs: int, outputs: int = 1) -> list[TfLiteTensor]:
        """Return all inputs and then all outputs in full, after checking their number as `expect` does."""
        self.expect(inputs, outputs)
        return [*map(self.input, range(inputs)), *map(self.output, range(outputs))]


Requests = Callable[[Node], Iterable[Request]]
"""A node's arena requests, in TFLM's order."""


class KernelContext(NodeTensors, Protocol):
    """The runtime's interface for kernels, implemented by `MicroContext`."""

    @property
    def model(self) -> Model:
        """The model that is being run."""

    @property
    def subgraph(self) -> SubGraph:
        """The subgraph that the node is in."""

    # Init and prepare phases.

    def allocate_requested(self, node: Node) -> None:
        """Allocate what the node's registration requests for this phase.

        The runtime calls this after the phase. A kernel that fills arrays, or changes shapes that its requests depend
        on, calls it itself after its checks; a second call is a no-op.
        """

    def allocate_persistent_buffer(self, size: int) -> npt.NDArray[np.uint8]:
        """Bytes of the arena's tail, aligned to 16, that live as long as the interpreter."""

    def allocate_array(self, count: int, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """A one-dimensional array in the arena's tail, like `allocate_persistent_buffer`."""

    # Prepare phase, for operators without declared requests.

    def request_scratch_buffer_in_arena(self, size: int) -> int:
        """Request `size` bytes for use while this operator runs; returns a handle. At most 12 requests."""

    def allocate_temp_input_tensor(self, node: Node, index: int) -> TfLiteTensor:
        """Input `index` in full. The arena holds it until the operator has prepared."""

    def allocate_temp_output_tensor(self, node: Node, index: int) -> TfLiteTensor:
        """Output `index` in full. The arena holds it until the operator has prepared."""

    def allocate_temp_intermediate_tensor(self, node: Node, index: int) -> TfLiteTensor:
        """Intermediate tensor `index` in full. The arena holds it until the operator has prepared."""

    def reset_decompression_memory_allocations(self) -> None:
        """Release all alternate decompression memory; each operator starts with all of it."""

    def allocate_decompression_memory(self, size: int) -> npt.NDArray[np.uint8] | None:
        """Bytes of the alternate decompression memory, aligned to 16; None if there is none or it is full."""

    # Prepare, bind and invoke phases.

    def find_or_create_resource(self, container: str, shared_name: str) -> int:
        """The id of the resource variable of that name."""

    def allocate_resource(self, resource_id: int, value: TfLiteTensor) -> None:
        """Prepare phase: give a resource variable the size of `value`, unless it already has a size."""

    # Bind and invoke phases.

    def get_resource(self, resource_id: int) -> npt.NDArray[np.uint8]:
        """The bytes of a resource variable."""

    def subgraph_inputs(self, index: int) -> list[TfLiteEvalTensor]:
        """The inputs of another subgraph."""

    def subgraph_outputs(self, index: int) -> list[TfLiteEvalTensor]:
        """The outputs of another subgraph."""

    def invoke_subgraph(self, index: int) -> None:
        """Run another subgraph (invoke phase only)."""

    @property
    def while_limit(self) -> int | None:
        """Maximum number of iterations of a WHILE; None for no limit."""

    def get_scratch_buffer(self, handle: int) -> npt.NDArray[np.uint8]:
        """The bytes of a requested scratch buffer."""
