"""Syntax trees of functions, and the values of the names in them."""

from __future__ import annotations

import ast
import builtins
import copy
import dis
import functools
import inspect
from types import CodeType, FunctionType
from typing import Any

UNROLLED = "unrolled"
"""The name of `tflm.compiler.language.unrolled`."""


class TranslationError(Exception):
    """A kernel uses something that cannot be translated to C."""


@functools.cache
def tree_of(function: FunctionType) -> ast.FunctionDef:
    """Return the definition of a function, with its unrolled loops expanded. A lambda becomes a function that returns
    its expression."""
    tree = _module_tree(inspect.getsourcefile(function) or "")
    code = function.__code__
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name == function.__name__ and _first_line(node) == _line(code):
            return _Unrolling(function).visit(copy.deepcopy(node))  # type: ignore[no-any-return]
        if isinstance(node, ast.Lambda) and node.lineno == _line(code) and _is_code_of(node, code):
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


@functools.cache
def _module_tree(path: str) -> ast.Module:
    with open(path, encoding="utf-8") as file:
        return ast.parse(file.read())


def _line(code: CodeType) -> int:
    return code.co_firstlineno


def _first_line(node: ast.FunctionDef) -> int:
    return min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])


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


def body_of(tree: ast.FunctionDef) -> list[ast.stmt]:
    """Return the statements of a function without its docstring."""
    return tree.body[1:] if ast.get_docstring(tree) is not None else tree.body
