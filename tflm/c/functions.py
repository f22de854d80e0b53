"""Translate functions of the kernel language to C."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from tflm.c import terms
from tflm.c.expressions import ExpressionWriter
from tflm.c.instances import RESULTS, Instance, Instances, identifier, promoted, return_type, sets_results
from tflm.c.scopes import assigned_in, names_in, nodes_in, scopes_of
from tflm.c.syntax import TranslationError, body_of, tree_of
from tflm.c.terms import PRIMARY, SUM, Term
from tflm.c.values import (
    INT32,
    INT64,
    INTEGER_BITS,
    Callee,
    Constant,
    Number,
    Pointer,
    Range,
    Results,
    Value,
    joined,
    range_of,
    widened,
)

MAX_PASSES = 24
"""Maximum number of passes over a function until the ranges of its variables no longer change."""


class FunctionWriter(ExpressionWriter):
    """Writes the body of a function instance repeatedly, until the ranges of its variables no longer change.

    Attributes:
        learned: all values of each variable.
    """

    def __init__(self, instance: Instance, instances: Instances):
        super().__init__(instance, instances)
        self.tree = tree_of(instance.function)
        self.body = body_of(self.tree)
        self.scopes = scopes_of(self.tree)
        self.learned: dict[str, Value] = dict(instance.arguments)
        self.passes = self.temporaries = 0

    def write(self) -> None:
        """Write the body.

        Raises:
            TranslationError: the function uses something that C lacks; the message says where.
        """
        for self.passes in range(MAX_PASSES):
            before, written = dict(self.variables), set(self.instance.written)
            self.instance.calls.clear()
            self.temporaries = 0
            self.lines: list[str] = []
            self.depth = 1
            self._block(self.body, is_last=True)
            if self.variables == before and self.instance.written == written:
                break
        else:
            raise TranslationError(f"the ranges of {self.instance.name} do not settle")
        used = names_in(self.tree)
        unused = [name for name in self._parameter_names() if name not in used]
        top = [self._declaration(name) + " = 0;" for name in self.scopes.at_top]
        top += [f"(void){identifier(name)};" for name in unused]
        self.instance.lines = ["    " + line for line in top] + self.lines

    def _parameter_names(self) -> list[str]:
        return [name for name, value in self.instance.arguments.items() if not isinstance(value, Callee)]

    # --- Statements ------------------------------------------------------------------------------------------

    def _line(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    @contextmanager
    def _indented(self) -> Iterator[None]:
        self.depth += 1
        yield
        self.depth -= 1

    def _block(self, statements: Sequence[ast.stmt], *, is_last: bool = False) -> None:
        for place, statement in enumerate(statements):
            for name in self.scopes.before.get(id(statement), ()):
                if name in self.variables:
                    self._line(self._declaration(name) + ";")
            try:
                self._statement(statement, is_last=is_last and place == len(statements) - 1)
            except TranslationError as error:
                if "line " in str(error):
                    raise
                where = f"{self.instance.function.__qualname__}, line {statement.lineno}"
                raise TranslationError(f"{where}: {ast.unparse(statement)}: {error}") from error

    def _statement(self, node: ast.stmt, *, is_last: bool = False) -> None:
        if isinstance(node, ast.Assign):
            for target in node.targets:
                self._assign(node, target, node.value)
        elif isinstance(node, ast.AnnAssign):
            if node.value is not None:
                self._assign(node, node.target, node.value)
        elif isinstance(node, ast.AugAssign):
            self._augment(node)
        elif isinstance(node, ast.For):
            self._for(node)
        elif isinstance(node, ast.While):
            self._while(node)
        elif isinstance(node, ast.If):
            self._if(node)
        elif isinstance(node, ast.Return):
            self._return(node, is_last)
        elif isinstance(node, ast.Expr):
            self._expression_statement(node.value)
        elif isinstance(node, (ast.Break, ast.Continue)):
            self._line("break;" if isinstance(node, ast.Break) else "continue;")
        elif not isinstance(node, (ast.Pass, ast.Assert)):
            raise TranslationError("this statement cannot be translated to C")

    def _expression_statement(self, node: ast.expr) -> None:
        if isinstance(node, ast.Constant):
            return
        self._line(self.term(node).text + ";")

    def _assign(self, node: ast.stmt, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Call):
            self._assign_results(node, target.elts, self.term(value))
        elif isinstance(target, ast.Tuple):
            self._assign_all(node, target.elts, _elements(value))
        elif isinstance(target, ast.Subscript):
            self._store(target, self._stored(target, value))
        elif isinstance(target, ast.Name):
            self._set(node, target.id, self.term(value))
        else:
            raise TranslationError("only variables and elements can be assigned")

    def _assign_results(self, node: ast.stmt, targets: Sequence[ast.expr], results: Term) -> None:
        """Assign the results of a function to several variables."""
        if not isinstance(results.value, Results) or len(results.value.parts) != len(targets):
            raise TranslationError("the numbers of values and targets differ")
        self.temporaries += 1
        name = f"results_{self.temporaries}"
        by_address = f"(&{RESULTS}, "
        if by_address in results.text:
            self._line(f"{results.c_type} {name};")
            self._line(results.text.replace(by_address, f"(&{name}, ") + ";")
        else:
            self._line(f"const {results.c_type} {name} = {results.text};")
        for place, (target, number) in enumerate(zip(targets, results.value.parts)):
            if not isinstance(target, ast.Name):
                raise TranslationError("results of functions can only be assigned to variables")
            term = Term(f"{name}.value{place}", PRIMARY, number, promoted(number.c_type))
            self._set(node, target.id, term)

    def _assign_all(self, node: ast.stmt, targets: Sequence[ast.expr], values: Sequence[ast.expr]) -> None:
        """Assign several values. Uses temporaries if a value may depend on an earlier target."""
        if len(targets) != len(values):
            raise TranslationError("the numbers of values and targets differ")
        if not _depend(targets, values):
            for target, value in zip(targets, values):
                self._assign(node, target, value)
            return
        for target, term in zip(targets, self._temporaries_of(targets, values)):
            if isinstance(target, ast.Subscript):
                self._store(target, term)
            else:
                assert isinstance(target, ast.Name)
                self._set(node, target.id, term)

    def _temporaries_of(self, targets: Sequence[ast.expr], values: Sequence[ast.expr]) -> list[Term]:
        """Store values in temporary variables."""
        found = []
        for target, value in zip(targets, values):
            term = self._stored(target, value) if isinstance(target, ast.Subscript) else self.term(value)
            self.temporaries += 1
            name = f"new_{identifier(names_of_target(target))}_{self.temporaries}"
            self._line(f"{self._variable_type(term.value)}{name} = {term.text};")
            found.append(Term(name, PRIMARY, term.value, term.c_type))
        return found

    def _set(self, node: ast.stmt, name: str, term: Term) -> None:
        """Assign a variable, and declare it if this is its first assignment."""
        value = term.value
        if isinstance(value, Constant):
            raise TranslationError(f"{term.text} cannot be stored in a C variable")
        self._learn(name, value)
        variable = self.variables[name]
        if isinstance(variable, Number):
            term = self._as_variable(term, name)
        if self.scopes.first.get(name) == id(node):
            self._line(f"{self._declaration(name)} = {term.text};")
        else:
            self._line(f"{identifier(name)} = {term.text};")

    def _as_variable(self, term: Term, name: str) -> Term:
        variable = self.variables[name]
        assert isinstance(variable, Number)
        if variable.dtype in ("float32", "float64", "bool"):
            return terms.as_number(term, variable.dtype)
        return terms.implicit(term, self._c_type(name))

    def _learn(self, name: str, value: Value) -> None:
        """Record a value that a variable may have."""
        self.learned[name] = joined(self.learned[name], value) if name in self.learned else value
        self.variables[name] = self._bounded(name, self.learned[name])

    def _bounded(self, name: str, value: Value) -> Value:
        """Widen a value's range in steps, limited to its type, so that the passes converge."""
        if not isinstance(value, Number) or not value.is_integer:
            return value
        limits = range_of(value.dtype) if value.dtype in INTEGER_BITS else Range(0, 1)
        if value.range not in limits:
            value = Number(value.dtype, limits)
        if self.passes > 2 and self.variables.get(name) != value:
            value = widened(value)
        return value

    def _augment(self, node: ast.AugAssign) -> None:
        name = type(node.op).__name__
        if isinstance(node.target, ast.Subscript):
            self._augment_element(node.target, name, node)
            return
        assert isinstance(node.target, ast.Name)
        target = node.target.id
        added = self.term(node.value)
        accumulates = self._variable(target).number.is_integer and added.number.is_integer and name in ("Add", "Sub")
        if accumulates:
            is_wide = "int64_t" in (added.c_type, self._c_type(target))
            dtype = terms.operation(name, self._variable(target), added).number.dtype
            self._learn(target, Number(dtype, INT64 if is_wide else INT32))
        current = self._variable(target)
        result = terms.operation(name, current, added)
        if not accumulates:
            self._learn(target, result.value)
        is_plain = result.c_type == current.c_type and result.text.startswith(current.text + " ")
        if is_plain or accumulates:
            added = self._augmenting(added, current)
            self._line(f"{current.text} {terms.SYMBOLS[name][0]}= {added.text};")
        else:
            self._line(f"{current.text} = {self._as_variable(result, target).text};")

    @staticmethod
    def _augmenting(added: Term, current: Term) -> Term:
        if not added.number.is_integer or current.c_type in ("float", "double"):
            assert isinstance(current.value, Number)
            return terms.as_number(added, current.value.dtype)
        return terms.c_cast(added, current.c_type) if added.c_type.startswith("uint") else added

    def _augment_element(self, target: ast.Subscript, name: str, node: ast.AugAssign) -> None:
        current = self.term(target)
        if not current.number.is_integer:
            added = self.term(node.value)
            if terms.operation(name, current, added).c_type == current.c_type:
                self._mark(target)
                self._line(f"{current.text} {terms.SYMBOLS[name][0]}= {added.text};")
                return
        loaded = ast.copy_location(ast.Subscript(target.value, target.slice, ast.Load()), target)
        as_binary = ast.copy_location(ast.BinOp(loaded, node.op, node.value), node)
        self._store(target, self._stored(target, as_binary))

    def _stored(self, target: ast.Subscript, value: ast.expr) -> Term:
        """Convert a value to the element type of the target."""
        pointer = self.term(target.value).value
        if not isinstance(pointer, Pointer):
            raise TranslationError("only elements of pointers can be assigned")
        term = self._cast(value, pointer.dtype)
        return term if term.constant is not None else terms.c_cast(term, pointer.c_element)

    def _store(self, target: ast.Subscript, term: Term) -> None:
        self._mark(target)
        self._line(f"{self.term(target).text} = {term.text};")

    def _mark(self, target: ast.Subscript) -> None:
        """Record that a parameter's memory is written."""
        pointer = self.term(target.value).value
        assert isinstance(pointer, Pointer)
        self.instance.written |= pointer.roots

    def _for(self, node: ast.For) -> None:
        assert isinstance(node.target, ast.Name)
        bounds = _range_arguments(node.iter)
        name, variable = node.target.id, identifier(node.target.id)
        if any(identifier(other) == variable != name != other for part in node.body for other in names_in(part)):
            raise TranslationError(f"{name} has the same name in C as another variable")
        start, stop, step = map(self.index, bounds)
        if _may_change(bounds[1], node):
            self.temporaries += 1
            end = f"{variable}_end_{self.temporaries}"
            self._line(f"const int32_t {end} = {stop.text};")
            stop = replace(stop, text=end, binding=PRIMARY)
        self._learn(name, Number("int64", _counted(start, stop, step)))
        test = f"{variable} {'<' if _goes_up(step) else '>'} {stop.inside(SUM)}"
        steps = {1: f"{variable}++", -1: f"{variable}--"}
        following = steps.get(int(step.constant or 0), f"{variable} += {step.text}")
        self._line(f"for (int32_t {variable} = {start.text}; {test}; {following}) {{")
        self.loops.append(name)
        with self._indented():
            self._block(node.body)
        self.loops.pop()
        self._line("}")

    def _while(self, node: ast.While) -> None:
        if isinstance(node.test, ast.Constant) and node.test.value is True:
            self._line("for (;;) {")
        else:
            self._line(f"while ({terms.condition(self.term(node.test)).text}) {{")
        with self._indented():
            self._block(node.body)
        self._line("}")

    def _if(self, node: ast.If, prefix: str = "") -> None:
        self._line(f"{prefix}if ({terms.condition(self.term(node.test)).text}) {{")
        with self._indented():
            self._block(node.body)
        if (
            len(node.orelse) == 1
            and isinstance(node.orelse[0], ast.If)
            and not self.scopes.before.get(id(node.orelse[0]))
        ):
            self._if(node.orelse[0], "} else ")
            return
        if node.orelse:
            self._line("} else {")
            with self._indented():
                self._block(node.orelse)
        self._line("}")

    def _return_results(self, given: Sequence[Term]) -> None:
        """Return several numbers in a structure."""
        value, returned = Results(tuple(term.number for term in given)), self.instance.returned
        joint = value if returned is None else joined(returned, value)
        assert isinstance(joint, Results)
        self.instance.returned = joint
        texts = (
            terms.implicit(term, promoted(number.c_type)) if number.is_integer else terms.as_number(term, number.dtype)
            for term, number in zip(given, joint.parts)
        )
        made = f"({return_type(self.instance)}){{{', '.join(term.text for term in texts)}}};"
        if sets_results(self.instance):
            self._line(f"*{RESULTS} = {made}")
            self._line("return;")
        else:
            self._line(f"return {made}")

    def _return(self, node: ast.Return, is_last: bool) -> None:
        if node.value is None or (isinstance(node.value, ast.Constant) and node.value.value is None):
            if not is_last:
                self._line("return;")
            return
        if isinstance(node.value, ast.Tuple):
            self._return_results([self.term(part) for part in node.value.elts])
            return
        term = self.term(node.value)
        value = term.value
        returned = self.instance.returned
        self.instance.returned = value if returned is None else joined(returned, value)
        self.instance.returns.add(term.text)
        if self.instance.is_void:
            if not is_last:
                self._line("return;")
            return
        if isinstance(value, Number):
            assert isinstance(self.instance.returned, Number)
            if self.instance.returned.is_integer:
                term = terms.implicit(term, return_type(self.instance))
            else:
                term = terms.as_number(term, self.instance.returned.dtype)
        self._line(f"return {term.text};")


def names_of_target(target: ast.expr) -> str:
    """Return the variable that is assigned, or whose elements are."""
    return target.id if isinstance(target, ast.Name) else names_of_target(target.value)  # type: ignore[attr-defined]


def _elements(value: ast.expr) -> list[ast.expr]:
    """Return the elements of a tuple. A choice between tuples becomes a choice for each element."""
    if isinstance(value, ast.Tuple):
        return value.elts
    if isinstance(value, ast.IfExp):
        sides = zip(_elements(value.body), _elements(value.orelse))
        return [ast.copy_location(ast.IfExp(value.test, *pair), value) for pair in sides]
    raise TranslationError("only tuples can be unpacked")


def _depend(targets: Sequence[ast.expr], values: Sequence[ast.expr]) -> bool:
    """Whether a value may depend on an earlier target."""
    for place, value in enumerate(values):
        earlier = targets[:place]
        names = names_in(value)
        if any(isinstance(target, ast.Name) and target.id in names for target in earlier):
            return True
        loads = any(isinstance(part, ast.Subscript) for part in nodes_in(value))
        if loads and any(isinstance(target, ast.Subscript) for target in earlier):
            return True
    return False


def _range_arguments(node: ast.expr) -> tuple[ast.expr, ast.expr, ast.expr]:
    """Return start, stop and step of a loop's range."""
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "range"):
        raise TranslationError("loops must use range(...)")
    zero, one = ast.Constant(0), ast.Constant(1)
    if len(node.args) == 1:
        return zero, node.args[0], one
    return node.args[0], node.args[1], node.args[2] if len(node.args) == 3 else one


def _may_change(bound: ast.expr, loop: ast.For) -> bool:
    """Whether a loop may change a variable that its bound depends on."""
    if any(isinstance(part, (ast.Subscript, ast.Call)) for part in nodes_in(bound)):
        return True
    return not assigned_in(loop).isdisjoint(names_in(bound))


def _goes_up(step: Term) -> bool:
    return step.constant is None or step.constant > 0


def _counted(start: Term, stop: Term, step: Term) -> Range:
    """Return the range of a loop variable."""
    first, last = start.number.range, stop.number.range
    lowest, highest = (first.lowest, last.highest - 1) if _goes_up(step) else (last.lowest + 1, first.highest)
    return Range(lowest, max(lowest, highest))
