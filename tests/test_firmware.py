"""Flash, static RAM, instructions and time, against firmwares that were linked and operators that were counted."""

from __future__ import annotations

import functools
import itertools
import json
import re
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from example_models import INT8_MODEL
from hypothesis import given, settings
from hypothesis import strategies as st
from test_cli import figures, refusal, run

import tflm
from tflm import libraries
from tflm.application.device_run import DeviceRun, OperatorTicks, calibration_of
from tflm.application.errors import RequestError
from tflm.application.machine import MachineOptions
from tflm.boards import boards
from tflm.device.verdict import Status, Verdict
from tflm.firmware.flash import SUBGRAPH_OPERATORS, estimate_flash, resolver_method, shipped, typed_registrations
from tflm.firmware.instructions import Calibration, coefficients
from tflm.firmware.loop_trips import PATHS, places_inside
from tflm.kernels import REGISTRATIONS
from tflm.kernels.layers.geometry import Axis
from tflm.schema import BuiltinOperator, Conv2DOptions, TensorType

BUILDS = {(entry.cpu, entry.kernels, entry.build): entry for entry in shipped()}
M4 = BUILDS["cortex-m4", "cmsis-nn", "release"]
SETS = st.lists(st.sampled_from(M4.operators), min_size=1, max_size=20, unique_by=lambda name: name.partition(":")[0])


UNCOUNTED = 5_000
"""Instructions of operators that only change shapes, which are left out, and of frames in the smallest models."""


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


# --- Flash -------------------------------------------------------------------------------------------------------


def test_every_firmware_that_was_linked_is_as_large_as_said(corpus: Path) -> None:
    linked = lines(corpus / "flash" / "linked.jsonl")
    assert len(linked) == 714
    for line in linked:
        found = estimate_flash(line["operators"], cpu=line["cpu"], kernels=line["kernels"], build=line["build"])
        assert found.flash_bytes == pytest.approx(line["flash"], rel=0.005)
        assert (found.data_bytes, found.bss_bytes) == (line["data"], line["bss"])


@given(SETS, st.randoms(use_true_random=False))
def test_flash_grows_with_operators_and_less_than_the_sum_of_their_firmwares(names: list[str], random: Any) -> None:
    def size(of: list[str]) -> int:
        found = tflm.flash(operators=of, target="cortex-m4", kernels="cmsis-nn").flash_bytes
        assert found is not None
        return found

    fewer = random.sample(names, random.randint(1, len(names)))
    assert size(fewer) <= size(names)
    assert size(names) <= sum(size([name]) for name in names)


@functools.cache
def share_code(name: str, other: str) -> bool:
    """Whether two operators share bytes if a firmware has no others."""
    found = tflm.flash(operators=[name, other], target="cortex-m4", kernels="cmsis-nn")
    return any(part.shared_bytes > 0 and part.operator == name for part in found.operators)


@settings(max_examples=25)
@given(SETS)
def test_an_operators_own_bytes_are_what_its_absence_saves(names: list[str]) -> None:
    found = tflm.flash(operators=names, target="cortex-m4", kernels="cmsis-nn")
    for part in found.operators:
        rest = [name for name in names if name != part.operator]
        without = tflm.flash(operators=rest, target="cortex-m4", kernels="cmsis-nn")
        assert found.flash_bytes is not None
        assert without.flash_bytes is not None
        assert part.own_bytes == pytest.approx(found.flash_bytes - without.flash_bytes, abs=1)
        assert part.shared_with == tuple(sorted(other for other in rest if share_code(part.operator, other)))


@pytest.mark.parametrize("kernels", ["reference", "cmsis-nn"])
@pytest.mark.parametrize("cpu", ["cortex-m0plus", "cortex-m4", "cortex-m55"])
def test_the_releases_have_every_operator_and_a_bound_of_its_stack(cpu: str, kernels: str) -> None:
    entry = BUILDS[cpu, kernels, "release"]
    assert entry.places.keys() >= {name for name in M4.operators if ":" not in name}
    assert entry.base_stack is not None
    assert all(entry.base_stack <= bound < 2048 for bound in entry.operator_stacks)


PAINTED = {
    ("cmsis-nn", "add0"): 508,
    ("cmsis-nn", "conv0"): 1100,
    ("cmsis-nn", "leaky_relu0"): 312,
    ("cmsis-nn", "pad0"): 352,
    ("cmsis-nn", "quantize0"): 312,
    ("cmsis-nn", "strided_slice0"): 592,
    ("cmsis-nn", "sub0"): 868,
    ("cmsis-nn", "transpose_conv0"): 612,
    ("cmsis-nn", "audio_preprocessor_int8"): 736,
    ("cmsis-nn", "dtln_noise_suppression"): 1252,
    ("cmsis-nn", "pretrainedResnet"): 560,
    ("cmsis-nn", "hello_world_int8"): 788,
    ("cmsis-nn", "hello_world_float"): 424,
    ("cmsis-nn", "person_detect"): 1268,
    ("cmsis-nn", "kws_ref_model"): 1260,
    ("cmsis-nn", "trained_lstm"): 952,
    ("cmsis-nn", "micro_speech_quantized"): 1268,
    ("reference", "person_detect"): 692,
    ("reference", "ad01_int8"): 392,
    ("reference", "trained_lstm"): 640,
    ("reference", "hello_world_float"): 368,
}
"""Bytes of stack that models touched below main on an emulated Cortex-M4, which was painted before."""

MAIN_BYTES = 40
"""What the bound holds at least of main and start-up."""


@pytest.mark.parametrize(("kernels", "name"), PAINTED)
def test_no_model_uses_more_stack_than_the_bound(kernels: str, name: str, corpus: Path) -> None:
    model = tflm.Model.from_file(corpus / "models" / f"{name}.tflite")
    bound = tflm.flash(model, target="cortex-m4", kernels=kernels).stack_bytes
    assert bound is not None
    assert 1 <= (bound - MAIN_BYTES) / PAINTED[kernels, name] <= 3.7


EXPORTED = {
    "hello_world_int8": (900, 264),
    "person_detect": (1332, 512),
    "kws_ref_model": (1324, 560),
    "ad01_int8": (900, 264),
    "micro_speech_quantized": (1332, 480),
    "add0": (612, 264),
    "quantize0": (424, 264),
    "strided_slice0": (704, 264),
    "leaky_relu0": (424, 264),
    "sub0": (980, 264),
    "pad0": (464, 264),
    "conv0": (1212, 264),
    "transpose_conv0": (724, 264),
    "pretrainedResnet": (624, 560),
    "hello_world_float": (536, 264),
    "audio_preprocessor_int8": (800, 1280),
    "dtln_noise_suppression": (1324, 448),
    "trained_lstm": (1016, 480),
    "keyword_scrambled": (852, 480),
}
"""Bytes of stack from reset on, and of static RAM beside the arena, of firmwares that `tflm export` wrote for a
Cortex-M4 with CMSIS-NN: linked, the stack painted, and run under emulation."""


@pytest.mark.parametrize("name", EXPORTED)
def test_stack_and_static_ram_are_those_of_the_firmware_that_export_writes(name: str, corpus: Path) -> None:
    model = tflm.Model.from_file(corpus / "models" / f"{name}.tflite")
    found = tflm.flash(model, target="cortex-m4", kernels="cmsis-nn")
    touched, static = EXPORTED[name]
    assert found.stack_bytes is not None
    assert found.data_bytes is not None
    assert found.bss_bytes is not None
    assert found.stack_bytes >= touched
    assert 0 <= found.data_bytes + found.bss_bytes - static <= 16


def test_operators_that_run_a_subgraph_lie_below_what_it_runs() -> None:
    def stack(*names: str) -> int:
        bound = M4.stack_bytes(names)
        assert bound is not None
        return bound

    assert stack("AddConv2D", "AddSoftmax") == stack("AddConv2D") > stack("AddSoftmax") > stack()
    for count in range(len(SUBGRAPH_OPERATORS) + 1):
        for nested in itertools.combinations(SUBGRAPH_OPERATORS, count):
            below = sum(M4.operator_stacks[M4.places[name]] for name in nested)
            assert stack("AddConv2D", *nested) == stack("AddConv2D") + below
    assert BUILDS["cortex-m4", "cmsis-nn", "release with error strings"].stack_bytes(["AddConv2D"]) is None


def test_static_ram_is_208_bytes_and_what_the_resolver_keeps_of_each_operator() -> None:
    def static(count: int) -> int:
        found = tflm.flash(operators=M4.operators[:count], target="cortex-m4", kernels="reference")
        assert found.bss_bytes is not None
        return found.bss_bytes

    assert {static(count + 1) - static(count) for count in range(1, 10)} == {36}


def test_a_range_holds_firmwares_with_an_operator_that_was_not_measured(
    corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One operator after the other is taken from the data of the build, and must come from another's."""
    linked = [line for line in lines(corpus / "flash" / "linked.jsonl") if len(line["operators"]) > 1]
    others = [line for line in linked if (line["cpu"], line["build"]) != ("cortex-m4", "release")]
    assert len(others) > 9
    for line in others[::9]:
        build = line["cpu"], line["kernels"], line["build"]
        taken = line["operators"][0]
        without = replace(BUILDS[build], operators=tuple(n if n != taken else "" for n in BUILDS[build].operators))
        data = tuple((BUILDS | {build: without}).values())
        monkeypatch.setattr("tflm.firmware.flash.shipped", lambda data=data: data)
        found = tflm.flash(operators=line["operators"], target=line["cpu"], kernels=build[1], build=build[2])
        low, high = found.flash_range_bytes
        assert found.flash_bytes is None
        assert low * 0.97 <= line["flash"] <= high * 1.03


@pytest.mark.parametrize("target", ["cortex-m7", "cortex-m33", "cortex-m0", "cortex-m85", "esp32"])
def test_what_was_not_measured_has_a_range_and_no_figure(target: str) -> None:
    found = tflm.flash(operators=["AddConv2D", "AddSoftmax"], target=target, kernels="reference")
    assert (found.flash_bytes, found.data_bytes, found.bss_bytes, found.operators) == (None, None, None, ())
    low, high = found.flash_range_bytes
    assert 10_000 < low < high < 100_000
    assert "not measured" in found.note
    beside = {"cortex-m7", "cortex-m33"} & {target}  # parts between Cortex-M4 and Cortex-M55
    for build in {build for cpu, kernels, build in BUILDS if beside and (cpu, kernels) == ("cortex-m4", "reference")}:
        kind: Any = {"operators": ["AddConv2D", "AddSoftmax"], "kernels": "reference", "build": build}
        low, high = tflm.flash(target=target, **kind).flash_range_bytes
        assert low <= tflm.flash(target="cortex-m4", **kind).flash_bytes <= high


def test_one_reads_a_file_of_sections_of_ones_own(tmp_path: Path) -> None:
    data = {
        "variant": "cortex-m4, mine",
        "lib": "reference",
        "ops": ["AddAdd", "AddSub"],
        "base": [1000, 1, 2, 8, 16],
        "groups": [[[0, 1], [100, 0, 0, 0, 0]], [[1], [10, 0, 0, 4, 0]], [[[0], [1]], [1, 0, 0, 0, 0]]],
        "main": [0] * 9,
        "custom": {},
        "main_bss": 200,
        "per_entry": 36,
    }
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(data))
    found = tflm.flash(operators=["AddAdd", "AddSub"], target="cortex-m4", data=path)
    assert found.flash_bytes == 1000 + 1 + 2 + 8 + 100 + 10 + 4 + 1
    assert (found.data_bytes, found.bss_bytes) == (8 + 4, 16 + 200 + 2 * 36)
    with pytest.raises(tflm.FirmwareError, match="no flash data for AddMul in this build"):
        tflm.flash(operators=["AddMul"], target="cortex-m4", data=path)
    path.write_text(json.dumps(data | {"stack": {"base": 300, "operators": [400]}}))
    with pytest.raises(tflm.FirmwareError, match="1 bounds of the stack for 2 operators"):
        tflm.flash(operators=["AddAdd"], target="cortex-m4", data=path)
    path.write_text("[]")
    with pytest.raises(tflm.FirmwareError, match="not a file of tools/flash_groups"):
        tflm.flash(operators=["AddAdd"], target="cortex-m4", data=path)


def test_targets_and_libraries_are_taken_as_they_are_or_by_name() -> None:
    model, part = tflm.Model(INT8_MODEL.read_bytes()), tflm.targets.by_name("cortex-m4")
    library = libraries.by_name("cmsis-nn")
    assert tflm.flash(model, target=part, kernels=library) == tflm.flash(model, target="cortex-m4", kernels="cmsis-nn")
    named = tflm.estimate(model, target="cortex-m4", kernels="cmsis-nn")
    assert tflm.estimate(model, target=part, kernels=library) == named
    assert tflm.estimate(model, target=part, kernels="arduino") == named
    with pytest.raises(tflm.FirmwareError, match="'host' has no firmware"):
        tflm.flash(model, target="host")


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"operators": ["AddNothing"]}, "no flash data for AddNothing"),
        ({"operators": ["AddAdd"], "kernels": "mine"}, "'mine'; use cmsis-nn, reference"),
        ({"operators": ["AddAdd"], "build": "mine"}, "build 'mine'; use one of .*'release'"),
        ({}, "pass a model or operators"),
    ],
)
def test_what_the_data_of_flash_does_not_know_is_named(arguments: dict[str, Any], reason: str) -> None:
    with pytest.raises(tflm.FirmwareError, match=reason):
        tflm.flash(target="cortex-m4", **arguments)


# --- Registrations for one type ----------------------------------------------------------------------------------


def convolutions(*types: TensorType) -> tflm.Model:
    """A convolution of each type, one after the other over inputs of their own."""
    builder = tflm.ModelBuilder()
    main = builder.subgraph()
    for i, kind in enumerate(types):
        scaled = {} if kind == TensorType.FLOAT32 else {"quantization": tflm.quantized(0.5)}
        x = main.input(f"x{i}", (1, 4, 4, 2), kind, **scaled)
        weights = np.zeros((3, 1, 1, 2), np.float32 if kind == TensorType.FLOAT32 else np.int8)
        f = main.constant(f"f{i}", weights, **scaled)
        y = main.tensor(f"y{i}", (1, 4, 4, 3), kind, **scaled)
        main.operator(BuiltinOperator.CONV_2D, [x, f], [y], Conv2DOptions(stride_w=1, stride_h=1))
        main.output(y)
    return tflm.Model(builder.build())


def test_registrations_for_int8_are_for_operators_that_are_in_no_other_type() -> None:
    assert typed_registrations(convolutions(TensorType.INT8, TensorType.INT8)) == {"CONV_2D": "CONV_2D_INT8"}
    assert typed_registrations(convolutions(TensorType.INT8, TensorType.FLOAT32)) == {}


@pytest.mark.parametrize(("name", "plain", "typed"), [("person_detect", 71.9, 44.7), ("vww_96_int8", 85.7, 54.8)])
def test_what_registrations_for_one_type_save(name: str, plain: float, typed: float, corpus: Path) -> None:
    model = tflm.Model.from_file(corpus / "models" / f"{name}.tflite")
    found = tflm.flash(model, target="cortex-m4", kernels="cmsis-nn")
    assert found.typed_flash_bytes is not None
    assert found.flash_bytes == pytest.approx(plain * 1000, abs=50)
    assert found.typed_flash_bytes == pytest.approx(typed * 1000, abs=60)


def test_every_operator_that_this_package_has_is_in_the_data_but_for_ethos_u_and_the_packages_own() -> None:
    methods = set(map(resolver_method, REGISTRATIONS))
    assert methods - M4.places.keys() == {"AddBasicClassifier", "AddEthosU"}


# --- Instructions ------------------------------------------------------------------------------------------------


@given(
    st.builds(
        Axis,
        st.integers(1, 9),
        st.integers(1, 4),
        st.integers(1, 6),
        st.integers(1, 3),
        st.integers(1, 3),
        st.integers(0, 3),
    )
)
def test_places_inside_are_those_of_a_loop(axis: Axis) -> None:
    for window, count in enumerate(places_inside(axis)):
        places = [window * axis.stride - axis.before + tap * axis.dilation for tap in range(axis.taps)]
        assert count == sum(0 <= place < axis.size for place in places)


PART = {"dsp": "cortex-m4", "mve": "cortex-m55"}


def test_models_take_the_instructions_that_were_counted(corpus: Path) -> None:
    """The coefficients come of other operators than these."""
    covered = defaultdict(list)
    for line in lines(corpus / "golden" / "instructions_models.jsonl"):
        model = tflm.Model.from_file(corpus / "models" / f"{line['model']}.tflite")
        target, kernels, optimization = PART[line["extension"]], line["kernels"], line["optimization"]
        found = tflm.estimate(model, target=target, kernels=kernels, optimization=optimization)
        assert len(found.operators) == len(line["operators"])
        for operator, (name, instructions, cycles) in zip(found.operators, line["operators"]):
            assert operator.operator.startswith(name)
            if operator.instructions and instructions > 12_000:
                assert operator.instructions == pytest.approx(instructions, rel=0.08)
                assert operator.cycles == pytest.approx(cycles, rel=0.08)
        executed = sum(count for _, count, _ in line["operators"])
        assert found.instructions * (1 - found.instructions_within) <= executed, line["model"]
        assert executed <= max(found.instructions, 1) * (1 + found.instructions_within) + UNCOUNTED, line["model"]
        if found.covered == 1:
            covered[line["model"]].append(found)
            assert found.instructions == pytest.approx(sum(count for _, count, _ in line["operators"]), rel=0.03)
    mlperf = {"ad01_int8", "kws_ref_model", "pretrainedResnet_quant", "vww_96_int8", "person_detect"}
    assert mlperf <= covered.keys()
    assert all(len(found) == 3 for found in covered.values())


def test_the_boards_that_were_measured_take_as_long_as_said(corpus: Path) -> None:
    measured = [line for line in lines(corpus / "golden" / "silicon.jsonl") if line["chip"] == "nRF52840"]
    assert len(measured) == 4
    for line in measured:
        model = tflm.Model.from_file(corpus / "models" / f"{line['model']}.tflite")
        found = tflm.estimate(model, board="nano33ble")
        assert (found.optimization, found.covered) == ("-Os", 1)
        assert found.milliseconds == pytest.approx(line["median_us"] / 1000, rel=0.2)


def calibrated_run(operators: list[OperatorTicks]) -> DeviceRun:
    machine = MachineOptions(target="cortex-m4", kernels="cmsis-nn").machine()
    return DeviceRun(
        Verdict(Status.EQUAL, 1, 1, (), None, [], np.zeros((0, 0), np.uint32)), operators, machine, None, None
    )


UNUSABLE = [OperatorTicks(7, "ADD", None, 5), OperatorTicks(8, "SUB", 1.0, None)]
"""Operators without a time, or without an estimate."""


def test_a_calibration_replaces_the_factor_of_what_it_measured(tmp_path: Path) -> None:
    """A device that takes three times the cycles of the table."""
    model, part = tflm.Model(INT8_MODEL.read_bytes()), {"target": "cortex-m4", "kernels": "cmsis-nn"}
    operators = tflm.estimate(model, **part).operators
    ticks = [OperatorTicks(i, each.operator, 3 * each.cycles / 64, each.cycles) for i, each in enumerate(operators)]
    path = tmp_path / "board.json"
    path.write_text(calibration_of(calibrated_run([*ticks, *UNUSABLE]), 64).text())
    found = Calibration.read(path)
    assert (found.target, found.kernels, found.mhz) == ("cortex-m4", "cmsis-nn", 64)
    assert found.cycles == {"FULLY_CONNECTED": pytest.approx(3)}
    estimate = tflm.estimate(model, **part, calibration=found)
    assert estimate.device_cycles == pytest.approx(3 * estimate.cycles)
    assert estimate.milliseconds == pytest.approx(estimate.device_cycles / 64e3)
    assert "calibrated: FULLY_CONNECTED" in estimate.note
    with pytest.raises(tflm.FirmwareError, match="of cortex-m4 with cmsis-nn kernels, not of cortex-m4 with reference"):
        tflm.estimate(model, target="cortex-m4", kernels="reference", calibration=found)


def test_a_device_without_times_calibrates_nothing() -> None:
    with pytest.raises(RequestError, match="measured no time"):
        calibration_of(calibrated_run(UNUSABLE), 64)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": "tflm calibration 1"}', "negative", "older"])
def test_a_file_that_is_no_calibration_is_refused(tmp_path: Path, text: str) -> None:
    given = Calibration("cortex-m4", "cmsis-nn", 64, {"ADD": -1.0 if text == "negative" else 1.0}).text()
    texts = {"negative": given, "older": given.replace("calibration 1", "calibration 0")}
    path = tmp_path / "board.json"
    path.write_text(texts.get(text, text))
    with pytest.raises(tflm.FirmwareError, match="not a calibration; tflm device calibrate writes one"):
        Calibration.read(path)


LESS_EXACT = ("pad", "pad, rows", "average_pool_2d", "tflm_decode")
"""Paths with a larger error in some library, which `instructions_within` then has."""


@pytest.mark.parametrize("configuration", coefficients())
def test_no_trip_takes_less_than_nothing_and_no_instruction_less_than_a_cycle(configuration: str) -> None:
    for name, path in coefficients()[configuration].paths.items():
        assert 0 <= path.largest_error < (0.6 if name in LESS_EXACT else 0.09)
        for loop, (instructions, cycles) in path.trips.items():
            assert instructions >= 0, loop
            assert cycles >= 0, loop
        assert sum(cost.cycles for cost in path.trips.values()) >= 1


@pytest.mark.parametrize("kernels", PATHS)
def test_every_path_is_of_an_operator_that_this_package_has(kernels: str) -> None:
    assert PATHS[kernels].keys() <= REGISTRATIONS.keys()


def test_what_was_not_measured_is_given_with_a_wider_uncertainty() -> None:
    model = tflm.Model(INT8_MODEL.read_bytes())
    measured = tflm.estimate(model, target="cortex-m4", mhz=64)
    assert tflm.estimate(model, target="cortex-m4").milliseconds is None
    for part in (name for name, part in tflm.targets.PARTS.items() if part.family == "cortex-m"):
        for kernels in ("cmsis-nn", "reference", "arduino"):
            for optimization in ("-O2", "-Os"):
                found = tflm.estimate(model, target=part, kernels=kernels, optimization=optimization, mhz=64)
                assert found.milliseconds == pytest.approx(found.device_cycles / 64e3, rel=0.01)
                if part != "cortex-m4":
                    assert found.within > measured.within


@pytest.mark.parametrize("name", [name for name, board in boards().items() if board.target.family == "cortex-m"])
def test_every_board_with_a_cortex_m_has_instructions_cycles_and_an_uncertainty(name: str) -> None:
    found = tflm.estimate(tflm.Model(INT8_MODEL.read_bytes()), board=name)
    assert found.instructions > 0
    assert found.device_cycles > 0
    assert found.milliseconds is not None
    assert 0.05 < found.instructions_within < 0.7
    assert 0.1 < found.within < 1.3


def test_what_formulas_do_not_cover_is_counted_in_instructions_and_said() -> None:
    found = tflm.estimate(convolutions(TensorType.INT8, TensorType.FLOAT32), target="cortex-m4", mhz=64)
    covered, left_out = found.operators
    assert found.covered == covered.instructions / (covered.instructions + left_out.guessed_instructions)
    assert left_out.guessed_instructions > covered.multiply_accumulates == left_out.multiply_accumulates
    assert found.covered < 0.4
    assert found.milliseconds is None
    assert [operator.reason for operator in found.operators] == ["", "no formula for float32, only for int8"]


def one_operator(
    operator: BuiltinOperator,
    x: TensorType,
    y: TensorType,
    paddings: list[list[int]] | None = None,
    type_of_paddings: type[np.signedinteger[Any]] = np.int32,
) -> tflm.Model:
    """A model of one operator on 1x6x7x8 values, those of a PAD with paddings."""
    shape = np.array([1, 6, 7, 8])
    builder = tflm.ModelBuilder()
    main = builder.subgraph()
    inputs = [main.input("x", tuple(shape), x, None if x is TensorType.FLOAT32 else tflm.quantized(0.5))]
    if paddings is not None:
        inputs.append(main.constant("paddings", np.array(paddings, type_of_paddings)))
        shape += np.sum(paddings, axis=1)
    result = main.tensor("y", tuple(shape), y, None if y is TensorType.FLOAT32 else tflm.quantized(0.5))
    main.operator(operator, inputs, [result])
    main.output(result)
    return tflm.Model(builder.build())


F32, I8, I16 = TensorType.FLOAT32, TensorType.INT8, TensorType.INT16


@pytest.mark.parametrize("configuration", coefficients())
@pytest.mark.parametrize(
    ("operator", "types", "paddings"),
    [
        (BuiltinOperator.QUANTIZE, (F32, I8), None),
        (BuiltinOperator.QUANTIZE, (I16, I8), None),
        (BuiltinOperator.DEQUANTIZE, (I8, F32), None),
        (BuiltinOperator.LEAKY_RELU, (I8, I8), None),
        (BuiltinOperator.PAD, (I8, I8), [[0, 0], [1, 2], [3, 1], [0, 0]]),
        (BuiltinOperator.PAD, (I8, I8), [[0, 0], [0, 0], [1, 1], [0, 5]]),
    ],
)
def test_conversions_leaky_relu_and_pad_have_formulas(
    configuration: str,
    operator: BuiltinOperator,
    types: tuple[TensorType, TensorType],
    paddings: list[list[int]] | None,
) -> None:
    kernels, extension, optimization = configuration.split("/")
    part = {"none": "cortex-m0plus", "dsp": "cortex-m4", "mve": "cortex-m55"}[extension]
    model = one_operator(operator, *types, paddings)
    found = tflm.estimate(model, target=part, kernels=kernels, optimization=optimization)
    assert found.covered == 1
    assert found.instructions > 6 * 7 * 8 / 4
    if paddings is not None:
        model = one_operator(operator, *types, paddings, np.int64)
        again = tflm.estimate(model, target=part, kernels=kernels, optimization=optimization)
        assert again.instructions == found.instructions
    if operator is BuiltinOperator.QUANTIZE:
        assert found.operators[0].path == f"quantize, {'float32' if types[0] is F32 else 'integers'}"


def autoencoder() -> tflm.Model:
    """Layers of 640 to 8 values and back, between floats: QUANTIZE, ten FULLY_CONNECTED, DEQUANTIZE."""
    builder = tflm.ModelBuilder()
    main = builder.subgraph()
    widths = [640, 128, 128, 128, 128, 8, 128, 128, 128, 128, 640]
    outside = main.input("x", (1, 640), TensorType.FLOAT32)
    tensors = [main.tensor(f"t{i}", (1, w), TensorType.INT8, tflm.quantized(0.05)) for i, w in enumerate(widths)]
    main.operator(BuiltinOperator.QUANTIZE, [outside], [tensors[0]])
    for i, (before, after) in enumerate(itertools.pairwise(widths)):
        weights = main.constant(f"w{i}", np.ones((after, before), np.int8), quantization=tflm.quantized(0.01))
        main.operator(BuiltinOperator.FULLY_CONNECTED, [tensors[i], weights, -1], [tensors[i + 1]])
    result = main.tensor("y", (1, 640), TensorType.FLOAT32)
    main.operator(BuiltinOperator.DEQUANTIZE, [tensors[-1]], [result])
    main.output(result)
    return tflm.Model(builder.build())


def test_an_autoencoder_between_floats_takes_what_was_executed() -> None:
    """691,055 instructions were executed on CMSIS-NN with DSP, for inputs of zeros."""
    found = tflm.estimate(autoencoder(), target="cortex-m4", kernels="cmsis-nn")
    assert found.covered == 1
    low, high = (found.instructions * (1 + sign * found.instructions_within) for sign in (-1, 1))
    assert low <= 691_055 <= high
    conversions = [op.instructions for op in found.operators if op.operator in {"QUANTIZE", "DEQUANTIZE"}]
    assert all(conversions)
    assert found.instructions - sum(filter(None, conversions)) == pytest.approx(579_963, rel=0.03)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({}, "pass a target"),
        ({"board": "toaster"}, "unknown board 'toaster'"),
        ({"board": "esp-eye"}, "no timing data for esp-eye; use a board with a Cortex-M"),
        ({"target": "esp32s3"}, "no timing data for"),
        ({"target": "cortex-m4", "kernels": "esp-nn"}, "no timing data for esp-nn on cortex-m4"),
        ({"target": "cortex-m4", "optimization": "-O7"}, "'-O7'; use -O2 or -Os"),
    ],
)
def test_what_was_not_counted_is_refused(arguments: dict[str, Any], reason: str) -> None:
    with pytest.raises((tflm.FirmwareError, tflm.ArgumentError), match=re.escape(reason)):
        tflm.estimate(tflm.Model(INT8_MODEL.read_bytes()), **arguments)


# --- Commands ----------------------------------------------------------------------------------------------------


def test_flash_of_a_model_on_the_command_line() -> None:
    found = tflm.flash(tflm.Model(INT8_MODEL.read_bytes()), target="cortex-m4", kernels="cmsis-nn")
    shown = run("flash", INT8_MODEL, "--kernels", "cmsis-nn").stdout
    assert f"{found.flash_bytes:,} B" in shown
    assert "AddFullyConnected" in shown
    assert "-DCMSIS_NN" in shown
    assert "not a file of tools" in refusal("flash", INT8_MODEL, "--flash-data", INT8_MODEL)


def test_the_whole_budget_of_a_board() -> None:
    found = tflm.flash(tflm.Model(INT8_MODEL.read_bytes()), target="cortex-m4", kernels="cmsis-nn")
    assert found.flash_bytes is not None
    (budget,) = figures("arena", INT8_MODEL, "--board", "nucleo-l4r5zi")["budgets"]
    assert budget["program_range_bytes"] == [found.flash_bytes, found.flash_bytes]
    assert budget["stack_bytes"] == found.stack_bytes
    assert found.data_bytes is not None
    assert found.bss_bytes is not None
    assert budget["static_ram_bytes"] == found.data_bytes + found.bss_bytes
    taken = budget["arena_bytes"] + budget["static_ram_bytes"] + budget["stack_bytes"]
    assert budget["ram_left_bytes"] == budget["ram_available_bytes"] - taken
    assert budget["flash_left_bytes"] == 2 * 1024 * 1024 - found.flash_bytes - found.model_bytes


@pytest.mark.parametrize("board", ["nano33ble", "esp32-devkitc", "esp32-p4-function-ev"])
def test_kernels_whose_flash_was_not_measured_have_a_range_that_names_what_helps(board: str) -> None:
    found = figures("flash", INT8_MODEL, "--board", board)
    low, high = found["flash_range_bytes"]
    assert 0 < low < high
    assert found["flash_bytes"] is found["bss_bytes"] is found["stack_bytes"] is None
    assert "not measured" in found["note"]
    assert "--flash-data FILE" in found["note"]
    (budget,) = figures("arena", INT8_MODEL, "--board", board)["budgets"]
    assert budget["program_range_bytes"] == [low, high]
    assert budget["ram_left_bytes"] is None
    assert budget["note"] == found["note"]


def test_a_part_that_was_not_measured_has_a_range_and_no_ram() -> None:
    (budget,) = figures("arena", INT8_MODEL, "--board", "nucleo-f746zg")["budgets"]
    low, high = budget["program_range_bytes"]
    assert low < high
    assert budget["flash_left_bytes"] == 1024 * 1024 - high - budget["model_bytes"]
    assert budget["ram_left_bytes"] is None


def test_a_devices_profile_on_the_command_line() -> None:
    answer = figures("profile", INT8_MODEL, "--board", "nano33ble")
    found = tflm.estimate(tflm.Model(INT8_MODEL.read_bytes()), board="nano33ble")
    assert (answer["instructions"], answer["milliseconds"]) == (found.instructions, found.milliseconds)
    shown = run("profile", INT8_MODEL, "--target", "cortex-m4", "--optimization", "Os", "--mhz", "64").stdout
    assert re.search(r"about 0\.[0-9]{1,3} ms, within 20%", shown)
    assert "100% of the instructions" in shown


def test_export_writes_registrations_for_one_type(tmp_path: Path) -> None:
    assert run("export", INT8_MODEL, tmp_path, "--typed").returncode == 0
    header = (tmp_path / "op_resolver.h").read_text()
    assert "resolver.AddFullyConnected(Register_FULLY_CONNECTED_INT8())" in header
    assert "#ifndef CMSIS_NN" in header


@pytest.mark.parametrize("custom", range(4))
@pytest.mark.parametrize("builtin", range(4))
def test_terms_of_a_resolver_are_about_one_operator_or_several(custom: int, builtin: int) -> None:
    data = shipped()[0]
    names = [*data.custom_names][:custom] + [name for name in data.operators if name not in data.custom_names][:builtin]
    terms = data._resolver_terms(names)
    assert (terms.custom_operators, terms.any_custom, terms.several_custom) == (custom, custom > 0, custom > 1)
    assert (terms.builtin_operators, terms.any_builtin, terms.several_builtin) == (builtin, builtin > 0, builtin > 1)
    assert terms.several_operators == (custom + builtin > 1)
    assert terms.custom_name_bytes == sum([*data.custom_names.values()][:custom])
