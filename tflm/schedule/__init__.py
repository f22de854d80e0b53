"""Decide where and when a model's operators run: stages that compute a few rows at a time, and the memory that they
need.

- `rows`, `bands` and `row_operators` say which rows of its inputs an operator needs for some rows of its output.
- `liveness` says when tensors are alive.
- `stage_search` searches stages within a memory budget. It compares them with a cost model: `band_costs` for bands that
  SLICE and CONCATENATION join, `line_buffer_costs` for calls of generated C. Another strategy would add another cost
  model.
- `band_stage` writes stages in bands into a graph, `band_search` evaluates them on a target.
- `lowering` makes a `schedule` of calls on `line_buffers`, `placement` places its buffers, `plan` chooses a plan.
- `call_checker` checks a plan. It shares only the records in `calls` and `kernels` with the modules above.
"""
