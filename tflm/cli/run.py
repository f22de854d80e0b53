"""`tflm run`: what a model answers."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import typer
from typer.core import TyperCommand

import tflm
from tflm.cli.command_line import (
    AsJson,
    BoardName,
    CommandError,
    KernelsName,
    ModelPath,
    ReleaseName,
    TargetName,
    load_model,
    machine_from,
    print_json,
    progress,
    show_table,
    wrote,
)
from tflm.delegates import Delegate
from tflm.evaluation.input_files import FILE_KINDS, Arrays, read_given
from tflm.evaluation.runner import inputs_of, outputs_of
from tflm.memory.tensor import TfLiteTensor
from tflm.report import Column, Table
from tflm.runtime.growing_arena import ready_interpreter


class Step(NamedTuple):
    """What one invoke gave: outputs, their real values (None where not quantized); all tensors by index, if kept."""

    outputs: Arrays
    real: list[npt.NDArray[np.float32] | None]
    tensors: dict[int, npt.NDArray[Any]]


NO_DELEGATES = "none"


def delegates_from(name: str | None) -> list[Delegate] | None:
    """What `--delegate` asks for: None for those that are there by default, a list of none or of one otherwise.

    Raises:
        typer.BadParameter: there is no delegate of that name.
    """
    if name is None or name == NO_DELEGATES:
        return None if name is None else []
    try:
        return [tflm.delegates.by_name(name)]
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


DelegateName = Annotated[
    str | None,
    typer.Option("--delegate", metavar="NAME", help="none, flex, or package.module:Class; what fits, otherwise."),
]


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
                kept = {i: t.elements.copy() for i, t in enumerate(interpreter.eval_tensors()) if t.data is not None}
            outputs = outputs_of(interpreter)
            real = [tensor.dequantized() if _is_quantized(tensor) else None for tensor in outputs]
            results.append(Step([np.array(tensor.data, tensor.data.dtype) for tensor in outputs], real, kept))
            advance()
    return results


def _is_quantized(tensor: TfLiteTensor) -> bool:
    return tensor.quantization is not None and tensor.data.dtype.kind in "iu"


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


class SeedOrNot(TyperCommand):
    """A command whose `--random` may stand without its number."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Give a `--random` that no number follows the number 0."""
        given: list[str] = []
        for argument, following in zip(args, [*args[1:], ""]):
            given.append(argument)
            if argument == "--random" and not re.fullmatch("-?[0-9]+", following):
                given.append("0")
        return super().parse_args(ctx, given)


def input_names(model: tflm.Model) -> dict[str, int]:
    """What the inputs are called, by tensor and by signature, with their places."""
    main = model.subgraphs[0]
    inputs, tensors = list(main.inputs or ()), main.tensors or []
    names = {
        entry.name or "": inputs.index(entry.tensor_index)
        for signature in model.root.signature_defs or ()
        if signature.subgraph_index == 0
        for entry in signature.inputs or ()
        if entry.tensor_index in inputs
    }
    return names | {tensors[index].name or f"{i}": i for i, index in enumerate(inputs)}


def _how_to_give_inputs(model: tflm.Model) -> str:
    main = model.subgraphs[0]
    tensors = [(main.tensors or [])[index] for index in main.inputs or ()]
    wanted = (f"{t.name or '(no name)'} ({t.type.name} of shape {list(t.shape or ())})" for t in tensors)
    how = f"give --inputs FILE ({FILE_KINDS}) or --inputs NAME=FILE for each, or --random to make values up"
    return f"the model takes {' and '.join(wanted)}: {how}"


def run(
    model: ModelPath,
    inputs: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[NAME=]FILE",
            help=f"Inputs: {FILE_KINDS}. An .npz has in_<step>_<i>, or the inputs' names. May be given for each input.",
        ),
    ] = None,
    outputs: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Where answers go: .npz as out_<step>_<j>, .npy, or raw bytes.")
    ] = None,
    real: Annotated[
        bool, typer.Option("--real", help="The files hold real values: quantized inputs get them quantized.")
    ] = False,
    random: Annotated[
        int | None, typer.Option(metavar="[SEED]", min=0, help="Make inputs up; with seed 0 unless told.")
    ] = None,
    steps: Annotated[
        int | None, typer.Option(metavar="COUNT", min=1, help="How many steps to make up; 1 unless told.")
    ] = None,
    dump_tensors: Annotated[
        bool, typer.Option("--dump-tensors", help="Keep every tensor, as tensor_<step>_<index>.")
    ] = False,
    target: TargetName = None,
    kernels: KernelsName = None,
    release: ReleaseName = None,
    board: BoardName = None,
    as_json: AsJson = False,
) -> None:
    """Run a model, and show or write its outputs.

    Inputs come from files, or are random.

    \b
    Examples:
      tflm run model.tflite --random
      tflm run model.tflite --inputs photo.png
      tflm run model.tflite --inputs x=x.csv --inputs y=y.csv --real
      tflm run model.tflite --inputs in.npz --outputs out.npz
    """
    machine = machine_from(target, kernels, board, "host", release=release)
    if inputs and random is not None:
        raise typer.BadParameter("give either --inputs or --random")
    if real and not inputs:
        raise typer.BadParameter("--real is for inputs from files")
    if steps is not None and random is None:
        raise typer.BadParameter("--steps is for random inputs; a file says how many steps it has")
    if dump_tensors and (outputs is None or outputs.suffix != ".npz"):
        raise typer.BadParameter("--dump-tensors needs --outputs with an .npz")
    loaded = load_model(model)
    if not inputs and random is None and loaded.subgraphs[0].inputs:
        raise typer.BadParameter(_how_to_give_inputs(loaded))
    interpreter = ready_interpreter(
        loaded, target=machine.target, kernels=machine.kernels, preserve_all_tensors=dump_tensors
    )
    tensors = inputs_of(interpreter)
    if inputs:
        given = read_given(inputs, tensors, input_names(loaded), real)
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
        show_table(_output_table(names, results))
    else:
        wrote(outputs)


def _figures(model: Path, names: list[str], results: list[Step]) -> dict[str, Any]:
    outputs = [
        {
            "step": s,
            "index": j,
            "name": names[j],
            "type": str(array.dtype),
            "shape": list(array.shape),
            "values": array.tolist(),
            "real_values": None if real is None else real.tolist(),
        }
        for s, step in enumerate(results)
        for j, (array, real) in enumerate(zip(step.outputs, step.real))
    ]
    return {"model": str(model), "steps": len(results), "outputs": outputs}


def _output_table(names: list[str], results: list[Step]) -> Table:
    columns = {
        "step": Column.NUMBER,
        "output": Column.NAME,
        "type": Column.TEXT,
        "shape": Column.TEXT,
        "values": Column.TEXT,
    }
    quantized = any(real is not None for step in results for real in step.real)
    if quantized:
        columns["real values"] = Column.TEXT
    rows = (
        (
            str(s),
            names[j],
            array.dtype,
            " ".join(map(str, array.shape)),
            _abbreviated(array),
            *(["" if real is None else _abbreviated(real)] if quantized else []),
        )
        for s, step in enumerate(results)
        for j, (array, real) in enumerate(zip(step.outputs, step.real))
    )
    return Table("", columns, rows)


def _abbreviated(array: npt.NDArray[Any]) -> str:
    flat = array.reshape(-1)
    shown = " ".join(f"{value:g}" if array.dtype.kind == "f" else str(value) for value in flat[:16])
    return shown if flat.size <= 16 else f"{shown} ... ({flat.size:,} elements)"
