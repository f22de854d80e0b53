"""Count instructions of operators on a Cortex-M4 under emulation, and the stack that models use.

    python tools/count_instructions.py LIBRARY --compile "arm-none-eabi-g++ FLAGS" --header FOLDER
        --configuration cmsis-nn/dsp/-O2 FILE ... > counted.jsonl

LIBRARY and `--compile` are those of tools/flash_groups.py; FOLDER has QEMU's qemu-plugin.h. A FILE is a .tflite model,
for which a line is printed as `tools/fit_instructions.py --check` reads it, with `stack_bytes` as painted; or operators
in lines of JSON as that tool fits them, printed with their counts under `counts`. A line's model is built with random
weights. Every operator's function is called through a wrapper that marks its start and end for a QEMU plugin
(tools/instruction_counts.c). Needs qemu-system-arm with plugins, a C compiler, pyelftools.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from decoding_operators import decoding_model
from flash_groups import Toolchain

import tflm
from tflm.firmware.flash import operators_of
from tflm.kernels import REGISTRATIONS
from tflm.kernels.reference.decode import TFLM_DECODE
from tflm.schema import (
    ActivationFunctionType,
    AddOptions,
    BuiltinOperator,
    Conv2DOptions,
    DepthwiseConv2DOptions,
    DequantizeOptions,
    FullyConnectedOptions,
    LeakyReluOptions,
    MulOptions,
    Padding,
    PadOptions,
    Pool2DOptions,
    QuantizeOptions,
    SoftmaxOptions,
    TensorType,
)

MODEL_BYTES = 3 << 20
"""Models of a firmware together."""

MACHINE = "mps2-an386"
"""QEMU's board with a Cortex-M4, which runs code for M0+ and M3, too: 4 MiB for the program and 4 MiB for data."""

HELIUM_MACHINE, HELIUM_MODEL_BYTES = "mps3-an547", 150 << 10
"""QEMU's board with a Cortex-M55: 512 KiB for the program and, for data, 2 MiB at another place."""

LAYOUT = """MEMORY { FLASH : ORIGIN = 0, LENGTH = 4M  RAM : ORIGIN = 0x20000000, LENGTH = 4M }
ENTRY(reset)
SECTIONS {
  .text : { KEEP(*(.vectors)) *(.text*) *(.rodata*) . = ALIGN(16); *(.model) . = ALIGN(4); } > FLASH
  .init_array : { __init_array_start = .; KEEP(*(.init_array*)) __init_array_end = .; } > FLASH
  .ARM.extab : { *(.ARM.extab*) } > FLASH
  .ARM.exidx : { __exidx_start = .; *(.ARM.exidx*) __exidx_end = .; } > FLASH
  data_load = LOADADDR(.data);
  .data : { data_start = .; *(.data*) . = ALIGN(4); data_end = .; } > RAM AT > FLASH
  .bss (NOLOAD) : { bss_start = .; *(.bss*) *(COMMON) . = ALIGN(4); bss_end = .; end = .; } > RAM
  stack_low = ORIGIN(RAM) + 0x1E0000; stack_end = ORIGIN(RAM) + 0x1F0000;
}
"""

HELIUM_LAYOUT = LAYOUT.replace("LENGTH = 4M", "LENGTH = 512K", 1).replace(
    "0x20000000, LENGTH = 4M", "0x21000000, LENGTH = 2M"
)

START_UP = """#include <stdint.h>
#include <string.h>
enum { PAINT = 0xA5A5A5A5, WRITE = 0x04, EXIT = 0x18, DONE = 0x20026, FAILED = 0x20023 };
extern uint32_t stack_low[], stack_end[], data_start[], data_end[], data_load[], bss_start[], bss_end[];
extern void (*__init_array_start[])(void), (*__init_array_end[])(void);
int main(void);
void* __dso_handle;
int __aeabi_atexit(void* object, void (*end)(void*), void* handle) { return 0; }
static void host(uintptr_t what, uintptr_t argument) {
  register uintptr_t r0 asm("r0") = what;
  register uintptr_t r1 asm("r1") = argument;
  asm volatile("bkpt 0xab" : "+r"(r0) : "r"(r1) : "memory");
}
static void print(uint32_t value) {
  char text[12], *at = text + sizeof text - 1;
  *at = 0;
  do *--at = '0' + value % 10;
  while (value /= 10);
  host(WRITE, (uintptr_t)at);
}
void reset(void) {
  *(volatile uint32_t*)0xE000ED88 |= 0xF << 20; /* switches on the floating point unit, and Helium */
  memcpy(data_start, data_load, (char*)data_end - (char*)data_start);
  memset(bss_start, 0, (char*)bss_end - (char*)bss_start);
  for (uint32_t* each = stack_low; each < (uint32_t*)__builtin_frame_address(0) - 32; ++each) *each = PAINT;
  for (void (**each)(void) = __init_array_start; each < __init_array_end; ++each) (*each)();
  int result = main();
  uint32_t* touched = stack_low;
  while (*touched == PAINT) ++touched;
  print((char*)stack_end - (char*)touched);
  host(EXIT, result ? FAILED : DONE);
}
static void halt(void) { host(EXIT, FAILED); }
__attribute__((section(".vectors"), used)) void (*const vectors[16])(void) = {
    (void (*)(void))stack_end, reset, [2 ... 15] = halt};
"""

MAIN = """extern "C" const unsigned char {models};
alignas(16) static unsigned char arena[0x100000];
extern "C" __attribute__((noinline)) void operator_begins() {{ asm volatile(""); }}
extern "C" __attribute__((noinline)) void operator_ends() {{ asm volatile(""); }}
static TfLiteStatus (*invokes[{count}])(TfLiteContext*, TfLiteNode*);
template <int place> TfLiteStatus counted(TfLiteContext* context, TfLiteNode* node) {{
  operator_begins();
  TfLiteStatus status = invokes[place](context, node);
  operator_ends();
  return status;
}}
template <int place> void count(const TFLMRegistration* found) {{
  auto* registration = const_cast<TFLMRegistration*>(found);
  invokes[place] = registration->invoke;
  registration->invoke = counted<place>;
}}
static void fill(TfLiteTensor* input) {{
  for (unsigned j = 0; j < input->bytes; ++j) input->data.uint8[j] = input->type == kTfLiteFloat32 ? 0 : 7 * j;
  for (unsigned j = 0; input->type == kTfLiteFloat32 && j < input->bytes / 4; ++j)
    input->data.f[j] = 0.01f * (static_cast<int>(j * 37 % 256) - 128);
}}
static int run(const unsigned char* model, const MicroOpResolver& resolver) {{
  MicroInterpreter interpreter(GetModel(model), resolver, arena, sizeof(arena));
  if (interpreter.AllocateTensors() != kTfLiteOk) return 1;
  for (unsigned i = 0; i < interpreter.inputs_size(); ++i) fill(interpreter.input(i));
  return interpreter.Invoke();
}}
int main() {{
  static MicroMutableOpResolver<{count}> resolver;
{adds}
  return {runs};
}}
"""

OPTIONS: dict[str, Any] = {
    "ADD": AddOptions,
    "AVERAGE_POOL_2D": Pool2DOptions,
    "CONV_2D": Conv2DOptions,
    "DEPTHWISE_CONV_2D": DepthwiseConv2DOptions,
    "DEQUANTIZE": DequantizeOptions,
    "FULLY_CONNECTED": FullyConnectedOptions,
    "LEAKY_RELU": LeakyReluOptions,
    "MAX_POOL_2D": Pool2DOptions,
    "MUL": MulOptions,
    "PAD": PadOptions,
    "QUANTIZE": QuantizeOptions,
    "SOFTMAX": SoftmaxOptions,
}
OUTPUTS = {"SOFTMAX": tflm.quantized(1 / 256, -128), "QUANTIZE": tflm.quantized(0.013, 3)}
"""Quantization of outputs; that of inputs is 0.02."""

FIELDS = {
    "alpha": "alpha",
    "stride": "stride_h",
    "stride_w": "stride_w",
    "dilation_h": "dilation_h_factor",
    "dilation_w": "dilation_w_factor",
    "depth_multiplier": "depth_multiplier",
    "filter_h": "filter_height",
    "filter_w": "filter_width",
}
"""Names of options in an operator's line."""


class Counter:
    """Counts models on one build of TFLM."""

    def __init__(self, toolchain: Toolchain, header: Path, machine: str) -> None:
        self.toolchain, self.machine = toolchain, machine
        self.plugin = toolchain.folder / "instruction_counts.so"
        source = Path(__file__).with_name("instruction_counts.c")
        subprocess.run(["cc", "-O2", "-shared", "-fPIC", f"-I{header}", source, "-o", self.plugin], check=True)

    def count(self, models: Sequence[tflm.Model]) -> tuple[list[tuple[str, int, int]], int]:
        """Instructions and cycles of each operator in an invoke of each model, and the bytes of the stack."""
        firmware = self._firmware(models)
        symbols = self.toolchain.addresses(firmware)
        marks = f"begin={symbols['operator_begins']},end={symbols['operator_ends']}"
        log = self.toolchain.folder / "counts.txt"
        command = [
            "qemu-system-arm",
            "-M",
            self.machine,
            "-nographic",
            "-semihosting-config",
            "enable=on,target=native",
        ]
        command += ["-kernel", str(firmware), "-plugin", f"{self.plugin},{marks}", "-d", "plugin", "-D", str(log)]
        done = subprocess.run(command, check=False, capture_output=True, text=True, stdin=subprocess.DEVNULL)
        if done.returncode:
            raise SystemExit(f"the firmware failed: {done.stdout}{done.stderr}")
        counts = [line.split() for line in log.read_text().splitlines()]
        names = [model.operator_name(operator) for model in models for operator in model.subgraphs[0].operators or ()]
        operators = [(name, int(a), int(b)) for name, (a, b) in zip(names, counts, strict=True)]
        return operators, int(done.stderr or done.stdout)

    def _firmware(self, models: Sequence[tflm.Model]) -> Path:
        folder = self.toolchain.folder
        names = sorted({name for model in models for name in operators_of(model)})
        adds = [f"  resolver.{REGISTRATIONS[name].resolver_method}();" for name in names]
        adds += [
            f"  count<{i}>(resolver.FindOp(BuiltinOperator_{name}));"
            if name in BuiltinOperator.__members__
            else f'  count<{i}>(resolver.FindOp("{name}"));'
            for i, name in enumerate(names)
        ]
        section = '.section .model,"a"\n'
        for i, model in enumerate(models):
            (folder / f"{i}.tflite").write_bytes(model.data)
            section += f'.balign 16\n.global model{i}\nmodel{i}: .incbin "{folder / f"{i}.tflite"}"\n'
        embedded = self.toolchain.compiled("model", section, "assembler")
        declared = ", ".join(f"model{i}[]" for i in range(len(models)))
        runs = " || ".join(f"run(model{i}, resolver)" for i in range(len(models)))
        source = MAIN.format(count=len(names), adds="\n".join(adds), models=declared, runs=runs)
        main = self.toolchain.compiled("main", source)
        return self.toolchain.linked("counted", main, embedded)


def model_of(line: dict[str, Any]) -> bytes:
    """A model of one operator, as its line describes it, with random weights."""
    if line["op"] == TFLM_DECODE.name:
        return decoding_model(line)
    draw, builder = np.random.default_rng(0), tflm.ModelBuilder()
    graph = builder.subgraph()
    tensors = []
    for place, (kind, shape) in enumerate(line["inputs"]):
        scale = tflm.quantized(0.02)
        constant = place and line["op"] not in {"ADD", "MUL"}
        if constant and line["op"] == "PAD":
            tensors.append(graph.constant(f"x{place}", np.array(line["paddings"], np.int32)))
        elif constant and kind == "int32":
            tensors.append(graph.constant(f"x{place}", np.zeros(shape, np.int32), quantization=tflm.quantized(0.0004)))
        elif constant:
            values = draw.integers(-127, 128, shape).astype(np.int8)
            tensors.append(graph.constant(f"x{place}", values, quantization=scale))
        else:
            graph_input = None if kind == "float32" else scale
            tensors.append(graph.input(f"x{place}", tuple(shape), TensorType[kind.upper()], quantization=graph_input))
    kind, shape = line["outputs"][0]
    output = OUTPUTS.get(line["op"], tflm.quantized(0.02)) if kind != "float32" else None
    result = graph.tensor("y", tuple(shape), TensorType[kind.upper()], quantization=output)
    graph.operator(BuiltinOperator[line["op"]], tensors, [result], options_of(line))
    graph.output(result)
    return builder.build()


def batches(lines: Iterable[dict[str, Any]], most: int) -> Iterator[list[tuple[dict[str, Any], tflm.Model]]]:
    """Batches of lines with their models, limited by size."""
    batch: list[tuple[dict[str, Any], tflm.Model]] = []
    size = 0
    for line in lines:
        model = tflm.Model(model_of(line))
        if batch and size + len(model.data) > most:
            yield batch
            batch, size = [], 0
        batch.append((line, model))
        size += len(model.data)
    if batch:
        yield batch


def options_of(line: dict[str, Any]) -> Any:
    """The options of an operator's line."""
    given = {field: line[name] for name, field in FIELDS.items() if name in line}
    if "padding" in line:
        given["padding"] = Padding(line["padding"])
    if "activation" in line:
        given["fused_activation_function"] = ActivationFunctionType(line["activation"])
    if line["op"] == "SOFTMAX":
        given["beta"] = 1.0
    return OPTIONS[line["op"]](**given)


def main() -> None:
    """Count every file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library", type=Path)
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--compile", required=True, help="the compiler and its flags")
    parser.add_argument("--link", default="-specs=nano.specs -specs=nosys.specs -lm", help="flags of the link")
    parser.add_argument("--header", type=Path, required=True, help="the folder of qemu-plugin.h")
    parser.add_argument("--configuration", required=True, help="kernels/extension/optimization")
    arguments = parser.parse_args()
    kernels, extension, optimization = arguments.configuration.split("/")
    with tempfile.TemporaryDirectory() as folder:
        machine, layout, most = MACHINE, LAYOUT, MODEL_BYTES
        if extension == "mve":
            machine, layout, most = HELIUM_MACHINE, HELIUM_LAYOUT, HELIUM_MODEL_BYTES
        toolchain = Toolchain(arguments.compile, arguments.link, arguments.library, Path(folder), START_UP, layout)
        counter = Counter(toolchain, arguments.header, machine)
        for file in arguments.files:
            if file.suffix == ".tflite":
                operators, stack = counter.count([tflm.Model.from_file(file)])
                build = {"kernels": kernels, "extension": extension, "optimization": optimization}
                print(
                    json.dumps({"model": file.stem, **build, "operators": operators, "stack_bytes": stack}), flush=True
                )
                continue
            for batch in batches(map(json.loads, file.read_text().splitlines()), most):
                counted, _ = counter.count([model for _, model in batch])
                for (line, _), (_, *count) in zip(batch, counted, strict=True):
                    counts = {**line.get("counts", {}), arguments.configuration: count}
                    print(json.dumps({**line, "counts": counts}), flush=True)


if __name__ == "__main__":
    main()
