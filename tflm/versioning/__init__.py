"""Versions of operators: which version each needs, which runtime introduced it, and how to update models.

`rules` computes the version that an operator needs from its `Signature`; `runtimes` lists the runtime that introduced
each version.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from tflm.errors import ModelError
from tflm.schema.enums import BuiltinOperator
from tflm.schema.tables import Buffer, Metadata, Model, Operator, OperatorCode, SubGraph, builtin_code
from tflm.schema.version_rules import Signature, signature_of
from tflm.versioning.rules import brought_by, needed_version
from tflm.versioning.runtimes import first_runtime, release

__all__ = [
    "OperatorVersion",
    "Signature",
    "brought_by",
    "first_runtime",
    "min_runtime_version",
    "needed_version",
    "operator_versions",
    "runtime_needed",
    "runtime_of",
    "set_versions",
    "signature_of",
]

METADATA_NAME = "min_runtime_version"
METADATA_BYTES = 16


@dataclass(frozen=True)
class OperatorVersion:
    """The version of one operator of a model.

    Attributes:
        subgraph_index, index: its subgraph, and its place there.
        operator: its kind.
        version: the version in the model.
        needed: the version that its options, types and shapes need; None for a custom operator, which has no rule.
    """

    subgraph_index: int
    index: int
    operator: BuiltinOperator
    version: int
    needed: int | None


def operator_versions(model: Model) -> list[OperatorVersion]:
    """The version of every operator, in the order of the subgraphs."""
    found = []
    for i, subgraph in enumerate(model.subgraphs or ()):
        for j, _, code, needed in _operators(model, subgraph):
            found.append(OperatorVersion(i, j, builtin_code(code), code.version, needed))
    return found


def runtime_of(model: Model) -> str:
    """The first TensorFlow Lite runtime that has all operators in the versions of the model; "" for none."""
    return _newest(first_runtime(found.operator, found.version) for found in operator_versions(model))


def runtime_needed(model: Model) -> str:
    """The first TensorFlow Lite runtime that has all operators in the versions that they need; "" for none."""
    return _newest(first_runtime(found.operator, found.needed or 0) for found in operator_versions(model))


def min_runtime_version(model: Model) -> str | None:
    """The runtime that the model's metadata says it needs; None if there is no such entry."""
    for entry in model.metadata or ():
        if entry.name == METADATA_NAME:
            data = (model.buffers or [])[entry.buffer].data or b""
            return bytes(data).rstrip(b"\0").decode("ascii", errors="replace")
    return None


def set_versions(model: Model, *, downgrade: bool) -> None:
    """Set the version of every builtin operator to the one it needs, and update the runtime in the metadata.

    Args:
        model: changed in place. Operators that shared a code and need different versions get codes of their own.
        downgrade: also lower versions that are higher than needed.
    """
    codes: list[OperatorCode] = []
    for subgraph in model.subgraphs or ():
        for _, operator, code, needed in _operators(model, subgraph):
            version = code.version if needed is None or (not downgrade and needed < code.version) else needed
            wanted = replace(code, version=version)
            if wanted not in codes:
                codes.append(wanted)
            operator.opcode_index = codes.index(wanted)
    model.operator_codes = codes
    _set_metadata(model, runtime_of(model))


def _operators(model: Model, subgraph: SubGraph) -> Iterator[tuple[int, Operator, OperatorCode, int | None]]:
    """Each operator with its index, its code, and the version that it needs."""
    for index, operator in enumerate(subgraph.operators or ()):
        code = (model.operator_codes or [])[operator.opcode_index]
        builtin = builtin_code(code)
        custom = builtin is BuiltinOperator.CUSTOM
        yield index, operator, code, None if custom else needed_version(signature_of(builtin, operator, subgraph))


def _newest(runtimes: Iterator[str | None]) -> str:
    return max((runtime for runtime in runtimes if runtime), key=release, default="")


def _set_metadata(model: Model, runtime: str) -> None:
    data = runtime.encode().ljust(METADATA_BYTES, b"\0")
    buffers = model.buffers = model.buffers if model.buffers is not None else [Buffer()]
    for entry in model.metadata or ():
        if entry.name == METADATA_NAME:
            # The buffer may be shared with something else, which keeps its bytes.
            entry.buffer = len(buffers)
            break
    else:
        model.metadata = [*(model.metadata or ()), Metadata(name=METADATA_NAME, buffer=len(buffers))]
    buffers.append(Buffer(data=data))


def version_findings(model: Model) -> Iterator[ModelError]:
    """A warning for each operator with another version than it needs, and for metadata with another runtime."""
    for found in operator_versions(model):
        if found.needed is None or found.version == found.needed:
            continue
        place = f"subgraphs[{found.subgraph_index}].operators[{found.index}]"
        brought = brought_by(found.operator, max(found.version, found.needed))
        why = f"version {max(found.version, found.needed)} brought {brought}" if brought else "nothing it has needs it"
        reason = f"{found.operator.name} says version {found.version} and needs {found.needed}: {why}"
        yield ModelError(reason, table="OperatorCode", field="version", place=place, level="warning")
    said, needed = min_runtime_version(model), runtime_needed(model)
    if said is not None and said != needed:
        reason = f"{METADATA_NAME} is {said or 'empty'}, its operators need {needed or 'none'}"
        yield ModelError(reason, table="Model", field="metadata", level="warning")
