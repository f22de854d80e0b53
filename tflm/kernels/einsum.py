"""numpy's `einsum` as it is in C.

The Python function around it leaves a dictionary behind with each call, until Python's list of free ones is full.
"""

from __future__ import annotations

from numpy._core.multiarray import c_einsum as einsum

__all__ = ["einsum"]
