# @origin
# The library `tflm`: TFLM with @kernels kernels, compiled from its sources or already built.
set(TFLM_DIR "" CACHE PATH "TFLM's sources: a checkout with its downloads, or what create_tflm_tree.py wrote")
set(TFLM_LIBRARY "" CACHE FILEPATH "libtensorflow-microlite.a for this processor; compiled from TFLM_DIR without it")
if(NOT EXISTS ${TFLM_DIR}/tensorflow/lite/micro/micro_interpreter.h)
  message(FATAL_ERROR "Name TFLM's sources: -DTFLM_DIR=<folder>. README.md says how to get them.")
endif()

if(EXISTS ${TFLM_DIR}/third_party/flatbuffers/include)
  set(DOWNLOADS ${TFLM_DIR}/third_party)
else()
  set(DOWNLOADS ${TFLM_DIR}/tensorflow/lite/micro/tools/make/downloads)
endif()
if(NOT EXISTS ${DOWNLOADS}/flatbuffers/include)
  message(FATAL_ERROR "${TFLM_DIR} lacks TFLM's downloads. README.md says how to get them.")
endif()

if(TFLM_LIBRARY)
  add_library(tflm STATIC IMPORTED)
  set_target_properties(tflm PROPERTIES IMPORTED_LOCATION ${TFLM_LIBRARY})
  set(VISIBILITY INTERFACE)
else()
  set(LITE ${TFLM_DIR}/tensorflow/lite)
  file(GLOB SOURCES
    ${TFLM_DIR}/tensorflow/compiler/mlir/lite/core/api/*.cc
    ${TFLM_DIR}/tensorflow/compiler/mlir/lite/schema/*.cc
    ${LITE}/core/api/*.cc
    ${LITE}/core/c/*.cc
    ${LITE}/kernels/*.cc
    ${LITE}/kernels/internal/*.cc
    ${LITE}/kernels/internal/reference/*.cc
    ${LITE}/micro/*.cc
    ${LITE}/micro/arena_allocator/*.cc
    ${LITE}/micro/cortex_m_generic/debug_log.cc
    ${LITE}/micro/kernels/*.cc
    ${LITE}/micro/memory_planner/*.cc
    ${LITE}/micro/tflite_bridge/*.cc
    ${TFLM_DIR}/signal/micro/kernels/*.cc
    ${TFLM_DIR}/signal/src/*.cc
    ${TFLM_DIR}/signal/src/kiss_fft_wrappers/*.cc)
  list(FILTER SOURCES EXCLUDE REGEX "(_test|/test_[^/]*|/fake_[^/]*|/mock_[^/]*|/micro/debug_log)\\.cc$")
  if(@is_cmsis_nn)
    # A kernel of CMSIS-NN takes the place of the reference kernel in the file of the same name.
    file(GLOB KERNELS ${LITE}/micro/kernels/cmsis_nn/*.cc)
    foreach(KERNEL IN LISTS KERNELS)
      get_filename_component(FILE ${KERNEL} NAME)
      list(REMOVE_ITEM SOURCES ${LITE}/micro/kernels/${FILE})
    endforeach()
    file(GLOB CMSIS_NN ${DOWNLOADS}/cmsis_nn/Source/*/*.c)
    list(FILTER CMSIS_NN EXCLUDE REGEX "_f(16|32)\\.c$")  # TFLM uses none of them
    list(APPEND SOURCES ${KERNELS} ${CMSIS_NN})
  endif()
  add_library(tflm STATIC ${SOURCES})
  target_compile_options(tflm PRIVATE -O2)
  set(VISIBILITY PUBLIC)
endif()

target_include_directories(tflm ${VISIBILITY}
  ${TFLM_DIR}
  ${DOWNLOADS}
  ${DOWNLOADS}/flatbuffers/include
  ${DOWNLOADS}/gemmlowp
  ${DOWNLOADS}/kissfft
  ${DOWNLOADS}/ruy
  ${DOWNLOADS}/cmsis/CMSIS/Core/Include
  ${DOWNLOADS}/cmsis_nn
  ${DOWNLOADS}/cmsis_nn/Include)
target_compile_definitions(tflm ${VISIBILITY} NDEBUG TF_LITE_STATIC_MEMORY @definitions)
target_compile_options(tflm ${VISIBILITY} -ffunction-sections -fdata-sections -funsigned-char
  $<$<COMPILE_LANGUAGE:CXX>:-std=c++17 -fno-rtti -fno-exceptions -fno-threadsafe-statics>)
target_link_libraries(tflm INTERFACE m)
