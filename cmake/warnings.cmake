# Warnings are errors in our code only; headers of others are system headers.
add_library(sinew_warnings INTERFACE)
target_compile_options(sinew_warnings INTERFACE -Wall -Wextra -Wshadow -Wconversion -Wswitch-enum -Werror)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # GCC 12 reports false positives of these inside libstdc++ when it inlines (GCC bug 105562 and kin).
  target_compile_options(sinew_warnings INTERFACE -Wno-restrict -Wno-maybe-uninitialized)
endif()
