"""What of a model goes another way on a device than here, and what keeps it from running there.

Each rule looks at one operator as the model has it, before anything is laid out: what its kernel library declares,
what the library's release of TFLM lacks, operators that no TFLM has, conversions that it can't run. Then the model is
laid out, and what refuses it says so.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tflm.boards import Board
from tflm.errors import OperatorError, TflmError, UnresolvedOperator
from tflm.kernels import REGISTRATIONS
from tflm.kernels.requests import NodeView, Options
from tflm.libraries import Effect, KernelLibrary, Kernels, library_for
from tflm.libraries.unresolved import message
from tflm.memory.tensor import TfLiteEvalTensor, TfLiteTensor
from tflm.releases import Release, Releases
from tflm.runtime.micro_measurement import measure_arena
from tflm.runtime.micro_op_resolver import AllOpsResolver
from tflm.runtime.version_findings import knows_version, version_asked_for
from tflm.schema.enums import TensorType
from tflm.schema.model import FLEX_PREFIX, Model
from tflm.schema.tables import Operator, SubGraph
from tflm.targets import CORTEX_M, Target

FLOAT_OPERATORS_WITH_WEIGHTS = {
    "BATCH_MATMUL": (1,),
    "CONV_2D": (1,),
    "DEPTHWISE_CONV_2D": (1,),
    "FULLY_CONNECTED": (1,),
    "SVDF": (1, 2),
    "TRANSPOSE_CONV": (1,),
    "UNIDIRECTIONAL_SEQUENCE_LSTM": tuple(range(1, 9)),
}
"""Operators that TFLite also runs with float activations and integer weights; the inputs that are weights."""

MAIN_INPUT = {"TRANSPOSE_CONV": 2}
"""Where the activations are not the first input."""

INTEGER_WEIGHTS = (TensorType.INT4, TensorType.INT8, TensorType.UINT8)


@dataclass(frozen=True)
class DeviceFinding:
    """Something to know of an operator before the model is flashed.

    Attributes:
        operator: its name.
        subgraph_index, operator_index: its place in the model; None for what concerns the model as a whole.
        effect: what kind of thing it is.
        happens: what will happen, as a sentence.
        advice: what to do about it, as a sentence.
        shown: whether `MicroInterpreter(..., kernels=...)` answers as the device does.
    """

    operator: str
    subgraph_index: int | None
    operator_index: int | None
    effect: Effect
    happens: str
    advice: str
    shown: bool = False

    @property
    def stops(self) -> bool:
        """Whether the model can't be run on the device, or not safely."""
        return self.effect not in (Effect.DIFFERS, Effect.SLOW)


class _OperatorView(NodeView):
    """An operator as the model's file has it."""

    def __init__(self, model: Model, subgraph: SubGraph, operator: Operator, target: Target, release: Release):
        self._model, self._tensors, self._operator = model, subgraph.tensors or [], operator
        self._target, self._release = target, release
        self._inputs, self._outputs = operator.inputs or (), operator.outputs or ()

    @property
    def target(self) -> Target:
        return self._target

    @property
    def release(self) -> Release:
        return self._release

    @property
    def input_count(self) -> int:
        return len(self._inputs)

    @property
    def output_count(self) -> int:
        return len(self._outputs)

    @property
    def custom_options(self) -> memoryview:
        return memoryview(self._operator.custom_options or b"")

    def has_input(self, index: int) -> bool:
        return index < len(self._inputs) and self._inputs[index] >= 0

    def has_intermediate(self, index: int) -> bool:
        intermediates = self._operator.intermediates or ()
        return index < len(intermediates) and intermediates[index] >= 0

    def input(self, index: int) -> TfLiteTensor:
        return self._tensor(self._inputs[index])

    def output(self, index: int) -> TfLiteTensor:
        return self._tensor(self._outputs[index])

    def options(self, kind: type[Options]) -> Options:
        options = self._operator.builtin_options
        return options if isinstance(options, kind) else kind()

    def _tensor(self, index: int) -> TfLiteTensor:
        return TfLiteTensor(self._tensors[index], TfLiteEvalTensor(self._model, self._tensors[index]))


Reason = tuple[Effect, str, str, bool]
"""Effect, what happens, advice, and whether the interpreter shows it."""


def check_device(
    model: Model,
    *,
    target: Target,
    kernels: Kernels = "reference",
    board: Board | None = None,
    release: Releases | None = None,
) -> list[DeviceFinding]:
    """What to know before a model is flashed, in the order of its operators.

    Args:
        target: the part.
        kernels: the kernel library that the firmware is built with.
        board: where the model is to run, for what else it has, such as an Ethos-U.
        release: the TFLM that the firmware has, as for `MicroInterpreter`.

    Raises:
        ArgumentError: the kernel library is not for the part.
    """
    library = library_for(kernels, target, release)
    findings = operator_findings(model, target=target, kernels=library, board=board)
    stopped = {(finding.subgraph_index, finding.operator_index) for finding in findings if finding.stops}
    try:
        measure_arena(model, AllOpsResolver(), target=target, kernels=library)
    except OperatorError as error:
        if (error.subgraph_index, error.operator_index) not in stopped:
            findings.append(_refusal(error))
    except UnresolvedOperator:
        pass  # said above, for each of them
    except TflmError as error:
        findings.append(DeviceFinding("", None, None, Effect.REFUSED, str(error), "Mend the model."))
    return findings


def operator_findings(
    model: Model,
    *,
    target: Target,
    kernels: Kernels = "reference",
    board: Board | None = None,
    release: Releases | None = None,
) -> list[DeviceFinding]:
    """The part of `check_device` that looks at operators as the model has them, and lays nothing out.

    Args, Raises: as for `check_device`.
    """
    library = library_for(kernels, target, release)
    return [
        *_data_outside(model),
        *(
            DeviceFinding(model.operator_name(operator), i, j, *reason)
            for i, subgraph in enumerate(model.subgraphs)
            for j, operator in enumerate(subgraph.operators or ())
            for reason in _reasons(model, subgraph, operator, target, library, board)
        ),
    ]


def _data_outside(model: Model) -> Iterator[DeviceFinding]:
    outside = model.outside
    if outside:
        others = f" and {len(outside) - 1} more" if len(outside) > 1 else ""
        happens = (
            f"The data of {outside[0]}{others} lies outside of the flatbuffer, where TFLM does not read it: it "
            "computes garbage, and says nothing."
        )
        advice = "Write it into the flatbuffer: tflm strip does."
        yield DeviceFinding("", None, None, Effect.BREAKS, happens, advice)


def _refusal(error: OperatorError) -> DeviceFinding:
    tensor = f"tensor {error.tensor!r} " if error.tensor else ""
    return DeviceFinding(
        error.operator,
        error.subgraph_index,
        error.operator_index,
        Effect.REFUSED,
        f"AllocateTensors() fails: {tensor}{error.reason}.",
        "Convert the model with what the operator takes.",
    )


def _reasons(
    model: Model, subgraph: SubGraph, operator: Operator, target: Target, library: KernelLibrary, board: Board | None
) -> Iterator[Reason]:
    name = model.operator_name(operator)
    missing = _missing(model, operator, target, library, board)
    if missing is not None:
        yield missing
        return
    code = model.operator_code(operator)
    registration = REGISTRATIONS.get(name)
    if registration is not None and not knows_version(registration, code):
        happens = f"The model asks for {version_asked_for(code, registration)}. TFLM ignores the version."
        yield Effect.DIFFERS, happens, "Run tflm versions: it says which version the operator needs.", True
    view = _OperatorView(model, subgraph, operator, target, library.release)
    conversion = _unfit_conversion(name, view)
    if conversion is not None:
        yield conversion
        return
    for concern in library.concerns_about(name, view):
        yield concern.effect, concern.happens, concern.advice, concern.shown


def _missing(
    model: Model, operator: Operator, target: Target, library: KernelLibrary, board: Board | None
) -> Reason | None:
    """What says that the operator is not there; None where it is."""
    name = model.operator_name(operator)
    if name.startswith(FLEX_PREFIX):
        happens = f"No device can run {name}, an operator of TensorFlow's: \"Didn't find op\" is what TFLM says."
        advice = "Convert without tf.lite.OpsSet.SELECT_TF_OPS; replace what then is refused, or compute it outside."
        return Effect.LACKS, happens, advice, False
    if name == "ethos-u" and not _has_npu(target, board):
        place = target.name if board is None else board.name
        happens = f"{place} has no Ethos-U to run what Vela compiled."
        advice = "Flash the model as it was before Vela, or name a board that has one: tflm arena --boards lists all."
        return Effect.LACKS, happens, advice, False
    registration = REGISTRATIONS.get(name)
    if registration is not None and not library.release.answers_hold(registration.since):
        says = message(library.release, name, model.operator_code(operator).version)
        happens = f'{library.release.name} has no {name}: "{says}".'
        return Effect.LACKS, happens, "Take a newer TFLM, or make the model without the operator.", False
    try:
        AllOpsResolver().find_op(model.operator_code(operator))
    except UnresolvedOperator as error:
        happens = f"TFLM has no {name} that the model could use ({error})."
        advice = "Make the model without it, or register a kernel of your own in the firmware."
        return Effect.LACKS, happens, advice, False
    return None


def _has_npu(target: Target, board: Board | None) -> bool:
    """Whether there is an Ethos-U; without a board, whether chips with the part may have one: all have Helium."""
    if board is not None:
        return bool(board.npu)
    return "mve" in target.extensions or target.name == CORTEX_M.name


def _unfit_conversion(name: str, node: NodeView) -> Reason | None:
    """What says that TFLM has no kernel for a mixture of types which TFLite's converter makes; None if it has."""
    if name == "DEQUANTIZE" and node.has_input(0) and node.input(0).type is TensorType.FLOAT16:
        happens = "Weights of float16 can't be run: TFLM's DEQUANTIZE refuses them."
        advice = "Convert without target_spec.supported_types = [tf.float16]."
        return Effect.REFUSED, happens, advice, False
    main = MAIN_INPUT.get(name, 0)
    weights = [i for i in FLOAT_OPERATORS_WITH_WEIGHTS.get(name, ()) if node.has_input(i)]
    is_float = node.has_input(main) and node.input(main).type is TensorType.FLOAT32
    if is_float and any(node.input(i).type in INTEGER_WEIGHTS for i in weights):
        happens = "A hybrid operator, float activations with integer weights: AllocateTensors() refuses it."
        advice = (
            "Convert with a representative_dataset for integers throughout, or without optimizations for floats "
            "throughout."
        )
        return Effect.REFUSED, happens, advice, False
    return None
