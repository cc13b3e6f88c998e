# minja is header only: the system's package where there is one, else the copy that `tools/deps minja`
# takes from Debian's own archive into the cache folder.
find_path(SINEW_MINJA_INCLUDE minja/minja.hpp)
if(NOT SINEW_MINJA_INCLUDE)
  execute_process(COMMAND ${PROJECT_SOURCE_DIR}/tools/deps minja
                  OUTPUT_VARIABLE sinew_minja_prefix OUTPUT_STRIP_TRAILING_WHITESPACE
                  RESULT_VARIABLE sinew_minja_result)
  if(NOT sinew_minja_result EQUAL 0)
    message(FATAL_ERROR "minja was not found and could not be fetched; install libminja-dev where the system has it, or give -DSINEW_MINJA_INCLUDE=DIR")
  endif()
  set(SINEW_MINJA_INCLUDE ${sinew_minja_prefix} CACHE PATH "Folder that holds minja/minja.hpp" FORCE)
endif()
message(STATUS "minja: ${SINEW_MINJA_INCLUDE}")
add_library(minja_headers INTERFACE)
target_include_directories(minja_headers SYSTEM INTERFACE ${SINEW_MINJA_INCLUDE})
target_link_libraries(minja_headers INTERFACE nlohmann_json::nlohmann_json)
add_library(minja::headers ALIAS minja_headers)
