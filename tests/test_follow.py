"""The differences that `tools/follow.py` finds between two trees of TFLM, and the declarations that it names."""

from __future__ import annotations

import json
from pathlib import Path

import follow
import pytest
from c_pieces import hash_of, pieces_of
from follow import MICRO, PIN, Difference, dependents, differences, pieces_in

HEADER = """
#ifndef GUARD_H_
#define GUARD_H_
namespace tflite {
// Of a reduction.
struct OpDataReduce {
  int32_t multiplier;
  int shift[2];
};
class Allocator {
 public:
  virtual ~Allocator() {}
  int size() const { return size_; }
 private:
  int size_ = 0;
};
}  // namespace tflite
#endif
"""
KERNEL = """
#include "reduce.h"
namespace tflite {
namespace {
constexpr int kAxes[] = {1, 2};
TfLiteStatus PrepareMeanOrSumHelper(TfLiteContext* context, OpDataReduce* data) {
  context->RequestScratchBufferInArena(context, 4, &data->shift[0]);
  return kTfLiteOk;
}
template <typename T = int8_t>
void Mean(const T* x, T* y) { *y = *x; }
}
TFLMRegistration Register_MEAN() { return {}; }
}
"""
RESOLVER = """
template <unsigned int tOpCount>
class MicroMutableOpResolver : public MicroOpResolver {
 public:
  TfLiteStatus AddMean() { return AddBuiltin(BuiltinOperator_MEAN, Register_MEAN(), ParseReducer); }
};
"""
FILES = {
    f"{MICRO}/kernels/reduce.h": HEADER,
    f"{MICRO}/kernels/reduce_common.cc": KERNEL,
    f"{MICRO}/kernels/reduce_test.cc": "int main() { return 0; }",
    f"{MICRO}/micro_mutable_op_resolver.h": RESOLVER,
    PIN: 'ZIP_PREFIX_NN="4ab83cc3cc98"',
}


def tree(path: Path, *changes: tuple[str, str, str]) -> follow.Pieces:
    """The pieces of the files above, with some of their text replaced."""
    files = dict(FILES)
    for name, old, new in changes:
        (file,) = [each for each in files if each.endswith(name)]
        assert old in files[file]
        files[file] = files[file].replace(old, new)
    for file, text in files.items():
        (path / file).parent.mkdir(parents=True, exist_ok=True)
        (path / file).write_text(text)
    return pieces_in(path)


REDUCE_H, REDUCE_CC, RESOLVER_H = "reduce.h", "reduce_common.cc", "resolver.h"


@pytest.mark.parametrize(
    ("change", "kind", "what", "name"),
    [
        ((REDUCE_H, "shift[2]", "shift[3]"), "structure", "changed", "OpDataReduce"),
        ((REDUCE_H, "size_ = 0;", "size_ = 0; int more_;"), "structure", "changed", "Allocator"),
        ((REDUCE_H, "virtual ~", "~"), "structure", "changed", "Allocator"),
        ((REDUCE_H, "class Allocator", "struct New { int a; }; class Allocator"), "structure", "new", "New"),
        ((REDUCE_CC, "context, 4,", "context, 8,"), "request", "changed", "PrepareMeanOrSumHelper"),
        ((REDUCE_CC, "*y = *x", "*y = -*x"), "arithmetic", "changed", "Mean"),
        ((REDUCE_CC, "{1, 2}", "{1, 3}"), "arithmetic", "changed", "kAxes"),
        ((RESOLVER_H, "AddMean()", "AddSum()"), "operator", "gone", "MicroMutableOpResolver::AddMean"),
        ((PIN, "4ab83cc3cc98", "99f736a6"), "pin", "changed", "CMSIS-NN"),
    ],
)
def test_a_change_is_found_by_its_kind(
    change: tuple[str, str, str], kind: str, what: str, name: str, tmp_path: Path
) -> None:
    before, after = tree(tmp_path / "before"), tree(tmp_path / "after", change)
    found = [(each.kind, each.what, each.name) for each in differences(before, after)]
    assert (kind, what, name) in found


@pytest.mark.parametrize(
    "change",
    [
        (REDUCE_H, "// Of a reduction.", "/* Of\nreductions. */"),
        (REDUCE_H, "GUARD_H_", "OTHER_H_"),
        (REDUCE_H, "  int32_t multiplier", "    int32_t   multiplier"),
        (REDUCE_H, "virtual ~Allocator() {}\n", "virtual ~Allocator() {}\n  int rank() const;\n"),
        (REDUCE_CC, '#include "reduce.h"', '#include "kernels/reduce.h"'),
        ("reduce_test.cc", "return 0", "return 1"),
    ],
)
def test_what_changes_no_piece_is_no_difference(change: tuple[str, str, str], tmp_path: Path) -> None:
    assert list(differences(tree(tmp_path / "before"), tree(tmp_path / "after", change))) == []


def test_a_piece_in_another_file_is_the_same() -> None:
    piece = {"structure OpData": "0123"}
    assert list(differences({"a.cc": piece}, {"a.h": piece})) == []
    assert len(list(differences({"a.cc": piece}, {"a.h": {"structure OpData": "4567"}}))) == 2


def test_branches_of_the_preprocessor_are_all_looked_at() -> None:
    text = "#ifdef A\nstruct S { int a; };\n#else\nstruct S { int b; };\n#endif\nstruct T { int c; };"
    found = pieces_of(text)
    assert {"a", "b"} <= set(found["structure", "S"])
    enum = "#if A\nenum E : int {\n#else\nenum E {\n#endif\n kOne };\nstruct T { int c; };"
    assert set(pieces_of(enum)) == {("structure", "E"), ("structure", "T")}
    assert pieces_of(enum)["structure", "T"] == found["structure", "T"]


def test_a_hash_tells_tokens_apart() -> None:
    assert hash_of(["int", "a"]) == hash_of(["int", "a"]) != hash_of(["inta"])


def test_declarations_that_depend_on_a_difference_are_named(tmp_path: Path) -> None:
    pieces = tree(tmp_path)
    structures, modules = follow.declared_structures(), follow.modules_by_stem(pieces)

    def of(kind: str, file: str, name: str) -> list[str]:
        return dependents(Difference(kind, "changed", file, name), structures, modules)

    kernels = f"{MICRO}/kernels"
    (place,) = of("structure", f"{kernels}/reduce.h", "OpDataReduce")
    file, line = place.split(":")
    text = (follow.PACKAGE.parent / file).read_text().splitlines()[int(line) - 1 :]
    assert '"OpDataReduce"' in "".join(text[:2])
    assert of("request", f"{kernels}/reduce_common.cc", "PrepareMeanOrSumHelper") == [
        "tflm/kernels/reference/reduce.py"
    ]
    assert of("arithmetic", f"{kernels}/cmsis_nn/conv.cc", "Eval") == ["tflm/libraries/cmsis_nn.py"]
    assert of("pin", PIN, "CMSIS-NN") == ["tflm/libraries/pins.py"]


def test_every_file_that_is_named_is_there() -> None:
    recorded = json.loads(follow.RECORD.read_text())
    structures, modules = follow.declared_structures(), follow.modules_by_stem(recorded)
    places = {
        place
        for file, pieces in recorded.items()
        for piece in pieces
        for place in dependents(Difference(piece.split()[0], "changed", file, piece.split()[-1]), structures, modules)
    }
    assert len(places) > 100
    assert all((follow.PACKAGE.parent / place.split(":")[0]).exists() for place in places)
    assert set(follow.ALIASES.values()) <= set(modules)


def test_structures_that_count_are_followed() -> None:
    recorded = {piece for pieces in json.loads(follow.RECORD.read_text()).values() for piece in pieces}
    for name in (
        "TfLiteTensor",
        "TfLiteEvalTensor",
        "TfLiteNode",
        "NodeAndRegistration",
        "OpDataConv",
        "MicroAllocator",
    ):
        assert any(piece.startswith("structure ") and piece.endswith(name) for piece in recorded), name


def test_the_command_compares_with_what_was_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tree(tmp_path / "before")
    tree(tmp_path / "after", (REDUCE_H, "shift[2]", "shift[3]"))

    def run(name: str, *options: str) -> tuple[str, object]:
        arguments = ["follow.py", str(tmp_path / name), "--against", str(tmp_path / "record.json"), *options]
        monkeypatch.setattr("sys.argv", arguments)
        status: object = 0
        try:
            follow.main()
        except SystemExit as end:
            status = end.code
        return capsys.readouterr().out, status

    assert run("before", "--record") == ("", 0)
    assert run("before") == ("nothing differs\n", 0)
    printed, status = run("after")
    assert status == 1
    assert "OpDataReduce -> tflm/kernels/reference/reduce.py:" in printed
    assert "1 pieces differ" in printed
    assert "no TFLM" in str(run("nothing")[1])
