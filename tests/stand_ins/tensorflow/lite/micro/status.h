// What generated code uses of TFLM's common definitions.
#ifndef STAND_IN_STATUS_H_
#define STAND_IN_STATUS_H_

#include "tensorflow/lite/micro/namespaces.h"

BEGIN_NAMES_OF_C

enum TfLiteStatus { kTfLiteOk, kTfLiteError };

END_NAMES_OF_C

#define TF_LITE_ENSURE_STATUS(status) \
  if ((status) != kTfLiteOk) return kTfLiteError

#endif  // STAND_IN_STATUS_H_
