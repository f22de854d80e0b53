"""The compiled engine: kernels written in Python, compiled through LLVM, run as one program. Needs the extra `fast`.

It does not change results: every integer equals that of the kernels in `tflm.kernels.reference`.

- `tflm.compiler` says how a kernel is written, and compiles it. `fixed_point`, `functions` and `casts` have the
  arithmetic that kernels share.
- `tiles` has matrix tiles, whose LLVM IR is written by hand, and `columns` those of depthwise windows; `images` and
  `scaling` prepare inputs and outputs. `lines` and `planes` show that requantization and sums in float32 are exact.
- `plain_products` and `interpolation` have what takes the place of tiles and of large tables where kernels are to be
  plain: in C, on small processors, with `TFLM_CPU=plain`.
- A module a family has kernels and what binds them; `bindings` has the table from operator to family.
- `program` runs steps one after the other, called as a method of a PyCapsule (`tflm.compiler.methods`). `bands` splits
  large operators into steps that the threads of a `team` run at the same time.

To add a kernel:

1. Write a function under `@kernel` in the module of its family: parameters by name and type, `return DONE` at the end.
   numba works in 64 bits (int8 + int8 is an int64, as in Python): where a loop is to use narrow vectors, say
   `as_int32(...)` at each step. Integers shift, divide and compare as in Python. Write only what belongs to the output.
   Read only what belongs to the inputs: tests put a page that can't be touched behind an arena. The same function is
   translated to C: `tflm.compiler.language` says what that takes. Add its arguments to `tests/kernel_cases.py`.
2. Write what binds a node: from the context, the node and `node.op_data`, as the registration's `prepare` left it, to
   a list of steps, `kernel.step(x=array, ...)`. What can be worked out here (tables, packed weights, sums) is an array
   that the step owns. Give None where the case is not covered, or where 32 bits can't be shown to hold everything: the
   numpy kernel then runs between compiled ones.
   Outputs lie over inputs only as the registration declares: `bindings` leaves other nodes to numpy.
   An operator that only copies declares its copies in its registration (`Copying`); they are taken from there.
3. List the operator in `BINDINGS` of the module and in `FAMILIES` of `bindings`.

A tensor that `is_constant` may be read when the node is bound; any other may change from invoke to invoke. A kernel
that meets what the numpy kernel would refuse (an index out of range) returns `REFUSED` before it has written anything
that can't be written again: the numpy kernel then runs, and says what is wrong.
"""
