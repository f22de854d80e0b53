"""The processors that a program is planned for: CMSIS-NN's kernels need other memory with DSP and with Helium."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from tflm.libraries import library_for
from tflm.libraries.cmsis_nn import CURRENT
from tflm.libraries.cmsis_nn_scratch import COMMITS_OF_TAGS, VERSIONS, has_dsp, has_mve
from tflm.libraries.kernel_library import AllowedOverlap, overlap_allowed_by
from tflm.libraries.versions import Version, version_named
from tflm.targets import PARTS, Target

LIBRARY = "cmsis-nn"

VERSION = version_named("CMSIS-NN", CURRENT, VERSIONS, COMMITS_OF_TAGS)

EVERY_KIND = tuple(PARTS[name] for name in ("cortex-m0plus", "cortex-m4", "cortex-m55"))
"""A part without extensions, one with DSP and one with Helium."""

GUARD = """\
#if {condition}
#error "The RAM is planned for CMSIS-NN on {name}. Compile the model for this processor: tflm compile --target."
#endif
"""


class Processors(NamedTuple):
    """The processors that a program can run on.

    Attributes:
        targets: of each kind one.
    """

    targets: tuple[Target, ...]

    @classmethod
    def of(cls, target: Target | None) -> Processors:
        """One processor, or every kind of Cortex-M.

        Raises:
            ArgumentError: CMSIS-NN is not for it; the message lists the parts that it is for.
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
        """Whether a program can be compiled for a part."""
        if len(self.targets) > 1:
            return True
        (target,) = self.targets
        if has_mve(target) or has_mve(part):
            return has_mve(target) and has_mve(part)
        return has_dsp(target) or not has_dsp(part)  # without DSP, kernels need no more

    def maximum_bytes(self, size: Callable[[Target, Version], int]) -> int:
        """The maximum that any of them needs."""
        return max(size(target, VERSION) for target in self.targets)

    def overlap(self) -> AllowedOverlap:
        """What the kernels of all of them allow."""
        return overlap_allowed_by([(target, library_for(LIBRARY, target)) for target in self.targets])

    def guard(self) -> str:
        """What stops a compiler for a processor whose kernels need other memory."""
        if len(self.targets) > 1:
            return ""
        (target,) = self.targets
        if has_mve(target):
            condition = "!defined(ARM_MATH_MVEI)"
        elif has_dsp(target):  # without DSP, they need no more
            condition = "defined(ARM_MATH_MVEI)"
        else:
            condition = "defined(ARM_MATH_DSP) || defined(ARM_MATH_MVEI)"
        return GUARD.format(condition=condition, name=target.name)
