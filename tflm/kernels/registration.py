"""What an operator is to the runtime: a registration; and what a kernel may ask for: the context."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from tflm.errors import OperatorError
from tflm.kernels.overlap import Moves, Overlap, copied, copied_in_order
from tflm.kernels.requests import OperatorMemory, Options, Refusal, Requests, nothing
from tflm.memory.tensor import TfLiteEvalTensor, TfLiteTensor
from tflm.releases import STATIC_MEMORY, Release
from tflm.schema.enums import BuiltinOperator, TensorType
from tflm.schema.layout import Table
from tflm.schema.model import Model
from tflm.schema.tables import SubGraph
from tflm.targets import BOOL, INT, POINTER, CType, Either, Since, Struct, Target

TFLITE_NODE = Either(
    STATIC_MEMORY,
    Struct(
        "TfLiteNode",
        inputs=POINTER,
        outputs=POINTER,
        intermediates=Since("b6cbaea68", POINTER),
        user_data=POINTER,
        builtin_data=POINTER,
        custom_initial_data=POINTER,
        custom_initial_data_size=INT,
    ),
    Struct(
        "TfLiteNode",
        inputs=POINTER,
        outputs=POINTER,
        intermediates=POINTER,
        temporaries=POINTER,
        user_data=POINTER,
        builtin_data=POINTER,
        custom_initial_data=POINTER,
        custom_initial_data_size=INT,
        delegate=POINTER,
        might_have_side_effect=BOOL,
    ),
)
NODE_AND_REGISTRATION = Struct("NodeAndRegistration", node=TFLITE_NODE, registration=POINTER)

LOWEST_VERSION, HIGHEST_VERSION = -(2**31), 2**31 - 1
"""Of an operator in a file: for a registration that takes every version."""


class InvokeAborted(Exception):
    """Raised by an operator that ends an invoke early, without an error: there is nothing to go on with yet."""


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
    pending: Requests = field(default=nothing, repr=False)
    persistent: dict[str, npt.NDArray[np.uint8]] = field(default_factory=dict, repr=False)
    scratch: dict[str, int] = field(default_factory=dict, repr=False)

    def __repr__(self) -> str:
        return f"Node({self.index} {self.operator}, inputs={list(self.inputs)}, outputs={list(self.outputs)})"

    def options(self, kind: type[Options]) -> Options | None:
        """The options, if they are of that kind; None if there are none, or others."""
        return self.builtin_options if isinstance(self.builtin_options, kind) else None

    def array(self, name: str, count: int, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """What was asked for by that name, as elements. Where a kernel library asks for none, the host keeps it."""
        held = self.persistent.get(name)
        return np.zeros(count, dtype) if held is None else held.view(dtype)[:count]

    def has_input(self, index: int) -> bool:
        """Whether input `index` is there and was not left out."""
        return index < len(self.inputs) and self.inputs[index] >= 0

    def expect(self, inputs: int | range | None = None, outputs: int | None = None) -> None:
        """Refuse another number of inputs or outputs than these.

        Raises:
            OperatorError: naming the numbers.
        """
        allowed = range(inputs, inputs + 1) if isinstance(inputs, int) else inputs
        if allowed is not None and len(self.inputs) not in allowed:
            wanted = " or ".join(map(str, allowed))
            raise OperatorError(f"takes {wanted} inputs, not {len(self.inputs)}")
        if outputs is not None and len(self.outputs) != outputs:
            raise OperatorError(f"gives {outputs} outputs, not {len(self.outputs)}")


class KernelContext(Protocol):
    """What the runtime offers to a kernel. `MicroContext` is the real one.

    Tensor getters refuse an input or output that the node does not have with an `OperatorError`.
    """

    @property
    def target(self) -> Target:
        """The machine whose data model the arena follows."""

    @property
    def release(self) -> Release:
        """The TFLM that the model runs in."""

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

    def input_tensor(self, node: Node, index: int) -> TfLiteTensor:
        """Input `index` in full; takes nothing from the arena."""

    def output_tensor(self, node: Node, index: int) -> TfLiteTensor:
        """Output `index` in full; takes nothing from the arena."""

    # While an operator prepares, for one that does not declare what it asks for.

    def request_scratch_buffer_in_arena(self, size: int) -> int:
        """Ask for `size` bytes that are there while this operator runs; gives a handle. 12 requests at the most."""

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

    def get_eval_input(self, node: Node, index: int) -> TfLiteEvalTensor:
        """Input `index`; its data is there when the operator binds."""

    def get_eval_output(self, node: Node, index: int) -> TfLiteEvalTensor:
        """Output `index`; its data is there when the operator binds."""

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


Prepare = Callable[[KernelContext, Node], None]
"""Checks the node, computes constants, and asks for memory. Refuses with `OperatorError`."""

Run = Callable[[], None]
"""Runs the operator once."""

Bind = Callable[[KernelContext, Node], Run]
"""Takes views of everything, now that all addresses are known, and gives what runs the operator."""

Shape = Sequence[int]

MultiplyAccumulates = Callable[[Sequence[Shape], Shape], int]
"""How many one run takes, from the shapes of the inputs (empty for one that is left out) and of the first output."""


@dataclass(frozen=True)
class Registration:
    """An operator that a resolver can hold.

    Attributes:
        operator: which one: a builtin, or the name of a custom one.
        bind: the phase that makes the operator runnable. A custom operator may give `invoke` instead.
        prepare: the phase before planning; None if there is nothing to check or to ask for.
        init: an earlier phase, run over the whole graph before the first `prepare`; rarely needed.
        invoke: runs the operator, where no `bind` is given.
        reset: puts the operator's state back to what it was after `prepare`.
        free: gives back what the host holds for the operator; called once, when the interpreter goes.
        has_state: whether, beside its tensors, it looks at or changes what others do, too: then it keeps its place
            among others that do. None for what is assumed of an operator: that a custom one may.
        ends_invoke: whether it may end an invoke early, so that what stands after it must not run before it.
        op_data: the C structure that TFLM's kernel keeps; reserved when the operator initialises, where it has a
            size on the target. `Node.op_data` are its bytes until the kernel puts something else there.
        requests: what else it asks of the arena while it prepares, in TFLM's order.
        init_requests: the same, while it initialises.
        builtin_data: the C structure that TFLM parses the options into; None where it has none.
        min_version, max_version: the versions of the operator in a model that the kernel implements. TFLM does not look
            at them, and neither does a resolver, unless it is asked to be strict.
        types: the element types that its main tensor may have, which is most often the first input. Empty where any
            will do, or where it has none.
        overlap: how far behind the output each input may begin where the two share bytes; None where they may share
            none.
        moves: the bytes of inputs that become bytes of outputs, where the operator does nothing else.
        opaque: whether it is not known in which order the operator reads and writes its tensors.
        multiply_accumulates: how many it takes, of what multiplies weights; None for all else.
        cpp_method: the method of TFLM's resolver that adds it, where that does not follow from the name.
        refusals: what TFLM refused for a time.
        since: the commit of TFLM from which its resolver has a method for the operator; empty for one that it always
            had.
        int8_registration: whether CMSIS-NN has one for int8 alone, such as Register_CONV_2D_INT8.
    """

    operator: BuiltinOperator | str
    bind: Bind | None = None
    prepare: Prepare | None = None
    init: Callable[[KernelContext, Any], Any] | None = None
    invoke: Callable[[KernelContext, Node], None] | None = None
    reset: Callable[[KernelContext, Node], None] | None = None
    free: Callable[[KernelContext, Node], None] | None = None
    has_state: bool | None = None
    ends_invoke: bool = False
    op_data: CType | None = None
    requests: Requests = nothing
    init_requests: Requests = nothing
    builtin_data: Struct | None = None
    min_version: int = 1
    max_version: int = 1
    types: tuple[TensorType, ...] = ()
    overlap: Overlap | None = None
    moves: Moves | None = None
    opaque: bool = False
    multiply_accumulates: MultiplyAccumulates | None = None
    cpp_method: str = ""
    refusals: tuple[Refusal, ...] = ()
    since: str = ""
    int8_registration: bool = False

    def __repr__(self) -> str:
        types = ", ".join(type.name for type in self.types)
        return f"Registration({self.name}, versions {self.min_version} to {self.max_version}, {types or 'any type'})"

    @property
    def shares_state(self) -> bool:
        """Whether it keeps its place among other operators with state."""
        return self.has_state if self.has_state is not None else isinstance(self.operator, str)

    @property
    def name(self) -> str:
        """Name of the operator as messages show it."""
        return self.operator.name if isinstance(self.operator, BuiltinOperator) else self.operator

    @property
    def only_copies(self) -> bool:
        """Whether it gives the elements of its first input as they are, in another shape at the most."""
        return self.moves in (copied, copied_in_order)

    @property
    def resolver_method(self) -> str:
        """The method of TFLM's resolver that adds it: AddConv2D for CONV_2D, AddWindow for SignalWindow."""
        if self.cpp_method:
            return self.cpp_method
        name = re.sub("^(Signal|TFLite_|TFLM_)", "", self.name)
        if name.isupper() or re.search("[_-]", name):
            words = "".join(word.capitalize() for word in re.split("[_-]", name))
            name = re.sub("([0-9])d$", r"\1D", words)
        return f"Add{name}"

    @property
    def memory(self) -> OperatorMemory:
        """All that the operator asks of the arena with TFLM's own kernels."""
        return OperatorMemory(self.op_data, self.requests, self.init_requests)
