"""The whole runtime on small models: answers, bytes in the arena, state, profiling, operators of the caller's own."""

from __future__ import annotations

from typing import Any

import models
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tflm
from tflm.memory import BufferRequirements, GreedyMemoryPlanner
from tflm.schema import (
    AddOptions,
    BuiltinOperator,
    IfOptions,
    ModelBuilder,
    SoftmaxOptions,
    TensorType,
    VarHandleOptions,
    quantized,
)
from tflm.schema.tables import METADATA_NAME, encode_offsets
from tflm.targets import CORTEX_M, HOST, INT, POINTER, Struct

F32, I8 = TensorType.FLOAT32, TensorType.INT8


def chain(count: int, width: int = 4) -> bytes:
    """relu after relu, float, each of its own tensor."""
    builder = ModelBuilder("a chain")
    main = builder.subgraph()
    tensor = main.input("x", (1, width), F32)
    for i in range(count):
        following = main.tensor(f"t{i}", (1, width), F32)
        main.operator(BuiltinOperator.RELU, [tensor], [following])
        tensor = following
    main.output(tensor)
    return builder.build()


def ready(model: bytes, arena: Any = None, resolver: Any = None, **options: Any) -> tflm.MicroInterpreter:
    """An interpreter with its tensors allocated."""
    interpreter = tflm.MicroInterpreter(
        tflm.Model(model), resolver or tflm.AllOpsResolver(), bytearray(1 << 16) if arena is None else arena, **options
    )
    interpreter.allocate_tensors()
    return interpreter


def test_every_tensor_is_in_the_callers_bytes_at_its_planned_offset() -> None:
    arena = bytearray(16384)
    interpreter = ready(chain(3), arena, preserve_all_tensors=True)
    interpreter.input(0).data[...] = np.array([[1, -2, 3, -4]], np.float32)
    interpreter.invoke()
    expected = {"x": [1, -2, 3, -4], "t0": [1, 0, 3, 0], "t1": [1, 0, 3, 0], "t2": [1, 0, 3, 0]}
    for index, tensor in enumerate(interpreter.eval_tensors()):
        assert tensor.offset is not None
        seen = np.frombuffer(arena, np.float32, 4, tensor.offset)
        assert seen.tolist() == expected[tensor.name]
        assert np.shares_memory(interpreter.get_tensor(index).data, np.frombuffer(arena, np.uint8))
    offsets = [buffer.offset for buffer in interpreter.planned_buffers()]
    assert offsets == [tensor.offset for tensor in interpreter.eval_tensors()]


def test_input_and_output_are_views_of_the_arena_not_copies() -> None:
    arena = bytearray(4096)
    interpreter = ready(chain(1), arena)
    interpreter.input(0).data[0, 1] = 7
    assert np.float32(7).tobytes() in bytes(arena)
    data = interpreter.output(0).data
    interpreter.invoke()
    assert data[0, 1] == 7


@given(st.integers(1, 12), st.integers(1, 9), st.sampled_from([HOST, CORTEX_M]))
def test_used_bytes_do_not_depend_on_the_size_of_the_arena(count: int, width: int, target: tflm.targets.Target) -> None:
    model = chain(count, width)
    used = {ready(model, bytearray(size), target=target).arena_used_bytes() for size in (1 << 14, 50_000, 65_537 - 1)}
    assert len(used) == 1


def test_bytes_outside_of_what_is_used_are_never_touched() -> None:
    arena = bytearray(b"\xa5" * 8192)
    interpreter = ready(chain(4), arena)
    interpreter.invoke()
    assert set(arena[interpreter.head_bytes + 1024 : len(arena) - interpreter.tail_bytes]) == {0xA5}


def test_a_target_changes_the_arena_but_not_the_answer() -> None:
    answers, used = [], []
    for target in (HOST, CORTEX_M):
        interpreter = ready(chain(2), target=target)
        interpreter.input(0).data[...] = np.array([[1, -2, 3, -4]], np.float32)
        interpreter.invoke()
        answers.append(interpreter.output(0).data.tolist())
        used.append(interpreter.arena_used_bytes())
    assert answers[0] == answers[1]
    assert used[1] < used[0]


def test_allocating_twice_changes_nothing() -> None:
    interpreter = ready(chain(2))
    used = interpreter.arena_used_bytes()
    interpreter.input(0).data[...] = 5
    interpreter.allocate_tensors()
    assert interpreter.arena_used_bytes() == used
    assert interpreter.input(0).data[0, 0] == 5


def test_two_models_in_one_arena_share_the_head_and_give_what_they_give_alone() -> None:
    allocator = tflm.MicroAllocator(bytearray(8192))
    models = [chain(2, 64), chain(5, 16)]
    together = [ready(model, allocator) for model in models]
    alone = [ready(model) for model in models]
    assert allocator.head_bytes == max(interpreter.head_bytes for interpreter in alone)
    for first, second in zip(together, alone):
        values = np.random.default_rng(0).standard_normal(first.input(0).dims).astype(np.float32)
        for interpreter in (first, second):
            interpreter.input(0).data[...] = values
            interpreter.invoke()
        assert np.array_equal(first.output(0).data, second.output(0).data)


def test_a_model_that_fails_to_allocate_leaves_a_shared_arena_as_it_was() -> None:
    allocator = tflm.RecordingMicroAllocator(bytearray(3000))
    ready(chain(2), allocator)
    used, records, log = allocator.used_bytes(), dict(allocator.records), list(allocator.log)
    with pytest.raises(tflm.ArenaExhausted):
        ready(chain(30), allocator)
    assert (allocator.used_bytes(), allocator.records, allocator.log) == (used, records, log)
    ready(chain(1), allocator)


def test_recorded_categories_say_what_the_tail_is_used_for() -> None:
    allocator = tflm.RecordingMicroAllocator(bytearray(1 << 14))
    ready(chain(3), allocator)
    kind = tflm.RecordedAllocationType
    assert allocator.records[kind.EVAL_TENSOR_DATA].count == 4
    assert allocator.records[kind.EVAL_TENSOR_DATA].requested_bytes == 4 * 24
    assert allocator.records[kind.NODE_AND_REGISTRATION_ARRAY].count == 3
    assert allocator.records[kind.PERSISTENT_TENSOR_DATA].requested_bytes == 2 * 64
    assert allocator.records[kind.PERSISTENT_TENSOR_QUANTIZATION_DATA].count == 0


def test_a_planner_of_the_callers_own_decides_where_tensors_go() -> None:
    class Backwards(GreedyMemoryPlanner):
        """Places buffers one after the other, the last one first."""

        @staticmethod
        def place(buffers: list[BufferRequirements]) -> list[int]:  # type: ignore[override]
            sizes = [buffer.size for buffer in buffers]
            return [sum(sizes[i + 1 :]) for i in range(len(sizes))]

    interpreter = ready(chain(3), planner=Backwards())
    assert [buffer.offset for buffer in interpreter.planned_buffers()] == [48, 32, 16, 0]
    interpreter.input(0).data[...] = 3
    interpreter.invoke()
    assert interpreter.output(0).data.tolist() == [[3, 3, 3, 3]]
    assert interpreter.tail_bytes < ready(chain(3)).tail_bytes  # TFLM keeps only its own planner in the arena


def test_an_offline_plan_in_the_model_is_obeyed() -> None:
    builder = ModelBuilder()
    main = builder.subgraph()
    x = main.input("x", (1, 4), F32)
    y, z = (main.tensor(name, (1, 4), F32) for name in "yz")
    main.operator(BuiltinOperator.RELU, [x], [y])
    main.operator(BuiltinOperator.RELU, [y], [z])
    main.output(z)
    builder.metadata(METADATA_NAME, encode_offsets([160, -1, 32]))
    interpreter = ready(builder.build())
    assert [buffer.offset for buffer in interpreter.planned_buffers()] == [160, 0, 32]
    assert interpreter.head_bytes == 176


def test_an_offline_plan_places_variables_but_never_constants() -> None:
    """As in TFLM: a variable with an offset lies in the head, one without in the tail; a constant in the model."""
    builder = ModelBuilder()
    main = builder.subgraph()
    x = main.input("x", (1, 4), F32)
    planned, other = (main.tensor(name, (1, 4), F32, is_variable=True) for name in ("planned", "other"))
    two = main.constant("two", np.full((1, 4), 2, np.float32))
    h, y, z = (main.tensor(name, (1, 4), F32) for name in "hyz")
    main.operator(BuiltinOperator.ADD, [x, two], [h], AddOptions())
    main.operator(BuiltinOperator.ADD, [h, planned], [y], AddOptions())
    main.operator(BuiltinOperator.ADD, [y, other], [z], AddOptions())
    main.output(z)
    builder.metadata(METADATA_NAME, encode_offsets([0, 64, -1, 96, 16, 32, 48]))
    interpreter = ready(builder.build())
    assert {buffer.name: buffer.offset for buffer in interpreter.planned_buffers()} == {
        "x": 0,
        "planned": 64,
        "h": 16,
        "y": 32,
        "z": 48,
    }
    assert interpreter.eval_tensors()[two].offset is None
    assert (interpreter.eval_tensors()[other].offset or 0) >= 1 << 15
    assert interpreter.head_bytes == 80
    interpreter.input(0).data[...] = 1
    interpreter.invoke()
    assert interpreter.output(0).data.tolist() == [[3, 3, 3, 3]]


@pytest.mark.parametrize(
    ("plan", "reason"),
    [
        (b"\1\0", "too few"),
        (encode_offsets([0, 0]), "offsets for 2 tensors, the model has 1"),
        (encode_offsets([0])[:-4], "too few bytes|too few for 1"),
    ],
)
def test_a_broken_offline_plan_is_refused(plan: bytes, reason: str) -> None:
    builder = ModelBuilder()
    main = builder.subgraph()
    main.output(main.input("x", (1,), F32))
    builder.metadata(METADATA_NAME, plan)
    with pytest.raises(tflm.ModelError, match=reason):
        ready(builder.build())


def test_variables_start_at_zero_and_do_so_again_after_reset() -> None:
    builder = ModelBuilder()
    main = builder.subgraph()
    x = main.input("x", (1, 2), I8, quantized(1.0, 3))
    state = main.tensor("state", (1, 2), I8, quantized(1.0, 3), is_variable=True)
    y = main.tensor("y", (1, 2), I8, quantized(1.0, 3))
    main.operator(BuiltinOperator.ADD, [x, state], [y], AddOptions())
    main.output(y)
    arena = bytearray(b"\x55" * 4096)
    interpreter = ready(builder.build(), arena)
    interpreter.input(0).data[...] = 8
    interpreter.invoke()
    assert interpreter.output(0).data.tolist() == [[8, 8]]  # (8 - 3) + 0, and the zero point
    interpreter.eval_tensors()[state].elements[...] = 10
    interpreter.invoke()
    assert interpreter.output(0).data.tolist() == [[15, 15]]
    interpreter.reset()
    interpreter.invoke()
    assert interpreter.output(0).data.tolist() == [[8, 8]]


def test_the_profiler_sees_each_operator_once_an_invoke() -> None:
    profiler = tflm.MicroProfiler()
    interpreter = ready(chain(3), profiler=profiler, delegates=())
    interpreter.invoke()
    interpreter.invoke()
    assert [event.tag for event in profiler.events] == ["RELU"] * 6
    assert all(event.duration_ns > 0 for event in profiler.events)
    assert profiler.total_ns() == sum(profiler.ns_per_tag().values())
    assert profiler.csv().splitlines()[0] == '"Event","Tag","Nanoseconds"'
    assert len(profiler.csv().splitlines()) == 7
    profiler.clear_events()
    assert profiler.events == []
    with pytest.raises(tflm.InterpreterError, match="unknown event 0"):
        profiler.end_event(0)


OP_DATA = Struct("OpData", handle=INT, table=POINTER)


def prepare_scale(context: tflm.KernelContext, node: tflm.Node) -> None:
    """Asks for one of each kind of memory."""
    input = context.allocate_temp_input_tensor(node, 0)
    table = context.allocate_array(4, np.int32)
    table[:] = 7
    node.op_data = table, context.request_scratch_buffer_in_arena(input.bytes), bytes(node.custom_options)


def invoke_scale(context: tflm.KernelContext, node: tflm.Node) -> None:
    """y = 7 x, by way of the scratch buffer."""
    table, handle, _ = node.op_data
    x, y = context.get_eval_input(node, 0).elements, context.get_eval_output(node, 0).elements
    scratch = context.get_scratch_buffer(handle).view(np.float32).reshape(x.shape)
    scratch[...] = x
    y[...] = scratch * table[0]


SCALE = tflm.Registration("SCALE", prepare=prepare_scale, invoke=invoke_scale, op_data=OP_DATA)


def custom_model() -> bytes:
    """One custom operator between two relus."""
    builder = ModelBuilder()
    main = builder.subgraph()
    x = main.input("x", (1, 8), F32)
    a, b, y = (main.tensor(name, (1, 8), F32) for name in "aby")
    main.operator(BuiltinOperator.RELU, [x], [a])
    main.operator("SCALE", [a], [b], custom_options=b"\1\2\3")
    main.operator(BuiltinOperator.RELU, [b], [y])
    main.output(y)
    return builder.build()


def test_a_custom_operator_gets_its_options_and_all_kinds_of_memory() -> None:
    resolver = tflm.MicroMutableOpResolver(2)
    resolver.add_relu()
    resolver.add_custom(SCALE)
    arena = bytearray(4096)
    interpreter = ready(custom_model(), arena, resolver)
    scratch = [buffer for buffer in interpreter.planned_buffers() if buffer.kind == "scratch"]
    assert [(buffer.name, buffer.bytes, buffer.first_use, buffer.last_use) for buffer in scratch] == [
        ("SCALE", 32, 2, 2)
    ]
    assert np.full(4, 7, np.int32).tobytes() in bytes(arena)
    interpreter.input(0).data[...] = 2
    interpreter.invoke()
    assert interpreter.output(0).data.tolist() == [[14.0] * 8]


def failing(error: Exception, phase: str) -> tflm.Registration:
    """SCALE, which raises in one of its phases."""

    def fail(context: tflm.KernelContext, node: tflm.Node) -> None:
        raise error

    phases = {"prepare": prepare_scale, "invoke": invoke_scale, phase: fail}
    return tflm.Registration("SCALE", op_data=OP_DATA, **phases)


@pytest.mark.parametrize("phase", ["init", "prepare", "invoke"])
def test_an_operator_that_refuses_is_named_with_its_place(phase: str) -> None:
    resolver = tflm.AllOpsResolver()
    resolver.add_custom(failing(tflm.OperatorError("does not like it", tensor="a"), phase))
    with pytest.raises(tflm.OperatorError) as error:
        ready(custom_model(), resolver=resolver).invoke()
    assert str(error.value) == "subgraph 0, operator 1 SCALE, tensor 'a': does not like it"
    assert (error.value.operator, error.value.operator_index, error.value.subgraph_index) == ("SCALE", 1, 0)


def test_an_exception_in_a_kernel_leaves_the_interpreter_usable() -> None:
    mood = {"bad": True}

    def moody(context: tflm.KernelContext, node: tflm.Node) -> None:
        if mood["bad"]:
            raise ZeroDivisionError
        invoke_scale(context, node)

    resolver = tflm.AllOpsResolver()
    resolver.add_custom(tflm.Registration("SCALE", prepare=prepare_scale, invoke=moody))
    interpreter = ready(custom_model(), resolver=resolver)
    interpreter.input(0).data[...] = 2
    with pytest.raises(ZeroDivisionError):
        interpreter.invoke()
    mood["bad"] = False
    interpreter.invoke()
    assert interpreter.output(0).data[0, 0] == 14


def test_an_operator_may_ask_for_twelve_scratch_buffers_and_no_more() -> None:
    def greedy(count: int) -> tflm.Registration:
        def prepare(context: tflm.KernelContext, node: tflm.Node) -> None:
            for _ in range(count):
                context.request_scratch_buffer_in_arena(16)

        return tflm.Registration("SCALE", prepare=prepare, invoke=lambda context, node: None)

    for count in (12, 13):
        resolver = tflm.AllOpsResolver()
        resolver.add_custom(greedy(count))
        if count == 12:
            assert ready(custom_model(), resolver=resolver).head_bytes > 12 * 16
        else:
            with pytest.raises(tflm.ArenaError, match="12 scratch buffers"):
                ready(custom_model(), resolver=resolver)


@pytest.mark.parametrize(
    ("phase", "call"),
    [
        ("init", lambda context, node: context.request_scratch_buffer_in_arena(16)),
        ("init", lambda context, node: context.allocate_temp_input_tensor(node, 0)),
        ("prepare", lambda context, node: context.get_scratch_buffer(0)),
        ("invoke", lambda context, node: context.allocate_persistent_buffer(16)),
    ],
)
def test_a_kernel_can_ask_for_memory_only_in_the_phase_for_it(phase: str, call: Any) -> None:
    phases = {"invoke": invoke_scale, "prepare": prepare_scale, phase: call}
    resolver = tflm.AllOpsResolver()
    resolver.add_custom(tflm.Registration("SCALE", **phases))
    with pytest.raises(tflm.InterpreterError, match="only during"):
        ready(custom_model(), resolver=resolver).invoke()


@pytest.mark.parametrize(
    "ask",
    [
        lambda context, node: context.request_scratch_buffer_in_arena(-64),
        lambda context, node: context.allocate_persistent_buffer(-256),
        lambda context, node: context.allocate_array(-1, np.int32),
    ],
)
def test_no_operator_gets_less_than_nothing(ask: Any) -> None:
    resolver = tflm.AllOpsResolver()
    resolver.add_custom(tflm.Registration("SCALE", prepare=ask, invoke=invoke_scale))
    with pytest.raises(tflm.OperatorError, match=r"SCALE.*requests -\d+ bytes"):
        ready(custom_model(), resolver=resolver)


def test_a_missing_input_is_an_error_of_the_operator() -> None:
    builder = ModelBuilder()
    main = builder.subgraph()
    main.input("x", (1, 2), F32)
    y = main.tensor("y", (1, 2), F32)
    main.operator(BuiltinOperator.SOFTMAX, [-1], [y], SoftmaxOptions(beta=1.0))
    main.output(y)
    with pytest.raises(tflm.OperatorError, match="operator 0 SOFTMAX: input 0 is missing"):
        ready(builder.build())


def test_lifetimes_pass_through_the_subgraphs_that_an_operator_runs() -> None:
    builder = ModelBuilder()
    main = builder.subgraph()
    condition = main.input("condition", (1,), TensorType.BOOL)
    x = main.input("x", (1, 4), F32)
    y = main.tensor("y", (1, 4), F32)
    main.operator(BuiltinOperator.IF, [condition, x], [y], IfOptions(then_subgraph_index=1, else_subgraph_index=2))
    main.output(y)
    for name in ("then", "else"):
        branch = builder.subgraph(name)
        a = branch.input(f"{name}_x", (1, 4), F32)
        b = branch.tensor(f"{name}_y", (1, 4), F32)
        branch.operator(BuiltinOperator.RELU, [a], [b])
        branch.output(b)
    lifetimes = {b.name: (b.first_use, b.last_use) for b in ready(builder.build()).planned_buffers()}
    assert lifetimes == {
        "condition": (0, 5),
        "x": (0, 5),
        "y": (1, 5),
        "then_x": (2, 3),
        "then_y": (3, 3),
        "else_x": (4, 5),
        "else_y": (5, 5),
    }


@given(st.floats(2**-10, 4, width=32), st.integers(-128, 127), st.lists(st.floats(-300, 300), min_size=1, max_size=9))
def test_quantized_and_dequantized_undo_each_other_within_half_a_step(
    scale: float, zero_point: int, values: list[float]
) -> None:
    builder = ModelBuilder()
    main = builder.subgraph()
    main.output(main.input("x", (len(values),), I8, quantized(scale, zero_point)))
    tensor = ready(builder.build()).input(0)
    real = np.array(values)
    tensor.data[...] = tensor.quantized(real)
    low, high = (-128 - zero_point) * scale, (127 - zero_point) * scale
    assert np.all(abs(tensor.dequantized() - np.clip(real, low, high)) <= scale * 0.50001)


def quantizing(type: TensorType, scale: float = 1.0) -> Any:
    builder = ModelBuilder()
    main = builder.subgraph()
    main.output(main.input("x", (1,), type, quantized(scale)))
    return ready(builder.build()).input(0)


@pytest.mark.parametrize("type", [TensorType.INT8, TensorType.INT16, TensorType.INT32, TensorType.INT64])
@pytest.mark.filterwarnings("error")
def test_what_is_too_large_saturates(type: TensorType) -> None:
    tensor = quantizing(type)
    limits = np.iinfo(tensor.data.dtype)
    for far in (1e30, 2.0**63, np.inf):
        assert [tensor.quantized([real]).tolist() for real in (far, -far)] == [[limits.max], [limits.min]]


def test_halves_are_rounded_away_from_zero() -> None:
    tensor = quantizing(TensorType.INT8, 0.5)
    assert [tensor.quantized([real]).item() for real in (0.25, 0.75, 1.25, -0.25, -1.25)] == [1, 2, 3, -1, -3]


def test_dequantized_follows_the_channel() -> None:
    builder = ModelBuilder()
    main = builder.subgraph()
    main.output(main.constant("w", np.full((2, 3), 10, np.int8), quantized([1.0, 0.5, 0.25], [0, 2, 4], 1)))
    main.output(main.constant("bias", np.full(3, 10, np.int8), quantized([1.0, 0.5, 0.25], [0, 2, 4], 1)))
    weights, bias = (ready(builder.build()).output(i).dequantized().tolist() for i in range(2))
    assert weights == [[10, 4, 1.5]] * 2
    assert bias == [10, 4, 1.5]  # of one dimension, whatever dimension is named


def test_a_resource_variable_starts_over_after_reset_but_what_ran_once_does_not() -> None:
    interpreter = ready(models.counter(I8, 2, with_init=True))
    interpreter.input(0).data[...] = 3  # the zero point: adds nothing
    interpreter.invoke()
    assert interpreter.output(0).data.tolist() == [[2, 2]]
    interpreter.reset()
    interpreter.input(0).data[...] = 3
    interpreter.invoke()
    assert interpreter.output(0).data.tolist() == [[3, 3]]


@pytest.mark.parametrize(
    ("assigned", "reason"), [(None, "nothing is ever assigned"), (3, "has 8 bytes, the variable has 12")]
)
def test_a_variable_is_read_only_after_something_as_large_was_assigned(assigned: int | None, reason: str) -> None:
    builder = ModelBuilder()
    main = builder.subgraph()
    handle = main.tensor("handle", (1,), TensorType.RESOURCE)
    main.operator(BuiltinOperator.VAR_HANDLE, [], [handle], VarHandleOptions(shared_name="v"))
    if assigned:
        value = main.constant("value", np.zeros((1, assigned), np.float32))
        main.operator(BuiltinOperator.ASSIGN_VARIABLE, [handle, value], [])
    y = main.tensor("y", (1, 2), F32)
    main.operator(BuiltinOperator.READ_VARIABLE, [handle], [y])
    main.output(y)
    interpreter = ready(builder.build())
    with pytest.raises(tflm.OperatorError, match=reason):
        interpreter.invoke()


@pytest.mark.parametrize("values", [[0.5], [1e20], [float("nan")]])
def test_integers_without_a_scale_take_whole_numbers_only(values: list[float]) -> None:
    builder = ModelBuilder()
    main = builder.subgraph()
    main.output(main.input("x", (1,), TensorType.INT32))
    tensor = ready(builder.build()).input(0)
    assert tensor.quantized([-7.0]).tolist() == [-7]
    with pytest.raises(tflm.TensorError, match="whole numbers"):
        tensor.quantized(values)


def test_a_target_may_be_its_name_wherever_one_is_taken() -> None:
    model, resolver, m4 = tflm.Model(chain(1)), tflm.AllOpsResolver(), tflm.targets.by_name("cortex-m4")
    assert ready(chain(1), target="cortex-m4").arena_used_bytes() == ready(chain(1), target=m4).arena_used_bytes()
    assert tflm.MicroAllocator(bytearray(4096), target="cortex-m4").target is m4
    assert tflm.RecordingMicroAllocator(bytearray(4096), target="cortex-m4").target is m4
    named, given = (tflm.measure_arena(model, resolver, target=target) for target in ("cortex-m4", m4))
    assert named == given
    apart = (tflm.measure_separate_arenas(model, resolver, target=target) for target in ("cortex-m4", m4))
    assert len(set(apart)) == 1
    for smaller in (tflm.plan, tflm.tile, tflm.compress):
        assert bytes(smaller(model, target="cortex-m4").data) == bytes(smaller(model, target=m4).data)
    assert tflm.check_device(model, target="cortex-m4") == tflm.check_device(model, target=m4)


@pytest.mark.parametrize("capacity", [-1, "two"])
def test_a_resolver_has_room_for_a_number_of_operators(capacity: Any) -> None:
    with pytest.raises(tflm.ResolverError, match="a number of operators"):
        tflm.MicroMutableOpResolver(capacity)
