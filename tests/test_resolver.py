"""The available operators: those of TFLM's mutable op resolver, and additional ones of its Python package."""

from __future__ import annotations

import importlib
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import pytest

import tflm
from tflm.kernels import REGISTRATIONS
from tflm.kernels.registration import OPAQUE
from tflm.schema import BuiltinOperator, TensorType

ROOT = Path(__file__).parents[1]

SNIPPET = """\
import tflm

resolver = tflm.MicroMutableOpResolver(2)
resolver.add_fully_connected()
resolver.add_softmax(None)
resolver.add_fullyconnected()


class Planner:
    def init(self, working_bytes: int) -> None: ...
    def add_buffer(
        self, size: int, first_time_used: int, last_time_used: int, offline_offset: int = -1
    ) -> None: ...
    def get_maximum_memory_size(self) -> int:
        return 0

    def get_buffer_count(self) -> int:
        return 0

    def get_offset_for_buffer(self, buffer_index: int) -> int:
        return 0


tflm.measure_arena(tflm.Model(b""), resolver, planner=Planner())
tflm.measure_arena(tflm.Model(b""), resolver, planner=object())
"""

BUILTIN = [
    "ABS",
    "ADD",
    "ADD_N",
    "ARG_MAX",
    "ARG_MIN",
    "ASSIGN_VARIABLE",
    "AVERAGE_POOL_2D",
    "BATCH_MATMUL",
    "BATCH_TO_SPACE_ND",
    "BROADCAST_ARGS",
    "BROADCAST_TO",
    "CALL_ONCE",
    "CAST",
    "CEIL",
    "CONCATENATION",
    "CONV_2D",
    "COS",
    "CUMSUM",
    "DEPTH_TO_SPACE",
    "DEPTHWISE_CONV_2D",
    "DEQUANTIZE",
    "DIV",
    "DYNAMIC_UPDATE_SLICE",
    "ELU",
    "EMBEDDING_LOOKUP",
    "EQUAL",
    "EXP",
    "EXPAND_DIMS",
    "FILL",
    "FLOOR",
    "FLOOR_DIV",
    "FLOOR_MOD",
    "FULLY_CONNECTED",
    "GATHER",
    "GATHER_ND",
    "GREATER",
    "GREATER_EQUAL",
    "HARD_SWISH",
    "IF",
    "L2_NORMALIZATION",
    "L2_POOL_2D",
    "LEAKY_RELU",
    "LESS",
    "LESS_EQUAL",
    "LOG",
    "LOG_SOFTMAX",
    "LOGICAL_AND",
    "LOGICAL_NOT",
    "LOGICAL_OR",
    "LOGISTIC",
    "MAX_POOL_2D",
    "MAXIMUM",
    "MEAN",
    "MINIMUM",
    "MIRROR_PAD",
    "MUL",
    "NEG",
    "NOT_EQUAL",
    "PACK",
    "PAD",
    "PADV2",
    "PRELU",
    "QUANTIZE",
    "READ_VARIABLE",
    "REDUCE_ALL",
    "REDUCE_MAX",
    "REDUCE_MIN",
    "RELU",
    "RELU6",
    "RESHAPE",
    "RESIZE_BILINEAR",
    "RESIZE_NEAREST_NEIGHBOR",
    "REVERSE_V2",
    "ROUND",
    "RSQRT",
    "SELECT_V2",
    "SHAPE",
    "SIN",
    "SLICE",
    "SOFTMAX",
    "SPACE_TO_BATCH_ND",
    "SPACE_TO_DEPTH",
    "SPLIT",
    "SPLIT_V",
    "SQRT",
    "SQUARE",
    "SQUARED_DIFFERENCE",
    "SQUEEZE",
    "STRIDED_SLICE",
    "SUB",
    "SUM",
    "SVDF",
    "TANH",
    "TRANSPOSE",
    "TRANSPOSE_CONV",
    "UNIDIRECTIONAL_SEQUENCE_LSTM",
    "UNPACK",
    "VAR_HANDLE",
    "WHILE",
    "ZEROS_LIKE",
]

CUSTOM = [
    "CIRCULAR_BUFFER",
    "TFLM_DECODE",
    "TFLite_Detection_PostProcess",
    "ethos-u",
    "SignalDelay",
    "SignalEnergy",
    "SignalFftAutoScale",
    "SignalFilterBank",
    "SignalFilterBankLog",
    "SignalFilterBankSpectralSubtraction",
    "SignalFilterBankSquareRoot",
    "SignalFramer",
    "SignalIrfft",
    "SignalOverlapAdd",
    "SignalPCAN",
    "SignalRfft",
    "SignalStacker",
    "SignalWindow",
    "BasicClassifier",
]


@pytest.mark.parametrize("name", [*BUILTIN, *CUSTOM])
def test_every_operator_of_tflm_is_there(name: str) -> None:
    assert name in tflm.AllOpsResolver()


def test_there_is_no_other() -> None:
    assert len(tflm.AllOpsResolver()) == len(BUILTIN) + len(CUSTOM)
    names = [name for _, name, _ in pkgutil.walk_packages(tflm.kernels.__path__, "tflm.kernels.")]
    values = [value for name in names for value in vars(importlib.import_module(name)).values()]
    declared = {value.name for value in values if isinstance(value, tflm.Registration)}
    assert declared == {*REGISTRATIONS, OPAQUE.name}


def test_registrations_are_under_their_own_names() -> None:
    assert [registration.name for registration in REGISTRATIONS.values()] == list(REGISTRATIONS)


@pytest.mark.parametrize("name", [*BUILTIN, *CUSTOM])
def test_each_can_be_added_alone_by_the_method_that_an_error_names(name: str) -> None:
    model = tflm.ModelBuilder()
    main = model.subgraph()
    y = main.tensor("y", (1,), TensorType.FLOAT32)
    operator = BuiltinOperator[name] if name in BUILTIN else name
    main.operator(operator, [main.input("x", (1,), TensorType.FLOAT32)], [y])
    main.output(y)
    resolver = tflm.MicroMutableOpResolver(1)
    with pytest.raises(tflm.UnresolvedOperator) as error:
        tflm.measure_arena(tflm.Model(model.build()), resolver)
    method = re.search(r"resolver\.(add_\w+)\(\)", str(error.value))
    assert method is not None
    getattr(resolver, method[1])()
    assert name in resolver


@pytest.mark.long
def test_type_checkers_know_the_methods_of_resolvers_and_planners(tmp_path: Path) -> None:
    """A misspelt method is an error, and so is a planner without methods; one without optional attributes is not."""
    cache = ROOT / ".mypy_cache" / "strict"
    if not cache.is_dir():
        pytest.skip("mypy has not checked the package here, which takes a minute (make test)")
    pytest.importorskip("mypy")
    (tmp_path / "snippet.py").write_text(SNIPPET)
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(cache), str(tmp_path / "snippet.py")]
    answer = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)
    errors = re.findall(r"snippet\.py:(\d+): error: .*\[([a-z-]+)\]$", answer.stdout, re.MULTILINE)
    lines = SNIPPET.splitlines()
    assert errors == [
        (str(lines.index("resolver.add_fullyconnected()") + 1), "attr-defined"),
        (str(len(lines)), "arg-type"),
    ], answer.stdout


def test_a_misspelt_method_is_explained() -> None:
    with pytest.raises(AttributeError, match="did you mean add_fully_connected"):
        tflm.MicroMutableOpResolver(1).add_fullyconnected()  # type: ignore[attr-defined]
