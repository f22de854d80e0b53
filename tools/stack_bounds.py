"""Compute stack bounds of a linked firmware from its disassembly: the deepest chain of calls of each operator.

A function's frame is all that its instructions take from the stack pointer. A call through a register goes to whatever
it may: where it was read at an offset, to the functions at that place in any virtual table; to TFLM's callbacks of a
context; and to the functions whose address the operator takes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from linked_sections import Key, Link, reached

INSTRUCTION = re.compile(r"^\s*([0-9a-f]+):\t(\S+)\s*([^;@]*)(.*)$")
WORD = re.compile(r"^\s*([0-9a-f]+):\s*\.word\s+0x([0-9a-f]+)", re.MULTILINE)
FUNCTION = re.compile(r"^([0-9a-f]+) <(.*)>:$")
LITERAL = re.compile(r"\(([0-9a-f]+) <|@ ([0-9a-f]+) <")
CALLS = re.compile(r"^(bl|blx|b|b\w\w)(\.[nw])?$")
RUNS_OPERATORS = "Subgraph"
"""Of TFLM's interpreter, the functions that call what operators register have this in their names."""
PARSES_OPERATORS = "PrepareNodeAndRegistrationDataFromFlatbuffer"
MAIN_FRAME = 80
"""What the main.cc of `tflm export` takes of the stack itself, at most: 80 bytes with one operator, 64 with two and 32
with more, on M0+, M4 and M55 alike, compiled with -Os."""
NESTED = 4
"""Calls through a register inside each other that are followed."""


@dataclass
class Function:
    """A function of the disassembly: bytes that it takes of the stack, what it calls, where from it calls by register.

    Offsets are those at which the register was read; None where it was not read just before.
    """

    name: str
    frame: int = 0
    calls: set[int] = field(default_factory=set)
    offsets: set[int | None] = field(default_factory=set)


def functions_of(disassembly: str) -> dict[int, Function]:
    """Every function, by address."""
    words = {
        int(a, 16): int(w, 16) for a, w in re.findall(r"^\s*([0-9a-f]+):.*\.word\s+0x([0-9a-f]+)", disassembly, re.M)
    }
    found: dict[int, Function] = {}
    function, constants, read = Function(""), dict[str, int](), dict[str, int]()
    for line in disassembly.splitlines():
        if named := FUNCTION.match(line):
            function = found.setdefault(int(named[1], 16), Function(named[2]))
            constants, read = {}, {}
        elif match := INSTRUCTION.match(line):
            _, name, operands, rest = match.groups()
            function.frame += _taken(name, operands, constants)
            _follow(function, name, operands, read)
            _remember(name, operands, rest, words, constants, read)
    for address, each in found.items():
        each.calls.discard(address)
    return found


def _taken(name: str, operands: str, constants: Mapping[str, int]) -> int:
    """Bytes that an instruction takes from the stack pointer."""
    if name in {"push", "push.w", "vpush"} or (name.startswith("stmdb") and operands.startswith("sp!")):
        return _registers(operands[operands.index("{") + 1 : operands.index("}")])
    if match := re.match(r"^(?:sp, )?sp, #(\d+)|^sp, #(\d+)", operands):
        return int(match[1] or match[2]) if name.startswith("sub") else 0
    if match := re.search(r"\[sp, #-(\d+)\]!", operands):
        return int(match[1])
    if name.startswith("add") and (match := re.match(r"^sp, (?:sp, )?(r\d+)", operands)):
        taken = -constants.get(match[1], 0) % (1 << 32)
        return taken if taken < 1 << 31 else 0
    return 0


def _registers(listed: str) -> int:
    total = 0
    for part in listed.split(","):
        first, _, last = part.strip().partition("-")
        count = int(last[1:]) - int(first[1:]) + 1 if last else 1
        total += count * (8 if first.startswith("d") else 4)
    return total


def _follow(function: Function, name: str, operands: str, read: Mapping[str, int]) -> None:
    if CALLS.match(name) and (match := re.match(r"^([0-9a-f]+) <", operands)):
        if "+0x" not in operands:  # else it is a jump inside
            function.calls.add(int(match[1], 16))
    elif name in {"blx", "bx"} and operands.strip() != "lr":
        function.offsets.add(read.get(operands.strip()))


def _remember(
    name: str, operands: str, rest: str, words: Mapping[int, int], constants: dict[str, int], read: dict[str, int]
) -> None:
    if not name.startswith("ldr"):
        return
    register, _, place = operands.partition(", ")
    if literal := LITERAL.search(rest):
        constants[register] = words.get(int(literal[1] or literal[2], 16), 0)
    offset = re.match(r"^\[r\w+(?:, #(\d+))?\]", place)
    if offset:
        read[register] = int(offset[1] or 0)
    else:
        read.pop(register, None)


class Depths:
    """How deep functions go."""

    def __init__(self, functions: Mapping[int, Function], tables: Iterable[tuple[int, ...]]) -> None:
        """`tables` are virtual tables: the functions at each place."""
        self.functions = functions
        self.by_place: dict[int, set[int]] = {}
        for table in tables:
            for place, address in enumerate(table):
                if RUNS_OPERATORS not in self._name(address):
                    self.by_place.setdefault(4 * place, set()).add(address)

    def _name(self, address: int) -> str:
        return self.functions[address].name if address in self.functions else ""

    def of(self, start: int, pointers: frozenset[int] = frozenset()) -> int:
        """Bytes from a function's entry down, where calls by register may go to these, too."""
        known: dict[tuple[int, int], int] = {}

        def depth(address: int, nested: int) -> int:
            function = self.functions.get(address)
            if function is None:
                return 0
            if (address, nested) not in known:
                known[address, nested] = 0  # a recursion is not followed
                deepest = max((depth(called, nested) for called in function.calls), default=0)
                if nested:
                    may = {each for offset in function.offsets for each in self._may(offset, pointers)}
                    deepest = max([deepest, *(depth(each, nested - 1) for each in may)])
                known[address, nested] = function.frame + deepest
            return known[address, nested]

        return depth(start, NESTED)

    def followed(self, start: int) -> None:
        """Require that direct calls are all that a function and what it calls make, and that none calls itself.

        Raises:
            ValueError: one calls through a register, or itself; the message names it.
        """
        done: set[int] = set()

        def visit(address: int, callers: tuple[int, ...]) -> None:
            function = self.functions.get(address)
            if function is None or address in done:
                return
            if function.offsets or function.calls & {*callers, address}:
                raise ValueError(f"{function.name} calls through a register, or a function that called it")
            for called in function.calls:
                visit(called, (*callers, address))
            done.add(address)

        visit(start, ())

    def _may(self, offset: int | None, pointers: frozenset[int]) -> Iterable[int]:
        yield from pointers
        if offset is not None:
            yield from self.by_place.get(offset, ())

    def down_to(self, start: int, part: str) -> int:
        """Bytes of the deepest chain of direct calls that ends in a function with this in its name, itself included."""
        known: dict[int, int] = {}

        def depth(address: int) -> int:
            function = self.functions.get(address)
            if function is None:
                return 0
            if address not in known:
                known[address] = 0
                below = max((depth(called) for called in function.calls), default=0)
                known[address] = function.frame + below if below or part in function.name else 0
            return known[address]

        return depth(start)


def stack_bounds(link: Link, disassembly: str, base: set[Key], roots: list[Key]) -> dict[str, object]:
    """The bound without operators, and that of each, whose root is the section that adds it."""
    functions = functions_of(disassembly)
    start = next(address for address, function in functions.items() if function.name == "reset")
    main = next(function for function in functions.values() if function.name == "main")
    main.frame = max(main.frame, MAIN_FRAME)
    tables = [_table(link, key) for key in link.sections if key in base and key.section.startswith(".rodata._ZTV")]
    depths = Depths(functions, tables)
    callbacks = frozenset(
        address
        for key in base
        if key in link.sections and key.section.startswith(".text")
        for address in _taken_by(link, key, functions)
    )
    alone = depths.of(start, callbacks)
    calls, parses = depths.down_to(start, RUNS_OPERATORS), depths.down_to(start, PARSES_OPERATORS)
    bounds = []
    for root in roots:
        registered = _registered(link, root, functions)
        taken = {a for key in reached(link, {root}) - base for a in _taken_by(link, key, functions)} - registered
        pointers = frozenset(taken) | callbacks
        deepest = max((calls + depths.of(each, pointers) for each in registered), default=0)
        parsed = max((parses + depths.of(each, callbacks) for each in _taken_by(link, root, functions)), default=0)
        bounds.append(max(alone, deepest, parsed))
    return {"base": alone, "operators": bounds}


def _table(link: Link, key: Key) -> tuple[int, ...]:
    """The functions of a virtual table, in its order, after its two words of type and offset."""
    return tuple(link.sections[target].address for _, target in sorted(link.sections[key].words.items()))


def _taken_by(link: Link, key: Key, functions: Mapping[int, Function]) -> set[int]:
    addresses = {link.sections[target].address for target in link.sections[key].words.values()}
    return addresses & functions.keys()


def _registered(link: Link, root: Key, functions: Mapping[int, Function]) -> set[int]:
    """What an operator registers: addresses taken by what the root calls, and by variables that this refers to."""
    found = set()
    for called in link.sections[root].refers:
        if "Register" in called.section:
            found |= _taken_by(link, called, functions)
            for target in link.sections[called].refers:
                if target.section.startswith((".data", ".rodata")):
                    found |= _taken_by(link, target, functions)
    return found
