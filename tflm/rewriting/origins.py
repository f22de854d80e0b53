"""Which operators of a model the operators of its rewritten form stand for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tflm.schema.model import Model


def operator_origins(model: Model, rewritten: Model, moved: Mapping[int, int]) -> tuple[int, ...]:
    """Return an index in the first subgraph of a model for each operator of the rewritten model's.

    An operator stands for the one that computed its output. If that one was merged into it, it stands for the nearest
    of its own kind before that. An operator that a rewrite added has the index of the next operator.

    Args:
        model: the original model.
        rewritten: its rewritten form.
        moved: index in the rewritten model of each tensor that is left.
    """
    before, after = model.subgraphs[0].operators or [], rewritten.subgraphs[0].operators or []
    tensors = {new: old for old, new in moved.items()}
    makers = {tensor: i for i, operator in enumerate(before) for tensor in operator.outputs or ()}
    made = {tensors.get(tensor) for operator in after for tensor in operator.outputs or ()}
    without_outputs = (i for i, operator in enumerate(before) if not operator.outputs)

    def merged(output: int | None) -> Iterator[int]:
        """Yield the operators that computed an output and, nearest first, its removed inputs."""
        pending = [output]
        for tensor in pending:
            if tensor in makers:
                yield makers[tensor]
                inputs = before[makers[tensor]].inputs or ()
                pending += [each for each in inputs if each not in made and each not in pending]

    found: list[int | None] = []
    for operator in after:
        if not operator.outputs:
            found.append(next(without_outputs, None))
            continue
        replaced = list(merged(tensors.get(operator.outputs[0])))
        kind = rewritten.operator_name(operator)
        alike = (i for i in replaced if model.operator_name(before[i]) == kind)
        found.append(next(alike, replaced[0] if replaced else None))
    origins, following = list[int](), len(before) - 1
    for origin in reversed(found):
        following = following if origin is None else origin
        origins.append(following)
    return tuple(reversed(origins))
