"""Trains a network of three dense layers on the sine and writes it as a float32 and as an int8 model.

Every run gives the same bytes, on every machine: training uses only elementwise float64 arithmetic, which IEEE 754
defines to the last bit, in an order that is written out here. A matrix product of numpy's adds up in an order that
depends on the machine, and training would blow such differences up into other weights.
"""

from __future__ import annotations

import argparse
import itertools
import math
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from hello_world import HERE, Reals, at_least, load, predict

import tflm
from tflm.schema import (
    ActivationFunctionType,
    BuiltinOperator,
    FullyConnectedOptions,
    QuantizationParameters,
    TensorType,
)

UNITS = (1, 16, 16, 1)
TRAINING_POINTS = 256  # a power of two, see `ordered_sum`
CHECK_POINTS = 1001
ARENA_BYTES = 4096
SEED = 10
LEARNING_RATE = 0.01
MOMENTUM, SQUARES_MOMENTUM = 0.9, 0.999
FULLY_CONNECTED_VERSIONS = {TensorType.FLOAT32: 1, TensorType.INT8: 4}  # the first to know the type


@dataclass
class Dense:
    """A layer in float64: weights of shape (rows, depth) and bias of shape (rows,)."""

    weights: Reals
    bias: Reals
    activation: ActivationFunctionType


@dataclass(frozen=True)
class StoredDense:
    """A layer as a model stores it: float32 without quantization, or int8 weights and int32 bias with it."""

    weights: npt.NDArray[np.float32] | npt.NDArray[np.int8]
    bias: npt.NDArray[np.float32] | npt.NDArray[np.int32]
    activation: ActivationFunctionType
    weights_quantization: QuantizationParameters | None = None
    bias_quantization: QuantizationParameters | None = None
    output_quantization: QuantizationParameters | None = None


def ordered_sum(terms: Reals) -> Reals:
    """The sum over axis 0, whose length must be a power of two: halves are added until one term is left."""
    while len(terms) > 1:
        half = len(terms) // 2
        terms = terms[:half] + terms[half:]
    return terms.reshape(terms.shape[1:])


def product(a: Reals, b: Reals) -> Reals:
    """The matrix product of (n, k) and (k, m), for k a power of two."""
    return ordered_sum(a.T[:, :, None] * b[:, None, :])


def initial_layers() -> list[Dense]:
    """Random layers of `UNITS`, RELU on all but the last. The bends of the first one are spread over 0..2*pi."""
    random = np.random.RandomState(SEED)  # numpy keeps the numbers of this one the same for ever
    layers = []
    for depth, rows in itertools.pairwise(UNITS):
        limit = math.sqrt(6 / depth) if depth > 1 else 1.0
        weights = (2 * random.random_sample((rows, depth)) - 1) * limit
        bias = -weights[:, 0] * (2 * math.pi) * random.random_sample(rows) if depth == 1 else np.zeros(rows)
        layers.append(Dense(weights, bias, ActivationFunctionType.RELU))
    layers[-1].activation = ActivationFunctionType.NONE
    return layers


def forward(layers: list[Dense], x: Reals) -> list[Reals]:
    """The input of shape (points, 1), and the output of each layer, of shape (points, rows)."""
    values = [x]
    for layer in layers:
        sums = product(values[-1], layer.weights.T) + layer.bias
        values.append(np.maximum(sums, 0.0) if layer.activation is ActivationFunctionType.RELU else sums)
    return values


def gradients(layers: list[Dense], values: list[Reals], errors: Reals) -> list[Reals]:
    """Derivatives of the mean squared error by each weights and bias, shaped like them, in the order of the layers.

    Args:
        values: what `forward` gave.
        errors: output minus target, of shape (points, 1).
    """
    result: list[Reals] = []
    delta = errors * (2 / len(errors))
    for layer, inputs, outputs in reversed(list(zip(layers, values, values[1:]))):
        if layer.activation is ActivationFunctionType.RELU:
            delta = delta * (outputs > 0)
        result = [product(delta.T, inputs), ordered_sum(delta), *result]
        delta = product(delta, layer.weights)
    return result


class Adam:
    """The Adam optimizer; changes `parameters` in place."""

    def __init__(self, parameters: list[Reals]):
        self.parameters = parameters
        self.means = [np.zeros_like(p) for p in parameters]
        self.squares = [np.zeros_like(p) for p in parameters]
        self.mean_decay = self.square_decay = 1.0

    def step(self, gradients: list[Reals], learning_rate: float) -> None:
        """Go one step down the gradients, which are shaped like the parameters."""
        self.mean_decay *= MOMENTUM
        self.square_decay *= SQUARES_MOMENTUM
        for parameter, gradient, mean, square in zip(self.parameters, gradients, self.means, self.squares):
            mean += (1 - MOMENTUM) * (gradient - mean)
            square += (1 - SQUARES_MOMENTUM) * (gradient * gradient - square)
            root = np.sqrt(square / (1 - self.square_decay)) + 1e-8
            parameter -= learning_rate * (mean / (1 - self.mean_decay)) / root


def train(epochs: int) -> list[Dense]:
    """Layers fitted to the sine over 0..2*pi, after `epochs` steps over all points with a falling learning rate."""
    layers = initial_layers()
    optimizer = Adam([array for layer in layers for array in (layer.weights, layer.bias)])
    x = np.linspace(0, 2 * math.pi, TRAINING_POINTS)[:, None]
    # Sines may differ in the last bit from one machine to the next; rounded to 2^-20 they do not.
    target = np.rint(np.sin(x) * 2**20) / 2**20
    for epoch in range(epochs):
        values = forward(layers, x)
        errors = values[-1] - target
        if epoch % max(1, epochs // 6) == 0 or epoch == epochs - 1:
            print(f"epoch {epoch + 1:5}: mean squared error {np.mean(errors * errors):.6f}")
        optimizer.step(gradients(layers, values, errors), LEARNING_RATE * (1 - epoch / epochs))
    return layers


def as_float32(layers: list[Dense]) -> list[StoredDense]:
    """The layers in float32."""
    return [StoredDense(d.weights.astype(np.float32), d.bias.astype(np.float32), d.activation) for d in layers]


def activation_quantization(values: Reals) -> tuple[float, int]:
    """Scale and zero point of the asymmetric int8 quantization that spans `values`, of any shape, and 0."""
    low, high = min(float(values.min()), 0.0), max(float(values.max()), 0.0)
    scale = float(np.float32((high - low) / 255))
    return scale, round(-128 - low / scale)


def quantize_layer(layer: Dense, input_scale: float, output_scale: float, output_zero_point: int) -> StoredDense:
    """The layer with symmetric int8 weights, and an int32 bias at the scale of the products.

    Args:
        layer: what to quantize.
        input_scale: scale of the int8 input.
        output_scale, output_zero_point: quantization of the int8 output.
    """
    weights_scale = float(np.float32(np.abs(layer.weights).max() / 127))
    bias_scale = float(np.float32(input_scale * weights_scale))
    return StoredDense(
        np.rint(layer.weights / weights_scale).clip(-127, 127).astype(np.int8),
        np.rint(layer.bias / bias_scale).astype(np.int32),
        layer.activation,
        tflm.quantized(weights_scale),
        tflm.quantized(bias_scale),
        tflm.quantized(output_scale, output_zero_point),
    )


def quantize(layers: list[Dense]) -> tuple[QuantizationParameters, list[StoredDense]]:
    """Quantization of the model's input, and the layers in int8, from the ranges on a calibration set."""
    values = forward(layers, np.linspace(0, 2 * math.pi, CHECK_POINTS)[:, None])
    quantizations = [activation_quantization(v) for v in values]
    stored = [
        quantize_layer(layer, input_scale, *output)
        for layer, (input_scale, _), output in zip(layers, quantizations, quantizations[1:])
    ]
    return tflm.quantized(*quantizations[0]), stored


def build(
    description: str, type: TensorType, input_quantization: QuantizationParameters | None, layers: list[StoredDense]
) -> bytes:
    """The bytes of a model that runs `layers` one after the other, its activations of `type`."""
    builder = tflm.ModelBuilder(description)
    main = builder.subgraph()
    x = tensor = main.input("x", (1, UNITS[0]), type, input_quantization)
    for name, layer in zip(("hidden_1", "hidden_2", "sine"), layers):
        weights = main.constant(f"{name}/weights", layer.weights, layer.weights_quantization)
        bias = main.constant(f"{name}/bias", layer.bias, layer.bias_quantization)
        output = main.tensor(name, (1, len(layer.bias)), type, layer.output_quantization)
        main.operator(
            BuiltinOperator.FULLY_CONNECTED,
            [tensor, weights, bias],
            [output],
            FullyConnectedOptions(fused_activation_function=layer.activation),
            version=FULLY_CONNECTED_VERSIONS[type],
        )
        tensor = output
    main.output(tensor)
    builder.signature("serving_default", {"x": x}, {"sine": tensor})
    return builder.build()


def write(path: Path, data: bytes) -> None:
    """Write a model, run it over 0..2*pi, and print its size in bytes and its worst absolute error."""
    path.write_bytes(data)
    x = np.linspace(0, 2 * math.pi, CHECK_POINTS)
    worst = np.abs(predict(load(path, ARENA_BYTES), x) - np.sin(x)).max()
    print(f"{path.name}: {len(data)} bytes, worst error {worst:.4f} over {CHECK_POINTS} points")


def parse_arguments() -> argparse.Namespace:
    """The options; bad ones end the program with status 2."""
    parser = argparse.ArgumentParser(description="Trains a model of the sine; writes it in float32 and in int8.")
    parser.add_argument("--out", type=Path, default=HERE, metavar="DIR", help="folder for the models (this script's)")
    parser.add_argument("--epochs", type=at_least(1), default=3000, metavar="N", help="steps of training (3000)")
    return parser.parse_args()


def main() -> None:
    """Run the program as its options say; an error ends it with one line and status 1."""
    options = parse_arguments()
    try:
        options.out.mkdir(parents=True, exist_ok=True)
        layers = train(options.epochs)
        float_model = build("sine of x in radians, float32", TensorType.FLOAT32, None, as_float32(layers))
        write(options.out / "hello_world_float.tflite", float_model)
        int8_model = build("sine of x in radians, int8", TensorType.INT8, *quantize(layers))
        write(options.out / "hello_world_int8.tflite", int8_model)
    except (tflm.TflmError, OSError) as error:
        sys.exit(f"train.py: {error}")


if __name__ == "__main__":
    main()
