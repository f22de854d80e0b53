"""Removes data that a device does not need from a model file."""

from __future__ import annotations

from tflm.graph import Graph
from tflm.schema.model import Model, require_model
from tflm.schema.patch import with_data_inside
from tflm.schema.tables import METADATA_NAME

TOOLS_METADATA = frozenset({"min_runtime_version", "CONVERSION_METADATA"})
"""Metadata entries that converters write for tools."""


def strip(model: Model) -> bytes:
    """The bytes of a model without data that TFLM does not read.

    Removes names of tensors other than inputs and outputs, minima and maxima from before quantization, names of
    subgraphs, the description, converters' metadata for tools, and unused constants. Keeps a memory plan.

    Raises:
        ModelError: the model can't be written.
    """
    model = with_data_inside(require_model(model))
    graph = Graph(model)
    graph.forget_names(TOOLS_METADATA)
    plan = model.metadata(METADATA_NAME)
    if plan is not None:
        graph.add_metadata(METADATA_NAME, bytes(plan))
    return min(graph.written(), bytes(model.data), key=len)
