"""The compiled engine as a delegate."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from types import FrameType

from tflm.compiler.language import Kernel
from tflm.compiler.processor import Profile
from tflm.delegates.compiled.bands import shared_by, threads
from tflm.delegates.compiled.bindings import bind_steps, has_kernels, is_interchangeable
from tflm.delegates.compiled.movement import in_vectors
from tflm.delegates.compiled.program import (
    Operator,
    Segment,
    UnfinishedProgram,
    bind_cached,
    bind_program,
    bind_unfinished,
)
from tflm.errors import ArgumentError, OperatorError
from tflm.kernels.node import KernelContext, Node
from tflm.kernels.registration import HIGHEST_VERSION, LOWEST_VERSION, Registration, Run
from tflm.runtime.delegate import Delegate, DelegateContext
from tflm.runtime.execution_plan import DelegateParams, StandaloneRun
from tflm.runtime.micro_graph import bind_node

MAX_THREADS = 64


class Compiled(Delegate):
    """Runs operators with compiled kernels, combining consecutive ones. Needs the extra `fast`.

    Integer results equal those of the numpy kernels bit for bit. Operators without a suitable compiled kernel run with
    numpy. With a profiler, each operator is a separate node, so that it can be timed.

    Args:
        compiles: whether to compile kernels that are not in the cache. If not, numpy runs their operators, and all
            operators that compute with floats, so that results do not depend on the cache.
        in_background: whether to compile while the model already runs. Until the kernels of an operator are compiled,
            numpy runs it if the result is the same bit for bit: operators on integers, and those that only move
            elements. `allocate_tensors` waits for the kernels of other operators, which compute with floats.
        threads: number of threads that share large operators, including the one that invokes. Workers are started on
            first use, and keep a core busy each while a model runs. Results do not change.

    Attributes:
        kernels: the kernels of all models allocated with the delegate, by name, compiled or not.

    Raises:
        ArgumentError: `threads` is not from 1 to `MAX_THREADS`.
    """

    runs_in_order = True

    def __init__(self, compiles: bool = True, *, in_background: bool = False, threads: int = 1):
        if not 1 <= threads <= MAX_THREADS:
            raise ArgumentError(f"threads is {threads}, must be from 1 to {MAX_THREADS}")
        self.compiles = compiles
        self.in_background = in_background
        self.threads = threads
        self.kernels: dict[str, Kernel] = {}

    def prepare(self, context: DelegateContext) -> None:
        nodes = ((index, context.node_and_registration(index)[1]) for index in context.execution_plan())
        taken = [index for index, registration in nodes if has_kernels(registration)]
        bind = partial(self._bind, context.subgraph_index)
        registration = Registration(self.name, bind, min_version=LOWEST_VERSION, max_version=HIGHEST_VERSION)
        for subset in [[index] for index in taken] if context.is_profiled else [taken]:
            context.replace_node_subsets_with_delegate_kernels(registration, subset)

    def standalone(self, run: Run, guard: list[FrameType]) -> StandaloneRun | None:
        segment = getattr(_final(run), "__self__", None)
        if not isinstance(segment, Segment):
            return None
        start = segment.guarded_start(guard)
        return None if start is None else StandaloneRun(start, segment.finish)

    def is_final(self, run: Run) -> bool:
        return _final(run) is not None

    def _bind(self, subgraph_index: int, context: KernelContext, node: Node) -> Run:
        params: DelegateParams = node.op_data
        with shared_by(self.threads):
            operators = [_operator(subgraph_index, context, *replaced) for replaced in params.replaced]
        self.kernels.update((kernel.name, kernel) for operator in operators for kernel in operator.kernels)
        if not self.compiles:
            return bind_cached(operators)
        return bind_unfinished(operators) if self.in_background else bind_program(operators)


def _final(run: Run) -> Run | None:
    """Return the function that runs a node from now on; None while its kernels are compiled in the background."""
    owner = getattr(run, "__self__", None)
    return owner.final if isinstance(owner, UnfinishedProgram) else run


def _operator(subgraph_index: int, context: KernelContext, node: Node, registration: Registration) -> Operator:
    """Return the compiled form of a node; errors name the node."""

    def bind_numpy() -> Run:
        with _located(subgraph_index, node):
            run = bind_node(context, node, registration)

        def run_located() -> None:
            with _located(subgraph_index, node):
                run()

        return run_located

    with _located(subgraph_index, node):
        profile = Profile.of_engine()
        steps = bind_steps(context, node, registration, profile)
        if steps is not None and profile.has_tiles:
            steps = [*map(in_vectors, steps)]
        return Operator(steps, bind_numpy, is_interchangeable(node, registration), threads())


@contextmanager
def _located(subgraph_index: int, node: Node) -> Iterator[None]:
    try:
        yield
    except OperatorError as error:
        error.locate(subgraph_index, node.index, node.operator)
        raise
