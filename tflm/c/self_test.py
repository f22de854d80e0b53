"""The test of a compiled model: recorded inputs and outputs, a `main` that compares outputs, and a Makefile."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from string import Template
from typing import Any, NamedTuple, Union

import numpy as np
import numpy.typing as npt

from tflm.c.constants import table_definition
from tflm.c.header import TensorInterface, interfaces
from tflm.c.program import FED, Program
from tflm.errors import ArgumentError, OperatorError
from tflm.rewriting.verification import MAX_ITERATIONS, random_inputs
from tflm.runtime.micro_interpreter import MicroInterpreter
from tflm.runtime.micro_measurement import measure_arena
from tflm.runtime.micro_op_resolver import AllOpsResolver
from tflm.schema.model import Model

Arrays = list[npt.NDArray[Any]]

TEST = Template("""\
/* $origin */
/* Runs ${name} on recorded inputs, one invoke after the other, and prints the first output that differs. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "$name.h"

#if defined(${guard}_ON_QEMU) /* the initial stack pointer and the entry point of a Cortex-M */
extern void _start(void);
static void start(void)
{
    *(volatile uint32_t *)0xE000ED88 |= 0xF << 20; /* enables floating point and Helium if present */
    _start();
}
__attribute__((section(".vectors"), used)) static void (*const vectors[2])(void) = {
    (void (*)(void))${guard}_ON_QEMU, start};
#endif

$tables
$memory
/* Returns the first element that differs, or -1. Floats may differ by one part in 100,000. */
static long first_difference(const void *actual, const void *expected, long bytes, int is_float)
{
    const uint8_t *a = actual, *e = expected;
    long i;
    for (i = 0; i < bytes; i += is_float ? 4 : 1) {
        if (is_float) {
            float x, y;
            memcpy(&x, a + i, 4);
            memcpy(&y, e + i, 4);
            if (!(x == y || (x != x && y != y) || fabsf(x - y) <= 1e-5f * (1.0f + fabsf(y)))) {
                return i;
            }
        } else if (a[i] != e[i]) {
            return i;
        }
    }
    return -1;
}

static int failures;

static void compare(int invoke, int output, const void *actual, const void *expected, long bytes, int element)
{
    long at = first_difference(actual, expected, bytes, element < 0);
    if (at >= 0) {
        int size = element < 0 ? -element : element;
        printf("invoke %d: output %d differs at element %ld\\n", invoke, output, at / size);
        ++failures;
    }
}

int main(void)
{
    int invoke;
    $set_up
    ${name}_reset($ram);
    for (invoke = 0; invoke < $count; ++invoke) {
        int status = 0;
$fill
$run
        if (status != 0) {
            printf("invoke %d: operator %d failed\\n", invoke, status - 1);
            return 1;
        }
$check
        if (failures) {
            return 1;
        }
    }
    printf("$name: %d invokes, all outputs as recorded\\n", $count);
    return 0;
}
""")

MAKEFILE = Template("""\
# make check  builds and runs the test on this machine, with the compiler's checks
# make qemu   the same for a $core in QEMU (needs arm-none-eabi-gcc with newlib, and qemu-system-arm)
# make size   code, constants and stack on a $core
$comment
CC ?= cc
CHECKS ?= -fsanitize=address,undefined -fno-sanitize-recover=all
ARM ?= arm-none-eabi-
PART ?= $part
OPTIMIZE ?= -O2
WARNINGS := -std=c99 -Wall -Wextra -Werror -pedantic$include
$variables
check: ${name}_check
	./${name}_check

qemu: ${name}_test.elf
	qemu-system-arm -M $machine -nographic -semihosting -kernel $$<

size: ${name}_size.o
	$$(ARM)size -A $$< | grep -E '^[.](text|rodata|data|bss)'
	@sort -t'	' -k2,2nr ${name}_size.su | head -3

${name}_check: $host_sources $host_headers$host_library
	$$(CC) $$(WARNINGS) -O1 -g $$(CHECKS)$host_flags -o $$@ $host_sources$host_library -lm

${name}_test.elf: $sources $headers$arm_library
	$$(ARM)gcc $$(PART) $$(OPTIMIZE) -std=gnu99$include -D${guard}_ON_QEMU=$stack --specs=rdimon.specs \\
		-o $$@ $sources$arm_library -lm \\
		-Wl,--section-start=.vectors=0,-Ttext-segment=0x10000,-Tdata=$ram

${name}_size.o: ${name}.c $headers
	$$(ARM)gcc $$(PART) $$(OPTIMIZE) $$(WARNINGS) -fstack-usage -c -o $$@ $$<
$rules
clean:
	rm -rf ${name}_check ${name}_test.elf ${name}_size.o ${name}_size.su$built

.PHONY: check qemu size clean
""")


INVOKE = """\
#if defined(${guard}_WITH_STEP)
        do {
            status = ${name}_step($ram, status);
        } while (status > 0);
        status = -status;
#else
        status = ${name}_invoke($ram);
#endif"""

FEED = """\
        {
            int feed;
            for (feed = 0; feed < ${guard}_FEEDS; ++feed) {
                /* copied, so that the compiler's checks detect reads of any other rows */
                $element rows[$elements * ${guard}_FEED_ROWS];
                int count = feed + 1 < ${guard}_FEEDS ? ${guard}_FEED_ROWS : ${guard}_LAST_FEED_ROWS;
                memcpy(rows, input_$number + (invoke * ${guard}_INPUT_${number}_ELEMENTS
                        + feed * ${guard}_FEED_ROWS * $elements), (size_t)count * $elements * sizeof(rows[0]));
                status = ${name}_feed($ram, rows);
                if (status != (feed + 1 == ${guard}_FEEDS)) {
                    printf("invoke %d: feed %d returned %d\\n", invoke, feed, status);
                    return 1;
                }
            }
            status = 0;
        }"""


class Samples(NamedTuple):
    """Inputs and outputs of consecutive invokes."""

    inputs: list[Arrays]
    outputs: list[Arrays]


def recorded_samples(model: Model, inputs: Union[int, Sequence[Sequence[Any]]]) -> Samples:
    """Run a model from its first invoke, and record its outputs.

    Args:
        model: the model.
        inputs: number of random inputs; or, for each invoke, an array for each input.

    Raises:
        ArgumentError: there are no inputs.
        TflmError: the model cannot be run, or not with these inputs.
    """
    if isinstance(inputs, int):
        return _random_samples(model, inputs)
    if not inputs:
        raise ArgumentError("a self-test needs at least one input")
    return _answered(model, inputs)


def _answered(model: Model, inputs: Sequence[Sequence[Any]], while_limit: int | None = None) -> Samples:
    resolver = AllOpsResolver()
    size = measure_arena(model, resolver).minimum_arena_bytes
    interpreter = MicroInterpreter(model, resolver, bytearray(size), while_limit=while_limit)
    interpreter.allocate_tensors()
    samples = Samples([], [])
    for arrays in inputs:
        for i, values in enumerate(arrays):
            interpreter.input(i).data[...] = values
        samples.inputs.append([interpreter.input(i).data.copy() for i in range(interpreter.inputs_size())])
        interpreter.invoke()
        samples.outputs.append([interpreter.output(i).data.copy() for i in range(interpreter.outputs_size())])
    return samples


def _random_samples(model: Model, count: int) -> Samples:
    """Draw random inputs. If the model rejects them or runs too many iterations, draw zeros and ones instead."""
    rng = np.random.default_rng(0)
    inputs = [random_inputs(model, rng) for _ in range(count)]
    try:
        return _answered(model, inputs, MAX_ITERATIONS)
    except OperatorError:
        bits = [[(values > 0).astype(values.dtype) for values in one] for one in inputs]
        return _answered(model, bits, MAX_ITERATIONS)


def self_test_of(program: Program, name: str, origin: str, samples: Samples) -> str:
    """Return the text of NAME_test.c.

    Args:
        program: the model.
        name: the model's prefix.
        origin: a line that says where the file comes from.
        samples: the recorded inputs and outputs.
    """
    count = len(samples.inputs)
    tensors = interfaces(program)
    return TEST.substitute(
        origin=origin,
        name=name,
        guard=name.upper(),
        tables="\n".join(_tables(tensors, samples)),
        memory="\n".join(_memory(program, name)),
        set_up=f"\n{' ' * 4}".join(f"memset({block}.bytes, 0xA5, sizeof {block}.bytes);" for block in _blocks(program)),
        ram=_ram(program),
        count=count,
        run=_run(program, tensors, name),
        fill="\n".join(_fill(tensors, name, _ram(program))),
        check="\n".join(_check(tensors, name, _ram(program))),
    )


def _run(program: Program, tensors: Sequence[TensorInterface], name: str) -> str:
    """Return the code of an invoke."""
    names, feed = {"name": name, "guard": name.upper(), "ram": _ram(program)}, program.bound.feed
    if feed is None:
        return Template(INVOKE).substitute(names)
    tensor = tensors[feed.number]
    elements = tensor.tensor.data.size // feed.height
    return Template(FEED).substitute(names, element=tensor.element, elements=elements, number=feed.number)


def _blocks(program: Program) -> list[str]:
    """Return the names of the RAM blocks."""
    return [f"block_{i}" for i in range(len(program.plan.memories))] if program.is_split else ["block"]


def _ram(program: Program) -> str:
    """Return the RAM arguments of the model's functions."""
    return "ram" if program.is_split else "block.bytes"


def _memory(program: Program, name: str) -> Iterator[str]:
    """Return the definition of the RAM."""
    blocks = _blocks(program)
    for i, block in enumerate(blocks):
        yield f"static union {name}_ram{f'_{i}' if program.is_split else ''} {block};\n"
    if program.is_split:
        yield f"static void *const ram[] = {{{', '.join(f'{block}.bytes' for block in blocks)}}};\n"


def _tables(tensors: Sequence[TensorInterface], samples: Samples) -> Iterator[str]:
    for tensor in tensors:
        invokes = samples.inputs if tensor.side == "input" else samples.outputs
        values = np.concatenate([np.asarray(arrays[tensor.number], None).reshape(-1) for arrays in invokes])
        if values.size:
            yield table_definition(f"{tensor.side}_{tensor.number}", values)


def _fill(tensors: Sequence[TensorInterface], name: str, ram: str) -> Iterator[str]:
    for tensor in tensors:
        if tensor.side == "input" and tensor.tensor.bytes and tensor.place.base is not FED:
            size = f"{name.upper()}_INPUT_{tensor.number}_BYTES"
            source = f"(const uint8_t *)input_{tensor.number} + invoke * {size}"
            yield f"        memcpy({name}_input_{tensor.number}({ram}), {source}, {size});"


def _check(tensors: Sequence[TensorInterface], name: str, ram: str) -> Iterator[str]:
    for tensor in tensors:
        if tensor.side == "output":
            number = tensor.number
            size = f"{name.upper()}_OUTPUT_{number}_BYTES"
            element = tensor.tensor.data.itemsize * (-1 if tensor.element == "float" else 1)
            expected = f"(const uint8_t *)output_{number} + invoke * {size}"
            actual = f"{name}_output_{number}({ram})"
            expected = expected if tensor.tensor.bytes else actual
            yield f"        compare(invoke, {number}, {actual}, {expected},\n                {size}, {element});"


class Build(NamedTuple):
    """Processor and library for the Makefile.

    Attributes:
        core, part: the processor's name, and GCC's options for it.
        machine, ram, stack: QEMU's machine, the start of its RAM, and the end of the stack in it.
        comment: lines for the head of the file.
        include: options for all compilations.
        variables, rules: lines that define the library.
        host_library, arm_library: archives that the programs are linked with.
        built: files that `make clean` removes, too.
        is_plain_on_host: whether the test runs NAME_plain.c on the host, because the model is for another processor.
    """

    core: str = "Cortex-M4"
    part: str = "-mcpu=cortex-m4 -mthumb"
    machine: str = "mps2-an386"
    ram: str = "0x20000000"
    stack: str = "0x20100000"
    comment: str = ""
    include: str = ""
    variables: str = ""
    rules: str = ""
    host_library: str = ""
    arm_library: str = ""
    built: str = ""
    is_plain_on_host: bool = False


def makefile_of(name: str, shared: str | None, build: Build | None) -> str:
    """Return the text of the Makefile.

    Args:
        name: the model's prefix.
        shared: name of the files with shared kernels, if they are not in NAME.c.
        build: the processor, and a library to build.
    """
    names = [name] if shared is None else [name, shared]
    sources, headers = ([f"{each}{suffix}" for each in names] for suffix in (".c", ".h"))
    build = build or Build()
    is_plain = build.is_plain_on_host
    host_sources, host_headers = (
        [f"{name}_plain{suffix}"] if is_plain else each for suffix, each in ((".c", sources), (".h", headers))
    )
    return MAKEFILE.substitute(
        build._asdict(),
        host_sources=" ".join((*host_sources, f"{name}_test.c")),
        host_headers=" ".join(host_headers),
        host_flags=f" -include {name}_plain.h" if is_plain else "",
        name=name,
        guard=name.upper(),
        sources=" ".join((*sources, f"{name}_test.c")),
        headers=" ".join(headers),
    )
