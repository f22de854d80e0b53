"""What a device has no use for, left out of a model's file."""

from __future__ import annotations

from tflm.rewriting.graph import Graph
from tflm.schema.model import Model, require_model
from tflm.schema.offline_plan import METADATA_NAME
from tflm.schema.patch import with_data_inside

TOOLS_METADATA = frozenset({"min_runtime_version", "CONVERSION_METADATA"})
"""Entries that converters leave for tools."""


def strip(model: Model) -> bytes:
    """The bytes of a model without what TFLM does not read.

    Names of tensors other than inputs and outputs, minima and maxima from before quantization, the names of subgraphs,
    the description, entries that converters leave for tools, and constants that nobody reads. A memory plan stays.

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
