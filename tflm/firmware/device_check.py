"""Find what behaves differently on a device than here, and what prevents a model from running there.

Each rule looks at one operator in the model's file: differences that its kernel library declares, operators that the
library's release of TFLM lacks, operators that no TFLM has, and unsupported conversions. Then the model is allocated,
and an error becomes a finding.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tflm.errors import OperatorError, TflmError, UnresolvedOperator
from tflm.kernels import REGISTRATIONS
from tflm.kernels.node import Node, NodeTensors
from tflm.kernels.reference.decode import LOOK_UP_TABLE, TFLM_DECODE, encoded_tensor, table_mismatch
from tflm.libraries import Effect, KernelLibrary, Kernels, library_for
from tflm.libraries.kernel_library import message, values_lost_with
from tflm.memory.tensor import TfLiteEvalTensor, TfLiteTensor
from tflm.releases import Release, Releases
from tflm.report import json_property
from tflm.runtime.micro_measurement import measure_arena
from tflm.runtime.micro_op_resolver import AllOpsResolver, knows_version, version_asked_for
from tflm.schema.enums import TensorType
from tflm.schema.model import FLEX_PREFIX, Model
from tflm.schema.tables import Operator, SubGraph
from tflm.targets import CORTEX_M, Target, require_target

if TYPE_CHECKING:
    from tflm.boards import Board

INTEGER_WEIGHTS = (TensorType.INT4, TensorType.INT8, TensorType.UINT8)


@dataclass(frozen=True)
class DeviceFinding:
    """A difference or problem of an operator on a device.

    Attributes:
        operator: name of the affected operator; empty for the whole model.
        subgraph_index, operator_index: its place in the model; None for the whole model.
        effect: `differs`: it answers otherwise; `slow`: it runs in plain C; `refused`, `lacks`, `breaks`: it can't be
            run there.
        happens: what will happen, as a sentence.
        advice: what to do about it, as a sentence.
        shown: whether `MicroInterpreter(..., kernels=...)` returns the device's results.
    """

    operator: str
    subgraph_index: int | None
    operator_index: int | None
    effect: Effect
    happens: str
    advice: str
    shown: bool = False

    @json_property
    def stops(self) -> bool:
        """Whether the model cannot run on the device, or not safely."""
        return self.effect not in (Effect.DIFFERS, Effect.SLOW)


class _FileTensors(NodeTensors):
    """The tensors of a subgraph in the model's file."""

    def __init__(self, model: Model, subgraph: SubGraph, target: Target, release: Release):
        self._model, self._tensors = model, subgraph.tensors or []
        self._target, self._release = target, release

    @property
    def target(self) -> Target:
        return self._target

    @property
    def release(self) -> Release:
        return self._release

    def _tensor(self, index: int) -> TfLiteTensor:
        return TfLiteTensor(self._tensors[index], self._eval_tensor(index))

    def _eval_tensor(self, index: int) -> TfLiteEvalTensor:
        return TfLiteEvalTensor(self._model, self._tensors[index])


def node_in_file(model: Model, subgraph: SubGraph, operator: Operator, target: Target, release: Release) -> Node:
    """An operator in the model's file."""
    return Node.of(model, operator, tensors=_FileTensors(model, subgraph, target, release))


Reason = tuple[Effect, str, str, bool]
"""Effect, what happens, advice, and whether the interpreter reproduces it."""


def check_device(
    model: Model,
    *,
    target: Target | str,
    kernels: Kernels = "reference",
    board: Board | None = None,
    release: Releases | None = None,
) -> list[DeviceFinding]:
    """Find what behaves differently on a device, in the order of the model's operators.

    Args:
        target: the part or its name.
        kernels: the firmware's kernel library.
        board: the board, which may have an Ethos-U.
        release: the firmware's TFLM release, as for `MicroInterpreter`.

    Raises:
        ArgumentError: the kernel library is not for the part.
    """
    target = require_target(target)
    library = library_for(kernels, target, release)
    findings = operator_findings(model, target=target, kernels=library, board=board)
    stopped = {(finding.subgraph_index, finding.operator_index) for finding in findings if finding.stops}
    try:
        measure_arena(model, AllOpsResolver(), target=target, kernels=library)
    except OperatorError as error:
        if (error.subgraph_index, error.operator_index) not in stopped:
            findings.append(_refusal(error))
    except UnresolvedOperator:
        pass  # reported above for each operator
    except TflmError as error:
        findings.append(DeviceFinding("", None, None, Effect.REFUSED, str(error), "Fix the model."))
    return findings


def operator_findings(
    model: Model, *, target: Target | str, kernels: Kernels = "reference", board: Board | None = None
) -> list[DeviceFinding]:
    """Run the checks of `check_device` on operators in the model's file, without allocating the model.

    Args, Raises: as for `check_device`.
    """
    target = require_target(target)
    library = library_for(kernels, target)
    return [
        *_data_outside(model),
        *_plan_for_other_kernels(model, target, library),
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
            f"The data of {outside[0]}{others} is outside the flatbuffer. TFLM does not read it, and silently "
            "computes garbage."
        )
        advice = "Move it into the flatbuffer with tflm strip."
        yield DeviceFinding("", None, None, Effect.BREAKS, happens, advice)


def _plan_for_other_kernels(model: Model, target: Target, library: KernelLibrary) -> Iterator[DeviceFinding]:
    for lost in itertools.islice(values_lost_with(library, target, model), 1):
        happens = f"The model's memory plan was made for other kernels, and answers are wrong: {lost}."
        advice = "Write a plan for these kernels with tflm plan or tflm fit."
        yield DeviceFinding("", None, None, Effect.BREAKS, happens, advice)


def _refusal(error: OperatorError) -> DeviceFinding:
    tensor = f"tensor {error.tensor!r} " if error.tensor else ""
    return DeviceFinding(
        error.operator,
        error.subgraph_index,
        error.operator_index,
        Effect.REFUSED,
        f"AllocateTensors() fails: {tensor}{error.reason}.",
        "Convert the model so that the operator accepts it.",
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
        happens = f"The model has {version_asked_for(code, registration)}. TFLM ignores the version."
        yield Effect.DIFFERS, happens, "Run tflm versions to see which version the operator needs.", True
    view = node_in_file(model, subgraph, operator, target, library.release)
    conversion = _unfit_conversion(name, view)
    if conversion is not None:
        yield conversion
        return
    if name == TFLM_DECODE.name:
        yield from _mismatched_tables(model, view)
    try:
        concerns = library.concerns_about(name, view)
    except (OperatorError, IndexError, ZeroDivisionError):
        return  # it lacks tensors or dimensions, or has strides of 0: allocating the model reports it
    for concern in concerns:
        yield concern.effect, concern.happens, concern.advice, concern.shown


def _mismatched_tables(model: Model, node: Node) -> Iterator[Reason]:
    for i in range(node.output_count if len(node.inputs) == 2 * node.output_count else 0):
        try:
            metadata = node.input(2 * i + 1)
            scheme, encoded = encoded_tensor(node.input(2 * i), metadata, node.output(i), model)
            mismatch = table_mismatch(encoded, metadata) if scheme is LOOK_UP_TABLE else None
        except OperatorError:
            continue  # allocating the model reports it
        if mismatch is not None:
            happens = f"Tensor {encoded.name!r} is compressed with look-up tables: {mismatch}. Its values are wrong."
            advice = "Compress it with tables along the quantized dimension, or with tflm compress."
            yield Effect.DIFFERS, happens, advice, True


def _missing(
    model: Model, operator: Operator, target: Target, library: KernelLibrary, board: Board | None
) -> Reason | None:
    """Return a finding if the operator is missing, else None."""
    name = model.operator_name(operator)
    if name.startswith(FLEX_PREFIX):
        happens = f'{name} is a TensorFlow operator, which no device can run: TFLM reports "Didn\'t find op".'
        advice = "Convert without tf.lite.OpsSet.SELECT_TF_OPS; replace rejected operators, or compute them elsewhere."
        return Effect.LACKS, happens, advice, False
    if name == "ethos-u" and not _has_npu(target, board):
        place = target.name if board is None else board.name
        happens = f"{place} has no Ethos-U, and the model was compiled by Vela."
        advice = "Use the model from before Vela, or a board with an Ethos-U; tflm boards lists all boards."
        return Effect.LACKS, happens, advice, False
    registration = REGISTRATIONS.get(name)
    if registration is not None and not library.release.answers_hold(registration.since):
        says = message(library.release, name, model.operator_code(operator).version)
        happens = f'{library.release.name} lacks {name} and reports "{says}".'
        return Effect.LACKS, happens, "Use a newer TFLM, or replace the operator.", False
    try:
        AllOpsResolver().find_op(model.operator_code(operator))
    except UnresolvedOperator as error:
        happens = f"TFLM has no operator {name} ({error})."
        advice = "Replace the operator, or register your own kernel in the firmware."
        return Effect.LACKS, happens, advice, False
    return None


def _has_npu(target: Target, board: Board | None) -> bool:
    """Return whether the board has an Ethos-U or, without a board, whether the part has Helium, so that it may."""
    if board is not None:
        return bool(board.npu)
    return "mve" in target.extensions or target.name == CORTEX_M.name


def _unfit_conversion(name: str, node: Node) -> Reason | None:
    """Return a finding if TFLM has no kernel for a combination of types that TFLite's converter writes, else None."""
    if name == "DEQUANTIZE" and node.has_input(0) and node.input(0).type is TensorType.FLOAT16:
        happens = "float16 weights cannot be used: TFLM's DEQUANTIZE rejects them."
        advice = "Convert without target_spec.supported_types = [tf.float16]."
        return Effect.REFUSED, happens, advice, False
    registration = REGISTRATIONS[name]
    types = {node.input(i).type for i in registration.weights if node.has_input(i)}
    activations = registration.activations
    is_float = node.has_input(activations) and node.input(activations).type is TensorType.FLOAT32
    if is_float and types.intersection(INTEGER_WEIGHTS):
        happens = "The operator is hybrid (float activations, integer weights); AllocateTensors() rejects it."
        advice = (
            "Convert with a representative_dataset for integers throughout, or without optimizations for floats "
            "throughout."
        )
        return Effect.REFUSED, happens, advice, False
    return None


def concerns_line(findings: Sequence[DeviceFinding]) -> str:
    """Summarize in one line what behaves differently on the device; empty if nothing does."""
    if not findings:
        return ""
    operators = {(finding.subgraph_index, finding.operator_index) for finding in findings}
    names = ", ".join(dict.fromkeys(finding.operator or "the model" for finding in findings))
    stop = "some prevent it from running" if any(f.stops for f in findings) else "answers differ"
    what = "1 operator behaves" if len(operators) == 1 else f"{len(operators)} operators behave"
    return f"{what} differently on the device ({names}; {stop}): tflm check has the details"
