"""The result of compressing a model, and its report."""

from __future__ import annotations

from dataclasses import dataclass

from tflm.kernels.reference.decode import TFLM_DECODE
from tflm.planning.improved_model import ImprovedModel, SeparateMemories
from tflm.report import NAME, NUMBER, TEXT, Report, Table, with_thousands
from tflm.runtime.micro_measurement_report import ArenaMeasurement


@dataclass(frozen=True)
class CompressedTensor:
    """A constant that is stored compressed; sizes in bytes.

    Attributes:
        name: its name in the model.
        operator: name of the first operator that reads it.
        readers: indices of the operators that read it, in the original model; it is decoded before each.
        encoding: how it is stored.
        decoded_bytes: its size in the arena, and in the original file.
        encoded_bytes: size of its codes and metadata.
        saved_bytes: decrease of the file, without the increase for TFLM_DECODE operators.
        added_ram_bytes: growth of the arena if only this tensor is compressed.
    """

    name: str
    operator: str
    readers: tuple[int, ...]
    encoding: str
    decoded_bytes: int
    encoded_bytes: int
    saved_bytes: int
    added_ram_bytes: int


@dataclass(frozen=True)
class CompressedModel(ImprovedModel):
    """A model with compressed constants; sizes in bytes.

    Attributes:
        data: the model; unchanged if compression does not make it smaller.
        before, after: arena requirements of the original model and of this one.
        file_bytes_before: size of the original file.
        tensors: the compressed constants, in the order of their indices.
        verified_inputs: random inputs for which the outputs equal the original's.
    """

    data: bytes
    before: ArenaMeasurement
    after: ArenaMeasurement
    file_bytes_before: int
    tensors: tuple[CompressedTensor, ...]
    verified_inputs: int
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


def shown(compressed: CompressedModel, name: str = "compressed model", is_limited: bool = False) -> Report:
    """Report a compressed model: sizes before and after, and each compressed tensor.

    Args:
        is_limited: whether RAM or flash was limited.
    """
    before, after = compressed.before, compressed.after
    sizes = [
        ("file", compressed.file_bytes_before, len(compressed.data)),
        ("smallest arena", before.minimum_arena_bytes, after.minimum_arena_bytes),
        ("  head", before.head_bytes, after.head_bytes),
        ("  tail", before.tail_bytes, after.tail_bytes),
    ]
    tables = [Table("", {"": TEXT, "before": NUMBER, "after": NUMBER}, sizes)]
    title = f"{name} on {after.target.name}"
    if not compressed.tensors:
        within = " within these limits" if is_limited else ""
        return Report(title, [], tables, [f"no constant can be stored in fewer bytes{within}: the model is unchanged"])
    tables.append(_tensor_table(compressed))
    facts = [
        ("the firmware's resolver needs", ", ".join(compressed.needed_operators)),
        ("checked", f"outputs for {compressed.verified_inputs} random inputs are identical"),
    ]
    decoded = sum(tensor.decoded_bytes * len(tensor.readers) for tensor in compressed.tensors)
    facts.append(("decoded in each inference", with_thousands(decoded)))
    return Report(title, facts, tables, [])


def _tensor_table(compressed: CompressedModel) -> Table:
    columns = {
        "read by": NUMBER,
        "encoding": TEXT,
        "decoded": NUMBER,
        "encoded": NUMBER,
        "flash saved": NUMBER,
        "RAM added": NUMBER,
        "tensor": NAME,
    }
    rows = [
        (
            ", ".join(map(str, tensor.readers)),
            tensor.encoding,
            tensor.decoded_bytes,
            tensor.encoded_bytes,
            tensor.saved_bytes,
            tensor.added_ram_bytes,
            tensor.name,
        )
        for tensor in sorted(compressed.tensors, key=lambda tensor: tensor.readers)
    ]
    return Table("Compressed tensors; RAM of each one alone", columns, rows)
