// Chirale_TensorFLowLite, whose header only names it.
#include "Arduino.h"
