"""Syntax trees of functions, and the values of the names in them."""

from __future__ import annotations

import ast
import builtins
import copy
import dis
import functools
import inspect
from collections import Counter
from types import CodeType, FunctionType
from typing import Any

from tflm.compiler.language import BY_VALUE, parameters_of_record

UNROLLED = "unrolled"
"""The name of `tflm.compiler.language.unrolled`."""


class TranslationError(Exception):
    """A kernel uses something that cannot be translated to C."""


@functools.cache
def tree_of(function: FunctionType) -> ast.FunctionDef:
    """Return the definition of a function. A lambda becomes a function that returns its expression.

    Unrolled loops are expanded, and records that are passed by value are replaced by their fields.
    """
    code = function.__code__
    for node in _functions_in(inspect.getsourcefile(function) or "").get(code.co_firstlineno, ()):
        if isinstance(node, ast.FunctionDef) and node.name == function.__name__:
            return _Spreading(function).visit(_Unrolling(function).visit(copy.deepcopy(node)))  # type: ignore[no-any-return]
        if isinstance(node, ast.Lambda) and _is_code_of(node, code):
            returned = ast.copy_location(ast.Return(node.body), node)
            made = ast.FunctionDef("lambda", node.args, [returned], [], None, None, lineno=node.lineno)
            return ast.copy_location(made, node)
    raise TranslationError(f"the source code of {function.__qualname__} is not available")


class _Unrolling(ast.NodeTransformer):
    """Repeats the body of each loop over `unrolled(...)`, with numbers in place of the loop variable."""

    def __init__(self, function: FunctionType):
        self.function = function

    def visit_For(self, node: ast.For) -> ast.For | list[ast.stmt]:
        self.generic_visit(node)
        if not (isinstance(node.iter, ast.Call) and self._is_unrolled(node.iter.func)):
            return node
        assert isinstance(node.target, ast.Name)
        found = []
        for number in range(*(self._number(bound) for bound in node.iter.args)):
            for statement in node.body:
                found.append(_Numbering(node.target.id, number).visit(copy.deepcopy(statement)))
        return found

    def _is_unrolled(self, function: ast.expr) -> bool:
        return isinstance(function, ast.Name) and function.id == UNROLLED

    def _number(self, bound: ast.expr) -> int:
        number = global_of(self.function, bound.id) if isinstance(bound, ast.Name) else ast.literal_eval(bound)
        if not isinstance(number, int):
            raise TranslationError(f"{ast.unparse(bound)} is not a constant number")
        return number


class _Numbering(ast.NodeTransformer):
    """Replaces a variable by a number."""

    def __init__(self, name: str, number: int):
        self.name, self.number = name, number

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.copy_location(ast.Constant(self.number), node) if node.id == self.name else node


class _Spreading(ast.NodeTransformer):
    """Replaces records that are passed by value by their fields, under the names that these have in the record."""

    def __init__(self, function: FunctionType):
        self.function = function
        self.records: dict[str, dict[str, ast.expr]] = {}
        self.stores: Counter[str] = Counter()

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        self.stores.update(parameters_of(node))
        self.stores.update(part.id for part in ast.walk(node) if isinstance(part, ast.Name) and _is_stored(part))
        node.args.args = [each for argument in node.args.args for each in self._parameters(argument)]
        self.generic_visit(node)
        return node

    def _parameters(self, argument: ast.arg) -> list[ast.arg]:
        record = self._record(argument.annotation)
        if record is None:
            return [argument]
        names = parameters_of_record(record, argument.arg)
        if any(name in self.stores for name in names.values()):
            raise TranslationError(f"{self.function.__qualname__} has variables with the names of a record's fields")
        self.stores.update(names.values())
        self.records[argument.arg] = {field: ast.Name(name, ast.Load()) for field, name in names.items()}
        return [ast.arg(name) for name in names.values()]

    def _record(self, name: ast.expr | None) -> Any:
        """The record of this name; None if there is none that is passed by value."""
        value = self.function.__globals__.get(name.id) if isinstance(name, ast.Name) else None
        return value if hasattr(value, BY_VALUE) else None

    def visit_Assign(self, node: ast.Assign) -> ast.Assign | None:
        self.generic_visit(node)
        record = self._record(node.value.func) if isinstance(node.value, ast.Call) else None
        if record is None:
            return node
        assert isinstance(node.value, ast.Call)
        names = [part.id for part in ast.walk(node) if isinstance(part, ast.Name)]
        if any(self.stores[name] > 1 for name in names):
            raise TranslationError(f"{ast.unparse(node)} uses a variable that is assigned more than once")
        (target,) = node.targets
        assert isinstance(target, ast.Name)
        self.records[target.id] = dict(zip(record._fields, node.value.args))
        return None

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        record = self.records.get(node.value.id) if isinstance(node.value, ast.Name) else None
        return node if record is None else record[node.attr]

    def visit_Call(self, node: ast.Call) -> ast.Call:
        self.generic_visit(node)
        node.args = [each for argument in node.args for each in self._passed(argument)]
        return node

    def _passed(self, argument: ast.expr) -> list[ast.expr]:
        if isinstance(argument, ast.Name) and argument.id in self.records:
            return list(self.records[argument.id].values())
        is_record = isinstance(argument, ast.Call) and self._record(argument.func) is not None
        return argument.args if isinstance(argument, ast.Call) and is_record else [argument]


def _is_stored(name: ast.Name) -> bool:
    return isinstance(name.ctx, ast.Store)


@functools.cache
def _functions_in(path: str) -> dict[int, list[ast.FunctionDef | ast.Lambda]]:
    """Return the functions of a module by the lines in which they begin; for a function with decorators, the first."""
    with open(path, encoding="utf-8") as file:
        tree = ast.parse(file.read())
    found: dict[int, list[ast.FunctionDef | ast.Lambda]] = {}
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.Lambda)):
            decorators = node.decorator_list if isinstance(node, ast.FunctionDef) else []
            found.setdefault(min(each.lineno for each in (node, *decorators)), []).append(node)
    return found


def _is_code_of(node: ast.Lambda, code: CodeType) -> bool:
    """Whether a node is the code of a lambda. A line may have several."""
    compiled = compile(ast.Expression(node), "", "eval").co_consts
    own = next(constant for constant in compiled if isinstance(constant, CodeType))
    return _instructions(own) == _instructions(code)


def _instructions(code: CodeType) -> list[tuple[str, object]]:
    """Return the instructions of a lambda, except the ones that load an attribute: they depend on the module's
    imports."""
    found = dis.get_instructions(code)
    return [(instruction.opname.replace("LOAD_METHOD", "LOAD_ATTR"), instruction.argval) for instruction in found]


def global_of(function: FunctionType, name: str) -> Any:
    """Return the value of a name that is not local to a function.

    Raises:
        TranslationError: there is no such name.
    """
    if name in function.__globals__:
        return function.__globals__[name]
    if hasattr(builtins, name):
        return getattr(builtins, name)
    raise TranslationError(f"{function.__qualname__}: {name} is not defined")


def parameters_of(tree: ast.FunctionDef) -> list[str]:
    """Return the names of a function's parameters."""
    return [argument.arg for argument in tree.args.args]


def docstring_of(tree: ast.FunctionDef) -> str:
    """Return a function's docstring, or an empty text."""
    return inspect.cleandoc(ast.get_docstring(tree) or "")


@functools.cache
def body_of(tree: ast.FunctionDef) -> list[ast.stmt]:
    """Return the statements of a function without its docstring."""
    return tree.body[1:] if ast.get_docstring(tree) is not None else tree.body
