"""The memory needs of a bound model's kernels: scratch memory, and the overlap of inputs and outputs that they
allow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from tflm.c.binding import BoundModel, BoundOperator, StateAndScratch, step_arrays
from tflm.c.kernels import KERNELS, SmallKernel, accumulation, broadcasts, encoded
from tflm.c.row_copies import BY_ROWS, rows_read
from tflm.compiler.language import Step
from tflm.delegates.compiled import (
    arithmetic,
    elementwise,
    movement,
    normalization,
    pooling,
    quotients,
    recurrent,
    unary,
)
from tflm.kernels import REGISTRATIONS
from tflm.kernels.overlap import NOWHERE, OperatorFacts, anywhere
from tflm.libraries.kernel_library import AllowedOverlap
from tflm.schedule import bands
from tflm.schedule.calls import CallNeeds, Kernels, ShapedCall
from tflm.schedule.rows import Rows

IN_ORDER = tuple(
    kernel.function
    for kernel in (
        *(arithmetic.combine, arithmetic.combine_linearly, arithmetic.multiply, broadcasts.each_of_steps),
        *(unary.convert, unary.is_not_zero, unary.truncate),
        *(elementwise.compare_quantized, elementwise.each, elementwise.each_within, elementwise.floor_divide),
        elementwise.prelu_quantized,
        *(normalization.log_softmax_float32, normalization.log_softmax_int8),
        *(normalization.normalize_float32, normalization.normalize_int8),
        *(quotients.divide_int32, quotients.divide_int8, quotients.rsqrt_int16),
        *(normalization.softmax_float32, normalization.softmax_int16, normalization.softmax_int8),
        *(unary.absolute_int16, unary.clamp, unary.dequantize, unary.each, unary.leaky_relu, unary.leaky_relu_int16),
        *(unary.look_up, unary.quantize, unary.requantize, unary.sigmoid_int16),
    )
)
"""Kernels that do not read elements 0 to k of their inputs after they have written element k of the output.
Registrations declare these operators as element-wise or row-wise."""


REDUCTIONS = {operator.name for operator in bands.REDUCTIONS}
"""Operators whose kernels read only the rows that they are given."""

SMALL = SmallKernel.__module__.rpartition(".")[0]
"""Package of the kernels for small processors."""


class BoundKernels(Kernels):
    """The kernels that a model's operators are bound to.

    Args:
        bound: the model.
        extra: its state and scratch memory.
        library_overlap: the overlap that the library functions allow which some operators call.
        accumulates: whether reductions may combine rows with totals.
    """

    def __init__(
        self, bound: BoundModel, extra: StateAndScratch, library_overlap: AllowedOverlap, *, accumulates: bool = True
    ):
        self._bound, self._library_overlap, self._accumulates = bound, library_overlap, accumulates
        self._scratch, self._lean_scratch = extra.scratch, extra.lean_scratch
        self._operators = {(one.subgraph, one.index): one for operators in bound.operators for one in operators}

    def needs(self, call: ShapedCall) -> CallNeeds:
        place, facts = (call.subgraph, call.operator), call.facts
        operator, arrays = self._operators[place], self._scratch
        small = small_kernel(operator)
        if call.lean:
            assert operator.lean is not None
            operator, arrays = operator.lean, self._lean_scratch
            small = small_kernel(operator, is_lean=True)
        scratch = tuple(array.nbytes for array in arrays.get(place, ()))
        overlap: Callable[[int], range]
        if any(operator.library_calls()):
            overlap = partial(self._library_overlap, REGISTRATIONS[operator.node.operator], facts)
        elif small is None or small.overlap is None:
            overlap = _overlap(operator, facts)
        else:
            overlap = partial(small.overlap, facts, call.windows)
            if call.windows is not None:
                sizes = small.scratch_bytes(facts, call.windows), _row_bytes(operator)
                scratch = tuple(size for size in sizes if size)
        overlaps, backwards = (
            () if each is None else tuple(NOWHERE if x is None else each(i) for i, x in enumerate(facts.inputs))
            for each in (overlap, self._overlap_backwards(operator, call))
        )
        return CallNeeds(scratch, overlaps, backwards)

    def _overlap_backwards(self, operator: BoundOperator, call: ShapedCall) -> Callable[[int], range] | None:
        """Return where inputs may begin if the last window is computed first; None if kernels cannot do that."""
        small = None if call.lean else small_kernel(operator)
        if small is None or small.overlap_backwards is None or any(operator.library_calls()):
            return None
        return partial(small.overlap_backwards, call.facts, call.windows)

    def has_lean(self, operator: int) -> bool:
        return self._operators[0, operator].lean is not None

    def rows_copied(self, operator: int) -> Sequence[Rows] | None:
        return rows_read(self._bound, self._operators[0, operator])

    def totals_bytes(self, operator: int) -> int:
        bound = self._operators[0, operator]
        is_own = self._accumulates and not any(bound.library_calls())
        totals = accumulation.totals_of(bound.node) if is_own else None
        return 0 if totals is None else totals.nbytes

    def takes_rows(self, operator: int) -> bool:
        bound = self._operators[0, operator]
        small = small_kernel(bound)
        if any(bound.library_calls()) or bound.node.operator in BY_ROWS:
            return False
        if small is not None and small.takes_rows:
            return True
        return bound.node.operator in REDUCTIONS or _is_element_wise(self._bound, bound)


def small_kernel(operator: BoundOperator, *, is_lean: bool = False) -> SmallKernel | None:
    """Return the small kernel that an operator is bound to, or its lean variant; None if it is bound to another
    kernel."""
    functions = {step.kernel.function for step in operator.steps()}
    is_small = any(function.__module__.startswith(SMALL) or function in OF_BOTH for function in functions)
    small = KERNELS[operator.node.operator] if is_small else None
    return small.lean if small is not None and is_lean else small


def _row_bytes(operator: BoundOperator) -> int:
    """Return the size of a row of weights that an operator decodes."""
    rows = (step_arrays(step).get("row") for step in operator.steps() if step.kernel.function in ENCODED)
    return max((row.nbytes for row in rows if row is not None), default=0)


OF_BOTH = tuple(
    kernel.function
    for kernel in (pooling.pool, *(recurrent.filter_over_time, recurrent.lstm_step, recurrent.lstm_step_float32))
)
"""Kernels of the engine whose operators count as bound to a small kernel."""

ENCODED = encoded.convolve_encoded.function, encoded.multiply_encoded.function


def _single_step(operator: BoundOperator) -> Step | None:
    """Return the operator's call if it has only one."""
    actions = operator.actions
    return actions[0] if len(actions) == 1 and isinstance(actions[0], Step) else None


def _is_element_wise(bound: BoundModel, operator: BoundOperator) -> bool:
    """Whether element k of the output depends only on elements k of inputs of the same shape, so that any rows can be
    computed."""
    step = _single_step(operator)
    if step is None or step.kernel.function not in IN_ORDER:
        return False
    tensors = bound.tensors(operator.subgraph)
    (output,) = operator.node.outputs
    inputs = [tensors[i] for i in operator.node.inputs if i >= 0]
    return all(not tensor.is_constant and tensor.dims == tensors[output].dims for tensor in inputs)


def _overlap(operator: BoundOperator, facts: OperatorFacts) -> Callable[[int], range]:
    """Return how many bytes after the output's first byte an input may begin if they share bytes."""
    step, overlap = _single_step(operator), REGISTRATIONS[operator.node.operator].overlap
    if step is not None and len(facts.outputs) == 1:
        if step.kernel.function is movement.move.function:
            return lambda i: anywhere(facts, 0) if i == 0 else NOWHERE
        if step.kernel.function in IN_ORDER and overlap is not None:
            return partial(overlap, facts)
    return lambda i: NOWHERE
