"""SignalFilterBank: the energy in each channel, from that in each bin of a spectrum."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from tflm.errors import OperatorError
from tflm.kernels.node import KernelContext, Node
from tflm.kernels.reference.signal.common import (
    options_by_place,
    require_channels,
    require_rank,
    require_room,
)
from tflm.kernels.registration import Registration, Run
from tflm.kernels.requests import PersistentBuffer, Request, tensors
from tflm.kernels.support.checks import element_count, require_type
from tflm.schema.enums import TensorType
from tflm.targets import INT32, POINTER, Struct

FILTER_BANK_PARAMS = Struct(
    "TFLMSignalFilterBankParams",
    config=Struct(
        "FilterbankConfig",
        num_channels=INT32,
        channel_frequency_starts=POINTER,
        channel_weight_starts=POINTER,
        channel_widths=POINTER,
        weights=POINTER,
        unweights=POINTER,
        output_scale=INT32,
        input_correction_bits=INT32,
    ),
    work_area=POINTER,
)


class Band(NamedTuple):
    """A part of the spectrum: its weights belong to one channel, its unweights to the next."""

    start: int
    weight_start: int
    width: int

    @property
    def values(self) -> slice:
        """Its values in the spectrum."""
        return slice(self.start, self.start + self.width)

    @property
    def weights(self) -> slice:
        """Its values in weights and unweights."""
        return slice(self.weight_start, self.weight_start + self.width)


class FilterBank:
    """The inputs of a filter bank.

    Args:
        channels: number of channels; there is one more band, before the first channel.
    """

    def __init__(self, context: KernelContext, node: Node, channels: int):
        inputs = [node.eval_input(index) for index in range(6)]
        self.spectrum, self.weights, self.unweights, *self._bands = inputs
        self._count = channels + 1
        self.is_constant = all(tensor.is_constant for tensor in inputs[1:])

    def bands(self) -> list[Band]:
        """The bands from the current inputs.

        Raises:
            OperatorError: a band is outside the spectrum or the weights.
        """
        sizes = [element_count(tensor) for tensor in (self.spectrum, self.weights, self.unweights)]
        found = []
        for numbers in zip(*(tensor.elements[: self._count].tolist() for tensor in self._bands)):
            band = Band(*numbers)
            if band.width <= 0:
                band = Band(0, 0, 0)
            elif min(numbers) < 0 or band.values.stop > sizes[0] or band.weights.stop > min(sizes[1:]):
                raise OperatorError(f"{band} lies outside of {sizes[0]} values or {min(sizes[1:])} weights")
            found.append(band)
        return found


def _init(context: KernelContext, node: Node) -> None:
    node.op_data = _channels(node.custom_options)


def _init_requests(node: Node) -> Iterator[Request]:
    yield PersistentBuffer("sums", (_channels(node.custom_options) + 1) * 8)


def _channels(custom_options: memoryview) -> int:
    return require_channels(options_by_place(custom_options, "num_channels"))


def _prepare(context: KernelContext, node: Node) -> None:
    channels = node.op_data
    node.expect(inputs=6, outputs=1)
    for index in range(6):
        tensor = node.input(index)
        require_rank(tensor, 1)
        require_type(tensor, TensorType.INT16 if index else TensorType.UINT32)
        if index >= 3:
            require_room(tensor, channels + 1, element_count(tensor))
    output = node.output(0)
    require_rank(output, 1)
    require_type(output, TensorType.UINT64)
    if output.dims[0] > channels:
        raise OperatorError(f"has {output.dims[0]} elements, more than num_channels {channels}", tensor=output.name)
    bank = FilterBank(context, node, channels)
    if bank.is_constant:
        bank.bands()


def _bind(context: KernelContext, node: Node) -> Run:
    bank = FilterBank(context, node, node.op_data)
    sources = [tensor.elements for tensor in (bank.spectrum, bank.weights, bank.unweights)]
    y = node.eval_output(0).elements
    constant_bands = bank.bands() if bank.is_constant else None

    def run() -> None:
        x, weights, unweights = (source.astype(np.uint64) for source in sources)
        bands = [(x[band.values], band.weights) for band in constant_bands or bank.bands()]
        falling = [np.dot(values, unweights[place]) for values, place in bands[:-1]]
        rising = [np.dot(values, weights[place]) for values, place in bands[1:]]
        y[...] = (np.array(falling, np.uint64) + np.array(rising, np.uint64))[: y.size]

    return run


FILTER_BANK = Registration(
    "SignalFilterBank",
    _bind,
    _prepare,
    _init,
    op_data=FILTER_BANK_PARAMS,
    requests=tensors(6),
    init_requests=_init_requests,
    types=(TensorType.UINT32,),
    since="2548022e0",
)
