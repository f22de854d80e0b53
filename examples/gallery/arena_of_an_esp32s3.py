"""Size an arena for an ESP32-S3.

Espressif's firmware runs ESP-NN's kernels, which request other buffers than TFLM's reference kernels do. Both figures
are exact for their build; take the one of the kernels that the firmware has.
"""

import sys
from pathlib import Path

import tflm
from tflm.application.arena_plot import arena_plot
from tflm.runtime.micro_measurement_report import drawn_figures

PICTURE = Path(sys.argv[1] if len(sys.argv) > 1 else "arena_of_an_esp32s3.svg")

model = tflm.Model.from_file(Path(__file__).with_name("image_network.tflite"))
esp32s3 = tflm.targets.by_name("esp32s3")
plans = {}
for kernels in ("reference", "esp-nn"):
    size = tflm.measure_arena(model, tflm.AllOpsResolver(), target=esp32s3, kernels=kernels)
    print(f"{kernels}: tensor_arena of {size.minimum_arena_bytes:,} bytes, of which the head has {size.head_bytes:,}")
    plans[kernels] = drawn_figures(size)

for board in ("esp32-s3-devkitc-1", "esp32-s3-eye"):
    print(f"{board}: {'it fits' if tflm.board_fit(model, tflm.boards.by_name(board)).fits else 'it does not fit'}")

arena_plot(PICTURE, "image_network", plans)
