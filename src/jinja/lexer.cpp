#include "jinja/lexer.h"

#include <algorithm>
#include <array>
#include <optional>

#include "base/unicode.h"
#include "jinja/text.h"

namespace sinew::jinja {
namespace {

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_word(char c) {
  return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
         static_cast<unsigned char>(c) >= 0x80;
}

// Jinja reads every kind of line end as \n, and drops the last one.
std::string normalize(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      out += source[i];
      continue;
    }
    out += '\n';
    if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
  }
  if (out.ends_with('\n')) out.pop_back();
  return out;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(source) {}

  Result<std::vector<Token>> run() {
    while (at_ < source_.size()) {
      const std::size_t open = next_open();
      const std::string_view text = source_.substr(at_, open - at_);
      if (open == source_.size()) {
        add_text(text);
        break;
      }
      const char mark = open + 2 < source_.size() ? source_[open + 2] : '\0';
      const char kind = source_[open + 1];
      add_text(strip_before(text, kind, mark));
      advance_to(open + (mark == '-' || mark == '+' ? 3 : 2));
      if (kind == '#') {
        SINEW_TRY(comment());
      } else {
        SINEW_TRY(tag(kind == '%'));
      }
    }
    tokens_.push_back({Token::Kind::kEnd, line_, ""});
    return std::move(tokens_);
  }

 private:
  using Kind = Token::Kind;

  tl::unexpected<Error> wrong(std::string_view what) const {
    return template_error(ErrorCode::kInvalidFile, line_, what);
  }
  char peek(std::size_t i) const { return i < source_.size() ? source_[i] : '\0'; }
  std::string_view rest() const { return source_.substr(at_); }

  void count_lines(std::size_t from, std::size_t to) {
    const std::string_view text = source_.substr(from, to - from);
    line_ += static_cast<int>(std::count(text.begin(), text.end(), '\n'));
  }
  void advance_to(std::size_t to) {
    count_lines(at_, to);
    at_ = to;
  }
  void add(Kind kind, std::string_view text) {
    tokens_.push_back({kind, line_, std::string(text)});
  }

  // Where the next {{, {% or {# begins, or the end.
  std::size_t next_open() const {
    for (std::size_t i = at_; i + 1 < source_.size(); ++i) {
      if (source_[i] != '{') continue;
      const char next = source_[i + 1];
      if (next == '{' || next == '%' || next == '#') return i;
    }
    return source_.size();
  }

  // What a tag leaves of the text before it. Of blocks and comments alone on their line the
  // indentation goes.
  std::string_view strip_before(std::string_view text, char kind, char mark) const {
    if (mark == '-') return strip_right(text);
    if (mark == '+' || kind == '{') return text;
    const std::size_t newline = text.rfind('\n');
    if (newline == text.npos && !line_starting_) return text;
    const std::size_t begin = newline == text.npos ? 0 : newline + 1;
    return strip_left(text.substr(begin)).empty() ? text.substr(0, begin) : text;
  }

  void add_text(std::string_view text) {
    if (!text.empty()) add(Kind::kText, text);
  }

  // Passes over what closes a tag; `mark` is the sign before it.
  void close(char mark, std::size_t length, bool trims) {
    advance_to(at_ + length);
    std::size_t end = at_;
    if (mark == '-') {
      end = source_.size() - strip_left(rest()).size();
    } else if (mark != '+' && trims && peek(at_) == '\n') {
      ++end;
    }
    advance_to(end);
    line_starting_ = peek(at_ - 1) == '\n';
  }

  Status comment() {
    const std::size_t end = source_.find("#}", at_);
    if (end == source_.npos) return wrong("the comment does not end");
    const char mark = end > at_ ? source_[end - 1] : '\0';
    advance_to(end);
    close(mark, 2, true);
    return {};
  }

  // `{% raw %}`: what is between it and its end is text. False if this is another block.
  Result<bool> raw_block() {
    std::size_t i = skip_spaces(at_);
    if (source_.substr(i, 3) != "raw" || is_word(peek(i + 3))) return false;
    i = skip_spaces(i + 3);
    const char first = peek(i) == '-' ? '-' : '\0';
    if (first == '-') ++i;
    if (source_.substr(i, 2) != "%}") return wrong("the raw block's tag does not end");
    advance_to(i);
    // The newline after `{% raw %}` stays: it is the first character of the raw text.
    close(first, 2, false);
    for (std::size_t open = source_.find("{%", at_); open != source_.npos;
         open = source_.find("{%", open + 2)) {
      const char mark = peek(open + 2) == '-' || peek(open + 2) == '+' ? peek(open + 2) : '\0';
      std::size_t end = skip_spaces(open + 2 + (mark == '\0' ? 0 : 1));
      if (source_.substr(end, 6) != "endraw") continue;
      end = skip_spaces(end + 6);
      const char last = peek(end) == '-' || peek(end) == '+' ? peek(end) : '\0';
      if (last != '\0') ++end;
      if (source_.substr(end, 2) != "%}") continue;
      const std::string_view text = strip_before(source_.substr(at_, open - at_), '%', mark);
      add_text(text);
      advance_to(end);
      close(last, 2, true);
      return true;
    }
    return wrong("the raw block does not end");
  }

  std::size_t skip_spaces(std::size_t i) const {
    return source_.size() - strip_left(source_.substr(std::min(i, source_.size()))).size();
  }

  Status tag(bool block) {
    if (block) {
      SINEW_ASSIGN(const bool raw, raw_block());
      if (raw) return {};
    }
    add(block ? Kind::kBlockOpen : Kind::kOutputOpen, "");
    const std::string_view closing = block ? "%}" : "}}";
    std::string brackets;
    while (true) {
      advance_to(skip_spaces(at_));
      if (at_ >= source_.size()) return wrong("a tag does not end");
      if (brackets.empty()) {
        const char mark = peek(at_) == '-' || (block && peek(at_) == '+') ? peek(at_) : '\0';
        const std::size_t length = mark == '\0' ? 2 : 3;
        if (source_.substr(at_ + length - 2, 2) == closing) {
          add(block ? Kind::kBlockClose : Kind::kOutputClose, "");
          close(mark, length, block);
          return {};
        }
      }
      SINEW_TRY(token(brackets));
    }
  }

  Status token(std::string& brackets) {
    const char c = peek(at_);
    if (is_digit(c)) return number();
    if (is_word(c)) {
      std::size_t end = at_;
      while (is_word(peek(end))) ++end;
      add(Kind::kName, source_.substr(at_, end - at_));
      at_ = end;
      return {};
    }
    if (c == '\'' || c == '"') return string(c);
    static constexpr std::array<std::string_view, 24> kSymbols{
        "//", "**", "==", "!=", ">=", "<=", "+", "-", "*", "/", "%", "~",
        "[",  "]",  "(",  ")",  "{",  "}",  ">", "<", "=", ".", ":", "|"};
    for (const std::string_view symbol : kSymbols) {
      if (!rest().starts_with(symbol)) continue;
      return this->symbol(symbol, brackets);
    }
    if (c == ',') return symbol(",", brackets);
    return wrong("a character that no expression has");
  }

  Status symbol(std::string_view symbol, std::string& brackets) {
    const char c = symbol[0];
    if (c == '(' || c == '[' || c == '{') brackets += c == '(' ? ')' : c == '[' ? ']' : '}';
    if (c == ')' || c == ']' || c == '}') {
      if (brackets.empty() || brackets.back() != c) return wrong("a bracket that was not opened");
      brackets.pop_back();
    }
    add(Kind::kSymbol, symbol);
    at_ += symbol.size();
    return {};
  }

  // Digits with single underscores between them, appended without these.
  std::size_t digits(std::size_t i, std::string& out) const {
    while (is_digit(peek(i)) || (peek(i) == '_' && is_digit(peek(i + 1)))) {
      if (peek(i) != '_') out += peek(i);
      ++i;
    }
    return i;
  }

  Status number() {
    std::string text;
    std::size_t i = digits(at_, text);
    // After a dot it is the index in `a.0.b`, never a fraction.
    const bool may_be_float = tokens_.back().kind != Kind::kSymbol || tokens_.back().text != ".";
    bool is_float = false;
    if (may_be_float && peek(i) == '.' && is_digit(peek(i + 1))) {
      is_float = true;
      text += '.';
      i = digits(i + 1, text);
    }
    if (may_be_float && (peek(i) == 'e' || peek(i) == 'E')) {
      std::size_t j = i + 1;
      if (peek(j) == '+' || peek(j) == '-') ++j;
      if (is_digit(peek(j))) {
        is_float = true;
        text += source_.substr(i, j - i);
        i = digits(j, text);
      }
    }
    if (is_word(peek(i))) return wrong("a number that is not decimal is not supported");
    add(is_float ? Kind::kFloat : Kind::kInteger, text);
    at_ = i;
    return {};
  }

  // With Python's escapes. An unknown one stays as it is.
  Status string(char quote) {
    std::string value;
    const int line = line_;
    for (std::size_t i = at_ + 1; i < source_.size(); ++i) {
      const char c = source_[i];
      if (c == quote) {
        advance_to(i + 1);
        tokens_.push_back({Kind::kString, line, std::move(value)});
        return {};
      }
      if (c != '\\') {
        value += c;
        continue;
      }
      SINEW_ASSIGN(i, escape(i + 1, value));
    }
    return wrong("a string does not end");
  }

  // Appends what the escape whose letter is at `i` stands for, and returns its last character.
  Result<std::size_t> escape(std::size_t i, std::string& value) const {
    const char c = peek(i);
    static constexpr std::string_view kLetters = "abfnrtv\\'\"";
    static constexpr std::string_view kMeanings = "\a\b\f\n\r\t\v\\'\"";
    if (const auto at = kLetters.find(c); at != kLetters.npos) {
      value += kMeanings[at];
    } else if (c == 'x' || c == 'u' || c == 'U') {
      const std::size_t count = c == 'x' ? 2 : c == 'u' ? 4 : 8;
      SINEW_ASSIGN(const char32_t code_point,
                   code_point_of(source_.substr(i + 1, count), count, 16));
      append_utf8(value, code_point);
      i += count;
    } else if (c >= '0' && c <= '7') {
      std::size_t count = 1;
      while (count < 3 && peek(i + count) >= '0' && peek(i + count) <= '7') ++count;
      SINEW_ASSIGN(const char32_t code_point, code_point_of(source_.substr(i, count), count, 8));
      append_utf8(value, code_point);
      i += count - 1;
    } else if (c == 'N') {
      return wrong("\\N in a string is not supported");
    } else if (c != '\n') {
      value += '\\';
      if (i < source_.size()) value += c;
    }
    return i;
  }

  Result<char32_t> code_point_of(std::string_view text, std::size_t count, unsigned base) const {
    std::uint32_t value = 0;
    if (text.size() != count) return wrong("an escape in a string is cut short");
    for (const char c : text) {
      const std::string_view digits = "0123456789abcdef";
      const std::size_t digit = digits.find(ascii_lower(std::string_view(&c, 1)));
      if (digit >= base) return wrong("an escape in a string has a character that is no digit");
      value = value * base + static_cast<std::uint32_t>(digit);
    }
    if (value > 0x10FFFF || (value >= 0xD800 && value < 0xE000)) {
      return wrong("an escape in a string is no character");
    }
    return static_cast<char32_t>(value);
  }

  std::string_view source_;
  std::vector<Token> tokens_;
  std::size_t at_ = 0;
  int line_ = 1;
  bool line_starting_ = true;
};

}  // namespace

tl::unexpected<Error> template_error(ErrorCode code, int line, std::string_view what) {
  return fail(code, "the chat template, line {}: {}", line, what);
}

Result<std::vector<Token>> tokenize(std::string_view source) {
  const std::string text = normalize(source);
  return Lexer(text).run();
}

}  // namespace sinew::jinja
