"""Make a model fit into 64 KiB.

An nRF52832 has 64 KiB of RAM for everything: the arena, TFLM's own data, the stack and the application. `tflm.fit`
tries what leaves the answers unchanged, the cheapest first, and stops at the first result that fits.
"""

import sys
from pathlib import Path

import tflm
from tflm.application.arena_plot import arena_plot
from tflm.runtime.micro_measurement_report import drawn_figures

PICTURE = Path(sys.argv[1] if len(sys.argv) > 1 else "fit_into_64_kib.svg")

model = tflm.Model.from_file(Path(__file__).with_name("image_network.tflite"))
made = tflm.fit(model, board=tflm.boards.by_name("nrf52dk", sdk="bare-metal"), reserve=4096)
for step in made.steps:
    print(f"{step.name}: {step.minimum_arena_bytes:,} bytes, {'fits' if step.fits else 'does not fit'}")

plans = {}
for name, each in {"as it is": model, "made to fit": made.model}.items():
    size = tflm.measure_arena(each, tflm.AllOpsResolver(), target=made.board.target, kernels=made.kernels)
    plans[name] = drawn_figures(size)
arena_plot(PICTURE, "image_network", plans)
