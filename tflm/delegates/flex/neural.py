"""Layers of networks: products over windows, pooling with gradients, normalization, losses."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tflm.delegates.flex.registry import INT64, OPERATORS, Array, Function, exact, ints, lowest, operator, require

OPERATORS |= {  # of one expression each
    "L2Loss": lambda x: np.asarray((exact(x) ** 2).sum(dtype=None) / 2, None).astype(x.dtype),
    "LogSoftmax": lambda x: _log_softmax(x).astype(x.dtype),
    "Softmax": lambda x: np.exp(_log_softmax(x)).astype(x.dtype),
}


CHANNELS_FIRST = (b"NCHW", b"NCDHW")


def _channels_last(x: Array, data_format: bytes) -> Array:
    return np.moveaxis(x, 1, -1) if data_format in CHANNELS_FIRST else x


def _as_given(x: Array, data_format: bytes) -> Array:
    return np.moveaxis(x, -1, 1) if data_format in CHANNELS_FIRST else x


@dataclass(frozen=True)
class _Geometry:
    """The attributes of an operator on windows, as TensorFlow names them; sequences follow `data_format`."""

    strides: Sequence[int]
    padding: bytes
    ksize: Sequence[int] = ()
    data_format: bytes = b"NHWC"
    dilations: Sequence[int] = ()
    explicit_paddings: Sequence[int] = ()

    def last(self, x: Array) -> Array:
        """An array of the operator with its channels moved last."""
        return _channels_last(x, self.data_format)

    def as_given(self, x: Array) -> Array:
        """An array with channels last in the layout of the operator."""
        return _as_given(x, self.data_format)

    def spatial(self, values: Sequence[Any]) -> list[Any]:
        """The entries of the spatial dimensions."""
        return list(values[2:] if self.data_format in CHANNELS_FIRST else values[1:-1])

    def over(self, shape: Sequence[int], sizes: Sequence[int] | None = None) -> _Windows:
        """The windows over an input [batch, space..., channels]; their sizes are those of `ksize` by default."""
        return _Windows(self, shape, self.spatial(self.ksize) if sizes is None else sizes)


class _Windows:
    """Windows over the spatial dimensions of an input [batch, space..., channels].

    Attributes:
        space: sizes of the spatial dimensions.
        pads: padding before and after each spatial dimension.
        taps: each position within a window, with the index of the padded input's elements that lie there.
    """

    def __init__(self, geometry: _Geometry, shape: Sequence[int], sizes: Sequence[int]):
        self.space = shape[1:-1]
        strides, rates = geometry.spatial(geometry.strides), geometry.spatial(geometry.dilations) or [1] * len(sizes)
        spans = [(size - 1) * rate + 1 for size, rate in zip(sizes, rates)]
        if geometry.padding == b"SAME":
            outputs = [-(-n // stride) for n, stride in zip(self.space, strides)]
            needed = [max(0, (m - 1) * k + span - n) for m, k, span, n in zip(outputs, strides, spans, self.space)]
            self.pads = [(n // 2, n - n // 2) for n in needed]
        else:
            pairs = list(zip(geometry.explicit_paddings[::2], geometry.explicit_paddings[1::2]))
            self.pads = geometry.spatial(pairs) or [(0, 0)] * len(spans)
        room = [n + sum(pad) - span for n, pad, span in zip(self.space, self.pads, spans)]
        reach = [n // stride * stride + 1 for n, stride in zip(room, strides, strict=True)]
        self.taps: list[tuple[tuple[int, ...], tuple[slice, ...]]] = []
        for tap in itertools.product(*map(range, sizes)):
            starts = [position * rate for position, rate in zip(tap, rates)]
            place = [slice(start, start + n, stride) for start, n, stride in zip(starts, reach, strides)]
            self.taps.append((tap, (slice(None), *place)))

    def padded(self, x: Array, value: float = 0) -> Array:
        """The input with its padding."""
        return np.pad(x, [(0, 0), *self.pads, (0, 0)], constant_values=value)

    def inside(self, padded: Array) -> Array:
        """A padded input without its padding."""
        return padded[(slice(None), *(slice(pad[0], pad[0] + n) for pad, n in zip(self.pads, self.space)))]

    def elements(self, padded: Array) -> list[Array]:
        """For each tap, the elements of a padded input that lie there."""
        return [padded[place] for _, place in self.taps]

    def counts(self) -> Array:
        """The number of elements in each window that are not padding."""
        return np.sum(self.elements(self.padded(np.ones((1, *self.space, 1), np.float64))), 0, dtype=None)


def _window_operator(*names: str) -> Callable[[Function], Function]:
    """Register a function that takes a `_Geometry` before its inputs, and return it as it is."""

    def added(function: Function) -> Function:
        @operator(*names)
        def with_attributes(
            *inputs: Array,
            padding: bytes,
            strides: Sequence[int] = (),
            ksize: Sequence[int] = (),
            data_format: bytes = b"NHWC",
            dilations: Sequence[int] = (),
            explicit_paddings: Sequence[int] = (),
        ) -> Any:
            geometry = _Geometry(strides, padding, ksize, data_format, dilations, explicit_paddings)
            return function(geometry, *inputs)

        return function

    return added


@_window_operator("Conv2D", "Conv3D")
def _convolution(geometry: _Geometry, x: Array, filters: Array) -> Array:
    last = geometry.last(x)
    windows = geometry.over(last.shape, filters.shape[:-2])
    groups = last.shape[-1] // filters.shape[-2]
    weights = exact(filters).reshape(*filters.shape[:-1], groups, -1)
    padded = exact(windows.padded(last))
    padded = padded.reshape(*padded.shape[:-1], groups, -1)
    total: Any = sum(np.einsum("...gi,igo->...go", padded[place], weights[tap]) for tap, place in windows.taps)
    return geometry.as_given(total.reshape(*total.shape[:-2], -1)).astype(x.dtype)


@_window_operator("DepthwiseConv2dNative")
def _depthwise_convolution(geometry: _Geometry, x: Array, filters: Array) -> Array:
    height, width, channels, multiplier = filters.shape
    return _convolution(geometry, x, filters.reshape(height, width, 1, channels * multiplier))


@_window_operator("Conv2DBackpropInput", "Conv3DBackpropInputV2")
def _convolution_input_gradient(geometry: _Geometry, sizes: Array, filters: Array, gradient: Array) -> Array:
    slopes, shape = exact(geometry.last(gradient)), ints(sizes)
    space = geometry.spatial(shape) if len(shape) == filters.ndim else shape
    full = (len(slopes), *space, filters.shape[-2])
    windows = geometry.over(full, filters.shape[:-2])
    made = windows.padded(np.zeros(full, np.float64))
    for tap, place in windows.taps:
        made[place] += slopes @ exact(filters)[tap].T
    return geometry.as_given(windows.inside(made)).astype(gradient.dtype)


@_window_operator("Conv2DBackpropFilter", "Conv3DBackpropFilterV2")
def _convolution_filter_gradient(geometry: _Geometry, x: Array, sizes: Array, gradient: Array) -> Array:
    last, slopes = geometry.last(x), exact(geometry.last(gradient))
    windows = geometry.over(last.shape, ints(sizes)[:-2])
    padded, made, axes = exact(windows.padded(last)), np.zeros(ints(sizes), np.float64), tuple(range(x.ndim - 1))
    for tap, place in windows.taps:
        made[tap] = np.tensordot(padded[place], slopes, (axes, axes))
    return made.astype(x.dtype)


@operator("Dilation2D")
def _dilation(x: Array, filters: Array, *, strides: Sequence[int], rates: Sequence[int], padding: bytes) -> Array:
    windows = _Geometry(strides, padding, dilations=rates).over(x.shape, filters.shape[:2])
    padded = windows.padded(x.astype(np.float64), -np.inf)
    return np.max([padded[place] + filters[tap] for tap, place in windows.taps], 0).astype(x.dtype)


@operator("ExtractImagePatches")
def _extract_image_patches(
    x: Array, *, ksizes: Sequence[int], strides: Sequence[int], rates: Sequence[int], padding: bytes
) -> Array:
    windows = _Geometry(strides, padding, ksizes, dilations=rates).over(x.shape)
    return np.concatenate(windows.elements(windows.padded(x)), -1)


# Pooling.


@_window_operator("MaxPool", "MaxPool3D")
def _max_pool(geometry: _Geometry, x: Array) -> Array:
    last = geometry.last(x)
    windows = geometry.over(last.shape)
    return geometry.as_given(np.max(windows.elements(windows.padded(last, lowest(x.dtype))), 0))


@_window_operator("AvgPool", "AvgPool3D")
def _average_pool(geometry: _Geometry, x: Array) -> Array:
    last = geometry.last(x)
    windows = geometry.over(last.shape)
    total: Any = sum(windows.elements(windows.padded(exact(last))))
    return geometry.as_given(total / windows.counts()).astype(x.dtype)


@_window_operator("AvgPoolGrad", "AvgPool3DGrad")
def _average_pool_gradient(geometry: _Geometry, shape: Array, gradient: Array) -> Array:
    slopes, sizes = exact(geometry.last(gradient)), ints(shape)
    full = [sizes[0], *geometry.spatial(sizes), slopes.shape[-1]]
    windows = geometry.over(full)
    made = windows.padded(np.zeros(full, np.float64))
    shares = slopes / windows.counts()
    for _, place in windows.taps:
        made[place] += shares
    return geometry.as_given(windows.inside(made)).astype(gradient.dtype)


@_window_operator("MaxPoolGrad", "MaxPool3DGrad")
def _max_pool_gradient(geometry: _Geometry, x: Array, y: Array, gradient: Array) -> Array:
    last, slopes = geometry.last(x), geometry.last(gradient)
    windows = geometry.over(last.shape)
    padded = windows.padded(last.astype(np.float64), -np.inf)
    made = np.zeros(padded.shape, np.float64)
    largest = np.argmax(windows.elements(padded), 0)
    for i, (_, place) in enumerate(windows.taps):
        made[place] += np.where(largest == i, slopes, 0)
    return geometry.as_given(windows.inside(made)).astype(x.dtype)


@_window_operator("MaxPoolV2")
def _max_pool_v2(geometry: _Geometry, x: Array, ksize: Array, strides: Array) -> Array:
    return _max_pool(replace(geometry, ksize=ints(ksize), strides=ints(strides)), x)


@_window_operator("MaxPoolGradV2")
def _max_pool_gradient_v2(
    geometry: _Geometry, x: Array, y: Array, gradient: Array, ksize: Array, strides: Array
) -> Array:
    return _max_pool_gradient(replace(geometry, ksize=ints(ksize), strides=ints(strides)), x, y, gradient)


@operator("MaxPoolWithArgmax")
def _max_pool_with_arg_max(
    x: Array,
    *,
    ksize: Sequence[int],
    strides: Sequence[int],
    padding: bytes,
    include_batch_in_index: bool = False,
    Targmax: np.dtype[Any] = INT64,  # noqa: N803  # TensorFlow's name
) -> tuple[Array, Array]:
    windows = _Geometry(strides, padding, ksize).over(x.shape)
    indices = np.arange(x.size, dtype=np.int64).reshape(x.shape)
    if not include_batch_in_index:
        indices = indices - indices.reshape(len(x), -1)[:, :1].reshape(-1, 1, 1, 1)
    values = np.stack(windows.elements(windows.padded(x.astype(np.float64), -np.inf)))
    numbers = np.stack(windows.elements(windows.padded(indices)))
    largest = np.argmax(values, 0)[np.newaxis]
    made, found = (np.take_along_axis(of_taps, largest, 0)[0] for of_taps in (values, numbers))
    return made.astype(x.dtype), found.astype(Targmax)


@operator("MaxPoolGradWithArgmax")
def _max_pool_gradient_with_arg_max(
    x: Array, gradient: Array, places: Array, *, include_batch_in_index: bool = False
) -> Array:
    made, image = np.zeros(x.size, gradient.dtype), x.size // len(x)
    starts = 0 if include_batch_in_index else (np.arange(len(x), dtype=np.int64) * image).reshape(-1, 1, 1, 1)
    np.add.at(made, (places + starts).reshape(-1).astype(np.intp), gradient.reshape(-1))
    return made.reshape(x.shape)


# Biases and normalization.


@operator("BiasAdd", "BiasAddV1")
def _bias_add(x: Array, bias: Array, *, data_format: bytes = b"NHWC") -> Array:
    return x + (bias.reshape(-1, *[1] * (x.ndim - 2)) if data_format in CHANNELS_FIRST else bias)


@operator("BiasAddGrad")
def _bias_add_gradient(gradient: Array, *, data_format: bytes = b"NHWC") -> Array:
    last = exact(_channels_last(gradient, data_format))
    return last.sum(tuple(range(last.ndim - 1)), dtype=None).astype(gradient.dtype)


def _normalized(x: Array, mean: Array, variance: Array, scale: Array, offset: Array, epsilon: float) -> Array:
    return (exact(x) - mean) / np.sqrt(exact(variance) + epsilon) * scale + offset


@operator("FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3")
def _fused_batch_norm(
    x: Array,
    scale: Array,
    offset: Array,
    mean: Array,
    variance: Array,
    *,
    epsilon: float = 1e-4,
    exponential_avg_factor: float = 1.0,
    data_format: bytes = b"NHWC",
    is_training: bool = True,
) -> tuple[Array, ...]:
    last = _channels_last(x, data_format)
    given = [mean, variance]
    if is_training:
        axes = tuple(range(last.ndim - 1))
        batch_mean, batch_variance = exact(last).mean(axes), exact(last).var(axes)
        count = last.size // last.shape[-1]
        unbiased = batch_variance * (count / max(1, count - 1))
        share = exponential_avg_factor
        given = [batch_mean, unbiased]
        if share != 1:
            given = [batch_mean * share + mean * (1 - share), unbiased * share + variance * (1 - share)]
        mean, variance = batch_mean, batch_variance
    made = _normalized(last, mean, variance, scale, offset, epsilon)
    kept = [np.asarray(value, None).astype(scale.dtype) for value in (*given, mean, variance)]
    return _as_given(made, data_format).astype(x.dtype), *kept, np.zeros(0, scale.dtype)


@operator("BatchNormWithGlobalNormalization")
def _batch_norm(
    x: Array,
    mean: Array,
    variance: Array,
    beta: Array,
    gamma: Array,
    *,
    variance_epsilon: float,
    scale_after_normalization: bool,
) -> Array:
    scale = gamma if scale_after_normalization else np.ones_like(gamma)
    return _normalized(x, mean, variance, scale, beta, variance_epsilon).astype(x.dtype)


@operator("LRN")
def _local_response_normalization(
    x: Array, *, depth_radius: int = 5, bias: float = 1.0, alpha: float = 1.0, beta: float = 0.5
) -> Array:
    squares = np.pad(exact(x) ** 2, [(0, 0)] * (x.ndim - 1) + [(depth_radius, depth_radius)])
    sums = np.lib.stride_tricks.sliding_window_view(squares, 2 * depth_radius + 1, -1).sum(-1, dtype=None)
    return (x / (bias + alpha * sums) ** beta).astype(x.dtype)


def _log_softmax(x: Array) -> Array:
    shifted = exact(x) - exact(x).max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True, dtype=None))


@operator("SoftmaxCrossEntropyWithLogits")
def _softmax_cross_entropy(logits: Array, labels: Array) -> tuple[Array, Array]:
    logarithms = _log_softmax(logits)
    loss, slope = -(labels * logarithms).sum(-1, dtype=None), np.exp(logarithms) - labels
    return loss.astype(logits.dtype), slope.astype(logits.dtype)


@operator("SparseSoftmaxCrossEntropyWithLogits")
def _sparse_softmax_cross_entropy(logits: Array, labels: Array) -> tuple[Array, Array]:
    require(((labels >= 0) & (labels < logits.shape[1])).all(), "has a label that is not a class")
    return _softmax_cross_entropy(logits, np.eye(logits.shape[1], dtype=logits.dtype)[labels])
