#pragma once

#include <memory>

#include "gguf/metadata.h"
#include "text/pretokenizer.h"
#include "text/text_model.h"
#include "text/vocabulary.h"

namespace sinew {

// tokenizer.ggml.merges: kInvalidFile for merges of tokens that are not there.
Result<BpeMerges> read_merges(const Metadata& metadata, const Vocabulary& vocabulary);

// Byte-level BPE (tokenizer.ggml.model "gpt2"): words by regular expressions, merges by rank, and a
// token for every byte. Text that is not UTF-8 is made UTF-8 first.
class ByteBpe final : public TextModel {
 public:
  // `vocabulary` outlives the model.
  static Result<std::unique_ptr<ByteBpe>> from_metadata(const Metadata& metadata,
                                                        const Vocabulary& vocabulary,
                                                        Pretokenizer pretokenizer);

  std::string_view prepare(std::string_view text, bool after_token,
                           std::string& storage) const override;
  Status split(std::string_view text, std::vector<std::uint32_t>& lengths) const override;
  void encode_word(std::string_view word, BpeWord& merging,
                   std::vector<TokenId>& ids) const override;
  const BpeMerges& merges() const override { return merges_; }

 private:
  ByteBpe(const Vocabulary& vocabulary, Pretokenizer pretokenizer)
      : vocabulary_(vocabulary), pretokenizer_(std::move(pretokenizer)) {}

  const Vocabulary& vocabulary_;
  Pretokenizer pretokenizer_;
  BpeMerges merges_;
};

}  // namespace sinew
