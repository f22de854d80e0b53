// What an exported plan overrides.
#ifndef STAND_IN_MICRO_MEMORY_PLANNER_H_
#define STAND_IN_MICRO_MEMORY_PLANNER_H_

#include <cstddef>

#include "tensorflow/lite/micro/namespaces.h"
#include "tensorflow/lite/micro/status.h"

BEGIN_NAMES

class MicroMemoryPlanner {
 public:
  virtual ~MicroMemoryPlanner() {}
  virtual TfLiteStatus Init(unsigned char* memory, int size) = 0;
  virtual TfLiteStatus AddBuffer(int size, int first, int last) = 0;
  virtual TfLiteStatus AddBuffer(int size, int first, int last, int offset) = 0;
  virtual size_t GetMaximumMemorySize() = 0;
  virtual int GetBufferCount() = 0;
  virtual TfLiteStatus GetOffsetForBuffer(int index, int* offset) = 0;
  virtual bool preserves_all_tensors() const = 0;
};

END_NAMES

#endif  // STAND_IN_MICRO_MEMORY_PLANNER_H_
