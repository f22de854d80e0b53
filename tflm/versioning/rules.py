"""The version that an operator needs: declared in its registration, or here where TFLM has no kernel for it."""

from __future__ import annotations

from tflm.kernels import REGISTRATIONS
from tflm.schema.enums import BuiltinOperator, LSTMKernelType, TensorType
from tflm.schema.version_rules import (
    Feature,
    Signature,
    Versions,
    asymmetric_hybrid,
    by_input,
    either,
    every,
    hybrid,
    input_is,
    no,
    option,
    output_is,
    signed,
)

_HYBRID_CELL = every(input_is("INT8", index=1), output_is("FLOAT32"))
RECURRENT = {
    3: Feature(asymmetric_hybrid().brought, every(_HYBRID_CELL, option("asymmetric_quantize_inputs"))),
    2: Feature(hybrid().brought, _HYBRID_CELL),
}


def _has_full_kernel(signature: Signature) -> bool:
    return bool(signature.option("kernel_type") == LSTMKernelType.FULL)


def _has_five_dimensions(signature: Signature) -> bool:
    return any(len(signature.shape(index)) == 5 for index in range(3))


def _second_output_is_int16(signature: Signature) -> bool:
    return signature.output_type(1) == TensorType.INT16


WITHOUT_KERNEL: dict[str, Versions] = {
    **dict.fromkeys(("BIDIRECTIONAL_SEQUENCE_LSTM", "BIDIRECTIONAL_SEQUENCE_RNN"), RECURRENT),
    **dict.fromkeys(("RNN", "UNIDIRECTIONAL_SEQUENCE_RNN"), RECURRENT),
    "FAKE_QUANT": {2: option("narrow_range")},
    "GELU": by_input(FLOAT16=3, INT8=2, UINT8=2),
    "LSTM": {
        5: Feature("INT16 activations", every(_has_full_kernel, signed("INT16", "INT8", 2))),
        4: Feature(asymmetric_hybrid().brought, every(_has_full_kernel, asymmetric_hybrid(2))),
        3: Feature(hybrid().brought, every(_has_full_kernel, hybrid(2))),
        2: Feature("the basic kernel", lambda signature: bool(signature.option("kernel_type") == LSTMKernelType.BASIC)),
    },
    "RANGE": by_input(INT64=2),
    "REDUCE_PROD": by_input(INT8=2, INT16=2),
    "SELECT": {4: input_is("UINT32"), 3: Feature("5 dimensions", _has_five_dimensions), 2: input_is("INT8")},
    "SIGN": by_input(INT32=2),
    "SPARSE_TO_DENSE": by_input(index=2, INT8=3, UINT8=3, INT64=2),
    "TILE": by_input(INT8=3, STRING=2),
    "TOPK_V2": {
        3: Feature("INT16", either(input_is("INT16"), input_is("INT16", index=1), _second_output_is_int16)),
        2: input_is("INT8"),
    },
    "WHERE": {2: Feature("other conditions than BOOL", no(input_is("BOOL")))},
}
"""Versions of TensorFlow Lite's operators that TFLM has no kernel for."""


def versions_of(operator: BuiltinOperator) -> Versions:
    """Return what each version of an operator added, in the order in which they are tried."""
    registration = REGISTRATIONS.get(operator.name)
    return WITHOUT_KERNEL.get(operator.name, {}) if registration is None else registration.versions


def needed_version(signature: Signature) -> int:
    """The version that a builtin operator needs."""
    features = versions_of(signature.operator).items()
    return next((version for version, feature in features if feature.holds(signature)), 1)


def brought_by(operator: BuiltinOperator, version: int) -> str | None:
    """Describe what a version of an operator added, in a few words; None if no rule covers it."""
    feature = versions_of(operator).get(version)
    return None if feature is None else feature.brought
