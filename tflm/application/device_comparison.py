"""`tflm compare` with a device: compare the tensors that it printed with those computed here."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tflm.application.comparison import Difference, Real, difference
from tflm.application.errors import RequestError
from tflm.application.machine import Machine
from tflm.application.models import lines_of_log, load_model
from tflm.application.progress import Progress
from tflm.application.tensor_dump import Dump, assembled, dumped_tensors, read_dump
from tflm.memory.tensor import TfLiteTensor
from tflm.runtime.growing_arena import ready_interpreter
from tflm.runtime.micro_interpreter import MicroInterpreter


class DeviceComparison(NamedTuple):
    """Differences of outputs and of all tensors, in the order of the operators; and messages about missing data."""

    outputs: list[Difference]
    tensors: list[Difference]
    lost: list[str]


def compare_device(path: Path, log: Path, machine: Machine, progress: Progress) -> DeviceComparison:
    """Compare a model's tensors with those of a device, for the inputs in the device's log.

    Raises:
        RequestError: the log has no tensors, or bytes of an input are missing.
        OSError: a file cannot be read.
    """
    model = load_model(path)
    dump = read_dump(lines_of_log(log))
    if not dump:
        raise RequestError(
            f"{log}: no lines with tflm-dump found; build the firmware with the files of tflm export --dump"
        )
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
                    lost.append(
                        f"invoke {invoke}, tensor {index} ({tensor.name}): some of its bytes are missing in the log"
                    )
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
            raise RequestError(
                f"{log}: bytes of input {place} ({tensor.name}) in invoke {invoke} are missing or damaged; print more "
                "slowly, or use a more reliable connection"
            )
        tensor.data[...] = values


def _real(tensor: TfLiteTensor, values: Any) -> Real:
    """Return real values; integers are in units of the scale (of the first channel, if there are several)."""
    return (np.asarray(values, np.float64) - tensor.zero_point) * (tensor.scale or 1.0)


def _stacked(pairs: list[tuple[Real, Real]]) -> tuple[Real, Real]:
    ours, theirs = (np.stack(side) for side in zip(*pairs))
    return ours, theirs
