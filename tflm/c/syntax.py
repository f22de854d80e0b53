"""Syntax trees of functions, and what the names in them stand for."""

from __future__ import annotations

import ast
import builtins
import dis
import functools
import inspect
from types import CodeType, FunctionType
from typing import Any


class TranslationError(Exception):
    """A kernel uses something that the translation to C does not have."""


@functools.cache
def tree_of(function: FunctionType) -> ast.FunctionDef:
    """The definition of a function. A lambda is a function that returns its expression."""
    tree = _module_tree(inspect.getsourcefile(function) or "")
    code = function.__code__
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name == function.__name__ and _first_line(node) == _line(code):
            return node
        if isinstance(node, ast.Lambda) and node.lineno == _line(code) and _is_code_of(node, code):
            returned = ast.copy_location(ast.Return(node.body), node)
            made = ast.FunctionDef("lambda", node.args, [returned], [], None, None, lineno=node.lineno)
            return ast.copy_location(made, node)
    raise TranslationError(f"the source of {function.__qualname__} is missing")


@functools.cache
def _module_tree(path: str) -> ast.Module:
    with open(path, encoding="utf-8") as file:
        return ast.parse(file.read())


def _line(code: CodeType) -> int:
    return code.co_firstlineno


def _first_line(node: ast.FunctionDef) -> int:
    return min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])


def _is_code_of(node: ast.Lambda, code: CodeType) -> bool:
    """Whether this is the code of a lambda; a line may have several."""
    compiled = compile(ast.Expression(node), "", "eval").co_consts
    own = next(constant for constant in compiled if isinstance(constant, CodeType))
    return _instructions(own) == _instructions(code)


def _instructions(code: CodeType) -> list[tuple[str, object]]:
    """The instructions of a lambda; which one loads an attribute depends on the imports of its module."""
    found = dis.get_instructions(code)
    return [(instruction.opname.replace("LOAD_METHOD", "LOAD_ATTR"), instruction.argval) for instruction in found]


def global_of(function: FunctionType, name: str) -> Any:
    """What a name stands for that is none of a function's own.

    Raises:
        TranslationError: there is no such name.
    """
    if name in function.__globals__:
        return function.__globals__[name]
    if hasattr(builtins, name):
        return getattr(builtins, name)
    raise TranslationError(f"{function.__qualname__}: {name} is not defined")


def parameters_of(tree: ast.FunctionDef) -> list[str]:
    """The names of a function's parameters."""
    return [argument.arg for argument in tree.args.args]


def docstring_of(tree: ast.FunctionDef) -> str:
    """A function's docstring, or nothing."""
    return inspect.cleandoc(ast.get_docstring(tree) or "")


def body_of(tree: ast.FunctionDef) -> list[ast.stmt]:
    """The statements of a function without its docstring."""
    return tree.body[1:] if ast.get_docstring(tree) is not None else tree.body
