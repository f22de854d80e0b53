"""Whether a memory plan in a model suits a kernel library: how far outputs may overlap inputs depends on its loops."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from tflm.kernels import REGISTRATIONS
from tflm.kernels.overlap import Overlap
from tflm.kernels.plan_checker import LostValue, lost_values, offline_places
from tflm.libraries.kernel_library import REFERENCE, KernelLibrary
from tflm.schema.model import Model
from tflm.schema.offline_plan import broken_plan, offline_offsets
from tflm.targets import Target


def values_lost_with(library: KernelLibrary, target: Target, model: Model) -> Iterator[LostValue]:
    """Values that a model's own plan loses with a library's kernels on a part.

    None for a model without a plan. TFLM's own kernels are not asked: with them, every plan is checked when the model
    is loaded. Of a library whose loops are not known, every output that lies on an input counts.
    """
    offsets = None if library.overlaps is REFERENCE.overlaps else offline_offsets(model.root)
    if offsets is None:
        return
    yield from lost_values(model.root, offline_places(model.root, offsets), overlaps=overlaps_with(library, target))


def overlaps_with(library: KernelLibrary, target: Target) -> dict[str, Overlap]:
    """How far outputs may overlap inputs with a library's kernels on a part, by operator."""
    return {
        name: partial(library.allowed_overlap, registration, target) for name, registration in REGISTRATIONS.items()
    }


def require_safe_plan(library: KernelLibrary, target: Target, model: Model) -> None:
    """Reject a model whose plan loses values with a library's kernels, unless its checks are those of TFLM.

    Raises:
        ModelError: the message names the first such value.
    """
    if model.checks == "tflm":
        return
    for lost in values_lost_with(library, target, model):
        raise broken_plan(
            f"it was made for other kernels than {library.name} on {target.name}: {lost}; "
            "write a plan for these kernels with tflm plan or tflm fit",
            unsound=True,
        )
