"""Translate expressions of the kernel language to C."""

from __future__ import annotations

import ast
import functools
import itertools
import math
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
    identifier,
    parameter_value,
    pointer_type,
    promoted,
    return_type,
    sets_results,
)
from tflm.c.syntax import TranslationError, global_of, parameters_of, tree_of
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

MOVES: Mapping[str, str] = {"copy_bytes": "memcpy", "move_bytes": "memmove"}
"""The C functions of intrinsics that take two addresses and a number of bytes."""

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

INSTEAD: dict[str, str] = {"rintf": "rint_float", "sqrtf": "sqrt_float"}
"""Helpers with the results of functions of math.h, in fewer instructions on some processors."""


class ExpressionWriter:
    """Writes the expressions of a function instance.

    Attributes:
        variables: type and range of each variable, as far as known.
        loops: the loop variables of the loops around the expression.
    """

    def __init__(self, instance: Instance, instances: Instances):
        self.instance, self.instances = instance, instances
        self.variables: dict[str, Value] = dict(instance.arguments)
        self.loops: list[str] = []

    # --- Variables -------------------------------------------------------------------------------------------

    def _c_type(self, name: str) -> str:
        """Return the C type of a numeric variable."""
        if name in self.loops:
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

    def term(self, node: ast.expr) -> Term:
        """Translate an expression."""
        if isinstance(node, ast.Constant) and isinstance(node.value, (bool, int, float)):
            return terms.literal(node.value)
        if isinstance(node, ast.Name):
            return self._name(node)
        if isinstance(node, ast.Attribute):
            return self._attribute(node)
        if isinstance(node, ast.Subscript):
            return self._element(node)
        if isinstance(node, ast.BinOp):
            return self._binary(node)
        if isinstance(node, ast.UnaryOp):
            return self._unary(node)
        if isinstance(node, ast.Compare):
            return self._compare(node)
        if isinstance(node, ast.BoolOp):
            return self._boolean(node)
        if isinstance(node, ast.IfExp):
            test = terms.condition(self.term(node.test))
            return terms.choice(test, self.term(node.body), self.term(node.orelse))
        if isinstance(node, ast.Call):
            return self._call(node)
        raise TranslationError(f"C has no {ast.unparse(node)}")

    def index(self, node: ast.expr) -> Term:
        """Translate an index, which has 32 bits in C."""
        found = terms.c_cast(self.term(node), "int32_t")
        return found if found.within(INT32) else replace(found, value=Number("int64", INT32))

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
        text = f"{array.inside(PRIMARY)}[{self.index(node.slice).text}]"
        dtype = array.value.dtype
        range = range_of(dtype) if dtype in INTEGER_BITS else Range(0, 0)
        return Term(text, PRIMARY, Number(dtype, range), array.value.c_element)

    def _binary(self, node: ast.BinOp) -> Term:
        name, left = type(node.op).__name__, self.term(node.left)
        if isinstance(left.value, Pointer):
            if left.value.dtype != "address" or name not in ("Add", "Sub"):
                raise TranslationError("only addresses have offsets")
            offset = self.index(node.right)
            text = f"{left.inside(SUM)} {terms.SYMBOLS[name][0]} {offset.inside(SUM + 1)}"
            return Term(text, SUM, left.value, "")
        return terms.operation(name, left, self.term(node.right))

    def _unary(self, node: ast.UnaryOp) -> Term:
        operand = self.term(node.operand)
        if isinstance(node.op, ast.USub):
            return terms.negated(operand)
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
        if isinstance(node, ast.Call) and self._callee(node.func) is casts.as_int64:
            return self._low_bits(node.args[0])
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

    def _call(self, node: ast.Call) -> Term:
        callee = self._callee(node.func)
        if isinstance(callee, Callee):
            return self._call_function(callee.function, callee.name, node)
        if not isinstance(callee, np.ufunc) and callee in CASTS:
            return self._call_cast(node.args[0], CASTS[callee])
        if callee in (min, max):
            first, *others = map(self.term, node.args)
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

    def _call_cast(self, node: ast.expr, dtype: str) -> Term:
        term = self.term(node)
        if dtype == "int64" and term.number.is_integer:
            return replace(terms.c_cast(term, "int64_t"), value=Number("int64", INT64))
        cast = self._cast(node, dtype)
        return terms.c_cast(cast, "int32_t") if dtype == "int32" else cast

    @staticmethod
    def _call_math(callee: Any, given: list[Term]) -> Term:
        is_float = all(term.number.dtype == "float32" for term in given)
        dtype, suffix = ("float32", "f") if is_float else ("float64", "")
        texts = ", ".join(terms.as_number(term, dtype).text for term in given)
        name = f"{MATH.get(callee) or MATH_OF_TWO[callee]}{suffix}"
        return Term(f"{INSTEAD.get(name, name)}({texts})", PRIMARY, Number(dtype), C_TYPES[dtype])

    def _call_intrinsic(self, name: str, arguments: Sequence[ast.expr]) -> Term:
        if name in MOVES:
            return self._move_bytes(name, self.term(arguments[0]), self.term(arguments[1]), self.index(arguments[2]))
        if name == "leading_zeros":
            given = terms.c_cast(self.term(arguments[0]), "uint64_t")
            return Term(f"leading_zeros({given.text})", PRIMARY, Number("int64", Range(0, 64)), "int32_t")
        if name == "float64_of_bits":
            given = terms.as_number(self.term(arguments[0]), "int64")
            return Term(f"float64_of_bits({given.text})", PRIMARY, Number("float64"), "double")
        if name == "truncated_quotient":
            texts = ", ".join(terms.as_number(self.term(each), "int32").text for each in arguments)
            return Term(f"truncated_quotient({texts})", PRIMARY, Number("int64", Range(-(1 << 31), 1 << 31)), "int64_t")
        if name.endswith("_from"):
            pointer, offset = self.term(arguments[0]), self.index(arguments[1])
            return Term(f"{pointer.inside(SUM)} + {offset.inside(SUM + 1)}", SUM, pointer.value, "")
        if name.endswith("_of"):
            return self._elements_at(self.term(arguments[0]), name.rpartition("_")[0])
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
        given = {
            parameter: self.term(argument)
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
