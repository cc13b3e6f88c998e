#pragma once

#include <cstdint>
#include <string_view>

#include "base/result.h"
#include "gguf/metadata.h"
#include "support/gguf_writer.h"

namespace sinew::generate {

// In place of a pre-tokeniser's name: SentencePiece-style vocabularies as Llama 2 and Gemma have.
inline constexpr std::string_view kSentencePieces = "pieces of llama";
inline constexpr std::string_view kGemmaPieces = "pieces of gemma";

// A byte-level BPE vocabulary of `size` tokens: the 256 bytes, some merges, the special tokens of
// the family that uses the pre-tokeniser `pre`, and unused tokens up to `size`. Or a
// SentencePiece-style one, with the bytes behind three or four special tokens.
void write_vocabulary(std::string_view pre, std::uint32_t size, test::GgufWriter& header);

// Copies every key "tokenizer..." of another model. Returns the number of its tokens.
Result<std::uint32_t> copy_vocabulary(const Metadata& source, test::GgufWriter& header);

}  // namespace sinew::generate
