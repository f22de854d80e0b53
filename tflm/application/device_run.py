"""`tflm device`: compare a device with the results computed here, and time its operators."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tflm.application.errors import RequestError
from tflm.application.machine import Machine, MachineOptions
from tflm.application.progress import Progress
from tflm.application.running import random_inputs
from tflm.atomic_write import write_atomically
from tflm.device import Device
from tflm.device.device import NEVER, Facts
from tflm.device.verdict import Arrays, Status, Verdict, WrongOperator, compare
from tflm.errors import FirmwareError
from tflm.evaluation.runner import inputs_of
from tflm.firmware.instructions import Calibration, Estimate, estimate
from tflm.report import NAME, NUMBER, Figure, Report, Table, json_key, machine_keys, with_thousands
from tflm.runtime.growing_arena import ready_interpreter
from tflm.runtime.micro_measurement import measure_arena
from tflm.runtime.micro_op_resolver import AllOpsResolver
from tflm.schema.model import Model
from tflm.targets import PARTS, TARGETS

DESCRIBED = re.compile(r"^(\S+) kernels(?: on (\S+),)?")
"""The kernels and the part in a firmware's description of itself."""


class OperatorTicks(NamedTuple):
    """The time of an operator on a device.

    Attributes:
        operator_index: its index in the first subgraph.
        operator: its name.
        microseconds: the median of all invokes; null if the operator was not observed.
        estimated_cycles: estimated cycles of the part; null if unknown.
    """

    operator_index: int
    operator: str
    microseconds: float | None
    estimated_cycles: int | None


class DeviceRun(NamedTuple):
    """A device compared with the results computed here.

    Attributes:
        verdict: the result of the comparison.
        operators: the times of the operators.
        machine: the part and kernels that it was compared with.
        facts: what the device says of itself, after the last invoke.
        predicted_arena_bytes: the arena that is in use after allocation, computed here.
    """

    verdict: Verdict
    operators: list[OperatorTicks]
    machine: Machine
    facts: Facts
    predicted_arena_bytes: int | None


def machine_of(device: Device, on: MachineOptions) -> Machine:
    """The machine that options name; by default, the part and kernels that the device says it has."""
    found = DESCRIBED.match(device.facts.description)
    if found is not None and on.board is None:
        parts = TARGETS | PARTS
        target = on.target or (found[2] if found[2] in parts else None)
        on = on._replace(target=target, kernels=on.kernels or found[1])
    return on.machine("cortex-m")


def random_steps(model: Model, count: int, seed: int) -> list[list[npt.NDArray[Any]]]:
    """Random inputs of a model."""
    rng, tensors = np.random.default_rng(seed), inputs_of(ready_interpreter(model, delegates=[]))
    return [random_inputs(tensors, rng) for _ in range(count)]


def run_device(device: Device, steps: Sequence[Arrays], on: MachineOptions, progress: Progress) -> DeviceRun:
    """Run a device on inputs, and compare every operator.

    Raises:
        DeviceError: no answer within the limit.
    """
    machine, model = machine_of(device, on), device.model
    with progress("invokes", len(steps)) as advance:
        verdict = compare(device, steps, target=machine.target, kernels=machine.kernels, advance=advance)
    facts = device.read_facts()
    estimated = _estimated(model, machine)
    cycles = {} if estimated is None else {each.operator_index: each.cycles for each in estimated.operators}
    times = _microseconds(verdict, facts.ticks_per_second)
    operators = [
        OperatorTicks(i, model.operator_name(operator), times[i], cycles.get(i))
        for i, operator in enumerate(model.subgraphs[0].operators or ())
    ]
    arena = measure_arena(model, AllOpsResolver(), target=machine.target, kernels=machine.kernels)
    has_arena = bool(facts.model_bytes)  # a model as C has none
    return DeviceRun(verdict, operators, machine, facts, arena.arena_used_bytes if has_arena else None)


def _estimated(model: Model, machine: Machine) -> Estimate | None:
    try:
        return estimate(model, target=machine.target, kernels=machine.kernels)
    except FirmwareError:
        return None


def _microseconds(verdict: Verdict, ticks_per_second: int) -> list[float | None]:
    found = []
    for column in verdict.ticks.T:
        seen = column[column != NEVER]
        found.append(float(np.median(seen)) / ticks_per_second * 1e6 if seen.size and ticks_per_second else None)
    return found


RUN_FIGURES = (
    json_key("verdict", Status, "how the device compares with the results computed here", "verdict.status"),
    json_key("invokes", int, "how many were compared", "verdict.invokes"),
    json_key(
        "operators_compared",
        int,
        "operators that were compared in each; others have no output of their own in memory",
        "verdict.compared",
    ),
    json_key(
        "documented",
        list[str],
        "what the kernel library is known to do differently, if that explains all differences",
        "verdict.documented",
    ),
    json_key("wrong", WrongOperator | None, "the first operator that is wrong", "verdict.wrong"),
    *machine_keys("machine.")[:2],
    json_key("predicted_arena_bytes", int | None, "the arena in use as computed here; null for a model as C"),
    json_key("device", Facts, "what the device says of itself", "facts"),
    json_key("operators", list[OperatorTicks], "the times of the operators"),
)
"""The figures of a run on a device."""


def run_report(run: DeviceRun) -> Report:
    """Report the verdict, the device's figures next to the predicted ones, and the times of its operators."""
    facts, verdict = run.facts, run.verdict
    arena = with_thousands(facts.arena_used_bytes)
    if run.predicted_arena_bytes is not None:
        arena += f", predicted {with_thousands(run.predicted_arena_bytes)}"
    lines = [("firmware", facts.description), ("arena" if facts.model_bytes else "RAM", arena)]
    if facts.stack_used_bytes is not None:
        lines.append(("stack", with_thousands(facts.stack_used_bytes)))
    if facts.heap_free_bytes is not None:
        lines.append(("free heap", with_thousands(facts.heap_free_bytes)))
    operators = Table.of(
        "",
        run.operators,
        Figure("#", NUMBER, "operator_index"),
        Figure("operator", NAME, "operator"),
        Figure("us", NUMBER, "microseconds", ",.1f"),
        Figure("estimated cycles", NUMBER, "estimated_cycles"),
    )
    return Report(
        verdict_line(verdict, run.machine),
        lines,
        [operators],
        [*verdict.documented, *wrong_lines(run), *overflow_lines(run)],
    )


def verdict_line(verdict: Verdict, machine: Machine) -> str:
    """The verdict in a sentence."""
    many = f"{verdict.invokes} invoke{'s' * (verdict.invokes != 1)}"
    if verdict.status is Status.EQUAL:
        return f"equal: {verdict.compared} operators, {many}"
    if verdict.status is Status.DOCUMENTED:
        return f"differs as {machine.kernels.name} is known to: {many}"
    assert verdict.wrong is not None
    wrong = verdict.wrong
    does = "overwrites" if wrong.overwrites else "is wrong in"
    return f"differs: operator {wrong.operator_index} {wrong.operator} {does} {wrong.tensor}, invoke {wrong.invoke}"


SHOWN = 8
"""Elements of a tensor that are shown around the first wrong one."""


def wrong_lines(run: DeviceRun) -> list[str]:
    """Return input, expected and received values of the wrong operator, and further facts about it."""
    wrong = run.verdict.wrong
    if wrong is None:
        return []
    first = wrong.element or 0
    lines = [f"input {name}: {_shown(values, 0)}" for name, values in wrong.inputs.items()]
    lines.append(f"expected from element {first}: {_shown(wrong.expected, first)}")
    if wrong.received is None:
        lines.append("received: equal when it was read again; the device differs from run to run")
    else:
        count = np.count_nonzero(wrong.expected != wrong.received)
        lines.append(f"received from element {first}: {_shown(wrong.received, first)}")
        lines.append(f"{count:,} of {wrong.expected.size:,} elements differ")
    return [*lines, *wrong.known]


def overflow_lines(run: DeviceRun) -> list[str]:
    """Name the operator that overflowed the stack. It may have overwritten whatever lies below, also with other
    inputs."""
    if run.facts.overflow is None:
        return []
    operator = run.operators[run.facts.overflow]
    return [
        f"operator {operator.operator_index} {operator.operator} overflowed the stack: increase the firmware's stack"
    ]


def _shown(values: Any, first: int) -> str:
    flat = np.asarray(values, None).reshape(-1)[first : first + SHOWN]
    return " ".join(f"{value:g}" if flat.dtype.kind == "f" else str(value) for value in flat)


def write_recording(path: Path, steps: Sequence[Arrays], verdict: Verdict) -> None:
    """Write inputs and the device's outputs, for `tflm compare`: an .npz with in_<step>_<i> and out_<step>_<j>.

    Raises:
        OSError: the file cannot be written.
    """
    arrays = {f"in_{s}_{i}": values for s, step in enumerate(steps[: verdict.invokes]) for i, values in enumerate(step)}
    arrays |= {f"out_{s}_{j}": values for s, step in enumerate(verdict.outputs) for j, values in enumerate(step)}
    file = io.BytesIO()
    np.savez(file, **arrays)  # type: ignore[arg-type]
    write_atomically(path, file.getvalue())


def calibration_of(run: DeviceRun, mhz: float) -> Calibration:
    """Cycles of each kind of operator on a device, next to the estimated ones.

    Raises:
        RequestError: the device has no clock, or no operator has an estimate.
    """
    measured: dict[str, list[float]] = {}
    for each in run.operators:
        if each.microseconds and each.estimated_cycles:
            sums = measured.setdefault(each.operator, [0.0, 0.0])
            sums[0] += each.microseconds * mhz
            sums[1] += each.estimated_cycles
    if not measured:
        raise RequestError(
            "the device measured no time for an operator whose cycles are estimated; tflm profile --target shows "
            "which ones are"
        )
    ratios = {name: cycles / table for name, (cycles, table) in measured.items()}
    return Calibration(run.machine.target.name, run.machine.kernels.name, mhz, ratios)
