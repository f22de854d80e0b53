"""Models as C without an interpreter.

- `binding` binds the operators of a model to calls of kernels in memory of the host.
- `program` gives every address of these calls its place: RAM that is planned, or a table of constants.
- `source` translates kernels to C; `emitter` writes the program, `header` its interface, `self_test` its test.
- `compile` has `compile_model`, which puts the pieces together.
"""
