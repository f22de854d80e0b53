"""Write the C file of a compiled model: its kernels, its constants, and a function for each subgraph."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from string import Template
from typing import NamedTuple

import numpy as np

from tflm.c import source
from tflm.c.binding import BoundOperator
from tflm.c.constants import (
    C_TYPES,
    LINE_LENGTH,
    c_type,
    float_literal,
    integer_literal,
    short_lines,
    table_definition,
    wrapped,
)
from tflm.c.control_flow import If, Repeat, SubgraphCall, While
from tflm.c.expressions import MATH as MATH_FUNCTIONS
from tflm.c.expressions import MATH_OF_TWO
from tflm.c.header import TensorInterface, comment_text, interfaces, ram_parameter
from tflm.c.library_calls import LibraryCall
from tflm.c.library_writer import INDENT, LibraryWriter, helpers_of_library, includes_of_library
from tflm.c.program import (
    FED,
    Code,
    FedRows,
    KernelCall,
    Operand,
    OperatorCode,
    Pointer,
    Program,
    Statement,
    Table,
    reached_subgraphs,
)
from tflm.c.stage_table import Argument, stage_table
from tflm.compiler.language import Kernel
from tflm.errors import CompileError
from tflm.schedule.calls import MovedRows, RamBuffer
from tflm.targets import align_up

MEMORY_FUNCTIONS = {
    "memcpy": "void *memcpy(void *target, const void *source, size_t count);",
    "memmove": "void *memmove(void *target, const void *source, size_t count);",
    "memset": "void *memset(void *target, int value, size_t count);",
}
"""Functions of the C library that the code uses. They are declared here because freestanding compilers have no
<string.h>; such compilers emit calls of these functions themselves."""

ONE_FLOAT, TWO_FLOATS = (*MATH_FUNCTIONS.values(), "fabs"), tuple(MATH_OF_TWO.values())

WORD = re.compile(r"[A-Za-z_]\w*\(?")
"""Matches names, with the parenthesis behind those of functions. A pattern that began with a boundary would be tried at
each digit of a table."""

FILE = Template("""\
/* $origin */
#include "$name.h"

$before
$includes
$checks
$kernels
$tables
$functions""")

KERNEL_HEADER = Template("""\
/* $origin */
#ifndef ${guard}_H
#define ${guard}_H

#include <stdint.h>

$structures
$declarations

#endif
""")

CHECKS = """\
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "This code needs a little-endian processor."
#endif
#if (-1 >> 1) != -1
#error "This code needs arithmetic right shifts of negative numbers."
#endif
"""
"""Checks of what the code assumes beyond C99."""

BEFORE = """\
/* Round products and sums separately, also on processors with fused multiply-add. */
#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#elif defined(__GNUC__)
#pragma GCC optimize("fp-contract=off")
#endif

/* Attributes of all {what}, such as __attribute__((section(".itcm"))): define them to choose sections. */
"""
"""Text at the start of each file, because GCC does not inline functions that are compiled with other options."""

MACRO = """\
#ifndef {name}
#define {name}
#endif
"""

FUNCTION = re.compile(r"^(?=(?:static|NOT_INLINED) )", re.MULTILINE)
"""Matches the start of the definition of a kernel or table."""

HEAD = re.compile(r"^(?=\w.*\)$)", re.MULTILINE)
"""Matches the start of the definition of a function of the program."""


def kernel_files(kernels: Iterable[Kernel], name: str, origin: str) -> dict[str, str]:
    """Return the files NAME.h and NAME.c with kernels that several models share.

    Args:
        kernels: the kernels, without repetition.
        name: a C identifier.
        origin: a line that says where the files come from.
    """
    unique = list(dict.fromkeys(kernels))
    declarations = "\n".join(source.declaration(kernel, linkage="") for kernel in unique)
    header = KERNEL_HEADER.substitute(
        origin=origin, guard=name.upper(), structures=source.structures(unique), declarations=declarations
    )
    definitions = FUNCTION.sub(f"{name.upper()}_CODE ", source.translate(unique, linkage=""))
    body = FILE.substitute(
        origin=origin,
        name=name,
        before=BEFORE.format(what="functions") + MACRO.format(name=f"{name.upper()}_CODE"),
        includes=includes_of(definitions),
        checks=CHECKS,
        kernels=definitions,
        tables="",
        functions="",
    )
    return {f"{name}.h": short_lines(header), f"{name}.c": short_lines(body)}


class CFile(NamedTuple):
    """The file NAME.c.

    Attributes:
        text: the contents.
        steps: number of steps of `NAME_step`.
    """

    text: str
    steps: int


def c_file(program: Program, name: str, origin: str, kernel_header: str | None) -> CFile:
    """Return the file NAME.c.

    Args:
        program: the model, with its RAM planned.
        name: a C identifier, the prefix of everything that is declared.
        origin: a line that says where the file comes from.
        kernel_header: the header that declares the kernels; None to define them in this file.
    """
    writer = _Writer(program, name)
    code, const = (f"{name.upper()}_{kind}" for kind in ("CODE", "CONST"))
    functions = HEAD.sub(f"{code} ", writer.functions())
    used = kernels_of(program)
    kernels = source.structures(used) + source.translate(used) if kernel_header is None else ""
    kernels = FUNCTION.sub(f"{code} ", kernels + helpers_of_library(program.library_calls()))
    tables = "\n".join((*(table_definition(table.name, table.values) for table in program.tables), *writer.records))
    tables = FUNCTION.sub(f"{const} ", tables)
    text = FILE.substitute(
        origin=origin,
        name=name,
        before=BEFORE.format(what="functions and tables") + MACRO.format(name=code) + MACRO.format(name=const),
        includes=("" if kernel_header is None else f'#include "{kernel_header}"\n')
        + includes_of_library(program.library_calls())
        + includes_of(kernels + tables + functions),
        checks=CHECKS + program.checks,
        kernels=kernels,
        tables=tables,
        functions=functions,
    )
    return CFile(short_lines(text), writer.steps)


def includes_of(code: str) -> str:
    """Return the includes and declarations of the C library that code needs."""
    words = set(WORD.findall(source.COMMENT.sub("", code)))
    used = [declaration for name, declaration in MEMORY_FUNCTIONS.items() if f"{name}(" in words]
    headers = ["stdbool.h"] + ["stddef.h"] * bool(used)
    checks = ASSERT if "assert(" in code else []
    lines = [f"#include <{header}>" for header in headers] + used
    return "".join(f"{line}\n" for line in [*lines, *checks, *_math_of(words)])


ASSERT = [
    *("#if defined(NDEBUG)", "#define assert(holds) ((void)sizeof(holds))"),
    *("#elif !defined(__has_include)", "#include <assert.h>", "#elif __has_include(<assert.h>)", "#include <assert.h>"),
    *("#else", "#define assert(holds) ((void)sizeof(holds))", "#endif"),
]
"""Lines that include or define `assert`; it does nothing in release builds and without a C library."""


def _math_of(words: Set[str]) -> list[str]:
    """Return lines that include <math.h>, or that declare what is used of it if there is no such header.

    Args:
        words: the names in the code, as `WORD` matches them.
    """
    functions = (f"{name}{kind}" for name in (*ONE_FLOAT, *TWO_FLOATS) for kind in ("", "f"))
    names = sorted({*(MATH_CONSTANTS.keys() & words), *(name for name in functions if f"{name}(" in words)})
    if not names:
        return []
    include = "#include <math.h>"
    return [
        *("#ifndef __has_include", include, "#elif __has_include(<math.h>)", include, "#else"),
        *(_math_declaration(name) for name in names),
        "#endif",
    ]


def _math_declaration(name: str) -> str:
    if name in MATH_CONSTANTS:
        return f"#define {name} {MATH_CONSTANTS[name]}"
    is_float = name not in ONE_FLOAT + TWO_FLOATS
    kind = "float" if is_float else "double"
    is_of_two = name.removesuffix("f" if is_float else "") in TWO_FLOATS
    return f"{kind} {name}({kind} x{f', {kind} y' if is_of_two else ''});"


MATH_CONSTANTS = {"INFINITY": "(1.0f / 0.0f)", "NAN": "(0.0f / 0.0f)"}
"""Constants of <math.h>, as constant expressions."""


def kernels_of(program: Program) -> list[Kernel]:
    """Return the kernels that a program calls, without repetition."""
    return list(dict.fromkeys(call.kernel for call in program.calls()))


DTYPES = {kind: dtype for dtype, kind in reversed(C_TYPES.items())}
"""The dtype of each numeric C type."""


class PartCall(NamedTuple):
    """A kernel call in a stage.

    Attributes:
        name: the C function.
        key: unique among the calls of this function.
        comment: names the operator in the code.
        failure: as `source.failure_of` returns it.
    """

    name: str
    key: object
    comment: str
    failure: str | None


class _Piece(NamedTuple):
    """A piece of an invoke: an operator, or the calls of a stage.

    Attributes:
        lines: lines of code.
        steps: number of steps: 1, or the number of calls in the stage.
        stage: number of the stage; None for an operator.
        declaration: a variable that the function around the lines must declare.
    """

    lines: list[str]
    steps: int = 1
    stage: int | None = None
    declaration: str = ""


NOT_ADVANCED: Mapping[str, str] = {}
"""The pointers of a call outside of loops."""

RETURN = re.compile(r"\breturn ([1-9]\d*);")
"""Matches the return statement of an operator that failed."""


def _is_part(code: Code) -> bool:
    """Whether code belongs to a stage."""
    return not isinstance(code, OperatorCode) or code.rows is not None


def _structure_bytes(parameter: source.Parameter) -> int:
    """Return the size of a structure on a 32-bit processor."""
    size = 0
    for field in parameter.fields:
        bytes = 4 if field.c_type.endswith("*") else np.dtype(DTYPES[field.c_type]).itemsize
        size = align_up(size, bytes) + bytes
    return align_up(size, 4)


def _array_of_structs(name: str, kind: str, elements: Sequence[Sequence[str]]) -> str:
    lines = [line for fields in elements for line in wrapped(f"{INDENT}{{", fields, "},")]
    return "\n".join([f"static {kind} {name}[{len(elements)}] = {{", *lines, "};"]) + "\n"


class _Writer:
    """Writes the functions of a program.

    Attributes:
        records: definitions of constant structures that calls refer to.
        stages: functions that run the calls of a stage.
        steps: number of steps of `NAME_step`.
    """

    def __init__(self, program: Program, name: str):
        self._program = program
        self._name = name
        self._is_split = program.is_split
        self.records: list[str] = []
        self.stages: list[str] = []
        self.steps = 0
        self._parts: dict[str, tuple[str, list[list[str]]]] = {}
        self._library = LibraryWriter(self.records, self._address)

    def functions(self) -> str:
        """Return all functions, each before its callers."""
        called = [i for i in reached_subgraphs(self._program.bound) if i]
        parts = [*(self._subgraph(i) for i in called), self._reset(), self._invoke()]
        parts[:0] = self.stages
        self._program.structure_bytes += self._library.structure_bytes
        self.records += [_array_of_structs(name, *found) for name, found in self._parts.items()]
        parts += [self._accessor(tensor) for tensor in interfaces(self._program) if tensor.place.base is not FED]
        return "\n".join(parts)

    @property
    def _ram_parameter(self) -> str:
        return ram_parameter(self._program)

    def _function(self, head: str, body: Iterable[str]) -> str:
        """Return a function with the given lines, preceded by the base addresses that they use."""
        lines = list(body)
        text = "\n".join(lines)
        memories = sorted({int(number) for number in re.findall(r"\bbase_(\d+)\b", text)})
        first = [f"{INDENT}uint8_t *base_{i} = ram{f'[{i}]' if self._is_split else ''};" for i in memories]
        if not self._is_split:
            first, lines = (
                [line.replace("base_0", "base") for line in first],
                text.replace("base_0", "base").split("\n"),
            )
        unused = [] if memories or "ram" in text else [f"{INDENT}(void)ram;"]
        return "\n".join([head, "{", *first, *unused, *(line for line in lines if line or len(lines) > 1), "}", ""])

    def _subgraph(self, index: int) -> str:
        lines = [line for piece in self._pieces(index) for line in piece.lines]
        head = f"static int run_subgraph_{index}({self._ram_parameter})"
        return self._function(head, [*lines, f"{INDENT}return 0;"])

    def _invoke(self) -> str:
        pieces = self._pieces(0)
        lines = [line for piece in pieces for line in piece.lines]
        feed = self._program.bound.feed
        if feed is not None:
            element = interfaces(self._program)[feed.number].element
            head = f"int {self._name}_feed({self._ram_parameter}, const {element} *rows)"
            failing = [RETURN.sub(r"return -\1;", line) for line in lines]
            declared = [piece.declaration for piece in pieces if piece.declaration]
            return self._function(head, [*declared, *failing, f"{INDENT}return 1;"])
        head = f"int {self._name}_invoke({self._ram_parameter})"
        return self._function(head, [*lines, f"{INDENT}return 0;"]) + self._step(pieces)

    def _step(self, pieces: Sequence[_Piece]) -> str:
        """Return the function that runs the model in steps. It repeats all calls, so it is compiled only on demand."""
        self.steps = sum(piece.steps for piece in pieces)
        first, cases, stages = 0, list[str](), list[str]()
        for piece in pieces:
            end = first + piece.steps
            if piece.stage is None:
                lines = (RETURN.sub(r"return -\1;", line) for line in piece.lines)
                cases += [f"{INDENT}case {first}:", *(INDENT + line for line in lines), f"{INDENT * 2}break;"]
            else:
                stages.append(f"{INDENT * 2}if (step >= {first} && step < {end}) {{")
                stages.append(f"{INDENT * 3}run_stage_{piece.stage}(ram, step - {first}, step - {first} + 1);")
                stages.append(f"{INDENT * 2}}}")
            first = end
        body = [
            *(f"{INDENT}if (step < 0 || step >= {self.steps}) {{", f"{INDENT * 2}return 0;", f"{INDENT}}}"),
            *(f"{INDENT}switch (step) {{", *cases, f"{INDENT}default:", *stages, f"{INDENT * 2}break;", f"{INDENT}}}"),
            f"{INDENT}return step + 1 < {self.steps} ? step + 1 : 0;",
        ]
        head = f"int {self._name}_step({self._ram_parameter}, int step)"
        macro = f"{self._name.upper()}_WITH_STEP"
        return f"\n#if defined({macro})\n{self._function(head, body)}#endif\n"

    def _pieces(self, subgraph: int) -> list[_Piece]:
        """Return the operators and stages of a subgraph, in order."""
        pieces: list[_Piece] = []
        for is_stage, group in itertools.groupby(self._program.subgraphs[subgraph], _is_part):
            codes = list(group)
            moves = [code for code in codes if isinstance(code, MovedRows)]
            if len(moves) == len(codes):
                pieces += [_Piece(self._move(move)) for move in moves]
            elif is_stage:
                pieces.append(self._stage(codes))
            else:
                pieces += [_Piece(list(self._operator(code))) for code in codes if isinstance(code, OperatorCode)]
        return pieces

    def _moved(self, move: MovedRows) -> tuple[Pointer, Pointer]:
        """Return the target and the source of moved rows."""
        buffers = self._program.plan.buffers
        return Pointer(buffers[move.target_buffer], move.target), Pointer(buffers[move.buffer], move.source)

    def _move(self, move: MovedRows) -> list[str]:
        target, source = (self._address(place, "uint8_t *") for place in self._moved(move))
        return [f"{INDENT}memmove({target}, {source}, {move.size});"]

    def _stage(self, codes: Sequence[Code]) -> _Piece:
        """Return the call of the function that runs a stage."""
        calls = [call for code in codes for call in self._part_calls(code)]
        table = stage_table(calls)
        if table is None or any(call.failure for call, _ in calls):
            raise CompileError("the calls of a stage differ in more than places and sizes; please report this model")
        number = len(self.stages)
        values = Table(f"stage_{number}", table.rows.reshape(-1))
        self._program.tables.append(values)
        rows, width = table.rows.shape
        body = [
            f"{INDENT}int i;",
            f"{INDENT}for (i = first; i < end; ++i) {{",
            f"{INDENT * 2}const {c_type(table.rows.dtype)} *v = {values.name} + {width} * i;",
            f"{INDENT * 2}switch (v[0]) {{",
        ]
        for case, (call, arguments) in enumerate(table.cases.items()):
            body.append(f"{INDENT * 2}case {case}:{call.comment}")
            body += wrapped(f"{INDENT * 3}{call.name}(", arguments, ");")
            body.append(f"{INDENT * 3}break;")
        body += [f"{INDENT * 2}default:", f"{INDENT * 3}break;", f"{INDENT * 2}}}", f"{INDENT}}}"]
        fed = [place for place, code in enumerate(codes) if isinstance(code, FedRows)]
        given = f"{self._ram_parameter}, const void *rows" if fed else self._ram_parameter
        head = f"static void run_stage_{number}({given}, int first, int end)"
        self.stages.append(self._function(head, body))
        if fed:
            return self._fed_piece(codes, number, [*fed, len(codes)])
        return _Piece([*self._stage_comment(codes), f"{INDENT}run_stage_{number}(ram, 0, {rows});"], rows, number)

    def _fed_piece(self, codes: Sequence[Code], number: int, starts: Sequence[int]) -> _Piece:
        """Return the stage that the caller feeds rows to: each call of NAME_feed runs it until it needs the next
        rows."""
        counts = [sum(1 for _ in self._part_calls(code)) for code in codes]
        places = [0, *itertools.accumulate(counts)]
        kind = np.uint16 if places[-1] < 1 << 16 else np.int32
        self._program.tables.append(Table("feeds", np.array([places[start] for start in starts], kind)))
        assert self._program.feed_counter is not None
        counter = self._address(self._program.feed_counter, "int32_t *")
        return _Piece(
            [
                *self._stage_comment(codes),
                f"{INDENT}run_stage_{number}(ram, rows, feeds[*next], feeds[*next + 1]);",
                f"{INDENT}if (++*next < {len(starts) - 1}) {{",
                f"{INDENT * 2}return 0;",
                f"{INDENT}}}",
                f"{INDENT}*next = 0;",
            ],
            places[-1],
            number,
            f"{INDENT}int32_t *next = {counter};",
        )

    def _stage_comment(self, codes: Sequence[Code]) -> Iterator[str]:
        operators = {code.operator.index: code.operator for code in codes if isinstance(code, OperatorCode)}
        yield f"{INDENT}/* {'row by row' if len(operators) == 1 else 'in turns, some rows at a time'}: */"
        yield from (self._title(operators[index]) for index in sorted(operators))

    def _title(self, operator: BoundOperator) -> str:
        """Return a comment with the operator's name, and its outputs with their shapes."""
        tensors = self._program.bound.tensors(operator.subgraph)
        outputs = [tensors[i] for i in operator.node.outputs]
        made = ", ".join(f"{comment_text(t.name)} ({'x'.join(map(str, t.dims)) or 'scalar'})" for t in outputs)
        name = f"{self._program.number_of(operator)} {comment_text(operator.node.operator)}"
        title = name + (f": {made}" if made else "")
        return f"{INDENT}/* {title[: LINE_LENGTH - 12]} */"

    def _part_calls(self, code: Code) -> Iterator[tuple[PartCall, list[Argument]]]:
        """Return the calls for some rows of an operator, or for moved rows."""
        if isinstance(code, MovedRows):
            moved = self._moved(code)
            places = [self._argument_at(place, "uint8_t *") for place in moved]
            memories = tuple(place.base.memory for place in moved if isinstance(place.base, RamBuffer))
            part = PartCall("memmove", memories, " /* rows that the next band reads again */", None)
            yield part, [*places, Argument("{}", code.size)]
            return
        if isinstance(code, FedRows):
            target = self._argument_at(code.target, "uint8_t *")
            part = PartCall("memcpy", FED, " /* rows of the input */", None)
            yield part, [target, Argument("rows"), Argument("{}", code.size)]
            return
        for place, call in enumerate(code.statements):
            assert isinstance(call, KernelCall)
            name = source.name_of(call.kernel)
            comment = f" /* {self._program.number_of(code.operator)} {comment_text(code.operator.node.operator)} */"
            arguments = [self._part_argument(parameter, call, code) for parameter in source.parameters(call.kernel)]
            forms = tuple(argument.form for argument in arguments)
            yield (
                PartCall(name, (code.operator.index, place, forms), comment, source.failure_of(call.kernel)),
                arguments,
            )

    def _part_argument(self, parameter: source.Parameter, call: KernelCall, code: OperatorCode) -> Argument:
        if parameter.fields:
            name = f"{code.operator.node.operator.lower()}_{code.operator.index}_{parameter.name}"
            known = self._parts.setdefault(name, (parameter.c_type.rstrip(" *"), []))[1]
            values = self._fields(parameter, call)
            if values not in known:
                known.append(values)
                self._program.structure_bytes += _structure_bytes(parameter)
            return Argument(f"{name} + {{}}", known.index(values))
        operand = call.operands[parameter.name]
        if isinstance(operand, Pointer):
            return self._argument_at(operand, parameter.c_type)
        if isinstance(operand, int) and parameter.c_type not in ("float", "double"):
            return Argument("{}", operand)
        return Argument(self._expression(operand, parameter.c_type, call))

    def _argument_at(self, pointer: Pointer, kind: str) -> Argument:
        base, offset = pointer
        if not isinstance(base, RamBuffer):
            return Argument(self._address(pointer, kind))
        cast = "" if kind == "uint8_t *" else f"({kind})"
        return Argument(f"{cast}(base_{base.memory} + {{}})", base.offset + offset)

    def _operator(self, code: OperatorCode) -> Iterator[str]:
        yield self._title(code.operator)
        for statement in code.statements:
            yield from self._statement(statement, code, INDENT)

    def _statement(self, statement: Statement, code: OperatorCode, indent: str) -> Iterator[str]:
        if isinstance(statement, KernelCall):
            yield from self._call(statement, code, indent)
        elif isinstance(statement, Repeat):
            yield from self._repeat(statement, code, indent)
        elif isinstance(statement, LibraryCall):
            yield from self._library.call(statement, self._program.number_of(code.operator), indent)
        elif isinstance(statement, If):
            yield f"{indent}if (*{self._byte(statement.condition)}) {{"
            yield from self._called(statement.then, code, indent + INDENT)
            yield f"{indent}}} else {{"
            yield from self._called(statement.otherwise, code, indent + INDENT)
            yield f"{indent}}}"
        elif isinstance(statement, While):
            for call in statement.before:
                yield from self._call(call, code, indent)
            yield from self._run(statement.condition, code, indent)
            yield f"{indent}while (*{self._byte(statement.holds)}) {{"
            yield from self._called(statement.body, code, indent + INDENT)
            yield from self._run(statement.condition, code, indent + INDENT)
            yield f"{indent}}}"
        else:
            yield f"{indent}if (*{self._byte(statement.pending)}) {{"
            yield from self._run(statement.subgraph, code, indent + INDENT)
            yield f"{indent}{INDENT}*{self._byte(statement.pending)} = 0;"
            yield f"{indent}}}"

    def _repeat(self, repeat: Repeat[KernelCall], code: OperatorCode, indent: str) -> Iterator[str]:
        names = [f"i_{number}" for number in range(len(repeat.counts))]
        for depth, (name, count) in enumerate(zip(names, repeat.counts)):
            yield f"{indent}{INDENT * depth}for (int32_t {name} = 0; {name} < {count}; ++{name}) {{"
        advances = {
            parameter: "".join(
                f" + {name} * {step}" if step > 1 else f" + {name}" for name, step in zip(names, steps) if step
            )
            for parameter, steps in repeat.steps.items()
        }
        yield from self._call(repeat.call, code, indent + INDENT * len(names), advances)
        for depth in reversed(range(len(names))):
            yield f"{indent}{INDENT * depth}}}"

    def _called(self, called: SubgraphCall[KernelCall], code: OperatorCode, indent: str) -> Iterator[str]:
        for call in called.before:
            yield from self._call(call, code, indent)
        yield from self._run(called.subgraph, code, indent)
        for call in called.after:
            yield from self._call(call, code, indent)

    def _run(self, subgraph: int, code: OperatorCode, indent: str) -> Iterator[str]:
        yield f"{indent}if (run_subgraph_{subgraph}(ram) != 0) {{"
        yield f"{indent}{INDENT}return {self._program.number_of(code.operator) + 1};"
        yield f"{indent}}}"

    def _call(
        self, call: KernelCall, code: OperatorCode, indent: str, advances: Mapping[str, str] = NOT_ADVANCED
    ) -> Iterator[str]:
        """Yield the lines of a call; `advances` has expressions that are added to pointers, by parameter."""
        name = source.name_of(call.kernel)
        arguments = [
            self._argument(parameter, call, code) + advances.get(parameter.name, "")
            for parameter in source.parameters(call.kernel)
        ]
        failure = source.failure_of(call.kernel)
        if failure is None:
            yield from wrapped(f"{indent}{name}(", arguments, ");")
            return
        yield from wrapped(f"{indent}if ({name}(", arguments, ") != 0) {")
        # An operator that waits for more input ends the invoke without an error.
        yield f"{indent}{INDENT}return {0 if failure == 'aborted' else self._program.number_of(code.operator) + 1};"
        yield f"{indent}}}"

    def _argument(self, parameter: source.Parameter, call: KernelCall, code: OperatorCode) -> str:
        if parameter.fields:
            return "&" + self._record(parameter, call, code)
        return self._expression(call.operands[parameter.name], parameter.c_type, call)

    def _record(self, parameter: source.Parameter, call: KernelCall, code: OperatorCode) -> str:
        """Define the constant structure that a call needs, and return its name."""
        operator = code.operator
        name = f"{operator.node.operator.lower()}_{operator.index}_{parameter.name}_{len(self.records)}"
        kind = parameter.c_type.rstrip(" *")
        values = self._fields(parameter, call)
        self._program.structure_bytes += _structure_bytes(parameter)
        self.records.append("\n".join(wrapped(f"static {kind} {name} = {{", values, "};")) + "\n")
        return name

    def _fields(self, parameter: source.Parameter, call: KernelCall) -> list[str]:
        """Return the initializers of a structure."""
        return [
            f".{field.name} = {self._expression(call.operands[f'{parameter.name}.{field.name}'], field.c_type, call)}"
            for field in parameter.fields
        ]

    def _expression(self, operand: Operand, kind: str, call: KernelCall) -> str:
        if isinstance(operand, Pointer):
            return self._address(operand, kind)
        if kind in ("float", "double"):
            return float_literal(float(operand), "f" if kind == "float" else "")
        limits = np.iinfo(kind.removesuffix("_t"))
        if not limits.min <= operand <= limits.max:
            raise CompileError(
                f"argument {operand} of {call.kernel.name} does not fit {kind}; please report this model"
            )
        return integer_literal(int(operand))

    def _address(self, pointer: Pointer, kind: str) -> str:
        base, offset = pointer
        target = kind.replace("const ", "").replace(" ", "").removesuffix("*")
        if isinstance(base, RamBuffer):
            place = f"base_{base.memory}" + (f" + {base.offset + offset}" if base.offset + offset else "")
            if target == "uint8_t":
                return place
            return f"({kind})({place})" if "+" in place else f"({kind}){place}"
        held = c_type(base.values.dtype)
        size = base.values.itemsize
        if held == target and offset % size == 0:
            return base.name + (f" + {offset // size}" if offset else "")
        if not offset:
            return f"({kind}){base.name}"
        return f"({kind})((const uint8_t *){base.name} + {offset})"

    def _byte(self, pointer: Pointer) -> str:
        address = self._address(pointer, "uint8_t *")
        return f"({address})" if "+" in address else address

    def _reset(self) -> str:
        """Return the function that writes the initial values of state."""
        lines = []
        for title, buffer, values in self._program.initial:
            target = self._address(Pointer(buffer, 0), "uint8_t *")
            lines.append(f"{INDENT}/* {comment_text(title)} */")
            if (values == values[0]).all():
                lines.append(f"{INDENT}memset({target}, {values[0]}, {buffer.size});")
            else:
                table = Table(f"initial_{len(self._program.tables)}", values)
                self._program.tables.append(table)
                lines.append(f"{INDENT}memcpy({target}, {table.name}, {buffer.size});")
        return self._function(f"void {self._name}_reset({self._ram_parameter})", [*self._alignment_checks(), *lines])

    def _alignment_checks(self) -> list[str]:
        """Return assertions that the caller's memory is aligned."""
        blocks = [f"ram[{i}]" for i in range(len(self._program.plan.memories))] if self._is_split else ["ram"]
        alignment = f"{self._name.upper()}_RAM_ALIGNMENT"
        return [f"{INDENT}assert((uintptr_t){block} % {alignment} == 0);" for block in blocks]

    def _accessor(self, tensor: TensorInterface) -> str:
        address = self._address(tensor.place, f"{tensor.element} *")
        if isinstance(tensor.place.base, Table):  # the output is a constant of the model
            address = f"({tensor.element} *)({address})"
        return self._function(tensor.accessor(self._name, self._ram_parameter), [f"{INDENT}return {address};"])
