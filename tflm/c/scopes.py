"""Choose where C declares the variables of a function: in the innermost block that contains all of their uses."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator, Sequence
from typing import TypeAlias

from tflm.c.syntax import body_of, parameters_of

MAX_NODES = 1 << 16
"""Number of nodes of trees whose names are kept; compiling a large model asks for some thousand, again and again."""

Path: TypeAlias = tuple[tuple[int, int], ...]
"""Path to a statement: (id of a block, index in it), from the outermost block to the innermost."""


class Scopes:
    """The declarations of variables.

    Attributes:
        first: for each variable that is declared where it is first assigned, the id of that statement.
        before: for each statement, by id, the variables that are declared without a value before it.
        at_top: variables that are declared at the top of the function, and initialized to zero.
    """

    def __init__(self, tree: ast.FunctionDef):
        body = body_of(tree)
        self.first: dict[str, int] = {}
        self.before: dict[int, list[str]] = {}
        self.at_top: list[str] = []
        uses: dict[str, list[tuple[Path, ast.stmt]]] = {}
        for name, path, statement in _uses(body, (), frozenset()):
            uses.setdefault(name, []).append((path, statement))
        self._blocks: dict[int, Sequence[ast.stmt]] = dict(_blocks(body))
        assigned = {name for statement in body for name in _assigned(statement)}
        for name, places in uses.items():
            if name in assigned and name not in parameters_of(tree):
                self._declare(name, [path for path, _ in places])

    def _declare(self, name: str, paths: list[Path]) -> None:
        depth = 0
        while all(len(path) > depth for path in paths) and len({path[depth][0] for path in paths}) == 1:
            depth += 1
        block, index = min((path[depth - 1] for path in paths), key=lambda place: place[1])
        statement = self._blocks[block][index]
        if name in _declarable(statement):
            self.first[name] = id(statement)
        elif is_assigned_first([statement], name):
            self.before.setdefault(id(statement), []).append(name)
        else:
            self.at_top.append(name)


def _declarable(statement: ast.stmt) -> list[str]:
    """Return the variables that a statement assigns and does not read."""
    targets: list[ast.expr]
    if isinstance(statement, ast.AnnAssign) and statement.value is not None:
        targets, value = [statement.target], statement.value
    elif isinstance(statement, ast.Assign):
        target, value = statement.targets[0], statement.value
        targets = target.elts if isinstance(target, ast.Tuple) else [target]
    else:
        return []
    read = names_in(value)
    return [target.id for target in targets if isinstance(target, ast.Name) and target.id not in read]


def is_assigned_first(statements: Sequence[ast.stmt], name: str) -> bool:
    """Whether statements assign a variable before they read it, on every path."""
    for statement in statements:
        if name in _declarable(statement):
            return True
        if isinstance(statement, (ast.Return, ast.Break, ast.Continue)):
            return name not in names_in(statement)
        if isinstance(statement, ast.If):
            if name in names_in(statement.test):
                return False
            if is_assigned_first(statement.body, name) and is_assigned_first(statement.orelse, name):
                return True
        if name in names_in(statement):
            return False
    return False


@functools.cache
def scopes_of(tree: ast.FunctionDef) -> Scopes:
    """Return the declarations of a function that `tree_of` returned."""
    return Scopes(tree)


@functools.lru_cache(MAX_NODES)
def nodes_in(node: ast.AST) -> tuple[ast.AST, ...]:
    """Return the nodes of a syntax tree in the order of `ast.walk`; trees are never changed."""
    return tuple(ast.walk(node))


@functools.lru_cache(MAX_NODES)
def names_in(node: ast.AST) -> tuple[str, ...]:
    """Return the names in a syntax tree, each once."""
    return tuple(dict.fromkeys(part.id for part in nodes_in(node) if isinstance(part, ast.Name)))


@functools.lru_cache(MAX_NODES)
def assigned_in(node: ast.AST) -> frozenset[str]:
    """Return the variables that a syntax tree assigns, including those of its loops."""
    return frozenset(
        part.id for part in nodes_in(node) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)
    )


def _assigned(node: ast.AST) -> Iterator[str]:
    """Return the variables that are assigned, except loop variables."""
    parts = nodes_in(node)
    loops = {id(part.target) for part in parts if isinstance(part, ast.For)}
    for part in parts:
        if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store) and id(part) not in loops:
            yield part.id


def _blocks(body: Sequence[ast.stmt]) -> Iterator[tuple[int, Sequence[ast.stmt]]]:
    yield id(body), body
    for statement in body:
        for inner in _inner_blocks(statement):
            yield from _blocks(inner)


def _inner_blocks(statement: ast.stmt) -> list[list[ast.stmt]]:
    if isinstance(statement, ast.If):
        return [statement.body, statement.orelse]
    return [statement.body] if isinstance(statement, (ast.For, ast.While)) else []


def _uses(body: Sequence[ast.stmt], outer: Path, loops: frozenset[str]) -> Iterator[tuple[str, Path, ast.stmt]]:
    """Yield the uses of variables as (name, path, statement), with loop variables only outside of their loops."""
    for index, statement in enumerate(body):
        path = (*outer, (id(body), index))
        inner, own_loops = _inner_blocks(statement), loops
        heads: list[ast.AST] = [statement]
        if isinstance(statement, ast.For):
            assert isinstance(statement.target, ast.Name)
            heads, own_loops = [statement.iter], loops | {statement.target.id}
        elif isinstance(statement, (ast.If, ast.While)):
            heads = [statement.test]
        for head in heads:
            for name in names_in(head):
                if name not in loops:
                    yield name, path, statement
        for block in inner:
            yield from _uses(block, path, own_loops)
