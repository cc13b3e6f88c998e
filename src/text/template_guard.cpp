#include "text/template_guard.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <optional>
#include <vector>

#include "base/limits.h"

namespace sinew {
namespace {

// Of what templates of known models need, several times as much. minja's parser is quadratic in the
// size of the source and recurses for brackets, blocks, `not` and white space.
constexpr std::size_t kSourceBytesMax = 128u << 10;
constexpr std::size_t kTagBytesMax = 8u << 10;
constexpr std::size_t kSpacesMax = 512;
constexpr int kBracketsMax = 24;
constexpr int kBlocksMax = 32;
constexpr int kChainMax = 64;  // of `not`, `if`, `~` and `|` in one tag
static_assert(kSourceBytesMax <= kTemplateBytesMax);

bool is_word(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
}
bool is_space(char c) {
  return std::isspace(static_cast<unsigned char>(c)) != 0;
}

class Guard {
 public:
  explicit Guard(std::string_view source) : source_(source) {}

  Result<std::string> run() {
    while (at_ < source_.size()) {
      const std::string_view rest = source_.substr(at_);
      if (rest.starts_with("{#")) {
        SINEW_TRY(comment());
      } else if (rest.starts_with("{{") || rest.starts_with("{%")) {
        SINEW_TRY(tag());
      } else {
        SINEW_TRY(text());
      }
    }
    return std::move(out_);
  }

 private:
  tl::unexpected<Error> refuse(std::string_view what) const {
    const auto line = 1 + std::count(source_.begin(), source_.begin() + std::ptrdiff_t(at_), '\n');
    return fail(ErrorCode::kUnsupported, "chat template, line {}: {}", line, what);
  }

  char peek(std::size_t i) const { return i < source_.size() ? source_[i] : '\0'; }

  std::size_t skip_spaces(std::size_t i) const {
    while (i < source_.size() && is_space(source_[i])) ++i;
    return i;
  }

  Status text() {
    std::size_t spaces = 0;
    do {
      spaces = is_space(source_[at_]) ? spaces + 1 : 0;
      if (spaces > kSpacesMax) return refuse("a run of white space is too long");
      out_ += source_[at_++];
    } while (at_ < source_.size() && !(source_[at_] == '{' && std::string_view("{%#").find(peek(
                                                                  at_ + 1)) != std::string::npos));
    return {};
  }

  // Keeps the marks for white space, and the lines for messages.
  Status comment() {
    const std::size_t end = source_.find("#}", at_ + 2);
    if (end == source_.npos) return refuse("the comment does not end");
    std::string_view body = source_.substr(at_ + 2, end - at_ - 2);
    const auto take_mark = [&](bool front) -> std::string {
      if (body.empty()) return "";
      const char mark = front ? body.front() : body.back();
      if (mark != '-' && mark != '~') return "";
      front ? body.remove_prefix(1) : body.remove_suffix(1);
      return std::string(1, mark);
    };
    const std::string before = take_mark(true);
    const std::string after = take_mark(false);
    const auto lines = static_cast<std::size_t>(std::count(body.begin(), body.end(), '\n'));
    if (lines > kSpacesMax) return refuse("a comment has too many lines");
    out_ += "{#" + before + std::string(lines, '\n') + after + "#}";
    at_ = end + 2;
    return {};
  }

  // Copies one tag, and adds the step to those that begin something that can run many times.
  Status tag() {
    const bool block = peek(at_ + 1) == '%';
    const std::size_t begin = at_;
    SINEW_ASSIGN(const std::size_t end, find_end(block));
    std::string_view whole = source_.substr(begin, end - begin);
    at_ = end;
    if (!block) {
      out_ += whole;
      return {};
    }
    std::size_t word_at = begin + 2;
    if (peek(word_at) == '-' || peek(word_at) == '~') ++word_at;
    word_at = skip_spaces(word_at);
    std::size_t word_end = word_at;
    while (is_word(peek(word_end))) ++word_end;
    const std::string_view word = source_.substr(word_at, word_end - word_at);
    SINEW_TRY(count_blocks(word, whole));
    if (word != "for" && word != "macro" && word != "call") {
      out_ += whole;
      return {};
    }
    // The added tag stands where the tag ended, so the mark for white space moves to it.
    whole.remove_suffix(2);
    std::string_view mark;
    if (!whole.empty() && (whole.back() == '-' || whole.back() == '~')) {
      mark = whole.substr(whole.size() - 1);
      whole.remove_suffix(1);
    }
    out_ += whole;
    out_ += "%}{% set sinew_steps = ";
    out_ += kStepFunction;
    out_ += "() ";
    out_ += mark;
    out_ += "%}";
    return {};
  }

  Status count_blocks(std::string_view word, std::string_view whole) {
    constexpr std::array<std::string_view, 6> kOpening{"if",     "for",  "macro",
                                                       "filter", "call", "generation"};
    const bool set_block = word == "set" && whole.find('=') == whole.npos;
    if (set_block || std::find(kOpening.begin(), kOpening.end(), word) != kOpening.end()) ++blocks_;
    if (word.starts_with("end")) --blocks_;
    if (blocks_ > kBlocksMax) return refuse("blocks are nested too deeply");
    if (blocks_ < 0) return refuse("a block ends that has not begun");
    return {};
  }

  // Walks from at_ to the end of the tag there, checking it on the way.
  Result<std::size_t> find_end(bool block) {
    const std::string_view closing = block ? "%}" : "}}";
    std::vector<char> brackets;
    int chain = 0;
    at_ += 2;
    const std::size_t limit = std::min(source_.size(), at_ + kTagBytesMax);
    while (at_ < limit) {
      const char c = source_[at_];
      if (brackets.empty() && source_.substr(at_).starts_with(closing)) return at_ + 2;
      if (c == '\'' || c == '"') {
        SINEW_TRY(skip_string(limit));
        continue;
      }
      if (is_word(c)) {
        SINEW_TRY(word(chain));
        continue;
      }
      if (c == '(' || c == '[' || c == '{') {
        brackets.push_back(c);
        if (brackets.size() > kBracketsMax) return refuse("brackets are nested too deeply");
        if (c == '[') SINEW_TRY(subscript());
      }
      if (c == ')' || c == ']' || c == '}') {
        if (brackets.empty()) return refuse("a bracket closes that was not opened");
        brackets.pop_back();
      }
      if (c == '|' || c == '~') ++chain;
      if (chain > kChainMax) return refuse("an expression is too long");
      if (c == '/' || c == '%') SINEW_TRY(divisor());
      if (c == '*' && peek(at_ + 1) == '*') return refuse("** is not supported");
      ++at_;
    }
    return refuse("a tag does not end, or is too long");
  }

  Status skip_string(std::size_t limit) {
    const char quote = source_[at_];
    for (++at_; at_ < limit; ++at_) {
      if (source_[at_] == '\\') {
        ++at_;
      } else if (source_[at_] == quote) {
        ++at_;
        return {};
      }
    }
    return refuse("a string does not end, or is too long");
  }

  Status word(int& chain) {
    const std::size_t begin = at_;
    while (is_word(peek(at_))) ++at_;
    const std::string_view name = source_.substr(begin, at_ - begin);
    if (name == "not" || name == "if") ++chain;
    if (chain > kChainMax) return refuse("an expression is too long");
    if (name == "recursive" || name == "cycle" || name.starts_with("sinew_")) {
      return refuse("'recursive', 'cycle' and names of Sinew's own are not supported");
    }
    if (name == "split") return split_argument();
    return {};
  }

  // An empty separator makes minja loop for ever.
  Status split_argument() const {
    std::size_t i = skip_spaces(at_);
    if (peek(i) != '(') return refuse("split without an argument is not supported");
    i = skip_spaces(i + 1);
    const char quote = peek(i);
    if ((quote != '\'' && quote != '"') || peek(i + 1) == quote) {
      return refuse("split by anything but a string that is written out is not supported");
    }
    return {};
  }

  // minja divides integers without looking at the divisor.
  Status divisor() const {
    std::size_t i = at_ + 1;
    if (peek(at_) == '/' && peek(i) == '/') ++i;
    i = skip_spaces(i);
    bool positive = false;
    std::size_t digits = 0;
    for (; std::isdigit(static_cast<unsigned char>(peek(i))) != 0; ++i, ++digits) {
      positive = positive || peek(i) != '0';
    }
    i = skip_spaces(i);
    const bool more = std::string_view(".([|*eE").find(peek(i)) != std::string_view::npos &&
                      !source_.substr(i).starts_with("else");
    if (!positive || more || digits > 9) {
      return refuse(
          "division by anything but a positive number that is written out is not supported");
    }
    return {};
  }

  // minja reads outside of a string if a slice has a step, except from end to end.
  Status subscript() const {
    std::size_t i = skip_spaces(at_ + 1);
    if (source_.substr(i).starts_with("::-1") && peek(skip_spaces(i + 4)) == ']') return {};
    int depth = 0;
    int colons = 0;
    char quote = '\0';
    for (; i < source_.size() && i < at_ + kTagBytesMax; ++i) {
      const char c = source_[i];
      if (quote != '\0') {
        if (c == '\\') ++i;
        if (c == quote) quote = '\0';
        continue;
      }
      if (c == '\'' || c == '"') quote = c;
      if (c == ':' && depth == 0) ++colons;
      if (c == '(' || c == '[' || c == '{') ++depth;
      if ((c == ')' || c == ']' || c == '}') && --depth < 0) break;
    }
    if (colons > 1) return refuse("slices with a step are not supported, except [::-1]");
    return {};
  }

  std::string_view source_;
  std::string out_;
  std::size_t at_ = 0;
  int blocks_ = 0;
};

}  // namespace

Result<std::string> guard_template(std::string_view source) {
  if (source.size() > kSourceBytesMax) {
    return fail(ErrorCode::kUnsupported, "the chat template has {} bytes; at most {} are supported",
                source.size(), kSourceBytesMax);
  }
  return Guard(source).run();
}

}  // namespace sinew
