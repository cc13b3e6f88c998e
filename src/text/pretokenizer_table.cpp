// The expressions, in the notation of the vocabularies' own tokenizer.json.
#include "text/pretokenizer_table.h"

#include <array>

namespace sinew {
namespace {

constexpr std::string_view kGpt2 =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr std::string_view kLlama3 =
    R"('(?:[sStTmMdD]|[rR][eE]|[vV][eE]|[lL][lL])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3})"
    R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen2 =
    R"('(?:[sStTmMdD]|[rR][eE]|[vV][eE]|[lL][lL])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N})"
    R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen35 =
    R"('(?:[sStTmMdD]|[rR][eE]|[vV][eE]|[lL][lL])|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N})"
    R"(| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kDeepSeek3Words =
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+)"
    R"(| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kDeepSeek3Cjk =
    R"([\x{4E00}-\x{9FA5}\x{3040}-\x{309F}\x{30A0}-\x{30FF}]+)";

// Words of GPT-4o's kind: capitals, then small letters, then a contraction.
constexpr std::string_view kGpt4o =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
    R"((?:'(?:[sStTmMdD]|[rR][eE]|[vV][eE]|[lL][lL]))?)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
    R"((?:'(?:[sStTmMdD]|[rR][eE]|[vV][eE]|[lL][lL]))?)"
    R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kTekken =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
    R"(|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kKimi2 =
    R"([\p{Han}]+)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*)"
    R"([\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+)"
    R"((?:'(?:[sStTmMdD]|[rR][eE]|[vV][eE]|[lL][lL]))?)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+)"
    R"([\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*)"
    R"((?:'(?:[sStTmMdD]|[rR][eE]|[vV][eE]|[lL][lL]))?)"
    R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kBailing =
    R"('(?:[sStTmMdD]|[rR][eE]|[vV][eE]|[lL][lL])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N})"
    R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+)";
constexpr std::string_view kSeedCoder =
    R"('(?:[sStTmMdD]|[rR][eE]|[vV][eE]|[lL][lL])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N})"
    R"(| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kMiniCpm5 =
    R"('(?:[sStTmMdD]|[rR][eE]|[vV][eE]|[lL][lL])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}+)"
    R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

// The letters of Latin, Greek, Cyrillic, Armenian, Georgian, Cherokee and others with capitals.
constexpr std::string_view kDeepSeekLetters =
    R"(\s?[A-Za-z\x{B5}\x{C0}-\x{D6}\x{D8}-\x{F6}\x{F8}-\x{1BA}\x{1BC}-\x{1BF}\x{1C4}-\x{293})"
    R"(\x{295}-\x{2AF}\x{370}-\x{373}\x{376}\x{377}\x{37B}-\x{37D}\x{37F}\x{386}\x{388}-\x{38A})"
    R"(\x{38C}\x{38E}-\x{3A1}\x{3A3}-\x{3F5}\x{3F7}-\x{481}\x{48A}-\x{52F}\x{531}-\x{556})"
    R"(\x{10A0}-\x{10C5}\x{13A0}-\x{13F5}\x{13F8}-\x{13FD}\x{1C90}-\x{1CBA}\x{1CBD}-\x{1CBF})"
    R"(\x{1D00}-\x{1D2B}\x{1D6B}-\x{1D77}\x{1D79}-\x{1D9A}\x{1E00}-\x{1F15}\x{1F18}-\x{1F1D})"
    R"(\x{1F20}-\x{1F45}\x{1F48}-\x{1F4D}\x{1F50}-\x{1F57}\x{1F59}\x{1F5B}\x{1F5D})"
    R"(\x{1F5F}-\x{1F7D}\x{1F80}-\x{1FB4}\x{1FB6}-\x{1FBC}\x{1FBE}\x{1FC2}-\x{1FC4})"
    R"(\x{1FC6}-\x{1FCC}\x{1FD0}-\x{1FD3}\x{1FD6}-\x{1FDB}\x{1FE0}-\x{1FEC}\x{1FF2}-\x{1FF4})"
    R"(\x{1FF6}-\x{1FFC}\x{2102}\x{2107}\x{210A}-\x{2113}\x{2115}\x{2119}-\x{211D}\x{2124}\x{2126})"
    R"(\x{2128}\x{212A}-\x{212D}\x{212F}-\x{2134}\x{2139}\x{213C}-\x{213F}\x{2145}-\x{2149}\x{214E})"
    R"(\x{2183}\x{2184}\x{2C00}-\x{2C7B}\x{2C7E}-\x{2CE4}\x{2CEB}-\x{2CEE}\x{2CF2}\x{2CF3})"
    R"(\x{A640}-\x{A66D}\x{A680}-\x{A69B}\x{A722}-\x{A76F}\x{A771}-\x{A787}\x{A78B}-\x{A78E})"
    R"(\x{AB70}-\x{ABBF}\x{FB00}-\x{FB06}\x{FB13}-\x{FB17}\x{FF21}-\x{FF3A}\x{FF41}-\x{FF5A})"
    R"(\x{10400}-\x{1044F}\x{104B0}-\x{104D3}\x{104D8}-\x{104FB}\x{10C80}-\x{10CB2})"
    R"(\x{10CC0}-\x{10CF2}\x{118A0}-\x{118DF}\x{1E900}-\x{1E943}]+)";
constexpr std::string_view kDeepSeekPunctuation =
    R"(\s?[!-/:-~\x{FF01}-\x{FF0F}\x{FF1A}-\x{FF5E}\x{2018}-\x{201F}\x{3000}-\x{3002}]+)";
constexpr std::string_view kDeepSeekAsian = R"([\x{800}-\x{9FA5}\x{AC00}-\x{D7FF}]+)";

constexpr std::string_view kLine = R"([\r\n])";
constexpr std::string_view kDigit = R"(\p{N})";
constexpr std::string_view kThreeDigits = R"(\p{N}{1,3})";

constexpr std::array kGpt2Stages{kGpt2};
constexpr std::array kSmolLmStages{kDigit, kGpt2};
constexpr std::array kLlama3Stages{kLlama3};
constexpr std::array kQwen2Stages{kQwen2};
constexpr std::array kQwen35Stages{kQwen35};
constexpr std::array kDeepSeek3Stages{kThreeDigits, kDeepSeek3Cjk, kDeepSeek3Words};
constexpr std::array kDeepSeekLlmStages{kLine,
                                        kDeepSeekLetters,
                                        kDeepSeekPunctuation,
                                        std::string_view{R"(\s+\z)"},
                                        kDeepSeekAsian,
                                        std::string_view{R"(\p{N}+)"}};
constexpr std::array kDeepSeekCoderStages{kLine, std::string_view{R"(\s?\p{L}+)"},
                                          std::string_view{R"(\s?\p{P}+)"}, kDeepSeekAsian, kDigit};
constexpr std::array kGpt4oStages{kGpt4o};
constexpr std::array kTekkenStages{kTekken};
constexpr std::array kKimi2Stages{kKimi2};
constexpr std::array kBailingStages{kBailing};
constexpr std::array kSeedCoderStages{kSeedCoder};
constexpr std::array kMiniCpm5Stages{kThreeDigits, kMiniCpm5};

using Row = PretokenizerRow;

// Names and flags as llama.cpp has them, since it is what writes and reads these files. Where its
// own splitting only comes near to what a vocabulary was trained with, the training's counts:
// - gpt-4o and tekken: llama.cpp knows the case of ASCII letters only and no marks;
// - kimi-k2: it does not look at case or marks at all, and its Han lacks some characters;
// - deepseek-llm, deepseek-coder: it takes white space outside of ASCII out of their classes.
constexpr std::array kTable{
    Row{"deepseek-v3", kDeepSeek3Stages},
    Row{"hunyuan-dense", kDeepSeek3Stages},
    Row{"hy_v4", kDeepSeek3Stages},
    Row{"joyai-llm", kDeepSeek3Stages},
    Row{"deepseek-llm", kDeepSeekLlmStages},
    Row{"deepseek-coder", kDeepSeekCoderStages},
    Row{"kimi-k2", kKimi2Stages, true},
    Row{"gpt-4o", kGpt4oStages},
    Row{"llama4", kGpt4oStages},
    Row{"kanana2", kGpt4oStages},
    Row{"minimax-m2", kGpt4oStages},
    Row{"tekken", kTekkenStages, true, true},
    Row{"bailingmoe", kBailingStages},
    Row{"bailingmoe2", kBailingStages},
    Row{"llada-moe", kBailingStages},
    Row{"seed-coder", kSeedCoderStages},
    Row{"minicpm5", kMiniCpm5Stages, true},
    Row{"llama-bpe", kLlama3Stages, true, true},
    Row{"llama3", kLlama3Stages, true, true},
    Row{"llama-v3", kLlama3Stages, true, true},
    Row{"falcon3", kLlama3Stages, true, true},
    Row{"falcon-h1", kLlama3Stages, true, true},
    Row{"pixtral", kLlama3Stages, true, true},
    Row{"midm-2.0", kLlama3Stages, true, true},
    Row{"lfm2", kLlama3Stages, true, true},
    Row{"dbrx", kLlama3Stages},
    Row{"smaug-bpe", kLlama3Stages},
    Row{"glm4", kLlama3Stages},
    Row{"chatglm-bpe", kLlama3Stages},
    Row{"qwen2", kQwen2Stages},
    Row{"deepseek-r1-qwen", kQwen2Stages},
    Row{"kormo", kQwen2Stages},
    Row{"megrez", kQwen2Stages},
    Row{"stablelm2", kQwen2Stages},
    Row{"hunyuan", kQwen2Stages},
    Row{"solar-open", kQwen2Stages},
    Row{"grok-2", kQwen2Stages},
    Row{"qwen35", kQwen35Stages},
    Row{"smollm", kSmolLmStages},
    Row{"starcoder", kSmolLmStages},
    Row{"refact", kSmolLmStages},
    Row{"command-r", kSmolLmStages},
    Row{"codeshell", kSmolLmStages},
    Row{"exaone", kSmolLmStages},
    Row{"minerva-7b", kSmolLmStages},
    Row{"mellum2", kSmolLmStages},
    Row{"gpt-2", kGpt2Stages},
    Row{"phi-2", kGpt2Stages},
    Row{"gigachat", kGpt2Stages},
    Row{"a.x-4.0", kGpt2Stages},
    Row{"mellum", kGpt2Stages},
    Row{"exaone4", kGpt2Stages},
    Row{"mpt", kGpt2Stages},
    Row{"olmo", kGpt2Stages},
    Row{"jais", kGpt2Stages},
    Row{"trillion", kGpt2Stages},
    Row{"granite-docling", kGpt2Stages},
};

}  // namespace

const PretokenizerRow* find_pretokenizer(std::string_view name) {
  for (const Row& row : kTable) {
    if (row.name == name) return &row;
  }
  return nullptr;
}

std::string pretokenizer_names() {
  std::string list;
  for (const Row& row : kTable) {
    if (!list.empty()) list += ", ";
    list += row.name;
  }
  return list;
}

}  // namespace sinew
