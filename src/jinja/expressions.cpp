#include "jinja/expressions.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "jinja/builtins.h"

namespace sinew::jinja {
namespace {

// Several times what templates of known models need; it keeps the parser's recursion small.
constexpr int kExprDepthMax = 40;

using ExprResult = Result<Expr*>;

}  // namespace

const Token& ExpressionParser::next(std::size_t ahead) const {
  return tokens_[std::min(at_ + ahead, tokens_.size() - 1)];
}

bool ExpressionParser::is(Kind kind, std::string_view text) const {
  return here().kind == kind && here().text == text;
}

tl::unexpected<Error> ExpressionParser::wrong(std::string_view what) const {
  return template_error(ErrorCode::kInvalidFile, here().line, what);
}

tl::unexpected<Error> ExpressionParser::unsupported(int line, std::string_view what) const {
  return template_error(ErrorCode::kUnsupported, line, what);
}

std::string ExpressionParser::found() const {
  switch (here().kind) {
    case Kind::kEnd:
      return "the end of the template";
    case Kind::kOutputClose:
    case Kind::kBlockClose:
      return "the end of the tag";
    case Kind::kText:
    case Kind::kOutputOpen:
    case Kind::kBlockOpen:
      return "another tag";
    case Kind::kName:
    case Kind::kInteger:
    case Kind::kFloat:
    case Kind::kString:
    case Kind::kSymbol:
      break;
  }
  return fmt::format("'{}'", here().text.substr(0, 40));
}

Status ExpressionParser::expect_symbol(std::string_view text) {
  if (!skip_symbol(text)) return wrong(fmt::format("expected '{}', found {}", text, found()));
  return {};
}

Result<std::string> ExpressionParser::expect_name() {
  if (here().kind != Kind::kName) return wrong(fmt::format("expected a name, found {}", found()));
  return tokens_[at_++].text;
}

Status ExpressionParser::close_block() {
  if (here().kind != Kind::kBlockClose) {
    return wrong(fmt::format("expected the end of the tag, found {}", found()));
  }
  ++at_;
  return {};
}

Expr* ExpressionParser::make(Expr::Kind kind) {
  Expr& made = template_.expressions.emplace_back();
  made.kind = kind;
  made.line = here().line;
  return &made;
}

Expr* ExpressionParser::make(Expr::Kind kind, std::vector<const Expr*> parts) {
  Expr* made = make(kind);
  made->parts = std::move(parts);
  if (!made->parts.empty() && made->parts[0] != nullptr) made->line = made->parts[0]->line;
  return made;
}

ExprResult ExpressionParser::tuple_expression(bool conditions) {
  std::vector<const Expr*> parts;
  bool comma = false;
  do {
    const bool ends = here().kind == Kind::kBlockClose || here().kind == Kind::kOutputClose;
    if (comma && (ends || is_symbol(")"))) break;
    SINEW_ASSIGN(Expr * part, conditions ? expression() : or_expression());
    if (parts.empty() && !is_symbol(",")) return part;
    parts.push_back(part);
    comma = true;
  } while (skip_symbol(","));
  return make(Expr::Kind::kTuple, std::move(parts));
}

ExprResult ExpressionParser::expression() {
  if (++expr_depth_ > kExprDepthMax) return wrong("an expression is nested too deeply");
  ExprResult made = condition();
  --expr_depth_;
  return made;
}

ExprResult ExpressionParser::condition() {
  SINEW_ASSIGN(Expr * value, or_expression());
  while (skip_name("if")) {
    SINEW_ASSIGN(Expr * test, or_expression());
    Expr* otherwise = nullptr;
    if (skip_name("else")) {
      SINEW_ASSIGN(otherwise, expression());
    }
    value = make(Expr::Kind::kCondition, {value, test, otherwise});
  }
  return value;
}

ExprResult ExpressionParser::or_expression() {
  SINEW_ASSIGN(Expr * left, and_expression());
  while (skip_name("or")) {
    SINEW_ASSIGN(Expr * right, and_expression());
    left = make(Expr::Kind::kOr, {left, right});
  }
  return left;
}

ExprResult ExpressionParser::and_expression() {
  SINEW_ASSIGN(Expr * left, not_expression());
  while (skip_name("and")) {
    SINEW_ASSIGN(Expr * right, not_expression());
    left = make(Expr::Kind::kAnd, {left, right});
  }
  return left;
}

ExprResult ExpressionParser::not_expression() {
  if (!is_name("not")) return comparison();
  ++at_;
  if (++expr_depth_ > kExprDepthMax) return wrong("an expression is nested too deeply");
  SINEW_ASSIGN(Expr * value, not_expression());
  --expr_depth_;
  return make(Expr::Kind::kNot, {value});
}

std::optional<Operator> ExpressionParser::comparison_operator() {
  static constexpr std::array<std::pair<std::string_view, Operator>, 6> kSymbols{{
      {"==", Operator::kEqual},
      {"!=", Operator::kNotEqual},
      {"<", Operator::kLess},
      {"<=", Operator::kLessEqual},
      {">", Operator::kGreater},
      {">=", Operator::kGreaterEqual},
  }};
  for (const auto& [symbol, meaning] : kSymbols) {
    if (skip_symbol(symbol)) return meaning;
  }
  if (skip_name("in")) return Operator::kIn;
  if (is_name("not") && next().kind == Kind::kName && next().text == "in") {
    at_ += 2;
    return Operator::kNotIn;
  }
  return std::nullopt;
}

ExprResult ExpressionParser::comparison() {
  SINEW_ASSIGN(Expr * left, sum());
  Expr* made = nullptr;
  for (auto found = comparison_operator(); found; found = comparison_operator()) {
    SINEW_ASSIGN(Expr * right, sum());
    if (made == nullptr) made = make(Expr::Kind::kCompare, {left});
    made->operators.push_back(*found);
    made->parts.push_back(right);
  }
  return made == nullptr ? left : made;
}

Expr* ExpressionParser::binary(Operator meaning, Expr* left, Expr* right) {
  Expr* made = make(Expr::Kind::kBinary, {left, right});
  made->operators.push_back(meaning);
  return made;
}

ExprResult ExpressionParser::sum() {
  SINEW_ASSIGN(Expr * left, concatenation());
  while (is_symbol("+") || is_symbol("-")) {
    const Operator meaning = is_symbol("+") ? Operator::kAdd : Operator::kSubtract;
    ++at_;
    SINEW_ASSIGN(Expr * right, concatenation());
    left = binary(meaning, left, right);
  }
  return left;
}

ExprResult ExpressionParser::concatenation() {
  SINEW_ASSIGN(Expr * first, product());
  if (!is_symbol("~")) return first;
  Expr* made = make(Expr::Kind::kConcat, {first});
  while (skip_symbol("~")) {
    SINEW_ASSIGN(Expr * part, product());
    made->parts.push_back(part);
  }
  return made;
}

ExprResult ExpressionParser::product() {
  static constexpr std::array<std::pair<std::string_view, Operator>, 4> kSymbols{{
      {"*", Operator::kMultiply},
      {"/", Operator::kDivide},
      {"//", Operator::kFloorDivide},
      {"%", Operator::kModulo},
  }};
  SINEW_ASSIGN(Expr * left, power());
  while (true) {
    const auto found = std::find_if(kSymbols.begin(), kSymbols.end(),
                                    [&](const auto& entry) { return skip_symbol(entry.first); });
    if (found == kSymbols.end()) return left;
    SINEW_ASSIGN(Expr * right, power());
    left = binary(found->second, left, right);
  }
}

ExprResult ExpressionParser::power() {
  SINEW_ASSIGN(Expr * left, unary(true));
  while (skip_symbol("**")) {
    SINEW_ASSIGN(Expr * right, unary(true));
    left = binary(Operator::kPower, left, right);
  }
  return left;
}

ExprResult ExpressionParser::unary(bool with_filters) {
  Expr* made = nullptr;
  if (is_symbol("-") || is_symbol("+")) {
    const auto kind = is_symbol("-") ? Expr::Kind::kNegative : Expr::Kind::kPositive;
    ++at_;
    if (++expr_depth_ > kExprDepthMax) return wrong("an expression is nested too deeply");
    SINEW_ASSIGN(Expr * value, unary(false));
    --expr_depth_;
    made = make(kind, {value});
  } else {
    SINEW_ASSIGN(made, primary());
  }
  SINEW_ASSIGN(made, postfix(made));
  return with_filters ? filters(made) : made;
}

Expr* ExpressionParser::literal(Value value) {
  Expr* made = make(Expr::Kind::kLiteral);
  made->literal = std::move(value);
  return made;
}

ExprResult ExpressionParser::primary() {
  const Token& token = here();
  switch (token.kind) {
    case Kind::kName:
      return name();
    case Kind::kString: {
      std::string text;
      Expr* made = make(Expr::Kind::kLiteral);
      while (here().kind == Kind::kString) text += tokens_[at_++].text;
      made->literal = Value{std::make_shared<const std::string>(std::move(text))};
      return made;
    }
    case Kind::kInteger: {
      std::int64_t value = 0;
      const char* end = token.text.data() + token.text.size();
      if (const auto read = std::from_chars(token.text.data(), end, value);
          read.ptr != end || read.ec != std::errc()) {
        return wrong("an integer is too large");
      }
      ++at_;
      return literal(Value{value});
    }
    case Kind::kFloat: {
      double value = 0;
      const char* end = token.text.data() + token.text.size();
      if (const auto read = std::from_chars(token.text.data(), end, value);
          read.ptr != end || read.ec != std::errc()) {
        return wrong("a number is out of range");
      }
      ++at_;
      return literal(Value{value});
    }
    case Kind::kSymbol:
      if (token.text == "(") return parenthesis();
      if (token.text == "[") return list();
      if (token.text == "{") return dict();
      break;
    case Kind::kText:
    case Kind::kOutputOpen:
    case Kind::kOutputClose:
    case Kind::kBlockOpen:
    case Kind::kBlockClose:
    case Kind::kEnd:
      break;
  }
  return wrong(fmt::format("expected an expression, found {}", found()));
}

ExprResult ExpressionParser::name() {
  const std::string word = here().text;
  Expr* made = make(Expr::Kind::kName);
  ++at_;
  made->name = word;
  if (word == "true" || word == "True" || word == "false" || word == "False") {
    made->kind = Expr::Kind::kLiteral;
    made->literal = Value{word[0] == 't' || word[0] == 'T'};
  } else if (word == "none" || word == "None") {
    made->kind = Expr::Kind::kLiteral;
    made->literal = Value{None{}};
  }
  return made;
}

ExprResult ExpressionParser::parenthesis() {
  ++at_;
  if (skip_symbol(")")) return make(Expr::Kind::kTuple);
  if (++expr_depth_ > kExprDepthMax) return wrong("an expression is nested too deeply");
  SINEW_ASSIGN(Expr * made, tuple_expression(true));
  --expr_depth_;
  SINEW_TRY(expect_symbol(")"));
  return made;
}

ExprResult ExpressionParser::list() {
  Expr* made = make(Expr::Kind::kList);
  ++at_;
  while (!is_symbol("]")) {
    SINEW_ASSIGN(Expr * part, expression());
    made->parts.push_back(part);
    if (!skip_symbol(",")) break;
  }
  SINEW_TRY(expect_symbol("]"));
  return made;
}

ExprResult ExpressionParser::dict() {
  Expr* made = make(Expr::Kind::kDict);
  ++at_;
  while (!is_symbol("}")) {
    SINEW_ASSIGN(Expr * key, expression());
    SINEW_TRY(expect_symbol(":"));
    SINEW_ASSIGN(Expr * value, expression());
    made->parts.insert(made->parts.end(), {key, value});
    if (!skip_symbol(",")) break;
  }
  SINEW_TRY(expect_symbol("}"));
  return made;
}

ExprResult ExpressionParser::postfix(Expr* made) {
  while (true) {
    if (skip_symbol(".")) {
      SINEW_ASSIGN(made, attribute(made));
    } else if (is_symbol("[")) {
      SINEW_ASSIGN(made, subscript(made));
    } else if (is_symbol("(")) {
      made = make(Expr::Kind::kCall, {made});
      SINEW_TRY(arguments(*made));
    } else {
      return made;
    }
  }
}

ExprResult ExpressionParser::attribute(Expr* object) {
  if (here().kind == Kind::kInteger) {
    SINEW_ASSIGN(Expr * index, primary());
    return make(Expr::Kind::kItem, {object, index});
  }
  Expr* made = make(Expr::Kind::kAttribute, {object});
  SINEW_ASSIGN(std::string name, expect_name());
  made->literal = Value{std::make_shared<const std::string>(std::move(name))};
  return made;
}

ExprResult ExpressionParser::subscript(Expr* object) {
  ++at_;
  std::array<const Expr*, 3> parts{};
  std::size_t colons = 0;
  while (!is_symbol("]")) {
    if (skip_symbol(":")) {
      if (++colons > 2) return wrong("a slice has at most two colons");
      continue;
    }
    if (parts[colons] != nullptr) return wrong(fmt::format("expected ']', found {}", found()));
    SINEW_ASSIGN(parts[colons], tuple_or_value());
  }
  ++at_;
  if (colons > 0) return make(Expr::Kind::kSlice, {object, parts[0], parts[1], parts[2]});
  if (parts[0] == nullptr) return wrong("an empty subscript");
  return make(Expr::Kind::kItem, {object, parts[0]});
}

ExprResult ExpressionParser::tuple_or_value() {
  SINEW_ASSIGN(Expr * made, expression());
  if (is_symbol(",")) return unsupported(here().line, "subscripts with a comma");
  return made;
}

Status ExpressionParser::arguments(Expr& call) {
  SINEW_TRY(expect_symbol("("));
  while (!is_symbol(")")) {
    if (is_symbol("*") || is_symbol("**")) {
      return unsupported(here().line, "* and ** in calls are not supported");
    }
    if (here().kind == Kind::kName && next().kind == Kind::kSymbol && next().text == "=") {
      SINEW_ASSIGN(std::string name, expect_name());
      ++at_;
      SINEW_ASSIGN(const Expr* value, expression());
      call.named.emplace_back(std::move(name), value);
    } else {
      if (!call.named.empty()) return wrong("a positional argument after a named one");
      SINEW_ASSIGN(const Expr* value, expression());
      call.parts.push_back(value);
    }
    if (!skip_symbol(",")) break;
  }
  return expect_symbol(")");
}

ExprResult ExpressionParser::filters(Expr* made) {
  while (true) {
    if (skip_symbol("|")) {
      SINEW_ASSIGN(made, filter(made));
    } else if (skip_name("is")) {
      SINEW_ASSIGN(made, test(made));
    } else if (is_symbol("(")) {
      made = make(Expr::Kind::kCall, {made});
      SINEW_TRY(arguments(*made));
    } else {
      return made;
    }
  }
}

ExprResult ExpressionParser::filter(Expr* value) {
  const int line = here().line;
  SINEW_ASSIGN(std::string name, expect_name());
  Expr* made = make(Expr::Kind::kFilter, {value});
  made->builtin = find_filter(name);
  if (made->builtin == nullptr) {
    return unsupported(line, fmt::format("the filter '{}' is not supported", name));
  }
  made->line = line;
  made->name = std::move(name);
  if (is_symbol("(")) SINEW_TRY(arguments(*made));
  return made;
}

ExprResult ExpressionParser::filter_chain(Expr* value) {
  SINEW_ASSIGN(Expr * made, filter(value));
  while (skip_symbol("|")) {
    SINEW_ASSIGN(made, filter(made));
  }
  return made;
}

bool ExpressionParser::begins_argument() const {
  switch (here().kind) {
    case Kind::kName: {
      static constexpr std::array<std::string_view, 7> kWords{"else", "or", "and", "not",
                                                              "in",   "if", "is"};
      return std::find(kWords.begin(), kWords.end(), here().text) == kWords.end();
    }
    case Kind::kString:
    case Kind::kInteger:
    case Kind::kFloat:
      return true;
    case Kind::kSymbol:
      return is_symbol("[") || is_symbol("{");
    case Kind::kText:
    case Kind::kOutputOpen:
    case Kind::kOutputClose:
    case Kind::kBlockOpen:
    case Kind::kBlockClose:
    case Kind::kEnd:
      break;
  }
  return false;
}

ExprResult ExpressionParser::test(Expr* value) {
  const int line = here().line;
  const bool negated = skip_name("not");
  SINEW_ASSIGN(std::string name, expect_name());
  Expr* made = make(Expr::Kind::kTest, {value});
  made->builtin = find_test(name);
  if (made->builtin == nullptr) {
    return unsupported(line, fmt::format("the test '{}' is not supported", name));
  }
  made->name = std::move(name);
  if (is_symbol("(")) {
    SINEW_TRY(arguments(*made));
  } else if (begins_argument()) {
    SINEW_ASSIGN(Expr * argument, primary());
    SINEW_ASSIGN(argument, postfix(argument));
    made->parts.push_back(argument);
  }
  return negated ? make(Expr::Kind::kNot, {made}) : made;
}

}  // namespace sinew::jinja
