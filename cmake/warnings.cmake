# Warnings are errors in our code only; headers of others are system headers. The preset `release` keeps them
# warnings: a user's newer compiler must not refuse to build.
option(SINEW_WARNINGS_AS_ERRORS "Refuse to build with warnings" ON)
add_library(sinew_warnings INTERFACE)
target_compile_options(sinew_warnings INTERFACE -Wall -Wextra -Wshadow -Wconversion -Wswitch-enum)
if(SINEW_WARNINGS_AS_ERRORS)
  target_compile_options(sinew_warnings INTERFACE -Werror)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # GCC 12 reports false positives of these inside libstdc++ when it inlines (GCC bug 105562 and kin).
  target_compile_options(sinew_warnings INTERFACE -Wno-restrict -Wno-maybe-uninitialized
                         -Wno-stringop-overflow -Wno-array-bounds)
endif()
