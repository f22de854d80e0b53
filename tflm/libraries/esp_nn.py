"""ESP-NN, Espressif's kernels, and the glue of esp-tflite-micro for them.

Their arena differs from TFLM's only by scratch buffers, whose sizes depend on the chip and the version: see
`esp_nn_scratch`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial
from types import MappingProxyType

from tflm.kernels.layers.convolution import OP_DATA_CONV
from tflm.kernels.node import Node, Requests
from tflm.kernels.reference import normalization
from tflm.kernels.reference.convolution import CONV_2D, DEPTHWISE_CONV_2D
from tflm.kernels.registration import OperatorMemory
from tflm.kernels.requests import Request, ScratchBuffer, nothing
from tflm.libraries import esp_nn_defects
from tflm.libraries.esp_nn_scratch import CONV_BYTES, DEPTHWISE_BYTES, VERSIONS, Bytes, bytes_for, convolution
from tflm.libraries.kernel_library import Concern, Effect, KernelLibrary, Version, version_named
from tflm.libraries.pins import component_of, holds
from tflm.releases import TODAY, Release
from tflm.schema.enums import TensorType
from tflm.schema.options import Conv2DOptions, DepthwiseConv2DOptions
from tflm.targets import INT, CType, Struct, Target

CURRENT = "1.2.3"
"""The default version of `esp-nn`."""

NODE_DATA_CONV = Struct("esp_nn/conv.cc:NodeData", op_data=OP_DATA_CONV, buffer_idx=INT)


@dataclass(frozen=True)
class AskedForConv(CType):
    """The structure that CONV_2D's Init requests; some versions of the component omit the index, but write it
    anyway."""

    def size(self, target: Target, release: Release = TODAY) -> int:
        is_short = component_of(release) is not None and holds(release, "bebe1a8") and not holds(release, "416d371")
        return (OP_DATA_CONV if is_short else NODE_DATA_CONV).size(target, release)

    def alignment(self, target: Target, release: Release = TODAY) -> int:
        return NODE_DATA_CONV.alignment(target, release)


NODE_DATA_SOFTMAX = Struct("esp_nn/softmax.cc:NodeData", op_data=normalization.SOFTMAX_PARAMS, buffer_idx=INT)


def _with_scratch(
    reference: Requests,
    kind: type[Conv2DOptions] | type[DepthwiseConv2DOptions],
    sizes: Mapping[str, Mapping[str, Bytes | None]],
    version: Version,
) -> Requests:
    """The requests of TFLM's kernel, followed by the library's buffer."""

    def requests(node: Node) -> Iterator[Request]:
        yield from reference(node)
        if node.input(0).type == TensorType.INT8:
            size = bytes_for(sizes, node.target, version)(convolution(node, kind))
            if size > 0:
                yield ScratchBuffer("esp_nn", size)

    return requests


def _softmax_requests(node: Node) -> Iterator[Request]:
    yield from normalization.SOFTMAX.requests(node)
    input = node.input(0)
    if input.type == node.output(0).type == TensorType.INT8:
        # As in the source, the second dimension counts, even if it is not the last.
        yield ScratchBuffer("esp_nn", 4 * input.dims[1] if len(input.dims) > 1 else 0)


def _is_int8_softmax_of_another_rank(node: Node) -> bool:
    input = node.input(0)
    return input.type == node.output(0).type == TensorType.INT8 and len(input.dims) != 2


CONCERNS = (
    Concern(
        "SOFTMAX",
        Effect.BREAKS,
        _is_int8_softmax_of_another_rank,
        "With int8, its scratch buffer has the size of the second dimension, but it writes the number of elements of "
        "the last one: with a rank other than 2, it may overwrite other tensors.",
        "Reshape its input to 2 dimensions.",
    ),
)


def _has_other_rank(node: Node) -> bool:
    """Up to esp-tflite-micro 1.3.1, for an int8 output whose rank is not 2."""
    return not holds(node.release, "1.3.2") and _is_int8(node) and len(node.output(0).dims) != 2


def _runs_in_plain_c(node: Node) -> bool:
    """Up to esp-tflite-micro 1.3.5, which reports 0 filter channels, unlike the input's."""
    options = node.options(Conv2DOptions)
    is_taken = node.input(0).type == TensorType.INT8 and options.dilation_h_factor == options.dilation_w_factor == 1
    return is_taken and not holds(node.release, "1.3.7")


def _is_int8(node: Node) -> bool:
    return node.input(0).type == node.input(1).type == TensorType.INT8


GLUE_CONCERNS = (
    Concern(
        "FULLY_CONNECTED",
        Effect.DIFFERS,
        _has_other_rank,
        "The first two dimensions of an int8 output are treated as batches and channels: with a rank other than 2, "
        "answers are wrong (esp-tflite-micro up to 1.3.1; fixed in 1.3.2).",
        "Convert the model so that its output has 2 dimensions, or use esp-tflite-micro 1.3.2 or later.",
    ),
)
"""Concerns about TFLM's glue code for ESP-NN, for every version of ESP-NN and every chip."""

SLOW_CONVOLUTIONS = Concern(
    "CONV_2D",
    Effect.SLOW,
    _runs_in_plain_c,
    "It runs in plain C, without the chip's own code: the component reports that the filter has no channels "
    "(esp-tflite-micro up to 1.3.5 with ESP-NN 1.2.3 or later; fixed in esp-tflite-micro 1.3.7).",
    "Use esp-tflite-micro 1.3.7 or later, or ESP-NN 1.2.2 or older.",
)


def _concerns(version: Version, ansi: bool) -> Iterator[Concern]:
    yield from GLUE_CONCERNS
    if ansi:
        return
    yield from CONCERNS
    yield from esp_nn_defects.concerns(version)
    if version.since("1.2.3"):
        yield SLOW_CONVOLUTIONS


@cache
def library(version: str = CURRENT, *, ansi: bool = False) -> KernelLibrary:
    """ESP-NN of a version.

    Args:
        version: a tag of the library.
        ansi: whether it is built with CONFIG_NN_ANSI_C: plain C on every chip, without scratch buffers.

    Raises:
        ArgumentError: there is no such version; the message lists them.
    """
    found = version_named("ESP-NN", version, VERSIONS)
    name = "esp-nn:ansi" if ansi else "esp-nn"
    return KernelLibrary(
        name if found.name == CURRENT else f"{name}@{found.name}",
        f"ESP-NN {found.name}{' in plain C' if ansi else ''}",
        family="espressif",
        view_alignment=1 if ansi else 16,
        memory=MappingProxyType(_memory(found, ansi)),
        concerns=tuple(_concerns(found, ansi)),
    )


def _memory(version: Version, ansi: bool) -> dict[str, OperatorMemory]:
    conv, depthwise, softmax = CONV_2D.requests, DEPTHWISE_CONV_2D.requests, normalization.SOFTMAX.requests
    if not ansi:
        conv = _with_scratch(conv, Conv2DOptions, CONV_BYTES, version)
        depthwise = _with_scratch(depthwise, DepthwiseConv2DOptions, DEPTHWISE_BYTES, version)
        softmax = _softmax_requests
    return {
        "CONV_2D": OperatorMemory(AskedForConv(), conv, nothing),
        "DEPTHWISE_CONV_2D": OperatorMemory(NODE_DATA_CONV, depthwise, nothing),
        "SOFTMAX": OperatorMemory(NODE_DATA_SOFTMAX, softmax, nothing),
    }


plain_library = partial(library, ansi=True)
