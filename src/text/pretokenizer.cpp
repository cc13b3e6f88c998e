// Pre-tokenizers as data: a row of the table names the expressions, in the notation of the
// vocabularies' own tokenizer.json. PCRE2 runs them, after `expand` has pinned the meaning of the
// Unicode classes.
#include "text/pretokenizer.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <array>
#include <span>

#include "base/limits.h"

namespace sinew {
namespace {

// What \s means to the vocabularies: the Unicode property White_Space. PCRE2's own \s has U+180E
// too.
constexpr std::string_view kSpaces =
    R"(\x{9}-\x{D}\x{20}\x{85}\x{A0}\x{1680}\x{2000}-\x{200A}\x{2028}\x{2029}\x{202F}\x{205F}\x{3000})";

// General categories, with the code points that Unicode 15 and 15.1 gave them: PCRE2 10.42 knows
// Unicode 14 only, and ids must not depend on the system's PCRE2.
struct Category {
  std::string_view name;
  std::string_view ranges;
};
constexpr std::array<Category, 5> kCategories{{
    {R"(\p{L})",
     R"(\p{L}\x{1123F}-\x{11240}\x{11F02}\x{11F04}-\x{11F10}\x{11F12}-\x{11F33}\x{1342F})"
     R"(\x{13441}-\x{13446}\x{1B132}\x{1B155}\x{1DF25}-\x{1DF2A}\x{1E030}-\x{1E06D})"
     R"(\x{1E4D0}-\x{1E4EB}\x{2B739}\x{2EBF0}-\x{2EE5D}\x{31350}-\x{323AF})"},
    {R"(\p{M})", R"(\p{M}\x{CF3}\x{ECE}\x{10EFD}-\x{10EFF}\x{11241}\x{11F00}-\x{11F01}\x{11F03})"
                 R"(\x{11F34}-\x{11F3A}\x{11F3E}-\x{11F42}\x{13440}\x{13447}-\x{13455}\x{1E08F})"
                 R"(\x{1E4EC}-\x{1E4EF})"},
    {R"(\p{N})", R"(\p{N}\x{11F50}-\x{11F59}\x{1D2C0}-\x{1D2D3}\x{1E4F0}-\x{1E4F9})"},
    {R"(\p{P})", R"(\p{P}\x{11B00}-\x{11B09}\x{11F43}-\x{11F4F})"},
    {R"(\p{S})",
     R"(\p{S}\x{2FFC}-\x{2FFF}\x{31EF}\x{1F6DC}\x{1F774}-\x{1F776}\x{1F77B}-\x{1F77F}\x{1F7D9})"
     R"(\x{1FA75}-\x{1FA77}\x{1FA87}-\x{1FA88}\x{1FAAD}-\x{1FAAF}\x{1FABB}-\x{1FABD}\x{1FABF})"
     R"(\x{1FACE}-\x{1FACF}\x{1FADA}-\x{1FADB}\x{1FAE8}\x{1FAF7}-\x{1FAF8})"},
}};

constexpr std::string_view kGpt2 =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr std::string_view kLlama3 =
    R"('(?:[sStTmMdD]|[rR][eE]|[vV][eE]|[lL][lL])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3})"
    R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen2 =
    R"('(?:[sStTmMdD]|[rR][eE]|[vV][eE]|[lL][lL])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N})"
    R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen35 =
    R"('(?:[sStTmMdD]|[rR][eE]|[vV][eE]|[lL][lL])|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N})"
    R"(| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kDeepSeek3Words =
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+)"
    R"(| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kDeepSeek3Cjk =
    R"([\x{4E00}-\x{9FA5}\x{3040}-\x{309F}\x{30A0}-\x{30FF}]+)";

constexpr std::array kGpt2Stages{kGpt2};
constexpr std::array kSmolLmStages{std::string_view{R"(\p{N})"}, kGpt2};
constexpr std::array kLlama3Stages{kLlama3};
constexpr std::array kQwen2Stages{kQwen2};
constexpr std::array kQwen35Stages{kQwen35};
constexpr std::array kDeepSeek3Stages{std::string_view{R"(\p{N}{1,3})"}, kDeepSeek3Cjk,
                                      kDeepSeek3Words};

struct Row {
  std::string_view name;
  std::span<const std::string_view> stages;
  bool whole_words_first = false;
  bool adds_bos = false;
};

// Names and flags as llama.cpp has them, since it is what writes and reads these files.
constexpr std::array kTable{
    Row{"deepseek-v3", kDeepSeek3Stages},
    Row{"hunyuan-dense", kDeepSeek3Stages},
    Row{"joyai-llm", kDeepSeek3Stages},
    Row{"llama-bpe", kLlama3Stages, true, true},
    Row{"llama3", kLlama3Stages, true, true},
    Row{"llama-v3", kLlama3Stages, true, true},
    Row{"falcon3", kLlama3Stages, true, true},
    Row{"falcon-h1", kLlama3Stages, true, true},
    Row{"pixtral", kLlama3Stages, true, true},
    Row{"midm-2.0", kLlama3Stages, true, true},
    Row{"lfm2", kLlama3Stages, true, true},
    Row{"dbrx", kLlama3Stages},
    Row{"smaug-bpe", kLlama3Stages},
    Row{"glm4", kLlama3Stages},
    Row{"chatglm-bpe", kLlama3Stages},
    Row{"qwen2", kQwen2Stages},
    Row{"deepseek-r1-qwen", kQwen2Stages},
    Row{"kormo", kQwen2Stages},
    Row{"megrez", kQwen2Stages},
    Row{"stablelm2", kQwen2Stages},
    Row{"hunyuan", kQwen2Stages},
    Row{"solar-open", kQwen2Stages},
    Row{"grok-2", kQwen2Stages},
    Row{"qwen35", kQwen35Stages},
    Row{"smollm", kSmolLmStages},
    Row{"starcoder", kSmolLmStages},
    Row{"refact", kSmolLmStages},
    Row{"command-r", kSmolLmStages},
    Row{"codeshell", kSmolLmStages},
    Row{"exaone", kSmolLmStages},
    Row{"minerva-7b", kSmolLmStages},
    Row{"mellum2", kSmolLmStages},
    Row{"gpt-2", kGpt2Stages},
    Row{"phi-2", kGpt2Stages},
    Row{"gigachat", kGpt2Stages},
    Row{"a.x-4.0", kGpt2Stages},
    Row{"mellum", kGpt2Stages},
    Row{"exaone4", kGpt2Stages},
    Row{"mpt", kGpt2Stages},
    Row{"olmo", kGpt2Stages},
    Row{"jais", kGpt2Stages},
    Row{"trillion", kGpt2Stages},
    Row{"granite-docling", kGpt2Stages},
};

// Every character of a text may be stepped over once forwards and once backwards by one match.
constexpr std::uint32_t kMatchLimit = 4 * kTextBytesMax;

const Row* find_row(std::string_view name) {
  for (const Row& row : kTable) {
    if (row.name == name) return &row;
  }
  return nullptr;
}

std::string names() {
  std::string list;
  for (const Row& row : kTable) {
    if (!list.empty()) list += ", ";
    list += row.name;
  }
  return list;
}

// Replaces \s, \S and the categories by explicit classes, in and outside of brackets.
std::string expand(std::string_view pattern) {
  std::string out;
  bool in_class = false;
  while (!pattern.empty()) {
    if (pattern.front() != '\\') {
      if (pattern.front() == '[') in_class = true;
      if (pattern.front() == ']') in_class = false;
      out += pattern.front();
      pattern.remove_prefix(1);
      continue;
    }
    std::string_view ranges;
    std::size_t length = 2;
    for (const Category& category : kCategories) {
      if (!pattern.starts_with(category.name)) continue;
      ranges = category.ranges;
      length = category.name.size();
    }
    const bool negated = pattern.starts_with("\\S");
    if (negated || pattern.starts_with("\\s")) ranges = kSpaces;
    if (ranges.empty()) {
      out += pattern.substr(0, length);
    } else if (in_class) {
      out += ranges;
    } else {
      out += negated ? "[^" : "[";
      out += ranges;
      out += ']';
    }
    pattern.remove_prefix(length);
  }
  return out;
}

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

Result<Code> compile(std::string_view pattern) {
  const std::string expanded = expand(pattern);
  int error = 0;
  PCRE2_SIZE offset = 0;
  Code code(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(expanded.data()), expanded.size(),
                          PCRE2_UTF | PCRE2_UCP, &error, &offset, nullptr));
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
                                  from, PCRE2_NO_UTF_CHECK | PCRE2_NOTEMPTY, data, context);
    if (count == PCRE2_ERROR_NOMATCH) break;
    if (count < 0) {
      return fail(ErrorCode::kInternal,
                  "the pre-tokenizer's expression failed at byte {}: PCRE2 {}", from, count);
    }
    const PCRE2_SIZE* bounds = pcre2_get_ovector_pointer(data);
    if (bounds[0] > done) lengths.push_back(static_cast<std::uint32_t>(bounds[0] - done));
    lengths.push_back(static_cast<std::uint32_t>(bounds[1] - bounds[0]));
    from = done = bounds[1];
  }
  if (done < piece.size()) lengths.push_back(static_cast<std::uint32_t>(piece.size() - done));
  return {};
}

}  // namespace

struct Pretokenizer::State {
  const Row* row = nullptr;
  std::vector<Code> stages;
};

Pretokenizer::Pretokenizer(std::unique_ptr<State> state) : state_(std::move(state)) {}
Pretokenizer::Pretokenizer(Pretokenizer&&) noexcept = default;
Pretokenizer& Pretokenizer::operator=(Pretokenizer&&) noexcept = default;
Pretokenizer::~Pretokenizer() = default;

Result<Pretokenizer> Pretokenizer::create(std::string_view name) {
  auto state = std::make_unique<State>();
  state->row = find_row(name);
  if (state->row == nullptr) {
    return fail(ErrorCode::kUnsupported, "pre-tokenizer '{}' is not implemented; supported: {}",
                name, names());
  }
  for (const std::string_view pattern : state->row->stages) {
    SINEW_ASSIGN(Code code, compile(pattern));
    state->stages.push_back(std::move(code));
  }
  return Pretokenizer(std::move(state));
}

bool Pretokenizer::whole_words_first() const {
  return state_->row->whole_words_first;
}
bool Pretokenizer::adds_bos() const {
  return state_->row->adds_bos;
}

Status Pretokenizer::split(std::string_view text, std::vector<std::uint32_t>& lengths) const {
  const MatchData data(pcre2_match_data_create(1, nullptr));
  const MatchContext context(pcre2_match_context_create(nullptr));
  if (!data || !context) return fail(ErrorCode::kNoMemory, "no memory to split a text into words");
  pcre2_set_match_limit(context.get(), kMatchLimit);
  std::vector<std::uint32_t> pieces{static_cast<std::uint32_t>(text.size())};
  std::vector<std::uint32_t> cut_pieces;
  for (const Code& code : state_->stages) {
    cut_pieces.clear();
    std::size_t at = 0;
    for (const std::uint32_t length : pieces) {
      SINEW_TRY(cut(code.get(), text.substr(at, length), data.get(), context.get(), cut_pieces));
      at += length;
    }
    pieces.swap(cut_pieces);
  }
  if (!text.empty()) lengths.insert(lengths.end(), pieces.begin(), pieces.end());
  return {};
}

}  // namespace sinew
