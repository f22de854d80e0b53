"""Run a model: set inputs, invoke, and show or write outputs."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tflm import delegates
from tflm.application.errors import RequestError, option_errors
from tflm.application.progress import Progress, silent
from tflm.atomic_write import write_atomically
from tflm.delegates import Delegate
from tflm.evaluation.input_files import FILE_KINDS, Arrays, npy_of
from tflm.evaluation.runner import inputs_of, outputs_of
from tflm.graph import multiply_accumulates
from tflm.memory.tensor import TfLiteTensor
from tflm.report import NAME, NUMBER, TEXT, Figure, Table
from tflm.runtime.micro_interpreter import MicroInterpreter
from tflm.schema.model import Model


class Step(NamedTuple):
    """Results of one invoke: outputs, their real values (None if not quantized), all tensors by index if preserved."""

    outputs: Arrays
    real: list[npt.NDArray[np.float32] | None]
    tensors: dict[int, npt.NDArray[Any]]


NO_DELEGATES = "none"

PRODUCTS_PER_OPERATOR, PRODUCTS_WHILE_COMPILING = 20_000, 20_000_000_000
"""Multiply-accumulates that numpy does in the time that an operator takes for its calls, and LLVM for a model."""


def delegates_from(name: str | None) -> list[Delegate] | None:
    """Return the delegates for `--delegate`: None for the default ones, otherwise an empty list or a list of one.

    Raises:
        OptionError: the name is unknown.
    """
    if name is None or name == NO_DELEGATES:
        return None if name is None else []
    with option_errors(ValueError):
        return [delegates.by_name(name)]


def random_inputs(tensors: list[TfLiteTensor], rng: np.random.Generator) -> Arrays:
    """Draw inputs: uniform integers (of at most 16 bits), or normally distributed floats."""
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
        RequestError: a shape or type does not match; the message names the input.
    """
    for i, (tensor, array) in enumerate(zip(tensors, values)):
        wanted = tensor.data
        if array.shape != wanted.shape or array.dtype != wanted.dtype:
            reason = f"takes {wanted.dtype} of shape {list(wanted.shape)}, not {array.dtype} of {list(array.shape)}"
            raise RequestError(f"input {i} ({tensor.name}) {reason}")
        wanted[...] = array


def is_long_for_numpy(model: Model, steps: int) -> bool:
    """Whether numpy probably takes longer to run a model than LLVM to compile its kernels."""
    operators = [(subgraph, operator) for subgraph in model.subgraphs for operator in subgraph.operators or ()]
    products = sum(multiply_accumulates(model, *each) for each in operators)
    return steps * (products + len(operators) * PRODUCTS_PER_OPERATOR) > PRODUCTS_WHILE_COMPILING


def answers(
    interpreter: MicroInterpreter, steps: list[Arrays], dump_tensors: bool = False, progress: Progress = silent
) -> list[Step]:
    """Run a model on the inputs of successive steps; its state is kept between them.

    Raises:
        RequestError: an input does not match the model.
        OperatorError: an operator fails.
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
    """Write outputs: .npz with `out_<step>_<j>` (and `tensor_<step>_<index>`); .npy or raw bytes for a single one.

    Raises:
        RequestError: the format holds a single output, and there are several.
        OSError: the file cannot be written.
    """
    if path.suffix == ".npz":
        arrays = {f"out_{s}_{j}": array for s, step in enumerate(results) for j, array in enumerate(step.outputs)}
        arrays |= {f"tensor_{s}_{i}": array for s, step in enumerate(results) for i, array in step.tensors.items()}
        file = io.BytesIO()
        np.savez(file, **arrays)  # type: ignore[arg-type]  # its stubs take the names for other parameters
        write_atomically(path, file.getbuffer())
        return
    if len(results) != 1 or len(results[0].outputs) != 1 or results[0].tensors:
        raise RequestError(f"{path}: this format holds one output of one step; use an .npz for several")
    (output,) = results[0].outputs
    write_atomically(path, npy_of(output) if path.suffix == ".npy" else output.tobytes())


def input_names(model: Model) -> dict[str, int]:
    """Return the indices of inputs by tensor name and by signature name."""
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


def how_to_give_inputs(model: Model) -> str:
    """Describe the model's inputs and the options that provide them."""
    main = model.subgraphs[0]
    tensors = [(main.tensors or [])[index] for index in main.inputs or ()]
    wanted = (f"{t.name or '(no name)'} ({t.type.name} of shape {list(t.shape or ())})" for t in tensors)
    how = f"use --inputs FILE ({FILE_KINDS}) or --inputs NAME=FILE for each, or --random for random values"
    return f"the model takes {' and '.join(wanted)}: {how}"


@dataclass(frozen=True)
class Output:
    """An output of an invoke.

    Attributes:
        step: of the invoke, from 0.
        index: of the output.
        name: of the tensor.
        type: numpy's name of it.
        shape: its dimensions.
        values: nested lists; a complex number is the list of its real and imaginary part.
        real_values: the values dequantized, as nested lists; None if the output is not quantized.
    """

    step: int
    index: int
    name: str
    type: str
    shape: tuple[int, ...]
    values: Any
    real_values: list[Any] | None


def run_figures(model: Path, names: list[str], results: list[Step]) -> dict[str, Any]:
    """Return the JSON document of the outputs of each step."""
    outputs = [
        Output(s, j, names[j], str(array.dtype), array.shape, array.tolist(), None if real is None else real.tolist())
        for s, step in enumerate(results)
        for j, (array, real) in enumerate(zip(step.outputs, step.real))
    ]
    return {"model": model, "steps": len(results), "outputs": outputs}


def output_table(names: list[str], results: list[Step]) -> Table:
    """Return a table with a row for each output of each step."""
    outputs = [
        (s, names[j], array, real)
        for s, step in enumerate(results)
        for j, (array, real) in enumerate(zip(step.outputs, step.real))
    ]
    quantized = any(real is not None for _, _, _, real in outputs)
    return Table.of(
        "",
        outputs,
        Figure("step", NUMBER, lambda each: str(each[0])),
        Figure("output", NAME, lambda each: each[1]),
        Figure("type", TEXT, lambda each: each[2].dtype),
        Figure("shape", TEXT, lambda each: " ".join(map(str, each[2].shape))),
        Figure("values", TEXT, lambda each: _abbreviated(each[2])),
        Figure("real values", TEXT, lambda each: _abbreviated(each[3])) if quantized else None,
    )


def _abbreviated(array: npt.NDArray[Any] | None) -> str:
    if array is None:
        return ""
    flat = array.reshape(-1)
    shown = " ".join(f"{value:g}" if array.dtype.kind == "f" else str(value) for value in flat[:16])
    return shown if flat.size <= 16 else f"{shown} ... ({flat.size:,} elements)"
