"""Run two models in one arena.

Models that never run at the same time can share the head: each keeps its own structures in the tail, and all use the
same bytes for tensors. Pass one allocator in place of the arena to every interpreter.
"""

import sys
from pathlib import Path

from matplotlib.figure import Figure

import tflm

PICTURE = Path(sys.argv[1] if len(sys.argv) > 1 else "two_models.svg")
NETWORK = Path(__file__).with_name("image_network.tflite")

models = {name: tflm.Model.from_file(NETWORK) for name in ("day", "night")}
sizes = {name: tflm.measure_arena(model, tflm.AllOpsResolver()) for name, model in models.items()}
apart = sum(size.minimum_arena_bytes for size in sizes.values())

allocator = tflm.MicroAllocator(bytearray(apart))
for name, model in models.items():
    interpreter = tflm.MicroInterpreter(model, tflm.AllOpsResolver(), allocator)
    interpreter.allocate_tensors()
    interpreter.invoke()
    print(f"after {name}: {interpreter.arena_used_bytes():,} bytes in use")
shared = interpreter.arena_used_bytes()
print(f"an arena for each: {apart:,} bytes; one for both: {shared:,} bytes")

figure = Figure(figsize=(6, 3), layout="constrained")
axes = figure.subplots()
tails = [size.tail_bytes for size in sizes.values()]
axes.bar(["one for both"], [shared - sum(tails)], label="head, shared")
axes.bar(["one for both"], [sum(tails)], bottom=[shared - sum(tails)], label="tails")
for (name, size), below in zip(sizes.items(), (0, sizes["day"].minimum_arena_bytes)):
    axes.bar(["an arena for each"], [size.minimum_arena_bytes], bottom=[below], label=f"arena of {name}")
axes.set(ylabel="bytes", title="Two models", ylim=(0, 1.4 * apart))
axes.legend(ncols=2)
figure.savefig(PICTURE)
