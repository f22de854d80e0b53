"""Plans that let outputs overlap inputs hold for the kernels that they were made for: others are rejected."""

from __future__ import annotations

from pathlib import Path

import pytest
from image_graphs import Images

import tflm
from tflm.application.export import Firmware, sources
from tflm.application.machine import Machine
from tflm.boards import by_name
from tflm.libraries import library_for
from tflm.schema import ModelBuilder

BOARD = by_name("nrf52dk")
M4 = BOARD.target


def pointwise(channels: int = 16) -> tflm.Model:
    """1x1 convolutions: TFLM's kernels go window by window, CMSIS-NN's read the whole input for each channel."""
    builder = ModelBuilder()
    images = Images(builder.subgraph(), (1, 12, 12, channels))
    x = images.convolution(images.last, channels, taps=(1, 1))
    images.main.output(images.convolution(x, 2, taps=(1, 1)))
    return tflm.Model(builder.build())


MODEL = pointwise()
FOR_REFERENCE = tflm.plan(MODEL, target=M4, overlap="reference")
KERNELS = ["cmsis-nn", "cmsis-nn:size"]


def interpreter(model: tflm.Model, kernels: str, **options: object) -> tflm.MicroInterpreter:
    found = tflm.MicroInterpreter(
        model, tflm.AllOpsResolver(), bytearray(1 << 16), target=M4, kernels=kernels, **options
    )
    found.allocate_tensors()
    return found


def test_the_plan_overlaps() -> None:
    assert FOR_REFERENCE.head_bytes < tflm.plan(MODEL, target=M4).head_bytes
    interpreter(FOR_REFERENCE.model, "reference").invoke()


@pytest.mark.parametrize("kernels", KERNELS)
def test_other_kernels_reject_it(kernels: str) -> None:
    with pytest.raises(tflm.ModelError, match=f"made for other kernels than {kernels} on cortex-m4.*CONV_2D"):
        interpreter(FOR_REFERENCE.model, kernels)


def test_nothing_is_known_of_the_loops_of_esp_nn() -> None:
    s3 = tflm.targets.by_name("esp32s3")
    found = tflm.MicroInterpreter(
        FOR_REFERENCE.model, tflm.AllOpsResolver(), bytearray(1 << 16), target=s3, kernels="esp-nn"
    )
    with pytest.raises(tflm.ModelError, match="esp-nn"):
        found.allocate_tensors()


def test_it_runs_where_no_plan_is_obeyed_or_on_request() -> None:
    with pytest.warns(tflm.PlanIgnored):
        interpreter(FOR_REFERENCE.model, "cmsis-nn", preserve_all_tensors=True)
    interpreter(tflm.Model(FOR_REFERENCE.data, checks="tflm"), "cmsis-nn")


@pytest.mark.parametrize("kernels", KERNELS)
def test_plans_for_the_kernels_are_accepted(kernels: str) -> None:
    for options in ({}, {"overlap": True}, {"in_place": True}):
        interpreter(tflm.plan(FOR_REFERENCE.model, target=M4, kernels=kernels, **options).model, kernels).invoke()


def test_the_check_says_so_and_the_export_refuses() -> None:
    findings = tflm.check_device(FOR_REFERENCE.model, target=M4, kernels="cmsis-nn")
    assert [finding.stops for finding in findings] == [True]
    assert "made for other kernels" in findings[0].happens
    assert not tflm.check_device(FOR_REFERENCE.model, target=M4, kernels="reference")
    machine = Machine(M4, library_for("cmsis-nn", M4), None)
    with pytest.raises(tflm.ModelError, match="other kernels"):
        sources(Firmware(FOR_REFERENCE.model, "model", machine, "a test"))


def test_fit_writes_another_plan() -> None:
    found = tflm.fit(FOR_REFERENCE.model, board=BOARD)
    assert found.fits
    first, second = found.steps
    assert "for other kernels" in first.reason
    assert second is found.chosen
    interpreter(found.model, found.kernels.name)


def test_models_on_disk_say_it_as_well(tmp_path: Path) -> None:
    FOR_REFERENCE.write(tmp_path / "planned.tflite")
    with pytest.raises(tflm.ModelError, match="other kernels"):
        interpreter(tflm.Model.from_file(tmp_path / "planned.tflite"), "cmsis-nn")
