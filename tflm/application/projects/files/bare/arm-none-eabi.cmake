# @origin
# The compiler and the processor: @part.
set(CMAKE_SYSTEM_NAME Generic)
set(CMAKE_SYSTEM_PROCESSOR arm)
set(CMAKE_C_COMPILER arm-none-eabi-gcc)
set(CMAKE_CXX_COMPILER arm-none-eabi-g++)
set(CMAKE_ASM_COMPILER arm-none-eabi-gcc)
set(CMAKE_TRY_COMPILE_TARGET_TYPE STATIC_LIBRARY)

set(PROCESSOR "@processor -mthumb")
set(CMAKE_C_FLAGS_INIT "${PROCESSOR}")
set(CMAKE_CXX_FLAGS_INIT "${PROCESSOR}")
set(CMAKE_ASM_FLAGS_INIT "${PROCESSOR}")
