"""`tflm stream`: a model over a window of frames, rewritten to take new frames only."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import tflm
from tflm.application.errors import OptionError
from tflm.application.machine import MachineOptions
from tflm.application.models import load_model, title_of
from tflm.application.streaming_report import streaming_figures, streaming_report
from tflm.cli.output import answer, status_line
from tflm.cli.parameters import NAMED, AsJson, ModelPath, Output, flag, option
from tflm.evaluation.input_files import stored_array


def stream(
    model: ModelPath,
    output: Output = None,
    on: MachineOptions = NAMED,
    hop: Annotated[int, option("FRAMES", "New frames of an invoke.", min=1)] = 1,
    axis: Annotated[
        int | None, option("AXIS", "Time dimension of the input. Default: the one that saves most work.")
    ] = None,
    input: Annotated[
        int | None, option("INDEX", "Input that is streamed. Default: the one that saves most work.", min=0)
    ] = None,
    initial: Annotated[
        Path | None, option("FILE", "The window before the first invoke, a .npy file. Default: zeros.")
    ] = None,
    causal: Annotated[bool, flag("--causal", "Make another network, in which no layer pads time: less work.")] = False,
    inputs: Annotated[
        Path | None, option("DATA", "Windows of frames to compare the answers on, as for tflm evaluate.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Rewrite a window of frames into a stream.

    Every invoke takes the newest frames and returns what the original returns for the window that ends with them, bit
    for bit, on any TFLM. What stays the same from window to window is kept in variables. Answers are compared before
    the model is written.

    With --causal, layers that pad time look back further instead, so that everything is kept. The answers differ from
    the original's: --inputs shows by how much.

    \b
    Examples:
      tflm stream wake_word.tflite -o streaming.tflite
      tflm stream keywords.tflite -o streaming.tflite --hop 2 --board nano33ble
      tflm stream keywords.tflite -o causal.tflite --hop 2 --causal --inputs windows.npz
    """
    machine = on.machine()
    loaded = load_model(model)
    with status_line("looking for the time axis") as tell:
        window = None if initial is None else stored_array(initial).read()
        try:
            streamed = tflm.stream(loaded, hop=hop, axis=axis, input=input, initial=window, causal=causal, report=tell)
        except tflm.StreamError:
            raise
        except tflm.ArgumentError as error:
            raise OptionError(str(error)) from None
        compared = None if inputs is None else tflm.evaluate(streamed.model, inputs, reference=loaded)
    before, after = (
        tflm.measure_arena(each, tflm.AllOpsResolver(), target=machine.target, kernels=machine.kernels)
        for each in (loaded, streamed.model)
    )
    if output is not None:
        streamed.write(output)
    report = streaming_report(title_of(model), streamed, machine, before, after, compared)
    answer(as_json, streaming_figures(model, streamed, before, after, compared), report, files=[output])
