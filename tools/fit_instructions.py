"""Fit the instructions per trip of each kernel loop to operators whose instructions were counted.

    python tools/fit_instructions.py OPERATORS.jsonl [--output tflm/firmware/data/instructions.json]
    python tools/fit_instructions.py --check MODELS.jsonl --models FOLDER

A line of OPERATORS.jsonl is an int8 operator: `op`, `inputs` and `outputs` as [type, shape], options (`stride`,
`stride_w`, `dilation_h`, `dilation_w`, `padding`, `filter_h`, `filter_w`), and under `counts`, for
kernels/extension/optimization, [instructions, cycles]: as executed from the operator's begin to its end, and what those
cost by the table of the Cortex-M4's manual. For each configuration and path the coefficients are the non-negative ones
with the least squares of relative errors. Printed for each path: operators, terms, the largest error, and the error
of each operator when it is left out of the fit. Paths of the output file without counted
operators stay.

A line of MODELS.jsonl is a model (a file's stem in FOLDER) with `kernels`, `extension`, `optimization` and `operators`,
each [name, instructions, cycles]. `--check` prints how far the shipped coefficients are off for each model, and the
largest error of an operator of more than 12,000 instructions.

docs/firmware_budget.md says how operators are counted. Needs scipy.
"""

from __future__ import annotations

import argparse
import collections
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from decoding_operators import decoding_model
from scipy.optimize import nnls  # type: ignore[import-untyped]

import tflm
from tflm.firmware.decoding_trips import decoding_trips, encoded_tensors
from tflm.firmware.instructions import estimate
from tflm.firmware.loop_trips import PATHS, LoopShape
from tflm.kernels.layers.geometry import Axis, paddings
from tflm.kernels.reference.decode import TFLM_DECODE
from tflm.schema.enums import Padding

VERSIONS = {"compiler": "arm-none-eabi-gcc 12.2", "library": "TFLM 90b983c2b, CMSIS-NN 4ab83cc3c"}
PARTS = {"none": "cortex-m0plus", "dsp": "cortex-m4", "mve": "cortex-m55"}
LARGE = 12_000


def main() -> None:
    """Fit, or check."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("operators", nargs="?", type=Path)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--check", type=Path)
    parser.add_argument("--models", type=Path, default=Path())
    arguments = parser.parse_args()
    if arguments.operators is not None:
        fitted = fit([json.loads(line) for line in arguments.operators.read_text().splitlines()])
        if arguments.output is not None:
            arguments.output.write_text(shown({"configurations": merged(arguments.output, fitted)}))
    if arguments.check is not None:
        for line in arguments.check.read_text().splitlines():
            check(json.loads(line), arguments.models)


def merged(output: Path, fitted: dict[str, Any]) -> dict[str, Any]:
    """The configurations of a file, with the fitted paths in place of its own."""
    known = json.loads(output.read_text())["configurations"] if output.exists() else {}
    for name, configuration in fitted.items():
        paths = known.get(name, configuration)["paths"] | configuration["paths"]
        known[name] = {**configuration, "paths": dict(sorted(paths.items()))}
    return known


def layer(counted: dict[str, Any]) -> LoopShape:
    """The parameters of a counted operator's formula."""
    if counted["op"] == TFLM_DECODE.name:
        model = tflm.Model(decoding_model(counted))
        subgraph = model.subgraphs[0]
        trips = decoding_trips(encoded_tensors(model, subgraph, (subgraph.operators or [])[0]))
        return LoopShape(counted["op"], (), (), decoding=tuple(trips.items()))
    inputs = tuple(tuple(shape) for _, shape in counted["inputs"])
    output = tuple(counted["outputs"][0][1])
    if "stride" not in counted:
        types = counted["inputs"][0][0], counted["outputs"][0][0]
        pairs = tuple((before, after) for before, after in counted.get("paddings", ()))
        return LoopShape(counted["op"], inputs, output, types=types, paddings=pairs)
    taps = (counted["filter_h"], counted["filter_w"]) if "filter_h" in counted else inputs[1][1:3]
    strides = counted["stride"], counted["stride_w"]
    dilations = counted.get("dilation_h", 1), counted.get("dilation_w", 1)
    before = paddings(Padding(counted["padding"]), inputs[0][1:3], taps, strides, dilations)
    rows, columns = (Axis(*of) for of in zip(inputs[0][1:3], taps, output[1:3], strides, dilations, before))
    return LoopShape(counted["op"], inputs, output, rows, columns)


def fit(counted: list[dict[str, Any]]) -> dict[str, Any]:
    """Coefficients of every configuration."""
    configurations = {}
    for configuration in dict.fromkeys(name for operator in counted for name in operator["counts"]):
        kernels, extension, _ = configuration.split("/")
        paths = PATHS["reference" if kernels == "reference" else f"{kernels}/{extension}"]
        groups = collections.defaultdict(list)
        for operator in (each for each in counted if configuration in each["counts"]):
            trips = paths[operator["op"]](layer(operator))
            if trips is not None:
                groups[trips.path].append((trips.trips, operator["counts"][configuration]))
        print(configuration)
        configurations[configuration] = {
            **VERSIONS,
            "paths": {path: fit_path(path, group) for path, group in sorted(groups.items())},
        }
    return configurations


def fit_path(path: str, group: list[tuple[Mapping[str, int], list[int]]]) -> dict[str, Any]:
    """Coefficients of a path, with their errors, which are printed."""
    trips = np.array([list(each.values()) for each, _ in group], float)
    counts = np.array([count for _, count in group], float)
    costs = [least(trips, count) for count in counts.T]
    error = np.abs(trips @ costs[0] / counts[:, 0] - 1)
    held_out = []
    for i in range(len(group)):
        others = np.arange(len(group)) != i
        held_out.append(trips[i] @ least(trips[others], counts[others, 0]) / counts[i, 0] - 1)
    errors = {"largest_error": float(error.max()), "held_out_error": float(np.sqrt(np.mean(np.square(held_out))))}
    terms = np.count_nonzero(costs[0])
    print(f"  {path:35} {len(group):4} operators {terms:3} terms ", end="")
    print(f"largest error {errors['largest_error']:6.2%}, each left out {errors['held_out_error']:6.2%} rms")
    return {
        "operators": len(group),
        **{name: round(value, 4) for name, value in errors.items()},
        "trips": {name: [round(c, 3) for c in pair] for name, *pair in zip(group[0][0], *costs)},
    }


def least(trips: npt.NDArray[Any], counts: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Non-negative coefficients with the least squares of relative errors."""
    found: npt.NDArray[Any] = nnls(trips / counts[:, None], np.ones(len(counts)))[0]
    return found


def shown(document: Any) -> str:
    """Format as JSON with the coefficients of each loop on one line."""
    text = json.dumps(document, indent=1)
    return re.sub(r"\[\s+([-0-9.e]+),\s+([-0-9.e]+)\s+\]", r"[\1, \2]", text) + "\n"


def check(counted: dict[str, Any], folder: Path) -> None:
    """Print the errors of the coefficients for a model."""
    found = estimate(
        tflm.Model.from_file(folder / f"{counted['model']}.tflite"),
        target=PARTS[counted["extension"]],
        kernels=counted["kernels"],
        optimization=counted["optimization"],
    )
    total = sum(instructions for _, instructions, _ in counted["operators"])
    errors = [
        abs(operator.instructions / instructions - 1)
        for operator, (_, instructions, _) in zip(found.operators, counted["operators"])
        if operator.instructions and instructions > LARGE
    ]
    name = f"{counted['model']} {found.kernels} {found.optimization}"
    print(f"{name:50} {found.covered:7.2%} covered, total {found.instructions / total - 1:+7.2%}", end="")
    print(f", largest error of an operator {max(errors):.2%}" if errors else "")


if __name__ == "__main__":
    main()
