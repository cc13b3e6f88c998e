#pragma once

#include <string_view>

#include "jinja/ast.h"

namespace sinew::jinja {

// Parses a template. kInvalidFile, with the line, if it breaks Jinja's grammar; kUnsupported, with
// the line, if it uses a part of Jinja that the Machine does not have, such as an unknown filter: a
// template is refused when a model is loaded, not when it is used.
Result<Template> parse_template(std::string_view source);

}  // namespace sinew::jinja
