"""Layers of networks: products over windows, pooling with gradients, normalization, losses."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from tflm.delegates.flex.registry import INT64, OPERATORS, Array, exact, ints, operator, require

CHANNELS_FIRST = (b"NCHW", b"NCDHW")
LAYOUTS = {2: b"NHWC", 3: b"NDHWC"}


def _channels_last(x: Array, data_format: bytes) -> Array:
    return np.moveaxis(x, 1, -1) if data_format in CHANNELS_FIRST else x


def _as_given(x: Array, data_format: bytes) -> Array:
    return np.moveaxis(x, -1, 1) if data_format in CHANNELS_FIRST else x


def _inner(values: Sequence[int], data_format: bytes) -> list[int]:
    """The entries for the dimensions of space."""
    return list(values[2:] if data_format in CHANNELS_FIRST else values[1:-1])


class _Windows:
    """Where windows lie over the dimensions of space of [batch, space..., channels].

    Args:
        shape: of the input.
        sizes, strides, rates: for each dimension of space; `rates` is the distance between taps.
        padding: SAME, VALID or EXPLICIT.
        explicit: before and after, for each dimension of space, where that is EXPLICIT.
    """

    def __init__(
        self,
        shape: Sequence[int],
        sizes: Sequence[int],
        strides: Sequence[int],
        padding: bytes,
        rates: Sequence[int] | None = None,
        explicit: Sequence[tuple[int, int]] | None = None,
    ):
        self.space = list(shape[1:-1])
        self.sizes, self.strides, self.rates = list(sizes), list(strides), list(rates or [1] * len(sizes))
        spans = [(size - 1) * rate + 1 for size, rate in zip(self.sizes, self.rates)]
        if padding == b"SAME":
            self.counts = [-(-n // stride) for n, stride in zip(self.space, self.strides)]
            needed = [
                max(0, (count - 1) * stride + span - n)
                for count, stride, span, n in zip(self.counts, self.strides, spans, self.space)
            ]
            self.pads = [(n // 2, n - n // 2) for n in needed]
        else:
            self.pads = list(explicit or [(0, 0)] * len(spans))
            room = [n + sum(pad) for n, pad in zip(self.space, self.pads)]
            self.counts = [(n - span) // stride + 1 for n, span, stride in zip(room, spans, self.strides)]

    def taps(self) -> Iterator[tuple[tuple[int, ...], tuple[slice, ...]]]:
        """Each place within a window, with the slices of the padded input that lie there."""
        for tap in itertools.product(*map(range, self.sizes)):
            starts = [t * rate for t, rate in zip(tap, self.rates)]
            yield (
                tap,
                tuple(
                    slice(start, start + (count - 1) * stride + 1, stride)
                    for start, count, stride in zip(starts, self.counts, self.strides)
                ),
            )

    def padded(self, x: Array, value: float = 0) -> Array:
        """The input with its borders."""
        return np.pad(x, [(0, 0), *self.pads, (0, 0)], constant_values=value)

    def inside(self, padded: Array) -> Array:
        """What lies within the borders."""
        return padded[(slice(None), *(slice(pad[0], pad[0] + n) for pad, n in zip(self.pads, self.space)))]


def _explicit(paddings: Sequence[int], data_format: bytes) -> list[tuple[int, int]]:
    pairs = list(zip(paddings[::2], paddings[1::2]))
    return pairs[2:] if data_format in CHANNELS_FIRST else pairs[1:-1]


def _convolution_windows(
    shape: Sequence[int],
    sizes: Sequence[int],
    strides: Sequence[int],
    padding: bytes,
    data_format: bytes,
    dilations: Sequence[int],
    explicit_paddings: Sequence[int],
) -> _Windows:
    """Windows of a convolution, from the attributes of its node."""
    return _Windows(
        shape,
        sizes,
        _inner(strides, data_format),
        padding,
        _inner(dilations, data_format),
        _explicit(explicit_paddings, data_format) or None,
    )


def _convolution(rank: int) -> Callable[..., Array]:
    def convolved(
        x: Array,
        filters: Array,
        *,
        strides: Sequence[int],
        padding: bytes,
        data_format: bytes = LAYOUTS[rank],
        dilations: Sequence[int] = (1,) * (rank + 2),
        explicit_paddings: Sequence[int] = (),
    ) -> Array:
        last = _channels_last(x, data_format)
        windows = _convolution_windows(
            last.shape, filters.shape[:-2], strides, padding, data_format, dilations, explicit_paddings
        )
        groups = last.shape[-1] // filters.shape[-2]
        weights = exact(filters).reshape(*filters.shape[:-1], groups, -1)
        padded = exact(windows.padded(last))
        padded = padded.reshape(*padded.shape[:-1], groups, -1)
        total: Any = 0
        for tap, place in windows.taps():
            total = total + np.einsum("...gi,igo->...go", padded[(slice(None), *place)], weights[tap])
        return _as_given(total.reshape(*total.shape[:-2], -1), data_format).astype(x.dtype)

    return convolved


OPERATORS["Conv2D"] = _convolution(2)
OPERATORS["Conv3D"] = _convolution(3)


@operator("DepthwiseConv2dNative")
def _depthwise_convolution(
    x: Array,
    filters: Array,
    *,
    strides: Sequence[int],
    padding: bytes,
    data_format: bytes = b"NHWC",
    dilations: Sequence[int] = (1, 1, 1, 1),
    explicit_paddings: Sequence[int] = (),
) -> Array:
    height, width, channels, multiplier = filters.shape
    return OPERATORS["Conv2D"](
        x,
        filters.reshape(height, width, 1, channels * multiplier),
        strides=strides,
        padding=padding,
        data_format=data_format,
        dilations=dilations,
        explicit_paddings=explicit_paddings,
    )


def _convolution_input_gradient(rank: int) -> Callable[..., Array]:
    def spread(
        sizes: Array,
        filters: Array,
        gradient: Array,
        *,
        strides: Sequence[int],
        padding: bytes,
        data_format: bytes = LAYOUTS[rank],
        dilations: Sequence[int] = (1,) * (rank + 2),
        explicit_paddings: Sequence[int] = (),
    ) -> Array:
        last, shape = exact(_channels_last(gradient, data_format)), ints(sizes)
        space = _inner(shape, data_format) if len(shape) == rank + 2 else shape
        full = (len(last), *space, filters.shape[-2])
        windows = _convolution_windows(
            full, filters.shape[:rank], strides, padding, data_format, dilations, explicit_paddings
        )
        made = windows.padded(np.zeros(full, np.float64))
        for tap, place in windows.taps():
            made[(slice(None), *place)] += last @ exact(filters)[tap].T
        return _as_given(windows.inside(made), data_format).astype(gradient.dtype)

    return spread


def _convolution_filter_gradient(rank: int) -> Callable[..., Array]:
    def gathered(
        x: Array,
        sizes: Array,
        gradient: Array,
        *,
        strides: Sequence[int],
        padding: bytes,
        data_format: bytes = LAYOUTS[rank],
        dilations: Sequence[int] = (1,) * (rank + 2),
        explicit_paddings: Sequence[int] = (),
    ) -> Array:
        last, slopes = _channels_last(x, data_format), exact(_channels_last(gradient, data_format))
        windows = _convolution_windows(
            last.shape, ints(sizes)[:rank], strides, padding, data_format, dilations, explicit_paddings
        )
        padded, made, axes = exact(windows.padded(last)), np.zeros(ints(sizes), np.float64), tuple(range(rank + 1))
        for tap, place in windows.taps():
            made[tap] = np.tensordot(padded[(slice(None), *place)], slopes, (axes, axes))
        return made.astype(x.dtype)

    return gathered


for _rank, _suffix in {2: "", 3: "V2"}.items():
    OPERATORS[f"Conv{_rank}DBackpropInput{_suffix}"] = _convolution_input_gradient(_rank)
    OPERATORS[f"Conv{_rank}DBackpropFilter{_suffix}"] = _convolution_filter_gradient(_rank)


@operator("Dilation2D")
def _dilation(x: Array, filters: Array, *, strides: Sequence[int], rates: Sequence[int], padding: bytes) -> Array:
    windows = _Windows(x.shape, filters.shape[:2], strides[1:3], padding, rates[1:3])
    padded = windows.padded(x.astype(np.float64), -np.inf)
    taps = [padded[(slice(None), *place)] + filters[tap] for tap, place in windows.taps()]
    return np.max(taps, 0).astype(x.dtype)


# Pooling.


def _pool_windows(x: Array, ksize: Sequence[int], strides: Sequence[int], padding: bytes, layout: bytes) -> _Windows:
    return _Windows(x.shape, _inner(ksize, layout), _inner(strides, layout), padding)


def _tap_counts(windows: _Windows, x: Array) -> Array:
    """How many elements of the input, not of its borders, each window has."""
    ones = windows.padded(np.ones((1, *windows.space, 1), np.float64))
    total: Any = 0
    for _, place in windows.taps():
        total = total + ones[(slice(None), *place)]
    return np.asarray(total, None)


def _max_pool(default: bytes) -> Callable[..., Array]:
    def pooled(
        x: Array,
        *,
        ksize: Sequence[int],
        strides: Sequence[int],
        padding: bytes,
        data_format: bytes = default,
        explicit_paddings: Sequence[int] = (),
    ) -> Array:
        last = _channels_last(x, data_format)
        windows = _pool_windows(last, ksize, strides, padding, data_format)
        if explicit_paddings:
            inner = _inner(ksize, data_format), _inner(strides, data_format)
            windows = _Windows(last.shape, *inner, padding, None, _explicit(explicit_paddings, data_format))
        lowest = -np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min
        padded = windows.padded(last, lowest)
        made = np.max([padded[(slice(None), *place)] for _, place in windows.taps()], 0)
        return _as_given(made, data_format)

    return pooled


def _average_pool(default: bytes) -> Callable[..., Array]:
    def pooled(
        x: Array, *, ksize: Sequence[int], strides: Sequence[int], padding: bytes, data_format: bytes = default
    ) -> Array:
        last = _channels_last(x, data_format)
        windows = _pool_windows(last, ksize, strides, padding, data_format)
        padded = windows.padded(exact(last))
        total: Any = 0
        for _, place in windows.taps():
            total = total + padded[(slice(None), *place)]
        return _as_given(total / _tap_counts(windows, last), data_format).astype(x.dtype)

    return pooled


def _average_pool_gradient(default: bytes) -> Callable[..., Array]:
    def spread(
        shape: Array,
        gradient: Array,
        *,
        ksize: Sequence[int],
        strides: Sequence[int],
        padding: bytes,
        data_format: bytes = default,
    ) -> Array:
        slopes = exact(_channels_last(gradient, data_format))
        sizes = ints(shape)
        full = [sizes[0], *_inner(sizes, data_format), slopes.shape[-1]]
        windows = _pool_windows(np.empty(full, np.float64), ksize, strides, padding, data_format)
        made = windows.padded(np.zeros(full, np.float64))
        slopes = slopes / _tap_counts(windows, made)
        for _, place in windows.taps():
            made[(slice(None), *place)] += slopes
        return _as_given(windows.inside(made), data_format).astype(gradient.dtype)

    return spread


def _max_pool_gradient(default: bytes) -> Callable[..., Array]:
    def routed(
        x: Array,
        y: Array,
        gradient: Array,
        *,
        ksize: Sequence[int],
        strides: Sequence[int],
        padding: bytes,
        data_format: bytes = default,
    ) -> Array:
        last, slopes = _channels_last(x, data_format), _channels_last(gradient, data_format)
        windows = _pool_windows(last, ksize, strides, padding, data_format)
        padded = windows.padded(last.astype(np.float64), -np.inf)
        made = np.zeros(padded.shape, np.float64)
        places = [place for _, place in windows.taps()]
        largest = np.argmax([padded[(slice(None), *place)] for place in places], 0)
        for i, place in enumerate(places):
            made[(slice(None), *place)] += np.where(largest == i, slopes, 0)
        return _as_given(windows.inside(made), data_format).astype(x.dtype)

    return routed


for _suffix, _layout in {"": b"NHWC", "3D": b"NDHWC"}.items():
    OPERATORS[f"MaxPool{_suffix}"] = _max_pool(_layout)
    OPERATORS[f"AvgPool{_suffix}"] = _average_pool(_layout)
    OPERATORS[f"AvgPool{_suffix}Grad"] = _average_pool_gradient(_layout)
    OPERATORS[f"MaxPool{_suffix}Grad"] = _max_pool_gradient(_layout)


@operator("MaxPoolV2")
def _max_pool_v2(x: Array, ksize: Array, strides: Array, *, padding: bytes, data_format: bytes = b"NHWC") -> Array:
    return OPERATORS["MaxPool"](x, ksize=ints(ksize), strides=ints(strides), padding=padding, data_format=data_format)


@operator("MaxPoolGradV2")
def _max_pool_gradient_v2(
    x: Array, y: Array, gradient: Array, ksize: Array, strides: Array, *, padding: bytes, data_format: bytes = b"NHWC"
) -> Array:
    sizes = {"ksize": ints(ksize), "strides": ints(strides)}
    return OPERATORS["MaxPoolGrad"](x, y, gradient, **sizes, padding=padding, data_format=data_format)


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
    windows = _pool_windows(x, ksize, strides, padding, b"NHWC")
    padded = windows.padded(x.astype(np.float64), -np.inf)
    indices = np.arange(x.size, dtype=np.int64).reshape(x.shape)
    if not include_batch_in_index:
        indices = indices - indices.reshape(len(x), -1)[:, :1].reshape(-1, 1, 1, 1)
    numbers = windows.padded(indices)
    places = [(slice(None), *place) for _, place in windows.taps()]
    values = np.stack([padded[place] for place in places])
    largest = np.argmax(values, 0)[np.newaxis]
    found = np.take_along_axis(np.stack([numbers[place] for place in places]), largest, 0)[0]
    return np.take_along_axis(values, largest, 0)[0].astype(x.dtype), found.astype(Targmax)


@operator("MaxPoolGradWithArgmax")
def _max_pool_gradient_with_arg_max(
    x: Array, gradient: Array, places: Array, *, include_batch_in_index: bool = False
) -> Array:
    made, image = np.zeros(x.size, gradient.dtype), x.size // len(x)
    starts = 0 if include_batch_in_index else (np.arange(len(x), dtype=np.int64) * image).reshape(-1, 1, 1, 1)
    np.add.at(made, (places + starts).reshape(-1).astype(np.intp), gradient.reshape(-1))
    return made.reshape(x.shape)


# Biases and normalization.


def _along_channels(values: Array, rank: int, data_format: bytes) -> Array:
    return values.reshape(-1, *[1] * (rank - 2)) if data_format in CHANNELS_FIRST else values


@operator("BiasAdd", "BiasAddV1")
def _bias_add(x: Array, bias: Array, *, data_format: bytes = b"NHWC") -> Array:
    return x + _along_channels(bias, x.ndim, data_format)


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


@operator("L2Loss")
def _l2_loss(x: Array) -> Array:
    return np.asarray((exact(x) ** 2).sum(dtype=None) / 2, None).astype(x.dtype)


def _log_softmax(x: Array) -> Array:
    shifted = exact(x) - exact(x).max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True, dtype=None))


@operator("Softmax")
def _softmax(x: Array) -> Array:
    return np.exp(_log_softmax(x)).astype(x.dtype)


@operator("LogSoftmax")
def _log_softmax_rounded(x: Array) -> Array:
    return _log_softmax(x).astype(x.dtype)


@operator("SoftmaxCrossEntropyWithLogits")
def _softmax_cross_entropy(logits: Array, labels: Array) -> tuple[Array, Array]:
    logarithms = _log_softmax(logits)
    loss, slope = -(labels * logarithms).sum(-1, dtype=None), np.exp(logarithms) - labels
    return loss.astype(logits.dtype), slope.astype(logits.dtype)


@operator("SparseSoftmaxCrossEntropyWithLogits")
def _sparse_softmax_cross_entropy(logits: Array, labels: Array) -> tuple[Array, Array]:
    require(((labels >= 0) & (labels < logits.shape[1])).all(), "is given a label that is no class")
    return _softmax_cross_entropy(logits, np.eye(logits.shape[1], dtype=logits.dtype)[labels])
