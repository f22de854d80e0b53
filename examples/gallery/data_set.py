"""Evaluate a data set with the device's integers.

The int8 model runs on 500 angles with TFLM's integer arithmetic, next to the float model that it was made from. The
differences are in units of the output.
"""

import sys
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

import tflm

PICTURE = Path(sys.argv[1] if len(sys.argv) > 1 else "data_set.svg")
FOLDER = Path(__file__).parents[1] / "hello_world"

in_int8, in_float = (tflm.Model.from_file(FOLDER / f"hello_world_{kind}.tflite") for kind in ("int8", "float"))
angles = np.linspace(0, 2 * np.pi, 500, dtype=np.float32).reshape(-1, 1)
found = tflm.evaluate(in_int8, angles, reference=in_float, workers=1)
for table in found.tables():
    print(table.title, table.markdown(), sep="\n")

interpreter = tflm.MicroInterpreter(in_int8, tflm.AllOpsResolver(), bytearray(2048))
interpreter.allocate_tensors()
output = interpreter.output(0)
sines = (found.records["output0"].ravel() - float(output.zero_point)) * output.scale
figure = Figure(figsize=(6, 3), layout="constrained")
axes = figure.subplots()
axes.plot(angles, np.sin(angles), label="sine")
axes.plot(angles, sines, ".", markersize=2, label="int8 model")
axes.set(xlabel="angle", title=f"{found.count} samples, as a device answers them")
axes.legend()
figure.savefig(PICTURE)
