"""The header of a compiled model: RAM sizes, functions, and the facts about inputs and outputs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from string import Template
from typing import NamedTuple

from tflm.c.constants import c_type, float_literal
from tflm.c.program import FED, Pointer, Program
from tflm.memory.tensor import TfLiteTensor
from tflm.schedule.line_buffers import Feed

HEADER = Template("""\
/* $origin */
#ifndef ${guard}_H
#define ${guard}_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

$ram
$tensors
/* Sets variables and other state to what they are before the first invoke. Call it once before the first invoke. */
void ${name}_reset($ram_parameter);

$functions
$accessors
/* The model and the generator, for logs. Takes no memory unless it is called. */
static inline const char *${name}_info(void)
{
    return $info;
}

#ifdef __cplusplus
}
#endif

#endif
""")

INVOKE = Template("""\
/* Runs the model, which may overwrite the inputs. Returns 0, or 1 + the index of the operator that failed, for example
   a GATHER whose index is out of range. */
int ${name}_invoke($ram_parameter);

/* Runs one step of an invoke, so that a watchdog or other tasks can run between steps. Begin with step 0. Returns the
   next step; 0 after the last one; or less than 0, -1 - the index of the operator that failed. The function is there if
   $name.c is compiled with this macro defined: ${guard}_WITH_STEP

       int step = 0;
       do {
           step = ${name}_step(ram, step);
       } while (step > 0); */
int ${name}_step($ram_parameter, int step);
""")

FEED = Template("""\
/* Takes the next rows of input $number, of $elements elements each: call k of ${guard}_FEEDS, from 0, takes rows
   $rows * k to $rows * k + ${rest}, and the last call what is left. They are read in this call only.
   Returns 0 until the last call, which returns 1: the outputs are there, and the next call begins with the first rows.
   Or less than 0, -1 - the index of the operator that failed: call ${name}_reset then. Fill other inputs first. */
int ${name}_feed($ram_parameter, const $element *rows);
""")


class TensorInterface(NamedTuple):
    """An input or output of a compiled model.

    Attributes:
        side, number: "input" or "output", counted from 0.
        tensor: the model's tensor.
        place: its address.
    """

    side: str
    number: int
    tensor: TfLiteTensor
    place: Pointer

    @property
    def element(self) -> str:
        """The C type of an element."""
        return c_type(self.tensor.data.dtype)

    def accessor(self, name: str, ram_parameter: str) -> str:
        """Return the declaration of the function that returns the address."""
        return f"{self.element} *{name}_{self.side}_{self.number}({ram_parameter})"

    def macros(self, name: str) -> Iterator[str]:
        """Return the macros for size, shape and quantization."""
        tensor, prefix = self.tensor, f"{name.upper()}_{self.side.upper()}_{self.number}"
        shape = "x".join(map(str, tensor.dims)) or "a scalar"
        yield f"/* {self.side} {self.number}: {comment_text(tensor.name)}, {tensor.type.name.lower()}, {shape} */"
        yield f"#define {prefix}_BYTES {tensor.bytes}"
        yield f"#define {prefix}_ELEMENTS {tensor.data.size}"
        yield f"#define {prefix}_RANK {len(tensor.dims)}"
        yield f"#define {prefix}_DIMS {{{', '.join(map(str, tensor.dims)) or 1}}}"
        if tensor.scale:
            yield f"#define {prefix}_SCALE {float_literal(tensor.scale, 'f')}"
            yield f"#define {prefix}_ZERO_POINT {_in_parentheses(tensor.zero_point)}"


def _in_parentheses(value: int) -> str:
    """Format an integer so that it can be used in any expression."""
    return f"({value})" if value < 0 else str(value)


NAME_LENGTH = 60

UNSAFE = frozenset('*\\?"')
"""Characters that could end a comment or string, continue a line, or begin a trigraph."""


def comment_text(text: str) -> str:
    """Turn a name from a model's file into text for a comment.

    Characters that are not printable or in `UNSAFE` become underscores, so that the text can neither end its comment
    nor its line. Converters join the names of merged tensors; only the first is shown.
    """
    first = text.partition(";")[0][:NAME_LENGTH]
    return "".join(c if c.isprintable() and c not in UNSAFE else "_" for c in first)


def interfaces(program: Program) -> list[TensorInterface]:
    """Return the inputs, then the outputs of a model."""
    layout = program.bound.layout
    return [
        TensorInterface(side, i, tensor, place)
        for side, tensors, places in (
            ("input", layout.inputs, program.inputs),
            ("output", layout.outputs, program.outputs),
        )
        for i, (tensor, place) in enumerate(zip(tensors, places))
    ]


def ram_parameter(program: Program) -> str:
    """Return the parameter through which functions receive the RAM."""
    return "void *const ram[]" if program.is_split else "void *ram"


def feed_macros(feed: Feed, name: str) -> str:
    """Return the macros for the number of rows in a feed, and the number of feeds."""
    prefix, last = name.upper(), feed.height - (feed.calls - 1) * feed.rows
    return f"""
/* Rows of input {feed.number} for a call of {name}_feed, calls for an image, and rows for the last of them. */
#define {prefix}_FEED_ROWS {feed.rows}
#define {prefix}_FEEDS {feed.calls}
#define {prefix}_LAST_FEED_ROWS {last}
"""


def ram_macros(program: Program, name: str, alignment: int, memories: Sequence[str]) -> str:
    """Return the macros for size and alignment of the model's RAM.

    Args:
        program: the model.
        name: the prefix of all declared names.
        alignment: in bytes.
        memories: names of several memories, for comments.
    """
    prefix = name.upper()
    lines = ["/* Bytes of RAM that the caller supplies, and their alignment. */"]
    if program.is_split:
        for i, (size, memory) in enumerate(zip(program.plan.memories, memories)):
            lines.append(f"#define {prefix}_RAM_{i}_BYTES {max(size, 1)} /* ram[{i}], {comment_text(memory)} */")
        lines.append(f"#define {prefix}_RAM_COUNT {len(program.plan.memories)}")
    lines.append(f"#define {prefix}_RAM_BYTES {max(program.plan.ram_bytes, 1)}" + " /* together */" * program.is_split)
    lines.append(f"#define {prefix}_RAM_ALIGNMENT {alignment}")
    suffixes = [f"_{i}" for i in range(len(program.plan.memories))] if program.is_split else [""]
    for suffix in suffixes:
        lines += ["", "/* RAM with that alignment. */", f"union {name}_ram{suffix} {{"]
        lines += ["    int64_t alignment;", f"    uint8_t bytes[{prefix}_RAM{suffix}_BYTES];", "};"]
    return "\n".join(lines) + "\n"


def warm_up_macro(name: str, invokes: int | None) -> str:
    """Return the macro for the number of warm-up invokes; nothing without state, or if the state never fades."""
    if invokes is None:
        return ""
    return f"""
/* Invokes after a reset until the outputs no longer depend on the initial state. */
#define {name.upper()}_WARM_UP {invokes}
"""


def header_of(program: Program, name: str, origin: str, ram: str, steps: int) -> str:
    """Return the text of NAME.h.

    Args:
        program: the model.
        name: a C identifier, the prefix of all declared names.
        origin: a line that says where the file comes from.
        ram: the macros for the RAM.
        steps: number of steps of an invoke.
    """
    tensors = interfaces(program)
    return HEADER.substitute(
        origin=origin,
        guard=name.upper(),
        name=name,
        ram=ram + _calls_macros(program, name, steps),
        ram_parameter=ram_parameter(program),
        functions=_functions(program, name),
        info=_info(origin),
        tensors="".join("\n".join(tensor.macros(name)) + "\n\n" for tensor in tensors),
        accessors="".join(
            f"{tensor.accessor(name, ram_parameter(program))};\n" for tensor in tensors if tensor.place.base is not FED
        ),
    )


def _info(origin: str) -> str:
    """Return the model's line, and the generator's name and version, as string literals that C concatenates."""
    generator, model = origin.split("\n")
    parts = [f"{part}, " for part in model.strip().split(", ")] + [generator.partition(". ")[0].lower()]
    return "\n        ".join(f'"{part}"' for part in parts)


def _calls_macros(program: Program, name: str, steps: int) -> str:
    """Return the macros for the number of calls of an invoke."""
    if program.bound.feed is not None:
        return feed_macros(program.bound.feed, name)
    return f"\n/* Steps of an invoke; see {name}_step. */\n#define {name.upper()}_STEPS {steps}\n"


def _functions(program: Program, name: str) -> str:
    """Return the declarations of the functions that run the model."""
    names, feed = {"name": name, "guard": name.upper(), "ram_parameter": ram_parameter(program)}, program.bound.feed
    if feed is None:
        return INVOKE.substitute(names)
    tensor = interfaces(program)[feed.number]
    more = {"number": feed.number, "rows": feed.rows, "rest": feed.rows - 1, "element": tensor.element}
    return FEED.substitute(names, **more, elements=tensor.tensor.data.size // feed.height)
