"""Accelerators whose work a model carries in custom operators: a command stream or a program, run by a driver.

`ethos-u` is Vela's for Arm's NPUs, `edgetpu-custom-op` the Edge TPU compiler's. Their arena can be measured without a
driver, which is needed only to run them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tflm.errors import OperatorError
from tflm.kernels.node import KernelContext, Node
from tflm.kernels.registration import HIGHEST_VERSION, LOWEST_VERSION, Registration, Run
from tflm.memory.tensor import TfLiteEvalTensor
from tflm.runtime.delegate import Delegate, DelegateContext, bind_replaced

Bytes = npt.NDArray[np.uint8]

OPERATORS = ("edgetpu-custom-op", "ethos-u")
"""The operators that a driver can run."""


@dataclass(frozen=True)
class DriverCall:
    """A call of a driver.

    Attributes:
        operator: the name of the operator.
        custom_options: its bytes in the model; the program, for an Edge TPU.
        inputs, outputs: the memory of its tensors as bytes, views and not copies; constants are read-only. The first
            input of `ethos-u` is its command stream, followed by weights, arena, fast scratch memory, and inputs.
    """

    operator: str
    custom_options: memoryview
    inputs: tuple[Bytes, ...]
    outputs: tuple[Bytes, ...]


Driver = Callable[[DriverCall], None]
"""Runs an operator of a model, with a simulator or hardware. Raises an exception to report failure."""


class HardwareDelegate(Delegate):
    """Claims accelerators' operators and passes them to drivers.

    Args:
        drivers: drivers by operator name. An operator without a driver can be measured
            (`tflm.measure_arena(..., delegates=[HardwareDelegate({})])`), but is rejected by `allocate_tensors`.

    Raises:
        ValueError: unknown operator.
    """

    runs_in_order = True

    def __init__(self, drivers: Mapping[str, Driver]):
        unknown = [name for name in drivers if name not in OPERATORS]
        if unknown:
            raise ValueError(f"unknown operator {unknown[0]!r}; use one of {', '.join(OPERATORS)}")
        self._drivers = dict(drivers)

    def prepare(self, context: DelegateContext) -> None:
        nodes = [(i, context.node_and_registration(i)[0]) for i in context.execution_plan()]
        registration = Registration(
            "HardwareDelegate", bind_replaced(self._bind_one), min_version=LOWEST_VERSION, max_version=HIGHEST_VERSION
        )
        taken = [i for i, node in nodes if node.operator in OPERATORS]
        context.replace_node_subsets_with_delegate_kernels(registration, taken)

    def _bind_one(self, context: KernelContext, node: Node) -> Run:
        driver = self._drivers.get(node.operator)
        if driver is None:
            raise OperatorError(f"{node.operator} needs a driver: HardwareDelegate({{{node.operator!r}: driver}})")
        call = DriverCall(
            node.operator,
            node.custom_options,
            tuple(_bytes(context.get_eval_input(node, i)) for i in range(len(node.inputs))),
            tuple(_bytes(context.get_eval_output(node, i)) for i in range(len(node.outputs))),
        )

        def run() -> None:
            try:
                driver(call)
            except Exception as error:  # report any exception of a driver
                raise OperatorError(f"the driver of {node.operator} fails: {error}") from error

        return run


def _bytes(tensor: TfLiteEvalTensor) -> Any:
    return tensor.elements.reshape(-1).view(np.uint8)
