#include "vocabulary.h"

#include <fmt/format.h>

#include <array>
#include <limits>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/assert.h"

namespace sinew::generate {
namespace {

// Token types of tokenizer.ggml.token_type.
constexpr std::int32_t kNormal = 1;
constexpr std::int32_t kUnknown = 2;
constexpr std::int32_t kControl = 3;
constexpr std::int32_t kUnused = 5;
constexpr std::int32_t kByte = 6;

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
  bool add_bos = true;
};

Specials specials_of(std::string_view pre) {
  // ｜ is the full-width bar and ▁ the low bar of DeepSeek's token names.
  if (pre == "deepseek-v3" || pre == "deepseek-llm")
    return {"<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", {"<｜User｜>", "<｜Assistant｜>"}};
  if (pre == "kimi-k2")
    return {"[BOS]",
            "[EOS]",
            {"<|im_end|>", "<|im_user|>", "<|im_assistant|>", "<|im_system|>", "<|im_middle|>"}};
  if (pre == "qwen2") return {"<|endoftext|>", "<|im_end|>", {"<|im_start|>"}, false};
  if (pre == "glm4")
    return {"<|endoftext|>",
            "<|user|>",
            {"[gMASK]", "<sop>", "<|system|>", "<|assistant|>", "<|observation|>"},
            false};
  if (pre == "gpt-4o")
    return {"<|startoftext|>",
            "<|return|>",
            {"<|endoftext|>", "<|start|>", "<|end|>", "<|message|>", "<|channel|>", "<|constrain|>",
             "<|call|>"},
            false};
  if (pre == "minimax-m2") return {"]~!b[", "[e~[", {"]~b]", "<think>", "</think>"}, false};
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

// The tokens of a vocabulary in the order of their ids.
class Tokens {
 public:
  std::uint32_t add(std::string text, std::int32_t type, float score = 0.0F) {
    SINEW_ASSERT(known_.insert(text).second);
    texts_.push_back(std::move(text));
    types_.push_back(type);
    scores_.push_back(score);
    return static_cast<std::uint32_t>(texts_.size() - 1);
  }
  void fill_up(std::uint32_t size) {
    SINEW_ASSERT(texts_.size() <= size);
    while (texts_.size() < size) add(fmt::format("<unused{}>", texts_.size()), kUnused);
  }
  void write(test::GgufWriter& header, bool with_scores) const {
    header.add("tokenizer.ggml.tokens", texts_).add("tokenizer.ggml.token_type", types_);
    if (with_scores) header.add("tokenizer.ggml.scores", scores_);
  }

 private:
  std::set<std::string> known_;
  std::vector<std::string> texts_;
  std::vector<std::int32_t> types_;
  std::vector<float> scores_;
};

// The special tokens, the 256 bytes, the merges as pieces of falling score, then single letters,
// which score below all of them. ▁ is U+2581, which stands for a space.
void write_pieces(bool gemma, std::uint32_t size, test::GgufWriter& header) {
  Tokens tokens;
  if (gemma) tokens.add("<pad>", kControl);
  const std::uint32_t eos = gemma ? tokens.add("<eos>", kControl) : 2;
  const std::uint32_t unknown = gemma ? 3 : tokens.add("<unk>", kUnknown);
  const std::uint32_t bos = tokens.add(gemma ? "<bos>" : "<s>", kControl);
  tokens.add(gemma ? "<unk>" : "</s>", gemma ? kUnknown : kControl);
  for (int byte = 0; byte < 256; ++byte) tokens.add(fmt::format("<0x{:02X}>", byte), kByte);
  float score = 0.0F;
  for (const std::string_view merge : kMerges) {
    std::string piece;
    const std::string_view first = merge.substr(0, merge.find(' '));
    for (const std::string_view half : {first, merge.substr(first.size() + 1)})
      piece += half.starts_with("Ġ") ? "▁" + std::string(half.substr(2)) : std::string(half);
    tokens.add(piece, kNormal, score--);
  }
  tokens.add("▁", kNormal, score--);
  for (char letter = '!'; letter <= '~'; ++letter)
    tokens.add(std::string(1, letter), kNormal, score--);
  if (gemma) {
    tokens.add("<start_of_turn>", kControl);
    tokens.add("<end_of_turn>", kControl);
  }
  tokens.fill_up(size);
  header.add("tokenizer.ggml.model", "llama").add("tokenizer.ggml.pre", "default");
  tokens.write(header, true);
  header.add("tokenizer.ggml.bos_token_id", bos)
      .add("tokenizer.ggml.eos_token_id", eos)
      .add("tokenizer.ggml.unknown_token_id", unknown)
      .add("tokenizer.ggml.add_bos_token", true)
      .add("tokenizer.ggml.add_eos_token", false);
  if (gemma)
    header.add("tokenizer.ggml.padding_token_id", std::uint32_t{0})
        .add("tokenizer.ggml.add_space_prefix", false);
}

}  // namespace

void write_vocabulary(std::string_view pre, std::uint32_t size, test::GgufWriter& header) {
  if (pre == kSentencePieces || pre == kGemmaPieces)
    return write_pieces(pre == kGemmaPieces, size, header);
  const Specials specials = specials_of(pre);
  Tokens tokens;
  for (std::string& letter : byte_letters()) tokens.add(std::move(letter), kNormal);
  std::vector<std::string> merges;
  for (const std::string_view merge : kMerges) {
    const auto space = merge.find(' ');
    tokens.add(std::string(merge.substr(0, space)) + std::string(merge.substr(space + 1)), kNormal);
    merges.emplace_back(merge);
  }
  const std::uint32_t bos = tokens.add(std::string(specials.bos), kControl);
  const std::uint32_t eos = tokens.add(std::string(specials.eos), kControl);
  for (const std::string_view text : specials.others) tokens.add(std::string(text), kControl);
  tokens.fill_up(size);
  header.add("tokenizer.ggml.model", "gpt2").add("tokenizer.ggml.pre", std::string(pre));
  tokens.write(header, false);
  header.add("tokenizer.ggml.merges", merges)
      .add("tokenizer.ggml.bos_token_id", bos)
      .add("tokenizer.ggml.eos_token_id", eos)
      .add("tokenizer.ggml.add_bos_token", specials.add_bos);
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
