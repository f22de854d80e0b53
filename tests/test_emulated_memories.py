"""Plans of several memories with TFLM's sources: on this machine, and in firmware under emulation.

`make projects TFLM_TREE=FOLDER` names the sources; see `test_emulated_projects`.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from image_graphs import shrinking_network
from networks import branches, mobilenet_v2, resnet
from test_emulated_projects import answers, built, filled, printed, tree

import tflm
from tflm.application.export import ArenaMemory, Firmware, SourceStyle, buffers_in, sources
from tflm.application.machine import Machine
from tflm.application.projects import project_files
from tflm.application.projects.parts import PROCESSORS
from tflm.atomic_write import write_files
from tflm.boards import Bank, by_name
from tflm.libraries import Kernels, library_for
from tflm.memory.several_memories import REGION_BYTES
from tflm.planning import MemoriesPlan

__all__ = ["tree"]
PART = "cortex-m4"
BOARD = replace(by_name("nrf52840dk"), ram=(Bank("SRAM", 1 << 20), Bank("PSRAM", 8 << 20)), flash_bytes=None, sdk="")
"""The memories of QEMU's mps2-an386, of which a plan uses less."""

GUARD = 64
"""Bytes behind each memory that must not be written."""

GIVEN = ["person_detect", "vww_96_int8", "pretrainedResnet_quant", "kws_ref_model", "okay_nabu_v2"]
MADE: dict[str, Callable[[], tflm.Model]] = {
    "mobilenet_v2": lambda: mobilenet_v2(64, 4),
    "resnet": lambda: resnet(48, 8),
    "shrinking": lambda: shrinking_network(64),
    "branches": lambda: branches(48),
    "narrow_resnet": lambda: resnet(64, 4),
}

CHECKS = """
  struct Place {{ int tensor; const uint8_t* at; }};
  const Place places[] = {{{places}}};
  for (const Place& place : places) {{
    if (interpreter.GetTensor(place.tensor)->data.raw != reinterpret_cast<const char*>(place.at)) return 3;
  }}
  for (int i = 0; i < {guard}; ++i) {{
    if ({guards}) return 4;
  }}
  return 0;
}}

}}  // namespace
"""


def named(name: str, corpus: Path) -> tflm.Model:
    return MADE[name]() if name in MADE else tflm.Model.from_file(corpus / "models" / f"{name}.tflite")


def planned(model: tflm.Model, target: tflm.targets.Target, kernels: Kernels, share: float = 0.3) -> MemoriesPlan:
    """A plan with a part of the buffers in the second memory, some of which overlap."""
    whole = tflm.measure_arena(model, tflm.AllOpsResolver(), target=target, kernels=kernels)
    fast = whole.tail_bytes + int(whole.head_bytes * share) + 2048
    memories = [("SRAM", fast, 1), ("PSRAM", 8 << 20, 6)]
    return tflm.plan(model, target=target, kernels=kernels, memories=memories, overlap=True)


def checked(main: Path, plan: MemoriesPlan, target: tflm.targets.Target, kernels: Kernels) -> None:
    """Let a firmware check the address of every tensor of the plan, and the bytes after the memories."""
    measured = tflm.measure_arena(
        plan.model, tflm.AllOpsResolver(), target=target, kernels=kernels, planner=plan.planner()
    )
    arrays = ["tensor_arena", *(buffers_in(share.name) for share in plan.others)]
    used = [plan.arena_bytes, *(share.used_bytes for share in plan.others)]
    count = len(plan.model.subgraphs[0].tensors or ())
    places, ends = [], [0, 0]
    for buffer in measured.buffers:
        memory, offset = divmod(buffer.offset, REGION_BYTES)
        ends[memory] = max(ends[memory], offset + buffer.size)
        if buffer.tensor is not None and buffer.tensor < count:
            places.append(f"{{{buffer.tensor}, {arrays[memory]} + {offset}}}")
    assert all(end <= size for end, size in zip(ends, used))
    arrays = [array for array, size in zip(arrays, used) if size]
    guards = " || ".join(f"{array}[{size} + i] != 0xA5" for array, size in zip(arrays, filter(None, used)))
    header = main.with_name("memory_plan.h")
    told = "preserves_all_tensors() const { return false; }"  # TFLM asks only where it hands out tensors
    assert told in header.read_text()
    header.write_text(header.read_text().replace(told, told.replace("false", "true")))
    text = main.read_text()
    text, count = re.subn(r"(alignas\(16\) .*uint8_t \w+\[k\w+Size)\];", rf"\1 + {GUARD}];", text)
    assert count in (0, len(arrays))
    fill = "".join(f"    {array}[{size} + i] = 0xA5;\n" for array, size in zip(arrays, filter(None, used)))
    text = text.replace(
        "  const Model* model =", f"  for (int i = 0; i < {GUARD}; ++i) {{\n{fill}  }}\n  const Model* model =", 1
    )
    end = "\n  return 0;\n}\n\n}  // namespace\n"
    assert text.count(end) == 1
    main.write_text(text.replace(end, CHECKS.format(places=", ".join(places), guards=guards, guard=GUARD)))


# --- Firmware under emulation ----------------------------------------------------------------------------------------


def emulated(
    model: tflm.Model, plan: MemoriesPlan, tree: Path, folder: Path, kernels: str = "reference"
) -> tuple[int, str]:
    """Run a model's firmware with its plan, or with one that was made for something else; exit status and output."""
    library = library_for(kernels, BOARD.target)
    machine = Machine(BOARD.target, library, BOARD)
    right = planned(model, BOARD.target, library)
    write_files(folder, project_files(Firmware(model, "net", machine, "a test"), "qemu", planned=lambda _: right))
    if plan.buffers == right.buffers:
        filled(folder)
        checked(folder / "main.cc", right, BOARD.target, library)
    else:
        plan.write(folder, "net")
    image = built(folder, tree, f"{PART}-{kernels}")
    command = ["qemu-system-arm", "-M", PROCESSORS[PART].machine, "-nographic", "-semihosting", "-kernel", str(image)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=300)
    return ran.returncode, ran.stdout + ran.stderr


@pytest.mark.parametrize("name", [*GIVEN, *MADE])
def test_firmware_with_two_memories_answers_as_the_original(
    tree: Path, corpus: Path, name: str, tmp_path: Path
) -> None:
    """Every tensor is at its place, and nothing after the memories is written."""
    model = named(name, corpus)
    plan = planned(model, BOARD.target, "reference")
    assert all(share.traffic_bytes for share in plan.memories)
    status, shown = emulated(model, plan, tree, tmp_path)
    assert status == 0, shown[-200:]
    assert printed(shown) == answers(model)


STALE = "run tflm plan again"


def refused(status: int, shown: str) -> bool:
    """Whether a firmware said that its plan is stale, and printed no answers, although TFLM's messages are left out."""
    return status != 0 and "AllocateTensors() failed" in shown and STALE in shown and "output" not in shown


def test_a_plan_for_another_model_never_runs(tree: Path, tmp_path: Path) -> None:
    model = shrinking_network(64)
    for i, other in enumerate((shrinking_network(32), branches(64), resnet(32, 8))):
        assert refused(*emulated(model, planned(other, BOARD.target, "reference"), tree, tmp_path / str(i)))


def test_a_plan_for_other_kernels_never_runs(tree: Path, tmp_path: Path) -> None:
    """The kernels of CMSIS-NN ask for other scratch buffers."""
    model = shrinking_network(64)
    for kernels, others in (("cmsis-nn", "reference"), ("reference", "cmsis-nn")):
        plan = planned(model, BOARD.target, others)
        assert refused(*emulated(model, plan, tree, tmp_path / kernels, kernels))


def test_a_plan_for_another_release_never_runs(tree: Path, corpus: Path, tmp_path: Path) -> None:
    """Since the summer of 2024, the Fourier transform asks for a scratch buffer."""
    model = tflm.Model.from_file(corpus / "models" / "audio_preprocessor_int8.tflite")
    plan = planned(model, BOARD.target, library_for("reference", BOARD.target, "2024-03-15"))
    assert refused(*emulated(model, plan, tree, tmp_path))


# --- This machine ----------------------------------------------------------------------------------------------------

REGIONS = """\
#include <sys/mman.h>
#include <cstddef>
#include <cstdint>

// Regions of one mapping, one after the other.
inline uint8_t* Region(std::size_t begin, std::size_t) {
  static void* all = mmap(nullptr, 64 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return static_cast<uint8_t*>(all) + begin;
}
"""

CMAKE = """\
cmake_minimum_required(VERSION 3.18)
project(net LANGUAGES C CXX ASM)
include(tflm.cmake)
add_executable(net.elf main.cc model_data.cc)
target_compile_options(net.elf PRIVATE -O2)
target_link_libraries(net.elf PRIVATE tflm)
"""


def on_this_machine(model: tflm.Model, plan: MemoriesPlan, tree: Path, folder: Path) -> tuple[int, str]:
    """Run a model with a plan as a program of this machine, with the memories in one mapping."""
    target, kernels = tflm.targets.HOST, library_for("reference", tflm.targets.HOST)
    sizes = [("arena", plan.arena_bytes), *((buffers_in(each.name), each.used_bytes) for each in plan.others)]
    arenas, begin = [], 0
    for part, size in sizes:
        arenas.append(ArenaMemory(part, size, part, include='"regions.h"', allocation=f"Region({begin}, $size)"))
        begin += 4096 * (1 + (size + GUARD) // 4096)
    first = 'extern "C" void RegisterDebugLogCallback(void (*print)(const char* text));\n#include <cstdio>\n'
    log = "\nstatic void Print(const char* text) { std::fputs(text, stdout); }\n"
    ending = log + "int main() { RegisterDebugLogCallback(Print); return Run(); }\n"
    style = SourceStyle(first=first, ending=ending, arenas=tuple(arenas), plan=plan)
    files = sources(Firmware(model, "net", Machine(target, kernels, None), "a test"), style=style)
    qemu = project_files(Firmware(model, "net", Machine(BOARD.target, kernels, None), "a test"), "qemu")
    write_files(folder, {**files, "regions.h": REGIONS, "CMakeLists.txt": CMAKE, "tflm.cmake": qemu["tflm.cmake"]})
    filled(folder)
    main = folder / "main.cc"
    checked(main, plan, target, kernels)
    image = built(folder, tree, "host-reference", "-DTFLM_MESSAGES=ON")
    ran = subprocess.run([str(image)], capture_output=True, text=True, timeout=300)
    return ran.returncode, ran.stdout + ran.stderr


@pytest.mark.parametrize("name", [*GIVEN, *MADE])
def test_a_program_with_two_regions_of_a_mapping_answers_as_the_original(
    tree: Path, corpus: Path, name: str, tmp_path: Path
) -> None:
    model = named(name, corpus)
    status, shown = on_this_machine(model, planned(model, tflm.targets.HOST, "reference"), tree, tmp_path)
    assert status == 0, shown[-200:]
    assert printed(shown) == answers(model)


@pytest.mark.parametrize("name", [*GIVEN, *MADE])
def test_one_memory_that_is_large_enough_has_the_places_of_tflm(corpus: Path, name: str) -> None:
    model = named(name, corpus)
    measured = tflm.measure_arena(model, tflm.AllOpsResolver(), target=PART)
    plan = tflm.plan(model, target=PART, memories=[("SRAM", 1 << 20)])
    assert [spot.offset for spot in plan.spots] == [buffer.offset for buffer in measured.buffers]
