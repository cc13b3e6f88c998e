// token-ids MODEL [--special]: the ids of texts, for comparison with other tokenizers.
//
// Standard input: count, then length and bytes of each text; output: count and ids of each (uint32
// and int32 in this machine's byte order), as the program sinew-oracle has them. The pieces of
// every text are put together again and must be the text: exactly for SentencePiece, but for the
// space before it and for U+2581, and after broken UTF-8 has become U+FFFD for byte-level BPE.
// Status 1 with the number of the text if they are not. The last line of standard error is the time
// in seconds that encoding took.
#include <fmt/format.h>

#include <cstdio>
#include <cstring>
#include <ctime>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

#include "base/unicode.h"
#include "gguf/reader.h"
#include "text/tokenizer.h"

namespace {

using sinew::TokenId;
using sinew::Tokenizer;

std::string read_all(std::FILE* file) {
  std::string bytes;
  std::vector<char> part(1u << 20);
  while (const std::size_t count = std::fread(part.data(), 1, part.size(), file)) {
    bytes.append(part.data(), count);
  }
  return bytes;
}

std::optional<std::uint32_t> take_number(std::string_view& rest) {
  std::uint32_t value = 0;
  if (rest.size() < sizeof value) return std::nullopt;
  std::memcpy(&value, rest.data(), sizeof value);
  rest.remove_prefix(sizeof value);
  return value;
}

std::optional<std::vector<std::string_view>> take_texts(std::string_view rest) {
  const auto count = take_number(rest);
  if (!count) return std::nullopt;
  std::vector<std::string_view> texts;
  for (std::uint32_t i = 0; i < *count; ++i) {
    const auto length = take_number(rest);
    if (!length || *length > rest.size()) return std::nullopt;
    texts.push_back(rest.substr(0, *length));
    rest.remove_prefix(*length);
  }
  return texts;
}

// With special tokens the space stands before each stretch of text between them, so only a text
// without is compared.
bool comes_back(const Tokenizer& tokenizer, bool by_pieces, std::string_view text,
                const std::vector<TokenId>& ids) {
  std::string joined;
  for (const TokenId id : ids) {
    if (by_pieces && tokenizer.is_control(id)) return true;
    joined += tokenizer.piece(id);
  }
  if (!by_pieces) {
    return joined == (sinew::is_valid_utf8(text) ? text : sinew::decode_loosely(text));
  }
  std::string expected(text);
  for (std::size_t at = expected.find("\u2581"); at != expected.npos;
       at = expected.find("\u2581", at)) {
    expected.replace(at, 3, " ");
  }
  return joined == expected || joined == " " + expected;
}

int fail(const std::string& message) {
  fmt::print(stderr, "token-ids: {}\n", message);
  return 1;
}

int run(const std::string& model, bool special) {
  std::ifstream stream(model, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(stream), {}};
  const sinew::GgufPart part{model, sinew::as_bytes(bytes)};
  const auto file = sinew::GgufModel::parse({&part, 1});
  if (!file) return fail(file.error().message);
  const auto tokenizer = Tokenizer::from_metadata(file->metadata());
  if (!tokenizer) return fail(tokenizer.error().message);
  const bool by_pieces = file->metadata().string_or("tokenizer.ggml.model", "") != "gpt2";
  const std::string input = read_all(stdin);
  const auto texts = take_texts(input);
  if (!texts) return fail("standard input ends within a text");
  std::vector<std::vector<TokenId>> results;
  const std::clock_t begin = std::clock();
  for (const std::string_view text : *texts) {
    auto ids = tokenizer->encode(text, {.add_bos = false, .parse_special = special});
    if (!ids) return fail(ids.error().message);
    results.push_back(std::move(*ids));
  }
  const double seconds = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  for (std::size_t i = 0; i < results.size(); ++i) {
    if (!comes_back(*tokenizer, by_pieces, (*texts)[i], results[i])) {
      return fail(fmt::format("the pieces of text {} are another text", i));
    }
    const auto count = static_cast<std::uint32_t>(results[i].size());
    std::fwrite(&count, sizeof count, 1, stdout);
    std::fwrite(results[i].data(), sizeof(TokenId), results[i].size(), stdout);
  }
  if (std::fflush(stdout) != 0) return fail("cannot write the ids");
  fmt::print(stderr, "{:.3f}\n", seconds);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const bool special = argc == 3 && std::string_view(argv[2]) == "--special";
  if (argc != 2 && !special) {
    fmt::print(stderr, "usage: token-ids MODEL [--special] <TEXTS >IDS\n");
    return 64;
  }
  return run(argv[1], special);
}
