"""Models as C without an interpreter.

- `binding` binds the operators of a model to kernel calls on host arrays.
- `program` maps every address in these calls to planned RAM or to a table of constants.
- `source` translates kernels to C; `emitter` writes the program, `header` its header file, `self_test` its test.
- `compile` has `compile_model`, which runs all of these.
"""
