// What generated code uses of resource variables.
#ifndef STAND_IN_MICRO_RESOURCE_VARIABLE_H_
#define STAND_IN_MICRO_RESOURCE_VARIABLE_H_

#include "tensorflow/lite/micro/namespaces.h"

BEGIN_NAMES

class MicroAllocator;

class MicroResourceVariables {
 public:
  static MicroResourceVariables* Create(MicroAllocator* allocator, int num_variables);
};

END_NAMES

#endif  // STAND_IN_MICRO_RESOURCE_VARIABLE_H_
