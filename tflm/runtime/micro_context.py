"""The context through which kernels call the runtime."""

from __future__ import annotations

from enum import Enum, auto
from typing import Any

import numpy as np
import numpy.typing as npt

from tflm.errors import InterpreterError, OperatorError
from tflm.kernels.host_memory import track_host_array
from tflm.kernels.node import KernelContext, Node, index_of
from tflm.kernels.requests import PersistentBuffer, Reads, Released, TempInput, TempIntermediate, TempOutput, nothing
from tflm.memory.arena import ARENA_ALIGNMENT, Arena
from tflm.memory.tensor import TfLiteEvalTensor, TfLiteTensor
from tflm.releases import Release
from tflm.runtime.micro_allocator import MicroAllocator
from tflm.runtime.micro_graph import MicroGraph
from tflm.runtime.micro_resource_variable import MicroResourceVariables
from tflm.schema.model import Model
from tflm.schema.tables import SubGraph
from tflm.targets import SIZE_T, Target, align_up


class InterpreterState(Enum):
    """The interpreter's phase, which limits what a kernel may request."""

    INIT = auto()
    PREPARE = auto()
    INVOKE = auto()


class MicroContext(KernelContext):
    """The context of kernels; see `tflm.kernels.KernelContext` for its methods.

    Attributes:
        state: the phase; a method called in a wrong phase raises `InterpreterError`.
    """

    def __init__(
        self,
        graph: MicroGraph,
        allocator: MicroAllocator,
        resources: MicroResourceVariables | None,
        while_limit: int | None = None,
        decompression_memory: Arena | None = None,
    ):
        self.state = InterpreterState.INIT
        self._graph = graph
        self._allocator = allocator
        self._resource_variables = resources
        self._while_limit = while_limit
        self._scratch_sizes: list[int] = []
        self._scratch_offsets: list[int] = []
        self._displaced_scratch: dict[int, npt.NDArray[np.uint8]] = {}
        self._decompression_memory = decompression_memory
        self._decompression_bytes = 0
        if decompression_memory is not None:
            size = SIZE_T.size(allocator.target)
            allocator.allocate_persistent_buffer(size, "how much of the alternate decompression memory is taken")

    @property
    def target(self) -> Target:
        return self._allocator.target

    @property
    def release(self) -> Release:
        return self._allocator.kernels.release

    @property
    def model(self) -> Model:
        return self._graph.model

    @property
    def subgraph(self) -> SubGraph:
        return self._graph.model.subgraphs[self._graph.subgraph_index]

    def set_scratch_buffer_offsets(self, offsets: list[int]) -> None:
        """Set the planned offsets of the scratch buffers, in the order of their requests."""
        self._scratch_offsets = offsets

    def displace_scratch_buffer(self, handle: int) -> None:
        """Move a scratch buffer from the arena to host memory."""
        self._displaced_scratch[handle] = track_host_array(np.zeros(self._scratch_sizes[handle], np.uint8))

    def allocate_persistent_buffer(self, size: int) -> npt.NDArray[np.uint8]:
        return self._persistent_buffer(size, None)

    def reset_decompression_memory_allocations(self) -> None:
        self._decompression_bytes = 0

    def allocate_decompression_memory(self, size: int) -> npt.NDArray[np.uint8] | None:
        self._require("decompression memory", InterpreterState.PREPARE)
        start = align_up(self._decompression_bytes, ARENA_ALIGNMENT)
        end = start + size
        if self._decompression_memory is None or end > self._decompression_memory.size:
            return None
        self._decompression_bytes = end
        return self._decompression_memory.view(start, np.uint8, (size,))

    def allocate_array(self, count: int, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        return self.allocate_persistent_buffer(count * np.dtype(dtype).itemsize).view(dtype)

    def request_scratch_buffer_in_arena(self, size: int) -> int:
        self._require("scratch memory", InterpreterState.PREPARE)
        _require_size("scratch memory", size)
        self._scratch_sizes.append(size)
        return self._allocator.request_scratch_buffer_in_arena(size, self._graph.subgraph_index)

    def allocate_requested(self, node: Node) -> None:
        requests, node.pending = node.pending, nothing
        for request in requests(node):
            if isinstance(request, TempInput):
                self._reserve_temp_tensor(index_of(node.inputs, request.place, "input"))
            elif isinstance(request, TempOutput):
                self._reserve_temp_tensor(index_of(node.outputs, request.place, "output"))
            elif isinstance(request, TempIntermediate):
                self._reserve_temp_tensor(index_of(node.intermediates, request.place, "intermediate tensor"))
            elif isinstance(request, Released):
                tensors = node.inputs if isinstance(request.temp, TempInput) else node.outputs
                self._allocator.release_temp_tensor((self.subgraph.tensors or [])[tensors[request.temp.place]])
            elif isinstance(request, PersistentBuffer):
                node.persistent[request.name] = self._persistent_buffer(request.bytes, request.reads)
            else:
                node.scratch[request.name] = self.request_scratch_buffer_in_arena(request.bytes)

    def allocate_temp_input_tensor(self, node: Node, index: int) -> TfLiteTensor:
        return self._temp_tensor(index_of(node.inputs, index, "input"))

    def allocate_temp_output_tensor(self, node: Node, index: int) -> TfLiteTensor:
        return self._temp_tensor(index_of(node.outputs, index, "output"))

    def allocate_temp_intermediate_tensor(self, node: Node, index: int) -> TfLiteTensor:
        return self._temp_tensor(index_of(node.intermediates, index, "intermediate tensor"))

    def find_or_create_resource(self, container: str, shared_name: str) -> int:
        return self._resources.find_or_create(container, shared_name)

    def allocate_resource(self, resource_id: int, value: TfLiteTensor) -> None:
        self._require("persistent memory", InterpreterState.PREPARE)
        self._resources.allocate(resource_id, value)

    def get_resource(self, resource_id: int) -> npt.NDArray[np.uint8]:
        return self._resources.data(resource_id)

    def subgraph_inputs(self, index: int) -> list[TfLiteEvalTensor]:
        return [self._graph.allocations[index].tensors[i] for i in self.model.subgraphs[index].inputs or ()]

    def subgraph_outputs(self, index: int) -> list[TfLiteEvalTensor]:
        return [self._graph.allocations[index].tensors[i] for i in self.model.subgraphs[index].outputs or ()]

    @property
    def while_limit(self) -> int | None:
        return self._while_limit

    def invoke_subgraph(self, index: int) -> None:
        self._graph.invoke_subgraph(index)

    def get_scratch_buffer(self, handle: int) -> npt.NDArray[np.uint8]:
        self._require("the address of scratch memory", InterpreterState.INVOKE)
        if handle in self._displaced_scratch:
            return self._displaced_scratch[handle]
        return self._allocator.head_view(self._scratch_offsets[handle], self._scratch_sizes[handle])

    @property
    def _resources(self) -> MicroResourceVariables:
        if self._resource_variables is None:
            raise OperatorError("needs resource variables, but the interpreter has none")
        return self._resource_variables

    def _persistent_buffer(self, size: int, reads: Reads | None) -> npt.NDArray[np.uint8]:
        self._require("persistent memory", InterpreterState.INIT, InterpreterState.PREPARE)
        _require_size("persistent memory", size)
        return self._allocator.allocate_persistent_buffer(size, f"what {self._operator} keeps", reads)

    def _temp_tensor(self, index: int) -> TfLiteTensor:
        self._reserve_temp_tensor(index)
        return self._tensor(index)

    def _reserve_temp_tensor(self, index: int) -> None:
        self._require("a tensor in temp memory", InterpreterState.PREPARE)
        what = f"tensor {self._eval_tensor(index).name!r} while {self._operator} prepares"
        self._allocator.allocate_temp_tensor((self.subgraph.tensors or [])[index], what)

    def _tensor(self, index: int) -> TfLiteTensor:
        return TfLiteTensor((self.subgraph.tensors or [])[index], self._eval_tensor(index))

    @property
    def _operator(self) -> str:
        node = self._graph.node
        return "an operator" if node is None else f"operator {node.index} {node.operator}"

    def _eval_tensor(self, index: int) -> TfLiteEvalTensor:
        return self._graph.allocations[self._graph.subgraph_index].tensors[index]

    def _require(self, what: str, *states: InterpreterState) -> None:
        if self.state not in states:
            allowed = " or ".join(state.name.lower() for state in states)
            raise InterpreterError(f"a kernel can request {what} only during {allowed}, not {self.state.name.lower()}")


def _require_size(what: str, size: int) -> None:
    if size < 0:
        raise OperatorError(f"requests {size} bytes of {what}; must be 0 or more")
