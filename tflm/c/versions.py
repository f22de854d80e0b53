"""Versions of a model with the same results, of which the one whose program takes the least RAM is compiled."""

from __future__ import annotations

from typing import NamedTuple

from tflm.c.kernel_choice import ALL_GENERATED
from tflm.c.planner import MINIMUM_ALIGNMENT, CompileOptions, Planner
from tflm.graph import Graph, operator_origins, reordered
from tflm.kernels.overlap import TensorFacts
from tflm.planning.operator_order import smaller_order
from tflm.rewriting.fold import fold_pads_explicitly
from tflm.rewriting.simplify import simplified
from tflm.schedule.normal_form import separate_parts
from tflm.schema.model import Model
from tflm.targets import align_up


class ModelVersion(NamedTuple):
    """A form of a model, and for each of its operators the index in the original model."""

    model: Model
    origins: tuple[int, ...]


def smallest_version(model: Model, planner: Planner) -> ModelVersion:
    """Return the version of a model whose program takes the least RAM: as it is, after `fold`, with a SLICE for each
    part of a SPLIT, or with its operators in another order."""
    folded, separate = Graph(model), _with_separate_parts(model)
    firsts = [ModelVersion(model, tuple(range(len(model.subgraphs[0].operators or ()))))]
    if simplified(folded, fold_pads_explicitly):
        firsts.append(_version(model, folded))
    firsts += [] if separate is None else [_version(model, separate)]
    versions = [each for first in firsts for each in dict.fromkeys((first, _reordered(first)))]
    if len(versions) == 1:
        return versions[0]
    return min(versions, key=lambda each: planner.planned(each.model, CompileOptions(), ALL_GENERATED).ram_bytes)


def _version(model: Model, graph: Graph) -> ModelVersion:
    """Return the version of a model that a rewritten graph makes."""
    rewritten = graph.model(drop_unused=True)
    return ModelVersion(rewritten, operator_origins(model, rewritten, graph.moved))


def _with_separate_parts(model: Model) -> Graph | None:
    """Return the model's graph with a SLICE for each part of a SPLIT, which can keep rows; None unless all SPLITs are
    of images."""
    graph = Graph(model)
    splits = [operator for operator in graph.operators if model.operator_name(operator) in SPLITS]
    if not splits or any(len(graph.shape((operator.outputs or ())[0])) != IMAGE_RANK for operator in splits):
        return None
    separate_parts(graph, graph.outputs)
    return graph


SPLITS = "SPLIT", "SPLIT_V"

IMAGE_RANK = 4

SETS_OF_OPERATORS = 64
"""Maximum number of sets of operators that the search for an order keeps after each step."""


def _reordered(version: ModelVersion) -> ModelVersion:
    """Return the model with its operators in an order with a lower peak of tensors; the same model if none is found."""
    model, origins = version
    main = model.subgraphs[0]
    graph = Graph(model)
    sizes = {
        i: align_up(TensorFacts(table.type, table.shape or ()).bytes, MINIMUM_ALIGNMENT)
        for i, table in enumerate(main.tensors or ())
        if not graph.is_constant(i)
    }
    found = smaller_order(model, sizes, {}, max_sets=SETS_OF_OPERATORS)
    return (
        version
        if found is None
        else ModelVersion(reordered(model, found.order), tuple(origins[i] for i in found.order))
    )
