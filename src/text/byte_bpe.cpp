#include "text/byte_bpe.h"

#include "base/log.h"
#include "base/unicode.h"

namespace sinew {
namespace {

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

Result<BpeMerges> read_merges(const Metadata& metadata, const Vocabulary& vocabulary) {
  SINEW_ASSIGN(const std::vector<std::string> lines, metadata.strings("tokenizer.ggml.merges"));
  BpeMerges merges(lines.size());
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
  return merges;
}

Result<std::unique_ptr<ByteBpe>> ByteBpe::from_metadata(const Metadata& metadata,
                                                        const Vocabulary& vocabulary,
                                                        Pretokenizer pretokenizer) {
  std::unique_ptr<ByteBpe> model(new ByteBpe(vocabulary, std::move(pretokenizer)));
  SINEW_ASSIGN(model->merges_, read_merges(metadata, vocabulary));
  read_byte_tokens(metadata, vocabulary, model->merges_);
  return model;
}

std::string_view ByteBpe::prepare(std::string_view text, bool /*after_token*/,
                                  std::string& storage) const {
  if (is_valid_utf8(text)) return text;
  storage = decode_loosely(text);
  return storage;
}

Status ByteBpe::split(std::string_view text, std::vector<std::uint32_t>& lengths) const {
  return pretokenizer_.split(text, lengths);
}

void ByteBpe::encode_word(std::string_view word, BpeWord& merging,
                          std::vector<TokenId>& ids) const {
  if (pretokenizer_.whole_words_first()) {
    if (const auto token = vocabulary_.find_bytes(word)) {
      ids.push_back(*token);
      return;
    }
  }
  merging.encode(word, ids);
}

}  // namespace sinew
