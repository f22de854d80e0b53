"""ethos-u: passes a command stream for an Arm Ethos-U NPU to a driver that the caller supplies."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tflm.errors import OperatorError
from tflm.kernels.node import KernelContext, Node
from tflm.kernels.registration import Registration, Run
from tflm.kernels.requests import Request, ScratchBuffer, TempInput
from tflm.memory.tensor import TfLiteEvalTensor
from tflm.schema.flexbuffer import FlexbufferType
from tflm.targets import INT, SIZE_T, Struct

OP_DATA_ETHOS_U = Struct("ethosu.cc:OpData", cms_data_size=INT, base_addr_idx=INT, base_addr_size_idx=INT)

CO_TYPE_ETHOS_U = 1
MAXIMUM_BASE_ADDRESSES = 8

Bytes = npt.NDArray[np.uint8]

EthosUDriver = Callable[[Bytes, Sequence[Bytes]], None]
"""Runs a command stream on the memory at its base addresses. Both are views of bytes, not copies.

The base addresses, at most 8, are in Vela's order: the model's weights (read only), the arena, the fast scratch memory,
the inputs, the outputs. A driver raises an exception to report failure.
"""


def ethos_u(driver: EthosUDriver | None) -> Registration:
    """The operator "ethos-u" with a driver: `resolver.add_custom(tflm.ethos_u(driver))`.

    Args:
        driver: called as `driver(command_stream, base_addresses)` in each invoke; see `EthosUDriver`. With None, the
            model cannot run, only its arena can be measured.
    """

    def prepare(context: KernelContext, node: Node) -> None:
        if not node.inputs:
            raise OperatorError("has no inputs, the first is its command stream")
        _check_options(node.custom_options)

    def bind(context: KernelContext, node: Node) -> Run:
        if driver is None:
            raise OperatorError(
                "needs a driver; make a MicroMutableOpResolver, and add the operator with "
                "resolver.add_custom(tflm.ethos_u(driver))"
            )
        command_stream, *inputs = [_bytes(node.eval_input(i)) for i in range(len(node.inputs))]
        outputs = [_bytes(node.eval_output(i)) for i in range(len(node.outputs))]
        base_addresses = [*inputs, *outputs][:MAXIMUM_BASE_ADDRESSES]
        return lambda: driver(command_stream, base_addresses)

    return Registration("ethos-u", bind, prepare, op_data=OP_DATA_ETHOS_U, requests=_requests, opaque=True)


def _requests(node: Node) -> Iterator[Request]:
    count = node.input_count + node.output_count
    yield ScratchBuffer("base addresses", 8 * count)
    yield ScratchBuffer("sizes at base addresses", count * SIZE_T.size(node.target))
    yield TempInput(0)


def _check_options(options: memoryview) -> None:
    """The options are a flexbuffer of one integer: the device of the command stream."""
    if len(options) >= 3:
        width, kind = options[-1], options[-2] >> 2
        is_integer = kind in (FlexbufferType.INT, FlexbufferType.UINT) and width in (1, 2, 4, 8)
        if is_integer and len(options) >= width + 2 and options[-2 - width] == CO_TYPE_ETHOS_U:
            return
    raise OperatorError(f"has custom options that do not say {CO_TYPE_ETHOS_U}, for a command stream of an Ethos-U")


def _bytes(tensor: TfLiteEvalTensor) -> npt.NDArray[Any]:
    return tensor.elements.reshape(-1).view(np.uint8)


ETHOS_U = ethos_u(None)
