"""The `Interpreter` of the `tflite-micro` package, run by this one: changing the import is enough.

    from tflm.compat.tflite_micro import runtime

Method names, arguments, results and the kinds of errors are those of that package. The arena has the same layout
(target `host-wheel`), so that `print_allocations` prints the same figures.
"""

from __future__ import annotations

import enum
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

from tflm import targets
from tflm.errors import InterpreterError, TensorError, TensorIndexError, TflmError
from tflm.kernels import Registration
from tflm.memory.tensor import TfLiteTensor
from tflm.runtime.allocator_structures import RecordedAllocationType
from tflm.runtime.micro_interpreter import MicroInterpreter
from tflm.runtime.micro_op_resolver import AllOpsResolver
from tflm.runtime.recording_micro_allocator import RecordingMicroAllocator
from tflm.schema.model import Model

ARENA_BYTES_PER_MODEL_BYTE = 10
"""Default size of the arena, relative to the size of the model."""

COUNTED_AS = {
    RecordedAllocationType.PERSISTENT_TENSOR_DATA: "tensors",
    RecordedAllocationType.NODE_AND_REGISTRATION_ARRAY: "NodeAndRegistration structs",
}
"""The unit that `print_allocations` counts for each type; "allocations" for all others."""


class InterpreterConfig(enum.Enum):
    """Whether an interpreter records its allocations, or also keeps every tensor after an invoke."""

    kAllocationRecording = 0  # noqa: N815  # the package's own names
    kPreserveAllTensors = 1  # noqa: N815


class Interpreter:
    """A model, ready to run.

    Args:
        model_data: the bytes of a `.tflite` file.
        custom_op_registerers: a list of registrations of custom operators, instead of names of C++ functions.
        arena_size: bytes; by default (None), ten times the size of the model.
        intrepreter_config: see `InterpreterConfig`.
        alt_decompression_memory_size: bytes outside the arena for the tensors that DECODE writes; 0 for none.

    Raises:
        ValueError: an argument can't be used.
        RuntimeError: the model is invalid, has an unknown operator, or does not fit in the arena.
    """

    def __init__(
        self,
        model_data: Any,
        custom_op_registerers: Sequence[str | Registration],
        arena_size: int | None,
        intrepreter_config: InterpreterConfig = InterpreterConfig.kAllocationRecording,
        alt_decompression_memory_size: int = 0,
    ):
        if model_data is None:
            raise ValueError("Model must not be None")
        if not isinstance(custom_op_registerers, list) or not all(
            isinstance(registerer, (str, Registration)) for registerer in custom_op_registerers
        ):
            raise ValueError("Custom ops registerers must be a list of strings, or of tflm.Registration objects")
        resolver = AllOpsResolver()
        for registerer in custom_op_registerers:
            if isinstance(registerer, str):
                reason = "C++ functions are not supported; pass the operator's tflm.Registration"
                raise RuntimeError(f"TFLM could not register custom op via {registerer}: {reason}")
            resolver.add_custom(registerer)
        size = len(model_data) * ARENA_BYTES_PER_MODEL_BYTE if arena_size is None else arena_size
        keep = intrepreter_config is InterpreterConfig.kPreserveAllTensors
        with _errors_of_the_package():
            model = Model(model_data, checks="tflm")
            planner = "linear" if keep else "greedy"
            self._allocator = RecordingMicroAllocator(np.zeros(size, np.uint8), planner, targets.HOST_WHEEL)
            memory = np.zeros(alt_decompression_memory_size, np.uint8) if alt_decompression_memory_size else None
            self._interpreter = MicroInterpreter(model, resolver, self._allocator, decompression_memory=memory)
            self._interpreter.allocate_tensors()
        self._keeps_tensors = keep

    @classmethod
    def from_file(
        cls,
        model_path: str | os.PathLike[str],
        custom_op_registerers: Sequence[str | Registration] | None = None,
        arena_size: int | None = None,
        intrepreter_config: InterpreterConfig = InterpreterConfig.kAllocationRecording,
        alt_decompression_memory_size: int = 0,
    ) -> Interpreter:
        """An interpreter of the model in a file; see `Interpreter` for the arguments.

        Raises:
            ValueError: the file does not exist.
            RuntimeError: as for `Interpreter`.
        """
        if model_path is None or not os.path.isfile(model_path):
            raise ValueError("Invalid model file path")
        with open(model_path, "rb") as file:
            data = file.read()
        return cls(data, custom_op_registerers or [], arena_size, intrepreter_config, alt_decompression_memory_size)

    @classmethod
    def from_bytes(
        cls,
        model_data: Any,
        custom_op_registerers: Sequence[str | Registration] | None = None,
        arena_size: int | None = None,
        intrepreter_config: InterpreterConfig = InterpreterConfig.kAllocationRecording,
        alt_decompression_memory_size: int = 0,
    ) -> Interpreter:
        """An interpreter of the model in memory; see `Interpreter` for the arguments and errors."""
        return cls(
            model_data, custom_op_registerers or [], arena_size, intrepreter_config, alt_decompression_memory_size
        )

    def print_allocations(self) -> None:
        """Print the allocations in the arena to standard error."""
        allocator = self._allocator
        figures = {"total": allocator.used_bytes(), "head": allocator.head_bytes, "tail": allocator.tail_bytes}
        for name, size in figures.items():
            print(f"[RecordingMicroAllocator] Arena allocation {name} {size} bytes", file=sys.stderr)
        for kind, record in allocator.records.items():
            if record.used_bytes:
                requested = f"{record.requested_bytes} bytes for {record.count} {COUNTED_AS.get(kind, 'allocations')}"
                used = f"'{kind.value}' used {record.used_bytes} bytes with alignment overhead (requested {requested})"
                print(f"[RecordingMicroAllocator] {used}", file=sys.stderr)

    def invoke(self) -> int:
        """Run the model; returns 0.

        Raises:
            RuntimeError: an operator fails.
        """
        with _errors_of_the_package():
            self._interpreter.invoke()
        return 0

    def reset(self) -> int:
        """Restore the model's state before the first invoke; returns 0."""
        with _errors_of_the_package():
            self._interpreter.reset()
        return 0

    def set_input(self, input_data: Any, index: int) -> None:
        """Copy an array to input `index`.

        Raises:
            ValueError: its type or shape differs from that of the input.
            IndexError: the input does not exist.
        """
        if input_data is None:
            raise ValueError("Input data must not be None")
        _require_index(index)
        with _errors_of_the_package():
            tensor = self._interpreter.input(index)
        values = np.asarray(input_data, None)
        if values.dtype != tensor.data.dtype:
            reason = f"Got value of type {values.dtype} but expected type {tensor.data.dtype} for input {index}"
            raise ValueError(f"Cannot set tensor: {reason}")
        if values.shape != tensor.data.shape:
            reason = f"Dimension mismatch. Got {list(values.shape)} but expected {list(tensor.dims)} of input {index}"
            raise ValueError(f"Cannot set tensor: {reason}")
        tensor.data[...] = values

    def get_output(self, index: int) -> npt.NDArray[Any]:
        """A copy of output `index`.

        Raises:
            IndexError: there is no such output.
        """
        _require_index(index)
        with _errors_of_the_package():
            data = self._interpreter.output(index).data
        return np.array(data, data.dtype)

    def GetTensor(self, tensor_index: int, subgraph_index: int) -> dict[str, Any]:  # noqa: N802
        """A tensor after an invoke: `dtype`, `shape`, and a copy of its elements as `tensor_data`.

        Raises:
            RuntimeError: the interpreter was not made with `InterpreterConfig.kPreserveAllTensors`.
            IndexError: there is no such tensor.
        """
        if not self._keeps_tensors:
            raise RuntimeError("GetTensor() needs an interpreter made with InterpreterConfig.kPreserveAllTensors")
        with _errors_of_the_package():
            tensor = self._interpreter.get_tensor(tensor_index, subgraph_index)
        data = np.array(tensor.data, tensor.data.dtype)
        return {"dtype": data.dtype.type, "shape": np.array(data.shape, np.int32), "tensor_data": data}

    def get_input_details(self, index: int) -> dict[str, Any]:
        """The `shape`, `dtype` and `quantization_parameters` (scales, zero_points, quantized_dimension) of an input.

        Raises:
            IndexError: there is no such input.
        """
        return self._details(self._interpreter.input, index)

    def get_output_details(self, index: int) -> dict[str, Any]:
        """The same details of an output.

        Raises:
            IndexError: there is no such output.
        """
        return self._details(self._interpreter.output, index)

    def _details(self, tensor_at: Callable[[int], TfLiteTensor], index: int) -> dict[str, Any]:
        _require_index(index)
        with _errors_of_the_package():
            return _details(tensor_at(index))


def _require_index(index: int | None) -> None:
    if index is None or index < 0:
        raise ValueError("Index must be a non-negative integer")


def _details(tensor: TfLiteTensor) -> dict[str, Any]:
    quantization = tensor.quantization
    return {
        "dtype": tensor.data.dtype.type,
        "shape": np.array(tensor.dims, np.int32),
        "quantization_parameters": {
            "scales": np.array(quantization.scale if quantization else (), np.float32),
            "zero_points": np.array(quantization.zero_point if quantization else (), np.int32),
            "quantized_dimension": quantization.quantized_dimension if quantization else 0,
        },
    }


@contextmanager
def _errors_of_the_package() -> Iterator[None]:
    """Raise a RuntimeError for any error of a model, like that package."""
    try:
        yield
    except TensorIndexError as error:
        raise IndexError(f"Tensor is out of bound: {error}") from error
    except (InterpreterError, TensorError):
        raise  # they are a RuntimeError and a ValueError
    except TflmError as error:
        raise RuntimeError(str(error)) from error
