"""Kernels translated to C compute the same as the machine code of LLVM."""

from __future__ import annotations

import runpy
import shutil
import struct
import subprocess
import typing
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Union

import c_language
import numpy as np
import pytest
from c_language import Line, on_line
from checked_program import SANITIZERS
from kernel_cases import MEMBERS, arguments, array, engine_kernels, members, one_member_each
from test_compile import EVERYTHING, WARNINGS

from tflm import Model, ModelBuilder, compile_model, quantized
from tflm.c.helpers import CONSTANTS, helpers_of
from tflm.c.source import Parameter, declaration, failure_of, name_of, parameters, structures, translate, written
from tflm.c.syntax import TranslationError
from tflm.compiler.calls import as_function
from tflm.compiler.language import DONE, Int32s, Kernel, inlined, kernel, standalone
from tflm.schema import BuiltinOperator, TensorType

Values = Union[dict[str, Any], list[Any]]

Call = tuple[int, Values]
"""A kernel by its place, and its arguments: by name, or as steps have them."""

FUNCTIONS_OF_FLOATS = [
    *("ABS", "CEIL", "COS", "ELU", "EXP", "FLOOR", "HARD_SWISH", "LOG", "LOGISTIC", "NEG", "RELU", "RELU6", "ROUND"),
    *("RSQRT", "SIN", "SQRT", "SQUARE", "TANH"),
]

CASES = 2
"""Sets of arguments for each kernel."""

HEADERS = "#include <math.h>\n#include <stdbool.h>\n#include <stdint.h>\n#include <stdio.h>\n"
HEADERS += "#include <stdlib.h>\n#include <string.h>\n\n"

MAIN = """\
typedef union { int64_t integer; double number; void *pointer; } argument;

%(adapters)s
static int64_t (*const kernels[])(const argument *) = {%(names)s};

static int64_t number_from(FILE *file)
{
    int64_t value = 0;
    if (fread(&value, sizeof value, 1, file) != 1) {
        exit(2);
    }
    return value;
}

/* Reads calls: kernel, count of arguments; for each its size in bytes, or -1 before a number. Writes results. */
int main(int count, char **names)
{
    FILE *calls = fopen(names[count - 2], "rb");
    FILE *results = fopen(names[count - 1], "wb");
    for (int64_t left = number_from(calls); left > 0; left--) {
        int64_t kernel = number_from(calls);
        int64_t given = number_from(calls);
        argument arguments[64];
        int64_t sizes[64];
        for (int64_t i = 0; i < given; i++) {
            sizes[i] = number_from(calls);
            if (sizes[i] < 0) {
                arguments[i].integer = number_from(calls);
            } else {
                arguments[i].pointer = malloc((size_t)sizes[i]);
                if (fread(arguments[i].pointer, 1, (size_t)sizes[i], calls) != (size_t)sizes[i]) {
                    return 2;
                }
            }
        }
        int64_t status = kernels[kernel](arguments);
        fwrite(&status, sizeof status, 1, results);
        for (int64_t i = 0; i < given; i++) {
            if (sizes[i] >= 0) {
                fwrite(arguments[i].pointer, 1, (size_t)sizes[i], results);
                free(arguments[i].pointer);
            }
        }
    }
    fclose(calls);
    return fclose(results);
}
"""


def adapter(kernel: Kernel) -> str:
    """A function that calls a kernel with arguments as a step has them."""
    place = 0
    locals_, given = [], []

    def value(parameter: Parameter) -> str:
        nonlocal place
        place += 1
        if parameter.c_type.endswith("*"):
            return f"arguments[{place - 1}].pointer"
        if parameter.c_type == "double":
            return f"arguments[{place - 1}].number"
        return f"({parameter.c_type})arguments[{place - 1}].integer"

    for parameter in parameters(kernel):
        if parameter.fields:
            name = f"of_{parameter.name}"
            fields = ", ".join(value(field) for field in parameter.fields)
            type_ = parameter.c_type.removeprefix("const ").removesuffix(" *")
            locals_.append(f"    const {type_} {name} = {{{fields}}};\n")
            given.append("&" + name)
        else:
            given.append(value(parameter))
    call = f"{name_of(kernel)}({', '.join(given)})"
    body = f"    {call};\n    return 0;\n" if failure_of(kernel) is None else f"    return {call};\n"
    head = f"static int64_t call_{name_of(kernel)}(const argument *arguments)"
    return f"{head}\n{{\n{''.join(locals_)}{body}}}\n"


def program(kernels: list[Kernel]) -> str:
    """A program that calls kernels."""
    names = ", ".join(f"call_{name_of(kernel)}" for kernel in kernels)
    return (
        HEADERS
        + structures(kernels)
        + translate(kernels)
        + MAIN % {"adapters": "\n".join(map(adapter, kernels)), "names": names}
    )


def flat(kernel: Kernel, values: Values) -> list[Any]:
    """The arguments of a step: arrays and numbers."""
    if isinstance(values, list):
        return values
    found: list[Any] = []
    for value in values.values():
        found += list(value) if hasattr(value, "_fields") else [value]
    assert len(found) == len(kernel.parameters)
    return found


def encoded(kernel: int, given: list[Any]) -> bytes:
    """A call, as the program reads it."""
    parts = [struct.pack("<qq", kernel, len(given))]
    for value in given:
        if isinstance(value, np.ndarray):
            parts += [struct.pack("<q", value.nbytes), value.tobytes()]
        else:
            parts.append(struct.pack("<qd" if isinstance(value, float) else "<qq", -1, value))
    return b"".join(parts)


def compiler() -> str:
    """The C compiler of this machine."""
    found = shutil.which("cc")
    if found is None:
        pytest.skip("there is no C compiler (cc)")
    return found


def built(source: str, folder: Path, *flags: str) -> Path:
    """The executable of a source."""
    (folder / "kernels.c").write_text(source)
    command = [compiler(), *WARNINGS, "-O0", *flags, "kernels.c", "-o", "kernels", "-lm"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[:4000]
    return folder / "kernels"


def results_of_c(
    kernels: list[Kernel], calls: Sequence[tuple[int, Any]], folder: Path
) -> Iterator[tuple[int, list[Any]]]:
    """The status of each call, and its arguments afterwards."""
    path = built(program(kernels), folder, *SANITIZERS)
    encodings = [encoded(place, flat(kernels[place], values)) for place, values in calls]
    (folder / "calls").write_bytes(struct.pack("<q", len(calls)) + b"".join(encodings))
    done = subprocess.run([path, "calls", "results"], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[:4000]
    results = memoryview((folder / "results").read_bytes())
    for place, values in calls:
        status: int = struct.unpack("<q", results[:8])[0]
        results = results[8:]
        found = []
        for value in flat(kernels[place], values):
            if isinstance(value, np.ndarray):
                found.append(np.frombuffer(results[: value.nbytes], value.dtype))
                results = results[value.nbytes :]
            else:
                found.append(value)
        yield status, found
    assert not results


def check(kernel: Kernel, found: list[Any], expected: list[Any]) -> None:
    """Integers are equal, floats to the last bits."""
    for name, ours, theirs in zip(kernel.parameters, found, expected, strict=True):
        if isinstance(ours, np.ndarray):
            tolerance = 1e-6 if ours.dtype.kind == "f" else 0
            np.testing.assert_allclose(
                ours, np.asarray(theirs, None).reshape(-1), rtol=tolerance, err_msg=f"{name} of {kernel.name}"
            )


def test_c_and_llvm_compute_the_same(tmp_path: Path) -> None:
    """On random arguments, without undefined behaviour, and without a byte outside of the arrays.

    A kernel for several types or functions has one of them here, and all of them in `make compiled`. Each runs in C,
    every second one in LLVM as well: without a cache of machine code, the engine compiles those first, which takes ten
    seconds.
    """
    kernels, rng = list(members() if EVERYTHING else one_member_each()), np.random.default_rng(30)
    calls = [(place, arguments(kernel, rng)) for place, kernel in enumerate(kernels) for _ in range(CASES)]
    for (place, values), (status, found) in zip(calls, results_of_c(kernels, calls, tmp_path), strict=True):
        kernel = kernels[place]
        if EVERYTHING or place % 2 == 0:
            assert as_function(kernel)(**values) == status, kernel.name
            check(kernel, found, flat(kernel, values))


def arguments_of_the_language(rng: np.random.Generator) -> dict[Kernel, dict[str, Any]]:
    """Random arguments for `c_language`."""
    small = rng.integers(-12, 12, 9, np.int32)
    geometry = c_language.Geometry(9, 77, -(1 << 40), typing.cast(Any, array(rng, "int8", 9)))
    return {
        c_language.divide: {
            "x": array(rng, "int32", 9) >> 1,
            "y": np.where(small == 0, 5, small).astype(np.int32),
            "quotients": array(rng, "int32", 9),
            "remainders": array(rng, "int32", 9),
            "count": 9,
        },
        c_language.shift: {
            "x": array(rng, "int32", 9),
            "y": array(rng, "int64", 36),
            "amount": int(rng.integers(0, 32)),
            "far": int(rng.integers(32, 63)),
            "count": 9,
        },
        c_language.reassign: {
            "x": array(rng, "int32", 9) >> 1,
            "y": np.where(small == 0, 5, small).astype(np.int32),
            "z": array(rng, "int32", 36),
            "amount": int(rng.integers(0, 32)),
            "count": 9,
        },
        c_language.decide: {
            "x": rng.choice(np.array([-9999, -5, -1, 2, 5, 7, 1500, 9999], np.int32), 9),
            "y": small,
            "count": 9,
        },
        c_language.count_down: {"x": small, "y": small.repeat(2), "first": 1, "last": 8, "step": 3},
        c_language.swap: {"x": small.copy(), "y": array(rng, "int32", 9), "count": int(rng.integers(1, 10))},
        c_language.wrap: {
            "x": array(rng, "int32", 9),
            "y": array(rng, "int32", 9),
            "z": array(rng, "int64", 9),
            "factor": int(rng.integers(-(1 << 31), 1 << 31)),
            "count": 9,
        },
        c_language.use_record: {"geometry": geometry, "x": array(rng, "int8", 9), "y": array(rng, "int64", 9)},
        c_language.add_up_and_down: {"x": array(rng, "int8", 9), "y": array(rng, "int32", 36), "count": 9},
        c_language.pass_by_value: {"x": small, "y": array(rng, "int64", 9), "slope": int(rng.integers(99)), "count": 9},
    }


def in_python(kernel: Kernel, values: dict[str, Any]) -> tuple[int, list[Any]]:
    """Run a kernel in Python, whose integers do not wrap; stored elements do."""

    def as_list(value: Any) -> Any:
        if isinstance(value, np.ndarray):
            return value.tolist()
        return type(value)(*map(as_list, value)) if hasattr(value, "_fields") else value

    lists = {name: as_list(value) for name, value in values.items()}
    with np.errstate(over="ignore"):  # numpy warns when the kernel casts
        status = kernel.function(**lists)
    types = [value.dtype if isinstance(value, np.ndarray) else None for value in flat(kernel, values)]
    found = [
        [wrapped_to(value, dtype) for value in values] if dtype is not None else values
        for dtype, values in zip(types, flat(kernel, lists), strict=True)
    ]
    return status, found


def wrapped_to(value: int, dtype: np.dtype[Any]) -> int:
    """An integer's low bits, as a number of a type."""
    bits = 8 * dtype.itemsize
    return (int(value) + (1 << (bits - 1))) % (1 << bits) - (1 << (bits - 1))


def test_integers_are_computed_as_in_python(tmp_path: Path) -> None:
    rng = np.random.default_rng(31)
    kernels = list(arguments_of_the_language(rng))
    calls = [
        (kernels.index(kernel), values) for _ in range(20) for kernel, values in arguments_of_the_language(rng).items()
    ]
    for (place, values), (status, found) in zip(calls, results_of_c(kernels, calls, tmp_path), strict=True):
        expected_status, expected = in_python(kernels[place], values)
        assert status == expected_status
        check(kernels[place], found, expected)


def test_addresses_and_floats(tmp_path: Path) -> None:
    source, target = np.arange(12, dtype=np.uint8), np.zeros(12, np.uint8)
    x = np.array([0.5, -1.5, 0.7, 3], np.float32)  # float32 rounds 0.7 down
    calls: list[Call] = [
        (0, {"target": target, "source": source, "count": 3}),
        (1, {"x": x, "y": np.zeros(16, np.float32), "factor": 1 / 3, "count": 4}),
    ]
    kernels = [c_language.move_in_bytes, c_language.mix]
    (_, moved), (_, mixed) = results_of_c(kernels, calls, tmp_path)
    words = np.array([0, 1798, 2312, 2826, 0, 0]).astype(np.int16)
    assert moved[0].view(np.int16).tolist() == words.tolist()
    total, expected = np.float32(0), []
    for i, value in enumerate(x):
        total += value * value
        quotient = np.float64(value) / 3
        expected += [
            total,
            np.float64(value) * (1 / 3) + i,
            max(float(value), 0.25) - min(quotient, float(total)),
            abs(value) if np.float64(value) < 0.7 else -value,
        ]
    assert mixed[1].tolist() == np.array(expected).astype(np.float32).tolist()


def test_parameters_tell_what_is_written() -> None:
    assert written(c_language.swap) == {"x", "y"}
    assert written(c_language.shift) == {"y"}
    assert written(c_language.move_in_bytes) == {"target"}
    assert declaration(c_language.move_in_bytes).endswith("(uint8_t *target, const uint8_t *source, int32_t count);")
    assert failure_of(c_language.decide) == "refused"
    assert failure_of(c_language.swap) is None
    (geometry, *_) = parameters(c_language.use_record)
    assert [field.c_type for field in geometry.fields] == ["int32_t", "int8_t", "int64_t", "const int8_t *"]


def test_what_c_lacks_is_refused_with_its_place() -> None:
    with pytest.raises(TranslationError, match=r"add_lists, line \d+: y\[0\] = sum"):
        translate([add_lists])


REFUSED = {
    "y[0] = x if count else 1": "x and 1 are not both numbers",
    "y[0] = 1 if count else x": "1 and x are not both numbers",
    "y[0] = x + 1": "only addresses have offsets",
    "y[0] = 2 * x": "x is not a number",
    "y[0] = -x": "x is not a number",
    "y[0] = not x": "x is not a number",
    "y[0] = count and x": "x is not a number",
    "y[0] = count < x": "x is not a number",
    "y[0] = abs(x)": "x is not a number",
    "y[0] = min(count, x)": "x is not a number",
    "y[x] = 1": "x is not a number",
    "y[0] = count[0]": "count has no elements",
    "count[0] = 1": "only elements of pointers can be assigned",
    "x.size = 1": "only variables and elements can be assigned",
    "y[0] = later; later = 1": "later is read before it is assigned",
    "y[0] = missing": "missing is not defined",
    "y[0] = [1]": "C has no [1]",
    "y[0] = x[0:1]": "C has no 0:1",
    "y[0] = count()": "count can't be called",
    "y[0] = sum(x)": "sum can't be called",
    "y[0] = twice(count, 1)": "twice takes the positional arguments a",
    "y[0] = twice(a=count)": "twice takes the positional arguments a",
    "y[0] = count ** 2": "operation Pow is not supported for integers",
    "y[0] = count & 1.5": "operation BitAnd is not supported for floats",
    "y[0] = count % 1.5": "operation Mod is not supported for floats",
    "y[0] = move_bytes(count, x, 1)": "move_bytes takes addresses",
    "y[0] = move_bytes(x, count, 1)": "move_bytes takes addresses",
    "a, b = count, 1, 2": "the numbers of values and targets differ",
    "a, b, c = both(count)": "the numbers of values and targets differ",
    "a, y[0] = both(count)": "results of functions can only be assigned to variables",
    "a, b = count": "only tuples can be unpacked",
    "a = x; a = count": "have no type in common",
    "a = twice": "twice cannot be stored in a C variable",
    "return x": "have no type in common",
    "for i in x: pass": "loops must use range(...)",
    "for i in count(1): pass": "loops must use range(...)",
    "with x: pass": "this statement cannot be translated to C",
}
"""Statements that have no meaning in C, or another one than in Python, and what is said of them."""

REFUSED_KERNEL = """
@kernel
def refused_{0}(x: Int32s, y: Int32s, count: int) -> int:
    {1}
    return DONE
"""


def test_statements_without_a_meaning_in_c_are_refused(tmp_path: Path) -> None:
    functions = "@inlined\ndef twice(a: int) -> int:\n    return 2 * a\n\n"
    functions += "@inlined\ndef both(a: int) -> tuple[int, int]:\n    return a, a\n"
    names = "from __future__ import annotations\nfrom tflm.compiler.language import DONE, Int32s, inlined, kernel\n"
    names += "from tflm.compiler.intrinsics import move_bytes\n\n"
    kernels = "".join(REFUSED_KERNEL.format(i, statement) for i, statement in enumerate(REFUSED))
    path = tmp_path / "refused.py"
    path.write_text(names + functions + kernels, encoding="utf-8")
    module = runpy.run_path(str(path))
    said = {}
    for i, statement in enumerate(REFUSED):
        with pytest.raises(TranslationError, match=rf"refused_{i}\b") as error:
            translate([module[f"refused_{i}"]])
        said[statement] = str(error.value)
    assert {statement: said[statement] for statement in REFUSED if REFUSED[statement] not in said[statement]} == {}


def test_variables_that_c_can_not_tell_apart_are_refused() -> None:
    with pytest.raises(TranslationError, match="_i has the same name in C as another variable"):
        translate([count_twice])


@kernel
def count_twice(y: Int32s, count: int) -> int:
    """Its variables differ in an underscore, which they lose in C."""
    i = count
    for _i in range(count):
        y[0] += i
    return DONE


@kernel
def add_lists(x: Int32s, y: Int32s) -> int:
    """It calls a function that kernels don't have."""
    y[0] = sum(x)
    return DONE


@kernel
def line_of_a_sum(x: Int32s, y: Int32s, slope: int, count: int) -> int:
    """It makes a record of a variable that changes afterwards."""
    total = 0
    line = Line(slope, total)
    for i in range(count):
        total += x[i]
        y[i] = on_line(x[i], line)
    return DONE


@inlined
def sum_of_slopes(slope: int, line: Line) -> int:
    """A parameter and a field have the same name."""
    return slope + line.slope


@kernel
def two_slopes(y: Int32s, slope: int) -> int:
    """It calls a function whose record has a field with the name of a parameter."""
    y[0] = sum_of_slopes(slope, Line(1, 2))
    return DONE


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (line_of_a_sum, r"line = Line\(slope, total\) uses a variable that is assigned more than once"),
        (two_slopes, "sum_of_slopes has variables with the names of a record's fields"),
    ],
)
def test_a_record_whose_fields_could_be_other_values_is_refused(wrong: Kernel, message: str) -> None:
    with pytest.raises(TranslationError, match=message):
        translate([wrong])


@standalone
def all_registers(x: int) -> int:
    """It needs the registers of its caller."""
    return x + 1


@inlined
def few_registers(x: int) -> int:
    """It needs one register."""
    return x + 2


@kernel
def calls_both(y: Int32s, x: int) -> int:
    """It calls a function that C compilers should not inline, and one that they may."""
    y[0] = all_registers(x) + few_registers(x)
    return DONE


def test_a_standalone_function_is_not_inlined() -> None:
    heads = [
        line.split(" int32_t ")[0]
        for line in translate([calls_both]).splitlines()
        if line.endswith("_registers(int32_t x)")
    ]
    assert heads == ["static NOT_INLINED", "static inline"]


@pytest.mark.parametrize("name", CONSTANTS)
def test_a_macro_is_defined_with_those_that_it_uses(name: str) -> None:
    definitions = helpers_of(f"#if {name}")
    defined = [macro for text in definitions for macro in CONSTANTS if f"#define {macro} " in text]
    used = [macro for text in definitions for macro in CONSTANTS if macro in text]
    assert defined[-1] == name
    assert {*used} == {*defined}


@pytest.mark.parametrize(
    ("operator", "source", "target"),
    [
        *((operator, TensorType.FLOAT32, TensorType.FLOAT32) for operator in FUNCTIONS_OF_FLOATS),
        *(("CAST", TensorType.FLOAT32, TensorType[target]) for target in ("INT8", "INT16", "INT32")),
        *(("DEQUANTIZE", TensorType[source], TensorType.FLOAT32) for source in ("INT8", "INT16")),
    ],
)
def test_functions_of_floats_need_no_double_precision(operator: str, source: TensorType, target: TensorType) -> None:
    """Most microcontrollers compute with doubles in software, which takes hundreds of instructions each."""
    builder = ModelBuilder()
    main = builder.subgraph()
    x, y = main.input("x", (4,), source, quantized(0.1)), main.tensor("y", (4,), target)
    main.operator(BuiltinOperator[operator], [x], [y])
    main.output(y)
    text = compile_model(Model(builder.build()), "function").files["function.c"]
    assert "float" in text
    assert "double" not in text


def test_every_kernel_is_tested() -> None:
    generic = {kernel for kernel in engine_kernels() if any(kind.is_generic for kind in kernel.parameters.values())}
    assert generic == MEMBERS.keys()


def test_names_are_different() -> None:
    names = [name_of(kernel) for kernel in members()]
    assert len(set(names)) == len(names)


def test_the_order_of_constants_changes_no_name() -> None:
    for member in members():
        family = type(member)(member.function)
        assert name_of(family.of(**dict(reversed(member.constants.items())))) == name_of(member)
