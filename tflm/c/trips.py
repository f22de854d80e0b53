"""Count the trips of a kernel's loops in a call, from its numeric arguments.

A kernel's function is reduced to the statements that decide how often its loops run: those that compute loop bounds and
conditions from numbers and constant tables. These become a Python function that counts. A loop whose trips are all the
same is entered once, with the number of its trips as a factor. Code that depends on data in RAM is counted once: both
branches of such a condition, and one trip of such a loop. Where axes in RAM decide how often a loop runs, all are taken
to be the last one.
"""

from __future__ import annotations

import ast
import builtins
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import FunctionType
from typing import Any

from tflm.c.program import KernelCall, Pointer, Table
from tflm.c.scopes import MAX_NODES, names_in, nodes_in
from tflm.c.syntax import body_of, parameters_of, tree_of
from tflm.compiler.intrinsics import copy_bytes, move_bytes
from tflm.compiler.language import Intrinsic, Kernel, record_of

CALL = "call"
"""Name of the count of the kernel's calls."""

LONGEST_TABLE = 4096
"""Maximum number of elements of a constant table whose values are used."""

MAX_CALLS = 1 << 12
"""Number of calls whose counts are kept. Most calls of a program, and of its other plans, have the same arguments."""

Counter = Callable[..., None]


def trips_of(call: KernelCall) -> dict[str, int]:
    """Return how often each loop and branch of a kernel runs in a call, by function and number in it."""
    kernel, operands = call
    known = _known_arrays(kernel, operands)
    counting = _counting(kernel, frozenset(known))
    values = {name: known.get(name) if isinstance(value, Pointer) else value for name, value in operands.items()}
    return {CALL: 1, **dict(zip(counting.names, _counts(counting, counting.arguments(values))))}


def _known_arrays(kernel: Kernel, operands: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of the arrays that decide how often loops run: constant tables, and axes in RAM.

    The values of others are not read: these may be data of the model, and offsets that follow from an assumed axis may
    lie outside of them.
    """
    if not _counting(kernel, frozenset()).uncertain_loops:
        return {}
    tables = {name: found for name, found in _tables(operands).items() if found is not None}
    arrays = {**tables, **dict.fromkeys(_axes(kernel, operands, frozenset(tables)), _LAST)}
    return {name: arrays[name] for name in _deciding(kernel, frozenset(arrays))}


class _LastAxis:
    """The values that are taken for axes in RAM."""

    def __getitem__(self, index: int) -> int:
        return -1


_LAST = _LastAxis()


def _axes(kernel: Kernel, operands: Mapping[str, Any], known: frozenset[str]) -> list[str]:
    """Return the arrays in RAM whose values decide how often loops run."""
    loops = _counting(kernel, known).uncertain_loops
    arrays = {name for name, value in operands.items() if isinstance(value, Pointer)} - known if loops else ()
    return [
        name
        for name in arrays
        if kernel.parameters[name].dtype == "int32" and _counting(kernel, known | {name}).uncertain_loops < loops
    ]


@functools.cache
def _deciding(kernel: Kernel, known: frozenset[str]) -> frozenset[str]:
    """Return the known arrays without which the trips of some loop depend on data."""
    loops = _counting(kernel, known).uncertain_loops
    return frozenset(name for name in known if _counting(kernel, known - {name}).uncertain_loops > loops)


def _tables(operands: Mapping[str, Any]) -> dict[str, tuple[int, ...] | None]:
    """Return the values of the constant tables among a kernel's operands."""
    return {name: _values(value) for name, value in operands.items() if isinstance(value, Pointer)}


def _values(pointer: Pointer) -> tuple[int, ...] | None:
    base, offset = pointer
    if not isinstance(base, Table) or base.values.size > LONGEST_TABLE or base.values.dtype.kind not in "iu":
        return None
    return tuple(base.values.reshape(-1)[offset // base.values.itemsize :].tolist())


@functools.cache
def _counting(kernel: Kernel, known: frozenset[str]) -> _Counting:
    return _Counting(kernel, known)


@functools.lru_cache(MAX_CALLS)
def _counts(counting: _Counting, arguments: tuple[Any, ...]) -> tuple[int, ...]:
    """Return the counts of a call."""
    counts = [0] * len(counting.names)
    counting.root.counter(counts, 1, *arguments)
    return tuple(counts)


class _Counting:
    """The counting functions of a kernel.

    Args:
        kernel: the kernel.
        known: the parameters that point to constant tables.

    Attributes:
        names: names of the counts.
        root: the counting function of the kernel's function.
        uncertain_loops: number of loops whose trips depend on data.
    """

    def __init__(self, kernel: Kernel, known: frozenset[str]):
        self.names: list[str] = []
        self.uncertain_loops = 0
        self._functions: dict[tuple[Any, ...], _Function] = {}
        function = kernel.function
        self._called = kernel.functions
        self._records = {name: record_of(function, name) for name in parameters_of(tree_of(function))}
        kinds: dict[str, Any] = {}
        for name, record in self._records.items():
            if name in kernel.functions:
                kinds[name] = kernel.functions[name]
            elif record is not None:
                fields = (field for field in record._fields if _is_known(kernel, f"{name}.{field}", known))
                kinds[name] = frozenset(fields)
            else:
                kinds[name] = _is_known(kernel, name, known)
        self.root = self.function(function, kinds)

    def function(self, function: FunctionType, kinds: Mapping[str, Any]) -> _Function:
        """Return the counting function for a function, given which of its parameters are known."""
        key = (function, *kinds.items())
        if key not in self._functions:
            made = self._functions[key] = _Function(function, dict(kinds), self)
            made.write()
        return self._functions[key]

    def number(self, name: str) -> int:
        """Return the index of a count."""
        if name not in self.names:
            self.names.append(name)
        return self.names.index(name)

    def arguments(self, values: Mapping[str, Any]) -> tuple[Any, ...]:
        """Return the arguments that a call's counts depend on."""
        return tuple(self._argument(name, values) for name in self.root.relevant)

    def _argument(self, name: str, values: Mapping[str, Any]) -> Any:
        if name in self._called:
            return self._called[name]
        record = self._records[name]
        return values[name] if record is None else record._make(values.get(f"{name}.{each}") for each in record._fields)


def _is_known(kernel: Kernel, name: str, known: frozenset[str]) -> bool:
    """Whether a parameter is a number, or points to a constant table."""
    kind = kernel.parameters[name]
    return name in known if kind.is_pointer else kind.dtype == "int64"


class _Function:
    """The counting function of a function.

    Args:
        function: a function of the kernel language.
        kinds: for each parameter: a function, the known fields of a record, or whether it is known.
        counting: the counting functions of the kernel.

    Attributes:
        relevant: the parameters that counts depend on.
        counts: whether it counts anything.
    """

    def __init__(self, function: FunctionType, kinds: dict[str, Any], counting: _Counting):
        self._function, self._kinds, self._counting = function, kinds, counting
        self._tree = tree_of(function)
        self._body = body_of(self._tree)
        self._ordinals = _ordinals(self._tree)
        self._lines: list[str] = []
        self._globals: dict[str, Any] = dict(function.__globals__)
        self._depth = 1
        self._depends_on_data = False
        self.relevant: list[str] = []
        self.counts = False
        self.counter: Counter = _no_count

    def write(self) -> None:
        """Write the function, and compile it."""
        self._unknown = self._unknown_names()
        self._control = self._control_names()
        self._block(self._body, "w")
        self.relevant = [name for name in parameters_of(self._tree) if name in self._control]
        if not self.counts:
            return
        parameters = ", ".join(["counts", "w", *self.relevant])
        text = "\n".join([f"def counter({parameters}):", *self._lines, "    return"])
        exec(compile(text, f"<trips of {self._function.__qualname__}>", "exec"), self._globals)
        self.counter = self._globals["counter"]

    # --- Known values ---------------------------------------------------------------------------------------------

    def _unknown_names(self) -> set[str]:
        """Return the variables that depend on data, or are pointers into RAM."""
        unknown = {name for name, kind in self._kinds.items() if kind is False}
        while True:
            before = len(unknown)
            self._spread(self._body, unknown, is_unknown=False)
            if len(unknown) == before:
                return unknown

    def _spread(self, statements: Iterable[ast.stmt], unknown: set[str], *, is_unknown: bool) -> None:
        for node in statements:
            for targets, value in _assigned(node):
                if is_unknown or not self._is_known(value, unknown):
                    unknown |= _names(targets)
            inside = is_unknown
            if isinstance(node, (ast.For, ast.While, ast.If)):
                inside = inside or not self._is_known(_decider(node), unknown)
                if isinstance(node, ast.For) and inside:
                    unknown |= _names(node.target)
                self._spread([*node.body, *node.orelse], unknown, is_unknown=inside)

    def _is_known(self, node: ast.expr | None, unknown: set[str] | None = None) -> bool:
        """Whether the value of an expression is known while loops are counted."""
        unknown = self._unknown if unknown is None else unknown
        if node is None:
            return True
        fields, functions = _fields_and_functions(node)
        return (
            unknown.isdisjoint(names_in(node))
            and all(self._is_known_field(*field) for field in fields)
            and all(map(self._can_be_called, functions))
        )

    def _is_known_field(self, record: str, field: str) -> bool:
        fields = self._kinds.get(record)
        return not isinstance(fields, frozenset) or field in fields

    def _can_be_called(self, name: str) -> bool:
        return isinstance(self._kinds.get(name), bool) or not isinstance(self._named(name), Intrinsic)

    def _named(self, name: str) -> Any:
        """Return the value that a name in a function refers to."""
        kind = self._kinds.get(name)
        if isinstance(kind, FunctionType):
            return kind
        return self._function.__globals__.get(name, getattr(builtins, name, None))

    def _control_names(self) -> set[str]:
        """Return the variables that decide how often something runs."""
        names: set[str] = set()
        assigned: list[tuple[ast.expr, ast.expr]] = []
        for node in nodes_in(self._tree):
            decides = _decider(node)
            if decides is not None and self._is_known(decides):
                names |= _names(decides)
            if isinstance(node, ast.Call):
                names |= self._names_for(node)
            assigned += [(node.target, node.iter)] if isinstance(node, ast.For) else _assigned(node)
        sources = [(_names(targets), _names(value)) for targets, value in assigned if self._is_known(value)]
        while True:
            before = len(names)
            for targets, values in sources:
                if not names.isdisjoint(targets):
                    names |= values
            if len(names) == before:
                return names

    def _names_for(self, node: ast.Call) -> set[str]:
        """Return the names that a counting call depends on."""
        if self._moves_bytes(node):
            return _names(node.args[2]) if self._is_known(node.args[2]) else set()
        found = self._called(node)
        if found is None:
            return set()
        return set().union(*(_names(argument) for argument in self._arguments(node, found)))

    def _moves_bytes(self, node: ast.Call) -> bool:
        return isinstance(node.func, ast.Name) and self._named(node.func.id) in (copy_bytes, move_bytes)

    def _called(self, node: ast.Call) -> _Function | None:
        """Return the counting function of a called function; None if it counts nothing."""
        callee = self._named(node.func.id) if isinstance(node.func, ast.Name) else None
        if not isinstance(callee, FunctionType) or not _is_of_kernels(callee):
            return None
        parameters = parameters_of(tree_of(callee))
        kinds = {name: self._kind(argument) for name, argument in zip(parameters, node.args)}
        found = self._counting.function(callee, kinds)
        return found if found.counts else None

    def _kind(self, argument: ast.expr) -> Any:
        if isinstance(argument, ast.Name):
            kind = self._kinds.get(argument.id)
            if isinstance(kind, (FunctionType, frozenset)):
                return kind
            named = self._named(argument.id)
            if isinstance(named, FunctionType):
                return named
        return self._is_known(argument)

    @staticmethod
    def _arguments(node: ast.Call, called: _Function) -> list[ast.expr]:
        given = dict(zip(parameters_of(called._tree), node.args))
        return [given[name] for name in called.relevant]

    # --- Text ------------------------------------------------------------------------------------------------------

    def _line(self, text: str) -> None:
        self._lines.append("    " * self._depth + text)

    def _count(self, node: ast.AST, kind: str, weight: str) -> None:
        self.counts = True
        name = f"{self._function.__name__} {kind} {self._ordinals[id(node)]}"
        self._line(f"counts[{self._counting.number(name)}] += {weight}")

    def _block(self, statements: Sequence[ast.stmt], weight: str) -> None:
        for node in statements:
            self._calls_in(node, weight)
            if isinstance(node, ast.For):
                self._for(node, weight)
            elif isinstance(node, ast.If):
                self._if(node, weight)
            elif isinstance(node, ast.While):
                self._count(node, "while", weight)
                self._uncertain(node.body, weight)
            elif isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign)):
                self._assign(node)
            elif isinstance(node, _LEAVING) and not self._depends_on_data:
                self._line("return" if isinstance(node, ast.Return) else ast.unparse(node))

    def _uncertain(self, statements: Sequence[ast.stmt], weight: str) -> None:
        """Write the counts of statements that run depending on data. They count once, and never leave a loop or
        function."""
        before, self._depends_on_data = self._depends_on_data, True
        self._block(statements, weight)
        self._depends_on_data = before

    def _calls_in(self, node: ast.stmt, weight: str) -> None:
        """Add the counts of the calls in a statement, except in its blocks."""
        for part in nodes_in(_decider(node) or node):
            if not isinstance(part, ast.Call):
                continue
            if self._moves_bytes(part):
                if self._is_known(part.args[2]):
                    self._count(part, "bytes", f"{weight} * ({ast.unparse(part.args[2])})")
            elif called := self._called(part):
                self._call(part, called, weight)

    def _call(self, node: ast.Call, called: _Function, weight: str) -> None:
        name = f"_counter_{len(self._globals)}"
        self._globals[name] = called.counter
        given = [ast.unparse(argument) for argument in self._arguments(node, called)]
        self.counts = True
        self._line(f"{name}({', '.join(['counts', weight, *given])})")

    def _assign(self, node: ast.Assign | ast.AnnAssign | ast.AugAssign) -> None:
        pairs = [(targets, value) for targets, value in _assigned(node) if self._is_kept(targets, value)]
        if isinstance(node, ast.AugAssign):
            if pairs:
                self._line(ast.unparse(node))
        elif len(pairs) == 1 and isinstance(pairs[0][0], ast.Tuple):
            self._line(f"{ast.unparse(pairs[0][0])} = {ast.unparse(pairs[0][1])}")
        elif pairs:
            left = ", ".join(ast.unparse(target) for target, _ in pairs)
            self._line(f"{left} = {', '.join(ast.unparse(value) for _, value in pairs)}")

    def _is_kept(self, targets: ast.expr, value: ast.expr) -> bool:
        return not _names(targets).isdisjoint(self._control - self._unknown) and self._is_known(value)

    def _for(self, node: ast.For, weight: str) -> None:
        if not self._is_known(node.iter):
            self._counting.uncertain_loops += 1
            self._count(node, "for", weight)
            self._uncertain(node.body, weight)
            return
        if self._is_same_each_time(node):
            times = f"_times_{node.lineno}"
            self._line(f"{times} = {weight} * len({ast.unparse(node.iter)})")
            self._line(f"if {times}:")
            weight = times
        else:
            self._line(f"for {ast.unparse(node.target)} in {ast.unparse(node.iter)}:")
        self._depth += 1
        self._count(node, "for", weight)
        self._block(node.body, weight)
        self._depth -= 1

    def _is_same_each_time(self, node: ast.For) -> bool:
        """Whether all trips of a loop have the same counts: no control variable depends on an earlier trip."""
        parts = nodes_in(node)
        if any(isinstance(part, _LEAVING) for part in parts):
            return False
        written = {name for part in parts for targets, _ in _assigned(part) for name in _names(targets)}
        written |= _names(node.target)
        exposed = self._exposed(node.body, set())
        return not exposed & written & (self._control - self._unknown)

    def _exposed(self, statements: Sequence[ast.stmt], assigned: set[str]) -> set[str]:
        """Return the control variables that may be read before they are assigned."""
        exposed: set[str] = set()
        for node in statements:
            if isinstance(node, (ast.For, ast.While, ast.If)):
                decides = _decider(node)
                if decides is not None and self._is_known(decides):
                    exposed |= _names(decides) - assigned
                inner = assigned | (_names(node.target) if isinstance(node, ast.For) else set())
                for block in (node.body, node.orelse):
                    exposed |= self._exposed(block, set(inner))
                continue
            for part in nodes_in(node):
                if isinstance(part, ast.Call):
                    exposed |= self._names_for(part) - assigned
            for targets, value in _assigned(node):
                if self._is_kept(targets, value):
                    exposed |= _names(value) - assigned
                    exposed |= _names(targets) - assigned if isinstance(node, ast.AugAssign) else set()
            for targets, _ in _assigned(node):
                assigned |= _names(targets)
        return exposed

    def _if(self, node: ast.If, weight: str) -> None:
        if not self._is_known(node.test):
            self._uncertain([*node.body, *node.orelse], weight)
            return
        self._line(f"if {ast.unparse(node.test)}:")
        for kind, block in (("then", node.body), ("else", node.orelse)):
            if kind == "else" and not block:
                continue
            if kind == "else":
                self._line("else:")
            self._depth += 1
            self._count(node, kind, weight)
            self._block(block, weight)
            self._depth -= 1


_LEAVING = (ast.Continue, ast.Break, ast.Return)


def _no_count(counts: list[int], weight: int, *arguments: Any) -> None:
    """The counting function of functions without loops: count nothing."""


def _is_of_kernels(function: FunctionType) -> bool:
    """Whether a function is written in the kernel language, except casts."""
    return function.__module__.startswith(("tflm.c.kernels", "tflm.delegates.compiled")) and not (
        function.__module__.endswith(".casts")
    )


def _decider(node: ast.AST) -> ast.expr | None:
    """Return the expression that decides how often a statement's blocks run; None for other statements."""
    if isinstance(node, ast.For):
        return node.iter
    return node.test if isinstance(node, (ast.While, ast.If)) else None


@functools.cache
def _ordinals(tree: ast.FunctionDef) -> dict[int, int]:
    """Return the numbers of the nodes of a function that can have a count, by id."""
    counted = (node for node in nodes_in(tree) if isinstance(node, (ast.For, ast.While, ast.If, ast.Call)))
    return {id(node): number for number, node in enumerate(counted)}


@functools.lru_cache(MAX_NODES)
def _fields_and_functions(node: ast.expr) -> tuple[list[tuple[str, str]], list[str]]:
    """Return the fields of variables in an expression, as variable and field, and the names of called functions."""
    parts = nodes_in(node)
    attributes = (part for part in parts if isinstance(part, ast.Attribute))
    functions = (part.func for part in parts if isinstance(part, ast.Call))
    return (
        [(part.value.id, part.attr) for part in attributes if isinstance(part.value, ast.Name)],
        [function.id for function in functions if isinstance(function, ast.Name)],
    )


def _names(node: ast.AST) -> set[str]:
    return set(names_in(node))


def _assigned(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Yield assigned variables with their values; a tuple of variables if one value is unpacked."""
    pairs: list[tuple[ast.expr, ast.expr]] = []
    if isinstance(node, ast.Assign):
        pairs = [(target, node.value) for target in node.targets]
    elif isinstance(node, (ast.AnnAssign, ast.AugAssign)) and node.value is not None:
        pairs = [(node.target, node.value)]
    for target, value in pairs:
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
            yield from (pair for pair in zip(target.elts, value.elts) if isinstance(pair[0], ast.Name))
        elif isinstance(target, (ast.Name, ast.Tuple)):
            yield target, value
