"""A program written for the `tflite-micro` package has the same results with its import changed."""

from __future__ import annotations

import io
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import numpy as np
import pytest
from large_operators import LARGE
from models import negated
from oracle import INSTALLED

import tflm
from tflm.compat.tflite_micro import runtime

ROOT = Path(__file__).parents[1]
MODEL, FLOAT_MODEL = (ROOT / "examples/hello_world" / f"hello_world_{name}.tflite" for name in ("int8", "float"))

PROGRAM = """
from functools import partial
import numpy as np

interpreter = runtime.Interpreter.from_file(MODEL)
for details in (interpreter.get_input_details(0), interpreter.get_output_details(0)):
    print(details["dtype"], details["shape"], sorted(details["quantization_parameters"].items()))
floats = runtime.Interpreter.from_file(FLOAT_MODEL)
print(sorted(floats.get_input_details(0)["quantization_parameters"].items()))
for value in (-128, -5, 0, 99, 127):
    interpreter.set_input(np.array([[value]], np.int8), 0)
    print(interpreter.invoke(), interpreter.get_output(0), interpreter.get_output(0).dtype)
print(interpreter.reset())
interpreter.print_allocations()
for mistake in (
    lambda: interpreter.set_input(np.array([[1]], np.int32), 0),
    lambda: interpreter.set_input(np.array([1, 2], np.int8), 0),
    lambda: interpreter.set_input(None, 0),
    *(
        partial(call, index)
        for call in (
            partial(interpreter.set_input, np.array([[1]], np.int8)),
            interpreter.get_output,
            interpreter.get_input_details,
            interpreter.get_output_details,
        )
        for index in (-1, 1, None)
    ),
    lambda: interpreter.GetTensor(0, 0),
    lambda: runtime.Interpreter.from_file("nothing.tflite"),
    lambda: runtime.Interpreter.from_bytes(None),
):
    for kind in (IndexError, ValueError, RuntimeError):
        try:
            mistake()
        except kind:
            print(kind.__name__)
            break
        except Exception:
            pass
keeper = runtime.Interpreter.from_file(MODEL, intrepreter_config=runtime.InterpreterConfig.kPreserveAllTensors)
keeper.set_input(np.array([[7]], np.int8), 0)
keeper.invoke()
for index in (0, 1, 3, 6, 9):
    print(sorted(keeper.GetTensor(index, 0).items()))
"""


def output_of(package: str) -> tuple[list[str], list[str]]:
    """Return the program's output, and its report of the arena on standard error."""
    script = f"from {package} import runtime\nMODEL, FLOAT_MODEL = {str(MODEL)!r}, {str(FLOAT_MODEL)!r}\n{PROGRAM}"
    if package.startswith("tflm."):
        with redirect_stdout(io.StringIO()) as printed, redirect_stderr(io.StringIO()) as report:
            exec(compile(script, package, "exec"), {})
        output, errors = printed.getvalue(), report.getvalue()
    else:
        answer = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=ROOT)
        output, errors = answer.stdout, answer.stderr
    return output.splitlines(), [line for line in errors.splitlines() if "Recording" in line]


@pytest.mark.skipif(not INSTALLED, reason="tflite-micro is not installed (pip install -e '.[oracle]')")
def test_a_program_gives_the_same_with_either_package() -> None:
    ours, theirs = (output_of(name) for name in ("tflm.compat.tflite_micro", "tflite_micro.python.tflite_micro"))
    assert ours == theirs


def test_what_goes_wrong_with_a_model_is_a_runtime_error() -> None:
    with pytest.raises(RuntimeError, match="too small"):
        runtime.Interpreter.from_file(MODEL, arena_size=100)
    with pytest.raises(RuntimeError, match=r"no \.tflite|not a \.tflite"):
        runtime.Interpreter.from_bytes(b"no model at all")


def test_operators_of_your_own_are_registrations() -> None:
    model, registration = negated()
    interpreter = runtime.Interpreter.from_bytes(model, custom_op_registerers=[registration], arena_size=10_000)
    interpreter.set_input(np.array([1, -2, 3], np.float32), 0)
    interpreter.invoke()
    copy = interpreter.get_output(0)
    copy[...] = 7
    assert interpreter.get_output(0).tolist() == [-1, 2, -3]
    with pytest.raises(RuntimeError, match="Registration"):
        runtime.Interpreter.from_bytes(model, custom_op_registerers=["AddNegated"])


def test_details_name_the_dimension_that_scales_lie_along() -> None:
    main = tflm.ModelBuilder().subgraph()
    main.output(main.input("x", (1, 2), tflm.schema.TensorType.INT8, tflm.quantized([0.5, 0.25], 0, 1)))
    interpreter = runtime.Interpreter.from_bytes(main.builder.build(), arena_size=10_000)
    assert interpreter.get_input_details(0)["quantization_parameters"]["quantized_dimension"] == 1


def test_decoded_tensors_may_lie_beside_the_arena(tmp_path: Path) -> None:
    data, _ = LARGE["TFLM_DECODE"]()
    inside, beside, small = (
        runtime.Interpreter.from_bytes(data, arena_size=1 << 20, alt_decompression_memory_size=size)
        for size in (0, 1 << 18, (1 << 18) - 1)
    )
    answers = []
    for interpreter in (inside, beside, small):
        interpreter.invoke()
        answers.append(interpreter.get_output(0))
    assert np.array_equal(answers[0], answers[1])
    assert np.array_equal(answers[0], answers[2])
    with pytest.raises(RuntimeError, match="too small"):
        runtime.Interpreter.from_bytes(data, arena_size=1 << 16)
    runtime.Interpreter.from_bytes(data, arena_size=1 << 16, alt_decompression_memory_size=1 << 18)
    (tmp_path / "m.tflite").write_bytes(data)
    runtime.Interpreter.from_file(tmp_path / "m.tflite", arena_size=1 << 16, alt_decompression_memory_size=1 << 18)


def test_errors_are_worded_as_there() -> None:
    interpreter = runtime.Interpreter.from_file(MODEL)
    for call in (interpreter.get_output, interpreter.get_input_details, interpreter.get_output_details):
        with pytest.raises(IndexError, match="Tensor is out of bound"):
            call(1)
    for values, reason in (
        (np.array([[1]], np.int32), "Cannot set tensor: Got value of type int32 but expected type int8 for input 0"),
        (np.array([1, 2], np.int8), r"Dimension mismatch. Got \[2\] but expected \[1, 1\] of input 0"),
        (None, "Input data must not be None"),
    ):
        with pytest.raises(ValueError, match=reason):
            interpreter.set_input(values, 0)
    with pytest.raises(RuntimeError, match="TFLM could not register custom op via SomeRandomOp"):
        runtime.Interpreter.from_file(MODEL, ["SomeRandomOp"])
    for wrong in ("SomeRandomOp", [("wrong", "format")]):
        with pytest.raises(ValueError, match="must be a list of strings"):
            runtime.Interpreter.from_file(MODEL, wrong)


def test_the_package_has_the_names_of_the_other() -> None:
    import tflm.compat.tflite_micro as tflite_micro

    assert tflite_micro.runtime is runtime
    assert tflite_micro.__version__ == tflm.__version__
    assert not hasattr(tflite_micro, "nothing")


def test_one_decode_after_the_other_has_the_memory_beside_the_arena() -> None:
    builder = tflm.ModelBuilder()
    main = builder.subgraph()
    x = main.input("x", (1, 2), tflm.schema.TensorType.FLOAT32)
    for i, values in enumerate(([1.0, 2.0], [10.0, 20.0], [100.0, 200.0])):
        head = np.array([0, 1, 0, 0, 1, 1, 2, *[0] * 9], np.uint8)  # a look-up table of two values, indices of one bit
        table = np.concatenate([head, np.array(values, np.float32).view(np.uint8)])
        codes, metadata = main.constant(f"codes{i}", np.array([0x40], np.uint8)), main.constant(f"head{i}", table)
        decoded, total = (main.tensor(f"{n}{i}", (1, 2), tflm.schema.TensorType.FLOAT32) for n in ("decoded", "sum"))
        main.operator("TFLM_DECODE", [codes, metadata], [decoded])
        main.operator(tflm.schema.BuiltinOperator.ADD, [x, decoded], [total], tflm.schema.AddOptions())
        x = total
    main.output(x)
    interpreter = runtime.Interpreter.from_bytes(builder.build(), arena_size=1 << 14, alt_decompression_memory_size=8)
    interpreter.set_input(np.zeros((1, 2), np.float32), 0)
    interpreter.invoke()
    assert interpreter.get_output(0).tolist() == [[111.0, 222.0]]
