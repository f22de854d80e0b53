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

from tflm import hooks

if TYPE_CHECKING:
    from tflm import boards, delegates, device, libraries, releases, schema, targets
    from tflm.application.fit import Fit, fit
    from tflm.application.fit_search import FitStep
    from tflm.c.compile import CompiledModel, CompiledModels, compile_model, compile_models
    from tflm.errors import (
        ArenaError,
        ArenaExhausted,
        ArenaShared,
        ArgumentError,
        CompileError,
        DataError,
        DelegateError,
        DeviceError,
        DeviceReset,
        FirmwareError,
        InterpreterError,
        ModelError,
        OperatorError,
        PlanFileError,
        PlanIgnored,
        QuantizerError,
        ResolverError,
        RewriteError,
        StreamError,
        TensorError,
        TensorIndexError,
        TflmError,
        UnresolvedOperator,
        VersionAssumed,
        WrongModel,
    )
    from tflm.evaluation import CalibrationReport, Evaluation, calibrate_report, evaluate
    from tflm.firmware.board_fit import BoardFit, board_fit
    from tflm.firmware.device_check import DeviceFinding, check_device
    from tflm.firmware.flash import Flash, flash
    from tflm.firmware.instructions import Estimate, estimate
    from tflm.kernels import KernelContext, Node, Registration
    from tflm.kernels.reference.custom import ethos_u
    from tflm.memory.buffer import Buffer as PlannedBuffer
    from tflm.memory.tensor import TfLiteEvalTensor, TfLiteTensor
    from tflm.planning import ModelPlan, plan
    from tflm.quantization import Alternative, FloatOperator, QuantizedModel, quantize
    from tflm.rewriting import TiledModel, TiledStage, fold, resize, strip, tile
    from tflm.rewriting.compression import CompressedModel, CompressedTensor, compress
    from tflm.rewriting.streaming import StreamedLayer, StreamedModel, stream
    from tflm.runtime.allocator_structures import RecordedAllocation, RecordedAllocationType
    from tflm.runtime.micro_allocator import MicroAllocator
    from tflm.runtime.micro_interpreter import MicroInterpreter
    from tflm.runtime.micro_measurement import SeparateArenas, measure_arena, measure_separate_arenas
    from tflm.runtime.micro_measurement_report import ArenaMeasurement, Peak
    from tflm.runtime.micro_op_resolver import AllOpsResolver, MicroMutableOpResolver
    from tflm.runtime.micro_profiler import MicroProfiler
    from tflm.runtime.recording_micro_allocator import RecordingMicroAllocator
    from tflm.schema.builder import ModelBuilder, quantized
    from tflm.schema.model import Model, verify
    from tflm.versioning.update import update_versions

    __version__: str

__all__ = [
    "AllOpsResolver",
    "Alternative",
    "ArenaError",
    "ArenaExhausted",
    "ArenaMeasurement",
    "ArenaShared",
    "ArgumentError",
    "BoardFit",
    "CalibrationReport",
    "CompileError",
    "CompiledModel",
    "CompiledModels",
    "CompressedModel",
    "CompressedTensor",
    "DataError",
    "DelegateError",
    "DeviceError",
    "DeviceFinding",
    "DeviceReset",
    "Estimate",
    "Evaluation",
    "FirmwareError",
    "Fit",
    "FitStep",
    "Flash",
    "FloatOperator",
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
    "QuantizedModel",
    "QuantizerError",
    "RecordedAllocation",
    "RecordedAllocationType",
    "RecordingMicroAllocator",
    "Registration",
    "ResolverError",
    "RewriteError",
    "SeparateArenas",
    "StreamError",
    "StreamedLayer",
    "StreamedModel",
    "TensorError",
    "TensorIndexError",
    "TfLiteEvalTensor",
    "TfLiteTensor",
    "TflmError",
    "TiledModel",
    "TiledStage",
    "UnresolvedOperator",
    "VersionAssumed",
    "WrongModel",
    "__version__",
    "board_fit",
    "boards",
    "calibrate_report",
    "check_device",
    "compile_model",
    "compile_models",
    "compress",
    "delegates",
    "device",
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
    "quantize",
    "quantized",
    "releases",
    "resize",
    "schema",
    "stream",
    "strip",
    "targets",
    "tile",
    "update_versions",
    "verify",
]


_PACKAGES = (
    "boards",
    "delegates",
    "device",
    "errors",
    "kernels",
    "libraries",
    "memory",
    "releases",
    "runtime",
    "schema",
    "targets",
    "testing",
)
"""Modules of this package that `import tflm` makes available."""

_LATER = {
    "tflm.application.fit": ("Fit", "fit"),
    "tflm.application.fit_search": ("FitStep",),
    "tflm.firmware.board_fit": ("BoardFit", "board_fit"),
    "tflm.firmware.device_check": ("DeviceFinding", "check_device"),
    "tflm.c.compile": ("CompiledModel", "CompiledModels", "compile_model", "compile_models"),
    "tflm.errors": (
        *("ArenaError", "ArenaExhausted", "ArenaShared", "ArgumentError", "CompileError", "DataError"),
        *("DelegateError", "DeviceError", "DeviceReset"),
        *("FirmwareError", "InterpreterError", "ModelError", "OperatorError", "PlanFileError", "PlanIgnored"),
        *("QuantizerError", "ResolverError", "RewriteError", "StreamError", "TensorError", "TensorIndexError"),
        *("TflmError", "UnresolvedOperator", "VersionAssumed", "WrongModel"),
    ),
    "tflm.evaluation": ("CalibrationReport", "Evaluation", "calibrate_report", "evaluate"),
    "tflm.firmware.flash": ("Flash", "flash"),
    "tflm.firmware.instructions": ("Estimate", "estimate"),
    "tflm.kernels": ("KernelContext", "Node", "Registration"),
    "tflm.kernels.reference.custom": ("ethos_u",),
    "tflm.memory.buffer": ("PlannedBuffer",),
    "tflm.memory.tensor": ("TfLiteEvalTensor", "TfLiteTensor"),
    "tflm.planning": ("ModelPlan", "plan"),
    "tflm.quantization": ("Alternative", "FloatOperator", "QuantizedModel", "quantize"),
    "tflm.rewriting": ("TiledModel", "TiledStage", "fold", "resize", "strip", "tile"),
    "tflm.rewriting.compression": ("CompressedModel", "CompressedTensor", "compress"),
    "tflm.rewriting.streaming": ("StreamedLayer", "StreamedModel", "stream"),
    "tflm.runtime.micro_allocator": ("MicroAllocator",),
    "tflm.runtime.micro_interpreter": ("MicroInterpreter",),
    "tflm.runtime.micro_measurement": ("SeparateArenas", "measure_arena", "measure_separate_arenas"),
    "tflm.runtime.micro_measurement_report": ("ArenaMeasurement", "Peak"),
    "tflm.runtime.micro_op_resolver": ("AllOpsResolver", "MicroMutableOpResolver"),
    "tflm.runtime.micro_profiler": ("MicroProfiler",),
    "tflm.runtime.allocator_structures": ("RecordedAllocation", "RecordedAllocationType"),
    "tflm.runtime.recording_micro_allocator": ("RecordingMicroAllocator",),
    "tflm.schema.builder": ("ModelBuilder", "quantized"),
    "tflm.schema.model": ("Model", "verify"),
    "tflm.versioning.update": ("update_versions",),
}
"""The modules of the other names of `__all__`. All are imported on first use: commands and scripts start sooner."""

hooks.plan_findings.provider = "tflm.kernels.plan_checker:findings_in_plan"
hooks.version_findings.provider = "tflm.runtime.micro_op_resolver:unknown_versions"
hooks.needed_version.provider = "tflm.versioning:needed_version"
hooks.model_html.provider = "tflm.runtime.model_report:model_html"
hooks.default_delegates.provider = "tflm.delegates:default_delegates"

_NAMES_IN_MODULES = {"PlannedBuffer": "Buffer"}
"""Names of `__all__` that differ from those in their modules."""


def __getattr__(name: str) -> Any:
    found = globals()[name] = _imported(name)
    return found


def _imported(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version  # takes a while to load

        return version("pytflm")
    if name in _PACKAGES:
        return import_module(f"tflm.{name}")
    for module, names in _LATER.items():
        if name in names:
            return getattr(import_module(module), _NAMES_IN_MODULES.get(name, name))
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
