"""`tflm compare` with a device: the tensors that it printed beside those that the model makes here."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tflm.cli.command_line import CommandError, Machine, lines_of_log, load_model, progress
from tflm.cli.difference import Difference, Real, difference
from tflm.cli.tensor_dump import Dump, assembled, dumped_tensors, read_dump
from tflm.memory.tensor import TfLiteTensor
from tflm.runtime.growing_arena import ready_interpreter
from tflm.runtime.micro_interpreter import MicroInterpreter


class DeviceComparison(NamedTuple):
    """Outputs, then all tensors in the order in which operators make them; and what the log lacks, in words."""

    outputs: list[Difference]
    tensors: list[Difference]
    lost: list[str]


def compare_device(path: Path, log: Path, machine: Machine) -> DeviceComparison:
    """A model's tensors beside those of a device, for the inputs that the device says it had.

    Raises:
        CommandError: the log has no tensors; or it lacks bytes of an input, without which there is nothing to compare.
        OSError: a file can't be read.
    """
    model = load_model(path)
    dump = read_dump(lines_of_log(log))
    if not dump:
        raise CommandError(f"{log}: no lines of tflm-dump: tflm export --dump writes what prints them")
    interpreter = ready_interpreter(
        model, target=machine.target, kernels=machine.kernels, preserve_all_tensors=True, delegates=[]
    )
    main = model.subgraphs[0]
    pairs: dict[int, list[tuple[Real, Real]]] = {}
    lost = []
    invokes = sorted({invoke for invoke, _ in dump})
    with progress("comparing", len(invokes)) as advance:
        for invoke in invokes:
            _set_inputs(interpreter, dump, invoke, list(main.inputs or ()), log)
            interpreter.invoke()
            for index in dumped_tensors(model):
                tensor = interpreter.get_tensor(index)
                theirs = assembled(dump.get((invoke, index), {}), tensor.data)
                if theirs is None:
                    lost.append(f"invoke {invoke}, tensor {index} ({tensor.name}): not all of its bytes are in the log")
                else:
                    pairs.setdefault(index, []).append((_real(tensor, tensor.data), _real(tensor, theirs)))
            advance()
    makers = {
        t: f"{i} {model.operator_name(op)}" for i, op in enumerate(main.operators or ()) for t in op.outputs or ()
    }
    found = {
        index: difference((main.tensors or [])[index].name or "", makers.get(index, ""), *_stacked(each))
        for index, each in pairs.items()
    }
    outputs = [found[index] for index in main.outputs or () if index in found]
    return DeviceComparison(outputs, [each for index, each in found.items() if index in makers], lost)


def _set_inputs(interpreter: MicroInterpreter, dump: Dump, invoke: int, inputs: list[int], log: Path) -> None:
    for place, index in enumerate(inputs):
        tensor = interpreter.input(place)
        values = assembled(dump.get((invoke, index), {}), tensor.data)
        if values is None:
            raise CommandError(
                f"{log}: bytes of input {place} ({tensor.name}) in invoke {invoke} are missing or spoiled: print more "
                "slowly, or log with fewer losses"
            )
        tensor.data[...] = values


def _real(tensor: TfLiteTensor, values: Any) -> Real:
    """Values as real ones; integers count in steps of the scale, of the first channel where each has its own."""
    return (np.asarray(values, np.float64) - tensor.zero_point) * (tensor.scale or 1.0)


def _stacked(pairs: list[tuple[Real, Real]]) -> tuple[Real, Real]:
    ours, theirs = (np.stack(side) for side in zip(*pairs))
    return ours, theirs
