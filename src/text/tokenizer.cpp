// Encoding in four steps: special tokens cut the text into fragments, each fragment is made UTF-8,
// the pre-tokenizer cuts it into words, and merges turn each word into ids.
#include "text/tokenizer.h"

#include <unordered_map>

#include "base/limits.h"
#include "base/log.h"
#include "text/bpe.h"
#include "text/pretokenizer.h"
#include "text/special_tokens.h"
#include "text/unicode.h"
#include "text/vocabulary.h"

namespace sinew {

struct Tokenizer::State {
  State(Vocabulary the_vocabulary, Pretokenizer the_pretokenizer)
      : vocabulary(std::move(the_vocabulary)),
        pretokenizer(std::move(the_pretokenizer)),
        special(vocabulary) {}

  Vocabulary vocabulary;
  Pretokenizer pretokenizer;
  SpecialTokens special;  // refers to `vocabulary`; so a State never moves
  BpeMerges merges;
  bool adds_bos = false;
};

namespace {

constexpr std::size_t kCachedWordMax = 48;         // bytes; longer words rarely come again
constexpr std::size_t kCachedWordsMax = 1u << 15;  // of one call

// The ids of the words of one text: most words of a long text occur many times.
class WordEncoder {
 public:
  WordEncoder(const Vocabulary& vocabulary, const BpeMerges& merges, bool whole_words_first)
      : vocabulary_(vocabulary), word_(merges), whole_words_first_(whole_words_first) {}

  // `word` must stay where it is until this object is gone.
  void encode(std::string_view word, std::vector<TokenId>& ids) {
    if (word.size() > kCachedWordMax) {
      encode_uncached(word, ids);
      return;
    }
    if (const auto known = cache_.find(word); known != cache_.end()) {
      const auto first = pool_.begin() + known->second.first;
      ids.insert(ids.end(), first, first + known->second.count);
      return;
    }
    const std::size_t before = ids.size();
    encode_uncached(word, ids);
    if (cache_.size() == kCachedWordsMax) return;
    const auto added = ids.begin() + static_cast<std::ptrdiff_t>(before);
    cache_.emplace(word, Range{static_cast<std::int32_t>(pool_.size()),
                               static_cast<std::int32_t>(ids.end() - added)});
    pool_.insert(pool_.end(), added, ids.end());
  }

 private:
  struct Range {
    std::int32_t first = 0;
    std::int32_t count = 0;
  };

  void encode_uncached(std::string_view word, std::vector<TokenId>& ids) {
    if (whole_words_first_) {
      if (const auto token = vocabulary_.find_bytes(word)) {
        ids.push_back(*token);
        return;
      }
    }
    word_.encode(word, ids);
  }

  const Vocabulary& vocabulary_;
  BpeWord word_;
  bool whole_words_first_;
  std::unordered_map<std::string_view, Range> cache_;
  std::vector<TokenId> pool_;
};

Status read_merges(const Metadata& metadata, const Vocabulary& vocabulary, BpeMerges& merges) {
  SINEW_ASSIGN(const std::vector<std::string> lines, metadata.strings("tokenizer.ggml.merges"));
  merges = BpeMerges(lines.size());
  for (std::size_t i = 0; i < lines.size(); ++i) {
    // The first character may itself be a space in files that do not spell bytes.
    const std::size_t space = lines[i].find(' ', 1);
    if (space == std::string::npos) {
      return fail(ErrorCode::kInvalidFile, "{}: merge {} is not two tokens with a space between",
                  metadata.file(), i);
    }
    const std::string left = lines[i].substr(0, space);
    const std::string right = lines[i].substr(space + 1);
    const auto left_id = vocabulary.find_text(left);
    const auto right_id = vocabulary.find_text(right);
    const auto result = vocabulary.find_text(left + right);
    if (!left_id || !right_id || !result) {
      return fail(ErrorCode::kInvalidFile,
                  "{}: merge {} names a token that is not in the vocabulary", metadata.file(), i);
    }
    merges.add(*left_id, *right_id, {static_cast<std::uint32_t>(i), *result});
  }
  return {};
}

void read_byte_tokens(const Metadata& metadata, const Vocabulary& vocabulary, BpeMerges& merges) {
  int missing = 0;
  for (std::size_t byte = 0; byte < 256; ++byte) {
    const std::string bytes(1, static_cast<char>(byte));
    merges.byte_tokens[byte] = vocabulary.find_bytes(bytes).value_or(BpeMerges::kNoToken);
    // These never occur in UTF-8.
    const bool possible = byte != 0xC0 && byte != 0xC1 && byte < 0xF5;
    if (possible && merges.byte_tokens[byte] == BpeMerges::kNoToken) ++missing;
  }
  if (missing > 0) {
    spdlog::warn("{}: the vocabulary has no token for {} bytes; text with them loses them",
                 metadata.file(), missing);
  }
}

}  // namespace

Tokenizer::Tokenizer(std::unique_ptr<State> state) : state_(std::move(state)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

Result<Tokenizer> Tokenizer::from_metadata(const Metadata& metadata) {
  SINEW_ASSIGN(const std::string model, metadata.string("tokenizer.ggml.model"));
  if (model != "gpt2") {
    return fail(ErrorCode::kUnsupported,
                "{}: tokenizer '{}' is not implemented; supported: gpt2 (byte-level BPE)",
                metadata.file(), model);
  }
  SINEW_ASSIGN(const std::string pre, metadata.string_or("tokenizer.ggml.pre", ""));
  auto pretokenizer = Pretokenizer::create(pre);
  if (!pretokenizer) return fail(std::move(pretokenizer).error().within(metadata.file()));
  SINEW_ASSIGN(Vocabulary vocabulary, Vocabulary::from_metadata(metadata));
  auto state = std::make_unique<State>(std::move(vocabulary), *std::move(pretokenizer));
  SINEW_TRY(read_merges(metadata, state->vocabulary, state->merges));
  read_byte_tokens(metadata, state->vocabulary, state->merges);
  state->vocabulary.drop_texts();
  const bool has_bos = state->vocabulary.bos().has_value();
  SINEW_ASSIGN(state->adds_bos, metadata.boolean_or("tokenizer.ggml.add_bos_token",
                                                    state->pretokenizer.adds_bos() && has_bos));
  if (state->adds_bos && !has_bos) {
    return fail(ErrorCode::kInvalidFile,
                "{}: tokenizer.ggml.add_bos_token is set, but there is no bos_token_id",
                metadata.file());
  }
  return Tokenizer(std::move(state));
}

int Tokenizer::vocabulary_size() const {
  return state_->vocabulary.size();
}

Result<std::vector<TokenId>> Tokenizer::encode(std::string_view text, EncodeOptions options) const {
  if (text.size() > kTextBytesMax) {
    return fail(ErrorCode::kInvalidRequest, "the text has {} bytes; at most {} are allowed",
                text.size(), kTextBytesMax);
  }
  std::vector<TokenId> ids;
  if (options.add_bos && state_->adds_bos) ids.push_back(*state_->vocabulary.bos());
  std::vector<std::uint32_t> lengths;
  for (const Fragment& fragment : state_->special.partition(text, options.parse_special)) {
    if (fragment.text.empty()) {
      ids.push_back(fragment.token);
      continue;
    }
    std::string loose;
    std::string_view clean = fragment.text;
    if (!is_valid_utf8(clean)) {
      loose = decode_loosely(clean);
      clean = loose;
    }
    lengths.clear();
    SINEW_TRY(state_->pretokenizer.split(clean, lengths));
    WordEncoder words(state_->vocabulary, state_->merges, state_->pretokenizer.whole_words_first());
    for (const std::uint32_t length : lengths) {
      words.encode(clean.substr(0, length), ids);
      clean.remove_prefix(length);
    }
  }
  return ids;
}

const std::string& Tokenizer::piece(TokenId token) const {
  static const std::string none;
  return state_->vocabulary.contains(token) ? state_->vocabulary.piece(token) : none;
}

bool Tokenizer::is_control(TokenId token) const {
  return state_->vocabulary.contains(token) &&
         state_->vocabulary.kind(token) == Vocabulary::Kind::kControl;
}

bool Tokenizer::is_end_of_generation(TokenId token) const {
  return state_->vocabulary.contains(token) && state_->vocabulary.is_end_of_generation(token);
}

std::optional<TokenId> Tokenizer::bos() const {
  return state_->vocabulary.bos();
}
std::optional<TokenId> Tokenizer::eos() const {
  return state_->vocabulary.eos();
}

std::optional<TokenId> Tokenizer::find(std::string_view piece) const {
  if (const auto special = state_->vocabulary.find_special(piece)) return special;
  return state_->vocabulary.find_bytes(piece);
}

}  // namespace sinew
