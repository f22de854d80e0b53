"""`tflm versions`, and what `tflm inspect` says of versions."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_cli import figures, run

from tflm.schema import BuiltinOperator, ModelBuilder, SoftmaxOptions, TensorType, quantized


def wrong_versions(tmp_path: Path) -> Path:
    """A model with an operator of a version that is too high, and one that is too low; and the wrong runtime."""
    builder = ModelBuilder()
    main = builder.subgraph()
    x, y = main.input("x", (4,), TensorType.INT8, quantized(1.0)), main.tensor("y", (4,), TensorType.INT8)
    z = main.tensor("z", (4,), TensorType.INT8, quantized(1 / 256, -128))
    main.operator(BuiltinOperator.RELU, [x], [y], version=3)
    main.operator(BuiltinOperator.SOFTMAX, [y], [z], SoftmaxOptions(beta=1.0), version=1)
    main.output(z)
    builder.metadata("min_runtime_version", b"1.5.0".ljust(16, b"\0"))
    path = tmp_path / "wrong.tflite"
    path.write_bytes(builder.build())
    return path


def test_inspect_tells_of_versions_that_are_not_needed_and_of_a_wrong_runtime(tmp_path: Path) -> None:
    path = wrong_versions(tmp_path)
    answer = run("inspect", path, "--check", COLUMNS="300")
    assert answer.returncode == 0
    relu, softmax, runtime = answer.stdout.splitlines()
    assert "RELU says version 3 and needs 2: version 3 brought INT16" in relu
    assert "SOFTMAX says version 1 and needs 2: version 2 brought INT8" in softmax
    assert "min_runtime_version is 1.5.0, its operators need 2.1.0" in runtime
    assert "needs 2.1.0, says 2.5.0" in run("inspect", path).stdout


@pytest.mark.parametrize(("options", "expected"), [((), [3, 2]), (("--downgrade",), [2, 2])])
def test_a_model_is_written_with_the_versions_that_it_needs(
    options: tuple[str, ...], expected: list[int], tmp_path: Path
) -> None:
    path, written = wrong_versions(tmp_path), tmp_path / "updated.tflite"
    report = figures("versions", path, "-o", written, *options)
    assert [(row["operator"], row["version"], row["needed_version"]) for row in report["operators"]] == [
        ("RELU", 3, 2),
        ("SOFTMAX", 1, 2),
    ]
    assert [row["version"] for row in figures("versions", written)["operators"]] == expected
    if options:
        assert run("inspect", written, "--check").stdout == "no errors or warnings\n"
    answer = run("versions", path, "-o", path)
    assert (answer.returncode, "is the model itself" in answer.stderr) == (2, True)
