"""`tflm profile`: show where the time of an invoke goes, here or on a device."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import tflm
from tflm.application.errors import OptionError, RequestError
from tflm.application.models import load_model, title_of
from tflm.application.node_data import work_figures, write_node_data
from tflm.application.timing import estimate_report, sum_over_operators, timing_report, timings
from tflm.cli.output import answer, progress
from tflm.cli.parameters import AsJson, ModelPath, NodeData, flag, option
from tflm.firmware.instructions import Calibration, clocked_boards
from tflm.report import document_of


def profile(
    model: ModelPath,
    runs: Annotated[int, option("COUNT", "Number of invokes; times are medians.", min=1)] = 100,
    seed: Annotated[int, option("SEED", "Seed of the random inputs.", min=0)] = 0,
    delegate: Annotated[
        str | None, option("NAME", "none, flex, or package.module:Class; the default delegates if omitted.")
    ] = None,
    target: Annotated[
        str | None, option("NAME", "Estimate the time on a part, such as cortex-m4.", "--target", "-t")
    ] = None,
    board: Annotated[
        str | None,
        option("NAME", "Estimate the time on a Cortex-M board, such as nano33ble.", autocompletion=clocked_boards),
    ] = None,
    kernels: Annotated[str | None, option("NAME", "The device's kernels: cmsis-nn or reference.")] = None,
    optimization: Annotated[str | None, option("NAME", "Optimization of the device's kernels: O2 or Os.")] = None,
    mhz: Annotated[float | None, option("MHZ", "The device's clock.", min=1)] = None,
    calibration: Annotated[Path | None, option("FILE", "Times that tflm device calibrate measured on a board.")] = None,
    compiled: Annotated[
        bool, flag("--compiled", "Estimate the instructions of the program that tflm compile writes.")
    ] = False,
    node_data: NodeData = None,
    as_json: AsJson = False,
) -> None:
    """Time each operator, or estimate its time on a device.

    Times are measured on this machine, and the slowest operator is first. Operator 0 of subgraph 2 is shown as 2:0.
    Operators that CALL_ONCE runs have the times of the first invoke.

    With --target, --board or --compiled the model is not run: instruction counts are computed from shapes, with
    formulas fitted to counts on Cortex-M.

    \b
    Examples:
      tflm profile person_detect.tflite --runs 50
      tflm profile person_detect.tflite --board nano33ble
      tflm profile person_detect.tflite --target cortex-m4 --kernels cmsis-nn --optimization Os --mhz 64
      tflm profile person_detect.tflite --compiled
    """
    of_a_device = (target, board, kernels, optimization, mhz, calibration)
    if compiled:
        if delegate is not None or any(option is not None for option in of_a_device):
            raise OptionError(
                "--compiled is for generated kernels on a Cortex-M4; use it without --delegate, --target, --board, "
                "--kernels, --optimization, --mhz and --calibration"
            )
        _profile_program(model, node_data, as_json)
        return
    if target is not None and board is not None:
        raise OptionError("use either --board, which implies the target, or --target")
    if target is not None or board is not None:
        if delegate is not None:
            raise OptionError("--delegate is for a run on this machine; use it without --target and --board")
        loaded = load_model(model)
        found = tflm.estimate(
            loaded,
            target=target,
            board=board,
            kernels=kernels,
            optimization=optimization,
            mhz=mhz,
            calibration=None if calibration is None else Calibration.read(calibration),
        )
        if node_data is not None:
            cycles = {(0, op.operator_index): op.cycles for op in found.operators if op.cycles is not None}
            write_node_data(node_data, loaded, {"cycles": cycles, "multiply-accumulates": work_figures(loaded)})
        answer(as_json, {"model": model, **vars(found)}, estimate_report(title_of(model), found))
        return
    if not (kernels is None and optimization is None and mhz is None and calibration is None):
        raise OptionError("--kernels, --optimization, --mhz and --calibration need --target or --board")
    loaded = load_model(model)
    whole, operators = timings(loaded, runs, seed, delegate, progress)
    if node_data is not None:
        times = {(op.subgraph_index, op.index): op.microseconds for op in operators}
        write_node_data(node_data, loaded, {"microseconds": times, "multiply-accumulates": work_figures(loaded)})
    figures = {
        "model": model,
        "runs": runs,
        "invoke_microseconds": whole,
        "operators_microseconds": sum_over_operators(operators),
        "operators": operators,
    }
    answer(as_json, figures, timing_report(whole, runs, operators))


def _profile_program(path: Path, node_data: Path | None, as_json: bool) -> None:
    """Print the instructions of a model's C program."""
    from tflm.c.compile import identifier_of
    from tflm.c.compile_report import PROGRAM_FIGURES, operators_work, work_report
    from tflm.c.instructions import COUNTED_BUILDS

    loaded = load_model(path)
    try:
        program = tflm.compile_model(loaded, identifier_of(path.stem))
    except tflm.CompileError as error:
        raise RequestError(str(error)) from None
    if node_data is not None:
        build = COUNTED_BUILDS[-1]
        counts = {(0, index): each[build] for index, each in program.instructions.operators.items()}
        write_node_data(node_data, loaded, {"instructions": counts})
    works = operators_work(program)
    figures = {"model": path, **document_of(program, PROGRAM_FIGURES), "operators": works}
    answer(as_json, figures, work_report(program, works))
