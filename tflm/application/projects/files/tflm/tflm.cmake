# @origin
# The library `tflm`: TFLM @commit with @kernels kernels, compiled as TFLM's own release build.
set(TFLM_DIR "" CACHE PATH "TFLM's sources with their downloads, or what create_tflm_tree.py wrote; downloaded without it")
set(TFLM_LIBRARY "" CACHE FILEPATH "libtensorflow-microlite.a for this processor; compiled from TFLM's sources without it")
option(TFLM_MESSAGES "Let TFLM print why it fails, which takes more flash" OFF)

if(POLICY CMP0135)  # of downloads: before the functions, which keep the policies of where they are defined
  cmake_policy(SET CMP0135 NEW)
endif()

# Sets a variable to what a line of one of TFLM's makefiles assigns, with the other variables of that file.
function(read_pin variable file name)
  file(READ ${tflm_SOURCE_DIR}/tensorflow/lite/micro/tools/make/${file} text)
  string(REGEX MATCH "${name}[ :]*=[ ]*\"([^\"]+)\"" matched "${text}")
  set(value "${CMAKE_MATCH_1}")
  while(value MATCHES "[$]{([A-Z_]+)}")
    set(other ${CMAKE_MATCH_1})
    string(REGEX MATCH "${other}=\"([^\"]+)\"" matched "${text}")
    string(REPLACE "\${${other}}" "${CMAKE_MATCH_1}" value "${value}")
  endwhile()
  set(${variable} "${value}" PARENT_SCOPE)
endfunction()

# Downloads what TFLM's makefile downloads, in the version that it names; the rest is a patch of TFLM.
function(download name file)
  string(TOUPPER ${name} upper)
  read_pin(url ${file} ${upper}_URL)
  if(NOT url)
    read_pin(url ${name}_download.sh ${upper}_URL)
  endif()
  set(patch)
  if(ARGN)
    set(patch PATCH_COMMAND ${CMAKE_COMMAND} -E env GIT_CEILING_DIRECTORIES=${FETCHCONTENT_BASE_DIR}
      git apply ${tflm_SOURCE_DIR}/${ARGN})
  endif()
  FetchContent_Declare(${name} URL ${url} SOURCE_SUBDIR none ${patch})
  FetchContent_MakeAvailable(${name})
  set(${name}_SOURCE_DIR ${${name}_SOURCE_DIR} PARENT_SCOPE)
endfunction()

if(TFLM_DIR)
  set(DOWNLOADS ${TFLM_DIR}/tensorflow/lite/micro/tools/make/downloads)
  if(EXISTS ${TFLM_DIR}/third_party/flatbuffers/include)
    set(DOWNLOADS ${TFLM_DIR}/third_party)
  endif()
  if(NOT EXISTS ${DOWNLOADS}/flatbuffers/include)
    message(FATAL_ERROR 
      "TFLM_DIR lacks TFLM's sources or their downloads; without -DTFLM_DIR, they are downloaded.")
  endif()
  foreach(NAME flatbuffers gemmlowp kissfft ruy cmsis cmsis_nn)
    set(${NAME}_SOURCE_DIR ${DOWNLOADS}/${NAME})
  endforeach()
else()
  include(FetchContent)
  FetchContent_Declare(tflm URL https://github.com/tensorflow/tflite-micro/archive/@commit.tar.gz SOURCE_SUBDIR none)
  FetchContent_MakeAvailable(tflm)
  set(TFLM_DIR ${tflm_SOURCE_DIR})
  download(gemmlowp third_party_downloads.inc)
  download(ruy third_party_downloads.inc)
  download(flatbuffers third_party_downloads.inc tensorflow/lite/micro/tools/make/flatbuffers.patch)
  download(kissfft third_party_downloads.inc third_party/kissfft/kissfft.patch)
  download(cmsis ext_libs/cmsis_download.sh)
  download(cmsis_nn ext_libs/cmsis_nn_download.sh)
endif()
set(CMSIS_DIR ${cmsis_SOURCE_DIR})

if(TFLM_LIBRARY)
  add_library(tflm STATIC IMPORTED)
  set_target_properties(tflm PROPERTIES IMPORTED_LOCATION ${TFLM_LIBRARY})
  set(VISIBILITY INTERFACE)
else()
  set(LITE ${TFLM_DIR}/tensorflow/lite)
  file(GLOB CORE
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
    ${LITE}/micro/memory_planner/*.cc
    ${LITE}/micro/tflite_bridge/*.cc)
  file(GLOB KERNELS
    ${LITE}/micro/kernels/*.cc
    ${TFLM_DIR}/signal/micro/kernels/*.cc
    ${TFLM_DIR}/signal/src/*.cc
    ${TFLM_DIR}/signal/src/kiss_fft_wrappers/*.cc)
  list(FILTER CORE EXCLUDE REGEX "(_test|/test_[^/]*|/fake_[^/]*|/mock_[^/]*|/micro/debug_log)\\.cc$")
  list(FILTER KERNELS EXCLUDE REGEX "_test\\.cc$")
  if(@is_cmsis_nn)
    # A kernel of CMSIS-NN takes the place of the reference kernel in the file of the same name.
    file(GLOB OPTIMIZED ${LITE}/micro/kernels/cmsis_nn/*.cc)
    foreach(KERNEL IN LISTS OPTIMIZED)
      get_filename_component(FILE ${KERNEL} NAME)
      list(REMOVE_ITEM KERNELS ${LITE}/micro/kernels/${FILE})
    endforeach()
    file(GLOB CMSIS_NN ${cmsis_nn_SOURCE_DIR}/Source/*/*.c)
    list(FILTER CMSIS_NN EXCLUDE REGEX "_f(16|32)\\.c$")  # TFLM uses none of them
    list(APPEND KERNELS ${OPTIMIZED} ${CMSIS_NN})
  endif()
  add_library(tflm STATIC ${CORE} ${KERNELS})
  set_source_files_properties(${CORE} PROPERTIES COMPILE_OPTIONS -Os)
  set_source_files_properties(${KERNELS} PROPERTIES COMPILE_OPTIONS -O2)
  if(@has_helium)  # GCC 12 writes conditional conversions that its assembler takes for another instruction of Helium
    set_source_files_properties(${LITE}/micro/kernels/resize_nearest_neighbor.cc PROPERTIES
      COMPILE_OPTIONS "-O2;-fno-if-conversion;-fno-if-conversion2")
  endif()
  set(VISIBILITY PUBLIC)
endif()

target_include_directories(tflm ${VISIBILITY}
  ${TFLM_DIR}
  ${flatbuffers_SOURCE_DIR}/include
  ${gemmlowp_SOURCE_DIR}
  ${kissfft_SOURCE_DIR}
  ${ruy_SOURCE_DIR}
  ${CMSIS_DIR}/CMSIS/Core/Include
  ${cmsis_nn_SOURCE_DIR}
  ${cmsis_nn_SOURCE_DIR}/Include)
target_compile_definitions(tflm ${VISIBILITY} NDEBUG TF_LITE_STATIC_MEMORY @definitions
  $<$<NOT:$<BOOL:${TFLM_MESSAGES}>>:TF_LITE_STRIP_ERROR_STRINGS>)
target_compile_options(tflm ${VISIBILITY} -ffunction-sections -fdata-sections -funsigned-char -fno-unwind-tables
  -fno-asynchronous-unwind-tables $<$<COMPILE_LANGUAGE:CXX>:-std=c++17 -fno-rtti -fno-exceptions -fno-threadsafe-statics>)
target_link_libraries(tflm INTERFACE -lm)
