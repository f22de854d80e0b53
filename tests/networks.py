"""Well-known image networks with random weights, for memory plans: their answers mean nothing."""

from __future__ import annotations

from image_graphs import Images

import tflm
from tflm.schema import BuiltinOperator, ModelBuilder, Padding

STAGES = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
"""Of MobileNetV2: the expansion, channels, blocks and stride of the first block."""


def mobilenet_v2(size: int, share: int = 1) -> tflm.Model:
    """Return MobileNetV2 for square images of this size, with this fraction of its channels, up to its last pool."""
    builder = ModelBuilder()
    images = Images(builder.subgraph(), (1, size, size, 3))
    x = images.convolution(images.last, 32 // share, strides=(2, 2))
    for expansion, channels, blocks, stride in STAGES:
        for block in range(blocks):
            before, strides = x, (stride, stride) if block == 0 else (1, 1)
            if expansion > 1:
                x = images.convolution(x, images.shapes[x][3] * expansion, taps=(1, 1))
            x = images.convolution(x, strides=strides)
            x = images.convolution(x, channels // share, taps=(1, 1))
            x = images.add(before, x) if images.shapes[before] == images.shapes[x] else x
    x = images.convolution(x, 1280 // share, taps=(1, 1))
    return _pooled(builder, images, x)


def resnet(size: int, channels: int = 64) -> tflm.Model:
    """ResNet-18 of images of that height and width, with these channels in its first blocks, down to its last pool."""
    builder = ModelBuilder()
    images = Images(builder.subgraph(), (1, size, size, 3))
    x = images.convolution(images.last, channels, taps=(7, 7), strides=(2, 2))
    x = images.pool(x, BuiltinOperator.MAX_POOL_2D, (3, 3), (2, 2), Padding.SAME)
    for stage in range(4):
        for block in range(2):
            strides = (2, 2) if stage and not block else (1, 1)
            y = images.convolution(x, channels << stage, strides=strides)
            y = images.convolution(y, channels << stage)
            beside = x if strides == (1, 1) else images.convolution(x, channels << stage, (1, 1), strides)
            x = images.add(beside, y)
    return _pooled(builder, images, x)


def branches(size: int) -> tflm.Model:
    """Convolutions of one image, of which later ones join several."""
    builder = ModelBuilder()
    images = Images(builder.subgraph(), (1, size, size, 3))
    x = images.convolution(images.last, 8, strides=(2, 2))
    first, second = images.convolution(x, 8), images.convolution(x, 8, taps=(1, 1))
    joined = images.add(first, second)
    y = images.convolution(images.beside(joined, joined), 8)
    images.main.output(images.convolution(images.add(x, y), 4, strides=(2, 2)))
    return tflm.Model(builder.build())


def _pooled(builder: ModelBuilder, images: Images, x: int) -> tflm.Model:
    _, height, width, _ = images.shapes[x]
    pooled = images.pool(x, BuiltinOperator.AVERAGE_POOL_2D, (height, width), (1, 1), Padding.VALID)
    images.main.output(pooled)
    return tflm.Model(builder.build())
