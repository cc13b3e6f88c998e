#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace sinew {

// A set of code points as sorted ranges that neither overlap nor touch.
class CodePointSet {
 public:
  struct Range {
    char32_t first = 0;
    char32_t last = 0;  // belongs to the range
  };

  CodePointSet() = default;
  explicit CodePointSet(std::vector<Range> ranges);  // in any order, overlapping or not

  const std::vector<Range>& ranges() const { return ranges_; }
  bool contains(char32_t code_point) const;
  CodePointSet with(const CodePointSet& other) const;
  CodePointSet both(const CodePointSet& other) const;
  CodePointSet complement() const;

 private:
  std::vector<Range> ranges_;
};

// The code points with a property: a general category or a group of them (L, Lu, Ll, Lt, Lm, Lo, M,
// N, P, S), "Han" (the script) or "s" (White_Space), as of Unicode 15.1 whatever version the
// system's PCRE2 knows. Empty for any other name. The first call takes some 20 ms.
const CodePointSet& code_points_with(std::string_view property);

}  // namespace sinew
