"""Findings for operator versions that the kernels do not implement. TFLM ignores versions and runs them."""

from __future__ import annotations

from collections.abc import Iterator

from tflm.errors import ModelError
from tflm.kernels import REGISTRATIONS
from tflm.kernels.registration import Registration
from tflm.schema.enums import BuiltinOperator
from tflm.schema.tables import Model, OperatorCode
from tflm.schema.verifier import builtin_code, code_name


def knows_version(registration: Registration, code: OperatorCode) -> bool:
    """Whether the kernel implements the version of the operator code."""
    return registration.min_version <= code.version <= registration.max_version


def version_asked_for(code: OperatorCode, registration: Registration, holder: str = "the kernel") -> str:
    """Describe the version of an operator code, what it introduced, and the known versions."""
    from tflm.versioning import brought_by  # models with known versions don't need this import

    builtin = builtin_code(code)
    brought = None if builtin is BuiltinOperator.CUSTOM else brought_by(builtin, code.version)
    known = f"{holder} has versions {registration.min_version} to {registration.max_version}"
    return f"version {code.version}{f', which brought {brought}' if brought else ''}, {known}"


def unknown_versions(model: Model) -> Iterator[ModelError]:
    """A warning for each operator code of a version that the kernel for it does not implement."""
    for i, code in enumerate(model.operator_codes or ()):
        registration = REGISTRATIONS.get(code_name(code))
        if registration is not None and not knows_version(registration, code):
            reason = f"requests {code_name(code)} {version_asked_for(code, registration)}. TFLM ignores the version"
            yield ModelError(
                reason, table="OperatorCode", field="version", place=f"operator_codes[{i}]", level="warning"
            )
