// What generated code uses of the allocator.
#ifndef STAND_IN_MICRO_ALLOCATOR_H_
#define STAND_IN_MICRO_ALLOCATOR_H_

#include <cstddef>
#include <cstdint>

#include "tensorflow/lite/micro/memory_planner/micro_memory_planner.h"
#include "tensorflow/lite/micro/namespaces.h"

BEGIN_NAMES

enum class MemoryPlannerType { kGreedy, kLinear };

class MicroAllocator {
 public:
  static MicroAllocator* Create(uint8_t* tensor_arena, size_t arena_size,
                                MemoryPlannerType planner = MemoryPlannerType::kGreedy);
  static MicroAllocator* Create(uint8_t* persistent_arena, size_t persistent_arena_size, uint8_t* arena,
                                size_t arena_size, MemoryPlannerType planner = MemoryPlannerType::kGreedy);
  static MicroAllocator* Create(uint8_t* tensor_arena, size_t arena_size, MicroMemoryPlanner* planner);
};

END_NAMES

#endif  // STAND_IN_MICRO_ALLOCATOR_H_
