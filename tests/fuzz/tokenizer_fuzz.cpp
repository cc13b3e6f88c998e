// Arbitrary text into a tokenizer whose vocabulary is built here, and arbitrary vocabularies. The
// first byte chooses.
#include <algorithm>
#include <array>
#include <cstdlib>

#include "../unit/text/tiny_vocabulary.h"
#include "base/unicode.h"
#include "text/answer_stream.h"
#include "text/tokenizer.h"

namespace sinew {
namespace {

constexpr std::array kPretokenizers{"deepseek-v3",  "llama-bpe",      "qwen2",  "qwen35",
                                    "smollm",       "gpt-2",          "gpt-4o", "kimi-k2",
                                    "deepseek-llm", "deepseek-coder", "tekken"};

void require(bool condition) {
  if (!condition) std::abort();
}

const Tokenizer& tokenizer_for(std::size_t which) {
  static const std::vector<Tokenizer> tokenizers = [] {
    std::vector<Tokenizer> list;
    for (const char* name : kPretokenizers) {
      test::TinyVocabulary vocabulary;
      vocabulary.pretokenizer = name;
      auto tokenizer = Tokenizer::from_metadata(vocabulary.metadata());
      require(tokenizer.has_value());
      list.push_back(std::move(*tokenizer));
    }
    return list;
  }();
  return tokenizers[which % kPretokenizers.size()];
}

const Tokenizer& pieces_tokenizer() {
  static const Tokenizer tokenizer = [] {
    auto made = Tokenizer::from_metadata(test::TinyPieces().metadata());
    require(made.has_value());
    return std::move(*made);
  }();
  return tokenizer;
}

// SentencePiece gives any bytes back, with a space before them, but for U+2581.
void encode_pieces(std::string_view text) {
  const Tokenizer& tokenizer = pieces_tokenizer();
  require(tokenizer.encode(text, {.add_bos = true, .parse_special = true}).has_value());
  const auto ids = tokenizer.encode(text, {});
  require(ids.has_value());
  std::string joined;
  for (const TokenId id : *ids) joined += tokenizer.piece(id);
  // After <u>, a token of its own, the space stands again.
  const bool plain = text.find("\xE2\x96\x81") == text.npos && text.find("<u>") == text.npos;
  if (plain && !text.empty()) require(joined == ' ' + std::string(text));
}

// Every text is encoded, its pieces are the text made UTF-8, and the answer's stream gives it back.
void encode(std::size_t which, std::string_view text) {
  const Tokenizer& tokenizer = tokenizer_for(which);
  for (const bool special : {false, true}) {
    const auto ids = tokenizer.encode(text, {.add_bos = special, .parse_special = special});
    require(ids.has_value());
    std::string joined;
    AnswerStream stream(tokenizer, {"ab", "\n\n"});
    for (const TokenId id : *ids) {
      joined += tokenizer.piece(id);
      require(is_valid_utf8(stream.add(id).text));
    }
    require(is_valid_utf8(stream.finish()));
    if (is_valid_utf8(text)) require(joined == text);
  }
}

// What SentencePiece wants beside the tokens: the bytes' tokens after them, and scores.
void add_pieces(MetaArray& tokens, MetaArray& types, Metadata& metadata) {
  MetaArray scores;
  for (int byte = 0; byte < 256; ++byte) {
    tokens.strings.push_back(fmt::format("<0x{:02X}>", byte));
    types.signed_integers.push_back(6);
  }
  tokens.size = types.size = scores.size = tokens.strings.size();
  for (const std::string& token : tokens.strings) {
    scores.reals.push_back(-static_cast<double>(token.size() % 5));
  }
  scores.element_type = 6;
  metadata.insert("tokenizer.ggml.scores", std::move(scores));
}

// A vocabulary made of the lines of the input: tokens, and after an empty line the merges.
void load(std::string_view model, std::string_view text) {
  Metadata metadata("fuzz.gguf");
  MetaArray tokens;
  MetaArray merges;
  MetaArray types;
  MetaArray* target = &tokens;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.empty() && target == &tokens) {
      target = &merges;
      continue;
    }
    target->strings.emplace_back(line);
    if (target == &tokens) {
      types.signed_integers.push_back(line.empty() ? 0 : static_cast<std::uint8_t>(line[0]) % 8);
    }
  }
  tokens.size = tokens.strings.size();
  merges.size = merges.strings.size();
  types.size = types.signed_integers.size();
  tokens.element_type = merges.element_type = test::TinyVocabulary::kString;
  types.element_type = test::TinyVocabulary::kInt32;
  metadata.insert("tokenizer.ggml.model", MetaScalar(std::string(model)));
  metadata.insert("tokenizer.ggml.pre", MetaScalar(std::string("llama-bpe")));
  if (model != "gpt2") add_pieces(tokens, types, metadata);
  metadata.insert("tokenizer.ggml.tokens", std::move(tokens));
  metadata.insert("tokenizer.ggml.merges", std::move(merges));
  metadata.insert("tokenizer.ggml.token_type", std::move(types));
  const auto tokenizer = Tokenizer::from_metadata(metadata);
  if (!tokenizer) return;
  require(tokenizer->encode("Hello <|im_end|> aab \xFF", {.parse_special = true}).has_value());
  for (TokenId id = -1; id <= tokenizer->vocabulary_size(); ++id) {
    (void)tokenizer->find(tokenizer->piece(id));
  }
}

}  // namespace
}  // namespace sinew

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  constexpr std::array<std::string_view, 3> kModels{"gpt2", "llama", "gemma4"};
  if (data[0] % 4 == 3) {
    sinew::load(kModels[data[0] / 4u % kModels.size()], text);
  } else if (data[0] % 4 == 2) {
    sinew::encode_pieces(text);
  } else {
    sinew::encode(data[0] / 4u, text);
  }
  return 0;
}
