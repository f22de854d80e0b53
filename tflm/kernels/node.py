"""A node as its kernel sees it, and what the kernel may ask the runtime for: the context."""

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
from tflm.schema.tables import Operator, SubGraph
from tflm.schema.verifier import called_subgraphs
from tflm.targets import Target

Options = TypeVar("Options", bound=Table)


class InvokeAborted(Exception):
    """Raised by an operator that ends an invoke early, without an error: there is nothing to go on with yet."""


class NodeTensors(Protocol):
    """Where a node finds its tensors, and what it runs on.

    Getters refuse an input or output that the node does not have with an `OperatorError`.
    """

    @property
    def target(self) -> Target:
        """The machine whose data model the arena follows."""

    @property
    def release(self) -> Release:
        """The TFLM that the model runs in."""

    def input_tensor(self, node: Node, index: int) -> TfLiteTensor:
        """Input `index` in full; takes nothing from the arena."""

    def output_tensor(self, node: Node, index: int) -> TfLiteTensor:
        """Output `index` in full; takes nothing from the arena."""

    def get_eval_input(self, node: Node, index: int) -> TfLiteEvalTensor:
        """Input `index`; its data is there when the operator binds."""

    def get_eval_output(self, node: Node, index: int) -> TfLiteEvalTensor:
        """Output `index`; its data is there when the operator binds."""


@dataclass
class Node:
    """An operator at its place in a subgraph.

    Attributes:
        operator: builtin name or custom name.
        index: its number in the subgraph.
        inputs, outputs, intermediates: tensor indices in the subgraph; -1 for an input that is left out.
        builtin_options: the table of options, or None.
        custom_options: the bytes that a custom operator was given; empty if none.
        version: the version of the operator that the model asks for.
        called_subgraphs: the subgraphs that it runs, in the order in which they are planned.
        op_data: whatever the kernel keeps from one phase for the next; at first, the bytes reserved for that.
        tensors: where it finds its tensors; set by the runtime before the first phase.
        pending: what the present phase has still to take from the arena.
        persistent, scratch: what it got, by the names of its requests: arrays of bytes, and handles for
            `KernelContext.get_scratch_buffer`.
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
        """The node of an operator in a model's file."""
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
            raise OperatorError(f"node {self.index} {self.operator} is in no graph yet: it has no tensors")
        return self.tensors

    @property
    def target(self) -> Target:
        """The machine whose data model the arena follows."""
        return self._tensors.target

    @property
    def release(self) -> Release:
        """The TFLM that the node runs in."""
        return self._tensors.release

    @property
    def input_count(self) -> int:
        """Number of inputs, those that are left out among them."""
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
        """Input `index` as TFLM's eval tensor; its data is there when the operator binds."""
        return self._tensors.get_eval_input(self, index)

    def eval_output(self, index: int) -> TfLiteEvalTensor:
        """Output `index` as TFLM's eval tensor; its data is there when the operator binds."""
        return self._tensors.get_eval_output(self, index)

    def options(self, kind: type[Options]) -> Options:
        """The options of that kind; their defaults, where the node has none, or others."""
        return self.builtin_options if isinstance(self.builtin_options, kind) else kind()

    def array(self, name: str, count: int, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """What was asked for by that name, as elements. Where a kernel library asks for none, the host keeps it."""
        held = self.persistent.get(name)
        return np.zeros(count, dtype) if held is None else held.view(dtype)[:count]

    def has_input(self, index: int) -> bool:
        """Whether input `index` is there and was not left out."""
        return index < len(self.inputs) and self.inputs[index] >= 0

    def has_intermediate(self, index: int) -> bool:
        """Whether intermediate tensor `index` is there and was not left out."""
        return index < len(self.intermediates) and self.intermediates[index] >= 0

    def expect(self, inputs: int | range | None = None, outputs: int | None = None) -> None:
        """Reject another number of inputs or outputs than these.

        Raises:
            OperatorError: naming the numbers.
        """
        allowed = range(inputs, inputs + 1) if isinstance(inputs, int) else inputs
        if allowed is not None and len(self.inputs) not in allowed:
            wanted = " or ".join(map(str, allowed))
            raise OperatorError(f"has {len(self.inputs)} inputs, must have {wanted}")
        if outputs is not None and len(self.outputs) != outputs:
            raise OperatorError(f"has {len(self.outputs)} outputs, must have {outputs}")


Requests = Callable[[Node], Iterable[Request]]
"""What a node asks of the arena, in TFLM's order."""


class KernelContext(NodeTensors, Protocol):
    """What the runtime offers to a kernel. `MicroContext` is the real one."""

    @property
    def model(self) -> Model:
        """The model that is being run."""

    @property
    def subgraph(self) -> SubGraph:
        """The subgraph that the node is in."""

    # While an operator initialises or prepares.

    def allocate_requested(self, node: Node) -> None:
        """Take from the arena what the node's declaration asks for in this phase.

        The runtime does so after the phase. A kernel that fills arrays, or changes the shapes that the requests follow
        from, has it done earlier, once its checks are through; a second call does nothing.
        """

    def allocate_persistent_buffer(self, size: int) -> npt.NDArray[np.uint8]:
        """Bytes of the arena's tail, aligned to 16, for as long as the model is there."""

    def allocate_array(self, count: int, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """A one-dimensional array in the arena's tail, like `allocate_persistent_buffer`."""

    # While an operator prepares, for one that does not declare what it asks for.

    def request_scratch_buffer_in_arena(self, size: int) -> int:
        """Ask for `size` bytes that are there while this operator runs; returns a handle. 12 requests at most."""

    def allocate_temp_input_tensor(self, node: Node, index: int) -> TfLiteTensor:
        """Input `index` in full. The arena holds it until the operator has prepared."""

    def allocate_temp_output_tensor(self, node: Node, index: int) -> TfLiteTensor:
        """Output `index` in full. The arena holds it until the operator has prepared."""

    def allocate_temp_intermediate_tensor(self, node: Node, index: int) -> TfLiteTensor:
        """Intermediate tensor `index` in full. The arena holds it until the operator has prepared."""

    def reset_decompression_memory_allocations(self) -> None:
        """Give back all of the alternate decompression memory: each operator has it from its start."""

    def allocate_decompression_memory(self, size: int) -> npt.NDArray[np.uint8] | None:
        """Bytes of the alternate decompression memory, aligned to 16; None where it has no room, or is not there."""

    # While an operator prepares, binds or runs.

    def find_or_create_resource(self, container: str, shared_name: str) -> int:
        """The id of the resource variable of that name."""

    def allocate_resource(self, resource_id: int, value: TfLiteTensor) -> None:
        """Give a resource variable the size of `value`, unless it already has one; while an operator prepares."""

    # While an operator binds or runs.

    def get_resource(self, resource_id: int) -> npt.NDArray[np.uint8]:
        """The bytes of a resource variable."""

    def subgraph_inputs(self, index: int) -> list[TfLiteEvalTensor]:
        """The inputs of another subgraph."""

    def subgraph_outputs(self, index: int) -> list[TfLiteEvalTensor]:
        """The outputs of another subgraph."""

    def invoke_subgraph(self, index: int) -> None:
        """Run another subgraph; while an operator runs."""

    @property
    def while_limit(self) -> int | None:
        """How many times the body of a WHILE may run in a row; None for no limit."""

    def get_scratch_buffer(self, handle: int) -> npt.NDArray[np.uint8]:
        """The bytes of a scratch buffer that was asked for."""
