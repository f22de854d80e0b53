"""What an operator is to the runtime: a registration, with its phases and what it asks of the arena."""

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
"""Of an operator in a file: for a registration that takes every version."""


class Refusal(NamedTuple):
    """What TFLM's kernel refused for a time, while it prepares, and the kernel of today takes.

    Attributes:
        applies: whether a node is refused.
        message: what TFLM says, or what happens.
        until: the commit from which it is taken.
        since: the commit from which it was refused; empty where it always had been.
    """

    applies: Callable[[Node], bool]
    message: str
    until: str
    since: str = ""

    def concerns(self, node: Node) -> bool:
        """Whether the release that a node is prepared in refuses it."""
        release = node.release
        if release.holds(self.until) or (self.since and not release.holds(self.since)):
            return False
        return self.applies(node)


class OperatorMemory(NamedTuple):
    """All that an operator asks of the arena.

    Attributes:
        op_data: the C structure that its kernel keeps, reserved when the operator initialises; None for no structure.
        prepare: what it asks for while it prepares.
        init: what it asks for while it initialises, after the structure.
        since: the commit of TFLM from which a kernel library has its own kernel; empty where it always had.
    """

    op_data: CType | None
    prepare: Requests
    init: Requests
    since: str = ""


Prepare = Callable[[KernelContext, Node], None]
"""Checks the node, computes constants, and asks for memory. Refuses with `OperatorError`."""

Run = Callable[[], None]
"""Runs the operator once."""

Bind = Callable[[KernelContext, Node], Run]
"""Takes views of everything, now that all addresses are known, and gives what runs the operator."""

Shape = Sequence[int]

MultiplyAccumulates = Callable[[Sequence[Shape], Shape], int]
"""How many one run takes, from the shapes of the inputs (empty for one that is left out) and of the first output."""


IMPLIED_SHAPES: dict[Overlap | None, OutputShapes] = {element_wise: broadcast, row_wise: same_as_input}


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
        activations: the input that weights are multiplied by, and whose type is one of `types`.
        weights: the inputs that are weights, which TFLite also takes as integers where activations are floats.
        output_shapes: the shapes of the outputs, from the shapes, constants and options of the node; see `shape_rule`.
        output_values: the elements of the first output where those of all inputs are known: for operators that
            models compute shapes with.
        versions: what each version of a builtin operator added, in the order in which the conditions are tried.
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
        """Whether it keeps its place among other operators with state."""
        return self.has_state if self.has_state is not None else isinstance(self.operator, str)

    @property
    def name(self) -> str:
        """Name of the operator as messages show it."""
        return self.operator.name if isinstance(self.operator, BuiltinOperator) else self.operator

    @property
    def only_copies(self) -> bool:
        """Whether it gives the elements of its first input as they are, in another shape at most."""
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
        """All that the operator asks of the arena with TFLM's own kernels."""
        return OperatorMemory(self.op_data, self.requests, self.init_requests)


OPAQUE = Registration("unknown operator", opaque=True)
"""What counts for operators that the package does not have."""
