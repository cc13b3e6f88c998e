#include "text/answer_stream.h"

#include <algorithm>

#include "base/unicode.h"

namespace sinew {
namespace {

// Length of the longest end of `text` that a stop string begins with, short of a whole one.
std::size_t possible_stop_start(std::string_view text, const std::vector<std::string>& stops) {
  std::size_t longest = 0;
  for (const std::string& stop : stops) {
    for (std::size_t n = std::min(text.size(), stop.size() - 1); n > longest; --n) {
      if (text.ends_with(std::string_view(stop).substr(0, n))) {
        longest = n;
        break;
      }
    }
  }
  return longest;
}

// Where the stop string begins that is complete first: it ends first, and of those that end
// together the one that begins first. The place does not depend on how the text is cut into tokens.
std::size_t find_stop(std::string_view text, const std::vector<std::string>& stops) {
  std::size_t best_start = text.npos;
  std::size_t best_end = text.npos;
  for (const std::string& stop : stops) {
    const std::size_t start = text.find(stop);
    if (start == text.npos) continue;
    const std::size_t end = start + stop.size();
    if (end < best_end || (end == best_end && start < best_start)) {
      best_start = start;
      best_end = end;
    }
  }
  return best_start;
}

// Moves the whole UTF-8 sequences from the front of `bytes` to the end of `text`. With `at_end`, a
// sequence that is cut off is not waited for.
void move_text(std::string& bytes, std::string& text, bool at_end) {
  std::string_view rest = bytes;
  while (!rest.empty()) {
    const Utf8Step step = utf8_step(rest);
    if (step.kind == Utf8Step::Kind::kIncomplete && !at_end) break;
    text += step.kind == Utf8Step::Kind::kValid ? rest.substr(0, step.length) : kReplacement;
    rest.remove_prefix(step.length);
  }
  bytes.erase(0, bytes.size() - rest.size());
}

}  // namespace

AnswerStream::AnswerStream(const Tokenizer& tokenizer, std::vector<std::string> stop_strings)
    : tokenizer_(tokenizer), stop_strings_(std::move(stop_strings)) {
  std::erase_if(stop_strings_, [](const std::string& stop) { return stop.empty(); });
}

AnswerStream::Piece AnswerStream::add(TokenId token) {
  if (stopped_) return {"", true};
  if (tokenizer_.is_control(token)) return {};
  bytes_ += tokenizer_.piece(token);
  move_text(bytes_, held_, false);
  return take();
}

std::string AnswerStream::finish() {
  if (stopped_) return {};
  move_text(bytes_, held_, true);
  // The bytes that were cut off may complete a stop string only if it holds U+FFFD itself.
  std::string text = take().text;
  text += held_;
  held_.clear();
  return text;
}

AnswerStream::Piece AnswerStream::take() {
  Piece piece;
  const std::size_t stop = find_stop(held_, stop_strings_);
  if (stop != held_.npos) {
    piece.text = held_.substr(0, stop);
    piece.stopped = stopped_ = true;
    held_.clear();
    bytes_.clear();
    return piece;
  }
  const std::size_t kept = possible_stop_start(held_, stop_strings_);
  piece.text = held_.substr(0, held_.size() - kept);
  held_.erase(0, held_.size() - kept);
  return piece;
}

}  // namespace sinew
