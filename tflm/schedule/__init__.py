"""Decide where and when a model's operators run: stages that compute a few rows at a time, and the memory that they
need.

- `rows` and `bands` say which rows of its inputs an operator needs for some rows of its output.
- `stage_search` searches stages within a memory budget, and says when tensors are alive. It compares stages with a cost
  model: `band_costs` for bands that SLICE and CONCATENATION join, `line_buffers` for calls of generated C. Another
  strategy would add another cost model.
- `bands` writes stages in bands into a graph, `band_search` evaluates them on a target.
- `lowering` makes a `schedule` of calls on `line_buffers`, and `plan` chooses a plan.
- `call_checker` checks a plan. It shares only the records in `calls` with the modules above.
"""
