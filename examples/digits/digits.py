"""Trains a small network on scikit-learn's digits with numpy, quantizes it, and compares both with `tflm.evaluate`.

    python examples/digits/digits.py [FOLDER]

FOLDER (by default `build/digits`) gets `digits_float.tflite`, `digits_int8.tflite`, `digits.npz`, the confusion matrix
and the worst samples as pictures.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.datasets import load_digits

import tflm
from tflm.evaluation.pictures import write_confusion, write_worst
from tflm.evaluation.samples import data_set
from tflm.schema import ActivationFunctionType, BuiltinOperator, FullyConnectedOptions, TensorType

Array = npt.NDArray[Any]
HIDDEN = 32
RELU = FullyConnectedOptions(fused_activation_function=ActivationFunctionType.RELU)
PLAIN = FullyConnectedOptions()


def digits() -> tuple[Array, Array, Array, Array]:
    """Images (count, 64) from 0 to 1 and their labels: for training, then for the test."""
    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(images))
    images, labels = (images[order] / 16).astype(np.float32), labels[order]
    return images[:1200], labels[:1200], images[1200:], labels[1200:]


def train(images: Array, labels: Array, epochs: int = 60) -> list[tuple[Array, Array]]:
    """Weights (rows, depth) and biases of two layers, by gradient descent on the cross entropy."""
    rng = np.random.default_rng(1)
    shapes = ((HIDDEN, images.shape[1]), (10, HIDDEN))
    layers = [[rng.normal(0, np.sqrt(2 / shape[1]), shape), np.zeros(shape[0])] for shape in shapes]
    for epoch in range(epochs):
        rate = 0.2 * (1 - epoch / epochs)
        for batch in np.array_split(rng.permutation(len(images)), len(images) // 32):
            x, wanted = images[batch], np.eye(10)[labels[batch]]
            hidden = np.maximum(x @ layers[0][0].T + layers[0][1], 0)
            scores = hidden @ layers[1][0].T + layers[1][1]
            likely = np.exp(scores - scores.max(axis=1, keepdims=True))
            error = (likely / likely.sum(axis=1, keepdims=True) - wanted) / len(batch)
            back = (error @ layers[1][0]) * (hidden > 0)
            for layer, grad, seen in ((layers[1], error, hidden), (layers[0], back, x)):
                layer[0] -= rate * grad.T @ seen
                layer[1] -= rate * grad.sum(axis=0)
    return [(weights.astype(np.float32), bias.astype(np.float32)) for weights, bias in layers]


def float_model(layers: list[tuple[Array, Array]]) -> bytes:
    """The network as it was trained."""
    builder = tflm.ModelBuilder("digits, in float")
    main = builder.subgraph()
    tensor = main.input("image", (1, 64), TensorType.FLOAT32)
    for name, (weights, bias), options in zip(("hidden", "scores"), layers, (RELU, PLAIN)):
        inputs = [tensor, main.constant(f"{name}/weights", weights), main.constant(f"{name}/bias", bias)]
        tensor = main.tensor(name, (1, len(weights)), TensorType.FLOAT32)
        main.operator(BuiltinOperator.FULLY_CONNECTED, inputs, [tensor], options)
    main.output(tensor)
    return builder.build()


def int8_model(layers: list[tuple[Array, Array]], images: Array) -> bytes:
    """The same with integers of 8 bits; the range of each tensor is the one that these images lead to."""
    builder = tflm.ModelBuilder("digits, in int8")
    main = builder.subgraph()
    scale, zero_point = 1 / 255, -128
    tensor = main.input("image", (1, 64), TensorType.INT8, tflm.quantized(scale, zero_point))
    values = images
    for name, (weights, bias), options in zip(("hidden", "scores"), layers, (RELU, PLAIN)):
        rows = np.abs(weights).max(axis=1) / 127
        integers = np.clip(np.round(weights / rows[:, None]), -127, 127).astype(np.int8)
        w = main.constant(f"{name}/weights", integers, tflm.quantized(rows))
        b = main.constant(
            f"{name}/bias", np.round(bias / (scale * rows)).astype(np.int32), tflm.quantized(scale * rows)
        )
        values = values @ weights.T + bias
        values = np.maximum(values, 0) if options is RELU else values
        scale = float(values.max() - min(values.min(), 0)) / 255
        zero_point = int(np.round(-128 - min(float(values.min()), 0) / scale))
        output = main.tensor(name, (1, len(weights)), TensorType.INT8, tflm.quantized(scale, zero_point))
        main.operator(BuiltinOperator.FULLY_CONNECTED, [tensor, w, b], [output], options)
        tensor = output
    main.output(tensor)
    return builder.build()


def main() -> None:
    """Train, quantize, evaluate, draw."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path("build/digits")
    folder.mkdir(parents=True, exist_ok=True)
    images, labels, test_images, test_labels = digits()
    layers = train(images, labels)
    written = {"digits_float": float_model(layers), "digits_int8": int8_model(layers, images)}
    for name, data in written.items():
        (folder / f"{name}.tflite").write_bytes(data)
    np.savez(folder / "digits.npz", images=test_images, labels=test_labels)
    in_float, in_int8 = (tflm.Model(data) for data in written.values())
    before = tflm.evaluate(in_float, test_images, test_labels)
    after = tflm.evaluate(in_int8, test_images, test_labels, reference=in_float)
    print(f"accuracy in float {before.accuracy:.4f}, in int8 {after.accuracy:.4f}")
    for table in after.tables():
        print("", table.title, table.markdown(), sep="\n")
    write_confusion(folder / "confusion.png", after)
    write_worst(folder / "worst", after, data_set(test_images, test_labels), in_int8)
    print(f"\npictures are in {folder}")


if __name__ == "__main__":
    main()
