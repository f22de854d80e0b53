"""The compiled engine: kernels written in Python, compiled through LLVM, run as one program. Needs the extra `fast`.

It does not change results: every integer equals that of the kernels in `tflm.kernels.reference`.

- `tflm.compiler` says how a kernel is written, and compiles it. `fixed_point`, `functions` and `casts` have the
  arithmetic that kernels share.
- `tiles` has matrix tiles, whose LLVM IR is written by hand, and `columns` those of depthwise windows; `images`
  prepares inputs and `scaling` the constants for outputs. `lines` shows that requantization in float32 is exact.
- `plain_products` replaces tiles in plain kernels, and interpolation in `functions` replaces large tables: in C, on
  small processors, and with `TFLM_CPU=plain`.
- Each family of operators has a module with its kernels and binding functions; `bindings` maps operators to families.
- `program` runs steps one after the other, called as a method of a PyCapsule (`tflm.compiler.methods`). `bands` splits
  large operators into steps that the threads of a `team` run at the same time.

To add a kernel:

1. Write a function under `@kernel` in the module of its family: parameters by name and type, `return DONE` at the end.
  numba works in 64 bits (int8 + int8 is an int64, as in Python): if a loop should use narrow vectors, call
  `as_int32(...)` at each step. Integers shift, divide and compare as in Python. Write only what belongs to the output.
  Read only what belongs to the inputs: tests put a page that can't be touched behind an arena. The same function is
  translated to C: `tflm.compiler.language` says what that takes. Add its arguments to `tests/kernel_cases.py`.
2. Write what binds a node: from the context, the node, whose `op_data` is as the registration's `prepare` left it, and
  a `Profile` to a list of steps, `kernel.step(x=array, ...)`. Compute tables, packed weights and sums here, as arrays
  that the step owns. Return None if the case is not supported, or if values cannot be shown to fit in 32 bits: the
  numpy kernel then runs between compiled ones. Outputs overlap inputs only as the registration declares: `bindings`
  leaves other nodes to numpy. An operator that only copies needs no binding function: its registration declares the
  copies (`Copying`).
3. List the operator in `BINDINGS` of the module and in `FAMILIES` of `bindings`.

A tensor that `is_constant` may be read when the node is bound; any other may change from invoke to invoke. If the numpy
kernel would raise an error (such as an index out of range), a kernel returns `REFUSED` before it overwrites anything
that the numpy kernel reads: the latter then runs, and raises the error.
"""
