"""Images: inputs of layers as tiles take them, with a border around, in the host's own memory."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tflm.delegates.compiled.language import DONE, Int8s, Int16s, Int32s, Kernel, Step, UInt8s, kernel
from tflm.delegates.compiled.processor import processor
from tflm.delegates.compiled.tiles import copy_flipped

SLACK = 512
"""Bytes behind an image that tiles may read, and multiply by 0."""

ALIGNMENT = 64


def aligned(shape: Sequence[int], dtype: npt.DTypeLike, slack: int = 0) -> npt.NDArray[Any]:
    """An array of zeros that begins at a multiple of 64 bytes, with bytes behind it that may be read."""
    kind: np.dtype[Any] = np.dtype(dtype)
    size = math.prod(shape) * kind.itemsize
    memory = np.zeros(size + slack + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    return memory[start : start + size].view(kind).reshape(shape)


@kernel
def fill_bytes(
    x: UInt8s,
    image: UInt8s,
    n0: int,
    n1: int,
    n2: int,
    count: int,
    copies: int,
    x0: int,
    x1: int,
    x2: int,
    image0: int,
    image1: int,
    image2: int,
    flip: int,
    zero_point: int,
) -> int:
    """image[i, j, k, c, copies] = (x[i, j, k, c] ^ flip) - zero_point, given the strides of i, j and k in elements."""
    for i in range(n0):
        for j in range(n1):
            for k in range(n2):
                source = i * x0 + j * x1 + k * x2
                target = i * image0 + j * image1 + k * image2
                if copies == 1:
                    for c in range(count):
                        image[target + c] = (x[source + c] ^ flip) - zero_point
                else:
                    for c in range(count):
                        for copy in range(copies):
                            image[target + c * copies + copy] = (x[source + c] ^ flip) - zero_point
    return DONE


fill_words_from_bytes = fill_bytes.variant("fill_words_from_bytes", x=Int8s, image=Int16s)
fill_words = fill_bytes.variant("fill_words", x=Int16s, image=Int16s)
fill_floats = fill_bytes.variant("fill_floats", x=Int32s, image=Int32s)


class Image(NamedTuple):
    """How elements of an input are held.

    Attributes:
        unit: of the tiles that take it: "bytes", "pairs" or "float".
        x_dtype, dtype: of the input and of the image, float32 as int32, which it is copied as.
        border: what stands for zero, in the image.
        flip, zero_point: how an element of the input becomes one of the image.
        kernel: what fills it.
    """

    unit: str
    x_dtype: np.dtype[Any]
    dtype: np.dtype[Any]
    border: int
    flip: int
    zero_point: int
    kernel: Kernel

    @property
    def is_copy(self) -> bool:
        """Whether elements are as they are in the input."""
        return self.x_dtype == self.dtype and not self.flip and not self.zero_point

    def filled(
        self,
        x: npt.NDArray[Any],
        image: npt.NDArray[Any],
        copies: int = 1,
    ) -> Step:
        """What fills `image` (or a view of it), where the last dimension has each element of x `copies` times.

        Both have the same three dimensions before the last, which is contiguous.
        """
        source, target = x.view(self.x_dtype), image
        shape, strides = list(source.shape), []
        for array in (source, target):
            strides.append([stride // array.itemsize for stride in array.strides[:3]])
        # Dimensions that follow each other without a gap are one.
        while (copies == 1 and shape[2] > 1 and strides[0][2] == strides[1][2] == shape[3]) or (
            copies == 1 and shape[2] == 1 and shape[1] > 1 and strides[0][1] == strides[1][1] == shape[3]
        ):
            shape = [1, shape[0], shape[1], shape[2] * shape[3]]
            strides = [[0, of[0], of[1]] for of in strides]
        names = [f"{of}{i}" for of in ("x", "image") for i in range(3)]
        if copies == 1 and self.x_dtype == self.dtype and not self.zero_point:
            size = self.dtype.itemsize
            in_bytes = (step * size for of in strides for step in of)
            return copy_flipped.step(
                x=source,
                image=target,
                n0=shape[0],
                n1=shape[1],
                n2=shape[2],
                count=shape[3] * size,
                flip=int.from_bytes(bytes([self.flip] * 8), "little", signed=True),
                **dict(zip(names, in_bytes)),
            )
        return self.kernel.step(
            x=source,
            image=target,
            n0=shape[0],
            n1=shape[1],
            n2=shape[2],
            count=shape[3],
            copies=copies,
            flip=self.flip,
            zero_point=self.zero_point,
            **dict(zip(names, strides[0] + strides[1])),
        )


def image_of(x_dtype: np.dtype[Any], zero_point: int, *, bytes_allowed: bool) -> Image:
    """How an input is held.

    Args:
        zero_point: of an integer input.
        bytes_allowed: whether the weights have 8 bits.
    """
    byte, word, dword = (np.dtype(of) for of in (np.int8, np.int16, np.int32))
    if x_dtype == np.float32:
        return Image("float", dword, dword, 0, 0, 0, fill_floats)
    if x_dtype == np.int16:
        return Image("pairs", word, word, zero_point, 0, 0, fill_words)
    if bytes_allowed and processor().has_dot_product:
        unsigned = np.dtype(np.uint8)
        return Image("bytes", unsigned, unsigned, zero_point + 128, 128, 0, fill_bytes)
    return Image("pairs", byte, word, 0, 0, zero_point, fill_words_from_bytes)
