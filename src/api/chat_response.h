#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace sinew {

// Written into every object of one answer.
struct AnswerIdentity {
  std::string id;  // "chatcmpl-.."
  std::string model;
  std::int64_t created = 0;  // seconds since 1970, UTC
};

struct Usage {
  std::int64_t prompt_tokens = 0;
  std::int64_t cached_tokens = 0;
  std::int64_t completion_tokens = 0;
};

enum class AnswerEnd : std::uint8_t { kStop, kLength };

// Each returns one JSON text without line breaks; invalid UTF-8 is replaced.
std::string chat_completion(const AnswerIdentity& identity, std::string_view text, AnswerEnd end,
                            const Usage& usage);

// Chunks of a stream, in this order: role, deltas, end, usage (only if the client asked for it).
std::string role_chunk(const AnswerIdentity& identity);
std::string delta_chunk(const AnswerIdentity& identity, std::string_view text);
std::string end_chunk(const AnswerIdentity& identity, AnswerEnd end);
std::string usage_chunk(const AnswerIdentity& identity, const Usage& usage);

struct ModelCard {
  std::string id;
  std::int64_t created = 0;
  std::int64_t context = 0;  // tokens
  int vocabulary_size = 0;
};
std::string model_object(const ModelCard& card);
std::string model_list(const ModelCard& card);

}  // namespace sinew
