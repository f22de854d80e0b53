# @origin
# The library `stm32`: start-up code and headers of ST for @device.
set(STM32_DIR "" CACHE PATH "A checkout of github.com/STMicroelectronics/cmsis_device_@series; downloaded without it")
if(NOT STM32_DIR)
  include(FetchContent)
  if(POLICY CMP0135)
    cmake_policy(SET CMP0135 NEW)
  endif()
  FetchContent_Declare(cmsis_device
    URL https://github.com/STMicroelectronics/cmsis_device_@series/archive/refs/tags/@device_tag.tar.gz)
  FetchContent_MakeAvailable(cmsis_device)
  set(STM32_DIR ${cmsis_device_SOURCE_DIR})
endif()
set(TEMPLATES ${STM32_DIR}/Source/Templates)
add_library(stm32 OBJECT ${TEMPLATES}/gcc/startup_@startup.s ${TEMPLATES}/system_stm32@{series}xx.c)
target_include_directories(stm32 PUBLIC ${STM32_DIR}/Include)
target_compile_definitions(stm32 PUBLIC @device@core)
