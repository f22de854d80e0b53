"""The results file: one record for each sample, in the order of the samples, from which an interrupted run resumes.

A line of JSON identifies the model and the form of its outputs. Records of a fixed size follow: whether the sample
could be run, its outputs, its label, and a checksum. After a crash, the file is valid up to some record.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tflm.errors import DataError
from tflm.evaluation.runner import Outcome
from tflm.memory.tensor import TfLiteTensor

FORMAT = "tflm evaluation 1"
NO_LABEL = np.iinfo(np.int64).min
CHECKSUM = "checksum"


class ResultsFile:
    """Results of a model over a data set, on disk.

    Args:
        path: the file; results of the same model are continued, otherwise it is created.
        model: the model's bytes.
        outputs: the model's outputs.

    Raises:
        DataError: the file has other contents.
        OSError: it can't be read or written.
    """

    def __init__(self, path: Path, model: bytes, outputs: Sequence[TfLiteTensor]):
        self.path = path
        self.dtype = record_type(outputs)
        self._outputs = len(outputs)
        head = {"format": FORMAT, "model": hashlib.sha256(model).hexdigest(), "record": str(self.dtype.descr)}
        self._head = json.dumps(head).encode() + b"\n"
        self.count = self._whole_records()
        self._file = open(path, "r+b" if self.count is not None else "wb")  # noqa: SIM115  # closed by close()
        if self.count is None:
            self.count = 0
            self._file.write(self._head)
        else:
            self._file.seek(self._end)
            self._file.truncate()

    @property
    def _end(self) -> int:
        return len(self._head) + (self.count or 0) * self.dtype.itemsize

    def _whole_records(self) -> int | None:
        """The number of valid records from an earlier run before the first invalid one; None if the file does not
        exist.
        """
        if not self.path.exists() or not self.path.stat().st_size:
            return None
        with open(self.path, "rb") as file:
            if file.read(len(self._head)) != self._head:
                raise DataError(f"{self.path}: not a results file of this model; use another file, or remove it")
        size = (self.path.stat().st_size - len(self._head)) // self.dtype.itemsize
        if not size:
            return 0
        records = np.memmap(self.path, self.dtype, "r", len(self._head), (size,))
        good = (is_good(record) for record in records)
        return next((place for place, whole in enumerate(good) if not whole), size)

    def append(self, outcomes: Sequence[Outcome]) -> None:
        """Write the results of the next samples.

        Raises:
            DataError: the disk is full or can't be written; earlier records stay valid.
        """
        records = np.zeros(len(outcomes), self.dtype)
        records["ran"] = [outcome.outputs is not None for outcome in outcomes]
        records["label"] = [NO_LABEL if outcome.label is None else outcome.label for outcome in outcomes]
        for i in range(self._outputs):
            values = [outcome.outputs[i] for outcome in outcomes if outcome.outputs is not None]
            if values:
                records[f"output{i}"][records["ran"]] = values
        records[CHECKSUM] = [checksum(record) for record in records]
        try:
            self._file.write(records.tobytes())
            self._file.flush()
        except OSError as error:
            with contextlib.suppress(OSError):
                self._file.close()  # closing would otherwise write its buffer again
            raise DataError(
                f"{self.path}: {error.strerror}; {self.count} samples are kept; free space and run the same command "
                "to resume"
            ) from error
        self.count = (self.count or 0) + len(outcomes)

    def records(self) -> npt.NDArray[Any]:
        """All records, mapped from the file."""
        if not self.count:
            return np.zeros(0, self.dtype)
        return np.memmap(self.path, self.dtype, "r", len(self._head), (self.count,))

    def close(self) -> None:
        """Write everything to the disk."""
        if not self._file.closed:
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()


def record_type(outputs: Sequence[TfLiteTensor]) -> np.dtype[Any]:
    """The fields of a record: `ran`, `label`, the outputs, and a checksum of them."""
    fields: list[Any] = [("ran", "?"), ("label", "<i8")]
    fields += [(f"output{i}", tensor.data.dtype, tensor.data.shape) for i, tensor in enumerate(outputs)]
    return np.dtype([*fields, (CHECKSUM, "<u4")])


def checksum(record: Any) -> int:
    """The CRC-32 of a record without its checksum."""
    return zlib.crc32(record.tobytes()[: -np.dtype(np.uint32).itemsize])


def is_good(record: Any) -> bool:
    """Whether the checksum of a record is right."""
    return bool(record[CHECKSUM] == checksum(record))
