// What generated code uses of TFLM's common definitions.
#ifndef STAND_IN_STATUS_H_
#define STAND_IN_STATUS_H_

#include <cstddef>

#include "tensorflow/lite/micro/namespaces.h"

BEGIN_NAMES_OF_C

enum TfLiteStatus { kTfLiteOk, kTfLiteError };

struct TfLiteIntArray {
  int size;
  int data[1];
};

struct TfLiteEvalTensor {
  union {
    void* data;
  } data;
};

struct TfLiteTensor {
  union {
    void* data;
  } data;
  size_t bytes;
};

struct TfLiteNode {
  TfLiteIntArray* outputs;
};

struct TfLiteContext {
  TfLiteEvalTensor* (*GetEvalTensor)(const TfLiteContext* context, int tensor_index);
};

END_NAMES_OF_C

#define TF_LITE_ENSURE_STATUS(status) \
  if ((status) != kTfLiteOk) return kTfLiteError

#endif  // STAND_IN_STATUS_H_
