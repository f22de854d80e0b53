"""Runs a model inside one fixed arena."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import numpy as np

from tflm.errors import InterpreterError, TensorIndexError
from tflm.kernels.registration import InvokeAborted
from tflm.memory.arena import Arena
from tflm.memory.lifetimes import Step
from tflm.memory.tensor import TfLiteEvalTensor, TfLiteTensor
from tflm.micro_allocator import MicroAllocator, PlannedBuffer, Planner
from tflm.micro_context import InterpreterState, MicroContext
from tflm.micro_graph import MicroGraph
from tflm.micro_op_resolver import MicroMutableOpResolver
from tflm.micro_profiler import MicroProfilerInterface
from tflm.micro_resource_variable import MicroResourceVariables, count_resource_variables
from tflm.schema.model import Model
from tflm.targets import HOST, Target

BUFFER_ELEMENTS = 1024
"""Elements in each of the buffers that numpy may work in."""


class MicroInterpreter:
    """Places everything a model needs in the arena, once, and then runs it without allocating.

    Args:
        model: what to run.
        resolver: the operators that there are.
        arena: a writable buffer that holds everything the model gets; or a `MicroAllocator`, to put several models
            one after the other into the same arena.
        target: the machine whose arena layout is followed; results are the same for all of them.
        planner: "greedy", "linear", a list of offsets, or a planner object; see `MicroAllocator`.
        profiler: told of the begin and end of every operator; None costs nothing.
        preserve_all_tensors: give every tensor memory of its own, so that `get_tensor` can look at it afterwards.
        while_limit: how many times a WHILE may run its body before it is given up with an `OperatorError`; None for as
            many as its condition asks for, even if that is without end.

    Raises:
        ArenaError: the buffer is read-only, or otherwise can't be an arena.
        InterpreterError: the `while_limit` is not a number from 0 on.

    `target`, `planner` and `preserve_all_tensors` are those of the allocator, where one is given.

    An interpreter is for one thread at a time: `allocate_tensors`, `invoke` and `reset` raise `InterpreterError` while
    one of them is under way, in another thread or in an operator that calls back. So do those of all interpreters that
    share a `MicroAllocator`. Interpreters with arenas of their own do not know of each other.

    Whatever an operator raises, a `TflmError` or not, is passed on, and every call is allowed afterwards. Until the
    next `invoke` has ended well, outputs may be half written; variables and the state of operators may be, too, until
    `reset`.
    """

    def __init__(
        self,
        model: Model,
        resolver: MicroMutableOpResolver,
        arena: Any,
        *,
        target: Target = HOST,
        planner: Planner = "greedy",
        profiler: MicroProfilerInterface | None = None,
        preserve_all_tensors: bool = False,
        while_limit: int | None = None,
    ):
        if while_limit is not None and (not isinstance(while_limit, int) or while_limit < 0):
            raise InterpreterError(f"while_limit is a number of iterations or None, not {while_limit!r}")
        self._model = model
        self._resolver = resolver
        self._arena = arena if isinstance(arena, MicroAllocator) else Arena(arena)
        self._target = target
        self._planner = "linear" if preserve_all_tensors else planner
        self._profiler = profiler
        self._while_limit = while_limit
        self._allocated: Layout | None = None
        self._turn = partial(_Turn, arena.turn if isinstance(arena, MicroAllocator) else threading.Lock())
        self._invoke_turn = self._turn("invoke")

    def allocate_tensors(self) -> None:
        """Place everything in the arena. To be called once, before anything else; a second call does nothing.

        Raises:
            ArenaExhausted: the arena is too small: what was being placed, bytes requested, available and missing.
            UnresolvedOperator: the resolver does not have an operator of the model.
            OperatorError: an operator can't take its inputs, outputs or options.
            ModelError: the model asks for something that can't be run.

        After an error, the arena is as free as before and may be used for something else.
        """
        if self._allocated is not None:
            return
        with self._turn("allocate_tensors"):
            if isinstance(self._arena, MicroAllocator):
                allocator = self._arena
            else:
                allocator = MicroAllocator(self._arena, self._planner, self._target)
            with allocator.all_or_nothing(), np.errstate(all="ignore"):
                allocated = lay_out(self._model, self._resolver, allocator, self._while_limit)
                allocated.graph.bind_subgraphs(allocated.context, self._profiler)
                allocated.reset()
            self._run = _like_c(BUFFER_ELEMENTS if allocated.has_large_tensors else None).run
            self._invoke_subgraph = allocated.graph.invoke_subgraph
            self._allocated = allocated

    def invoke(self) -> None:
        """Run the model on what its inputs hold.

        An operator that waits for more input (CIRCULAR_BUFFER does) ends it early: what stands after it does not run.

        Raises:
            InterpreterError: `allocate_tensors` has not been called, or another call is under way.
            OperatorError: an operator can't go on.
        """
        if self._allocated is None:
            self._ready("invoke")
        with self._invoke_turn:
            try:
                self._run(self._invoke_subgraph, 0)
            except InvokeAborted:
                return

    def reset(self) -> None:
        """Put variables and the state of operators back to what they were before the first invoke.

        Raises:
            InterpreterError: `allocate_tensors` has not been called, or another call is under way.
        """
        allocated = self._ready("reset")
        with self._turn("reset"):
            allocated.reset()

    def inputs_size(self) -> int:
        """Number of inputs."""
        return len(self._model.subgraphs[0].inputs or ())

    def outputs_size(self) -> int:
        """Number of outputs."""
        return len(self._model.subgraphs[0].outputs or ())

    def input(self, index: int) -> TfLiteTensor:
        """Input `index`, counted from 0; its `data` is a view of the arena to write to.

        Raises:
            InterpreterError: `allocate_tensors` has not been called.
            TensorIndexError: there is no such input.
        """
        return _at(self._ready("input").inputs, index, "input")

    def output(self, index: int) -> TfLiteTensor:
        """Output `index`, counted from 0; its `data` is a view of the arena, overwritten by the next invoke.

        Raises:
            InterpreterError: `allocate_tensors` has not been called.
            TensorIndexError: there is no such output.
        """
        return _at(self._ready("output").outputs, index, "output")

    def get_tensor(self, tensor_index: int, subgraph_index: int = 0) -> TfLiteTensor:
        """Any tensor of the model, as it is after an invoke.

        Raises:
            InterpreterError: the plan lets tensors share memory, so that most of them are overwritten by then.
            TensorIndexError: there is no such tensor.
        """
        allocated = self._ready("get_tensor")
        if not allocated.allocator.planner.preserves_all_tensors:
            raise InterpreterError("get_tensor needs MicroInterpreter(..., preserve_all_tensors=True)")
        subgraph = _at(self._model.subgraphs, subgraph_index, "subgraph")
        eval_tensor = _at(allocated.graph.allocations[subgraph_index].tensors, tensor_index, "tensor")
        return TfLiteTensor((subgraph.tensors or [])[tensor_index], eval_tensor)

    def eval_tensors(self, subgraph_index: int = 0) -> list[TfLiteEvalTensor]:
        """Every tensor of a subgraph with its place in the arena (`offset`, in bytes; None for a constant)."""
        return _at(self._ready("eval_tensors").graph.allocations, subgraph_index, "subgraph").tensors

    def planned_buffers(self) -> list[PlannedBuffer]:
        """Every tensor and scratch buffer in the head: name, offset and size in bytes, first and last use."""
        return list(self._ready("planned_buffers").planned)

    def arena_used_bytes(self) -> int:
        """Bytes of the arena in use, as the same call gives on the target: `head_bytes` and `tail_bytes` together.

        While it allocates, a model may need more for a moment.
        """
        return self._ready("arena_used_bytes").allocator.used_bytes()

    @property
    def head_bytes(self) -> int:
        """Bytes at the start of the arena, which hold the planned tensors and scratch buffers."""
        return self._ready("head_bytes").allocator.head_bytes

    @property
    def tail_bytes(self) -> int:
        """Bytes at the end of the arena, which hold the runtime's own structures and what stays from run to run."""
        return self._ready("tail_bytes").allocator.tail_bytes

    def _ready(self, call: str) -> Layout:
        if self._allocated is None:
            raise InterpreterError(f"{call} needs the model in the arena: call allocate_tensors() first")
        return self._allocated


class _Turn:
    """Holds a lock that must be free: who comes second is refused, not made to wait."""

    def __init__(self, lock: threading.Lock, call: str):
        self._lock, self._call = lock, call

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            raise InterpreterError(
                f"{self._call} while another call is under way in this arena, in another thread or in an operator that "
                "calls back; give each thread an interpreter and an arena of its own"
            )

    def __exit__(self, *error: Any) -> None:
        self._lock.release()


def _like_c(buffer_elements: int | None) -> contextvars.Context:
    """A context in which integers wrap and floats overflow without a word, as they do in C.

    numpy keeps its error state in a context variable: set here once, it costs nothing in each invoke.

    Args:
        buffer_elements: numpy walks through operands that are not contiguous in buffers. By default those have 8192
            elements for each operand, in all more than an invoke is to take for itself.
    """
    context = contextvars.copy_context()
    context.run(np.seterr, all="ignore")
    if buffer_elements is not None:
        context.run(np.setbufsize, buffer_elements)
    return context


@dataclass
class Layout:
    """A model that has its place in the arena, and is not bound yet.

    Attributes:
        planned, steps: what `MicroAllocator.finish_model_allocation` gave.
        inputs, outputs: the tensors that the interpreter shows to its caller.
    """

    allocator: MicroAllocator
    graph: MicroGraph
    context: MicroContext
    resources: MicroResourceVariables | None
    planned: list[PlannedBuffer]
    steps: list[Step]
    inputs: list[TfLiteTensor]
    outputs: list[TfLiteTensor]

    def __post_init__(self) -> None:
        largest = max((buffer.bytes for buffer in self.planned), default=0)
        self.has_large_tensors = largest > BUFFER_ELEMENTS

    def reset(self) -> None:
        """Put variables and the state of operators back to what they were before the first invoke."""
        self.graph.reset_subgraphs(self.context)
        self.graph.reset_variable_tensors()
        if self.resources is not None:
            self.resources.reset_all()


def lay_out(
    model: Model, resolver: MicroMutableOpResolver, allocator: MicroAllocator, while_limit: int | None = None
) -> Layout:
    """Take a model through all that `allocate_tensors` does, up to where its operators could be bound.

    Raises:
        TflmError: as `MicroInterpreter.allocate_tensors`.
    """
    variable_count = count_resource_variables(model)
    resources = MicroResourceVariables(allocator, variable_count) if variable_count else None
    graph = MicroGraph(model, allocator.start_model_allocation(model))
    graph.make_nodes(resolver, allocator)
    context = MicroContext(graph, allocator, resources, while_limit)
    graph.init_subgraphs(context)
    context.state = InterpreterState.PREPARE
    graph.prepare_subgraphs(context, allocator.finish_prepare_node_allocations)
    planned, steps = allocator.finish_model_allocation(model, graph.allocations)
    context.set_scratch_buffer_offsets([buffer.offset for buffer in planned if buffer.kind == "scratch"])
    main = model.subgraphs[0]
    inputs, outputs = (_persistent_tensors(graph, allocator, side or ()) for side in (main.inputs, main.outputs))
    context.state = InterpreterState.INVOKE
    return Layout(allocator, graph, context, resources, planned, steps, inputs, outputs)


def _persistent_tensors(graph: MicroGraph, allocator: MicroAllocator, indices: Sequence[int]) -> list[TfLiteTensor]:
    allocator.allocate_tensor_pointers(len(indices))
    tables, eval_tensors = graph.model.subgraphs[0].tensors or [], graph.allocations[0].tensors
    return [allocator.allocate_persistent_tensor(tables[index], eval_tensors[index]) for index in indices]


Item = TypeVar("Item")


def _at(items: Sequence[Item], index: int, what: str) -> Item:
    if not 0 <= index < len(items):
        raise TensorIndexError(f"{what} {index} is out of range, there are {len(items)} (counted from 0)")
    return items[index]
