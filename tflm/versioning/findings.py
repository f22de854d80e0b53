"""Find wrong statements about versions in a model. They are odd, but the model runs all the same."""

from __future__ import annotations

from collections.abc import Iterator

from tflm.errors import ModelError
from tflm.schema.tables import Model
from tflm.versioning import METADATA_NAME, brought_by, min_runtime_version, operator_versions, runtime_needed


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
