#include "text/vocabulary.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <span>

#include "base/assert.h"
#include "base/unicode.h"

namespace sinew {
namespace {

// tokenizer.ggml.token_type
constexpr std::int64_t kTypeNormal = 1;
constexpr std::int64_t kTypeUnknown = 2;
constexpr std::int64_t kTypeControl = 3;
constexpr std::int64_t kTypeUserDefined = 4;
constexpr std::int64_t kTypeByte = 6;

// Of SentencePiece models.
constexpr TokenId kDefaultBos = 1;
constexpr TokenId kDefaultEos = 2;

// Tokens that end an answer whatever the file says about them. The bars and the low line of
// DeepSeek's are U+FF5C and U+2581.
constexpr std::array<std::string_view, 22> kEndNames{"<|eot_id|>",
                                                     "<|im_end|>",
                                                     "<|end|>",
                                                     "<|return|>",
                                                     "<|call|>",
                                                     "<|flush|>",
                                                     "<|calls|>",
                                                     "<end_of_turn>",
                                                     "<|endoftext|>",
                                                     "</s>",
                                                     "<|eom_id|>",
                                                     "<EOT>",
                                                     "_<EOT>",
                                                     "[EOT]",
                                                     "[EOS]",
                                                     "<|end_of_text|>",
                                                     "<end_of_utterance>",
                                                     "<eos>",
                                                     "<turn|>",
                                                     "<|tool_response>",
                                                     "<\uFF5Cend\u2581of\u2581sentence\uFF5C>",
                                                     "[e~["};

// Roles that llama.cpp finds by a token's text where the file names none: the token becomes a
// control token, and with `ends` it ends an answer.
struct Role {
  std::array<std::string_view, 2> keys;  // the second is an older name of the first, or empty
  bool ends = false;
  std::array<std::string_view, 8> names;
};
constexpr std::array<Role, 7> kRoles{{
    {{"tokenizer.ggml.eom_token_id", ""}, true, {"<|eom_id|>"}},
    {{"tokenizer.ggml.fim_pre_token_id", "tokenizer.ggml.prefix_token_id"},
     false,
     {"<|fim_prefix|>", "<fim-prefix>", "<fim_prefix>", "<\uFF5Cfim\u2581begin\uFF5C>", "<PRE>",
      "\u2581<PRE>", "<|code_prefix|>", "<|prefix|>"}},
    {{"tokenizer.ggml.fim_suf_token_id", "tokenizer.ggml.suffix_token_id"},
     false,
     {"<|fim_suffix|>", "<fim-suffix>", "<fim_suffix>", "<\uFF5Cfim\u2581hole\uFF5C>", "<SUF>",
      "\u2581<SUF>", "<|code_suffix|>", "<|suffix|>"}},
    {{"tokenizer.ggml.fim_mid_token_id", "tokenizer.ggml.middle_token_id"},
     false,
     {"<|fim_middle|>", "<fim-middle>", "<fim_middle>", "<\uFF5Cfim\u2581end\uFF5C>", "<MID>",
      "\u2581<MID>", "<|code_middle|>", "<|middle|>"}},
    {{"tokenizer.ggml.fim_pad_token_id", ""},
     true,
     {"<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"}},
    {{"tokenizer.ggml.fim_rep_token_id", ""},
     true,
     {"<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"}},
    {{"tokenizer.ggml.fim_sep_token_id", ""}, true, {"<|file_sep|>"}},
}};

// Control tokens that belong to the answer (the channels of gpt-oss).
constexpr std::array<std::string_view, 4> kVisibleNames{"<|channel|>", "<|message|>", "<|start|>",
                                                        "<|constrain|>"};

Result<std::optional<TokenId>> optional_id(const Metadata& metadata, std::string_view key,
                                           int size) {
  if (!metadata.has(key)) return std::nullopt;
  SINEW_ASSIGN(const std::int64_t id, metadata.integer(key));
  if (id < 0 || id >= size) {
    return fail(ErrorCode::kInvalidFile, "{}: {} is {}, outside of the vocabulary of {} tokens",
                metadata.file(), key, id, size);
  }
  return static_cast<TokenId>(id);
}

Vocabulary::Kind kind_of(std::int64_t type) {
  switch (type) {
    case kTypeNormal:
      return Vocabulary::Kind::kNormal;
    case kTypeByte:
      return Vocabulary::Kind::kByte;
    case kTypeUnknown:
    case kTypeControl:
      return Vocabulary::Kind::kControl;
    case kTypeUserDefined:
      return Vocabulary::Kind::kUserDefined;
    default:
      return Vocabulary::Kind::kSilent;
  }
}

// The byte that "<0x41>" names.
std::optional<std::string> byte_of(std::string_view text) {
  if (text.size() != 6 || !text.starts_with("<0x") || text.back() != '>') return std::nullopt;
  std::uint8_t byte = 0;
  const auto read = std::from_chars(text.data() + 3, text.data() + 5, byte, 16);
  if (read.ec != std::errc() || read.ptr != text.data() + 5) return std::nullopt;
  return std::string(1, static_cast<char>(byte));
}

std::optional<TokenId> lookup(const std::unordered_map<std::string, TokenId>& map,
                              std::string_view key) {
  const auto place = map.find(std::string(key));
  if (place == map.end()) return std::nullopt;
  return place->second;
}

}  // namespace

std::optional<TokenId> Vocabulary::find_bytes(std::string_view bytes) const {
  return lookup(by_bytes_, bytes);
}

std::optional<TokenId> Vocabulary::find_special(std::string_view text) const {
  return lookup(special_by_text_, text);
}

std::optional<TokenId> Vocabulary::find_text(const std::string& text) const {
  return lookup(by_text_, text);
}

Result<Vocabulary> Vocabulary::from_metadata(const Metadata& metadata, Spelling spelling) {
  Vocabulary vocabulary(spelling);
  SINEW_TRY(vocabulary.read_tokens(metadata));
  return vocabulary;
}

Status Vocabulary::read_tokens(const Metadata& metadata) {
  SINEW_ASSIGN(const std::vector<std::string> texts, metadata.strings("tokenizer.ggml.tokens"));
  std::vector<std::int64_t> types(texts.size(), kTypeNormal);
  if (metadata.has("tokenizer.ggml.token_type")) {
    SINEW_ASSIGN(types, metadata.integers("tokenizer.ggml.token_type"));
  }
  if (texts.empty() || types.size() != texts.size() || texts.size() > kTokensMax) {
    return fail(ErrorCode::kInvalidFile,
                "{}: the vocabulary has {} tokens and {} token types; both must be equal, 1 to {}",
                metadata.file(), texts.size(), types.size(), kTokensMax);
  }
  for (std::size_t i = 0; i < texts.size(); ++i) {
    kinds_.push_back(texts[i].empty() ? Kind::kSilent : kind_of(types[i]));
    if (texts[i].empty()) continue;
    if (!by_text_.emplace(texts[i], static_cast<TokenId>(i)).second) {
      return fail(ErrorCode::kInvalidFile, "{}: tokens {} and {} of the vocabulary are the same",
                  metadata.file(), by_text_.at(texts[i]), i);
    }
  }
  ends_.resize(texts.size());
  SINEW_TRY(read_special_ids(metadata));
  make_pieces(texts);
  return {};
}

Status Vocabulary::read_special_ids(const Metadata& metadata) {
  SINEW_ASSIGN(bos_, optional_id(metadata, "tokenizer.ggml.bos_token_id", size()));
  SINEW_ASSIGN(eos_, optional_id(metadata, "tokenizer.ggml.eos_token_id", size()));
  if (spelling_ == Spelling::kScoredPieces) {
    if (!bos_ && size() > kDefaultBos) bos_ = kDefaultBos;
    if (!eos_ && size() > kDefaultEos) eos_ = kDefaultEos;
  }
  SINEW_ASSIGN(const auto eot, optional_id(metadata, "tokenizer.ggml.eot_token_id", size()));
  const auto end_at = [this](TokenId token) { ends_[static_cast<std::size_t>(token)] = true; };
  for (const Role& role : kRoles) {
    std::optional<TokenId> token;
    for (const std::string_view key : role.keys) {
      if (key.empty() || token) continue;
      SINEW_ASSIGN(token, optional_id(metadata, key, size()));
    }
    for (const std::string_view name : role.names) {
      if (name.empty() || token) continue;
      token = lookup(by_text_, name);
      if (token) mark_control(*token);
    }
    if (token && role.ends) end_at(*token);
  }
  for (const std::string_view name : kEndNames) {
    const auto token = lookup(by_text_, name);
    if (!token) continue;
    end_at(*token);
    mark_control(*token);
  }
  for (const std::string_view name : kVisibleNames) {
    if (const auto token = lookup(by_text_, name)) {
      kinds_[static_cast<std::size_t>(*token)] = Kind::kUserDefined;
    }
  }
  if (eos_) end_at(*eos_);
  if (eot) end_at(*eot);
  exempt_inner_ends();
  return {};
}

// Formats with their own ends of messages use these two names for something inside of an answer.
void Vocabulary::exempt_inner_ends() {
  const auto has = [this](std::string_view name) {
    const auto token = lookup(by_text_, name);
    return token && is_end_of_generation(*token);
  };
  const auto exempt = [this](std::string_view name, Kind kind) {
    const auto token = lookup(by_text_, name);
    if (!token) return;
    ends_[static_cast<std::size_t>(*token)] = false;
    kinds_[static_cast<std::size_t>(*token)] = kind;
  };
  const bool calls = has("<|call|>") || has("<|calls|>");
  if (calls && (has("<|return|>") || has("<|flush|>")) && has("<|end|>")) {
    exempt("<|end|>", Kind::kUserDefined);
  }
  if (has("<|tool_response>") && has("</s>")) exempt("</s>", Kind::kNormal);
}

void Vocabulary::mark_control(TokenId token) {
  kinds_[static_cast<std::size_t>(token)] = Kind::kControl;
}

std::optional<std::string> Vocabulary::bytes_of(const std::string& text, Kind kind) const {
  if (spelling_ == Spelling::kByteLevel) return decode_bpe_text(text);
  if (kind == Kind::kByte) return byte_of(text);
  constexpr std::string_view kSpace = "\xE2\x96\x81";  // U+2581
  std::string bytes = text;
  for (std::size_t at = bytes.find(kSpace); at != bytes.npos; at = bytes.find(kSpace, at + 1)) {
    bytes.replace(at, kSpace.size(), " ");
  }
  return bytes;
}

void Vocabulary::make_pieces(const std::vector<std::string>& texts) {
  pieces_.resize(texts.size());
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const std::string& text = texts[i];
    if (text.empty()) continue;
    const auto token = static_cast<TokenId>(i);
    const Kind kind = kinds_[i];
    std::optional<std::string> bytes = bytes_of(text, kind);
    if (bytes) {
      const auto [place, is_new] = by_bytes_.emplace(*bytes, token);
      if (!is_new && kinds_[static_cast<std::size_t>(place->second)] == Kind::kByte) {
        place->second = token;
      }
    }
    if (kind == Kind::kControl || kind == Kind::kUserDefined) {
      special_by_text_.emplace(text, token);
      pieces_[i] = text;
    } else if (kind == Kind::kNormal || kind == Kind::kByte) {
      // A normal token outside of the alphabet can only have come from text that was added as it
      // is.
      pieces_[i] = bytes ? *bytes : text;
    }
  }
}

}  // namespace sinew
