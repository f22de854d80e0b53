// What generated code uses of TFLM's common definitions.
#ifndef STAND_IN_STATUS_H_
#define STAND_IN_STATUS_H_

enum TfLiteStatus { kTfLiteOk, kTfLiteError };

#define TF_LITE_ENSURE_STATUS(status) \
  if ((status) != kTfLiteOk) return kTfLiteError

#endif  // STAND_IN_STATUS_H_
