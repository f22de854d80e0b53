// What generated code uses of resource variables.
#ifndef STAND_IN_MICRO_RESOURCE_VARIABLE_H_
#define STAND_IN_MICRO_RESOURCE_VARIABLE_H_

namespace tflite {

class MicroAllocator;

class MicroResourceVariables {
 public:
  static MicroResourceVariables* Create(MicroAllocator* allocator, int num_variables);
};

}  // namespace tflite

#endif  // STAND_IN_MICRO_RESOURCE_VARIABLE_H_
