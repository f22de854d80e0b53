"""`tflm run`: run a model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import numpy as np

from tflm.application.errors import OptionError
from tflm.application.machine import MachineOptions
from tflm.application.models import load_model, title_of
from tflm.application.output_files import Written
from tflm.application.running import (
    answers,
    how_to_give_inputs,
    input_names,
    is_long_for_numpy,
    output_table,
    random_inputs,
    run_figures,
    write_outputs,
)
from tflm.application.stream_run import Frontend, plot_outputs, read_frames, stream_report, streaming_form
from tflm.cli.output import print_json, progress, show, show_table, wrote
from tflm.cli.parameters import NAMED, AsJson, ModelPath, flag, option
from tflm.delegates import default_delegates
from tflm.evaluation.input_files import FILE_KINDS, read_given
from tflm.evaluation.runner import inputs_of, outputs_of
from tflm.runtime.growing_arena import ready_interpreter


def run(
    model: ModelPath,
    inputs: Annotated[
        list[str] | None,
        option(
            "[NAME=]FILE",
            f"One sample or several, run in order: {FILE_KINDS}, or a folder. Keys of an .npz: in_<step>_<i> or "
            "input names. May be repeated.",
        ),
    ] = None,
    outputs: Annotated[
        Path | None, option("FILE", "Write outputs: .npz with out_<step>_<j>, .npy, or raw bytes."), Written.FILE
    ] = None,
    real: Annotated[
        bool, flag("--real", "Treat the files' values as real; quantize them for quantized inputs.")
    ] = False,
    random: Annotated[int | None, option("[SEED]", "Use random inputs; the seed is 0 by default.", min=0)] = None,
    steps: Annotated[int | None, option("COUNT", "Number of random steps; 1 by default.", min=1)] = None,
    dump_tensors: Annotated[bool, flag("--dump-tensors", "Also write every tensor, as tensor_<step>_<index>.")] = False,
    is_stream: Annotated[
        bool, flag("--stream", "Run the streaming form on --inputs, which are frames, and show outputs over time.")
    ] = False,
    hop: Annotated[int | None, option("FRAMES", "New frames of an invoke with --stream. Default: 1.", min=1)] = None,
    frontend: Annotated[
        Path | None, option("MODEL", "Model that makes frames of sound; --inputs are then WAV files.")
    ] = None,
    frontend_step: Annotated[
        int | None, option("SAMPLES", "Step from a frame of sound to the next. Default: no overlap.", min=1)
    ] = None,
    plot: Annotated[
        Path | None, option("FILE", "Draw the outputs over time as an image: .png, .svg or .pdf."), Written.FILE
    ] = None,
    on: MachineOptions = NAMED,
    as_json: AsJson = False,
) -> None:
    """Run a model on files or random inputs.

    A short run does not wait for the compiler: numpy computes floats, and whatever has no kernel in the cache. A run
    that takes numpy longer than compiling uses compiled kernels; floats may differ in their last bits.

    \b
    Examples:
      tflm run model.tflite --random
      tflm run model.tflite --inputs photo.png
      tflm run model.tflite --inputs x=x.csv --inputs y=y.csv --real
      tflm run model.tflite --inputs in.npz --outputs out.npz
      tflm run wake_word.tflite --stream --inputs frames.npy --plot answers.png
      tflm run wake_word.tflite --stream --inputs clip.wav --frontend audio_preprocessor.tflite --frontend-step 320
    """
    machine = on.machine("host")
    if inputs and random is not None:
        raise OptionError("use either --inputs or --random")
    if real and not inputs:
        raise OptionError("--real needs --inputs")
    if steps is not None and random is None:
        raise OptionError("--steps needs --random; input files determine their number of steps")
    if dump_tensors and (outputs is None or outputs.suffix != ".npz"):
        raise OptionError("--dump-tensors needs --outputs with an .npz")
    if not is_stream and any(each is not None for each in (hop, frontend, plot)):
        raise OptionError("--hop, --frontend and --plot need --stream")
    if is_stream and not inputs:
        raise OptionError(f"--stream needs --inputs with frames: {FILE_KINDS}")
    if frontend_step is not None and frontend is None:
        raise OptionError("--frontend-step needs --frontend")
    loaded = load_model(model)
    streamed = streaming_form(loaded, hop) if is_stream else None
    if streamed is not None:
        loaded = streamed.model
    if not inputs and random is None and loaded.subgraphs[0].inputs:
        raise OptionError(how_to_give_inputs(loaded))
    settings: dict[str, Any] = {
        "target": machine.target,
        "kernels": machine.kernels,
        "preserve_all_tensors": dump_tensors,
    }
    compiles = is_long_for_numpy(loaded, steps or 1)
    interpreter = ready_interpreter(loaded, delegates=default_delegates(loaded, compiles), **settings)
    tensors = inputs_of(interpreter)
    if inputs and is_stream:
        sound = None if frontend is None else Frontend(load_model(frontend), frontend_step)
        given = read_frames(inputs, loaded, streamed, real, sound)
    elif inputs:
        given = read_given(inputs, tensors, input_names(loaded), real)
    else:
        rng = np.random.default_rng(random)
        given = [random_inputs(tensors, rng) for _ in range(steps or 1)]
    if not compiles and is_long_for_numpy(loaded, len(given)):
        interpreter = ready_interpreter(loaded, **settings)
    results = answers(interpreter, given, dump_tensors, progress)
    if outputs is not None:
        write_outputs(outputs, results)
    names = [tensor.name for tensor in outputs_of(interpreter)]
    title = title_of(model)
    if plot is not None:
        plot_outputs(plot, title, streamed, names, results)
    if as_json:
        print_json(run_figures(model, names, results))
        return
    if is_stream:
        show(stream_report(title, streamed, names, results))
    elif outputs is None:
        show_table(output_table(names, results))
    if written := [path for path in (outputs, plot) if path is not None]:
        wrote(*written)
