"""The sentences with which a checker of `tflm.testing` reports what is wrong."""

from __future__ import annotations

import ast
import inspect
import re
from types import ModuleType

from recorded_reports import CHECKS, recorded


def sentences(module: ModuleType) -> dict[str, re.Pattern[str]]:
    """A pattern for each sentence in a module's calls of `_fail`, by its text in the source."""
    nodes = [node for node in ast.walk(ast.parse(inspect.getsource(module))) if isinstance(node, ast.Call)]
    calls = [node for node in nodes if isinstance(node.func, ast.Attribute) and node.func.attr == "_fail"]
    return {ast.unparse(call.args[0]): re.compile(_pattern(call.args[0]), re.DOTALL) for call in calls}


def _pattern(text: ast.expr) -> str:
    parts = text.values if isinstance(text, ast.JoinedStr) else [text]
    return "".join(re.escape(str(part.value)) if isinstance(part, ast.Constant) else ".+" for part in parts)


def unused_sentences(module: ModuleType, checker: str) -> list[str]:
    """The sentences that report none of the faults that are recorded of a checker."""
    reports = [text.splitlines()[0] for call, text in recorded(CHECKS).items() if call.startswith(checker)]
    return [text for text, each in sentences(module).items() if not any(map(each.fullmatch, reports))]
