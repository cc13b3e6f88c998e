#pragma once

#include <initializer_list>
#include <string_view>

#include "jinja/value.h"

namespace sinew::jinja {

// What templates can call. Null where there is none of that name.
Builtin find_filter(std::string_view name);
Builtin find_test(std::string_view name);
Builtin find_function(std::string_view name);
// Of the type of `object`; as in Python, it hides an item of a dictionary that has the same name.
Builtin find_method(const Value& object, std::string_view name);

// The values of the parameters `names`, of which the first `required` must be given; undefined for
// those that are not. An unknown name or too many arguments is an error.
Result<std::vector<Value>> bind(const Arguments& given,
                                std::initializer_list<std::string_view> names,
                                std::size_t required);

tl::unexpected<Error> type_error(std::string_view what, const Value& value);

}  // namespace sinew::jinja
