"""Resolvers hold the registrations of a program's operators, and find the one for each operator of a model.

TFLM ignores the versions of operators and runs them; findings say which versions the kernels do not implement.
"""

from __future__ import annotations

import re
from collections import ChainMap
from collections.abc import Callable, Iterator, MutableMapping
from typing import TYPE_CHECKING, Any, cast

from tflm.errors import ArgumentError, ModelError, ResolverError, UnresolvedOperator
from tflm.kernels import REGISTRATIONS, Registration
from tflm.schema.enums import BuiltinOperator
from tflm.schema.model import FLEX_PREFIX
from tflm.schema.tables import Model, OperatorCode, builtin_code, code_name

if TYPE_CHECKING:
    from tflm.runtime.resolver_methods import ResolverMethods  # a stub, for the methods that `_adder` makes
else:
    ResolverMethods = object


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


class MicroMutableOpResolver(ResolverMethods):
    """Holds the operators that were added to it, up to a fixed number.

    Each operator of the package has a method: `add_fully_connected()`, `add_softmax()` and so on, named after the
    operator in lower case; `dir(resolver)` lists them.

    Args:
        capacity: maximum number of operators.
        strict_versions: also reject operator versions that the registration does not implement. TFLM ignores
            versions.

    Raises:
        ResolverError: the capacity is not a non-negative number.
    """

    def __init__(self, capacity: int, *, strict_versions: bool = False):
        if not isinstance(capacity, int) or capacity < 0:
            raise ResolverError(f"a resolver is made for a number of operators, not for {capacity!r}")
        self._capacity: int | None = capacity
        self._strict_versions = strict_versions
        self._registrations: MutableMapping[str, Registration] = {}

    def add(self, registration: Registration) -> None:
        """Add an operator by its registration: one of `tflm.kernels.REGISTRATIONS`, or a variant of one.

        Raises:
            ArgumentError: the argument is not a registration.
            ResolverError: the resolver is full, or already has the operator.
        """
        if not isinstance(registration, Registration):
            raise ArgumentError(f"a resolver holds tflm.Registration objects, not {registration!r}")
        name = registration.name
        if name in self._registrations:
            raise ResolverError(f"{name} is in the resolver already; add each operator once")
        if self._capacity is not None and len(self._registrations) >= self._capacity:
            raise ResolverError(
                f"no room for {name}: the resolver was made for {self._capacity} operators, "
                f"and has {', '.join(self._registrations)}; make it with a larger capacity"
            )
        self._registrations[name] = registration

    def add_custom(self, registration: Registration) -> None:
        """Add a custom operator, which models refer to by the registration's `operator` name.

        Raises:
            ResolverError: as for `add`; or it has no name, or that of a builtin operator.
        """
        if not isinstance(registration, Registration):
            raise ArgumentError(f"a custom operator is a tflm.Registration, not {registration!r}")
        name = registration.operator
        if not isinstance(name, str) or not name or name in BuiltinOperator.__members__:
            raise ResolverError(f"a custom operator needs a name of its own, not {registration.name!r}")
        self.add(registration)

    def find_op(self, code: OperatorCode) -> Registration:
        """The registration for an operator of a model.

        Raises:
            UnresolvedOperator: the resolver lacks it or, with strict versions, the model's version of it. The message
                says what to add.
        """
        builtin = builtin_code(code)
        is_custom = builtin is BuiltinOperator.CUSTOM
        name = (code.custom_code or "") if is_custom else builtin.name
        registration = self._registrations.get(name)
        if registration is None or (isinstance(registration.operator, str) != is_custom):
            raise UnresolvedOperator(name, code.version, _what_to_add(name, is_custom))
        if self._strict_versions and not knows_version(registration, code):
            version = version_asked_for(code, registration, "the resolver")
            raise UnresolvedOperator(
                name,
                code.version,
                f"the model uses {name} {version}; add a registration with the version, convert the model for an "
                f"older runtime, call tflm.update_versions(model) if the model does not use the new features, or "
                f"create the resolver without strict_versions",
            )
        return registration

    def __repr__(self) -> str:
        room = "any number" if self._capacity is None else f"{self._capacity}"
        return f"{type(self).__name__}({len(self)} operators, room for {room})"

    def __len__(self) -> int:
        return len(self._registrations)

    def __contains__(self, name: str) -> bool:
        return name in self._registrations

    if not TYPE_CHECKING:  # for which a misspelt method would exist

        def __getattr__(self, name: str) -> Any:
            import difflib  # only to explain a mistake

            close = difflib.get_close_matches(name, (method for method in dir(self) if method.startswith("add")), n=3)
            hint = f"; did you mean {' or '.join(close)}?" if close else ""
            raise AttributeError(f"{type(self).__name__} has no {name}{hint}", name=name, obj=self)


def require_resolver(value: object) -> MicroMutableOpResolver:
    """Check that a value is a resolver, and return it.

    Raises:
        ArgumentError: it is not, or it is a resolver's class.
    """
    if isinstance(value, type) or not callable(getattr(value, "find_op", None)):
        shown = f"the class {value.__name__}" if isinstance(value, type) else f"{value!r}"
        made = f"{value.__name__}(...)" if isinstance(value, type) and hasattr(value, "find_op") else "AllOpsResolver()"
        raise ArgumentError(f"expected a resolver such as tflm.{made}, not {shown}")
    return cast(MicroMutableOpResolver, value)


def _what_to_add(name: str, is_custom: bool) -> str:
    if is_custom and name.startswith(FLEX_PREFIX):
        return (
            f"{name} is an operator of TensorFlow, which no device can run; on this machine "
            "MicroInterpreter(..., delegates=[tflm.delegates.FlexDelegate()]) does"
        )
    if is_custom and name not in REGISTRATIONS:
        return f"the custom operator {name!r} is not in the resolver; add yours with resolver.add_custom(...)"
    if name not in REGISTRATIONS:
        return f"{name} is not in the resolver, and this package has no kernel for it"
    return f"{name} is not in the resolver; call resolver.{method_name(name)}()"


def method_name(operator: str) -> str:
    """TFLM's name for the method, in Python's case: add_conv_2d, and add_filter_bank_log for SignalFilterBankLog."""
    name = re.sub("^(Signal|TFLite_|TFLM_)", "", operator)
    if "_" not in name:
        name = re.sub("(?<=[a-z])(?=[A-Z])", "_", name)
    return f"add_{name.lower().replace('-', '_')}"


def _adder(operator: str) -> Callable[..., None]:
    """The resolver's method for an operator."""

    def add_operator(self: MicroMutableOpResolver, registration: Registration | None = None) -> None:
        self.add(registration or REGISTRATIONS[operator])

    add_operator.__name__ = method_name(operator)
    add_operator.__qualname__ = f"MicroMutableOpResolver.{add_operator.__name__}"
    add_operator.__doc__ = (
        f"Add {operator}. Another registration of it may be given.\n\n"
        "Raises:\n    ResolverError: no room is left, or it is there already."
    )
    return add_operator


for _operator in REGISTRATIONS:
    setattr(MicroMutableOpResolver, method_name(_operator), _adder(_operator))


class AllOpsResolver(MicroMutableOpResolver):
    """Holds every operator of the package, and any number of custom ones.

    Args:
        strict_versions: as for `MicroMutableOpResolver`.
    """

    def __init__(self, *, strict_versions: bool = False) -> None:
        super().__init__(0, strict_versions=strict_versions)
        self._capacity = None
        self._registrations = ChainMap({}, REGISTRATIONS)  # type: ignore[arg-type]  # only the first is written to
