"""Registrations: an operator's phases, its arena requests and everything else that the runtime needs to know."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tflm.kernels.node import KernelContext, Node, Requests
from tflm.kernels.overlap import Moves, Overlap, copied, copied_in_order, element_wise, row_wise
from tflm.kernels.requests import nothing
from tflm.kernels.shapes import OutputShapes, OutputValues, broadcast, same_as_input
from tflm.releases import STATIC_MEMORY
from tflm.schema.enums import BuiltinOperator, TensorType
from tflm.schema.version_rules import Versions
from tflm.targets import BOOL, INT, POINTER, CType, Either, Since, Struct

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
"""The highest version an operator can have in a file, for registrations that accept every version."""


class Refusal(NamedTuple):
    """A node that older releases of TFLM reject in prepare and current ones accept.

    Attributes:
        applies: whether a node is rejected.
        message: TFLM's message, or what happens.
        until: the commit that first accepts it.
        since: the commit that first rejects it; empty if it was always rejected before `until`.
    """

    applies: Callable[[Node], bool]
    message: str
    until: str
    since: str = ""

    def concerns(self, node: Node) -> bool:
        """Whether the node's release rejects it."""
        release = node.release
        if release.holds(self.until) or (self.since and not release.holds(self.since)):
            return False
        return self.applies(node)


class OperatorMemory(NamedTuple):
    """All arena requests of an operator.

    Attributes:
        op_data: the C structure that its kernel keeps, allocated in the init phase; None for no structure.
        prepare: requests in the prepare phase.
        init: requests in the init phase, after the structure.
        since: the commit of TFLM that added the kernel library's own kernel; empty if it always had one.
    """

    op_data: CType | None
    prepare: Requests
    init: Requests
    since: str = ""


Prepare = Callable[[KernelContext, Node], None]
"""Checks the node, computes constants and requests memory. Raises `OperatorError` to reject the node."""

Run = Callable[[], None]
"""Runs the operator once."""

Bind = Callable[[KernelContext, Node], Run]
"""Takes views of all memory, whose addresses are now known, and returns the function that runs the operator."""

Shape = Sequence[int]

MultiplyAccumulates = Callable[[Sequence[Shape], Shape], int]
"""Multiply-accumulates of one run, from the shapes of the inputs (empty for an omitted one) and the first output."""


IMPLIED_SHAPES: dict[Overlap | None, OutputShapes] = {element_wise: broadcast, row_wise: same_as_input}


@dataclass(frozen=True)
class Registration:
    """An operator that a resolver can hold.

    Attributes:
        operator: a builtin operator, or the name of a custom one.
        bind: the phase that makes the operator runnable. A custom operator may define `invoke` instead.
        prepare: the phase before planning; None if it has nothing to check or request.
        init: an earlier phase, run over the whole graph before the first `prepare`; rarely needed.
        invoke: runs the operator, if it has no `bind`.
        reset: restores the operator's state after `prepare`.
        free: releases the operator's host resources; called once, when the interpreter is destroyed.
        has_state: whether it reads or changes state other than its tensors, which fixes its order among other such
            operators. None for the default: only custom operators have state.
        ends_invoke: whether it may end an invoke early, so that later operators must not run before it.
        op_data: the C structure that TFLM's kernel keeps; allocated in the init phase if it has a size on the target.
            `Node.op_data` holds its bytes until the kernel replaces them.
        requests: its other arena requests in the prepare phase, in TFLM's order.
        init_requests: the same for the init phase.
        builtin_data: the C structure that TFLM parses the options into, if any.
        min_version, max_version: the operator versions that the kernel implements. Like TFLM, a resolver checks them
            only in strict mode.
        types: allowed element types of its main tensor, usually the first input. Empty for any type or no such tensor.
        overlap: allowed distances from the start of the output to that of an input that shares memory with it; None if
            they may not overlap.
        moves: the ranges of bytes that it copies, if the operator does nothing else.
        opaque: whether the order in which the operator reads and writes its tensors is unknown.
        multiply_accumulates: counts the multiply-accumulates of an operator with weights; None for others.
        cpp_method: the method of TFLM's resolver that adds it, if it does not follow from the name.
        refusals: nodes that some releases of TFLM reject.
        since: the commit of TFLM that added the operator to its resolver; empty if it always had it.
        int8_registration: whether CMSIS-NN has a registration for int8 only, such as Register_CONV_2D_INT8.
        activations: the input that is multiplied by weights and whose type is one of `types`.
        weights: the inputs that are weights, which in TFLite may be integers with float activations.
        output_shapes: the shapes of the outputs, from the shapes, constants and options of the node; see `shape_rule`.
        output_values: computes the elements of the first output from those of all inputs, for operators that models
            compute shapes with.
        versions: what each version of a builtin operator added, in the order in which the conditions are tested.
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
    activations: int = 0
    weights: tuple[int, ...] = ()
    output_shapes: OutputShapes | None = None
    output_values: OutputValues | None = None
    versions: Versions = field(default_factory=dict)

    def __repr__(self) -> str:
        types = ", ".join(type.name for type in self.types)
        return f"Registration({self.name}, versions {self.min_version} to {self.max_version}, {types or 'any type'})"

    @property
    def shares_state(self) -> bool:
        """Whether its order among other operators with state is fixed."""
        return self.has_state if self.has_state is not None else isinstance(self.operator, str)

    @property
    def name(self) -> str:
        """The operator's name in messages."""
        return self.operator.name if isinstance(self.operator, BuiltinOperator) else self.operator

    @property
    def only_copies(self) -> bool:
        """Whether the output has the elements of the first input, unchanged except for the shape."""
        return self.moves in (copied, copied_in_order)

    @property
    def shape_rule(self) -> OutputShapes | None:
        """`output_shapes`, or what `overlap` implies; None for an operator whose inputs cannot be resized."""
        return self.output_shapes or IMPLIED_SHAPES.get(self.overlap)

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
        """The operator's arena requests with TFLM's reference kernels."""
        return OperatorMemory(self.op_data, self.requests, self.init_requests)


OPAQUE = Registration("unknown operator", opaque=True)
"""The registration assumed for operators that the package does not have."""
