"""Runs a model of the sine over 0..2*pi in a fixed arena, and shows what it answers and what the arena holds."""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt

import tflm

HERE = Path(__file__).resolve().parent
COLUMNS, ROWS = 70, 17
PREDICTED, TRUE = "o", "."

Reals = npt.NDArray[np.float64]


def load(path: Path, arena_bytes: int) -> tflm.MicroInterpreter:
    """An interpreter with the model at `path` placed in an arena of `arena_bytes` bytes, ready to run.

    Raises:
        tflm.TflmError: the model is broken, does not map one number to one number, or does not fit.
        OSError: the file can't be read.
    """
    resolver = tflm.MicroMutableOpResolver(1)
    resolver.add_fully_connected()
    interpreter = tflm.MicroInterpreter(tflm.Model.from_file(path), resolver, bytearray(arena_bytes))
    interpreter.allocate_tensors()
    for tensor in (interpreter.input(0), interpreter.output(0)):
        if tensor.data.size != 1:
            raise tflm.TensorError(f"{tensor.name!r} has shape {list(tensor.dims)}, a model of the sine has one number")
    return interpreter


def predict(interpreter: tflm.MicroInterpreter, angles: Reals) -> Reals:
    """What the model answers to `angles` in radians, one invoke for each; both float64 of shape (points,)."""
    input, output = interpreter.input(0), interpreter.output(0)
    answers = np.empty(len(angles))
    for i, angle in enumerate(angles):
        input.data[:] = input.quantized(angle)
        interpreter.invoke()
        answers[i] = output.dequantized().item()
    return answers


def print_table(angles: Reals, predicted: Reals) -> None:
    """One line for each angle, in radians, and the worst absolute error; both arrays of shape (points,)."""
    errors = predicted - np.sin(angles)
    print("x (radians)  predicted   sin(x)    error")
    rows = np.stack([angles, predicted, np.sin(angles), errors], axis=1).round(4) + 0.0  # which makes 0 of -0
    for angle, answer, sine, error in rows:
        print(f"{angle:11.4f}  {answer:9.4f}  {sine:7.4f}  {error:+7.4f}")
    print(f"worst error: {np.abs(errors).max():.4f}")


def print_arena(interpreter: tflm.MicroInterpreter, arena_bytes: int) -> None:
    """How the arena's `arena_bytes` bytes are used: head, tail, and the buffers planned in the head."""
    print(f"arena: {interpreter.arena_used_bytes()} of {arena_bytes} bytes used")
    print(f"  head: {interpreter.head_bytes} bytes, the tensors that the operators read and write")
    print(f"  tail: {interpreter.tail_bytes} bytes, the runtime's own structures")
    print("planned in the head (step 0 fills the input, each operator is one more):")
    print("  offset (bytes)  size (bytes)  steps in use  buffer")
    for buffer in interpreter.planned_buffers():
        steps = f"{buffer.first_use}..{buffer.last_use}"
        print(f"  {buffer.offset:14}  {buffer.bytes:12}  {steps:>12}  {buffer.name}")


def draw(angles: Reals, predicted: Reals) -> list[str]:
    """The curve as lines of text: the sine in every column, the predictions, of shape (points,), on top of it."""
    grid = [[" "] * COLUMNS for _ in range(ROWS)]
    columns = np.linspace(0, 2 * math.pi, COLUMNS)
    for mark, xs, ys in ((TRUE, columns, np.sin(columns)), (PREDICTED, angles, predicted)):
        for x, y in zip(xs, ys):
            column = round(x / (2 * math.pi) * (COLUMNS - 1))
            row = round((1 - max(-1.0, min(1.0, y))) / 2 * (ROWS - 1))
            grid[row][column] = mark
    labels = {0: "+1", ROWS // 2: " 0", ROWS - 1: "-1"}
    lines = [f"{labels.get(row, ''):2} |{''.join(cells).rstrip()}" for row, cells in enumerate(grid)]
    scale = "0" + "pi".center(COLUMNS - 5) + "2*pi"
    return [*lines, f"   +{'-' * COLUMNS}", f"    {scale}", f"    {PREDICTED} predicted   {TRUE} sin(x)   x in radians"]


def save_plot(path: Path, angles: Reals, predicted: Reals) -> None:
    """Write the curve as a picture, in the format that the name of `path` ends in; arrays of shape (points,)."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        sys.exit("hello_world.py: --plot needs matplotlib: pip install matplotlib")
    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.add_subplot()
    smooth = np.linspace(0, 2 * math.pi, 500)
    axes.plot(smooth, np.sin(smooth), color="0.6", label="sin(x)")
    axes.plot(angles, predicted, "o", markersize=4, color="tab:red", label="predicted")
    axes.set(xlabel="x (radians)", title="Sine, as the model predicts it")
    axes.set_xticks([i * math.pi / 2 for i in range(5)], ["0", "π/2", "π", "3π/2", "2π"])
    axes.grid(alpha=0.3)
    axes.legend()
    try:
        figure.savefig(path, dpi=150)
    except ValueError as error:
        sys.exit(f"hello_world.py: can't write {path}: {error}")
    print(f"wrote {path}")


def at_least(minimum: int) -> Callable[[str], int]:
    """A type for argparse: a whole number that is not below `minimum`."""

    def whole_number(text: str) -> int:
        number = int(text)
        if number < minimum:
            raise argparse.ArgumentTypeError(f"must be {minimum} or more, not {number}")
        return number

    return whole_number


def parse_arguments() -> argparse.Namespace:
    """The options; bad ones end the program with status 2."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, default=HERE / "hello_world_int8.tflite", help="the int8 one by default")
    parser.add_argument("--points", type=at_least(2), default=25, metavar="N", help="angles to ask for (25)")
    parser.add_argument("--arena-bytes", type=at_least(1), default=2048, metavar="N", help="size of the arena (2048)")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw the curve into a picture, such as out.png")
    return parser.parse_args()


def main() -> None:
    """Run the program as its options say; an error ends it with one line and status 1."""
    options = parse_arguments()
    angles = np.linspace(0, 2 * math.pi, options.points)
    try:
        interpreter = load(options.model, options.arena_bytes)
        predicted = predict(interpreter, angles)
        print_table(angles, predicted)
        print()
        print_arena(interpreter, options.arena_bytes)
        print()
        print("\n".join(draw(angles, predicted)))
        if options.plot:
            save_plot(options.plot, angles, predicted)
    except (tflm.TflmError, OSError) as error:
        sys.exit(f"hello_world.py: {error}")


if __name__ == "__main__":
    main()
