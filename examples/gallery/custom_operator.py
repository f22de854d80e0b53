"""Run a custom operator.

SOFT_CLIP squashes real numbers into -1 to 1. A registration needs two functions: `prepare` checks the node, once;
`invoke` computes. The operator's tensors are views of the arena, as on the device.
"""

import sys
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

import tflm
from tflm.schema import TensorType

PICTURE = Path(sys.argv[1] if len(sys.argv) > 1 else "custom_operator.svg")


def prepare(context: tflm.KernelContext, node: tflm.Node) -> None:
    """Reject what the operator does not support, before anything runs."""
    node.expect(inputs=1, outputs=1)
    x = context.allocate_temp_input_tensor(node, 0)
    if x.type != TensorType.FLOAT32:
        raise tflm.OperatorError(f"is {x.type.name}, must be FLOAT32", tensor=x.name)


def invoke(context: tflm.KernelContext, node: tflm.Node) -> None:
    """Compute x / (1 + |x|)."""
    x, y = context.get_eval_input(node, 0).elements, context.get_eval_output(node, 0).elements
    y[:] = x / (1 + np.abs(x))


builder = tflm.ModelBuilder("a custom operator")
main = builder.subgraph()
given, made = main.input("x", (201,), TensorType.FLOAT32), main.tensor("y", (201,), TensorType.FLOAT32)
main.operator("SOFT_CLIP", [given], [made])
main.output(made)

resolver = tflm.MicroMutableOpResolver(1)
resolver.add_custom(tflm.Registration("SOFT_CLIP", prepare=prepare, invoke=invoke))
interpreter = tflm.MicroInterpreter(tflm.Model(builder.build()), resolver, bytearray(4096))
interpreter.allocate_tensors()
interpreter.input(0).data[:] = np.linspace(-10, 10, 201, dtype=np.float32)
interpreter.invoke()
print(f"{interpreter.arena_used_bytes()} bytes of the arena are used")

figure = Figure(figsize=(6, 3), layout="constrained")
axes = figure.subplots()
axes.plot(interpreter.input(0).data, interpreter.output(0).data)
axes.set(xlabel="x", ylabel="y", title="SOFT_CLIP, run in an arena")
figure.savefig(PICTURE)
