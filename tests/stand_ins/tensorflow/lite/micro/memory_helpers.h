// What generated code uses of the sizes of tensors.
#ifndef STAND_IN_MEMORY_HELPERS_H_
#define STAND_IN_MEMORY_HELPERS_H_

#include <cstddef>

#include "tensorflow/lite/micro/namespaces.h"
#include "tensorflow/lite/micro/status.h"

BEGIN_NAMES

TfLiteStatus TfLiteEvalTensorByteLength(const TfLiteEvalTensor* tensor, size_t* bytes);

END_NAMES

#endif  // STAND_IN_MEMORY_HELPERS_H_
