"""The result of compressing a model, and its report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tflm.kernels.reference.decode import TFLM_DECODE
from tflm.planning.improved_model import ImprovedModel, SeparateMemories
from tflm.report import NAME, NUMBER, TEXT, Figure, Report, Table, with_thousands
from tflm.runtime.micro_measurement_report import CHANGES, FILE_CHANGE, ArenaMeasurement


@dataclass(frozen=True)
class CompressedTensor:
    """A constant that is stored compressed; sizes in bytes.

    Attributes:
        name: its name in the model.
        operator: name of the first operator that reads it.
        readers: indices of the operators that read it, in the same subgraph of the original model; it is decoded before
            each.
        encoding: how it is stored.
        decoded_bytes: its size in the arena, and in the original file.
        encoded_bytes: size of its codes and metadata.
        saved_bytes: decrease of the file, without the increase for TFLM_DECODE operators.
        added_ram_bytes: growth of the arena if only this tensor is compressed.
        subgraph: the index of its subgraph.
    """

    name: str
    operator: str
    readers: tuple[int, ...]
    encoding: str
    decoded_bytes: int
    encoded_bytes: int
    saved_bytes: int
    added_ram_bytes: int
    subgraph: int = 0


@dataclass(frozen=True)
class CompressedModel(ImprovedModel):
    """A model with compressed constants; sizes in bytes.

    Attributes:
        data: the model; unchanged if compression does not make it smaller.
        before, after: arena requirements of the original model and of this one.
        file_bytes_before: size of the original file.
        tensors: the compressed constants, in the order of their indices.
        verified_inputs: random inputs for which the outputs equal the original's.
        decompression_memory: memory outside the arena that both arenas assume.
    """

    data: bytes
    before: ArenaMeasurement
    after: ArenaMeasurement
    file_bytes_before: int
    tensors: tuple[CompressedTensor, ...]
    verified_inputs: int
    decompression_memory: int = 0
    separate: SeparateMemories | None = None

    @property
    def saved_bytes(self) -> int:
        """Decrease of the file."""
        return self.file_bytes_before - len(self.data)

    @property
    def needed_operators(self) -> tuple[str, ...]:
        """Names of operators that the resolver must have in addition to the original's."""
        return (TFLM_DECODE.name,) if self.tensors else ()

    def __repr__(self) -> str:
        return (
            f"CompressedModel({len(self.data)} bytes, {self.file_bytes_before} before, {len(self.tensors)} tensors, "
            f"{self.minimum_arena_bytes} bytes needed on {self.after.target.name}, {self.minimum_arena_bytes_before} "
            "before)"
        )

    def _repr_html_(self) -> str:
        return shown(self).html()


def shown(
    compressed: CompressedModel,
    name: str = "compressed model",
    is_limited: bool = False,
    instructions: Sequence[int] | None = None,
) -> Report:
    """Report a compressed model: sizes before and after, and each compressed tensor.

    Args:
        is_limited: whether RAM or flash was limited.
        instructions: instructions to decode each tensor in an inference; None if unknown.
    """
    tables = [Table.of_changes(change.row(compressed) for change in (FILE_CHANGE, *CHANGES))]
    title = f"{name} on {compressed.after.target.name}"
    if not compressed.tensors:
        within = " within these limits" if is_limited else ""
        return Report(title, [], tables, [f"no constant can be stored in fewer bytes{within}: the model is unchanged"])
    tables.append(_tensor_table(compressed, instructions))
    facts = [
        ("the firmware's resolver needs", ", ".join(compressed.needed_operators)),
        ("checked", f"outputs for {compressed.verified_inputs} random inputs are identical"),
    ]
    decoded = sum(tensor.decoded_bytes * len(tensor.readers) for tensor in compressed.tensors)
    facts.append(("decoded in each inference", with_thousands(decoded)))
    if compressed.decompression_memory:
        facts.append(("decompression memory", f"{with_thousands(compressed.decompression_memory)}, outside the arena"))
    return Report(title, facts, tables, [])


def _tensor_table(compressed: CompressedModel, instructions: Sequence[int] | None) -> Table:
    costs = [None] * len(compressed.tensors) if instructions is None else instructions
    has_several = any(tensor.subgraph for tensor in compressed.tensors)
    cost_of = dict(zip(compressed.tensors, costs))
    return Table.of(
        "Compressed tensors; RAM of each one alone"
        + ("" if instructions is None else "; instructions to decode it in an inference"),
        sorted(compressed.tensors, key=lambda tensor: (tensor.subgraph, tensor.readers)),
        Figure("subgraph", NUMBER, "subgraph") if has_several else None,
        Figure("read by", NUMBER, lambda tensor: ", ".join(map(str, tensor.readers))),
        Figure("encoding", TEXT, "encoding"),
        Figure("decoded", NUMBER, "decoded_bytes"),
        Figure("encoded", NUMBER, "encoded_bytes"),
        Figure("flash saved", NUMBER, "saved_bytes"),
        Figure("RAM added", NUMBER, "added_ram_bytes"),
        None if instructions is None else Figure("instructions", NUMBER, cost_of.__getitem__),
        Figure("tensor", NAME, "name"),
    )
