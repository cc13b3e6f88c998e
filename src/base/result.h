#pragma once

#include <fmt/format.h>

#include <tl/expected.hpp>
#include <utility>

#include "base/error.h"

namespace sinew {

// The result of everything that can fail for reasons outside the program. C++20 has no
// std::expected. A class of its own, not an alias, so that an ignored result is a warning.
template <typename T>
struct [[nodiscard]] Result : tl::expected<T, Error> {
  using tl::expected<T, Error>::expected;
};
using Status = Result<void>;

// return fail(ErrorCode::kInvalidFile, "{}: tensor '{}' ends at {}, the file at {}", ...);
template <typename... Args>
tl::unexpected<Error> fail(ErrorCode code, fmt::format_string<Args...> format, Args&&... args) {
  return tl::unexpected<Error>(Error{code, fmt::format(format, std::forward<Args>(args)...), {}});
}

inline tl::unexpected<Error> fail(Error error) {
  return tl::unexpected<Error>(std::move(error));
}

}  // namespace sinew

#define SINEW_CONCAT_INNER(a, b) a##b
#define SINEW_CONCAT(a, b) SINEW_CONCAT_INNER(a, b)

// Returns the error of `expression` (a Status or Result) to the caller, if it has one.
#define SINEW_TRY(expression)                                \
  do {                                                       \
    if (auto sinew_status = (expression); !sinew_status)     \
      return ::sinew::fail(std::move(sinew_status).error()); \
  } while (false)

// SINEW_ASSIGN(auto file, MappedFile::open(path)); : declares `file`, or returns the error.
#define SINEW_ASSIGN(target, expression)                                            \
  auto SINEW_CONCAT(sinew_result_, __LINE__) = (expression);                        \
  if (!SINEW_CONCAT(sinew_result_, __LINE__))                                       \
    return ::sinew::fail(std::move(SINEW_CONCAT(sinew_result_, __LINE__)).error()); \
  target = std::move(*SINEW_CONCAT(sinew_result_, __LINE__))
