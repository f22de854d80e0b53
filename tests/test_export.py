"""Compile the files of `tflm export` with a C++ compiler and headers that imitate TFLM's."""

from __future__ import annotations

import itertools
import re
import shutil
import subprocess
import sysconfig
from pathlib import Path

import pytest
from example_models import FLOAT_MODEL, INT8_MODEL
from models import counter
from oracle import INSTALLED
from test_cli import figures, refusal, run

import tflm
from tflm.application.export import identifier
from tflm.firmware.flash import resolver_method
from tflm.kernels import REGISTRATIONS
from tflm.schema import BuiltinOperator, CastOptions, ShapeOptions, TensorType

STAND_INS = Path(__file__).parent / "stand_ins"
RESOLVER = STAND_INS / "tensorflow" / "lite" / "micro" / "micro_mutable_op_resolver.h"

STRICT = ("-std=c++17", "-fsyntax-only", "-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Werror")

ONLY_IN_THE_PACKAGE = {"AddBasicClassifier"}
"""Methods of operators that the `tflite-micro` package has, and TFLM's source does not."""


@pytest.fixture(scope="session")
def compiler() -> str:
    """Return the C++ compiler. Skip the test if there is none."""
    path = shutil.which("g++")
    if path is None:
        pytest.skip("no g++ in $PATH")
    return path


def check(compiler: str, folder: Path) -> None:
    """Compile every source in a folder without writing objects, with TFLM's old and new names."""
    for source, moved in itertools.product(sorted(folder.glob("*.cc")), range(3)):
        command = [compiler, *STRICT, f"-DMOVED={moved}", f"-I{STAND_INS}", f"-I{folder}", str(source)]
        answer = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert answer.returncode == 0, answer.stderr


def of_many_types() -> bytes:
    """Several inputs and outputs of every type that C++ has a name for, with names that C++ has other uses for."""
    builder = tflm.ModelBuilder()
    main = builder.subgraph()
    names = ["int main() {", 'a "quoted" name', "*/ // \\", "größe\n#error"]
    for name, (given, wanted) in zip(
        names,
        [
            (TensorType.FLOAT32, TensorType.INT32),
            (TensorType.INT8, TensorType.FLOAT32),
            (TensorType.INT16, TensorType.INT32),
            (TensorType.BOOL, TensorType.FLOAT32),
        ],
    ):
        x, y = main.input(name, (2, 3), given), main.tensor(f"{name} after", (2, 3), wanted)
        main.operator(BuiltinOperator.CAST, [x], [y], CastOptions())
        main.output(y)
    return builder.build()


MODELS = {
    "hello_world_int8": INT8_MODEL.read_bytes,
    "hello_world_float": FLOAT_MODEL.read_bytes,
    "2nd try (resource variables)": lambda: counter(TensorType.INT8, 4, with_init=True),
    "many types": of_many_types,
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("options", ["--target cortex-m", "--target host", "--target host --dump"])
def test_what_is_written_compiles(compiler: str, name: str, options: str, tmp_path: Path) -> None:
    path, folder = tmp_path / f"{name}.tflite", tmp_path / "firmware" / "generated"
    path.write_bytes(MODELS[name]())
    answer = run("export", path, folder, *options.split())
    assert answer.returncode == 0, answer.stderr
    assert set(answer.stdout.split("\n")[:-1]) == {str(file) for file in folder.iterdir()}
    check(compiler, folder)


INLINE = re.compile("typed_(input|output)_tensor<|MicroMutableOpResolver<|^tflite::GetModel")
"""Functions that TFLM's headers define, so that no library has them."""

ON_DEVICES = {"InitializeTarget"}
"""Functions of TFLM that the package does not need."""


PACKAGE = Path(sysconfig.get_path("purelib")) / "tflite_micro"


def symbols(*arguments: str) -> set[str]:
    """Functions of TFLM in what `nm` lists of a file, with their types."""
    listed = subprocess.run(["nm", "-C", *arguments], capture_output=True, text=True, check=True).stdout
    return set(re.findall(r" [TUWV] ((?:tflite::|Micro\w+\().*)", listed))


@pytest.mark.skipif(not INSTALLED, reason="needs the package tflite-micro, which has the symbols of TFLM")
@pytest.mark.parametrize("name", MODELS)
def test_the_library_of_tflm_has_what_projects_call(compiler: str, name: str, tmp_path: Path) -> None:
    """In the package of October 2026 all names have moved: firmware links with it if each symbol is the same."""
    path, folder = tmp_path / f"{name}.tflite", tmp_path / "generated"
    path.write_bytes(MODELS[name]())
    assert run("export", path, folder, "--target", "host", "--dump").returncode == 0
    sources = [str(source) for source in folder.glob("*.cc")]
    command = [compiler, "-std=c++17", "-DMOVED=2", f"-I{STAND_INS}", f"-I{folder}", "-c", *sources]
    subprocess.run(command, cwd=tmp_path, check=True, timeout=120)
    called = symbols("-u", *map(str, tmp_path.glob("*.o")))
    library = symbols("--defined-only", str(next(PACKAGE.rglob("_runtime.so"))))
    assert any("MicroInterpreter::Invoke" in symbol for symbol in called)
    missing = {symbol for symbol in called - library if not INLINE.search(symbol)}
    assert {symbol.rpartition("::")[2].partition("(")[0] for symbol in missing} <= ON_DEVICES


def test_the_array_is_the_model_and_the_size_is_the_arenas(tmp_path: Path) -> None:
    assert run("export", INT8_MODEL, tmp_path, "--target", "xtensa").returncode == 0
    source = (tmp_path / "model_data.cc").read_text()
    assert bytes(int(byte, 16) for byte in re.findall("0x([0-9a-f]{2})", source)) == INT8_MODEL.read_bytes()
    assert "alignas(16)" in source
    (measured,) = figures("arena", INT8_MODEL, "--target", "xtensa")["models"]
    size = (tmp_path / "arena_size.h").read_text()
    assert f"ArenaSize = {measured['minimum_arena_bytes']};" in size
    assert f"// Made by: tflm export {INT8_MODEL.name} {tmp_path.name} --target xtensa\n" in size


def test_the_resolver_holds_exactly_the_operators_that_are_used(tmp_path: Path) -> None:
    path = tmp_path / "counter.tflite"
    path.write_bytes(counter(TensorType.INT8, 4, with_init=True))
    assert run("export", path, tmp_path).returncode == 0
    header = (tmp_path / "op_resolver.h").read_text()
    added = re.findall(r"resolver\.(Add\w+)\(\)", header)
    assert added == ["AddAdd", "AddAssignVariable", "AddCallOnce", "AddReadVariable", "AddVarHandle"]
    assert f"MicroMutableOpResolver<{len(added)}>" in header


def test_main_has_neither_the_resolver_nor_the_interpreter_on_its_stack(tmp_path: Path) -> None:
    """The bound of the stack does not hold them, but the static RAM does."""
    assert run("export", INT8_MODEL, tmp_path).returncode == 0
    before, main = (tmp_path / "main.cc").read_text().split("MicroInterpreter* Prepare() {")
    assert re.search(r"sizeof\(\w+OpResolver\)\].*sizeof\(MicroInterpreter\)\]", before, re.DOTALL)
    assert re.findall(r"(?:OpResolver|MicroInterpreter) \w+[;(]", main) == []
    graph = tflm.Model.from_file(INT8_MODEL).subgraphs[0]
    known = [(graph.tensors or [])[i].quantization for i in (*(graph.inputs or ()), *(graph.outputs or ()))]
    meanings = [f"{each.scale[0]:.9g} * (integer - {each.zero_point[0]})" for each in known]
    assert re.findall(r"real = (.*?\))", main) == meanings


def test_values_without_a_scale_are_described_without_one(tmp_path: Path) -> None:
    assert run("export", FLOAT_MODEL, tmp_path).returncode == 0
    main = (tmp_path / "main.cc").read_text()
    assert "FLOAT32 [1, 1]" in main
    assert "real = " not in main


def test_commands_say_when_names_moved() -> None:
    seen = [" ".join(run(*words).stdout.split()) for words in (("releases",), ("check", INT8_MODEL, "--tflm", "wheel"))]
    assert ["moved from tflite" in text and "8 October" in text for text in seen] == [True, True]
    assert "moved from tflite" not in run("check", INT8_MODEL).stdout


@pytest.mark.parametrize("operator", REGISTRATIONS)
def test_the_resolver_of_tflm_has_the_method(operator: str) -> None:
    methods = set(re.findall(r"TfLiteStatus (\w+)\(\)", RESOLVER.read_text()))
    assert resolver_method(operator) in methods | ONLY_IN_THE_PACKAGE


@pytest.mark.parametrize("name", ["a\nint evil;\n", "a\rint evil;", "a\u2028int evil;", "a\\", "a??"])
def test_no_name_of_a_file_gets_out_of_its_comment(name: str, tmp_path: Path) -> None:
    path = tmp_path / f"{name}.tflite"
    path.write_bytes(INT8_MODEL.read_bytes())
    out = tmp_path / name
    assert run("export", path, out).returncode == 0
    for file in out.iterdir():
        first, second = file.read_text().splitlines()[:2]
        assert first.startswith("// Made by: tflm export ")
        assert not first.endswith(("\\", "??/"))
        assert "int evil" not in second


def test_a_folder_that_can_not_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert "file: is not a folder; pass a folder" in refusal("export", INT8_MODEL, tmp_path / "file")
    assert "file is not a folder" in refusal("export", INT8_MODEL, tmp_path / "file" / "folder")


def test_a_type_without_a_name_in_cpp_is_refused(tmp_path: Path) -> None:
    builder = tflm.ModelBuilder()
    main = builder.subgraph()
    x, y = main.input("half", (4,), TensorType.FLOAT16), main.tensor("y", (1,), TensorType.INT32)
    main.operator(BuiltinOperator.SHAPE, [x], [y], ShapeOptions(out_type=TensorType.INT32))
    main.output(y)
    (tmp_path / "m.tflite").write_bytes(builder.build())
    assert "'half' is FLOAT16" in refusal("export", tmp_path / "m.tflite", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_names_in_other_letters_are_told_apart() -> None:
    stems = ["model", "日本", "日木", "größe", "grosse", "gr_e", "---", "Модель", "\udc9b"]
    names = [identifier(stem) for stem in stems]
    assert len(set(names)) == len(stems)
    assert all(re.fullmatch("[a-z][a-z0-9_]*", name) for name in names)
    assert identifier("Hello-World.v2") == "hello_world_v2"
    assert identifier("96_int8") == "model_96_int8"
