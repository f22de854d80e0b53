"""`tflm run`: what a model answers."""

from __future__ import annotations

import itertools
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import typer

import tflm
from tflm.cli.command_line import (
    AsJson,
    CommandError,
    ModelPath,
    TargetName,
    console,
    load_model,
    print_json,
    progress,
    table,
    target_from,
)
from tflm.memory.tensor import TfLiteTensor

Arrays = list[npt.NDArray[Any]]

FIRST_ARENA_BYTES = 1 << 20
LARGEST_ARENA_BYTES = 1 << 32


class Step(NamedTuple):
    """What one invoke gave: the outputs, and every tensor by index where they are kept."""

    outputs: Arrays
    tensors: dict[int, npt.NDArray[Any]]


def ready_interpreter(model: tflm.Model, **settings: Any) -> tflm.MicroInterpreter:
    """An interpreter with every operator at hand, in an arena as large as it needs.

    Raises:
        TflmError: the model can't be run.
    """
    size = FIRST_ARENA_BYTES
    while True:
        interpreter = tflm.MicroInterpreter(model, tflm.AllOpsResolver(), np.zeros(size, np.uint8), **settings)
        try:
            interpreter.allocate_tensors()
            return interpreter
        except tflm.ArenaExhausted:
            if size >= LARGEST_ARENA_BYTES:
                raise
            size *= 8


def inputs_of(interpreter: tflm.MicroInterpreter) -> list[TfLiteTensor]:
    """The inputs, in order."""
    return [interpreter.input(i) for i in range(interpreter.inputs_size())]


def outputs_of(interpreter: tflm.MicroInterpreter) -> list[TfLiteTensor]:
    """The outputs, in order."""
    return [interpreter.output(i) for i in range(interpreter.outputs_size())]


def random_inputs(tensors: list[TfLiteTensor], rng: np.random.Generator) -> Arrays:
    """Values for each input: integers over all of the type (16 bits of the wider ones), floats of a normal curve."""
    return [_random_values(tensor.data.shape, tensor.data.dtype, rng) for tensor in tensors]


def _random_values(shape: tuple[int, ...], dtype: np.dtype[Any], rng: np.random.Generator) -> npt.NDArray[Any]:
    if dtype.kind in "fc":
        return rng.standard_normal(shape).astype(dtype)
    if dtype.kind == "b":
        return rng.integers(0, 2, shape).astype(dtype)
    limits = np.iinfo(dtype)
    low, high = max(int(limits.min), -(1 << 15)), min(int(limits.max), (1 << 15) - 1)
    return rng.integers(low, high, shape, endpoint=True).astype(dtype)


def read_inputs(path: Path, tensors: list[TfLiteTensor]) -> list[Arrays]:
    """The inputs of each step that a file holds: .npz with `in_<step>_<i>`, .npy, or raw bytes for a single input.

    Raises:
        CommandError: the file is none of that, or does not fit the model's inputs.
        OSError: it can't be read.
    """
    if path.suffix == ".npz":
        return _steps_in(path, recorded(path, "in"), len(tensors))
    if len(tensors) != 1:
        names = ", ".join(f"in_0_{i}" for i in range(len(tensors)))
        raise CommandError(f"{path}: the model has {len(tensors)} inputs; give them in an .npz as {names}")
    if path.suffix == ".npy":
        return [[_loaded(path)]]
    wanted, raw = tensors[0].data, path.read_bytes()
    if len(raw) != wanted.nbytes:
        kind = f"{wanted.dtype} of shape {list(wanted.shape)}"
        raise CommandError(f"{path}: has {len(raw)} bytes; the input is {kind}, {wanted.nbytes} bytes")
    return [[np.frombuffer(raw, wanted.dtype).reshape(wanted.shape)]]


def recorded(path: Path, side: str) -> dict[tuple[int, int], npt.NDArray[Any]]:
    """The arrays called `<side>_<step>_<i>` in an .npz, by step and i.

    Raises:
        CommandError: it is no .npz, or a name has another form.
        OSError: it can't be read.
    """
    arrays = {}
    for key, values in _loaded(path).items():
        kind, _, numbers = key.partition("_")
        if kind != side:
            continue
        step, _, index = numbers.partition("_")
        if not (step.isdecimal() and index.isdecimal()):
            raise CommandError(f"{path}: {key!r} should be called {side}_<step>_<i>")
        arrays[int(step), int(index)] = values
    return arrays


def _loaded(path: Path) -> Any:
    try:
        loaded = np.load(path, allow_pickle=False)
        arrays = dict(loaded) if isinstance(loaded, Mapping) else loaded
    except (ValueError, EOFError, zipfile.BadZipFile) as error:
        raise CommandError(f"{path}: is no {path.suffix} file that numpy can read: {error}") from error
    if isinstance(arrays, dict):
        for key, values in arrays.items():
            if not isinstance(values, np.ndarray):  # numpy gives what is no array as bytes
                raise CommandError(f"{path}: {key!r} is no array")
    return arrays


def _steps_in(path: Path, arrays: dict[tuple[int, int], npt.NDArray[Any]], count: int) -> list[Arrays]:
    if not arrays:
        raise CommandError(f"{path}: has no inputs; they are called in_0_0 for the first input of the first step")
    steps = 1 + max(step for step, _ in arrays)
    places = ((step, i) for step in range(steps) for i in range(count))
    wanted = set(
        itertools.islice(places, len(arrays) + 1)
    )  # a step's number may be any; one beyond all there are is missing
    for step, i in sorted(wanted - arrays.keys()):
        raise CommandError(f"{path}: in_{step}_{i} is missing; the model has {count} inputs for each step")
    for step, i in sorted(arrays.keys() - wanted):
        raise CommandError(f"{path}: in_{step}_{i} is too many; the model has {count} inputs")
    return [[arrays[step, i] for i in range(count)] for step in range(steps)]


def set_inputs(tensors: list[TfLiteTensor], values: Arrays) -> None:
    """Write values to the inputs.

    Raises:
        CommandError: shape or type is another; the message names the input.
    """
    for i, (tensor, array) in enumerate(zip(tensors, values)):
        wanted = tensor.data
        if array.shape != wanted.shape or array.dtype != wanted.dtype:
            reason = f"takes {wanted.dtype} of shape {list(wanted.shape)}, not {array.dtype} of {list(array.shape)}"
            raise CommandError(f"input {i} ({tensor.name}) {reason}")
        wanted[...] = array


def answers(interpreter: tflm.MicroInterpreter, steps: list[Arrays], dump_tensors: bool = False) -> list[Step]:
    """What a model gives for the inputs of successive steps, with its state kept between them.

    Raises:
        CommandError: an input does not fit.
        OperatorError: an operator can't go on.
    """
    tensors, results = inputs_of(interpreter), []
    with progress("running", len(steps)) as advance:
        for values in steps:
            set_inputs(tensors, values)
            interpreter.invoke()
            kept = {}
            if dump_tensors:
                kept = {i: np.array(t.elements) for i, t in enumerate(interpreter.eval_tensors()) if t.data is not None}
            results.append(Step([np.array(tensor.data) for tensor in outputs_of(interpreter)], kept))
            advance()
    return results


def write_outputs(path: Path, results: list[Step]) -> None:
    """Write outputs: .npz with `out_<step>_<j>` (and `tensor_<step>_<index>`), .npy or raw bytes for a single one.

    Raises:
        CommandError: there is more than the kind of file holds.
        OSError: it can't be written.
    """
    if path.suffix == ".npz":
        arrays = {f"out_{s}_{j}": array for s, step in enumerate(results) for j, array in enumerate(step.outputs)}
        arrays |= {f"tensor_{s}_{i}": array for s, step in enumerate(results) for i, array in step.tensors.items()}
        with path.open("wb") as file:
            np.savez(file, **arrays)  # type: ignore[arg-type]  # its stubs take the names for other parameters
        return
    if len(results) != 1 or len(results[0].outputs) != 1 or results[0].tensors:
        raise CommandError(f"{path}: holds one output of one step; write to an .npz to keep all")
    (output,) = results[0].outputs
    if path.suffix == ".npy":
        with path.open("wb") as file:
            np.save(file, output)
    else:
        path.write_bytes(output.tobytes())


def run(
    model: ModelPath,
    inputs: Annotated[
        Path | None, typer.Option(metavar="FILE", help="An .npz with in_<step>_<i>, an .npy, or raw bytes.")
    ] = None,
    outputs: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Where answers go: .npz as out_<step>_<j>, .npy, or raw bytes.")
    ] = None,
    random: Annotated[int | None, typer.Option(metavar="SEED", min=0, help="Make inputs up.")] = None,
    steps: Annotated[
        int | None, typer.Option(metavar="COUNT", min=1, help="How many steps to make up; 1 unless told.")
    ] = None,
    dump_tensors: Annotated[
        bool, typer.Option("--dump-tensors", help="Keep every tensor, as tensor_<step>_<index>.")
    ] = False,
    target: TargetName = "host",
    as_json: AsJson = False,
) -> None:
    """Run a model on inputs from a file, or on random ones, and show or keep what it answers.

    \b
    Examples:
      tflm run model.tflite --inputs in.npz --outputs out.npz
      tflm run model.tflite --random 1 --steps 10 --json
    """
    if (inputs is None) == (random is None):
        raise typer.BadParameter("give either --inputs FILE or --random SEED")
    if inputs is not None and steps is not None:
        raise typer.BadParameter("--steps is for random inputs; the file says how many steps it has")
    if dump_tensors and (outputs is None or outputs.suffix != ".npz"):
        raise typer.BadParameter("--dump-tensors needs --outputs with an .npz")
    settings = {"target": target_from(target), "preserve_all_tensors": dump_tensors}
    interpreter = ready_interpreter(load_model(model), **settings)
    tensors = inputs_of(interpreter)
    if inputs is not None:
        given = read_inputs(inputs, tensors)
    else:
        rng = np.random.default_rng(random)
        given = [random_inputs(tensors, rng) for _ in range(steps or 1)]
    results = answers(interpreter, given, dump_tensors)
    if outputs is not None:
        write_outputs(outputs, results)
    names = [tensor.name for tensor in outputs_of(interpreter)]
    if as_json:
        print_json(_figures(model, names, results))
    elif outputs is None:
        console().print(_output_table(names, results))


def _figures(model: Path, names: list[str], results: list[Step]) -> dict[str, Any]:
    outputs = [
        {
            "step": s,
            "index": j,
            "name": names[j],
            "type": str(array.dtype),
            "shape": list(array.shape),
            "values": array.tolist(),
        }
        for s, step in enumerate(results)
        for j, array in enumerate(step.outputs)
    ]
    return {"model": str(model), "steps": len(results), "outputs": outputs}


def _output_table(names: list[str], results: list[Step]) -> object:
    columns = {"step": "right", "output": "left", "type": "left", "shape": "left", "values": "left"}
    rows = (
        (str(s), names[j], array.dtype, " ".join(map(str, array.shape)), _abbreviated(array))
        for s, step in enumerate(results)
        for j, array in enumerate(step.outputs)
    )
    return table(None, columns, rows)


def _abbreviated(array: npt.NDArray[Any]) -> str:
    flat = array.reshape(-1)
    shown = " ".join(f"{value:g}" if array.dtype.kind == "f" else str(value) for value in flat[:16])
    return shown if flat.size <= 16 else f"{shown} ... ({flat.size:,} elements)"
