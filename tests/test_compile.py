"""Models as C: built with the host's compiler and its sanitizers, they answer as TFLM does.

A handful of models is built by default; all of them, with every compiler that is installed, if `TFLM_C` is "all".
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import inspect
import itertools
import os
import platform
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checked_program import SANITIZERS, needs_compiler
from compiled_emulation import Emulator
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st
from image_graphs import Images
from models import Arrays
from test_real_models import NAMES, recorded
from typer.testing import CliRunner

import tflm
from tflm.c.binding import bind_model, offset_in_buffer, root_of
from tflm.c.compile import _require_small_tensors
from tflm.c.emitter import kernels_of
from tflm.c.header import comment_text
from tflm.c.instructions import COUNTED_BUILDS
from tflm.c.planner import CompileOptions
from tflm.c.row_binding import bind_small
from tflm.c.sizes import BUILDS
from tflm.cli.app import app
from tflm.schema import BuiltinOperator, Conv2DOptions, Padding, PadOptions, TensorType
from tflm.testing.operators import OPERATORS

EVERYTHING = os.environ.get("TFLM_C") == "all"
FEW = ["add0", "hello_world_float", "hello_world_int8", "okay_nabu_v2", "transpose_conv3"]
MODELS = NAMES if EVERYTHING else FEW
OPERATORS_BUILT = sorted(OPERATORS) if EVERYTHING else ["CIRCULAR_BUFFER", "GATHER", "IF", "WHILE"]

WARNINGS = (
    *("-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic"),
    *("-Wconversion", "-Wshadow", "-Wundef", "-Wswitch-default"),
)
OPTIMIZATIONS = ("-O0", "-O2", "-Os", "-O3") if EVERYTHING else ("-O2",)
FRAMES = ("-fomit-frame-pointer", "-fno-omit-frame-pointer") if EVERYTHING else ("-fomit-frame-pointer",)
"""A frame pointer takes a register from the loops in assembly."""
CLANG = next(filter(shutil.which, (f"clang-{version}" for version in range(30, 14, -1))), "clang")
"""The newest clang, which knows more processors."""
OTHER_CORES = ("3", "7", "33", "55", "85") if EVERYTHING else ()
COMPILERS = {
    "gcc -m32": ("gcc", "-m32"),
    "clang": ("clang",),
    "Cortex-M4": ("arm-none-eabi-gcc", "-mcpu=cortex-m4", "-mthumb"),
    "Cortex-M0+": ("arm-none-eabi-gcc", "-mcpu=cortex-m0plus", "-mthumb"),
    "RISC-V": ("riscv64-unknown-elf-gcc", "-march=rv32imc", "-mabi=ilp32", "-ffreestanding"),
    **{f"Cortex-M{core}": ("arm-none-eabi-gcc", f"-mcpu=cortex-m{core}", "-mthumb") for core in OTHER_CORES},
    "Cortex-M85, clang": (CLANG, "--target=arm-none-eabi", "-mcpu=cortex-m85", "-mthumb", "-ffreestanding"),
}
HOSTS = ("gcc", "clang") if EVERYTHING else ("cc",)
HOST_FLAGS = (SANITIZERS, ("-O2",), ("-Os",), ("-O3",)) if EVERYTHING else (SANITIZERS,)
HEADERS = [(cxx, standard) for cxx in ("g++", "clang++") for standard in ("-std=c++11", "-std=c++20")]

pytestmark = needs_compiler


def require_compiler(command: tuple[str, ...], folder: Path) -> None:
    """Skip a test whose compiler is not installed, lacks headers as gcc -m32 often does, or does not know the
    processor."""
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed")
    (folder / "headers.c").write_text("#include <stdint.h>\nint32_t zero;\n")
    made = subprocess.run(
        [*command, "-c", "headers.c", "-o", "headers.o"], cwd=folder, capture_output=True, text=True, check=False
    )
    if made.returncode:
        pytest.skip(f"{' '.join(command)}: {made.stderr.splitlines()[0][:200]}")


def built(folder: Path, *sources: str, flags: Sequence[str] = SANITIZERS, compiler: str = "cc") -> Path:
    """A program of C files in a folder."""
    program = folder / "program"
    subprocess.run([compiler, *WARNINGS, *flags, "-o", program, *sources, "-lm"], cwd=folder, check=True)
    return program


def check(folder: Path, compiled: tflm.CompiledModel, flags: Sequence[str] = SANITIZERS, compiler: str = "cc") -> None:
    """Build and run the self-test of a model."""
    compiled.write(folder)
    program = built(folder, f"{compiled.name}.c", f"{compiled.name}_test.c", flags=flags, compiler=compiler)
    ran = subprocess.run([program], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def with_recorded_answers(compiled: tflm.CompiledModel, outputs: list[Arrays]) -> None:
    """The self-test of a model compares with TFLM's recorded answers."""
    text = compiled.files[f"{compiled.name}_test.c"]
    for i, arrays in enumerate(zip(*outputs, strict=True)):
        values = np.concatenate([array.reshape(-1) for array in arrays])
        if values.dtype.kind in "iu":
            body = re.search(rf"output_{i}\[\d+\] = {{(.*?)}};", text, re.DOTALL)
            assert body is not None
            assert [int(word) for word in re.findall(r"-?\d+", body[1])] == values.tolist()


@pytest.mark.parametrize("name", MODELS)
def test_real_models_give_recorded_answers(corpus: Path, tmp_path: Path, name: str) -> None:
    inputs, outputs = recorded(corpus, name)
    model = tflm.Model.from_file(corpus / "models" / f"{name}.tflite")
    compiled = tflm.compile_model(model, name, self_test=inputs)
    with_recorded_answers(compiled, outputs)
    for compiler, flags in itertools.product(filter(shutil.which, HOSTS), HOST_FLAGS):
        check(tmp_path, compiled, flags, compiler)


@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("name", MODELS if EVERYTHING else ["micro_speech_quantized", "okay_nabu_v2"])
def test_every_compiler_takes_it_without_static_memory(corpus: Path, tmp_path: Path, name: str, compiler: str) -> None:
    command = COMPILERS[compiler]
    require_compiler(command, tmp_path)
    compiled = tflm.compile_model(tflm.Model.from_file(corpus / "models" / f"{name}.tflite"), name)
    compiled.write(tmp_path)
    for flags in itertools.product(OPTIMIZATIONS, FRAMES):
        subprocess.run([*command, *WARNINGS, *flags, "-c", f"{name}.c", "-o", "model.o"], cwd=tmp_path, check=True)
    sizes = subprocess.run(["size", "-A", "model.o"], cwd=tmp_path, check=True, capture_output=True, text=True).stdout
    sections = {line.split()[0]: int(line.split()[1]) for line in sizes.splitlines() if line.startswith(".")}
    assert sum(size for name, size in sections.items() if name.startswith((".data", ".bss"))) == 0


@pytest.mark.parametrize("command", HEADERS if EVERYTHING else HEADERS[:1], ids=" ".join)
@pytest.mark.parametrize("name", MODELS if EVERYTHING else ["okay_nabu_v2"])
def test_the_header_is_also_for_cpp(corpus: Path, tmp_path: Path, name: str, command: tuple[str, str]) -> None:
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed")
    tflm.compile_model(tflm.Model.from_file(corpus / "models" / f"{name}.tflite"), name).write(tmp_path)
    (tmp_path / "main.cc").write_text(f'#include "{name}.h"\nint main() {{ return {name}_invoke(nullptr); }}\n')
    flags = [*command, "-Wall", "-Wextra", "-Werror", "-pedantic", "-c", "main.cc"]
    subprocess.run(flags, cwd=tmp_path, check=True)


@pytest.mark.parametrize("operator", OPERATORS_BUILT)
@given(data=st.data())
@settings(max_examples=10 if EVERYTHING else 1, phases=(Phase.generate,))
def test_single_operators_give_what_the_interpreter_gives(
    operator: str, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    model, invocations = data.draw(OPERATORS[operator])
    try:
        compiled = tflm.compile_model(tflm.Model(model), "model", self_test=invocations)
    except tflm.TflmError:
        return
    check(tmp_path_factory.mktemp("model"), compiled)


def running_sum(names: Sequence[str] = ("y",)) -> tflm.Model:
    """A model that adds its input to a variable, and returns the sum so far, in an output of each name."""
    builder = tflm.ModelBuilder()
    main = builder.subgraph()
    x = main.input(f"x{names[0]}", (1, 2), TensorType.FLOAT32)
    state = main.tensor(f"state{names[0]}", (1, 2), TensorType.FLOAT32, is_variable=True)
    main.operator(BuiltinOperator.ADD, [x, state], [state])
    for name in names:
        y = main.tensor(name, (1, 2), TensorType.FLOAT32)
        main.operator(BuiltinOperator.ABS, [state], [y])
        main.output(y)
    return tflm.Model(builder.build())


class Instance:
    """A compiled model in a library of the host, with RAM of its own."""

    def __init__(self, library: ctypes.CDLL, compiled: tflm.CompiledModel):
        self._library, self._name = library, compiled.name
        self.ram = np.full(compiled.ram_bytes + 16, 0xA5, np.uint8)
        self.address = self.ram.ctypes.data + -self.ram.ctypes.data % 16
        library[f"{self._name}_reset"](ctypes.c_void_p(self.address))

    def tensor(self, name: str, count: int, kind: type[ctypes.c_float] | type[ctypes.c_int32]) -> Any:
        """The elements of an input or output, such as "input_0"."""
        function = self._library[f"{self._name}_{name}"]
        function.restype = ctypes.POINTER(kind)
        return np.ctypeslib.as_array(function(ctypes.c_void_p(self.address)), (count,))

    def invoke(self) -> int:
        """Return the result of NAME_invoke."""
        status: int = self._library[f"{self._name}_invoke"](ctypes.c_void_p(self.address))
        return status


def library_of(folder: Path, compiled: tflm.CompiledModel, *flags: str) -> ctypes.CDLL:
    """A compiled model as a library of the host."""
    compiled.write(folder)
    sources = [name for name in compiled.files if name.endswith(".c")]
    command = ["cc", *WARNINGS, *flags, "-shared", "-fPIC", "-o", "model.so", *sources, "-lm"]
    subprocess.run(command, cwd=folder, check=True)
    return ctypes.CDLL(str(folder / "model.so"))


def test_instances_have_variables_of_their_own(tmp_path: Path) -> None:
    compiled = tflm.compile_model(running_sum(), "sum")
    library = library_of(tmp_path, compiled)
    one, other = Instance(library, compiled), Instance(library, compiled)
    sums = []
    for instance, value in ((one, 1.0), (other, 10.0), (one, 2.0), (other, 20.0)):
        instance.tensor("input_0", 2, ctypes.c_float)[:] = value
        assert instance.invoke() == 0
        sums.append(float(instance.tensor("output_0", 2, ctypes.c_float)[0]))
    assert sums == [1, 10, 3, 30]
    library["sum_reset"](ctypes.c_void_p(one.address))
    one.tensor("input_0", 2, ctypes.c_float)[:] = 5.0
    one.invoke()
    assert one.tensor("output_0", 2, ctypes.c_float).tolist() == [5, 5]


@pytest.mark.parametrize("zero_point", [0, 3])
def test_the_header_has_the_scale_and_the_zero_point_of_quantized_tensors(zero_point: int) -> None:
    builder = tflm.ModelBuilder()
    main = builder.subgraph()
    quantization = tflm.quantized(0.5, zero_point)
    x = main.input("x", (1, 4), TensorType.INT8, quantization)
    y, z = main.tensor("y", (1, 4), TensorType.INT8, quantization), main.tensor("z", (1, 4), TensorType.FLOAT32)
    main.operator(BuiltinOperator.RELU, [x], [y])
    main.operator(BuiltinOperator.DEQUANTIZE, [y], [z])
    main.output(y, z)
    header = tflm.compile_model(tflm.Model(builder.build()), "net").files["net.h"]
    found = dict(re.findall(r"#define NET_(\w+_(?:SCALE|ZERO_POINT)) (\S+)", header))
    wanted = {"SCALE": "0.5f", "ZERO_POINT": str(zero_point)}
    assert found == {f"{tensor}_{key}": value for tensor in ("INPUT_0", "OUTPUT_0") for key, value in wanted.items()}


def failing_gather() -> bytes:
    """A model that fails for an index of 4 or more."""
    builder = tflm.ModelBuilder()
    main = builder.subgraph()
    indices = main.input("indices", (2,), TensorType.INT32)
    values = main.constant("values", np.arange(4, dtype=np.float32))
    shown, y = main.tensor("shown", (2,), TensorType.FLOAT32), main.tensor("y", (2,), TensorType.FLOAT32)
    main.operator(BuiltinOperator.GATHER, [values, indices], [shown])
    main.operator(BuiltinOperator.ABS, [shown], [y])
    main.output(y)
    return builder.build()


def test_invoke_returns_the_operator_that_failed(tmp_path: Path) -> None:
    compiled = tflm.compile_model(tflm.Model(failing_gather()), "gather")
    instance = Instance(library_of(tmp_path, compiled), compiled)
    for index, status in ((3, 0), (4, 1), (0, 0)):
        instance.tensor("input_0", 2, ctypes.c_int32)[:] = [index, 1]
        assert instance.invoke() == status


NASTY = st.text(st.sampled_from("*/\\?\"\n\r'%;x\u202e\u2028é"), max_size=12)


def one_comment(text: str) -> bool:
    """Whether text is one comment for C, whose trigraphs and continued lines are replaced first."""
    replaced = text.replace("??/", "\\").replace("\\\n", "")
    return re.fullmatch(r"/\*((?!\*/|/\*).)*\*/", replaced) is not None


@given(names=st.lists(NASTY, min_size=1, max_size=3))
@example(names=["*\\ int evil(void); /\\*"])
def test_names_do_not_leave_their_comments(names: list[str]) -> None:
    assert one_comment(f"/* {'/'.join(map(comment_text, names))} */")
    assert one_comment(f"/* {comment_text(names[0])}{comment_text('/')} */")


def test_functions_in_c_have_their_docstrings_as_comments() -> None:
    path = Path(__file__).parents[1] / "examples" / "hello_world" / "hello_world_int8.tflite"
    model = tflm.compile_model(tflm.Model.from_file(path), "m")
    for kernel in kernels_of(model.program):
        assert inspect.getdoc(kernel.function).splitlines()[0] in model.files["m.c"]
    assert not re.search(r"/\*[\s*]*\*/", model.files["m.c"])


def test_files_say_the_same_whatever_a_model_calls_its_tensors(tmp_path: Path) -> None:
    names = ["*\\ int evil(void); /\\*", "*/", "/*", "??/", "\\", "a\nb", '"', "\r*/", "*\\\n/", "\u2028"]
    compiled = tflm.compile_model(running_sum(names), "sum", self_test=1)
    plain = tflm.compile_model(running_sum(["x"] * len(names)), "sum", self_test=1)
    for name, text in compiled.files.items():
        of_model = r'/\*.*?\*/|return "Model .*?;\n'  # comments, and the size and hash of the file
        found, expected = (re.sub(of_model, "", each, flags=re.DOTALL) for each in (text, plain.files[name]))
        assert found == expected
    compiled.write(tmp_path)
    command = ["cc", *WARNINGS, "-Wtrigraphs", "-Wcomment", "-fsyntax-only", "sum.c", "sum_test.c"]
    subprocess.run(command, cwd=tmp_path, check=True)


def test_models_share_a_file_of_kernels(tmp_path: Path) -> None:
    models = {"first": running_sum(), "second": running_sum()}
    compiled = tflm.compile_models(models, self_test=2)
    compiled.write(tmp_path)
    assert "static void" not in compiled.files["first.c"]
    for name in models:
        program = built(tmp_path, f"{name}.c", f"{name}_test.c", "kernels.c")
        assert subprocess.run([program], check=False, capture_output=True).returncode == 0


def test_several_memories_hold_the_model_together(tmp_path: Path) -> None:
    compiled = tflm.compile_model(running_sum(), "sum", memories={"DTCM": 16, "SRAM": 1 << 10}, self_test=2)
    sizes = {i: int(re.findall(rf"SUM_RAM_{i}_BYTES (\d+)", compiled.files["sum.h"])[0]) for i in (0, 1)}
    assert sizes[0] <= 16
    assert sum(sizes.values()) >= compiled.ram_bytes
    check(tmp_path, compiled)


def test_rows_move_in_each_of_several_memories(tmp_path: Path) -> None:
    builder = tflm.ModelBuilder()
    images = Images(builder.subgraph(), (1, 16, 16, 2))
    for channels in (8, 8, 8, 2):
        images.convolution(images.last, channels)
    images.main.output(images.last)
    memories = {"DTCM": 720, "SRAM": 2240}
    compiled = tflm.compile_model(tflm.Model(builder.build()), "m", memories=memories, self_test=2)
    moves = re.findall(r"memmove\(\(?(base_\d)", compiled.files["m.c"])
    assert {"base_0", "base_1"} <= set(moves)
    check(tmp_path, compiled)


def small_image() -> tflm.Model:
    """A convolution whose image can be kept whole, or some rows of it."""
    images = Images(tflm.ModelBuilder().subgraph(), (1, 10, 10, 4))
    images.main.output(images.convolution(images.convolution(images.last, 8), 4, (1, 1)))
    return tflm.Model(images.main.builder.build())


@pytest.mark.parametrize(
    "options",
    [
        {"ram": 1200},
        {"memories": {"DTCM": 400, "SRAM": 4000}},
        {"self_test": 1},
        {"kernels": "cmsis-nn"},
        {"kernels": "cmsis-nn", "target": tflm.targets.by_name("cortex-m55")},
    ],
)
def test_several_models_take_the_options_of_one(options: dict[str, Any]) -> None:
    model = small_image()
    one, several = tflm.compile_model(model, "net", **options), tflm.compile_models({"net": model}, **options)
    other = tflm.compile_model(model, "net", **dict(list(options.items())[:-1]))
    assert several.files == several.models[0].files == one.files
    assert (one.files, one.generated_ram_bytes) != (other.files, other.generated_ram_bytes)
    assert one.generated_ram_bytes == (tflm.compile_model(model).ram_bytes if "kernels" in options else None)
    macros = dict(re.findall(r"#define NET_RAM_(\w+) (\d+)", one.files["net.h"]))
    sizes = [int(macros[f"{i}_BYTES"]) for i in range(len(options.get("memories", ())))]
    assert one.memories == dict(zip(options.get("memories", ()), sizes))
    assert (one.ram_bytes, one.ram_alignment) == (int(macros["BYTES"]), int(macros["ALIGNMENT"]))


@pytest.mark.parametrize("optimize", ["ram", "speed"])
def test_both_kinds_of_kernels_are_compared_with_one_optimization(optimize: str) -> None:
    compared = tflm.compile_model(small_image(), kernels="cmsis-nn", optimize=optimize)
    assert compared.generated_ram_bytes == tflm.compile_model(small_image(), optimize=optimize).ram_bytes


def test_several_models_have_the_limit_of_one() -> None:
    model = running_sum()
    limit = tflm.compile_model(model).constant_bytes - 1
    with pytest.raises(tflm.CompileError, match=f"--max-constants {limit + 1}"):
        tflm.compile_models({"net": model}, max_constants=limit)
    assert tflm.compile_models({"net": model}, max_constants=limit + 1).files


def test_rows_that_do_not_overlap_are_copied_with_memcpy(tmp_path: Path) -> None:
    builder = tflm.ModelBuilder()
    images = Images(builder.subgraph(), (1, 7, 9, 5))
    images.main.output(images.pad(images.last, (1, 2), (0, 1)))
    compiled = tflm.compile_model(tflm.Model(builder.build()), "m", self_test=2)
    assert "memcpy(" in compiled.files["m.c"]
    assert "memmove(" not in compiled.files["m.c"]
    check(tmp_path, compiled)


def test_an_array_is_known_by_its_buffer_and_its_offset() -> None:
    bound = bind_model(running_sum(), bind_small)
    placed = [(i, tensor.elements) for i, tensor in enumerate(bound.tensors()) if tensor.offset is not None]
    assert [bound.key(array) for _, array in placed] == [(0, i) for i, _ in placed]
    assert len({id(root_of(array)) for _, array in placed}) == len(placed) > 1
    for _, array in placed:
        last = array.reshape(-1)[-1:]
        assert bound.key(last) == bound.key(array)
        assert (offset_in_buffer(array), offset_in_buffer(last)) == (0, array.nbytes - array.itemsize)


def test_code_and_stack_are_known_of_kernels_that_were_measured(corpus: Path) -> None:
    compiled = tflm.compile_model(tflm.Model.from_file(corpus / "models" / "hello_world_int8.tflite"))
    assert compiled.code_bytes is not None
    assert compiled.stack_bytes is not None
    assert set(compiled.code_bytes) == set(BUILDS)
    assert compiled.instructions.total is not None
    assert set(compiled.instructions.total) == set(COUNTED_BUILDS)


@pytest.mark.skipif(not EVERYTHING, reason="takes a minute: TFLM_C=all")
@pytest.mark.parametrize("build", COUNTED_BUILDS)
def test_stack_and_instructions_are_as_said(corpus: Path, tmp_path: Path, build: tuple[str, str]) -> None:
    if None in [shutil.which(tool) for tool in ("arm-none-eabi-gcc", "qemu-system-arm")]:
        pytest.skip("needs arm-none-eabi-gcc and qemu-system-arm")
    names = ["ad01_int8", "hello_world_int8", "keyword_scrambled_8bit", "kws_ref_model"]
    models = [tflm.compile_model(tflm.Model.from_file(corpus / "models" / f"{name}.tflite"), name) for name in names]
    emulator = Emulator(tmp_path, build[1])
    for model, ran, counted in zip(models, emulator.stacks(models), emulator.invokes(models)):
        assert model.stack_bounds is not None
        assert ran.stack_bytes <= model.stack_bounds[build]
        assert model.instructions.total is not None
        assert model.instructions.total[build] == pytest.approx(counted, rel=0.03)


def test_the_command_writes_files_only_of_models_that_it_can_compile(tmp_path: Path) -> None:
    for name, model in (("sum", running_sum()), ("npu", unsupported())):
        (tmp_path / f"{name}.tflite").write_bytes(model.data)
        ran = CliRunner().invoke(app, ["compile", str(tmp_path / f"{name}.tflite"), str(tmp_path / name)])
        assert (tmp_path / name).exists() == (name == "sum") == (ran.exit_code == 0)
    assert {path.name for path in (tmp_path / "sum").iterdir()} == {"sum.c", "sum.h"}


def test_big_endian_processors_are_rejected(tmp_path: Path) -> None:
    tflm.compile_model(running_sum(), "sum").write(tmp_path)
    order = ["-U__BYTE_ORDER__", "-D__BYTE_ORDER__=__ORDER_BIG_ENDIAN__"]
    ran = subprocess.run(["cc", *order, "-c", "sum.c"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ran.returncode != 0
    assert "little-endian" in ran.stderr


def test_a_model_that_needs_more_ram_than_allowed_is_refused() -> None:
    needed = tflm.compile_model(running_sum()).ram_bytes
    with pytest.raises(tflm.CompileError, match=f"takes {needed} bytes of RAM, 1 more"):
        tflm.compile_model(running_sum(), ram=needed - 1)


def unsupported(operator: str = "ethos-u") -> tflm.Model:
    """A model whose operator has no kernels in C: that of an NPU, or one of the user's."""
    builder = tflm.ModelBuilder()
    main = builder.subgraph()
    x = main.input("x", (1, 4), TensorType.INT8)
    y = main.tensor("y", (1, 4), TensorType.INT8)
    main.operator(operator, [x], [y])
    main.output(y)
    return tflm.Model(builder.build())


@pytest.mark.parametrize(
    ("operator", "reason"), [("ethos-u", "an NPU"), ("MY_OWN", "custom operators that TFLM lacks")]
)
def test_operators_without_kernels_are_refused_by_name(operator: str, reason: str) -> None:
    with pytest.raises(tflm.CompileError, match=f"no C kernels for {operator}, .*{reason}"):
        tflm.compile_model(unsupported(operator))


def test_operators_of_tensorflow_are_not_sent_to_an_interpreter_that_lacks_them() -> None:
    with pytest.raises(tflm.CompileError, match=r"FlexErf, which TFLM lacks, too.*SELECT_TF_OPS"):
        tflm.compile_model(unsupported("FlexErf"))


@pytest.mark.parametrize("names", [("a", "A"), ("a", "Kernels"), ("kernels", "a"), ("a", "A_test"), ("a_TEST", "a")])
def test_models_whose_files_or_macros_would_be_the_same_are_refused(names: tuple[str, str]) -> None:
    with pytest.raises(tflm.ArgumentError, match=r"would have macros or files of the same name; choose another name"):
        tflm.compile_models(dict.fromkeys(names, running_sum()), self_test=1)


def test_subgraphs_that_nothing_calls_leave_no_constants(tmp_path: Path) -> None:
    builder = tflm.ModelBuilder()
    main, other = builder.subgraph(), builder.subgraph()
    for subgraph in (main, other):
        x = subgraph.input("x", (1, 2), TensorType.FLOAT32)
        y = subgraph.tensor("y", (1, 2), TensorType.FLOAT32)
        values = subgraph.constant("c", np.array([[1, 2]], np.float32)) if subgraph is other else x
        subgraph.operator(BuiltinOperator.ADD if subgraph is other else BuiltinOperator.MUL, [x, values], [y])
        subgraph.output(y)
    compiled = tflm.compile_model(tflm.Model(builder.build()), self_test=1)
    assert {table.name for table in compiled.program.tables} == {"mul_0_limits"}
    check(tmp_path, compiled)


def network() -> tflm.Model:
    """Return layers that run in a stage, and others."""
    builder = tflm.ModelBuilder()
    images = Images(builder.subgraph(), (1, 16, 16, 4))
    for depth in (8, 4, 8, 2):
        images.convolution(images.last, depth)
    images.main.output(images.last)
    return tflm.Model(builder.build())


def test_steps_together_are_an_invoke(tmp_path: Path) -> None:
    compiled = tflm.compile_model(network(), "net", self_test=2)
    assert compiled.stages
    (steps,) = re.findall(r"define NET_STEPS (\d+)", compiled.files["net.h"])
    assert int(steps) > len(compiled.program.bound.operators[0])
    compiled.write(tmp_path)
    program = built(tmp_path, "net.c", "net_test.c", flags=(*SANITIZERS, "-DNET_WITH_STEP"))
    assert subprocess.run([program], check=False, capture_output=True).returncode == 0


def test_a_step_tells_which_operator_failed(tmp_path: Path) -> None:
    compiled = tflm.compile_model(tflm.Model(failing_gather()), "gather")
    library = library_of(tmp_path, compiled, "-DGATHER_WITH_STEP")
    instance = Instance(library, compiled)
    for index, steps in ((3, [1, 0]), (4, [-1])):
        instance.tensor("input_0", 2, ctypes.c_int32)[:] = [index, 1]
        found = [library["gather_step"](ctypes.c_void_p(instance.address), step) for step in range(len(steps))]
        assert found == steps


def test_code_and_constants_are_in_the_sections_that_macros_name(tmp_path: Path) -> None:
    tflm.compile_model(network(), "net").write(tmp_path)
    macros = [f'-DNET_{kind}=__attribute__((section("{kind.lower()}")))' for kind in ("CODE", "CONST")]
    for options in (["-O2"], ["-Os"], ["-O0"]):
        subprocess.run(["cc", *options, *macros, "-c", "net.c", "-o", "net.o"], cwd=tmp_path, check=True)
        listed = subprocess.run(
            ["size", "-A", "net.o"], cwd=tmp_path, check=True, capture_output=True, text=True
        ).stdout
        sizes = {line.split()[0]: int(line.split()[1]) for line in listed.splitlines()[2:] if line.strip()}
        assert sizes["code"] > 500
        assert sizes["const"] > 500
        assert sizes[".text"] == 0, listed
        assert sizes.get(".rodata", 0) < 100, listed


@pytest.mark.parametrize(
    "command",
    [
        ("arm-none-eabi-gcc", "-mcpu=cortex-m4", "-mthumb", "-mfloat-abi=hard", "-mfpu=fpv4-sp-d16"),
        ("arm-none-eabi-gcc", "-mcpu=cortex-m7", "-mthumb", "-mfloat-abi=hard", "-mfpu=fpv5-d16"),
        ("riscv64-unknown-elf-gcc", "-march=rv32imfc", "-mabi=ilp32f", "-ffreestanding"),
        ("clang", "--target=aarch64-none-elf", "-ffreestanding"),
        ("cc", "-mfma"),
    ],
    ids=" ".join,
)
def test_products_and_sums_of_floats_are_not_fused(tmp_path: Path, command: Sequence[str]) -> None:
    if shutil.which(command[0]) is None or (command[0] == "cc" and platform.machine() != "x86_64"):
        pytest.skip(f"{' '.join(command)} is not for this machine")
    builder = tflm.ModelBuilder()
    main = builder.subgraph()
    x = main.input("x", (2, 8), TensorType.FLOAT32)
    weights = main.constant("w", np.ones((3, 8), np.float32))
    y = main.tensor("y", (2, 3), TensorType.FLOAT32)
    main.operator(BuiltinOperator.FULLY_CONNECTED, [x, weights, -1], [y])
    main.output(y)
    tflm.compile_model(tflm.Model(builder.build()), "sums").write(tmp_path)
    for optimization in ("-O2", "-Os", "-O3"):
        options = ["-std=gnu99", optimization, "-S", "sums.c", "-o", "sums.s"]
        subprocess.run([*command, *options], cwd=tmp_path, check=True)
        assert not re.findall(r"\tv?fn?m(?:add|sub|[as]\.).*", (tmp_path / "sums.s").read_text())


def test_files_tell_where_they_are_from() -> None:
    model = running_sum()
    compiled = tflm.compile_model(model, "sum", self_test=1)
    digest = hashlib.sha256(model.data).hexdigest()
    for name in ("sum.h", "sum.c", "sum_test.c"):
        head = " ".join(compiled.files[name].partition("*/")[0].split())
        assert head.startswith(f"/* Generated by tflm {tflm.__version__}. ")
        assert head.endswith(f" Model sum, {len(model.data)} bytes, SHA-256 {digest}")


def test_the_alignment_of_the_ram_is_checked_unless_ndebug_is_defined(tmp_path: Path) -> None:
    """The compiler prints no warning, even if the model has nothing else to reset."""
    tflm.compile_model(running_sum(), "sum").write(tmp_path)
    tflm.compile_model(network(), "net").write(tmp_path)
    call = "union sum_ram ram[2];\nint main(void) { sum_reset(ram[0].bytes + 1); return 0; }\n"
    (tmp_path / "call.c").write_text('#include "sum.h"\n' + call)
    for flags, fails in (((), True), (("-DNDEBUG",), False)):
        program = built(tmp_path, "call.c", "sum.c", "net.c", flags=flags)
        ran = subprocess.run([program], check=False, capture_output=True)
        assert (ran.returncode != 0) == fails


def test_models_of_too_many_constants_are_refused_before_they_are_written(tmp_path: Path) -> None:
    with pytest.raises(tflm.CompileError, match=r"more than 100; to allow them: --max-constants \d+") as error:
        tflm.compile_model(network(), max_constants=100)
    allowed = int(str(error.value).rpartition(" ")[2])
    assert allowed <= tflm.compile_model(network(), max_constants=allowed).constant_bytes
    with pytest.raises(tflm.CompileError, match=f"more than {allowed - 1:,}"):
        tflm.compile_model(network(), max_constants=allowed - 1)
    (tmp_path / "net.tflite").write_bytes(network().data)
    arguments = ["compile", str(tmp_path / "net.tflite"), str(tmp_path / "c"), "--max-constants", "100"]
    assert CliRunner().invoke(app, arguments).exit_code == 1
    assert not (tmp_path / "c").exists()


def test_tensors_that_no_microcontroller_has_room_for_are_refused() -> None:
    builder = tflm.ModelBuilder()
    main = builder.subgraph()
    x = main.input("x", (1, (1 << 24) + 1), TensorType.INT8)
    y = main.tensor("y", (1, (1 << 24) + 1), TensorType.INT8)
    main.operator(BuiltinOperator.ABS, [x], [y])
    main.output(y)
    model, needed = tflm.Model(builder.build()), (1 << 24) + 1
    with pytest.raises(tflm.CompileError, match=r"tensor x takes 16,777,217 bytes; .*--ram SIZE"):
        tflm.compile_model(model)
    for missing in (0, 1):
        named = CompileOptions(ram=needed - missing), CompileOptions(memories={"a": 1, "b": needed - 1 - missing})
        for options in named:
            with pytest.raises(tflm.CompileError, match="tensor x") if missing else contextlib.nullcontext():
                _require_small_tensors(model, options)


def test_names_that_c_does_not_have_are_refused() -> None:
    with pytest.raises(tflm.ArgumentError, match="'my_model'"):
        tflm.compile_model(unsupported(), "my-model")


def padded_convolution() -> tflm.Model:
    """Return a PAD on one side of an image, and a convolution with a stride of two."""
    builder = tflm.ModelBuilder()
    graph = builder.subgraph()
    x = graph.input("x", (1, 16, 16, 3), TensorType.INT8, quantization=tflm.quantized(0.02, -128))
    padded = graph.tensor("padded", (1, 17, 17, 3), TensorType.INT8, quantization=tflm.quantized(0.02, -128))
    amounts = graph.constant("amounts", np.array([[0, 0], [0, 1], [0, 1], [0, 0]], np.int32))
    graph.operator(BuiltinOperator.PAD, [x, amounts], [padded], PadOptions())
    values = np.random.default_rng(0).integers(-127, 128, (4, 3, 3, 3)).astype(np.int8)
    weights = graph.constant("weights", values, quantization=tflm.quantized(0.02))
    y = graph.tensor("y", (1, 8, 8, 4), TensorType.INT8, quantization=tflm.quantized(0.05, 3))
    options = Conv2DOptions(padding=Padding.VALID, stride_h=2, stride_w=2)
    graph.operator(BuiltinOperator.CONV_2D, [padded, weights, -1], [y], options)
    graph.output(y)
    return tflm.Model(builder.build())


def test_padding_is_folded_where_that_takes_less_ram(tmp_path: Path) -> None:
    model = padded_convolution()
    compiled = tflm.compile_model(model, "net", self_test=2)
    assert compiled.ram_bytes == tflm.compile_model(tflm.Model(tflm.fold(model))).ram_bytes
    assert "_pad" not in compiled.files["net.c"]
    compiled.write(tmp_path)
    assert (
        "as recorded"
        in subprocess.run(["make", "check"], cwd=tmp_path, check=True, capture_output=True, text=True).stdout
    )
