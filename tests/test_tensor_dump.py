"""Tensors that a device prints: the C++ code, the transmitted lines, and the comparison."""

from __future__ import annotations

import json
import shutil
import subprocess
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from example_models import FLOAT_MODEL, INT8_MODEL
from hypothesis import given
from hypothesis import strategies as st
from test_export import STAND_INS
from typer.testing import CliRunner

import tflm
from tflm.application.comparison import OtherKind, other_kind
from tflm.application.tensor_dump import BYTES_A_LINE, assembled, dumped_tensors, read_dump
from tflm.cli.app import app
from tflm.runtime.growing_arena import ready_interpreter


def device_tensors(model: Path, invokes: int) -> dict[tuple[int, int], bytes]:
    """The bytes of every tensor of some invokes, as a device has them that answers as TFLM does."""
    loaded = tflm.Model.from_file(model)
    interpreter = ready_interpreter(loaded, preserve_all_tensors=True, delegates=[])
    rng = np.random.default_rng(0)
    found = {}
    for invoke in range(invokes):
        given = interpreter.input(0).data
        given[...] = rng.integers(-128, 127, given.shape).astype(given.dtype)
        interpreter.invoke()
        for index in dumped_tensors(loaded):
            found[invoke, index] = interpreter.get_tensor(index).data.tobytes()
    return found


def lines_of(tensors: dict[tuple[int, int], bytes]) -> list[str]:
    """The lines of the log."""
    return [
        f"tflm-dump {invoke} {index} {place} {part.hex()} {zlib.adler32(part)}"
        for (invoke, index), data in tensors.items()
        for place in range(0, len(data), BYTES_A_LINE)
        for part in [data[place : place + BYTES_A_LINE]]
    ]


def compared(model: Path, lines: list[str], folder: Path, *options: str) -> Any:
    """Return the report of `tflm compare` on a model and a log."""
    (folder / "log.txt").write_text("\r\n".join(lines))
    arguments = ["compare", str(model), str(folder / "log.txt"), "--tolerance", "0", *options]
    shown, told = (CliRunner().invoke(app, [*arguments, *more]) for more in ([], ["--json"]))
    assert shown.exit_code == told.exit_code == 0, shown.output
    return {**json.loads(told.stdout), "shown": shown.stdout}


@given(st.binary(max_size=200), st.data())
def test_bytes_come_through_and_spoiled_lines_do_not(content: bytes, data: st.DataObject) -> None:
    lines = lines_of({(3, 7): content})
    prefix = data.draw(st.sampled_from(["", "12:00:01.2 -> ", "I (7) "]))
    found = read_dump(["wifi", *(prefix + line + "\r" for line in lines)]).get((3, 7), {})
    assert found == {place: content[place : place + 32] for place in range(0, len(content), 32)}
    if content:
        values = assembled(found, np.zeros(len(content), np.int8))
        assert values is not None
        assert values.tobytes() == content
        at = data.draw(st.integers(0, len(lines) - 1))
        digit = data.draw(st.integers(0, len(lines[at].split()[4]) - 1)) + len(lines[at].rsplit(" ", 2)[0]) + 1
        other = data.draw(st.sampled_from(sorted(set("0123456789abcdef") - {lines[at][digit]})))
        spoiled = [*lines[:at], lines[at][:digit] + other + lines[at][digit + 1 :], *lines[at + 1 :]]
        assert at * 32 not in read_dump(spoiled).get((3, 7), {})
        assert assembled(read_dump(spoiled).get((3, 7), {}), np.zeros(len(content), np.int8)) is None


def test_a_tensor_has_all_of_its_bytes_and_no_others() -> None:
    parts = {0: b"\1\2", 2: b"\3\4"}
    whole = assembled(parts, np.zeros((2, 2), np.int8))
    assert whole is not None
    assert whole.tolist() == [[1, 2], [3, 4]]
    for others, count in ((parts, 3), (parts, 5), ({0: b"\1\2", 3: b"\3\4"}, 4), ({2: b"\1\2"}, 2), ({}, 1)):
        assert assembled(others, np.zeros(count, np.int8)) is None


def test_inputs_and_all_that_operators_write_are_printed() -> None:
    builder = tflm.ModelBuilder()
    main = builder.subgraph()
    x = main.input("x", (2,), tflm.schema.TensorType.INT8)
    tensors = [main.tensor(name, (2,), tflm.schema.TensorType.INT8) for name in "ab"]
    main.operator("other", [x, main.constant("c", np.zeros(2, np.int8))], [tensors[1]])
    main.operator(tflm.schema.BuiltinOperator.ABS, [tensors[1]], [tensors[0]])
    main.output(tensors[0])
    assert dumped_tensors(tflm.Model(builder.build())) == [x, tensors[1], tensors[0]] == [0, 2, 1]


@pytest.mark.parametrize("model", [INT8_MODEL, FLOAT_MODEL], ids=lambda model: model.stem)
def test_a_device_that_answers_as_tflm_is_equal(model: Path, tmp_path: Path) -> None:
    told = compared(model, lines_of(device_tensors(model, 3)), tmp_path, "--check")
    assert told["outputs_agree"]
    assert len(told["tensors"]) == 3
    assert all(tensor["largest_error"] == 0 for tensor in told["tensors"])


def test_the_first_operator_that_goes_another_way_is_named(tmp_path: Path) -> None:
    tensors = device_tensors(INT8_MODEL, 2)
    main = tflm.Model.from_file(INT8_MODEL).subgraphs[0]
    for place in (1, 2):  # by one step in the second invoke
        index = main.operators[place].outputs[0]
        tensors[1, index] = bytes([tensors[1, index][0] ^ 1]) + tensors[1, index][1:]
    told = compared(INT8_MODEL, lines_of(tensors), tmp_path)
    assert told["first_diverging"]["operator"] == "1 FULLY_CONNECTED"
    scale = main.tensors[main.operators[1].outputs[0]].quantization.scale[0]
    assert told["first_diverging"]["largest_error"] == pytest.approx(scale)
    assert not told["outputs_agree"]


def test_lost_bytes_are_named_and_those_of_an_input_are_an_error(tmp_path: Path) -> None:
    tensors = device_tensors(INT8_MODEL, 1)
    lost = tflm.Model.from_file(INT8_MODEL).subgraphs[0].operators[1].outputs[0]
    told = compared(INT8_MODEL, lines_of({key: data for key, data in tensors.items() if key[1] != lost}), tmp_path)
    assert f"tensor {lost} " in told["shown"]
    assert len(told["tensors"]) == 2
    for lines, reason in ((lines_of(tensors)[1:], "bytes of input 0"), (["nothing"], "no lines with tflm-dump")):
        (tmp_path / "log.txt").write_text("\n".join(lines))
        answer = CliRunner().invoke(app, ["compare", str(INT8_MODEL), str(tmp_path / "log.txt")])
        assert answer.exit_code == 1
        assert reason in answer.stderr


DRIVER = """\
#include <cstdarg>
#include <cstdio>
#include <map>
#include <vector>
#include "tensor_dump.h"

std::map<int, std::vector<unsigned char>> contents = {{
{contents}
}};
TfLiteEvalTensor tensor;

void MicroPrintf(const char* format, ...) {{
  va_list arguments;
  va_start(arguments, format);
  vprintf(format, arguments);
  va_end(arguments);
  printf("\\n");
}}
TfLiteEvalTensor* tflite::MicroInterpreter::GetTensor(int index, int) {{
  tensor.data.data = contents.at(index).data();
  return &tensor;
}}
alignas(16) unsigned char memory[64];
int main() {{
  DumpHelloWorldInt8Tensors(reinterpret_cast<tflite::MicroInterpreter&>(memory), 0);
}}
"""


def test_the_firmware_prints_lines_that_are_read(tmp_path: Path) -> None:
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("no g++ in $PATH")
    assert CliRunner().invoke(app, ["export", str(INT8_MODEL), str(tmp_path), "--dump"]).exit_code == 0
    tensors = device_tensors(INT8_MODEL, 1)
    contents = ",\n".join(f"  {{{index}, {{{','.join(map(str, data))}}}}}" for (_, index), data in tensors.items())
    (tmp_path / "driver.cc").write_text(DRIVER.format(contents=contents))
    command = [compiler, "-std=c++17", f"-I{STAND_INS}", f"-I{tmp_path}", str(tmp_path / "driver.cc")]
    subprocess.run([*command, "-o", str(tmp_path / "driver")], check=True, timeout=120)
    printed = subprocess.check_output([tmp_path / "driver"], text=True)
    assert printed.splitlines() == lines_of(tensors)
    assert compared(INT8_MODEL, printed.splitlines(), tmp_path, "--check")["outputs_agree"]


def test_the_arena_has_room_for_all_tensors(tmp_path: Path) -> None:
    assert CliRunner().invoke(app, ["export", str(INT8_MODEL), str(tmp_path), "--dump"]).exit_code == 0
    measured = tflm.measure_arena(
        tflm.Model.from_file(INT8_MODEL), tflm.AllOpsResolver(), target=tflm.targets.CORTEX_M, planner="linear"
    )
    assert f"ArenaSize = {measured.minimum_arena_bytes};" in (tmp_path / "arena_size.h").read_text()


def test_a_part_is_for_a_device_alone() -> None:
    answer = CliRunner().invoke(app, ["compare", str(INT8_MODEL), str(FLOAT_MODEL), "--target", "cortex-m4"])
    assert answer.exit_code == 2


@pytest.mark.parametrize("name", ["d.serial", "d.txt", "d.log", "d", "d.out"])
def test_a_log_may_be_called_anything(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text("\n".join(lines_of(device_tensors(INT8_MODEL, 1))))
    answer = CliRunner().invoke(app, ["compare", str(INT8_MODEL), str(tmp_path / name), "--tolerance", "0", "--check"])
    assert answer.exit_code == 0, answer.output


def test_models_and_recordings_may_be_called_anything_too(tmp_path: Path) -> None:
    model, recording = tmp_path / "model.serial", tmp_path / "recorded.bin"
    model.write_bytes(INT8_MODEL.read_bytes())
    with recording.open("wb") as file:
        np.savez(file, in_0_0=np.zeros((1, 1), np.int8), out_0_0=np.zeros((1, 1), np.int8))
    assert other_kind(model) is OtherKind.MODEL
    assert other_kind(recording) is OtherKind.RECORDING
    assert other_kind(tmp_path / "nothing") is OtherKind.MODEL
    (tmp_path / "broken.tflite").write_bytes(b"broken")
    assert other_kind(tmp_path / "broken.tflite") is OtherKind.MODEL
