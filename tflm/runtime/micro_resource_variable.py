"""Resource variables: buffers in the tail that operators find by name."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tflm.errors import OperatorError
from tflm.kernels.requests import Reads
from tflm.memory.tensor import TfLiteTensor
from tflm.runtime.micro_allocator import MicroAllocator
from tflm.schema.model import Model
from tflm.schema.tables import variable_of
from tflm.targets import INT, INT8, POINTER, SIZE_T, Since, Struct

MICRO_RESOURCE_VARIABLES = Struct(
    "MicroResourceVariables", resource_variables=POINTER, max_variable_count=INT, num_resource_variables=INT
)
MICRO_RESOURCE_VARIABLE = Struct(
    "MicroResourceVariables::MicroResourceVariable",
    container=POINTER,
    shared_name=POINTER,
    resource_buffer=POINTER,
    bytes=SIZE_T,
    default_value=Since("808ddbf75", INT8),
)


@dataclass
class ResourceVariable:
    """A variable: its names, its bytes once it has a size, and the initial value of its bytes."""

    container: str
    shared_name: str
    data: npt.NDArray[np.uint8] | None = None
    default_value: int = 0


class MicroResourceVariables:
    """The resource variables of one interpreter.

    Args:
        allocator: reserves their records, before the model's own allocation.
        capacity: maximum number of variables.
    """

    def __init__(self, allocator: MicroAllocator, capacity: int):
        self._allocator = allocator
        self._capacity = capacity
        self._variables: list[ResourceVariable] = []
        for struct, count in ((MICRO_RESOURCE_VARIABLES, 1), (MICRO_RESOURCE_VARIABLE, capacity)):
            size, _ = allocator.kernels.layout(struct, allocator.target)
            allocator.allocate_persistent_buffer(count * size, struct.name)

    def find_or_create(self, container: str, shared_name: str) -> int:
        """The id of the variable with this name, which is created if necessary.

        Raises:
            OperatorError: the capacity is exhausted.
        """
        for resource_id, variable in enumerate(self._variables):
            if (variable.container, variable.shared_name) == (container, shared_name):
                return resource_id
        if len(self._variables) == self._capacity:
            raise OperatorError(f"there is no room for variable {shared_name!r}, only for {self._capacity}")
        self._variables.append(ResourceVariable(container, shared_name))
        return len(self._variables) - 1

    def allocate(self, resource_id: int, value: TfLiteTensor) -> None:
        """Give a variable the size of `value`, unless it already has one."""
        variable = self._variable(resource_id)
        if variable.data is None:
            variable.data = self._allocator.allocate_persistent_buffer(
                value.bytes, f"resource variable {variable.shared_name!r}", Reads.NOTHING
            )
            variable.default_value = value.zero_point & 0xFF
            variable.data[:] = variable.default_value

    def data(self, resource_id: int) -> npt.NDArray[np.uint8]:
        """The bytes of a variable.

        Raises:
            OperatorError: the variable does not exist, or is never assigned.
        """
        variable = self._variable(resource_id)
        if variable.data is None:
            raise OperatorError(f"variable {variable.shared_name!r} is used, but nothing is ever assigned to it")
        return variable.data

    def reset_all(self) -> None:
        """Restore the initial value of every variable."""
        for variable in self._variables:
            if variable.data is not None:
                variable.data[:] = variable.default_value

    def _variable(self, resource_id: int) -> ResourceVariable:
        if not 0 <= resource_id < len(self._variables):
            raise OperatorError(f"there is no resource variable {resource_id}, only {len(self._variables)}")
        return self._variables[resource_id]


def count_resource_variables(model: Model) -> int:
    """Number of resource variables in a model."""
    variables = {variable_of(operator) for subgraph in model.subgraphs for operator in subgraph.operators or ()}
    return len(variables - {None})
