// Encoding: special tokens cut the text into fragments, and a text model turns each into ids.
#include "text/tokenizer.h"

#include <fmt/format.h>

#include <unordered_map>

#include "base/limits.h"
#include "text/byte_bpe.h"
#include "text/pretokenizer.h"
#include "text/sentencepiece.h"
#include "text/special_tokens.h"
#include "text/vocabulary.h"

namespace sinew {

struct Tokenizer::State {
  explicit State(Vocabulary the_vocabulary)
      : vocabulary(std::move(the_vocabulary)), special(vocabulary) {}

  // The two below refer to it; so a State never moves.
  Vocabulary vocabulary;
  SpecialTokens special;
  std::unique_ptr<TextModel> model;
  bool adds_bos = false;
  bool adds_eos = false;
};

namespace {

constexpr std::size_t kCachedWordMax = 48;         // bytes; longer words rarely come again
constexpr std::size_t kCachedWordsMax = 1u << 15;  // of one call

// The ids of the words of one text: most words of a long text occur many times.
class WordEncoder {
 public:
  explicit WordEncoder(const TextModel& model) : model_(model), merging_(model.merges()) {}

  // `word` must stay where it is until this object is gone.
  void encode(std::string_view word, std::vector<TokenId>& ids) {
    if (word.size() > kCachedWordMax) {
      model_.encode_word(word, merging_, ids);
      return;
    }
    if (const auto known = cache_.find(word); known != cache_.end()) {
      const auto first = pool_.begin() + known->second.first;
      ids.insert(ids.end(), first, first + known->second.count);
      return;
    }
    const std::size_t before = ids.size();
    model_.encode_word(word, merging_, ids);
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

  const TextModel& model_;
  BpeWord merging_;
  std::unordered_map<std::string_view, Range> cache_;
  std::vector<TokenId> pool_;
};

// Whether prompts get this token.
Result<bool> added(const Metadata& metadata, std::string_view name, std::optional<TokenId> token,
                   bool fallback) {
  const std::string key = fmt::format("tokenizer.ggml.add_{}_token", name);
  SINEW_ASSIGN(const bool wanted, metadata.boolean_or(key, fallback));
  if (wanted && !token) {
    return fail(ErrorCode::kInvalidFile, "{}: {} is set, but there is no {}_token_id",
                metadata.file(), key, name);
  }
  return wanted;
}

}  // namespace

Tokenizer::Tokenizer(std::unique_ptr<State> state) : state_(std::move(state)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

Result<Tokenizer> Tokenizer::from_metadata(const Metadata& metadata) {
  SINEW_ASSIGN(const std::string name, metadata.string("tokenizer.ggml.model"));
  const bool by_bytes = name == "gpt2";
  const bool by_scores = name == "llama";
  if (!by_bytes && !by_scores && name != "gemma4") {
    return fail(
        ErrorCode::kUnsupported,
        "{}: tokenizer '{}' is not implemented; supported: gpt2 (byte-level BPE), llama and "
        "gemma4 (SentencePiece)",
        metadata.file(), name);
  }
  std::optional<Pretokenizer> pretokenizer;
  if (by_bytes) {
    SINEW_ASSIGN(const std::string pre, metadata.string_or("tokenizer.ggml.pre", ""));
    auto created = Pretokenizer::create(pre);
    if (!created) return fail(std::move(created).error().within(metadata.file()));
    pretokenizer = std::move(*created);
  }
  using Spelling = Vocabulary::Spelling;
  SINEW_ASSIGN(Vocabulary vocabulary,
               Vocabulary::from_metadata(metadata, by_bytes    ? Spelling::kByteLevel
                                                   : by_scores ? Spelling::kScoredPieces
                                                               : Spelling::kPieces));
  auto state = std::make_unique<State>(std::move(vocabulary));
  // Where the file does not say, as in llama.cpp.
  bool wants_bos = by_scores;
  if (by_bytes) {
    wants_bos = pretokenizer->adds_bos() && state->vocabulary.bos().has_value();
    SINEW_ASSIGN(state->model,
                 ByteBpe::from_metadata(metadata, state->vocabulary, std::move(*pretokenizer)));
  } else if (by_scores) {
    SINEW_ASSIGN(state->model, SentencePiece::with_scores(metadata, state->vocabulary));
  } else {
    SINEW_ASSIGN(state->model, SentencePiece::with_merges(metadata, state->vocabulary));
  }
  state->vocabulary.drop_texts();
  SINEW_ASSIGN(state->adds_bos, added(metadata, "bos", state->vocabulary.bos(), wants_bos));
  // Files of Gemma 4 deny it wrongly; llama.cpp overrides them too.
  if (!by_bytes && !by_scores) state->adds_bos = state->vocabulary.bos().has_value();
  SINEW_ASSIGN(state->adds_eos, added(metadata, "eos", state->vocabulary.eos(), false));
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
  bool after_token = true;
  for (const Fragment& fragment : state_->special.partition(text, options.parse_special)) {
    if (fragment.text.empty()) {
      ids.push_back(fragment.token);
      after_token = true;
      continue;
    }
    std::string storage;
    std::string_view rest = state_->model->prepare(fragment.text, after_token, storage);
    after_token = false;
    lengths.clear();
    SINEW_TRY(state_->model->split(rest, lengths));
    WordEncoder words(*state_->model);
    for (const std::uint32_t length : lengths) {
      words.encode(rest.substr(0, length), ids);
      rest.remove_prefix(length);
    }
  }
  if (options.add_bos && state_->adds_eos) ids.push_back(*state_->vocabulary.eos());
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
