#include "text/character_classes.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>

#include "base/assert.h"

namespace sinew {
namespace {

constexpr char32_t kCodePoints = 0x110000;
constexpr char32_t kFirstByte = 0x80;

// Reads one class after the other from the front of what is left of an expression.
class ClassReader {
 public:
  explicit ClassReader(std::string_view rest) : rest_(rest) {}

  std::string_view rest() const { return rest_; }

  bool at_class() const {
    return rest_.starts_with('[') || rest_.starts_with("\\s") || rest_.starts_with("\\S") ||
           rest_.starts_with("\\p{");
  }

  CodePointSet read_class() {
    if (!rest_.starts_with('[')) return read_named();
    rest_.remove_prefix(1);
    const bool negated = rest_.starts_with('^');
    if (negated) rest_.remove_prefix(1);
    CodePointSet set;
    while (!rest_.starts_with(']')) {
      SINEW_ASSERT(!rest_.empty());
      if (rest_.starts_with("&&[")) {
        rest_.remove_prefix(2);
        set = set.both(read_class());
      } else if (at_class() && !rest_.starts_with('[')) {
        set = set.with(read_named());
      } else {
        set = set.with(read_range());
      }
    }
    rest_.remove_prefix(1);
    return negated ? set.complement() : set;
  }

 private:
  CodePointSet read_named() {
    const bool property = rest_.starts_with("\\p{");
    const std::size_t end = property ? rest_.find('}') + 1 : 2;
    SINEW_ASSERT(end != 0);
    const std::string_view name = property ? rest_.substr(3, end - 4) : "s";
    const bool negated = rest_.starts_with("\\S");
    const CodePointSet& set = code_points_with(name);
    SINEW_ASSERT(!set.ranges().empty());
    rest_.remove_prefix(end);
    return negated ? set.complement() : set;
  }

  CodePointSet read_range() {
    const char32_t first = read_character();
    char32_t last = first;
    if (rest_.size() > 1 && rest_[0] == '-' && rest_[1] != ']') {
      rest_.remove_prefix(1);
      last = read_character();
    }
    SINEW_ASSERT(first <= last);
    return CodePointSet({{first, last}});
  }

  char32_t read_character() {
    const char first = rest_.front();
    SINEW_ASSERT(static_cast<std::uint8_t>(first) < kFirstByte);
    rest_.remove_prefix(1);
    if (first != '\\') return static_cast<char32_t>(first);
    const char escaped = rest_.front();
    rest_.remove_prefix(1);
    if (escaped == 'r') return '\r';
    if (escaped == 'n') return '\n';
    if (escaped != 'x') return static_cast<char32_t>(escaped);
    SINEW_ASSERT(rest_.starts_with('{'));
    const std::size_t end = rest_.find('}');
    SINEW_ASSERT(end != rest_.npos);
    std::uint32_t value = 0;
    const auto read = std::from_chars(rest_.data() + 1, rest_.data() + end, value, 16);
    SINEW_ASSERT(read.ptr == rest_.data() + end && value < kCodePoints);
    rest_.remove_prefix(end + 1);
    return value;
  }

  std::string_view rest_;
};

// Calls `on_class` for every class of an expression and `on_text` for what is between them.
template <typename OnClass, typename OnText>
void walk(std::string_view expression, OnClass on_class, OnText on_text) {
  while (!expression.empty()) {
    ClassReader reader(expression);
    if (reader.at_class()) {
      on_class(reader.read_class());
      expression = reader.rest();
      continue;
    }
    const std::size_t length = expression.front() == '\\' ? 2 : 1;
    on_text(expression.substr(0, length));
    expression.remove_prefix(length);
  }
}

std::vector<CodePointSet> classes_of(std::span<const std::string_view> expressions) {
  std::vector<CodePointSet> sets;
  for (const std::string_view expression : expressions) {
    walk(
        expression, [&](CodePointSet set) { sets.push_back(std::move(set)); },
        [](std::string_view) {});
  }
  return sets;
}

// Where a set begins or ends, above ASCII.
std::vector<char32_t> borders_of(const std::vector<CodePointSet>& sets) {
  std::vector<char32_t> borders{kFirstByte, kCodePoints};
  for (const CodePointSet& set : sets) {
    for (const CodePointSet::Range& range : set.ranges()) {
      for (const char32_t border : {range.first, static_cast<char32_t>(range.last + 1)}) {
        if (border > kFirstByte && border < kCodePoints) borders.push_back(border);
      }
    }
  }
  std::sort(borders.begin(), borders.end());
  borders.erase(std::unique(borders.begin(), borders.end()), borders.end());
  return borders;
}

}  // namespace

CharacterClasses::CharacterClasses(std::span<const std::string_view> expressions)
    : byte_of_(kCodePoints) {
  for (char32_t c = 0; c < kFirstByte; ++c) byte_of_[c] = static_cast<std::uint8_t>(c);
  const std::vector<CodePointSet> sets = classes_of(expressions);
  const std::vector<char32_t> borders = borders_of(sets);
  std::map<std::vector<bool>, std::uint8_t> byte_of_membership;
  for (std::size_t i = 0; i + 1 < borders.size(); ++i) {
    std::vector<bool> membership;
    for (const CodePointSet& set : sets) membership.push_back(set.contains(borders[i]));
    const auto next = static_cast<std::uint8_t>(kFirstByte + byte_of_membership.size());
    const auto [place, is_new] = byte_of_membership.try_emplace(std::move(membership), next);
    if (is_new) representatives_.push_back(borders[i]);
    SINEW_ASSERT(representatives_.size() <= 256 - kFirstByte);
    std::fill(byte_of_.begin() + borders[i], byte_of_.begin() + borders[i + 1], place->second);
  }
}

CharacterClasses::Bitmap CharacterClasses::bytes_of(const CodePointSet& set) const {
  Bitmap bitmap{};
  for (char32_t c = 0; c < kFirstByte; ++c) bitmap[c] = set.contains(c);
  for (std::size_t i = 0; i < representatives_.size(); ++i) {
    bitmap[kFirstByte + i] = set.contains(representatives_[i]);
  }
  return bitmap;
}

std::string CharacterClasses::to_bytes(std::string_view expression) const {
  std::string out;
  const auto on_class = [&](const CodePointSet& set) {
    const Bitmap bitmap = bytes_of(set);
    out += '[';
    for (std::size_t first = 0; first < bitmap.size(); ++first) {
      if (!bitmap[first]) continue;
      std::size_t last = first;
      while (last + 1 < bitmap.size() && bitmap[last + 1]) ++last;
      out += fmt::format("\\x{:02X}-\\x{:02X}", first, last);
      first = last;
    }
    out += ']';
  };
  walk(expression, on_class, [&](std::string_view text) { out += text; });
  return out;
}

void CharacterClasses::to_bytes(std::string_view text, std::string& bytes) const {
  bytes.resize(text.size());
  std::size_t count = 0;
  const auto* at = reinterpret_cast<const std::uint8_t*>(text.data());
  const std::uint8_t* const end = at + text.size();
  while (at != end) {
    std::uint32_t c = *at++;
    if (c >= kFirstByte) {
      const int more = c >= 0xF0 ? 3 : c >= 0xE0 ? 2 : 1;
      c &= 0x3Fu >> more;
      for (int i = 0; i < more && at != end; ++i) c = (c << 6) | (*at++ & 0x3Fu);
    }
    bytes[count++] = static_cast<char>(byte_of_[std::min<std::uint32_t>(c, kCodePoints - 1)]);
  }
  bytes.resize(count);
}

}  // namespace sinew
