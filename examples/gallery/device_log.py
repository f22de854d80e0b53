"""Read the log of a device.

A firmware prints the size of its arena and the ticks of each operator. The arena tells which kernels the firmware has;
the ticks are drawn next to the cycles that the model's operators are estimated to take. (The ticks of this log are
invented; read one of your own device with `tflm device-log`.)
"""

import sys
from pathlib import Path

from matplotlib.figure import Figure

import tflm
from tflm.firmware.device_log import read_device_log

PICTURE = Path(sys.argv[1] if len(sys.argv) > 1 else "device_log.svg")

LOG = """\
I (312) main: setup done
arena_used_bytes 772
I (355) tflm: FULLY_CONNECTED took 61 ticks (0 ms).
I (355) tflm: FULLY_CONNECTED took 97 ticks (0 ms).
I (356) tflm: FULLY_CONNECTED took 58 ticks (0 ms).
"""

model = tflm.Model.from_file(Path(__file__).parents[1] / "hello_world" / "hello_world_int8.tflite")
log = read_device_log(LOG.splitlines(), variables=0)
used = log.arena.parts["total"] if log.arena else None
cortex_m4 = tflm.targets.by_name("cortex-m4")
for kernels in ("reference", "cmsis-nn", "arduino"):
    size = tflm.measure_arena(model, tflm.AllOpsResolver(), target=cortex_m4, kernels=kernels)
    same = "as on the device" if size.arena_used_bytes == used else "not that of the device"
    print(f"{kernels}: {size.arena_used_bytes} bytes, {same}")

estimate = tflm.estimate(model, target=cortex_m4, kernels="cmsis-nn")
names = [f"{operator.operator_index} {operator.operator}" for operator in estimate.operators]
figure = Figure(figsize=(7, 3), layout="constrained")
left, right = figure.subplots(1, 2)
left.bar(names, [event.ticks for event in log.events])
left.set(title="device", ylabel="ticks of its clock")
right.bar(names, [operator.cycles or 0 for operator in estimate.operators], color="tab:orange")
right.set(title="estimate", ylabel="cycles of a Cortex-M4")
for axes in (left, right):
    axes.tick_params("x", labelrotation=20)
figure.savefig(PICTURE)
