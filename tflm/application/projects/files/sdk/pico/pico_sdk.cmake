# @origin
# The Pico SDK 2.2.0: in PICO_SDK_PATH, or downloaded.
if(NOT PICO_SDK_PATH)
  set(PICO_SDK_PATH "$ENV{PICO_SDK_PATH}")
endif()
if(NOT PICO_SDK_PATH)
  include(FetchContent)
  FetchContent_Declare(pico_sdk GIT_REPOSITORY https://github.com/raspberrypi/pico-sdk GIT_TAG 2.2.0 GIT_SHALLOW TRUE
    GIT_SUBMODULES lib/tinyusb GIT_SUBMODULES_RECURSE FALSE SOURCE_SUBDIR none)
  FetchContent_MakeAvailable(pico_sdk)
  set(PICO_SDK_PATH ${pico_sdk_SOURCE_DIR})
endif()
include(${PICO_SDK_PATH}/external/pico_sdk_import.cmake)
