"""Runs a model inside one fixed arena."""

from __future__ import annotations

import contextvars
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import numpy as np

from tflm.errors import ArgumentError, InterpreterError, TensorIndexError
from tflm.hooks import default_delegates
from tflm.kernels.host_memory import HostMemory, track_host_array
from tflm.kernels.node import InvokeAborted
from tflm.libraries import Kernels, library_for
from tflm.libraries.kernel_library import require_safe_plan
from tflm.memory.arena import Arena
from tflm.memory.buffer import Buffer
from tflm.memory.lifetimes import InvocationStep
from tflm.memory.planner import preserves_all_tensors
from tflm.memory.tensor import TfLiteEvalTensor, TfLiteTensor
from tflm.releases import Releases
from tflm.runtime.delegate import Delegate
from tflm.runtime.execution_plan import PlannedNode
from tflm.runtime.host_placement import displaced_buffers
from tflm.runtime.micro_allocator import MicroAllocator, Planner, require_planner
from tflm.runtime.micro_context import InterpreterState, MicroContext
from tflm.runtime.micro_graph import MicroGraph
from tflm.runtime.micro_op_resolver import MicroMutableOpResolver, require_resolver
from tflm.runtime.micro_profiler import MicroProfilerInterface, require_profiler
from tflm.runtime.micro_resource_variable import MicroResourceVariables, count_resource_variables
from tflm.runtime.reentrancy_guard import ReentrancyGuard
from tflm.schema.model import Model, require_model
from tflm.targets import HOST, Target, require_target

BUFFER_ELEMENTS = 1024
"""Elements of each buffer of numpy's iterators."""


class MicroInterpreter:
    """Places everything a model needs in the arena, once, and then runs it without allocating.

    Args:
        model: the model.
        resolver: the available operators.
        arena: a writable buffer that holds everything the model gets; or a `MicroAllocator`, to put several models
            one after the other into the same arena.
        target: the target or its name, such as "cortex-m4", which determines the arena's layout, not the results.
        kernels: the firmware's kernel library, or its name: "reference", "cmsis-nn", "cmsis-nn:size", "esp-nn",
            "arduino"; see `tflm.libraries`. The arena's layout is that library's, and known differences of its results
            are reproduced.
        planner: "greedy", "linear", "tflite", a list of offsets, or a planner object; see `MicroAllocator`.
        profiler: called at the start and end of every operator, which the compiled engine then runs singly; or None.
        preserve_all_tensors: give every tensor separate memory, so that `get_tensor` can read it afterwards. This
            ignores the model's memory plan with the warning `PlanIgnored`.
        while_limit: the most iterations of a WHILE before it fails with an `OperatorError`; None for no limit.
        decompression_memory: a writable buffer outside the arena for outputs of DECODE that fit; each DECODE overwrites
            those of the previous one.
        delegates: which may claim parts of the graph, in this order; see `tflm.delegates`. None for the default ones;
            with `decompression_memory` there are none by default.
        release: the firmware's TFLM release, or its name: a commit, a day, or a distribution such as
            "esp-tflite-micro 1.3.3"; see `tflm.releases.by_name`. None for that of the kernel library, or the one that
            this package follows.

    Raises:
        ArgumentError: an argument is invalid, such as a path instead of a model.
        ArenaError: the buffer is read-only, or otherwise can't be an arena.
        InterpreterError: the `while_limit` is not a non-negative number.

    `target`, `kernels`, `release`, `planner` and `preserve_all_tensors` are those of the allocator, if one is passed.

    An interpreter is for one thread at a time: `allocate_tensors`, `invoke` and `reset` raise `InterpreterError` while
    one of them is in progress, in another thread or in an operator that calls back. This includes all interpreters that
    share a `MicroAllocator`; interpreters with their own arenas are independent.

    Any exception of an operator or a signal handler is passed on, and every call is allowed afterwards. Outputs may be
    partly written until the next successful `invoke`, variables and the state of operators until `reset`.
    """

    def __init__(
        self,
        model: Model,
        resolver: MicroMutableOpResolver,
        arena: Any,
        *,
        target: Target | str = HOST,
        kernels: Kernels = "reference",
        planner: Planner = "greedy",
        profiler: MicroProfilerInterface | None = None,
        preserve_all_tensors: bool = False,
        while_limit: int | None = None,
        decompression_memory: Any = None,
        delegates: Sequence[Delegate] | None = None,
        release: Releases | None = None,
    ):
        if while_limit is not None and (not isinstance(while_limit, int) or while_limit < 0):
            raise InterpreterError(f"invalid while_limit {while_limit!r} (expected a number of iterations, or None)")
        self._model = require_model(model)
        self._resolver = require_resolver(resolver)
        self._arena = arena if isinstance(arena, MicroAllocator) else Arena(arena)
        self._target = require_target(target)
        is_allocator = isinstance(arena, MicroAllocator)
        self._kernels = arena.kernels if is_allocator else library_for(kernels, self._target, release)
        self._planner = "linear" if preserve_all_tensors else require_planner(planner)
        self._profiler = require_profiler(profiler)
        self._while_limit = while_limit
        self._decompression_memory = None if decompression_memory is None else Arena(decompression_memory)
        # DECODEs share this memory one after the other, so the order of operators must not change.
        if delegates is None:
            delegates = default_delegates(model) if decompression_memory is None else ()
        self._delegates = list(delegates)
        self._graph: MicroGraph | None = None
        self._allocated: Layout | None = None
        self._host_bytes = 0
        self._guard = arena.turn if isinstance(arena, MicroAllocator) else ReentrancyGuard()
        self._start: Callable[[], int] | None = None
        self._finish: Callable[[int], None]
        self._run: Callable[[], Any] | None = None

    def __repr__(self) -> str:
        place = "not allocated yet" if self._allocated is None else f"{self.arena_used_bytes()} bytes of the arena used"
        return f"MicroInterpreter({self._model!r}, target {self._target.name}, {place})"

    def __del__(self) -> None:
        # Break the reference cycle between the graph and operators that run subgraphs, to free memory at once.
        allocated = getattr(self, "_allocated", None)
        if allocated is not None:
            allocated.graph.release(allocated.context)

    def modify_graph_with_delegate(self, delegate: Delegate) -> None:
        """Let a delegate claim nodes that earlier delegates left.

        Raises:
            InterpreterError: the model is in the arena already, or another call is in progress.
            DelegateError: the delegate claims nodes that it cannot have; or any other exception that its `prepare`
                raises. Nothing is changed then.
        """
        if self._allocated is not None:
            raise InterpreterError("a delegate can change the graph only before allocate_tensors()")
        self._guard.acquire("modify_graph_with_delegate")
        try:
            graph, self._graph = self._current_graph(), None
            graph.modify_with_delegate(delegate)
            self._delegates.append(delegate)
            self._graph = graph
        finally:
            self._guard.release()

    def execution_plan(self, subgraph_index: int = 0) -> list[PlannedNode]:
        """The nodes of a subgraph in the order in which they run, each with its `operators` and its `delegate`.

        Raises:
            TensorIndexError: there is no such subgraph.
            DelegateError: before `allocate_tensors`, as that.
        """
        return list(_at(self._current_graph().plans, subgraph_index, "subgraph").running)

    def allocate_tensors(self) -> None:
        """Place everything in the arena. Call this once, before any other method; a second call is a no-op.

        Raises:
            ArenaExhausted: the arena is too small; has the allocation's purpose and the requested, available and
                missing bytes.
            UnresolvedOperator: the resolver lacks an operator of the model.
            OperatorError: an operator rejects its inputs, outputs or options.
            ModelError: the model cannot be run, or has a memory plan that gives wrong answers with these kernels.

        After an error, the arena is unused again. Warns `ArenaShared` if another interpreter uses bytes of the arena;
        to share one, pass the same `MicroAllocator` to both.
        """
        if self._is_allocated():
            return
        self._guard.acquire("allocate_tensors")
        try:
            if not self._is_allocated():  # by another thread, since the first check
                contextvars.copy_context().run(self._allocate)  # which settings of numpy do not outlive
        finally:
            self._guard.release()
        assert self._allocated is not None
        self._allocated.allocator.register_memory(self)

    def _allocate(self) -> None:
        if isinstance(self._arena, MicroAllocator):
            allocator = self._arena
        else:
            allocator = MicroAllocator(self._arena, self._planner, self._target, kernels=self._kernels)
        if not preserves_all_tensors(allocator.planner):
            require_safe_plan(self._kernels, allocator.target, self._model)
        host_memory = HostMemory(allocator.arena_bytes, len(self._model.data))
        with allocator.all_or_nothing(self._is_allocated), np.errstate(all="ignore"), host_memory.open():
            graph, self._graph = self._current_graph(), None
            allocated = lay_out(graph, allocator, self._while_limit, self._decompression_memory)
            try:
                graph.prepare_host_delegates(allocated.context)
                graph.bind_subgraphs(allocated.context, self._profiler)
                allocated.reset()
                self._host_bytes = host_memory.bytes
                self._allocated = allocated
            except BaseException:
                if not self._is_allocated():
                    graph.release(allocated.context)
                raise
        self._choose_run(allocated)

    def _choose_run(self, allocated: Layout) -> None:
        """Set what `invoke` calls; again once the delegates have finished what they do in the background."""
        graph, standalone = allocated.graph, allocated.graph.standalone_run(self._guard.frames)
        like_c = _like_c(BUFFER_ELEMENTS if allocated.has_large_tensors else None)
        if standalone is not None:
            self._finish = partial(like_c, standalone.finish)
            self._start = standalone.start
            return
        calls = (graph.invoke_subgraph, 0) if graph.is_final else (graph.invoke_unfinished,)
        self._run = partial(like_c, *calls)

    def _run_guarded(self) -> None:
        """Invoke the model unless another call is in progress."""
        self._guard.acquire("invoke")
        try:
            allocated = self._ready("invoke")
            if self._run is None:  # an interrupt ended `allocate_tensors` at its end
                self._run = partial(_like_c(BUFFER_ELEMENTS), allocated.graph.invoke_unfinished)
            if self._run():
                self._choose_run(allocated)
        except InvokeAborted:
            return
        finally:
            self._guard.release()

    def _continue(self, status: int) -> None:
        """Finish a standalone run that returned this status."""
        while status < 0:
            self._guard.forget_ended("invoke")
            assert self._start is not None
            status = self._start()
        if not status:
            return
        try:
            self._finish(status)
        except InvokeAborted:
            return
        finally:
            self._guard.release()

    def _current_graph(self) -> MicroGraph:
        """The graph in the arena, or the one to be placed there."""
        if self._allocated is not None:
            return self._allocated.graph
        if self._graph is None:
            is_profiled = self._profiler is not None
            self._graph = MicroGraph(self._model, self._resolver, self._delegates, self._kernels, is_profiled)
        return self._graph

    def _is_allocated(self) -> bool:
        return self._allocated is not None

    def invoke(self) -> None:
        """Run the model on its current inputs.

        An operator that waits for more input, such as CIRCULAR_BUFFER, ends it early: later operators do not run.

        Raises:
            InterpreterError: `allocate_tensors` was not called, or another call is in progress.
            OperatorError: an operator fails.
        """
        if self._start is None:
            self._run_guarded()
            return
        status = self._start()
        if status:
            self._continue(status)

    def reset(self) -> None:
        """Restore variables and the state of operators to what they were before the first invoke.

        Raises:
            InterpreterError: `allocate_tensors` was not called, or another call is in progress.
        """
        allocated = self._ready("reset")
        self._guard.acquire("reset")
        try:
            allocated.reset()
        finally:
            self._guard.release()

    def inputs_size(self) -> int:
        """Number of inputs."""
        return len(self._model.subgraphs[0].inputs or ())

    def outputs_size(self) -> int:
        """Number of outputs."""
        return len(self._model.subgraphs[0].outputs or ())

    def input(self, index: int) -> TfLiteTensor:
        """Input `index`, counted from 0; its `data` is a view of the arena to write to.

        Raises:
            InterpreterError: `allocate_tensors` was not called.
            TensorIndexError: there is no such input.
        """
        return _at(self._ready("input").inputs, index, "input")

    def output(self, index: int) -> TfLiteTensor:
        """Output `index`, counted from 0; its `data` is a view of the arena, overwritten by the next invoke.

        Raises:
            InterpreterError: `allocate_tensors` was not called.
            TensorIndexError: there is no such output.
        """
        return _at(self._ready("output").outputs, index, "output")

    def get_tensor(self, tensor_index: int, subgraph_index: int = 0) -> TfLiteTensor:
        """Any tensor of the model, after an invoke.

        Raises:
            InterpreterError: tensors share memory, so most of them are already overwritten.
            TensorIndexError: there is no such tensor.
        """
        allocated = self._ready("get_tensor")
        if not preserves_all_tensors(allocated.allocator.planner):
            raise InterpreterError("get_tensor needs MicroInterpreter(..., preserve_all_tensors=True)")
        subgraph = _at(self._model.subgraphs, subgraph_index, "subgraph")
        eval_tensor = _at(allocated.graph.allocations[subgraph_index].tensors, tensor_index, "tensor")
        return TfLiteTensor((subgraph.tensors or [])[tensor_index], eval_tensor)

    def eval_tensors(self, subgraph_index: int = 0) -> list[TfLiteEvalTensor]:
        """Every tensor of a subgraph with its place in the arena (`offset`, in bytes; None for a constant)."""
        return _at(self._ready("eval_tensors").graph.allocations, subgraph_index, "subgraph").tensors

    def planned_buffers(self) -> list[Buffer]:
        """Every tensor and scratch buffer in the head: name, offset and size in bytes, first and last use."""
        return list(self._ready("planned_buffers").planned)

    def arena_used_bytes(self) -> int:
        """Bytes of the arena in use, as this method returns on the target: `head_bytes` plus `tail_bytes`.

        A model may temporarily need more during allocation.
        """
        return self._ready("arena_used_bytes").allocator.used_bytes()

    def host_bytes(self) -> int:
        """Bytes of the host's own memory that operators keep outside the arena, such as float weights and tables.

        They do not exist on a device. `allocate_tensors` allocates them once, and rejects a model that needs more than
        64 times the size of arena and file plus 64 MiB. Memory of custom operators is not counted.
        """
        self._ready("host_bytes")
        return self._host_bytes

    @property
    def head_bytes(self) -> int:
        """Bytes at the start of the arena, which hold the planned tensors and scratch buffers."""
        return self._ready("head_bytes").allocator.head_bytes

    @property
    def tail_bytes(self) -> int:
        """Bytes at the end of the arena, which hold the runtime's own structures and persistent data."""
        return self._ready("tail_bytes").allocator.tail_bytes

    def _ready(self, call: str) -> Layout:
        if self._allocated is None:
            raise InterpreterError(f"{call} needs the model in the arena: call allocate_tensors() first")
        return self._allocated


def _like_c(buffer_elements: int | None) -> Callable[..., None]:
    """Return a runner of functions in which integers wrap and floats overflow silently, as in C.

    numpy keeps its error state in a context variable; setting it once here costs nothing per invoke.

    Args:
        buffer_elements: size of numpy's buffers for operands that are not contiguous. The default of 8192 elements per
            operand exceeds the memory limit of an invoke.
    """
    context = contextvars.copy_context()
    context.run(np.seterr, all="ignore")
    if buffer_elements is not None:
        context.run(np.setbufsize, buffer_elements)
    return context.run


@dataclass
class Layout:
    """A model placed in the arena, but not bound yet.

    Attributes:
        planned, steps: the result of `MicroAllocator.finish_model_allocation`.
        inputs, outputs: the tensors that the interpreter shows to its caller.
    """

    allocator: MicroAllocator
    graph: MicroGraph
    context: MicroContext
    resources: MicroResourceVariables | None
    planned: list[Buffer]
    steps: list[InvocationStep]
    inputs: list[TfLiteTensor]
    outputs: list[TfLiteTensor]

    def __post_init__(self) -> None:
        largest = max((buffer.size for buffer in self.planned), default=0)
        self.has_large_tensors = largest > BUFFER_ELEMENTS

    def reset(self) -> None:
        """Restore variables and the state of operators to what they were before the first invoke."""
        self.graph.reset_subgraphs(self.context)
        self.graph.reset_variable_tensors()
        if self.resources is not None:
            self.resources.reset_all()


def lay_out(
    graph: MicroGraph,
    allocator: MicroAllocator,
    while_limit: int | None = None,
    decompression_memory: Arena | None = None,
    resource_variables: int | None = None,
) -> Layout:
    """Lay a model out as `allocate_tensors` does, without binding its operators.

    Args:
        graph: a graph that was never laid out before.
        resource_variables: capacity for resource variables; None for the number in the model.

    Raises:
        TflmError: as `MicroInterpreter.allocate_tensors`.
    """
    model = graph.model
    variable_count = count_resource_variables(model) if resource_variables is None else resource_variables
    resources = MicroResourceVariables(allocator, variable_count) if variable_count else None
    context = MicroContext(graph, allocator, resources, while_limit, decompression_memory)
    try:
        graph.place(allocator)
        graph.init_subgraphs(context)
        context.state = InterpreterState.PREPARE
        graph.prepare_subgraphs(context, allocator.finish_prepare_node_allocations)
        planned, steps = allocator.finish_model_allocation(model, graph.allocations)
        context.set_scratch_buffer_offsets([buffer.offset for buffer in planned if buffer.kind == "scratch"])
        _displace(graph, context, planned, steps)
        main = model.subgraphs[0]
        inputs, outputs = (_persistent_tensors(graph, allocator, side or ()) for side in (main.inputs, main.outputs))
    except BaseException:
        graph.release(context)
        raise
    context.state = InterpreterState.INVOKE
    return Layout(allocator, graph, context, resources, planned, steps, inputs, outputs)


def _displace(
    graph: MicroGraph, context: MicroContext, planned: Sequence[Buffer], steps: Sequence[InvocationStep]
) -> None:
    """Move buffers that would overlap in the host's order of execution out of the arena."""
    tensors = [tensor for allocation in graph.allocations for tensor in allocation.tensors]
    tensor_count = sum(buffer.tensor is not None for buffer in planned)
    by_subgraph = [allocation.tensors for allocation in graph.allocations]
    for i in displaced_buffers(graph.model, graph.plans, by_subgraph, planned, steps):
        index = planned[i].tensor
        if index is None:
            context.displace_scratch_buffer(i - tensor_count)
        else:
            tensor = tensors[index]
            tensor.data = track_host_array(np.zeros(tensor.elements.shape, tensor.elements.dtype))


def _persistent_tensors(graph: MicroGraph, allocator: MicroAllocator, indices: Sequence[int]) -> list[TfLiteTensor]:
    allocator.allocate_tensor_pointers(len(indices))
    tables, eval_tensors = graph.model.subgraphs[0].tensors or [], graph.allocations[0].tensors
    return [allocator.allocate_persistent_tensor(tables[index], eval_tensors[index]) for index in indices]


Item = TypeVar("Item")


def _at(items: Sequence[Item], index: int, what: str) -> Item:
    if not isinstance(index, (int, np.integer)):
        raise ArgumentError(f"{what} needs an integer index, counted from 0, not {index!r}")
    if not 0 <= index < len(items):
        raise TensorIndexError(f"{what} {index} is out of range, there are {len(items)} (counted from 0)")
    return items[index]
