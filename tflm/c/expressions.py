"""Translate expressions of the kernel language to C."""

from __future__ import annotations

import ast
import functools
import itertools
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from types import FunctionType
from typing import Any

import numpy as np

from tflm.c import terms
from tflm.c.instances import (
    RESULTS,
    Instance,
    Instances,
    callees_of,
    identifier,
    parameter_value,
    pointer_type,
    promoted,
    return_type,
    sets_results,
)
from tflm.c.syntax import TranslationError, body_of, global_of, parameters_of, tree_of
from tflm.c.terms import CONDITIONAL, PRIMARY, SUM, UNARY, Term
from tflm.c.values import (
    C_TYPES,
    INT32,
    INT64,
    INTEGER_BITS,
    Callee,
    Constant,
    Number,
    Pointer,
    Range,
    Record,
    Value,
    boolean,
    range_of,
)
from tflm.compiler.language import BuildConstant, Intrinsic
from tflm.delegates.compiled import casts

INDEX_OPERATIONS = (ast.Add, ast.Sub, ast.Mult, ast.FloorDiv, ast.Mod)
"""Operations whose result is an index if and only if the operands are."""

TRANSPARENT = (casts.as_int64, min, max)
"""Functions whose arguments are indices if the result is."""

MOVES: Mapping[str, str] = {"copy_bytes": "memcpy", "move_bytes": "memmove"}
"""The C functions of intrinsics that take two addresses and a number of bytes."""

SOFT, HARD, OTHER = "<soft>", "<hard>", "<other>"
"""How a variable is read: in comparisons, as an index, or otherwise. The name of another variable means that the value
flows into that variable."""


@functools.cache
def index_variables(function: FunctionType, callees: frozenset[tuple[str, FunctionType]]) -> frozenset[str]:
    """Return the variables and parameters of a function that are only used as indices.

    Args:
        callees: the functions that are passed for its parameters.
    """
    tree = tree_of(function)
    reads = _Reads(function, dict(callees))
    for statement in body_of(tree):
        reads.visit(statement)
    candidates = {*reads.assigned, *parameters_of(tree)}
    while True:
        kept = {name for name in candidates if all(_may(read, candidates) for read in reads.uses[name])}
        confirmed = {name for name in kept if HARD in reads.uses[name]}
        grown = True
        while grown:
            more = {name for name in kept - confirmed if reads.uses[name] & confirmed}
            confirmed |= more
            grown = bool(more)
        if confirmed == candidates:
            return frozenset(confirmed)
        candidates = confirmed


def _may(read: str, candidates: set[str]) -> bool:
    return read in (SOFT, HARD) or read in candidates


class _Reads(ast.NodeVisitor):
    """Collects how each variable is read."""

    def __init__(self, function: FunctionType, callees: Mapping[str, FunctionType]):
        self.function, self.callees = function, callees
        self.locals = {*function.__code__.co_varnames, *parameters_of(tree_of(function))}
        self.uses: dict[str, set[str]] = defaultdict(set)
        self.assigned: set[str] = set()

    def read(self, node: ast.expr, how: str) -> None:
        """Record how an expression is read."""
        if isinstance(node, ast.Name):
            self.uses[node.id].add(how)
        elif isinstance(node, ast.BinOp):
            inner = how if isinstance(node.op, INDEX_OPERATIONS) else OTHER
            self.read(node.left, inner)
            self.read(node.right, inner)
        elif isinstance(node, ast.UnaryOp):
            self.read(node.operand, SOFT if isinstance(node.op, ast.Not) else how)
        elif isinstance(node, ast.IfExp):
            self.read(node.test, SOFT)
            self.read(node.body, how)
            self.read(node.orelse, how)
        elif isinstance(node, ast.Compare):
            for side in (node.left, *node.comparators):
                self.read(side, SOFT)
        elif isinstance(node, ast.BoolOp):
            for value in node.values:
                self.read(value, SOFT)
        elif isinstance(node, ast.Subscript):
            self.read(node.value, OTHER)
            self.read(node.slice, HARD)
        elif isinstance(node, ast.Call):
            self._read_call(node, how)

    def _read_call(self, node: ast.Call, how: str) -> None:
        callee = self._callee(node.func)
        if callee in TRANSPARENT:
            for argument in node.args:
                self.read(argument, how)
        elif callee is range or (
            isinstance(callee, Intrinsic) and (callee.name in MOVES or callee.name.endswith(("_at", "_from")))
        ):
            for argument in node.args:
                self.read(argument, HARD)
        elif isinstance(callee, FunctionType):
            names = parameters_of(tree_of(callee))
            given = dict(zip(names, node.args))
            functions = {name: self._callee(value) for name, value in given.items()}
            known = frozenset((name, value) for name, value in functions.items() if isinstance(value, FunctionType))
            indices = index_variables(callee, known)
            for name, value in given.items():
                self.read(value, HARD if name in indices else OTHER)
        else:
            for argument in node.args:
                self.read(argument, OTHER)

    def _callee(self, node: ast.expr) -> object:
        if not isinstance(node, ast.Name):
            return None
        if node.id in self.callees:
            return self.callees[node.id]
        return None if node.id in self.locals else global_of(self.function, node.id)

    # Statements.

    def visit_Assign(self, node: ast.Assign) -> None:
        (target,) = node.targets
        pairs = [(target, node.value)]
        if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
            pairs = list(zip(target.elts, node.value.elts))
        for place, value in pairs:
            self._assign(place, value)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self._assign(node.target, node.value)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        how = node.target.id if isinstance(node.target, ast.Name) and isinstance(node.op, INDEX_OPERATIONS) else OTHER
        if isinstance(node.target, ast.Name) and how == OTHER:
            self.uses[node.target.id].add(OTHER)
        if isinstance(node.target, ast.Subscript):
            self.read(node.target, OTHER)
        self.read(node.value, how)

    def _assign(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, ast.Name):
            self.assigned.add(target.id)
            self.read(value, target.id)
        else:
            self.read(target, OTHER)
            self.read(value, OTHER)

    def visit_For(self, node: ast.For) -> None:
        assert isinstance(node.target, ast.Name)
        self.assigned.add(node.target.id)
        self.read(node.iter, OTHER)
        for statement in node.body:
            self.visit(statement)

    def visit_If(self, node: ast.If) -> None:
        self.read(node.test, SOFT)
        for statement in (*node.body, *node.orelse):
            self.visit(statement)

    def visit_While(self, node: ast.While) -> None:
        self.read(node.test, SOFT)
        for statement in node.body:
            self.visit(statement)

    def visit_Expr(self, node: ast.Expr) -> None:
        self.read(node.value, OTHER)

    def visit_Return(self, node: ast.Return) -> None:
        if node.value is not None:
            self.read(node.value, OTHER)


CASTS: dict[Any, str] = {
    casts.as_int16: "int16",
    casts.as_int32: "int32",
    casts.as_int64: "int64",
    casts.as_float32: "float32",
    casts.as_float64: "float64",
    casts.as_uint64: "uint64",
    float: "float64",
    **{getattr(np, dtype): dtype for dtype in (*INTEGER_BITS, "float32", "float64")},
}
"""Casting functions, and the types that they cast to."""

MATH: dict[Any, str] = {
    np.ceil: "ceil",
    np.cos: "cos",
    np.exp: "exp",
    np.expm1: "expm1",
    np.floor: "floor",
    np.log: "log",
    np.rint: "rint",
    np.sin: "sin",
    np.sqrt: "sqrt",
    np.tanh: "tanh",
    np.trunc: "trunc",
    **{getattr(math, name): name for name in ("ceil", "cos", "exp", "floor", "log", "sin", "sqrt", "trunc")},
}
"""Functions of one float, and their names in math.h."""

MATH_OF_TWO: dict[Any, str] = {np.copysign: "copysign", np.fmod: "fmod"}
"""Functions of two floats, and their names in math.h."""


class ExpressionWriter:
    """Writes the expressions of a function instance.

    Attributes:
        narrow: whether integers are computed with C's types; see `tflm.compiler.language`.
        indices: the variables that are only used as indices.
        variables: type and range of each variable, as far as known.
        loops: the loop variables of the loops around the expression.
    """

    def __init__(self, instance: Instance, instances: Instances):
        self.instance, self.instances = instance, instances
        self.narrow = bool(instance.function.__globals__.get("NARROW_INTEGERS"))
        self.indices = index_variables(instance.function, callees_of(instance.arguments))
        self.variables: dict[str, Value] = dict(instance.arguments)
        self.loops: list[str] = []

    # --- Variables -------------------------------------------------------------------------------------------

    def _c_type(self, name: str) -> str:
        """Return the C type of a numeric variable."""
        if name in self.loops or name in self.indices:
            return "int32_t"
        value = self.variables[name]
        assert isinstance(value, Number)
        return value.c_type if name in self.instance.arguments else promoted(value.c_type)

    def _declaration(self, name: str) -> str:
        value = self.variables.get(name)
        if isinstance(value, Number):
            return f"{self._c_type(name)} {identifier(name)}"
        assert isinstance(value, Pointer)
        return self._variable_type(value) + identifier(name)

    def _variable_type(self, value: Value) -> str:
        """Return the type of a new variable, followed by a space if the name needs one."""
        if isinstance(value, Number):
            return value.c_type + " "
        assert isinstance(value, Pointer)
        return pointer_type(value, self.instance.written)

    def _variable(self, name: str) -> Term:
        value = self.variables[name]
        if isinstance(value, Number):
            return Term(identifier(name), PRIMARY, value, self._c_type(name))
        return Term(identifier(name), PRIMARY, value, "")

    # --- Expressions -----------------------------------------------------------------------------------------

    def term(self, node: ast.expr, *, as_index: bool = False) -> Term:
        """An expression in C.

        Args:
            as_index: the expression is used as an index, which C computes in 32 bits.
        """
        found = self._term(node, as_index)
        if as_index and isinstance(found.value, Number) and found.value.is_integer:
            found = terms.c_cast(found, "int32_t")
            if not found.within(INT32):
                found = replace(found, value=Number("int64", INT32))
        return found

    def _term(self, node: ast.expr, as_index: bool) -> Term:
        if isinstance(node, ast.Constant) and isinstance(node.value, (bool, int, float)):
            return terms.literal(node.value)
        if isinstance(node, ast.Name):
            return self._name(node)
        if isinstance(node, ast.Attribute):
            return self._attribute(node)
        if isinstance(node, ast.Subscript):
            return self._element(node)
        if isinstance(node, ast.BinOp):
            return self._binary(node, as_index)
        if isinstance(node, ast.UnaryOp):
            return self._unary(node, as_index)
        if isinstance(node, ast.Compare):
            return self._compare(node)
        if isinstance(node, ast.BoolOp):
            return self._boolean(node)
        if isinstance(node, ast.IfExp):
            test = terms.condition(self.term(node.test))
            return terms.choice(test, *(self.term(part, as_index=as_index) for part in (node.body, node.orelse)))
        if isinstance(node, ast.Call):
            return self._call(node, as_index)
        raise TranslationError(f"C has no {ast.unparse(node)}")

    def _name(self, node: ast.Name) -> Term:
        if node.id in self.variables:
            return self._variable(node.id)
        code = self.instance.function.__code__
        if node.id in code.co_varnames:
            raise TranslationError(f"{node.id} is read before it is assigned")
        value = global_of(self.instance.function, node.id)
        if isinstance(value, BuildConstant):
            return Term(node.id, PRIMARY, boolean(), "bool")
        return _constant(value, node.id)

    def _attribute(self, node: ast.Attribute) -> Term:
        record = self.term(node.value)
        if isinstance(record.value, Record):
            value = record.value.field(node.attr)
            text = f"{record.text}->{identifier(node.attr)}"
            return Term(text, PRIMARY, value, value.c_type if isinstance(value, Number) else "")
        assert isinstance(record.value, Constant)
        return _constant(getattr(record.value.value, node.attr), ast.unparse(node))

    def _element(self, node: ast.Subscript) -> Term:
        array = self.term(node.value)
        if isinstance(array.value, Constant):
            index = self.term(node.slice).constant
            assert index is not None
            return _constant(array.value.value[int(index)], ast.unparse(node))
        if not isinstance(array.value, Pointer):
            raise TranslationError(f"{array.text} has no elements")
        index_term = self.term(node.slice, as_index=True)
        text = f"{array.inside(PRIMARY)}[{index_term.text}]"
        dtype = array.value.dtype
        range = range_of(dtype) if dtype in INTEGER_BITS else Range(0, 0)
        return Term(text, PRIMARY, Number(dtype, range), array.value.c_element)

    def _binary(self, node: ast.BinOp, as_index: bool) -> Term:
        name = type(node.op).__name__
        ring = as_index and name in terms.RING
        left, right = self.term(node.left, as_index=ring), self.term(node.right, as_index=ring)
        if isinstance(left.value, Pointer):
            if left.value.dtype != "address" or name not in ("Add", "Sub"):
                raise TranslationError("only addresses have offsets")
            offset = self.term(node.right, as_index=True)
            text = f"{left.inside(SUM)} {terms.SYMBOLS[name][0]} {offset.inside(SUM + 1)}"
            return Term(text, SUM, left.value, "")
        return terms.operation(name, left, right, as_index=ring, narrow=self.narrow)

    def _unary(self, node: ast.UnaryOp, as_index: bool) -> Term:
        operand = self.term(node.operand, as_index=as_index)
        if isinstance(node.op, ast.USub):
            return terms.negated(operand, narrow=self.narrow)
        if isinstance(node.op, ast.Not):
            return terms.truth(f"!{terms.condition(operand).inside(UNARY)}", UNARY)
        if isinstance(node.op, ast.Invert):
            return terms.operation("Sub", terms.literal(-1), operand)
        return operand

    def _compare(self, node: ast.Compare) -> Term:
        sides = [self.term(side) for side in (node.left, *node.comparators)]
        tests = [terms.comparison(type(op).__name__, *pair) for op, pair in zip(node.ops, itertools.pairwise(sides))]
        if len(tests) == 1:
            return tests[0]
        return terms.truth(" && ".join(test.inside(terms.RELATION) for test in tests), terms.AND)

    def _boolean(self, node: ast.BoolOp) -> Term:
        tests = [terms.condition(self.term(value)) for value in node.values]
        if isinstance(node.op, ast.And):
            return terms.truth(" && ".join(test.inside(terms.RELATION) for test in tests), terms.AND)
        texts = [test.text if test.binding in (terms.OR, PRIMARY) else test.inside(terms.RELATION) for test in tests]
        return terms.truth(" || ".join(texts), terms.OR)

    def _cast(self, node: ast.expr, dtype: str) -> Term:
        """Translate an expression cast to a type of the language. Of an integer, only the bits of that type are
        computed."""
        term = self.term(node)
        if dtype == "int32" and isinstance(term.value, Number) and term.value.is_integer and not term.within(INT32):
            low = self._low_bits(node)
            if low is not None:
                return replace(terms.c_cast(low, "int32_t"), value=Number("int32", INT32))
        if dtype == "int32" and isinstance(term.value, Number) and term.value.dtype == "float32":
            return replace(terms.c_cast(term, "int32_t"), value=Number("int32", INT32))
        return terms.as_number(term, dtype)

    def _low_bits(self, node: ast.expr) -> Term | None:
        """Return the low 32 bits of an operation, as uint32_t, if they depend only on those of its operands."""
        term = self.term(node)
        if term.within(INT32):
            return replace(terms.c_cast(term, "uint32_t"), value=Number("uint32", range_of("uint32")))
        if isinstance(node, ast.BinOp) and type(node.op).__name__ in terms.RING:
            left, right = (
                self._low_bits(side) or terms.c_cast(self.term(side), "uint32_t") for side in (node.left, node.right)
            )
            return terms.low_bits(type(node.op).__name__, left, right, "uint32_t")
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.LShift):
            amount = self.term(node.right)
            if amount.within(Range(0, 31)):
                left = self._low_bits(node.left) or terms.c_cast(self.term(node.left), "uint32_t")
                return terms.low_bits("LShift", left, amount, "uint32_t")
        return None

    # --- Calls -----------------------------------------------------------------------------------------------

    def _callee(self, node: ast.expr) -> Any:
        """Return the called function, and its name."""
        value = self.term(node).value if isinstance(node, (ast.Name, ast.Attribute)) else None
        if isinstance(value, Callee):
            return value
        if not isinstance(value, Constant):
            raise TranslationError(f"{ast.unparse(node)} can't be called")
        return value.value

    def _call(self, node: ast.Call, as_index: bool) -> Term:
        callee = self._callee(node.func)
        if isinstance(callee, Callee):
            return self._call_function(callee.function, callee.name, node)
        if not isinstance(callee, np.ufunc) and callee in CASTS:
            return self._call_cast(node.args[0], CASTS[callee], as_index)
        if callee in (min, max):
            first, *others = (self.term(argument, as_index=as_index) for argument in node.args)
            return functools.reduce(functools.partial(terms.extreme, callee.__name__), others, first)
        if callee is abs:
            return terms.absolute(self.term(node.args[0]))
        if callee in MATH or callee in MATH_OF_TWO:
            return self._call_math(callee, [self.term(argument) for argument in node.args])
        if isinstance(callee, Intrinsic):
            return self._call_intrinsic(callee.name, node.args)
        if isinstance(callee, FunctionType):
            return self._call_function(callee, identifier(callee.__name__), node)
        raise TranslationError(f"{ast.unparse(node.func)} can't be called")

    def _call_cast(self, node: ast.expr, dtype: str, as_index: bool) -> Term:
        if as_index and dtype == "int64":
            return self.term(node, as_index=True)
        if self.narrow and dtype == "int64":
            return replace(terms.c_cast(self.term(node), "int64_t"), value=Number("int64", INT64))
        cast = self._cast(node, dtype)
        return terms.c_cast(cast, "int32_t") if self.narrow and dtype == "int32" else cast

    @staticmethod
    def _call_math(callee: Any, given: list[Term]) -> Term:
        is_float = all(term.number.dtype == "float32" for term in given)
        dtype, suffix = ("float32", "f") if is_float else ("float64", "")
        texts = ", ".join(terms.as_number(term, dtype).text for term in given)
        name = MATH.get(callee) or MATH_OF_TWO[callee]
        return Term(f"{name}{suffix}({texts})", PRIMARY, Number(dtype), C_TYPES[dtype])

    def _call_intrinsic(self, name: str, arguments: Sequence[ast.expr]) -> Term:
        if name in MOVES:
            return self._move_bytes(name, *(self.term(argument, as_index=True) for argument in arguments))
        if name == "leading_zeros":
            given = terms.c_cast(self.term(arguments[0]), "uint64_t")
            return Term(f"leading_zeros({given.text})", PRIMARY, Number("int64", Range(0, 64)), "int32_t")
        if name == "float64_of_bits":
            given = terms.as_number(self.term(arguments[0]), "int64")
            return Term(f"float64_of_bits({given.text})", PRIMARY, Number("float64"), "double")
        if name.endswith("_from"):
            pointer, offset = self.term(arguments[0]), self.term(arguments[1], as_index=True)
            return Term(f"{pointer.inside(SUM)} + {offset.inside(SUM + 1)}", SUM, pointer.value, "")
        if name.endswith(("_at", "_of")):
            return self._elements_at(self.term(arguments[0], as_index=True), name.rpartition("_")[0])
        raise TranslationError(f"C has no {name}")

    def _move_bytes(self, name: str, target: Term, source: Term, count: Term) -> Term:
        if not (isinstance(target.value, Pointer) and isinstance(source.value, Pointer)):
            raise TranslationError(f"{name} takes addresses")
        self.instance.written |= target.value.roots
        text = f"{MOVES[name]}({target.text}, {source.text}, (size_t){count.inside(UNARY)})"
        return Term(text, PRIMARY, Constant(None), "")

    def _elements_at(self, address: Term, dtype: str) -> Term:
        if not isinstance(address.value, Pointer):
            raise TranslationError(f"{address.text} is not an address")
        value = Pointer(dtype, address.value.roots)
        const = "" if value.roots & self.instance.written else "const "
        return Term(f"({const}{value.c_element} *)({const}void *){address.inside(UNARY)}", UNARY, value, "")

    def _call_function(self, function: FunctionType, name: str, node: ast.Call) -> Term:
        given = self._arguments(function, name, node)
        instance = self.instances(
            function, name, {parameter: parameter_value(parameter, term) for parameter, term in given.items()}
        )
        if instance not in self.instance.calls:
            self.instance.calls.append(instance)
        roots = dict(_roots(given))
        for parameter in instance.written:
            self.instance.written |= roots[parameter]
        passed = list(_passed(instance, given))
        text = f"{instance.token}({', '.join([f'&{RESULTS}', *passed] if sets_results(instance) else passed)})"
        returned = instance.returned
        if returned is None:
            return Term(text, PRIMARY, Constant(None), "")
        if isinstance(returned, Pointer):
            of_caller: frozenset[str] = frozenset().union(*(roots[root] for root in returned.roots))
            if of_caller & self.instance.written:  # perhaps through the returned pointer, which then is not const
                instance.written |= returned.roots
            return Term(text, PRIMARY, Pointer(returned.dtype, of_caller), "")
        return Term(text, PRIMARY, returned, return_type(instance))

    def _arguments(self, function: FunctionType, name: str, node: ast.Call) -> dict[str, Term]:
        """Return the argument for each parameter of a function."""
        names = parameters_of(tree_of(function))
        if node.keywords or len(names) != len(node.args):
            raise TranslationError(f"{name} takes the positional arguments {', '.join(names)}")
        functions = {
            parameter: callee for parameter, value in zip(names, node.args) if (callee := self._function_of(value))
        }
        indices = index_variables(function, callees_of(functions))
        given = {
            parameter: self.term(argument, as_index=parameter in indices)
            for parameter, argument in zip(names, node.args)
            if parameter not in functions
        }
        given |= {parameter: Term(callee.name, PRIMARY, callee, "") for parameter, callee in functions.items()}
        return {parameter: given[parameter] for parameter in names}

    def _function_of(self, node: ast.expr) -> Callee | None:
        """Return the function that is passed as an argument."""
        if not isinstance(node, ast.Name):
            return None
        value = self.variables.get(node.id)
        if isinstance(value, Callee):
            return value
        found = self.instance.function.__globals__.get(node.id) if value is None else None
        return Callee(found, identifier(found.__name__)) if isinstance(found, FunctionType) else None


def _roots(given: Mapping[str, Term]) -> Iterator[tuple[str, frozenset[str]]]:
    """Return the caller's memory that each parameter, or field, may point to."""
    for name, term in given.items():
        if isinstance(term.value, Pointer):
            yield name, term.value.roots
        elif isinstance(term.value, Record):
            for field, value in term.value.fields:
                if isinstance(value, Pointer):
                    yield f"{name}.{field}", value.roots


def _passed(instance: Instance, given: Mapping[str, Term]) -> Iterator[str]:
    """Return the arguments of a call in C."""
    for name, term in given.items():
        value = instance.arguments[name]
        if isinstance(value, Number) and value.is_integer:
            yield terms.implicit(term, value.c_type).text
        elif not isinstance(value, Callee):
            yield term.text


def _constant(value: Any, text: str) -> Term:
    """Return a constant that Python can evaluate."""
    if isinstance(value, (bool, int, float)) and not isinstance(value, np.generic):
        return terms.literal(value)
    if isinstance(value, np.generic) and not isinstance(value, type):
        return terms.literal(value.item())
    return Term(text, CONDITIONAL, Constant(value), "")
