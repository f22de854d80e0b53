"""Images: padded copies of layer inputs in the layout of tiles, in host memory."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tflm.compiler.language import DONE, Elements, Int64s, Step, kernel
from tflm.compiler.processor import processor
from tflm.delegates.compiled.tiles import copy_flipped
from tflm.kernels.layers.geometry import Axis

SLACK = 512
"""Number of bytes after an image that tiles may read (and multiply by 0)."""

ALIGNMENT = 64


def aligned(shape: Sequence[int], dtype: npt.DTypeLike, slack: int = 0) -> npt.NDArray[Any]:
    """Return an array of zeros, aligned to 64 bytes, followed by `slack` bytes that may be read."""
    kind: np.dtype[Any] = np.dtype(dtype)
    size = math.prod(shape) * kind.itemsize
    memory = np.zeros(size + slack + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    return memory[start : start + size].view(kind).reshape(shape)


@kernel
def fill_image(x: Elements, image: Elements, sizes: Int64s, copies: int, flip: int, zero_point: int) -> int:
    """image[i, j, k, c, copies] = (x[i, j, k, c] ^ flip) - zero_point.

    Args:
        sizes: sizes of i, j, k and c; then the strides of i, j and k in x, and in image, in elements.
    """
    count = sizes[3]
    for i in range(sizes[0]):
        for j in range(sizes[1]):
            for k in range(sizes[2]):
                source = i * sizes[4] + j * sizes[5] + k * sizes[6]
                target = i * sizes[7] + j * sizes[8] + k * sizes[9]
                if copies == 1:
                    for c in range(count):
                        image[target + c] = (x[source + c] ^ flip) - zero_point
                else:
                    for c in range(count):
                        for copy in range(copies):
                            image[target + c * copies + copy] = (x[source + c] ^ flip) - zero_point
    return DONE


class Image(NamedTuple):
    """The layout of a padded input.

    Attributes:
        unit: unit of the tiles that read it: "bytes", "pairs" or "float".
        x_dtype, dtype: types of the input and of the image. A float32 is copied as int32.
        border: the value in the image that stands for zero.
        flip, zero_point: an element of the image is (input ^ flip) - zero_point.
    """

    unit: str
    x_dtype: np.dtype[Any]
    dtype: np.dtype[Any]
    border: int
    flip: int
    zero_point: int

    @property
    def is_copy(self) -> bool:
        """Whether the elements are the same as those of the input."""
        return self.x_dtype == self.dtype and not self.flip and not self.zero_point

    @property
    def unflipped(self) -> Image:
        """Return the same layout before bytes become unsigned, which is that of the input."""
        return self._replace(dtype=self.x_dtype, flip=0) if self.flip else self

    def filled(self, x: npt.NDArray[Any], image: npt.NDArray[Any], copies: int) -> Step:
        """The step that fills `image` (or a view of it) with each element of x `copies` times in the last dimension.

        Both have the same three dimensions before the last, which is contiguous.
        """
        source = x.view(self.x_dtype)
        shape = list(source.shape)
        strides = [[stride // array.itemsize for stride in array.strides[:3]] for array in (source, image)]
        # Merge contiguous dimensions.
        while (copies == 1 and shape[2] > 1 and strides[0][2] == strides[1][2] == shape[3]) or (
            copies == 1 and shape[2] == 1 and shape[1] > 1 and strides[0][1] == strides[1][1] == shape[3]
        ):
            shape = [1, shape[0], shape[1], shape[2] * shape[3]]
            strides = [[0, *steps[:2]] for steps in strides]
        steps = strides[0] + strides[1]
        if copies > 1 or self.x_dtype != self.dtype or self.zero_point:
            sizes = np.array([*shape, *steps], np.int64)
            how = {"copies": copies, "flip": self.flip, "zero_point": self.zero_point}
            return fill_image.step(x=source, image=image, sizes=sizes, **how)
        size = self.dtype.itemsize
        in_bytes = [*shape[:3], shape[3] * size, *(step * size for step in steps)]
        names = ("n0", "n1", "n2", "count", "x0", "x1", "x2", "image0", "image1", "image2")
        flip = int.from_bytes(bytes([self.flip] * 8), "little", signed=True)
        return copy_flipped.step(x=source, image=image, flip=flip, **dict(zip(names, in_bytes)))

    def padded(
        self, x: npt.NDArray[Any], rows: Axis, columns: Axis, channels: int
    ) -> tuple[list[Step], npt.NDArray[Any]]:
        """Return the steps that fill the image of x (batches, rows, columns, depth) with its padding, and the image.

        Args:
            rows, columns: the windows that read it.
            channels: number of channels of the image, a multiple of the depth.
        """
        shape = len(x), rows.stop - rows.start, columns.stop - columns.start, channels
        held = aligned(shape, self.dtype, SLACK)
        held[...] = self.border
        (y0, y1), (x0, x1) = ((max(axis.start, 0), max(min(axis.stop, axis.size), 0)) for axis in (rows, columns))
        inside = held[:, y0 - rows.start : y1 - rows.start, x0 - columns.start : x1 - columns.start]
        return [self.filled(x[:, y0:y1, x0:x1], inside, channels // x.shape[3])] if inside.size else [], held


def image_of(x_dtype: np.dtype[Any], zero_point: int, *, bytes_allowed: bool) -> Image:
    """Return the layout of an input in an image.

    Args:
        zero_point: zero point of an integer input.
        bytes_allowed: whether the weights have 8 bits.
    """
    byte, word, dword = (np.dtype(type) for type in (np.int8, np.int16, np.int32))
    if x_dtype == np.float32:
        return Image("float", dword, dword, 0, 0, 0)
    if x_dtype == np.int16:
        return Image("pairs", word, word, zero_point, 0, 0)
    if bytes_allowed and processor().has_dot_product:
        if processor().is_arm64:
            return Image("bytes", byte, byte, zero_point, 0, 0)
        unsigned = np.dtype(np.uint8)
        return Image("bytes", unsigned, unsigned, zero_point + 128, 128, 0)
    return Image("pairs", byte, word, 0, 0, zero_point)
