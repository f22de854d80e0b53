// What generated code uses of a platform's set-up.
#ifndef STAND_IN_SYSTEM_SETUP_H_
#define STAND_IN_SYSTEM_SETUP_H_

#include "tensorflow/lite/micro/namespaces.h"

BEGIN_NAMES

void InitializeTarget();

END_NAMES

#endif  // STAND_IN_SYSTEM_SETUP_H_
