"""A plan of several memories as C++: a planner for stock TFLM, with a table."""

from __future__ import annotations

from collections.abc import Sequence
from string import Template

from tflm.memory.buffer import Buffer
from tflm.memory.several_memories import Spot

HEADER = Template("""\
// Made by tflm.plan(model, memories=...). The places of the model's tensors and scratch buffers in these memories:
//   $listed
// The first of them is the arena, with TFLM's own data at its end:
//   alignas(16) uint8_t arena[k${camel}ArenaBytes];
//   ${camel}MemoryPlan plan($example);
//   MicroAllocator* allocator = MicroAllocator::Create(arena, sizeof arena, &plan);
//   MicroInterpreter interpreter(model, resolver, allocator);
#ifndef ${guard}_MEMORY_PLAN_H_
#define ${guard}_MEMORY_PLAN_H_

#include <cstddef>
#include <cstdint>

#include "tensorflow/lite/micro/memory_planner/micro_memory_planner.h"
#include "tensorflow/lite/micro/micro_log.h"

$constants

// TFLM's names were in tflite and in the global namespace, and moved to tflite::micro in September and October 2026.
namespace tflite {
namespace micro {
namespace exported {

// The methods do not say override, because older releases of TFLM lack preserves_all_tensors().
class ${camel}MemoryPlan : public MicroMemoryPlanner {
 public:
  // All memories must be aligned to 16 bytes, and on a 64-bit machine lie within 2 GiB.
  explicit ${camel}MemoryPlan($parameters) : memories_{$arguments}, count_(0) {}

  TfLiteStatus Init(unsigned char*, int) {
    count_ = 0;
    return kTfLiteOk;
  }

  TfLiteStatus AddBuffer(int size, int first, int last) {
    if (count_ >= kBuffers || Table()[count_].size != size || Table()[count_].first != first ||
        Table()[count_].last != last) {
      return Refuse(kStale);
    }
    ++count_;
    return kTfLiteOk;
  }

  // The plan takes the place of an offline plan in the model.
  TfLiteStatus AddBuffer(int size, int first, int last, int) { return AddBuffer(size, first, last); }

  size_t GetMaximumMemorySize() { return $head; }

  int GetBufferCount() { return count_; }

  // TFLM adds the offset to the start of the arena, so one to another memory is the distance between the two.
  TfLiteStatus GetOffsetForBuffer(int index, int* offset) {
    if (count_ != kBuffers || index < 0 || index >= kBuffers) {
      return Refuse(kStale);
    }
    const uintptr_t memory = reinterpret_cast<uintptr_t>(memories_[Table()[index].memory]);
    const intptr_t distance = static_cast<intptr_t>(memory - reinterpret_cast<uintptr_t>(memories_[0]));
    const intptr_t place = distance + Table()[index].offset;
    *offset = static_cast<int>(place);
    if (memory % 16 != 0 || *offset != place) {
      return Refuse("memory_plan.h: a memory is not aligned to 16 bytes, or more than 2 GiB from the arena");
    }
    return kTfLiteOk;
  }

  bool preserves_all_tensors() const { return false; }

  // Why AllocateTensors() failed, or null; TFLM's own messages are lost with TF_LITE_STRIP_ERROR_STRINGS.
  const char* error() const { return error_; }

 private:
  struct Buffer {
    int memory, offset, size, first, last;
  };
  enum { kBuffers = $count };
  static constexpr const char* kStale =
      "memory_plan.h is for other buffers: the model, the kernels or TFLM changed; run tflm plan again";

  // The buffers in the order in which TFLM asks for them.
  static const Buffer* Table() {
    static constexpr Buffer table[] = {
$table
    };
    return table;
  }

  TfLiteStatus Refuse(const char* error) {
    error_ = error;
    MicroPrintf("%s", error);
    return kTfLiteError;
  }

  uint8_t* const memories_[$memories];
  int count_;
  const char* error_ = nullptr;
};

}  // namespace exported
}  // namespace micro
}  // namespace tflite

using tflite::micro::exported::${camel}MemoryPlan;

#endif  // ${guard}_MEMORY_PLAN_H_
""")


def memory_plan_header(
    name: str,
    buffers: Sequence[Buffer],
    spots: Sequence[Spot],
    memories: Sequence[str],
    sizes: Sequence[int],
    head: int,
) -> str:
    """The text of `memory_plan.h`.

    Args:
        name: an identifier in lower case.
        buffers, spots: the buffers, and their places.
        memories: names of the memories, that of the arena first.
        sizes: bytes that the plan needs of each; of the first, the arena.
        head: bytes of the arena that buffers take.
    """
    camel = "".join(word.capitalize() for word in name.split("_"))
    others = range(1, len(memories))
    rows = (
        f"        {{{spot.memory}, {spot.offset}, {buffer.size}, {buffer.first_use}, {buffer.last_use}}},"
        for buffer, spot in zip(buffers, spots)
    )
    constants = [f"constexpr unsigned int k{camel}ArenaBytes = {sizes[0]};"]
    constants += [f"constexpr unsigned int k{camel}Memory{i}Bytes = {sizes[i]};" for i in others]
    return HEADER.substitute(
        camel=camel,
        guard=name.upper(),
        listed=", ".join(_in_comment(memory) for memory in memories),
        example=", ".join(["arena", *(f"memory_{i}" for i in others)]),
        parameters=", ".join(["uint8_t* arena", *(f"uint8_t* memory_{i}" for i in others)]),
        arguments=", ".join(["arena", *(f"memory_{i}" for i in others)]),
        constants="\n".join(constants),
        head=head,
        count=len(buffers),
        memories=len(memories),
        table="\n".join(rows) or "        {0, 0, 0, 0, 0},",
    )


def _in_comment(text: str) -> str:
    return "".join(c if c.isprintable() and c not in "\\?" else "_" for c in text)
