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

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tflm import delegates, libraries, releases, schema, targets
from tflm.errors import (
    ArenaError,
    ArenaExhausted,
    ArgumentError,
    DataError,
    DelegateError,
    FirmwareError,
    InterpreterError,
    ModelError,
    OperatorError,
    PlanFileError,
    PlanIgnored,
    ResolverError,
    RewriteError,
    TensorError,
    TensorIndexError,
    TflmError,
    UnresolvedOperator,
    VersionAssumed,
)
from tflm.kernels import KernelContext, Node, Registration
from tflm.kernels.reference.ethos_u import ethos_u
from tflm.memory.buffer import Buffer as PlannedBuffer
from tflm.memory.tensor import TfLiteEvalTensor, TfLiteTensor
from tflm.runtime.micro_allocator import MicroAllocator
from tflm.runtime.micro_interpreter import MicroInterpreter
from tflm.runtime.micro_measurement import SeparateArenas, measure_arena, measure_separate_arenas
from tflm.runtime.micro_measurement_report import ArenaMeasurement, Peak
from tflm.runtime.micro_op_resolver import AllOpsResolver, MicroMutableOpResolver
from tflm.runtime.micro_profiler import MicroProfiler
from tflm.runtime.recorded_allocations import RecordedAllocation, RecordedAllocationType
from tflm.runtime.recording_micro_allocator import RecordingMicroAllocator
from tflm.schema.builder import ModelBuilder, quantized
from tflm.schema.model import Model, verify

if TYPE_CHECKING:
    from tflm import boards
    from tflm.application.fit import Fit, fit
    from tflm.application.fit_search import FitStep
    from tflm.boards.board_fit import BoardFit, board_fit
    from tflm.boards.device_check import DeviceFinding, check_device
    from tflm.evaluation import CalibrationReport, Evaluation, calibrate_report, evaluate
    from tflm.firmware.flash import Flash, flash
    from tflm.firmware.instructions import Estimate, estimate
    from tflm.planning import ModelPlan, plan
    from tflm.rewriting import TiledModel, TiledStage, fold, resize, strip, tile
    from tflm.rewriting.compression import CompressedModel, CompressedTensor, compress
    from tflm.schema.versioning.update import update_versions

    __version__: str

__all__ = [
    "AllOpsResolver",
    "ArenaError",
    "ArenaExhausted",
    "ArenaMeasurement",
    "ArgumentError",
    "BoardFit",
    "CalibrationReport",
    "CompressedModel",
    "CompressedTensor",
    "DataError",
    "DelegateError",
    "DeviceFinding",
    "Estimate",
    "Evaluation",
    "FirmwareError",
    "Fit",
    "FitStep",
    "Flash",
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
    "PlanIgnored",
    "PlannedBuffer",
    "RecordedAllocation",
    "RecordedAllocationType",
    "RecordingMicroAllocator",
    "Registration",
    "ResolverError",
    "RewriteError",
    "SeparateArenas",
    "TensorError",
    "TensorIndexError",
    "TfLiteEvalTensor",
    "TfLiteTensor",
    "TflmError",
    "TiledModel",
    "TiledStage",
    "UnresolvedOperator",
    "VersionAssumed",
    "__version__",
    "board_fit",
    "boards",
    "calibrate_report",
    "check_device",
    "compress",
    "delegates",
    "estimate",
    "ethos_u",
    "evaluate",
    "fit",
    "flash",
    "fold",
    "libraries",
    "measure_arena",
    "measure_separate_arenas",
    "plan",
    "quantized",
    "releases",
    "resize",
    "schema",
    "strip",
    "targets",
    "tile",
    "update_versions",
    "verify",
]


_LATER = {
    "tflm.boards.board_fit": ("BoardFit", "board_fit"),
    "tflm.boards.device_check": ("DeviceFinding", "check_device"),
    "tflm.evaluation": ("CalibrationReport", "Evaluation", "calibrate_report", "evaluate"),
    "tflm.firmware.flash": ("Flash", "flash"),
    "tflm.firmware.instructions": ("Estimate", "estimate"),
    "tflm.planning": ("ModelPlan", "plan"),
    "tflm.application.fit": ("Fit", "fit"),
    "tflm.application.fit_search": ("FitStep",),
    "tflm.rewriting": ("TiledModel", "TiledStage", "fold", "resize", "strip", "tile"),
    "tflm.rewriting.compression": ("CompressedModel", "CompressedTensor", "compress"),
    "tflm.schema.versioning.update": ("update_versions",),
}
"""Names of `__all__` that are imported on first use, by module; running a model needs none of them."""


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version  # takes a while to load

        return version("pytflm")
    if name == "boards":
        return import_module("tflm.boards")
    for module, names in _LATER.items():
        if name in names:
            return getattr(import_module(module), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
