// What generated code uses of the interpreter.
#ifndef STAND_IN_MICRO_INTERPRETER_H_
#define STAND_IN_MICRO_INTERPRETER_H_

#include <cstddef>
#include <cstdint>

#include "tensorflow/lite/micro/status.h"

namespace tflite {

struct Model;
class MicroAllocator;
class MicroOpResolver;
class MicroResourceVariables;

class MicroInterpreter {
 public:
  MicroInterpreter(const Model* model, const MicroOpResolver& resolver, uint8_t* arena, size_t arena_size,
                   MicroResourceVariables* variables = nullptr);
  MicroInterpreter(const Model* model, const MicroOpResolver& resolver, MicroAllocator* allocator,
                   MicroResourceVariables* variables = nullptr);
  TfLiteStatus AllocateTensors();
  TfLiteStatus Invoke();
  template <class T>
  T* typed_input_tensor(int index);
  template <class T>
  T* typed_output_tensor(int index);
};

}  // namespace tflite

#endif  // STAND_IN_MICRO_INTERPRETER_H_
