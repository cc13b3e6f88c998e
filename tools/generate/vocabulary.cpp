#include "vocabulary.h"

#include <fmt/format.h>

#include <array>
#include <limits>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "base/assert.h"

namespace sinew::generate {
namespace {

// Token types of tokenizer.ggml.token_type.
constexpr std::int32_t kNormal = 1;
constexpr std::int32_t kControl = 3;
constexpr std::int32_t kUnused = 5;

// Pairs in the order in which they merge. Each part is a byte or the result of an earlier pair;
// Ġ is U+0120, which stands for a space.
constexpr std::array<std::string_view, 40> kMerges{
    "e r",  "Ġ t",  "h e",   "i n",  "o n", "a n", "r e",  "Ġt he", "o u",  "Ġ a",
    "Ġ s",  "Ġ w",  "a t",   "e n",  "i s", "o r", "in g", "i t",   "Ġ o",  "e s",
    "a r",  "l l",  "e d",   "Ġa n", "Ġ c", "Ġ m", "Ġ f",  "Ġ b",   "Ġ i",  "l e",
    "Ġo f", "Ġt o", "Ġan d", "o m",  "o w", "s t", "c h",  "u r",   "Ġi n", "v er"};

struct Specials {
  std::string_view bos;
  std::string_view eos;
  std::vector<std::string_view> others;
};

Specials specials_of(std::string_view pre) {
  // ｜ is the full-width bar and ▁ the low bar of DeepSeek's token names.
  if (pre == "deepseek-v3")
    return {"<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", {"<｜User｜>", "<｜Assistant｜>"}};
  if (pre == "kimi-k2")
    return {"[BOS]",
            "[EOS]",
            {"<|im_end|>", "<|im_user|>", "<|im_assistant|>", "<|im_system|>", "<|im_middle|>"}};
  return {"<|begin_of_text|>",
          "<|end_of_text|>",
          {"<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"}};
}

std::string utf8(std::uint32_t code) {
  if (code < 0x80) return {static_cast<char>(code)};
  return {static_cast<char>(0xC0 | (code >> 6)), static_cast<char>(0x80 | (code & 0x3F))};
}

// The letters that stand for bytes in a byte-level vocabulary (GPT-2): printable Latin-1 bytes
// stand for themselves, and the others, in order, for U+0100 onwards.
std::vector<std::string> byte_letters() {
  std::vector<std::string> letters;
  std::uint32_t next = 0x100;
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    const bool printable =
        (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
    letters.push_back(utf8(printable ? byte : next++));
  }
  return letters;
}

template <typename Stored, typename Wide>
std::vector<Stored> narrowed(const std::vector<Wide>& values) {
  std::vector<Stored> stored;
  stored.reserve(values.size());
  for (const Wide value : values) stored.push_back(static_cast<Stored>(value));
  return stored;
}

// Integers are stored in 32 bits where they fit, as converters store token ids.
void copy_scalar(const std::string& key, const MetaScalar& value, test::GgufWriter& header) {
  if (const auto* flag = std::get_if<bool>(&value)) {
    header.add(key, *flag);
  } else if (const auto* text = std::get_if<std::string>(&value)) {
    header.add(key, *text);
  } else if (const auto* real = std::get_if<double>(&value)) {
    header.add(key, static_cast<float>(*real));
  } else if (const auto* natural = std::get_if<std::uint64_t>(&value)) {
    if (*natural <= std::numeric_limits<std::uint32_t>::max())
      header.add(key, static_cast<std::uint32_t>(*natural));
    else
      header.add(key, *natural);
  } else {
    const std::int64_t number = std::get<std::int64_t>(value);
    if (number == static_cast<std::int32_t>(number))
      header.add(key, static_cast<std::int32_t>(number));
    else
      header.add(key, number);
  }
}

Status copy_array(const std::string& key, const MetaArray& array, test::GgufWriter& header) {
  using test::meta_type_id;
  const std::uint32_t type = array.element_type;
  if (type == meta_type_id<std::string>())
    header.add(key, array.strings);
  else if (type == meta_type_id<std::int32_t>())
    header.add(key, narrowed<std::int32_t>(array.signed_integers));
  else if (type == meta_type_id<std::uint32_t>())
    header.add(key, narrowed<std::uint32_t>(array.unsigned_integers));
  else if (type == meta_type_id<std::uint8_t>())
    header.add(key, narrowed<std::uint8_t>(array.unsigned_integers));
  else if (type == meta_type_id<float>())
    header.add(key, narrowed<float>(array.reals));
  else
    return fail(
        ErrorCode::kUnsupported,
        "--vocab-from: the key '{}' is an array of type {}, which is not copied; use a model "
        "with a byte-level BPE vocabulary",
        key, type);
  return {};
}

}  // namespace

void write_vocabulary(std::string_view pre, std::uint32_t size, test::GgufWriter& header) {
  const Specials specials = specials_of(pre);
  std::vector<std::string> tokens = byte_letters();
  std::vector<std::string> merges;
  for (const std::string_view merge : kMerges) {
    const auto space = merge.find(' ');
    tokens.push_back(std::string(merge.substr(0, space)) + std::string(merge.substr(space + 1)));
    merges.emplace_back(merge);
  }
  SINEW_ASSERT(std::set<std::string>(tokens.begin(), tokens.end()).size() == tokens.size());
  std::vector<std::int32_t> types(tokens.size(), kNormal);
  const auto special = [&](std::string_view text) {
    tokens.emplace_back(text);
    types.push_back(kControl);
    return static_cast<std::uint32_t>(tokens.size() - 1);
  };
  const std::uint32_t bos = special(specials.bos);
  const std::uint32_t eos = special(specials.eos);
  for (const std::string_view text : specials.others) special(text);
  SINEW_ASSERT(tokens.size() <= size);
  while (tokens.size() < size) {
    tokens.push_back(fmt::format("<unused{}>", tokens.size()));
    types.push_back(kUnused);
  }
  header.add("tokenizer.ggml.model", "gpt2")
      .add("tokenizer.ggml.pre", std::string(pre))
      .add("tokenizer.ggml.tokens", tokens)
      .add("tokenizer.ggml.token_type", types)
      .add("tokenizer.ggml.merges", merges)
      .add("tokenizer.ggml.bos_token_id", bos)
      .add("tokenizer.ggml.eos_token_id", eos)
      .add("tokenizer.ggml.add_bos_token", true);
}

Result<std::uint32_t> copy_vocabulary(const Metadata& source, test::GgufWriter& header) {
  SINEW_ASSIGN(const std::vector<std::string> tokens, source.strings("tokenizer.ggml.tokens"));
  for (const std::string& key : source.keys()) {
    if (!key.starts_with("tokenizer.")) continue;
    const MetaValue& value = *source.find(key);
    if (const auto* array = std::get_if<MetaArray>(&value)) {
      SINEW_TRY(copy_array(key, *array, header));
    } else {
      copy_scalar(key, std::get<MetaScalar>(value), header);
    }
  }
  return static_cast<std::uint32_t>(tokens.size());
}

}  // namespace sinew::generate
