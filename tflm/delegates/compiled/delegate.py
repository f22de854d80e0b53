"""The engine as a delegate."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from tflm.delegates.compiled.bindings import bind_steps, has_kernels
from tflm.delegates.compiled.program import Operator, Segment, bind_program
from tflm.errors import OperatorError
from tflm.kernels.node import KernelContext, Node
from tflm.kernels.registration import HIGHEST_VERSION, LOWEST_VERSION, Registration, Run
from tflm.runtime.delegate import Delegate, DelegateContext
from tflm.runtime.execution_plan import DelegateParams, StandaloneRun
from tflm.runtime.micro_graph import bind_node


class Compiled(Delegate):
    """Runs operators with compiled kernels, combining consecutive ones. Needs the extra `fast`.

    Integer results equal those of the numpy kernels bit for bit. Operators without a suitable compiled kernel run with
    numpy. With a profiler, each operator is a separate node, so that it can be timed.

    Args:
        compiles: whether to compile kernels that are not in the cache; if not, numpy runs their operators.
    """

    runs_in_order = True

    def __init__(self, compiles: bool = True):
        self.compiles = compiles

    def prepare(self, context: DelegateContext) -> None:
        nodes = ((index, context.node_and_registration(index)[1]) for index in context.execution_plan())
        taken = [index for index, registration in nodes if has_kernels(registration)]
        bind = partial(_bind, context.subgraph_index, self.compiles)
        registration = Registration(self.name, bind, min_version=LOWEST_VERSION, max_version=HIGHEST_VERSION)
        for subset in [[index] for index in taken] if context.is_profiled else [taken]:
            context.replace_node_subsets_with_delegate_kernels(registration, subset)

    def standalone(self, run: Run) -> StandaloneRun | None:
        segment = getattr(run, "__self__", None)
        return StandaloneRun(segment.start, segment.finish) if isinstance(segment, Segment) else None


def _bind(subgraph_index: int, compiles: bool, context: KernelContext, node: Node) -> Run:
    params: DelegateParams = node.op_data
    return bind_program([_operator(subgraph_index, context, *of) for of in params.replaced], compiles)


def _operator(subgraph_index: int, context: KernelContext, node: Node, registration: Registration) -> Operator:
    """Returns the compiled form of a node; errors name the node."""

    def bind_numpy() -> Run:
        with _located(subgraph_index, node):
            run = bind_node(context, node, registration)

        def run_located() -> None:
            with _located(subgraph_index, node):
                run()

        return run_located

    with _located(subgraph_index, node):
        return Operator(bind_steps(context, node, registration), bind_numpy)


@contextmanager
def _located(subgraph_index: int, node: Node) -> Iterator[None]:
    try:
        yield
    except OperatorError as error:
        error.locate(subgraph_index, node.index, node.operator)
        raise
