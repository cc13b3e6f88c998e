#include "text/code_point_set.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string>

#include "base/assert.h"
#include "base/unicode.h"

namespace sinew {
namespace {

// What \s means to the vocabularies: the Unicode property White_Space. PCRE2's own \s has U+180E
// too.
constexpr std::string_view kSpaces =
    R"(\x{9}-\x{D}\x{20}\x{85}\x{A0}\x{1680}\x{2000}-\x{200A}\x{2028}\x{2029}\x{202F}\x{205F}\x{3000})";

// Properties, with the code points that Unicode 15 and 15.1 gave them: PCRE2 10.42 knows Unicode 14
// only, and ids must not depend on the system's PCRE2. Scripts are written out, since releases of
// PCRE2 do not agree on what \p{Han} means.
struct Property {
  std::string_view name;
  std::string_view ranges;
};
constexpr std::array kProperties{
    Property{"L", R"(\p{L}\x{1123F}-\x{11240}\x{11F02}\x{11F04}-\x{11F10}\x{11F12}-\x{11F33})"
                  R"(\x{1342F}\x{13441}-\x{13446}\x{1B132}\x{1B155}\x{1DF25}-\x{1DF2A})"
                  R"(\x{1E030}-\x{1E06D}\x{1E4D0}-\x{1E4EB}\x{2B739}\x{2EBF0}-\x{2EE5D})"
                  R"(\x{31350}-\x{323AF})"},
    Property{"Lu", R"(\p{Lu})"},
    Property{"Ll", R"(\p{Ll}\x{1DF25}-\x{1DF2A})"},
    Property{"Lt", R"(\p{Lt})"},
    Property{"Lm", R"(\p{Lm}\x{1E030}-\x{1E06D}\x{1E4EB})"},
    Property{"Lo", R"(\p{Lo}\x{1123F}-\x{11240}\x{11F02}\x{11F04}-\x{11F10}\x{11F12}-\x{11F33})"
                   R"(\x{1342F}\x{13441}-\x{13446}\x{1B132}\x{1B155}\x{1E4D0}-\x{1E4EA}\x{2B739})"
                   R"(\x{2EBF0}-\x{2EE5D}\x{31350}-\x{323AF})"},
    Property{"M", R"(\p{M}\x{CF3}\x{ECE}\x{10EFD}-\x{10EFF}\x{11241}\x{11F00}-\x{11F01}\x{11F03})"
                  R"(\x{11F34}-\x{11F3A}\x{11F3E}-\x{11F42}\x{13440}\x{13447}-\x{13455}\x{1E08F})"
                  R"(\x{1E4EC}-\x{1E4EF})"},
    Property{"N", R"(\p{N}\x{11F50}-\x{11F59}\x{1D2C0}-\x{1D2D3}\x{1E4F0}-\x{1E4F9})"},
    Property{"P", R"(\p{P}\x{11B00}-\x{11B09}\x{11F43}-\x{11F4F})"},
    Property{"S", R"(\p{S}\x{2FFC}-\x{2FFF}\x{31EF}\x{1F6DC}\x{1F774}-\x{1F776}\x{1F77B}-\x{1F77F})"
                  R"(\x{1F7D9}\x{1FA75}-\x{1FA77}\x{1FA87}-\x{1FA88}\x{1FAAD}-\x{1FAAF})"
                  R"(\x{1FABB}-\x{1FABD}\x{1FABF}\x{1FACE}-\x{1FACF}\x{1FADA}-\x{1FADB}\x{1FAE8})"
                  R"(\x{1FAF7}-\x{1FAF8})"},
    Property{"Han",
             R"(\x{2E80}-\x{2E99}\x{2E9B}-\x{2EF3}\x{2F00}-\x{2FD5}\x{3005}\x{3007})"
             R"(\x{3021}-\x{3029}\x{3038}-\x{303B}\x{3400}-\x{4DBF}\x{4E00}-\x{9FFF})"
             R"(\x{F900}-\x{FA6D}\x{FA70}-\x{FAD9}\x{16FE2}-\x{16FE3}\x{16FF0}-\x{16FF1})"
             R"(\x{20000}-\x{2A6DF}\x{2A700}-\x{2B739}\x{2B740}-\x{2B81D}\x{2B820}-\x{2CEA1})"
             R"(\x{2CEB0}-\x{2EBE0}\x{2EBF0}-\x{2EE5D}\x{2F800}-\x{2FA1D}\x{30000}-\x{3134A})"
             R"(\x{31350}-\x{323AF})"},
    Property{"s", kSpaces},
};

constexpr char32_t kCodePointMax = 0x10FFFF;

// The planes that have characters of the properties above; the rest is unassigned or private.
constexpr std::array<CodePointSet::Range, 3> kAssigned{
    {{0, 0xD7FF}, {0xE000, 0x3FFFF}, {0xE0000, 0xE0FFF}}};

char32_t code_point_at(std::string_view text, std::size_t at) {
  std::size_t length = 0;
  const auto code_point = loose_code_point(text.substr(at), length);
  SINEW_ASSERT(code_point.has_value());
  return *code_point;
}

std::size_t before(std::string_view text, std::size_t at) {
  do {
    --at;
  } while ((static_cast<std::uint8_t>(text[at]) & 0xC0) == 0x80);
  return at;
}

struct FreeCode {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
};
struct FreeMatchData {
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
};

// Asks PCRE2, by searching a text of all characters for runs of those in the class.
CodePointSet ask_pcre2(std::string_view ranges, std::string_view characters) {
  const std::string pattern = "[" + std::string(ranges) + "]+";
  int error = 0;
  PCRE2_SIZE offset = 0;
  const std::unique_ptr<pcre2_code, FreeCode> code(
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                    PCRE2_UTF | PCRE2_UCP, &error, &offset, nullptr));
  SINEW_ASSERT(code);
  (void)pcre2_jit_compile(code.get(), PCRE2_JIT_COMPLETE);
  const std::unique_ptr<pcre2_match_data, FreeMatchData> data(pcre2_match_data_create(1, nullptr));
  SINEW_ASSERT(data);
  std::vector<CodePointSet::Range> found;
  std::size_t from = 0;
  while (pcre2_match(code.get(), reinterpret_cast<PCRE2_SPTR>(characters.data()), characters.size(),
                     from, PCRE2_NO_UTF_CHECK, data.get(), nullptr) > 0) {
    const PCRE2_SIZE* bounds = pcre2_get_ovector_pointer(data.get());
    found.push_back({code_point_at(characters, bounds[0]),
                     code_point_at(characters, before(characters, bounds[1]))});
    from = bounds[1];
  }
  return CodePointSet(std::move(found));
}

std::array<CodePointSet, kProperties.size()> ask_for_all() {
  std::string characters;
  for (const CodePointSet::Range& range : kAssigned) {
    for (char32_t c = range.first; c <= range.last; ++c) append_utf8(characters, c);
  }
  std::array<CodePointSet, kProperties.size()> sets;
  for (std::size_t i = 0; i < sets.size(); ++i) {
    sets[i] = ask_pcre2(kProperties[i].ranges, characters);
  }
  return sets;
}

}  // namespace

CodePointSet::CodePointSet(std::vector<Range> ranges) {
  std::sort(ranges.begin(), ranges.end(),
            [](const Range& a, const Range& b) { return a.first < b.first; });
  for (const Range& range : ranges) {
    if (!ranges_.empty() && range.first <= ranges_.back().last + 1) {
      ranges_.back().last = std::max(ranges_.back().last, range.last);
    } else {
      ranges_.push_back(range);
    }
  }
}

bool CodePointSet::contains(char32_t code_point) const {
  const auto after =
      std::upper_bound(ranges_.begin(), ranges_.end(), code_point,
                       [](char32_t c, const Range& range) { return c < range.first; });
  return after != ranges_.begin() && code_point <= std::prev(after)->last;
}

CodePointSet CodePointSet::with(const CodePointSet& other) const {
  std::vector<Range> all = ranges_;
  all.insert(all.end(), other.ranges_.begin(), other.ranges_.end());
  return CodePointSet(std::move(all));
}

CodePointSet CodePointSet::both(const CodePointSet& other) const {
  return complement().with(other.complement()).complement();
}

CodePointSet CodePointSet::complement() const {
  std::vector<Range> gaps;
  char32_t next = 0;
  for (const Range& range : ranges_) {
    if (range.first > next) gaps.push_back({next, range.first - 1});
    next = range.last + 1;
  }
  if (next <= kCodePointMax) gaps.push_back({next, kCodePointMax});
  return CodePointSet(std::move(gaps));
}

const CodePointSet& code_points_with(std::string_view property) {
  static const std::array<CodePointSet, kProperties.size()> sets = ask_for_all();
  static const CodePointSet none;
  for (std::size_t i = 0; i < sets.size(); ++i) {
    if (kProperties[i].name == property) return sets[i];
  }
  return none;
}

}  // namespace sinew
