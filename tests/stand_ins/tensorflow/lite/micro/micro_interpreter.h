// What generated code uses of the interpreter.
#ifndef STAND_IN_MICRO_INTERPRETER_H_
#define STAND_IN_MICRO_INTERPRETER_H_

#include <cstddef>
#include <cstdint>

#include "tensorflow/lite/micro/namespaces.h"
#include "tensorflow/lite/micro/status.h"

namespace tflite {

struct Model;

}  // namespace tflite

BEGIN_NAMES

class MicroAllocator;
class MicroOpResolver;
class MicroProfilerInterface;
class MicroResourceVariables;

class MicroInterpreter {
 public:
  MicroInterpreter(const Model* model, const MicroOpResolver& resolver, uint8_t* arena, size_t arena_size,
                   MicroResourceVariables* variables = nullptr, MicroProfilerInterface* profiler = nullptr,
                   bool preserve_all_tensors = false);
  MicroInterpreter(const Model* model, const MicroOpResolver& resolver, MicroAllocator* allocator,
                   MicroResourceVariables* variables = nullptr, MicroProfilerInterface* profiler = nullptr);
  TfLiteStatus AllocateTensors();
  TfLiteStatus Invoke();
  template <class T>
  T* typed_input_tensor(int index);
  template <class T>
  T* typed_output_tensor(int index);
  size_t inputs_size() const;
  size_t outputs_size() const;
  TfLiteTensor* input(size_t index);
  TfLiteTensor* output(size_t index);
  size_t arena_used_bytes() const;
  TfLiteEvalTensor* GetTensor(int tensor_index, int subgraph_index = 0);
};

END_NAMES

#endif  // STAND_IN_MICRO_INTERPRETER_H_
