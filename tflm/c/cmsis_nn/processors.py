"""The processors that a program may run on: CMSIS-NN's kernels need different amounts of memory with DSP and Helium."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from tflm.libraries import library_for
from tflm.libraries.cmsis_nn import CURRENT
from tflm.libraries.cmsis_nn_scratch import COMMITS_OF_TAGS, VERSIONS, has_dsp, has_mve
from tflm.libraries.kernel_library import AllowedOverlap, Version, overlap_allowed_by, version_named
from tflm.targets import PARTS, Target

LIBRARY = "cmsis-nn"

VERSION = version_named("CMSIS-NN", CURRENT, VERSIONS, COMMITS_OF_TAGS)

EVERY_KIND = tuple(PARTS[name] for name in ("cortex-m0plus", "cortex-m4", "cortex-m55"))
"""A processor without extensions, one with DSP, and one with Helium."""

GUARD = """\
#if {condition}
#error "The RAM is planned for CMSIS-NN on {name}. Compile the model for this processor: tflm compile --target."
#endif
"""


class Processors(NamedTuple):
    """The processors that a program can run on.

    Attributes:
        targets: one of each kind of processor.
    """

    targets: tuple[Target, ...]

    @classmethod
    def of(cls, target: Target | None) -> Processors:
        """Return a set of one processor, or of every kind of Cortex-M if no target is given.

        Raises:
            ArgumentError: CMSIS-NN does not support the target; the message lists those that it supports.
        """
        if target is None:
            return cls(EVERY_KIND)
        library_for(LIBRARY, target)
        return cls((target,))

    @property
    def may_have_mve(self) -> bool:
        """Whether kernels may use Helium."""
        return any(map(has_mve, self.targets))

    @property
    def may_lack_mve(self) -> bool:
        """Whether kernels may run without Helium, as they do on the host."""
        return not all(map(has_mve, self.targets))

    def can_be(self, part: Target) -> bool:
        """Whether a program can be compiled for a target."""
        if len(self.targets) > 1:
            return True
        (target,) = self.targets
        if has_mve(target) or has_mve(part):
            return has_mve(target) and has_mve(part)
        return has_dsp(target) or not has_dsp(part)  # kernels without DSP need no more memory

    def maximum_bytes(self, size: Callable[[Target, Version], int]) -> int:
        """The largest size that any of the processors needs."""
        return max(size(target, VERSION) for target in self.targets)

    def overlap(self) -> AllowedOverlap:
        """The overlap of inputs and outputs that the kernels of all processors allow."""
        return overlap_allowed_by([(target, library_for(LIBRARY, target)) for target in self.targets])

    def guard(self) -> str:
        """Preprocessor lines that reject a processor whose kernels need other memory."""
        if len(self.targets) > 1:
            return ""
        (target,) = self.targets
        if has_mve(target):
            condition = "!defined(ARM_MATH_MVEI)"
        elif has_dsp(target):  # without DSP, kernels need no more memory
            condition = "defined(ARM_MATH_MVEI)"
        else:
            condition = "defined(ARM_MATH_DSP) || defined(ARM_MATH_MVEI)"
        return GUARD.format(condition=condition, name=target.name)
