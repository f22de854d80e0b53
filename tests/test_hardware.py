"""Operators of accelerators, and the drivers that run them."""

from __future__ import annotations

import numpy as np
import pytest

import tflm
from tflm.delegates.hardware import Driver, DriverCall, HardwareDelegate
from tflm.schema import TensorType


def model(operator: str) -> tflm.Model:
    """y = 3 x: a program, weights for ethos-u, an input and an output."""
    builder = tflm.ModelBuilder()
    main = builder.subgraph()
    x, y = main.input("x", (4,), TensorType.INT8), main.tensor("y", (4,), TensorType.INT8)
    program = [main.constant("program", np.arange(8, dtype=np.uint8))] if operator == "ethos-u" else []
    main.operator(operator, [*program, x], [y], custom_options=bytes([1, 4, 1]))
    main.output(y)
    return tflm.Model(builder.build())


def simulator(call: DriverCall) -> None:
    assert call.custom_options.tobytes() == bytes([1, 4, 1])
    call.outputs[0].view(np.int8)[:] = 3 * call.inputs[-1].view(np.int8)


def interpreter(operator: str, drivers: dict[str, Driver]) -> tflm.MicroInterpreter:
    delegates = [HardwareDelegate(drivers)]
    return tflm.MicroInterpreter(model(operator), tflm.AllOpsResolver(), bytearray(4096), delegates=delegates)


@pytest.mark.parametrize("operator", ["ethos-u", "edgetpu-custom-op"])
def test_a_driver_runs_the_operator_on_the_tensors_themselves(operator: str) -> None:
    made = interpreter(operator, {operator: simulator})
    made.allocate_tensors()
    made.input(0).data = np.array([1, -2, 3, -4], np.int8)
    made.invoke()
    assert made.output(0).data.tolist() == [3, -6, 9, -12]
    measured = tflm.measure_arena(model(operator), tflm.AllOpsResolver(), delegates=[HardwareDelegate({})])
    assert measured.arena_used_bytes == made.arena_used_bytes()


@pytest.mark.parametrize("operator", ["ethos-u", "edgetpu-custom-op"])
def test_without_a_driver_the_error_says_how_to_give_one(operator: str) -> None:
    with pytest.raises(tflm.OperatorError, match=rf"HardwareDelegate\({{'{operator}': driver}}\)"):
        interpreter(operator, {}).allocate_tensors()


def test_a_driver_that_fails_is_quoted() -> None:
    def broken(call: DriverCall) -> None:
        raise OSError("no such device")

    made = interpreter("edgetpu-custom-op", {"edgetpu-custom-op": broken})
    made.allocate_tensors()
    with pytest.raises(tflm.OperatorError, match="the driver of edgetpu-custom-op fails: no such device"):
        made.invoke()


def test_drivers_are_for_operators_that_there_are() -> None:
    with pytest.raises(ValueError, match="unknown operator 'ethosu'; use one of edgetpu-custom-op, ethos-u"):
        HardwareDelegate({"ethosu": simulator})
