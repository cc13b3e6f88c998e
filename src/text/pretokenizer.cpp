// PCRE2 runs the expressions of a row of the table, over bytes that stand for characters
// (text/character_classes.h).
#include "text/pretokenizer.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>

#include "base/limits.h"
#include "text/character_classes.h"
#include "text/pretokenizer_table.h"

namespace sinew {
namespace {

// Every character of a text may be stepped over once forwards and once backwards by one match.
constexpr std::uint32_t kMatchLimit = 4 * kTextBytesMax;

struct FreeCode {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
};
struct FreeMatchData {
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
};
struct FreeMatchContext {
  void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
};
using Code = std::unique_ptr<pcre2_code, FreeCode>;
using MatchData = std::unique_ptr<pcre2_match_data, FreeMatchData>;
using MatchContext = std::unique_ptr<pcre2_match_context, FreeMatchContext>;

Result<Code> compile(const std::string& pattern) {
  int error = 0;
  PCRE2_SIZE offset = 0;
  Code code(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(), 0, &error,
                          &offset, nullptr));
  if (!code) {
    return fail(ErrorCode::kInternal, "PCRE2 refuses a pre-tokenizer's expression at {}: error {}",
                offset, error);
  }
  // Where there is no JIT, pcre2_match interprets: slower, the same matches.
  (void)pcre2_jit_compile(code.get(), PCRE2_JIT_COMPLETE);
  return code;
}

// Cuts one piece; its matches and the gaps between them are the new pieces.
Status cut(const pcre2_code* code, std::string_view piece, pcre2_match_data* data,
           pcre2_match_context* context, std::vector<std::uint32_t>& lengths) {
  std::size_t done = 0;
  std::size_t from = 0;
  while (from < piece.size()) {
    const int count = pcre2_match(code, reinterpret_cast<PCRE2_SPTR>(piece.data()), piece.size(),
                                  from, PCRE2_NOTEMPTY, data, context);
    if (count == PCRE2_ERROR_NOMATCH) break;
    if (count < 0) {
      return fail(ErrorCode::kInternal,
                  "the pre-tokenizer's expression failed at character {}: PCRE2 {}", from, count);
    }
    const PCRE2_SIZE* bounds = pcre2_get_ovector_pointer(data);
    if (bounds[0] > done) lengths.push_back(static_cast<std::uint32_t>(bounds[0] - done));
    lengths.push_back(static_cast<std::uint32_t>(bounds[1] - bounds[0]));
    from = done = bounds[1];
  }
  if (done < piece.size()) lengths.push_back(static_cast<std::uint32_t>(piece.size() - done));
  return {};
}

// Lengths in characters become lengths in bytes.
void to_byte_lengths(std::string_view text, std::vector<std::uint32_t>& lengths) {
  std::size_t at = 0;
  for (std::uint32_t& length : lengths) {
    const std::size_t begin = at;
    for (std::uint32_t i = 0; i < length; ++i) {
      const auto lead = static_cast<std::uint8_t>(text[at]);
      at += lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
    }
    at = std::min(at, text.size());
    length = static_cast<std::uint32_t>(at - begin);
  }
}

}  // namespace

struct Pretokenizer::State {
  explicit State(const PretokenizerRow& the_row) : row(the_row), classes(the_row.stages) {}

  const PretokenizerRow& row;  // of the table, which is static
  CharacterClasses classes;
  std::vector<Code> stages;
};

Pretokenizer::Pretokenizer(std::unique_ptr<State> state) : state_(std::move(state)) {}
Pretokenizer::Pretokenizer(Pretokenizer&&) noexcept = default;
Pretokenizer& Pretokenizer::operator=(Pretokenizer&&) noexcept = default;
Pretokenizer::~Pretokenizer() = default;

Result<Pretokenizer> Pretokenizer::create(std::string_view name) {
  const PretokenizerRow* row = find_pretokenizer(name);
  if (row == nullptr) {
    return fail(ErrorCode::kUnsupported, "pre-tokenizer '{}' is not implemented; supported: {}",
                name, pretokenizer_names());
  }
  auto state = std::make_unique<State>(*row);
  for (const std::string_view pattern : row->stages) {
    SINEW_ASSIGN(Code code, compile(state->classes.to_bytes(pattern)));
    state->stages.push_back(std::move(code));
  }
  return Pretokenizer(std::move(state));
}

bool Pretokenizer::whole_words_first() const {
  return state_->row.whole_words_first;
}
bool Pretokenizer::adds_bos() const {
  return state_->row.adds_bos;
}

Status Pretokenizer::split(std::string_view text, std::vector<std::uint32_t>& lengths) const {
  const MatchData data(pcre2_match_data_create(1, nullptr));
  const MatchContext context(pcre2_match_context_create(nullptr));
  if (!data || !context) return fail(ErrorCode::kNoMemory, "no memory to split a text into words");
  pcre2_set_match_limit(context.get(), kMatchLimit);
  std::string characters;
  state_->classes.to_bytes(text, characters);
  std::vector<std::uint32_t> pieces{static_cast<std::uint32_t>(characters.size())};
  std::vector<std::uint32_t> cut_pieces;
  for (const Code& code : state_->stages) {
    cut_pieces.clear();
    std::size_t at = 0;
    for (const std::uint32_t length : pieces) {
      SINEW_TRY(cut(code.get(), std::string_view(characters).substr(at, length), data.get(),
                    context.get(), cut_pieces));
      at += length;
    }
    pieces.swap(cut_pieces);
  }
  if (characters.size() != text.size()) to_byte_lengths(text, pieces);
  if (!text.empty()) lengths.insert(lengths.end(), pieces.begin(), pieces.end());
  return {};
}

}  // namespace sinew
