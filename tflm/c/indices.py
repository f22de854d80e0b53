"""Find the variables that are indices: read only in subscripts, loop bounds and address offsets.

Memory has fewer than 2^31 elements, so that C can compute indices in 32 bits.
"""

from __future__ import annotations

import ast
import functools
from collections import defaultdict
from collections.abc import Mapping
from types import FunctionType

from tflm.c.syntax import body_of, global_of, parameters_of, tree_of
from tflm.compiler import intrinsics
from tflm.compiler.language import Intrinsic
from tflm.delegates.compiled import casts

INDEX_OPERATIONS = (ast.Add, ast.Sub, ast.Mult, ast.FloorDiv, ast.Mod)
"""Operations whose result is an index if and only if the operands are."""

TRANSPARENT = (casts.as_int64, min, max)
"""Functions whose arguments are indices if the result is."""

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
        elif (
            callee is range
            or callee is intrinsics.move_bytes
            or (isinstance(callee, Intrinsic) and callee.name.endswith(("_at", "_from")))
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
