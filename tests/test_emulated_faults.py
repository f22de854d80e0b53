"""Faults planted in TFLM's firmware, on this machine and on an emulated Cortex-M4: `tflm device` names the operator.

`make devices TFLM_TREE=FOLDER` names the sources; see `test_emulated_projects`. `test_planted_faults` has models as C.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from test_emulated_devices import device_of, machine_of, served
from test_emulated_projects import tree
from test_planted_faults import INPUTS, net

import tflm
from tflm.application.device_run import run_device
from tflm.application.machine import MachineOptions
from tflm.application.progress import silent
from tflm.device.verdict import Status, compare

__all__ = ["tree"]

INVOKED = "  const TfLiteStatus status = invokes[i](context, node);\n"
PLANTED = """\
  auto* invoke = invokes[i];
  auto* scratch = context->GetScratchBuffer;
  if (planted(2, 5)) invoke = Register_AVERAGE_POOL_2D().invoke;
  if (planted(3, 3)) static_cast<OpDataConv*>(node->user_data)->per_channel_output_multiplier[2] = 1 << 30;
  if (planted(4, 3)) context->GetScratchBuffer = Overlapping;
  const TfLiteStatus status = invoke(context, node);
  context->GetScratchBuffer = scratch;
  uint8_t* out = static_cast<uint8_t*>(context->GetEvalTensor(context, node->outputs->data[0])->data.data);
  for (int j = 3; planted(1, 3) && j < 288; j += 8) out[j] ^= 1;
  if (planted(5, 3)) UseStack(reinterpret_cast<uintptr_t>(&scratch) - reinterpret_cast<uintptr_t>(serving.low) + 8);
"""
OVERLAPPING = """\
void* Overlapping(TfLiteContext*, int) { return served->GetTensor(SKIP)->data.data; }

TfLiteStatus InvokeObserved("""
HELPERS = """\
#include <alloca.h>
#include <cstdlib>
#include <cstring>
#include "tensorflow/lite/micro/kernels/conv.h"
#include "tensorflow/lite/micro/kernels/pooling.h"

#ifndef FAULT
#define FAULT atoi(getenv("FAULT") ? getenv("FAULT") : "0")
#endif

/* Whether a fault is planted in the operator that runs. */
static bool planted(int fault, uint32_t index) { return FAULT == fault && serving.next == index; }

__attribute__((noinline)) static void UseStack(size_t bytes) {
  memset(alloca(bytes), 0x55, bytes);
  __asm__ volatile("" ::: "memory");
}

"""

NAMED = {
    "off by one in one channel": (1, 3, False),
    "a wrong kernel of TFLM": (2, 5, False),
    "a wrong multiplier": (3, 3, False),
}
"""The fault's number, the operator, and whether it overwrites another tensor."""


def plant(files: dict[str, str], fault: int | None = None) -> None:
    """Plant faults in the main source: one, or those that the environment chooses."""
    text = files["main.cc"]
    assert text.count(INVOKED) == 1
    skip = str(next(iter(net().subgraphs[0].operators[0].outputs)))
    define = "" if fault is None else f"#define FAULT {fault}\n"
    begin = text.index("namespace tflite {")
    text = text[:begin] + define + HELPERS + text[begin:]
    text = text.replace("TfLiteStatus InvokeObserved(", OVERLAPPING.replace("SKIP", skip), 1)
    files["main.cc"] = text.replace(INVOKED, PLANTED)


@pytest.fixture(scope="module")
def image(tree: Path) -> Path:
    """TFLM's firmware for this machine, with faults that the environment chooses."""
    return served(net(), "host", "reference", tree, plant)


@pytest.mark.parametrize("name", NAMED)
def test_the_operator_is_named(image: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fault, operator, overwrites = NAMED[name]
    monkeypatch.setenv("FAULT", str(fault))
    machine = machine_of("host", "reference")
    with device_of(image, "host", net()) as device:
        wrong = compare(device, INPUTS, target=machine.target, kernels=machine.kernels).wrong
    assert wrong is not None
    assert (wrong.operator_index, wrong.overwrites, wrong.invoke) == (operator, overwrites, 0)


def test_without_a_fault_it_is_equal(image: Path) -> None:
    with device_of(image, "host", net()) as device:
        assert run_device(device, INPUTS, MachineOptions(), silent).verdict.status is Status.EQUAL


def test_a_bit_of_the_model_that_is_flipped_in_flash_is_told(tree: Path) -> None:
    def flip(files: dict[str, str]) -> None:
        lines = files["model_data.cc"].splitlines(keepends=True)
        middle = len(lines) // 2
        lines[middle] = re.sub(r"0x(..)", lambda byte: f"0x{int(byte[1], 16) ^ 4:02x}", lines[middle], count=1)
        files["model_data.cc"] = "".join(lines)

    image = served(net(), "host", "reference", tree, flip)
    with pytest.raises(tflm.WrongModel, match="check the flash"), device_of(image, "host", net()):
        pass


def test_scratch_that_overlaps_is_named(tree: Path) -> None:
    """The scratch buffer of operator 3 in CMSIS-NN overlaps the output of operator 0, and the memory after it."""
    image = served(net(), "mps2-an386", "cmsis-nn", tree, lambda files: plant(files, 4))
    told = pytest.raises(tflm.DeviceError, match="operator 3 began, and did not end")
    with device_of(image, "mps2-an386", net()) as device, told:
        run_device(device, INPUTS, MachineOptions(), silent)


def test_a_stack_overflow_is_named(tree: Path) -> None:
    image = served(net(), "mps2-an386", "cmsis-nn", tree, lambda files: plant(files, 5))
    with device_of(image, "mps2-an386", net()) as device:
        run = run_device(device, INPUTS, MachineOptions(), silent)
    assert run.facts.overflow == 3
