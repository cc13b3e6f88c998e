#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace sinew {

// The names of the callable that guarded templates call once for every turn of a loop and every
// call of a macro, and of the variable that takes its result.
inline constexpr std::string_view kStepFunction = "sinew_step";

// Makes a template's source safe to hand to minja, which trusts templates: it recurses without a
// limit, divides by zero, splits at empty strings for ever and reads outside of strings with
// stepped slices.
//
// Refuses (kUnsupported, with the line) what would do so: tags, brackets and blocks beyond a limit,
// division and modulo by anything but a positive literal, `**`, slices with a step other than
// [::-1], split() by anything but a literal, recursive loops and loop.cycle. Blanks comments, which
// minja matches by recursion. Adds a call of kStepFunction to every loop, macro and call block, so
// that the caller can count.
Result<std::string> guard_template(std::string_view source);

}  // namespace sinew
