"""`tflm export`: what a firmware project needs of a model, as C++ for TFLM."""

from __future__ import annotations

import re
import shlex
import sys
import zlib
from pathlib import Path
from string import Template
from typing import Annotated

import typer

import tflm
from tflm.cli.command_line import (
    BoardName,
    CommandError,
    KernelsName,
    Machine,
    ModelPath,
    ReleaseName,
    TargetName,
    load_model,
    machine_from,
    print_plain,
)
from tflm.cli.tensor_dump import dump_header
from tflm.firmware.resolver_methods import operators_of, resolver_method, typed_registrations
from tflm.kernels import REGISTRATIONS
from tflm.runtime.micro_resource_variable import count_resource_variables
from tflm.schema.enums import TensorType
from tflm.schema.patch import with_data_inside

BYTES_A_LINE = 12

C_TYPES = {
    TensorType.FLOAT32: "float",
    TensorType.INT8: "int8_t",
    TensorType.UINT8: "uint8_t",
    TensorType.INT16: "int16_t",
    TensorType.INT32: "int32_t",
    TensorType.INT64: "int64_t",
    TensorType.BOOL: "bool",
}

MODEL_HEADER = Template("""\
// $origin
#ifndef ${guard}_MODEL_DATA_H_
#define ${guard}_MODEL_DATA_H_

extern const unsigned char ${name}_model_data[];
extern const unsigned int ${name}_model_data_size;

#endif  // ${guard}_MODEL_DATA_H_
""")

MODEL_SOURCE = Template("""\
// $origin
#include "model_data.h"

// The runtime reads the model in place, and needs it aligned.
alignas(16) const unsigned char ${name}_model_data[] = {
$data
};
const unsigned int ${name}_model_data_size = $size;
""")

RESOLVER_HEADER = Template("""\
// $origin
#ifndef ${guard}_OP_RESOLVER_H_
#define ${guard}_OP_RESOLVER_H_

$condition#include "tensorflow/lite/micro/micro_mutable_op_resolver.h"

using ${camel}OpResolver = tflite::MicroMutableOpResolver<$count>;

// Adds the operators that the model uses, and no others.
inline TfLiteStatus Register${camel}Ops(${camel}OpResolver& resolver) {
$additions
  return kTfLiteOk;
}

#endif  // ${guard}_OP_RESOLVER_H_
""")

TYPED_CONDITION = """\
#ifndef CMSIS_NN
#error "Compile this with -DCMSIS_NN, too: without it TFLM's headers put registrations for all types in place of these"
#endif

"""

ARENA_HEADER = Template("""\
// $origin
#ifndef ${guard}_ARENA_SIZE_H_
#define ${guard}_ARENA_SIZE_H_

// The smallest arena in which AllocateTensors() succeeds on $target with $kernels kernels, and what is in use after it:
// $used bytes, $head of them in the head and $tail in the tail.
constexpr unsigned int k${camel}ArenaSize = $minimum;

#endif  // ${guard}_ARENA_SIZE_H_
""")

MAIN_SOURCE = Template("""\
// $origin
#include <cstdint>
#include <new>

#include "arena_size.h"
#include "model_data.h"
#include "op_resolver.h"
$includes#include "tensorflow/lite/micro/micro_interpreter.h"
#include "tensorflow/lite/micro/micro_log.h"
#include "tensorflow/lite/micro/system_setup.h"
#include "tensorflow/lite/schema/schema_generated.h"

namespace {
alignas(16) uint8_t tensor_arena[k${camel}ArenaSize];

// In static memory, for on the stack they would take hundreds of bytes; they live as long as the program.
alignas(${camel}OpResolver) uint8_t resolver_memory[sizeof(${camel}OpResolver)];
alignas(tflite::MicroInterpreter) uint8_t interpreter_memory[sizeof(tflite::MicroInterpreter)];
}  // namespace

int main() {
  tflite::InitializeTarget();
  const tflite::Model* model = tflite::GetModel(${name}_model_data);
  auto& resolver = *new (resolver_memory) ${camel}OpResolver;
  if (Register${camel}Ops(resolver) != kTfLiteOk) {
    return 1;
  }
$resources
  if (interpreter.AllocateTensors() != kTfLiteOk) {
    MicroPrintf("AllocateTensors() failed");
    return 1;
  }
$fill
  if (interpreter.Invoke() != kTfLiteOk) {
    MicroPrintf("Invoke() failed");
    return 1;
  }
$dump$show
  return 0;
}
""")

FILL_INPUT = Template("""\
  // Input $index: $what.
  for (int i = 0; i < $count; ++i) {
    interpreter.typed_input_tensor<$type>($index)[i] = 0;
  }""")

SHOW_OUTPUT = Template("""\
  // Output $index: $what.
  for (int i = 0; i < $count; ++i) {
    MicroPrintf("$format", $cast(interpreter.typed_output_tensor<$type>($index)[i]));
  }""")

PLAIN_INTERPRETER = Template("""\
  auto& interpreter =
      *new (interpreter_memory)
          tflite::MicroInterpreter(model, resolver, tensor_arena, k${camel}ArenaSize$preserve);""")

INTERPRETER_WITH_RESOURCES = Template("""\
  tflite::MicroAllocator* allocator = tflite::MicroAllocator::Create(tensor_arena, k${camel}ArenaSize$linear);
  tflite::MicroResourceVariables* resources = tflite::MicroResourceVariables::Create(allocator, $variables);
  auto& interpreter = *new (interpreter_memory) tflite::MicroInterpreter(model, resolver, allocator, resources);""")

PRESERVING = {
    "preserve": ", nullptr, nullptr, /*preserve_all_tensors=*/true",
    "linear": ", tflite::MemoryPlannerType::kLinear",
}
"""What makes an interpreter keep every tensor until the next invoke."""

RESOURCE_INCLUDES = """\
#include "tensorflow/lite/micro/micro_allocator.h"
#include "tensorflow/lite/micro/micro_resource_variable.h"
"""


def identifier(stem: str) -> str:
    """A file's stem as a C identifier in lower case.

    A stem in other letters than those of ASCII gets a checksum, so that two of them can be in one firmware.
    """
    name = re.sub("[^0-9a-z]+", "_", stem.lower()).strip("_")
    if not name or not stem.isascii():
        name = "_".join(filter(None, (name, f"model_{zlib.crc32(stem.encode(errors='surrogateescape')):08x}")))
    return f"model_{name}" if name[0].isdigit() else name


def in_one_line(text: str) -> str:
    """Text that stays in a comment of C++ which ends with its line.

    A line break would end it, a backslash at its end would take the next line in, and so would its trigraph.
    """
    return "".join(c if c.isprintable() and c not in "\\?" else "_" for c in text)


def sources(
    model: tflm.Model, stem: str, machine: Machine, origin: str, typed: bool = False, dump: bool = False
) -> dict[str, str]:
    """The files by name.

    Args:
        stem: of the model's file; identifiers are made from it.
        machine: what the firmware is for.
        origin: the command that made the files, for their first line.
        typed: add operators by registrations for int8 alone, where the model has them in no other type.
        dump: keep all tensors, in a larger arena, and print them.

    Raises:
        TflmError: the model can't be laid out in an arena.
        CommandError: an input or output has a type that C++ has no name for.
    """
    model = with_data_inside(model)
    planner = "linear" if dump else "greedy"  # how TFLM plans where all tensors are preserved
    measured = tflm.measure_arena(
        model, tflm.AllOpsResolver(), target=machine.target, kernels=machine.kernels, planner=planner
    )
    name = identifier(stem)
    names = {
        "origin": f"Made by: {in_one_line(origin)}",
        "name": name,
        "camel": "".join(word.capitalize() for word in name.split("_")),
        "guard": name.upper(),
    }
    operators = operators_of(model)
    registrations = typed_registrations(model) if typed else {}
    return {
        "model_data.h": MODEL_HEADER.substitute(names),
        "model_data.cc": MODEL_SOURCE.substitute(names, data=_hexadecimal(model.data), size=len(model.data)),
        "op_resolver.h": RESOLVER_HEADER.substitute(
            names,
            count=len(operators),
            additions="\n".join(_addition(operator, registrations.get(operator)) for operator in operators),
            condition=TYPED_CONDITION if registrations else "",
        ),
        "arena_size.h": ARENA_HEADER.substitute(
            names,
            target=machine.target.name,
            kernels=machine.kernels.name,
            minimum=measured.minimum_arena_bytes,
            used=measured.arena_used_bytes,
            head=measured.head_bytes,
            tail=measured.tail_bytes,
        ),
        **({"tensor_dump.h": dump_header(model, names)} if dump else {}),
        "main.cc": _main_source(model, names, dump),
    }


def _hexadecimal(data: memoryview) -> str:
    lines = (data[i : i + BYTES_A_LINE].hex(",") for i in range(0, len(data), BYTES_A_LINE))
    return "\n".join("    " + re.sub("([0-9a-f]{2})", r"0x\1", line).replace(",", ", ") + "," for line in lines)


def _addition(operator: str, registration: str | None) -> str:
    if operator in REGISTRATIONS:
        argument = f"tflite::Register_{registration}()" if registration else ""
        return f"  TF_LITE_ENSURE_STATUS(resolver.{resolver_method(operator)}({argument}));"
    raise CommandError(f"{operator!r} is an operator of your own: this package can't lay it out in an arena")


def _main_source(model: tflm.Model, names: dict[str, str], dump: bool) -> str:
    main = model.subgraphs[0]
    tensors = main.tensors or []
    fill = (_tensor_code(FILL_INPUT, i, tensors[tensor]) for i, tensor in enumerate(main.inputs or ()))
    show = (_tensor_code(SHOW_OUTPUT, i, tensors[tensor]) for i, tensor in enumerate(main.outputs or ()))
    variables = count_resource_variables(model)
    interpreter = INTERPRETER_WITH_RESOURCES if variables else PLAIN_INTERPRETER
    settings = PRESERVING if dump else dict.fromkeys(PRESERVING, "")
    return MAIN_SOURCE.substitute(
        names,
        includes=('#include "tensor_dump.h"\n' if dump else "") + (RESOURCE_INCLUDES if variables else ""),
        resources=interpreter.substitute(names, variables=variables, **settings),
        dump=f"  Dump{names['camel']}Tensors(interpreter, 0);\n" if dump else "",
        fill="\n".join(fill),
        show="\n".join(show),
    )


def _tensor_code(code: Template, index: int, tensor: tflm.schema.Tensor) -> str:
    if tensor.type not in C_TYPES:
        raise CommandError(f"tensor {tensor.name!r} is {tensor.type.name}, for which there is no C++ type to print")
    count = 1
    for dimension in tensor.shape or ():
        count *= dimension
    what = f"{tensor.name}, {tensor.type.name} {list(tensor.shape or ())}"
    if tensor.quantization is not None and tensor.quantization.scale and tensor.quantization.zero_point:
        what += f", real = {tensor.quantization.scale[0]:.9g} * (integer - {tensor.quantization.zero_point[0]})"
    is_float = tensor.type == TensorType.FLOAT32
    return code.substitute(
        index=index,
        what=in_one_line(what),
        count=count,
        type=C_TYPES[tensor.type],
        format="%f" if is_float else "%d",
        cast="static_cast<double>" if is_float else "static_cast<int>",
    )


def export(
    model: ModelPath,
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Where the files go; made if it is not there.")],
    target: TargetName = None,
    kernels: KernelsName = None,
    release: ReleaseName = None,
    board: BoardName = None,
    typed: Annotated[
        bool,
        typer.Option(
            "--typed",
            help="Add operators for int8 alone, which saves flash with CMSIS-NN; sources need -DCMSIS_NN.",
        ),
    ] = False,
    dump: Annotated[
        bool,
        typer.Option("--dump", help="Keep every tensor, in a larger arena, and print them for tflm compare."),
    ] = False,
) -> None:
    """Write the C++ files that a firmware project needs.

    These are the model as an array, its operators, its arena's size, and a main.

    \b
    Example:
      tflm export model.tflite firmware/ --target cortex-m
    """
    origin = shlex.join(["tflm", *sys.argv[1:]])
    machine = machine_from(target, kernels, board, release=release)
    files = sources(load_model(model), model.stem, machine, origin, typed, dump)
    directory.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (directory / name).write_text(text)
    for name in files:
        print_plain(str(directory / name))
