"""TensorFlow Lite Micro in Python: run `.tflite` models in a fixed arena, with the integers and the bytes of a device.

import tflm

model = tflm.Model.from_file("hello_world_int8.tflite")
resolver = tflm.MicroMutableOpResolver(1)
resolver.add_fully_connected()
interpreter = tflm.MicroInterpreter(model, resolver, bytearray(2048))
interpreter.allocate_tensors()
interpreter.input(0).data[:] = 42
interpreter.invoke()
print(interpreter.output(0).dequantized(), interpreter.arena_used_bytes())
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tflm import schema, targets
from tflm.errors import (
    ArenaError,
    ArenaExhausted,
    InterpreterError,
    ModelError,
    OperatorError,
    PlanFileError,
    ResolverError,
    TensorError,
    TensorIndexError,
    TflmError,
    UnresolvedOperator,
)
from tflm.kernels import KernelContext, Node, Registration
from tflm.kernels.ethos_u import ethos_u
from tflm.memory.tensor import TfLiteEvalTensor, TfLiteTensor
from tflm.micro_allocator import (
    MicroAllocator,
    PlannedBuffer,
    RecordedAllocation,
    RecordedAllocationType,
    RecordingMicroAllocator,
)
from tflm.micro_interpreter import MicroInterpreter
from tflm.micro_measurement import ArenaMeasurement, Peak, measure_arena
from tflm.micro_op_resolver import AllOpsResolver, MicroMutableOpResolver
from tflm.micro_profiler import MicroProfiler
from tflm.schema.builder import ModelBuilder, quantized
from tflm.schema.model import Model, verify

if TYPE_CHECKING:
    from tflm.planning import ModelPlan, plan

__all__ = [
    "AllOpsResolver",
    "ArenaError",
    "ArenaExhausted",
    "ArenaMeasurement",
    "InterpreterError",
    "KernelContext",
    "MicroAllocator",
    "MicroInterpreter",
    "MicroMutableOpResolver",
    "MicroProfiler",
    "Model",
    "ModelBuilder",
    "ModelError",
    "ModelPlan",
    "Node",
    "OperatorError",
    "Peak",
    "PlanFileError",
    "PlannedBuffer",
    "RecordedAllocation",
    "RecordedAllocationType",
    "RecordingMicroAllocator",
    "Registration",
    "ResolverError",
    "TensorError",
    "TensorIndexError",
    "TfLiteEvalTensor",
    "TfLiteTensor",
    "TflmError",
    "UnresolvedOperator",
    "ethos_u",
    "measure_arena",
    "plan",
    "quantized",
    "schema",
    "targets",
    "verify",
]


def __getattr__(name: str) -> Any:
    """What of `__all__` is imported when it is first used."""
    if name in ("ModelPlan", "plan"):
        from tflm import planning

        return getattr(planning, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
