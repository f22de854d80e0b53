"""Listen for a wake word.

A streaming model gets one slice of a spectrogram in each invoke and keeps the earlier ones in a variable. Its weights
are the pattern that it waits for. ESPHome loads such a model into an arena whose size depends on its release.
"""

import sys
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

import tflm
from tflm.firmware.wake_word import size_for_all, tensor_arena_sizes
from tflm.schema import (
    BuiltinOperator,
    ConcatenationOptions,
    FullyConnectedOptions,
    StridedSliceOptions,
    TensorType,
    VarHandleOptions,
)

PICTURE = Path(sys.argv[1] if len(sys.argv) > 1 else "wake_word.svg")
SLICES, BANDS = 10, 40
KEPT = (SLICES - 1) * BANDS

random = np.random.default_rng(0)
word = random.integers(-90, 90, (SLICES, BANDS), np.int8)
stream = random.integers(-90, 90, (60, BANDS), np.int8)
stream[30 : 30 + SLICES] = word

builder = tflm.ModelBuilder("a wake word")
main = builder.subgraph()
scale = tflm.quantized(0.1)
features = main.input("features", (1, 1, BANDS), TensorType.INT8, scale)
x = main.tensor("slice", (1, BANDS), TensorType.INT8, scale)
handle = main.tensor("handle", (1,), TensorType.RESOURCE)
kept, next_kept = (main.tensor(name, (1, KEPT), TensorType.INT8, scale) for name in ("earlier", "later"))
window = main.tensor("window", (1, KEPT + BANDS), TensorType.INT8, scale)
score = main.tensor("score", (1, 1), TensorType.INT8, tflm.quantized(30.0))
answer = main.tensor("answer", (1, 1), TensorType.UINT8, tflm.quantized(30.0, 128))
begin, end, step = (main.constant(n, np.array(v, np.int32)) for n, v in zip("bes", ([0, BANDS], [1, 400], [1, 1])))
main.operator(BuiltinOperator.RESHAPE, [features, main.constant("shape", np.array([1, BANDS], np.int32))], [x])
main.operator(BuiltinOperator.VAR_HANDLE, [], [handle], VarHandleOptions(container="", shared_name="slices"))
main.operator(BuiltinOperator.READ_VARIABLE, [handle], [kept])
main.operator(BuiltinOperator.CONCATENATION, [kept, x], [window], ConcatenationOptions(axis=1))
main.operator(BuiltinOperator.STRIDED_SLICE, [window, begin, end, step], [next_kept], StridedSliceOptions())
main.operator(BuiltinOperator.ASSIGN_VARIABLE, [handle, next_kept], [])
weights = main.constant("weights", word.reshape(1, -1), tflm.quantized(0.1))
main.operator(BuiltinOperator.FULLY_CONNECTED, [window, weights, -1], [score], FullyConnectedOptions())
main.operator(BuiltinOperator.QUANTIZE, [score], [answer])
main.output(answer)
model = tflm.Model(builder.build())

interpreter = tflm.MicroInterpreter(model, tflm.AllOpsResolver(), bytearray(1 << 14))
interpreter.allocate_tensors()
scores = []
for each in stream:
    interpreter.input(0).data[0, 0] = each
    interpreter.invoke()
    scores.append(float(interpreter.output(0).dequantized().item()))
print(f"the word ends at slice {np.argmax(scores)}")
needs = tensor_arena_sizes(model)
print(f"tensor_arena_size {size_for_all(needs)} works in every release of ESPHome")

figure = Figure(figsize=(7, 4), layout="constrained")
above, below = figure.subplots(2, 1, sharex=True)
above.imshow(stream.T, aspect="auto", origin="lower")
above.set(ylabel="band", title="spectrogram, and the score of each slice")
below.plot(scores)
below.set(xlabel="slice", ylabel="score")
figure.savefig(PICTURE)
