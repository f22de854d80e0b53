"""Export a model as C++ for TFLM."""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping, Sequence
from importlib.resources import files
from math import prod
from string import Template
from typing import NamedTuple

from tflm.application.errors import RequestError
from tflm.application.machine import Machine
from tflm.application.tensor_dump import dump_header
from tflm.c.constants import float_literal
from tflm.firmware.flash import operators_of, resolver_method, typed_registrations
from tflm.kernels import REGISTRATIONS
from tflm.libraries.kernel_library import require_safe_plan
from tflm.planning import MemoriesPlan
from tflm.report import in_one_line
from tflm.runtime.micro_allocator import Planner
from tflm.runtime.micro_measurement import measure_arena
from tflm.runtime.micro_op_resolver import AllOpsResolver
from tflm.runtime.micro_resource_variable import count_resource_variables
from tflm.schema.enums import BuiltinOperator, TensorType
from tflm.schema.model import Model
from tflm.schema.patch import with_data_inside
from tflm.schema.tables import Tensor

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

// The runtime reads the model in place, so it must be aligned.
alignas(16) const unsigned char ${name}_model_data[] = {
$data
};
const unsigned int ${name}_model_data_size = $size;
""")

OPENING = """\
// TFLM's names were in tflite and in the global namespace, and moved to tflite::micro in September and October 2026.
// From here, all of them are found.
namespace tflite {
namespace micro {
namespace exported {
"""

CLOSING = """\
}  // namespace exported
}  // namespace micro
}  // namespace tflite"""

RESOLVER_HEADER = Template("""\
// $origin
#ifndef ${guard}_OP_RESOLVER_H_
#define ${guard}_OP_RESOLVER_H_

$condition#include "tensorflow/lite/micro/micro_mutable_op_resolver.h"

$opening
using ${camel}OpResolver = MicroMutableOpResolver<$count>;

// Adds exactly the operators that the model uses.
inline TfLiteStatus Register${camel}Ops(${camel}OpResolver& resolver) {
$additions
  return kTfLiteOk;
}

$closing

using tflite::micro::exported::${camel}OpResolver;
using tflite::micro::exported::Register${camel}Ops;

#endif  // ${guard}_OP_RESOLVER_H_
""")

TYPED_CONDITION = """\
#ifndef CMSIS_NN
#error "Compile this with -DCMSIS_NN: without it, TFLM's headers use registrations for all types instead of these"
#endif

"""

ARENA_HEADER = Template("""\
// $origin
#ifndef ${guard}_ARENA_SIZE_H_
#define ${guard}_ARENA_SIZE_H_

// The smallest arena in which AllocateTensors() succeeds on $target with $kernels kernels, and what is in use after it:
// $used bytes, $head of them in the head and $tail in the tail.
$sizes
#endif  // ${guard}_ARENA_SIZE_H_
""")

ARENA_SIZE = Template("""\
constexpr unsigned int k${camel}${part}Size = $bytes;
""")

ARENA_MEMORY = Template("""\

// $where
#ifndef ${guard}_${macro}_MEMORY
$include#define ${guard}_${macro}_MEMORY $attribute
#endif
""")

MAIN_SOURCE = Template("""\
// $origin
$first#include <cstdint>
#include <new>

#include "arena_size.h"
$console#include "model_data.h"
#include "op_resolver.h"
$includes#include "tensorflow/lite/micro/micro_interpreter.h"
#include "tensorflow/lite/micro/system_setup.h"
#include "tensorflow/lite/schema/schema_generated.h"

$opening
namespace {

$arenas

// In static memory, because they would take hundreds of bytes of stack; never destroyed.
alignas(${camel}OpResolver) uint8_t resolver_memory[sizeof(${camel}OpResolver)];
alignas(MicroInterpreter) uint8_t interpreter_memory[sizeof(MicroInterpreter)];

${declare}// Returns an interpreter that is ready to run, or null.
MicroInterpreter* Prepare() {
  InitializeTarget();
$allocations  const Model* model = GetModel(${name}_model_data);
  auto& resolver = *new (resolver_memory) ${camel}OpResolver;
  if (Register${camel}Ops(resolver) != kTfLiteOk) {
    return nullptr;
  }$observe
$resources
  if (interpreter.AllocateTensors() != kTfLiteOk) {
    Say("AllocateTensors() failed");
$reason    return nullptr;
  }
  return &interpreter;
}

$run

}  // namespace
$closing
$entry$ending""")

RUN = Template("""\
// Runs the model once, and prepares it before the first time; returns 0 unless it fails.
int Run() {
  static MicroInterpreter* prepared = nullptr;
  if (prepared == nullptr) {
    prepared = Prepare();
  }
  if (prepared == nullptr) {
    return 1;
  }
  MicroInterpreter& interpreter = *prepared;
$fill
  if (interpreter.Invoke() != kTfLiteOk) {
    Say("Invoke() failed");
    return 1;
  }
$dump$show
  return 0;
}""")

ENTRY = """
using tflite::micro::exported::Run;
"""

SERVED_RUN = Template("""\
MicroInterpreter* served = nullptr;

// What the operators' invoke was before it was observed.
TfLiteStatus (*invokes[$count])(TfLiteContext*, TfLiteNode*);

TfLiteStatus InvokeObserved(int i, TfLiteContext* context, TfLiteNode* node) {
  BeginOperator();
  const TfLiteStatus status = invokes[i](context, node);
  if (EndOperator() != 0 || status != kTfLiteOk) {
    return status;
  }
  for (int j = 0; j < node->outputs->size; ++j) {
    const TfLiteEvalTensor* tensor = context->GetEvalTensor(context, node->outputs->data[j]);
    size_t bytes = 0;
    if (tensor != nullptr && tensor->data.data != nullptr &&
        TfLiteEvalTensorByteLength(tensor, &bytes) == kTfLiteOk) {
      ServeOutput(tensor->data.data, static_cast<uint32_t>(bytes));
    }
  }
  NextOperator();
  return status;
}

template <int i>
TfLiteStatus Observed(TfLiteContext* context, TfLiteNode* node) {
  return InvokeObserved(i, context, node);
}

// Puts a function around an operator, which the resolver holds.
template <int i, typename Registration>
void Observe(const Registration* registration) {
  if (registration != nullptr) {
    invokes[i] = registration->invoke;
    const_cast<Registration*>(registration)->invoke = Observed<i>;
  }
}

uint8_t* Found(void* data, size_t size, uint32_t* bytes) {
  *bytes = data == nullptr ? 0 : static_cast<uint32_t>(size);
  return static_cast<uint8_t*>(data);
}

uint8_t* Find(uint32_t what, uint32_t index, uint32_t* bytes) {
  if (what == SERVED_MODEL) {
    return Found(const_cast<unsigned char*>(${name}_model_data), ${name}_model_data_size, bytes);
  }
  if (served == nullptr || index >= (what == SERVED_INPUT    ? served->inputs_size()
                                     : what == SERVED_OUTPUT ? served->outputs_size()
                                                             : $tensors)) {
    return nullptr;
  }
  if (what != SERVED_TENSOR) {
    TfLiteTensor* tensor = what == SERVED_INPUT ? served->input(index) : served->output(index);
    return Found(tensor->data.data, tensor->bytes, bytes);
  }
  TfLiteEvalTensor* tensor = served->GetTensor(static_cast<int>(index));
  size_t size = 0;
  if (tensor == nullptr || TfLiteEvalTensorByteLength(tensor, &size) != kTfLiteOk) {
    return nullptr;
  }
  return Found(tensor->data.data, size, bytes);
}

bool InvokeServed() { return served != nullptr && served->Invoke() == kTfLiteOk; }

int Run() {
  served = Prepare();
  Serve();
  return 0;
}""")

SERVED_ENTRY = Template("""
using tflite::micro::exported::Run;

static uint8_t* ServedBytes(uint32_t what, uint32_t index, uint32_t* bytes) {
  return tflite::micro::exported::Find(what, index, bytes);
}
static int ServedInvoke(void) { return !tflite::micro::exported::InvokeServed(); }
static void ServedReset(void) { tflite::micro::exported::served = tflite::micro::exported::Prepare(); }
static uint32_t ServedArena(void) {
  auto* served = tflite::micro::exported::served;
  return served == nullptr ? 0 : static_cast<uint32_t>(served->arena_used_bytes());
}
static uint32_t ServedModelChecksum(void) { return ServeChecksum(0, ${name}_model_data, ${name}_model_data_size); }
""")

DECLARE_OBSERVE = """\
template <int i, typename Registration>
void Observe(const Registration* registration);

"""

OBSERVE = """
  Observe<{}>(resolver.FindOp({}));"""

ALLOCATION = Template("""\
  if ($array == nullptr) {
    $array = static_cast<uint8_t*>($allocation);
  }
  if ($array == nullptr) {
    Say("the heap has no %u bytes in one piece", $size);
    return nullptr;
  }
""")

FILL_INPUT = Template("""\
  // Input $index: $what.
  for (int i = 0; i < $count; ++i) {
    interpreter.typed_input_tensor<$type>($index)[i] = 0;
  }""")

SHOW_OUTPUT = Template("""\
  /* Output $number: $what. */
  {
    const $type *values = $values;
    int i$declare;
    for (i = 0; i < $count; ++i) {
      $print
    }$conclude
  }""")

FIND_LARGEST = """
      if (values[i] > values[largest]) {
        largest = i;
      }"""

PLAIN_CONSOLE = """\
#include "tensorflow/lite/micro/micro_log.h"

#define Say MicroPrintf
"""

PLAIN_ENTRY = """
int main() { return Run(); }
"""

PLAIN_INTERPRETER = Template("""\
  auto& interpreter =
      *new (interpreter_memory)
          MicroInterpreter(model, resolver, tensor_arena, k${camel}ArenaSize$preserve);""")

INTERPRETER_WITH_ALLOCATOR = Template("""\
$planner  MicroAllocator* allocator = MicroAllocator::Create($pieces$linear);
$resources  auto& interpreter =
      *new (interpreter_memory) MicroInterpreter(model, resolver, allocator$passed);""")

RESOURCES = Template("""\
  MicroResourceVariables* resources = MicroResourceVariables::Create(allocator, $variables);
""")

PLANNER = Template("""\
  static ${camel}MemoryPlan memory_plan($arrays);
""")

REASON = """\
    if (memory_plan.error() != nullptr) {
      Say("%s", memory_plan.error());
    }
"""

PRESERVING = {"preserve": ", nullptr, nullptr, /*preserve_all_tensors=*/true", "linear": ", MemoryPlannerType::kLinear"}
"""Arguments that make an interpreter preserve every tensor until the next invoke."""

DUMP = Template("""\
  static unsigned invoke = 0;
  Dump${camel}Tensors(interpreter, invoke++);
""")

ALLOCATOR_INCLUDE = '#include "tensorflow/lite/micro/micro_allocator.h"\n'
SERVED_INCLUDE = '#include "tensorflow/lite/micro/memory_helpers.h"\n'
RESOURCE_INCLUDE = '#include "tensorflow/lite/micro/micro_resource_variable.h"\n'


class ArenaMemory(NamedTuple):
    """The memory of a piece of the arena.

    Attributes:
        part: "arena", "head" or "tail"; in a plan of several memories, such as "psram_buffers" next to the arena.
        bytes: its size.
        where: name of the memory, for a comment.
        attribute: the C++ attribute that places an array there; empty for the default memory of variables.
        include: the header that defines the attribute, or allocates; empty if none is needed.
        allocation: an expression that allocates it on the heap; a template with its `size`; empty for an array.
    """

    part: str
    bytes: int
    where: str = ""
    attribute: str = ""
    include: str = ""
    allocation: str = ""

    @property
    def array(self) -> str:
        """The name of its array."""
        return {"arena": "tensor_arena", "head": "head_arena", "tail": "tail_arena"}.get(self.part, self.part)

    @property
    def camel(self) -> str:
        """The piece's part of the size constant's name."""
        return "".join(word.capitalize() for word in self.array.split("_")).removeprefix("Tensor")

    @property
    def macro(self) -> str:
        """The piece's part of the placing macro's name."""
        return self.part.upper()


class SourceStyle(NamedTuple):
    """How a build system needs the sources.

    Attributes:
        suffix: suffix of C++ sources.
        first: first lines of the main source, such as a platform's header.
        ending: last lines of the main source: the entry point, which calls `Run`.
        console: C that defines `Say`, which prints a line as printf does.
        arenas: memory of the arena, in one piece or two; empty for one array in static memory.
        plan: the places of buffers in `arenas`, if it is a plan of several memories.
        wire: C that defines the wire of a firmware that serves; empty for standard input and output.
    """

    suffix: str = ".cc"
    first: str = ""
    ending: str = PLAIN_ENTRY
    console: str = PLAIN_CONSOLE
    arenas: tuple[ArenaMemory, ...] = ()
    plan: MemoriesPlan | None = None
    wire: str = ""


PLAIN = SourceStyle()
"""The style of sources without a project."""


def identifier(stem: str) -> str:
    """Convert a file's stem to a lower-case C identifier.

    A checksum is added to stems with non-ASCII letters, so that two of them differ.
    """
    name = re.sub("[^0-9a-z]+", "_", stem.lower()).strip("_")
    if not name or not stem.isascii():
        name = "_".join(filter(None, (name, f"model_{zlib.crc32(stem.encode(errors='surrogateescape')):08x}")))
    return f"model_{name}" if name[0].isdigit() else name


def buffers_in(memory: str) -> str:
    """The name of a piece with a plan's buffers in a memory other than the arena's."""
    return f"{identifier(memory)}_buffers"


class Firmware(NamedTuple):
    """A model and the machine whose firmware runs it.

    Attributes:
        model: the model.
        stem: the stem of its file name, for identifiers.
        machine: the machine of the firmware.
        origin: the command that made the files, for their first line.
    """

    model: Model
    stem: str
    machine: Machine
    origin: str


def sources(
    firmware: Firmware, typed: bool = False, dump: bool = False, style: SourceStyle = PLAIN, serve: bool = False
) -> dict[str, str]:
    """Return the contents of the files by name.

    Args:
        firmware: the model and its machine.
        typed: use int8-only registrations for operators that the model has only in int8.
        dump: preserve all tensors, in a larger arena, and print them.
        style: how the project's build system needs them.
        serve: answer the requests of `tflm device` instead of running once.

    Raises:
        TflmError: the model cannot be allocated, or its memory plan gives wrong answers with the firmware's kernels.
        RequestError: an input or output has a type without a C++ type.
    """
    model, machine = with_data_inside(firmware.model), firmware.machine
    if not dump:
        require_safe_plan(machine.kernels, machine.target, model)
    planner: Planner = "linear" if dump else "greedy"  # TFLM's planner for preserving all tensors
    if style.plan is not None:
        planner = style.plan.planner()
    measured = measure_arena(model, AllOpsResolver(), target=machine.target, kernels=machine.kernels, planner=planner)
    names = names_of(firmware.stem, firmware.origin)
    arenas = (ArenaMemory("arena", measured.minimum_arena_bytes),) if dump or not style.arenas else style.arenas
    operators = operators_of(model)
    served = description_of(machine) if serve else ""
    registrations = typed_registrations(model) if typed else {}
    return {
        "model_data.h": MODEL_HEADER.substitute(names),
        f"model_data{style.suffix}": MODEL_SOURCE.substitute(
            names, data=_hexadecimal(model.data), size=len(model.data)
        ),
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
            used=measured.arena_used_bytes,
            head=measured.head_bytes,
            tail=measured.tail_bytes,
            sizes="".join(_arena_size(names, arena) for arena in arenas),
        ),
        **({"tensor_dump.h": dump_header(model, names)} if dump else {}),
        **({} if style.plan is None else {"memory_plan.h": style.plan.header(names["name"])}),
        "console.h": console_header(names, style.console),
        **(serve_headers(names, style.wire) if serve else {}),
        f"main{style.suffix}": _main_source(model, names, dump, style._replace(arenas=arenas), served),
    }


def names_of(stem: str, origin: str) -> dict[str, str]:
    """Values for templates: identifiers made from the stem of the model's file name, and a first line."""
    name = identifier(stem)
    return {
        "origin": f"Made by: {in_one_line(origin)}",
        "name": name,
        "camel": "".join(word.capitalize() for word in name.split("_")),
        "guard": name.upper(),
        "opening": OPENING,
        "closing": CLOSING,
    }


def _arena_size(names: dict[str, str], arena: ArenaMemory) -> str:
    size = ARENA_SIZE.substitute(names, part=arena.camel, bytes=arena.bytes)
    if not arena.attribute:
        return size
    include = f"#include {arena.include}\n" if arena.include else ""
    return size + ARENA_MEMORY.substitute(names, **arena._asdict() | {"include": include}, macro=arena.macro)


def _hexadecimal(data: memoryview) -> str:
    lines = (data[i : i + BYTES_A_LINE].hex(",") for i in range(0, len(data), BYTES_A_LINE))
    return "\n".join("    " + re.sub("([0-9a-f]{2})", r"0x\1", line).replace(",", ", ") + "," for line in lines)


def _addition(operator: str, registration: str | None) -> str:
    if operator in REGISTRATIONS:
        argument = f"Register_{registration}()" if registration else ""
        return f"  TF_LITE_ENSURE_STATUS(resolver.{resolver_method(operator)}({argument}));"
    raise RequestError(f"{operator!r} is a custom operator, whose arena tflm export can't compute")


def description_of(machine: Machine) -> str:
    """How a firmware that answers `tflm device` describes its kernels and TFLM."""
    return f"{machine.kernels.name} kernels on {machine.target.name}, {machine.kernels.release.name}"


def serve_headers(names: Mapping[str, str], wire: str) -> dict[str, str]:
    """The headers of a firmware that answers `tflm device`, by name; without a wire, for standard input and output."""
    folder = files("tflm.application.projects").joinpath("files")
    protocol, host = (folder.joinpath(*path).read_text("utf-8") for path in (("serve", "serve.h"), ("wire", "host.h")))
    return {"serve.h": Template(protocol).substitute(names), "wire.h": wire or host}


def serve_include(operators: int, description: str) -> str:
    """Lines that include `serve.h`, for a first subgraph with this many operators."""
    text = in_one_line(description).replace('"', "_")
    return (
        f'#define SERVED_OPERATOR_COUNT {max(operators, 1)}\n#define SERVED_DESCRIPTION "{text}"\n#include "serve.h"\n'
    )


def _observations(model: Model) -> str:
    """Statements that observe the model's operators."""
    builtin = BuiltinOperator.__members__
    found = (f"BuiltinOperator_{name}" if name in builtin else f'"{name}"' for name in operators_of(model))
    return "".join(OBSERVE.format(i, name) for i, name in enumerate(found))


def _main_source(model: Model, names: dict[str, str], dump: bool, style: SourceStyle, served: str) -> str:
    main = model.subgraphs[0]
    tensors = main.tensors or []
    fill = (_tensor_code(FILL_INPUT, i, tensors[tensor]) for i, tensor in enumerate(main.inputs or ()))
    show = (_show_output(i, tensors[tensor]) for i, tensor in enumerate(main.outputs or ()))
    variables = count_resource_variables(model)
    has_allocator = variables or len(style.arenas) > 1 or style.plan is not None
    includes = "" if style.plan is None else '#include "memory_plan.h"\n'
    includes += '#include "tensor_dump.h"\n' if dump else ""
    includes += SERVED_INCLUDE if served else ""
    includes += "".join(sorted({f"#include {arena.include}\n" for arena in style.arenas if arena.allocation}))
    includes += ALLOCATOR_INCLUDE if has_allocator else ""
    includes += RESOURCE_INCLUDE if variables else ""
    settings = PRESERVING if dump else dict.fromkeys(PRESERVING, "")
    known = [arena.array for arena in style.arenas]
    parts = [] if style.plan is None else [buffers_in(share.name) for share in style.plan.others]
    arrays = ", ".join([known[0], *(part if part in known else "nullptr" for part in parts)])
    passed = {
        "pieces": _pieces(names, style.arenas if style.plan is None else style.arenas[:1])
        + ", &memory_plan" * (style.plan is not None),
        "planner": "" if style.plan is None else PLANNER.substitute(names, arrays=arrays),
        "resources": RESOURCES.substitute(variables=variables) if variables else "",
        "passed": ", resources" if variables else "",
    }
    operators = main.operators or ()
    inner = {
        **names,
        "dump": DUMP.substitute(names) if dump else "",
        "fill": "\n".join(fill),
        "show": "\n".join(show),
        "count": len(operators_of(model)),
        "tensors": len(tensors),
    }
    return MAIN_SOURCE.substitute(
        names,
        first=style.first,
        console='#include "console.h"\n' + (serve_include(len(operators), served) if served else ""),
        declare=DECLARE_OBSERVE if served else "",
        observe=_observations(model) if served else "",
        run=(SERVED_RUN if served else RUN).substitute(inner),
        entry=SERVED_ENTRY.substitute(names) if served else ENTRY,
        ending=style.ending,
        includes=includes,
        allocations="".join(_allocation(names, arena) for arena in style.arenas if arena.allocation),
        arenas="\n".join(_arena_array(names, arena) for arena in style.arenas),
        resources=(INTERPRETER_WITH_ALLOCATOR if has_allocator else PLAIN_INTERPRETER).substitute(
            names, **settings, **passed
        ),
        reason="" if style.plan is None else REASON,
    )


def _arena_array(names: dict[str, str], arena: ArenaMemory) -> str:
    if arena.allocation:
        return f"uint8_t* {arena.array} = nullptr;  // {arena.where}"
    memory = f"{names['guard']}_{arena.macro}_MEMORY " if arena.attribute else ""
    return f"alignas(16) {memory}uint8_t {arena.array}[k{names['camel']}{arena.camel}Size];"


def _allocation(names: dict[str, str], arena: ArenaMemory) -> str:
    size = f"k{names['camel']}{arena.camel}Size"
    return ALLOCATION.substitute(
        array=arena.array, size=size, allocation=Template(arena.allocation).substitute(size=size)
    )


def _pieces(names: dict[str, str], arenas: Sequence[ArenaMemory]) -> str:
    """The arguments of MicroAllocator::Create: the arena, or the arenas of tail and head, in this order."""
    ordered = sorted(arenas, key=lambda arena: arena.part, reverse=True)
    return ", ".join(f"{arena.array}, k{names['camel']}{arena.camel}Size" for arena in ordered)


def _tensor_code(code: Template, index: int, tensor: Tensor) -> str:
    if tensor.type not in C_TYPES:
        raise RequestError(f"tensor {tensor.name!r} is {tensor.type.name}, which has no C++ type")
    return code.substitute(
        index=index, what=_description(tensor), count=prod(tensor.shape or ()), type=C_TYPES[tensor.type]
    )


def _description(tensor: Tensor) -> str:
    what = f"{tensor.name}, {tensor.type.name} {list(tensor.shape or ())}"
    scale, zero_point = _quantization(tensor)
    return in_one_line(what + (f", real = {scale:.9g} * (integer - {zero_point})" if scale else ""))


def _quantization(tensor: Tensor) -> tuple[float, int]:
    """Scale and zero point; a scale of 0 without quantization."""
    found = tensor.quantization
    if found is None or not found.scale or not found.zero_point:
        return 0.0, 0
    return float(found.scale[0]), int(found.zero_point[0])


def _show_output(index: int, tensor: Tensor) -> str:
    if tensor.type not in C_TYPES:
        raise RequestError(f"tensor {tensor.name!r} is {tensor.type.name}, which has no C++ type")
    type, count = C_TYPES[tensor.type], prod(tensor.shape or ())
    values = f"interpreter.typed_output_tensor<{type}>({index})"
    return show_output(index, _description(tensor), type, values, count, *_quantization(tensor))


def show_output(number: int, what: str, type: str, values: str, count: int, scale: float, zero_point: int) -> str:
    """Return C code that prints the elements of an output, their meaning, and the largest one.

    Args:
        number, what: the number of the output, and its description for a comment.
        type, values, count: its type in C, an expression for its address, and the number of its elements.
        scale, zero_point: its quantization; a scale of 0 without.
    """
    is_float = type in ("float", "double")
    real = "(float)values[{}]" if is_float else f"(float)(values[{{}}] - ({zero_point})) * {float_literal(scale, 'f')}"
    if is_float:
        shown = f"SayReal({number}, i, {real.format('i')});"
    elif scale:
        shown = f"SayQuantized({number}, i, (long)values[i], {real.format('i')});"
    else:
        shown = f"SayInteger({number}, i, (long)values[i]);"
    has_largest = count > 1 and bool(scale or is_float)
    return SHOW_OUTPUT.substitute(
        number=number,
        what=what.replace("*/", "* /").replace("/*", "/ *"),
        type=type,
        values=values,
        count=count,
        declare=", largest = 0" if has_largest else "",
        print=shown + FIND_LARGEST * has_largest,
        conclude=f"\n    SayLargest({number}, largest, {real.format('largest')});" if has_largest else "",
    )


def console_header(names: Mapping[str, str], console: str) -> str:
    """The header `console.h`: how the firmware prints, and functions that print answers."""
    answers = files("tflm.application").joinpath("answers.h").read_text(encoding="utf-8")
    return Template(answers).substitute(names, console=console.strip())
