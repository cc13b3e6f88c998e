# Decides which ggml is used, in this order, and prints which:
#   1. -DSINEW_SYSTEM_GGML=ON        find_package(ggml) of the system (Homebrew; newer Debian)
#   2. -DSINEW_GGML_SOURCE=DIR       a source tree of ggml
#   3. the cache folder              built from the pinned npm bundle by `tools/deps ggml`
#   4. FetchContent                  the same version from the upstream repository
option(SINEW_SYSTEM_GGML "Use the system's ggml" OFF)
set(SINEW_GGML_SOURCE "" CACHE PATH "Source tree of ggml")
set(SINEW_CPU "" CACHE STRING "Processor of the ggml in the cache folder: empty for this one, or x86-64-v3")
set(SINEW_GGML_VERSION 0.25.1)

set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS tools/deps tools/ggml_prelude.h)
set(sinew_ggml_prefix "")
if(NOT SINEW_SYSTEM_GGML AND NOT SINEW_GGML_SOURCE)
  execute_process(COMMAND ${PROJECT_SOURCE_DIR}/tools/deps ggml ${SINEW_CPU}
                  OUTPUT_VARIABLE sinew_ggml_prefix OUTPUT_STRIP_TRAILING_WHITESPACE
                  RESULT_VARIABLE sinew_ggml_result)
  if(NOT sinew_ggml_result EQUAL 0)
    set(sinew_ggml_prefix "")
  endif()
endif()

if(SINEW_SYSTEM_GGML)
  find_package(ggml REQUIRED)
  message(STATUS "ggml: the system's (${ggml_DIR})")
elseif(SINEW_GGML_SOURCE OR NOT sinew_ggml_prefix)
  set(GGML_OPENMP OFF)
  if(SINEW_CPU)
    set(GGML_NATIVE OFF)
  endif()
  set(GGML_BUILD_TESTS OFF)
  set(GGML_BUILD_EXAMPLES OFF)
  set(BUILD_SHARED_LIBS OFF)
  if(SINEW_GGML_SOURCE)
    message(STATUS "ggml: source tree ${SINEW_GGML_SOURCE}")
    add_subdirectory(${SINEW_GGML_SOURCE} ${CMAKE_BINARY_DIR}/ggml EXCLUDE_FROM_ALL SYSTEM)
  else()
    message(STATUS "ggml: FetchContent v${SINEW_GGML_VERSION} (neither a system ggml nor the npm bundle was to be had)")
    include(FetchContent)
    FetchContent_Declare(ggml GIT_REPOSITORY https://github.com/ggml-org/ggml.git GIT_TAG v${SINEW_GGML_VERSION} GIT_SHALLOW TRUE)
    FetchContent_MakeAvailable(ggml)
  endif()
  if(NOT TARGET ggml::ggml)
    add_library(ggml::ggml ALIAS ggml)
  endif()
else()
  unset(ggml_DIR CACHE)  # else an older build folder would go on with the library that it found first
  find_package(ggml REQUIRED CONFIG PATHS ${sinew_ggml_prefix} NO_DEFAULT_PATH)
  message(STATUS "ggml: ${SINEW_GGML_VERSION} in the cache (${sinew_ggml_prefix})")
endif()
