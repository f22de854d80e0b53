"""Stores constants of a model compressed, which TFLM's DECODE operator expands before use."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from tflm.errors import ArgumentError
from tflm.libraries import Kernels, library_for
from tflm.memory import ARENA_ALIGNMENT, OptimalPlanner
from tflm.planning import plan
from tflm.releases import Releases
from tflm.rewriting.compression.compression_report import CompressedModel, CompressedTensor
from tflm.rewriting.compression.encodings import BUFFER_ALIGNMENT, Encoding
from tflm.rewriting.compression.tensor_choice import (
    Candidate,
    Costs,
    Option,
    groups_of,
    largest_saving,
    largest_saving_in,
    options_of,
    smallest_arena_for,
)
from tflm.rewriting.compression.trials import Trials, with_decoded
from tflm.rewriting.tiled_model import PLAN_STEPS
from tflm.rewriting.verification import check_tags, require_equal_answers
from tflm.runtime.micro_measurement_report import ArenaMeasurement
from tflm.runtime.micro_op_resolver import AllOpsResolver, MicroMutableOpResolver
from tflm.schema.model import Model, require_model
from tflm.schema.patch import with_data_inside
from tflm.schema.tables import METADATA_NAME
from tflm.targets import HOST, Target, align_up, require_target

ATTEMPTS = 12
"""Maximum number of choices of tensors that are built and measured for a limit of RAM or flash."""


def compress(
    model: Model,
    resolver: MicroMutableOpResolver | None = None,
    *,
    target: Target | str = HOST,
    kernels: Kernels = "reference",
    ram: int | None = None,
    flash: int | None = None,
    decompression_memory: int = 0,
    verify: int = 2,
    progress: Callable[[str], None] | None = None,
    release: Releases | None = None,
) -> CompressedModel:
    """Store constants of a model compressed, without loss; the firmware's TFLM_DECODE expands them before use.

    Each constant gets the smallest encoding that the firmware's TFLM decodes, or none: look-up
    tables, pruning or Huffman codes. Without a limit, the result is the smallest file. A model that cannot be made
    smaller is left unchanged.

    Args:
        model: the model.
        resolver: the available operators; by default all of this package.
        target: the target whose arena is counted.
        kernels: the kernel library of the firmware.
        ram: largest arena in bytes: find the smallest file that runs in it. A memory plan is added to the model if it
            does not fit otherwise.
        flash: largest file in bytes: find the smallest arena with such a file.
        decompression_memory: bytes of memory outside the arena that the firmware passes to its interpreter's
            `SetDecompressionMemory`. Decoded tensors that fit there need no place in the arena.
        verify: number of random inputs on which the outputs are compared with the original's.
        progress: called with a description of each step.
        release: the firmware's TFLM release, as for `MicroInterpreter`.

    Raises:
        ArgumentError: an argument is invalid.
        RewriteError: the release lacks TFLM_DECODE; or a check of the result failed, which is a bug in this package.
        TflmError: the model can't be laid out in an arena.
    """
    model = with_data_inside(require_model(model))
    part = require_target(target)
    library = library_for(kernels, part, release)
    resolver = AllOpsResolver() if resolver is None else resolver
    if decompression_memory < 0:
        raise ArgumentError(f"decompression_memory has {decompression_memory} bytes; pass 0 or more")
    tell = progress or (lambda _: None)
    compressor = _Compressor(Trials(model, resolver, part, library, decompression_memory, tell))
    return compressor.result(compressor.chosen(ram, flash), verify)


class _Built(NamedTuple):
    """A candidate for the result.

    Attributes:
        tensors: the compressed tensors.
        data: the model.
        measured: its arena.
    """

    tensors: tuple[int, ...]
    data: bytes
    measured: ArenaMeasurement


class _Compressor:
    """Builds the models whose constants are chosen from trials."""

    def __init__(self, trials: Trials):
        self.trials, self.model, self.before = trials, trials.model, trials.before
        self.readers, self.sizes, self.tell = trials.readers, trials.sizes, trials.tell

    def chosen(self, ram: int | None, flash: int | None) -> _Built:
        """The model with the tensors that the limits demand."""
        groups = self._options()
        if ram is not None:
            return self._fitting(groups, ram)
        if flash is not None:
            return self._small_enough(groups, flash)
        return self._built(largest_saving(groups), None)

    def result(self, built: _Built, verify: int) -> CompressedModel:
        """The result, checked with `verify` random inputs."""
        is_smaller = len(built.data) < len(self.model.data) and bool(built.tensors)
        if is_smaller:
            self._check(built, verify)
        return CompressedModel(
            data=built.data if is_smaller else bytes(self.model.data),
            before=self.before,
            after=built.measured if is_smaller else self.before,
            file_bytes_before=len(self.model.data),
            tensors=tuple(self._tensor(tensor) for tensor in built.tensors) if is_smaller else (),
            decompression_memory=self.trials.decompression_memory,
            verified_inputs=verify if is_smaller else 0,
        )

    # --- Choices -----------------------------------------------------------------------------------------------------

    def _options(self) -> list[list[Option]]:
        """The options of each group of operators with common constants."""
        operator_tail = self._operator_tail_bytes()
        candidates = [
            Candidate(
                tensor,
                tuple(self.readers[tensor]),
                self.trials.saved_bytes(tensor),
                self._decoded_bytes(tensor),
                trial.measured.tail_bytes - self.before.tail_bytes - len(self.readers[tensor]) * operator_tail,
            )
            for tensor, trial in self.trials.found.items()
        ]
        costs = Costs(self.sizes.operator, operator_tail, self._live_bytes(), self.trials.decompression_memory)
        return [options_of(group, costs) for group in groups_of(candidates)]

    def _operator_tail_bytes(self) -> int:
        """Bytes that a second TFLM_DECODE adds to the tail; 0 if no operator reads two of the constants."""
        for i in range(len(self.trials.operators)):
            pair = [tensor for tensor in self.trials.found if self.readers[tensor] == [i]][:2]
            if len(pair) == 2:
                alone = [self.trials.found[tensor].measured.tail_bytes - self.before.tail_bytes for tensor in pair]
                return sum(alone) - (self._built(pair, None).measured.tail_bytes - self.before.tail_bytes)
        return 0

    def _live_bytes(self) -> list[int]:
        """Bytes alive in the head while each operator runs."""
        live = [0] * len(self.before.steps)
        for buffer in self.before.buffers:
            for step in range(buffer.first_use, buffer.last_use + 1):
                live[step] += align_up(buffer.bytes, ARENA_ALIGNMENT)
        largest: dict[tuple[int, int | None], int] = {}
        for place, size in zip(self.before.places, live):
            largest[place] = max(largest.get(place, 0), size)
        return [largest.get(place, self.before.peak.bytes) for place in self.trials.operators]

    def _decoded_bytes(self, tensor: int) -> int:
        graph, index = self.trials.graph_of(tensor)
        return graph.tensor_bytes(index)

    def _lowest_arena(self) -> int:
        """The model's arena with the best imaginable plan."""
        return self.before.minimum_arena_bytes - self.before.head_bytes + self.before.peak.bytes

    def _fitting(self, groups: Sequence[Sequence[Option]], ram: int) -> _Built:
        """The smallest file among those that run in `ram` bytes; the model as it is if none does.

        The choice assumes the best imaginable plan. Where the real arena is larger or smaller, it is repeated.
        """
        best = self._unchanged()
        tried: set[tuple[int, ...]] = set()
        growth = ram - self._lowest_arena()
        for _ in range(ATTEMPTS):
            choice = largest_saving_in(groups, self.before.peak.bytes, growth)
            if choice.tensors in tried:
                break
            tried.add(choice.tensors)
            built = self._built(choice.tensors, ram)
            spare = ram - built.measured.minimum_arena_bytes
            if spare >= 0 and len(built.data) < len(best.data):
                best = built
            growth = growth + spare if spare >= 0 else choice.growth_bytes + spare
        return best

    def _small_enough(self, groups: Sequence[Sequence[Option]], flash: int) -> _Built:
        """The model with the smallest arena whose file has at most `flash` bytes; the smallest file if none has."""
        wanted = len(self.model.data) - flash
        if wanted <= 0:
            return self._unchanged()
        wanted += self.sizes.plain + self.sizes.code - len(self.model.data)
        for _ in range(ATTEMPTS):
            choice = smallest_arena_for(groups, self.before.peak.bytes, wanted)
            if choice is None:
                break
            built = self._built(choice.tensors, 0)
            if len(built.data) <= flash:
                return built
            wanted += align_up(len(built.data) - flash, BUFFER_ALIGNMENT)  # so that another choice is made
        return self._built(largest_saving(groups), None)

    # --- Models ------------------------------------------------------------------------------------------------------

    def _unchanged(self) -> _Built:
        return _Built((), bytes(self.model.data), self.before)

    def _built(self, tensors: Sequence[int], ram: int | None) -> _Built:
        """The model with some compressed tensors, and a plan if it had one, or does not fit `ram` without one."""
        if not tensors:
            return self._unchanged()
        self.tell(f"compressing {len(tensors)} tensors")
        model = with_decoded(self.model, self._encodings(tensors))
        built = _Built(tuple(sorted(tensors)), bytes(model.data), self.trials.measure(model))
        had_plan = self.model.metadata(METADATA_NAME) is not None
        if not had_plan and (ram is None or built.measured.minimum_arena_bytes <= ram):
            return built
        planner = OptimalPlanner(step_limit=PLAN_STEPS)
        planned = plan(
            model,
            self.trials.resolver,
            planner,
            target=self.trials.target,
            kernels=self.trials.library,
            decompression_memory=self.trials.decompression_memory,
        )
        if planned.minimum_arena_bytes >= built.measured.minimum_arena_bytes:
            return built
        return built._replace(data=planned.data, measured=self.trials.measure(planned.model))

    def _encodings(self, tensors: Sequence[int]) -> Mapping[int, Encoding]:
        return {tensor: self.trials.found[tensor].encoding for tensor in tensors}

    def _check(self, built: _Built, inputs: int) -> None:
        self.tell("checking the memory plan")
        model = Model(built.data)
        check_tags(model, built.measured)
        require_equal_answers(
            self.model, model, self.trials.resolver, inputs, lambda run: self.tell(f"checking, {run}")
        )

    def _tensor(self, tensor: int) -> CompressedTensor:
        trial, readers = self.trials.found[tensor], [self.trials.operators[each] for each in self.readers[tensor]]
        graph, index = self.trials.graph_of(tensor)
        return CompressedTensor(
            name=graph.tensors[index].name or "",
            operator=graph.registration(graph.operators[readers[0].position]).name,
            readers=tuple(reader.position for reader in readers),
            encoding=trial.encoding.name,
            decoded_bytes=self._decoded_bytes(tensor),
            encoded_bytes=len(trial.encoding.codes) + len(trial.encoding.metadata),
            saved_bytes=self.trials.saved_bytes(tensor),
            added_ram_bytes=trial.measured.minimum_arena_bytes - self.before.minimum_arena_bytes,
            subgraph=readers[0].subgraph,
        )
