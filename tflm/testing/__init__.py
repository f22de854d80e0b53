"""Property tests for your own planners, allocators and kernels: strategies and checks. Needs the extra `testing`.

The checks raise `CheckFailed` with the smallest counterexample that they find.
"""

from __future__ import annotations

from tflm.errors import CheckFailed
from tflm.testing.allocator_check import AllocatorCall, allocator_calls, check_allocator
from tflm.testing.kernel_check import check_kernel
from tflm.testing.models import Case, damaged_files, graphs, quantized_models, single_operator_models
from tflm.testing.planner_check import buffers, check_planner

__all__ = [
    "AllocatorCall",
    "Case",
    "CheckFailed",
    "allocator_calls",
    "buffers",
    "check_allocator",
    "check_kernel",
    "check_planner",
    "damaged_files",
    "graphs",
    "quantized_models",
    "single_operator_models",
]
