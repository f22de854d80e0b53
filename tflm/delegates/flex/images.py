"""Colours, resizing, crops, boxes and projections of images, [batch, height, width, channels]."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tflm.delegates.flex.registry import OPERATORS, Array, ints, operator, require

OPERATORS |= {  # of one expression each
    "AdjustContrast": lambda x, factor, low, high: np.clip(_adjust_contrast(x.astype(np.float32), factor), low, high),
    "HSVToRGB": lambda x: _rgb(x).astype(x.dtype),
    "RGBToHSV": lambda x: _hsv(x).astype(x.dtype),
}


@operator("AdjustContrastv2")
def _adjust_contrast(x: Array, factor: Array) -> Array:
    wide = x.astype(np.float64)
    mean = wide.mean((-3, -2), keepdims=True)
    return ((wide - mean) * factor.item() + mean).astype(x.dtype)


def _hsv(rgb: Array) -> Array:
    """Hue, saturation and value from 0 to 1, of colours from 0 to 1; in double precision."""
    red, green, blue = np.moveaxis(rgb.astype(np.float64), -1, 0)
    value, spread = np.maximum(np.maximum(red, green), blue), np.ptp(rgb.astype(np.float64), -1)
    safe = np.where(spread > 0, spread, 1)
    hue = np.where(
        red == value, (green - blue) / safe, np.where(green == value, 2 + (blue - red) / safe, 4 + (red - green) / safe)
    )
    hue = np.where(spread > 0, hue / 6, 0)
    saturation = np.where(value > 0, spread / np.where(value > 0, value, 1), 0)
    return np.stack([hue + (hue < 0), saturation, value], -1)


def _rgb(hsv: Array) -> Array:
    hue, saturation, value = np.moveaxis(hsv.astype(np.float64), -1, 0)
    six = hue * 6
    parts = [np.clip(part, 0, 1) for part in (abs(six - 3) - 1, 2 - abs(six - 2), 2 - abs(six - 4))]
    return np.stack([(1 + saturation * (part - 1)) * value for part in parts], -1)


@operator("AdjustHue")
def _adjust_hue(x: Array, delta: Array) -> Array:
    hsv = _hsv(x)
    hsv[..., 0] = (hsv[..., 0] + delta.item()) % 1
    return _rgb(hsv).astype(x.dtype)


@operator("AdjustSaturation")
def _adjust_saturation(x: Array, scale: Array) -> Array:
    hsv = _hsv(x)
    hsv[..., 1] = np.clip(hsv[..., 1] * scale.item(), 0, 1)
    return _rgb(hsv).astype(x.dtype)


# Resizing.


def _source_places(count: int, size: int, align_corners: bool, half_pixel_centers: bool) -> Array:
    """The position in the source of each of `size` pixels."""
    if align_corners and size > 1:
        return np.arange(size, dtype=np.int64) * np.float32((count - 1) / (size - 1))
    scale = np.float32(count / size)
    return (
        (np.arange(size, dtype=np.float32) + np.float32(0.5)) * scale - np.float32(0.5)
        if half_pixel_centers
        else (np.arange(size, dtype=np.int64) * scale)
    )


def _linear_weights(places: Array, count: int) -> Array:
    """A matrix that interpolates at places: two weights per row. Places outside the image take its border."""
    lower = np.floor(places)
    fraction = (places - lower).astype(np.float64)
    weights = np.zeros((len(places), count), np.float64)
    rows = np.arange(len(places), dtype=np.int64)
    np.add.at(weights, (rows, np.clip(lower, 0, count - 1).astype(np.intp)), 1 - fraction)
    np.add.at(weights, (rows, np.clip(lower + 1, 0, count - 1).astype(np.intp)), fraction)
    return weights


def _bilinear_weights(shape: Sequence[int], size: Sequence[int], align: bool, centers: bool) -> list[Array]:
    return [_linear_weights(_source_places(n, m, align, centers), n) for n, m in zip(shape[1:3], size)]


@operator("ResizeBilinear")
def _resize_bilinear(x: Array, size: Array, *, align_corners: bool = False, half_pixel_centers: bool = False) -> Array:
    rows, columns = _bilinear_weights(x.shape, ints(size), align_corners, half_pixel_centers)
    return np.einsum("ij,kl,njlc->nikc", rows, columns, x.astype(np.float64), optimize=True).astype(np.float32)


@operator("ResizeBilinearGrad")
def _resize_bilinear_gradient(
    gradient: Array, x: Array, *, align_corners: bool = False, half_pixel_centers: bool = False
) -> Array:
    rows, columns = _bilinear_weights(x.shape, gradient.shape[1:3], align_corners, half_pixel_centers)
    return np.einsum("ij,kl,nikc->njlc", rows, columns, gradient.astype(np.float64), optimize=True).astype(x.dtype)


def _nearest(count: int, size: int, align_corners: bool, half_pixel_centers: bool) -> Array:
    if half_pixel_centers:
        places = np.floor((np.arange(size, dtype=np.float32) + np.float32(0.5)) * np.float32(count / size))
    else:
        places = _source_places(count, size, align_corners, False)
        places = np.floor(places + np.float32(0.5)) if align_corners else np.floor(places)
    return np.clip(places, 0, count - 1).astype(np.intp)


@operator("ResizeNearestNeighbor")
def _resize_nearest(x: Array, size: Array, *, align_corners: bool = False, half_pixel_centers: bool = False) -> Array:
    rows, columns = (_nearest(n, m, align_corners, half_pixel_centers) for n, m in zip(x.shape[1:3], ints(size)))
    return x[:, rows][:, :, columns]


@operator("ResizeNearestNeighborGrad")
def _resize_nearest_gradient(
    gradient: Array, size: Array, *, align_corners: bool = False, half_pixel_centers: bool = False
) -> Array:
    sizes = ints(size)
    rows, columns = (_nearest(n, m, align_corners, half_pixel_centers) for n, m in zip(sizes, gradient.shape[1:3]))
    made = np.zeros((len(gradient), *sizes, gradient.shape[3]), gradient.dtype)
    np.add.at(made, np.ix_(np.arange(len(gradient), dtype=np.int64), rows, columns), gradient)
    return made


def _crop_places(start: float, end: float, size: int, count: int) -> Array:
    low, high = np.float32(start), np.float32(end)
    if size == 1:
        return np.asarray([np.float32(0.5) * (low + high) * np.float32(count - 1)], None)
    scale = (high - low) * np.float32(count - 1) / np.float32(size - 1)
    return low * np.float32(count - 1) + np.arange(size, dtype=np.float32) * scale


@operator("CropAndResize")
def _crop_and_resize(
    x: Array,
    boxes: Array,
    box_indices: Array,
    size: Array,
    *,
    method: bytes = b"bilinear",
    extrapolation_value: float = 0.0,
) -> Array:
    height, width = ints(size)
    made = np.empty((len(boxes), height, width, x.shape[3]), np.float32)
    for crop, (y1, x1, y2, x2), index in zip(made, boxes.tolist(), box_indices.tolist()):
        require(0 <= index < len(x), f"is given image {index}, of {len(x)}")
        rows, columns = _crop_places(y1, y2, height, x.shape[1]), _crop_places(x1, x2, width, x.shape[2])
        crop[...] = _sampled(x[index].astype(np.float64), rows, columns, method)
        crop[(rows < 0) | (rows > x.shape[1] - 1)] = extrapolation_value
        crop[:, (columns < 0) | (columns > x.shape[2] - 1)] = extrapolation_value
    return made


def _sampled(image: Array, rows: Array, columns: Array, method: bytes) -> Array:
    if method == b"nearest":
        places = (np.trunc(p + np.copysign(np.float32(0.5), p)) for p in (rows, columns))
        near = [np.clip(p, 0, n - 1).astype(np.intp) for p, n in zip(places, image.shape)]
        return image[np.ix_(*near)]
    weights = [_linear_weights(p, n) for p, n in zip((rows, columns), image.shape)]
    return np.einsum("ij,kl,jlc->ikc", *weights, image, optimize=True)


# Boxes.


NO_SCORE = np.float64(-np.inf)
"""Lowest score that every box exceeds."""


def _overlaps(box: Array, others: Array) -> Array:
    """Intersection over union of corners (y1, x1, y2, x2)."""
    low, high = np.minimum(box[:2], box[2:]), np.maximum(box[:2], box[2:])
    lows, highs = np.minimum(others[:, :2], others[:, 2:]), np.maximum(others[:, :2], others[:, 2:])
    common = np.clip(np.minimum(high, highs) - np.maximum(low, lows), 0, None).prod(1, dtype=None)
    areas, area = (highs - lows).prod(1, dtype=None), (high - low).prod(dtype=None)
    union = areas + area - common
    return np.where((areas > 0) & (area > 0), common / np.where(union > 0, union, 1), 0)


def _suppressed(boxes: Array, scores: Array, limit: Array, overlap: Any, threshold: Any = NO_SCORE) -> Array:
    kept: list[int] = []
    order = np.argsort(-scores, kind="stable")
    for i in order[scores[order] > threshold.item()].tolist():
        if len(kept) < ints(limit)[0] and (_overlaps(boxes[i], boxes[kept]) <= overlap.item()).all():
            kept.append(i)
    return np.asarray(kept, np.int32)


@operator("NonMaxSuppression")
def _non_max_suppression(boxes: Array, scores: Array, limit: Array, *, iou_threshold: float = 0.5) -> Array:
    return _suppressed(boxes, scores, limit, np.float64(iou_threshold))


OPERATORS["NonMaxSuppressionV2"] = OPERATORS["NonMaxSuppressionV3"] = _suppressed


@operator("NonMaxSuppressionV4")
def _non_max_suppression_v4(
    boxes: Array, scores: Array, limit: Array, overlap: Array, threshold: Array, *, pad_to_max_output_size: bool = False
) -> tuple[Array, Array]:
    kept = _suppressed(boxes, scores, limit, overlap, threshold)
    count = np.asarray(len(kept), np.int32)
    return (np.pad(kept, (0, ints(limit)[0] - len(kept))) if pad_to_max_output_size else kept), count


# Projections.


def _projected(x: Array, transforms: Array, size: Sequence[int], method: bytes, value: float) -> Array:
    height, width = size
    rows, columns = np.meshgrid(np.arange(height, dtype=np.int64), np.arange(width, dtype=np.int64), indexing="ij")
    made = np.empty((len(x), height, width, x.shape[3]), x.dtype)
    for i, image in enumerate(x):
        a0, a1, a2, b0, b1, b2, c0, c1 = transforms[i if len(transforms) > 1 else 0].astype(np.float64)
        scale = c0 * columns + c1 * rows + 1
        across, down = ((a0 * columns + a1 * rows + a2) / scale, (b0 * columns + b1 * rows + b2) / scale)
        made[i] = _filled(image, down, across, method, value)
    return made


def _filled(image: Array, down: Array, across: Array, method: bytes, value: float) -> Array:
    def at(row: Array, column: Array) -> Array:
        inside = (row >= 0) & (row < image.shape[0]) & (column >= 0) & (column < image.shape[1])
        pixels = image[np.where(inside, row, 0).astype(np.intp), np.where(inside, column, 0).astype(np.intp)]
        return np.where(inside[..., np.newaxis], pixels, value)

    if method == b"NEAREST":
        return at(*(np.trunc(place + np.copysign(0.5, place)) for place in (down, across)))
    top, left = np.floor(down), np.floor(across)
    y, x = (down - top)[..., np.newaxis], (across - left)[..., np.newaxis]
    upper = (1 - x) * at(top, left) + x * at(top, left + 1)
    lower = (1 - x) * at(top + 1, left) + x * at(top + 1, left + 1)
    return (1 - y) * upper + y * lower


@operator("ImageProjectiveTransformV2", "ImageProjectiveTransformV3")
def _image_projective_transform(
    x: Array,
    transforms: Array,
    size: Array,
    fill_value: Any = None,
    *,
    interpolation: bytes,
    fill_mode: bytes = b"CONSTANT",
) -> Array:
    require(fill_mode == b"CONSTANT", "fills with a constant only")
    value = 0.0 if fill_value is None else float(np.asarray(fill_value, None))
    return _projected(x, transforms, ints(size), interpolation, value)
