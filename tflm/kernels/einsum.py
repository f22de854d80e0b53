"""numpy's `einsum` as it is in C.

The Python function around it leaves a dictionary behind with each call, until Python's list of free ones is full.
"""

from __future__ import annotations

try:
    from numpy._core.multiarray import c_einsum as einsum
except ImportError:  # numpy 1
    from numpy.core.multiarray import c_einsum as einsum  # type: ignore[no-redef]

__all__ = ["einsum"]
