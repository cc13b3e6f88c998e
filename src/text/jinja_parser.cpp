// Jinja's grammar, by recursive descent. The order of the operators, from loose to tight:
//   a if b else c | or | and | not | == < in ... | + - | ~ | * / // % | ** | unary + - | . [] () |
//   is
#include "text/jinja_parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>

#include "text/jinja_builtins.h"
#include "text/jinja_lexer.h"

namespace sinew::jinja {
namespace {

// Several times what templates of known models need; they keep the parser's recursion small.
constexpr int kExprDepthMax = 40;
constexpr int kBlockDepthMax = 40;

using ExprResult = Result<Expr*>;

class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  Result<Template> run() {
    SINEW_ASSIGN(template_.body, block_body({}));
    return std::move(template_);
  }

 private:
  using Kind = Token::Kind;
  using Words = std::vector<std::string_view>;

  // --- tokens ---

  const Token& here() const { return tokens_[at_]; }
  const Token& next(std::size_t ahead = 1) const {
    return tokens_[std::min(at_ + ahead, tokens_.size() - 1)];
  }
  bool is(Kind kind, std::string_view text) const {
    return here().kind == kind && here().text == text;
  }
  bool is_symbol(std::string_view text) const { return is(Kind::kSymbol, text); }
  bool is_name(std::string_view text) const { return is(Kind::kName, text); }
  bool skip_symbol(std::string_view text) { return is_symbol(text) && ++at_ != 0; }
  bool skip_name(std::string_view text) { return is_name(text) && ++at_ != 0; }

  tl::unexpected<Error> wrong(std::string_view what) const {
    return template_error(ErrorCode::kInvalidFile, here().line, what);
  }
  tl::unexpected<Error> unsupported(int line, std::string_view what) const {
    return template_error(ErrorCode::kUnsupported, line, what);
  }
  std::string found() const {
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
  Status expect_symbol(std::string_view text) {
    if (!skip_symbol(text)) return wrong(fmt::format("expected '{}', found {}", text, found()));
    return {};
  }
  Result<std::string> expect_name() {
    if (here().kind != Kind::kName) return wrong(fmt::format("expected a name, found {}", found()));
    return tokens_[at_++].text;
  }
  Status close_block() {
    if (here().kind != Kind::kBlockClose) {
      return wrong(fmt::format("expected the end of the tag, found {}", found()));
    }
    ++at_;
    return {};
  }

  // --- statements ---

  Stmt* make(Stmt::Kind kind) {
    Stmt& made = template_.statements.emplace_back();
    made.kind = kind;
    made.line = here().line;
    return &made;
  }

  // Statements up to a block that begins with one of `ends`, whose word is left to be read; without
  // any, up to the end of the template.
  Result<std::vector<const Stmt*>> block_body(const Words& ends) {
    std::vector<const Stmt*> body;
    const int line = here().line;
    while (here().kind != Kind::kEnd) {
      if (here().kind == Kind::kText) {
        Stmt* text = make(Stmt::Kind::kText);
        text->text = std::move(tokens_[at_++].text);
        body.push_back(text);
        continue;
      }
      const bool output = here().kind == Kind::kOutputOpen;
      ++at_;
      if (output) {
        Stmt* made = make(Stmt::Kind::kOutput);
        SINEW_ASSIGN(made->value, tuple_expression(true));
        if (here().kind != Kind::kOutputClose) {
          return wrong(fmt::format("expected the end of the output, found {}", found()));
        }
        ++at_;
        body.push_back(made);
        continue;
      }
      if (here().kind == Kind::kName &&
          std::find(ends.begin(), ends.end(), here().text) != ends.end())
        return body;
      SINEW_TRY(statement(body));
    }
    if (ends.empty()) return body;
    return template_error(ErrorCode::kInvalidFile, line,
                          fmt::format("a block is not closed: {} is missing", ends.back()));
  }

  Status statement(std::vector<const Stmt*>& body) {
    if (++block_depth_ > kBlockDepthMax) return wrong("blocks are nested too deeply");
    SINEW_ASSIGN(const std::string word, expect_name());
    Result<const Stmt*> made = nullptr;
    if (word == "if") {
      made = if_statement();
    } else if (word == "for") {
      made = for_statement();
    } else if (word == "set") {
      made = set_statement();
    } else if (word == "macro") {
      made = macro_statement();
    } else if (word == "call") {
      made = call_statement();
    } else if (word == "filter") {
      made = filter_statement();
    } else if (word == "break" || word == "continue") {
      if (loop_depth_ == 0) return wrong(fmt::format("'{}' outside of a loop", word));
      made = make(word == "break" ? Stmt::Kind::kBreak : Stmt::Kind::kContinue);
      SINEW_TRY(close_block());
    } else if (word == "generation") {
      // Marks what a model is trained on; renders as its content.
      SINEW_TRY(close_block());
      SINEW_ASSIGN(auto inner, end_of("endgeneration"));
      body.insert(body.end(), inner.begin(), inner.end());
      --block_depth_;
      return {};
    } else if (word.starts_with("end") || word == "else" || word == "elif") {
      return wrong(fmt::format("'{}' without a block that it belongs to", word));
    } else {
      return unsupported(here().line, fmt::format("the tag '{}' is not supported", word));
    }
    --block_depth_;
    if (!made) return fail(std::move(made).error());
    body.push_back(*made);
    return {};
  }

  // The rest of a block up to its end tag, and past it.
  Result<std::vector<const Stmt*>> end_of(std::string_view word) {
    SINEW_ASSIGN(auto body, block_body({word}));
    ++at_;
    SINEW_TRY(close_block());
    return body;
  }

  Result<const Stmt*> if_statement() {
    Stmt* made = make(Stmt::Kind::kIf);
    SINEW_ASSIGN(made->value, tuple_expression(false));
    SINEW_TRY(close_block());
    SINEW_ASSIGN(made->body, block_body({"elif", "else", "endif"}));
    if (skip_name("elif")) {
      // A chain is as deep as it is long, and is walked by recursion.
      if (++block_depth_ > kBlockDepthMax) return wrong("a chain of elif is too long");
      SINEW_ASSIGN(const Stmt* chained, if_statement());
      --block_depth_;
      made->otherwise.push_back(chained);
      return made;
    }
    if (skip_name("else")) {
      SINEW_TRY(close_block());
      SINEW_ASSIGN(made->otherwise, block_body({"endif"}));
    }
    ++at_;
    SINEW_TRY(close_block());
    return made;
  }

  Result<const Stmt*> for_statement() {
    Stmt* made = make(Stmt::Kind::kFor);
    SINEW_ASSIGN(made->targets, targets(false));
    if (!skip_name("in")) return wrong(fmt::format("expected 'in', found {}", found()));
    SINEW_ASSIGN(made->value, tuple_expression(false));
    if (skip_name("if")) {
      SINEW_ASSIGN(made->condition, expression());
    }
    if (is_name("recursive")) return unsupported(here().line, "recursive loops are not supported");
    SINEW_TRY(close_block());
    ++loop_depth_;
    SINEW_ASSIGN(made->body, block_body({"else", "endfor"}));
    --loop_depth_;
    if (skip_name("else")) {
      SINEW_TRY(close_block());
      SINEW_ASSIGN(made->otherwise, block_body({"endfor"}));
    }
    ++at_;
    SINEW_TRY(close_block());
    return made;
  }

  // `a`, `a, b` or, where it may be, `namespace.a`.
  Result<std::vector<Target>> targets(bool attributes) {
    std::vector<Target> made;
    const bool bracket = skip_symbol("(");
    do {
      if (bracket && is_symbol(")")) break;
      Target target;
      SINEW_ASSIGN(target.name, expect_name());
      if (attributes && skip_symbol(".")) {
        SINEW_ASSIGN(target.attribute, expect_name());
      }
      made.push_back(std::move(target));
    } while (skip_symbol(","));
    if (bracket) SINEW_TRY(expect_symbol(")"));
    return made;
  }

  Result<const Stmt*> set_statement() {
    Stmt* made = make(Stmt::Kind::kSet);
    SINEW_ASSIGN(made->targets, targets(true));
    if (skip_symbol("=")) {
      SINEW_ASSIGN(made->value, tuple_expression(true));
      SINEW_TRY(close_block());
      return made;
    }
    made->kind = Stmt::Kind::kSetBlock;
    if (made->targets.size() != 1) return wrong("a block sets one name");
    if (is_symbol("|")) {
      SINEW_ASSIGN(made->value, filters(block_text()));
    }
    SINEW_TRY(close_block());
    SINEW_ASSIGN(made->body, end_of("endset"));
    return made;
  }

  Expr* block_text() {
    Expr* made = make(Expr::Kind::kName);
    made->name = kBlockText;
    return made;
  }

  Status parameters(Stmt& made) {
    SINEW_TRY(expect_symbol("("));
    while (!is_symbol(")")) {
      SINEW_ASSIGN(std::string name, expect_name());
      made.targets.push_back({std::move(name), ""});
      const Expr* otherwise = nullptr;
      if (skip_symbol("=")) {
        SINEW_ASSIGN(otherwise, expression());
      }
      made.defaults.push_back(otherwise);
      if (!skip_symbol(",")) break;
    }
    return expect_symbol(")");
  }

  Result<std::vector<const Stmt*>> function_body(std::string_view end) {
    SINEW_TRY(close_block());
    const int loops = std::exchange(loop_depth_, 0);
    SINEW_ASSIGN(auto body, end_of(end));
    loop_depth_ = loops;
    return body;
  }

  Result<const Stmt*> macro_statement() {
    Stmt* made = make(Stmt::Kind::kMacro);
    SINEW_ASSIGN(made->text, expect_name());
    SINEW_TRY(parameters(*made));
    SINEW_ASSIGN(made->body, function_body("endmacro"));
    return made;
  }

  Result<const Stmt*> call_statement() {
    Stmt* made = make(Stmt::Kind::kCallBlock);
    if (is_symbol("(")) SINEW_TRY(parameters(*made));
    SINEW_ASSIGN(const Expr* call, expression());
    if (call->kind != Expr::Kind::kCall) return wrong("a call block needs a call");
    made->value = call;
    SINEW_ASSIGN(made->body, function_body("endcall"));
    return made;
  }

  Result<const Stmt*> filter_statement() {
    Stmt* made = make(Stmt::Kind::kFilterBlock);
    SINEW_ASSIGN(made->value, filter_chain(block_text()));
    SINEW_TRY(close_block());
    SINEW_ASSIGN(made->body, end_of("endfilter"));
    return made;
  }

  // --- expressions ---

  Expr* make(Expr::Kind kind) {
    Expr& made = template_.expressions.emplace_back();
    made.kind = kind;
    made.line = here().line;
    return &made;
  }
  Expr* make(Expr::Kind kind, std::vector<const Expr*> parts) {
    Expr* made = make(kind);
    made->parts = std::move(parts);
    if (!made->parts.empty() && made->parts[0] != nullptr) made->line = made->parts[0]->line;
    return made;
  }

  // An expression, or several with commas between them: a tuple.
  ExprResult tuple_expression(bool conditions) {
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

  ExprResult expression() {
    if (++expr_depth_ > kExprDepthMax) return wrong("an expression is nested too deeply");
    ExprResult made = condition();
    --expr_depth_;
    return made;
  }

  ExprResult condition() {
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

  ExprResult or_expression() {
    SINEW_ASSIGN(Expr * left, and_expression());
    while (skip_name("or")) {
      SINEW_ASSIGN(Expr * right, and_expression());
      left = make(Expr::Kind::kOr, {left, right});
    }
    return left;
  }

  ExprResult and_expression() {
    SINEW_ASSIGN(Expr * left, not_expression());
    while (skip_name("and")) {
      SINEW_ASSIGN(Expr * right, not_expression());
      left = make(Expr::Kind::kAnd, {left, right});
    }
    return left;
  }

  ExprResult not_expression() {
    if (!is_name("not")) return comparison();
    ++at_;
    if (++expr_depth_ > kExprDepthMax) return wrong("an expression is nested too deeply");
    SINEW_ASSIGN(Expr * value, not_expression());
    --expr_depth_;
    return make(Expr::Kind::kNot, {value});
  }

  std::optional<Operator> comparison_operator() {
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

  ExprResult comparison() {
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

  Expr* binary(Operator meaning, Expr* left, Expr* right) {
    Expr* made = make(Expr::Kind::kBinary, {left, right});
    made->operators.push_back(meaning);
    return made;
  }

  ExprResult sum() {
    SINEW_ASSIGN(Expr * left, concatenation());
    while (is_symbol("+") || is_symbol("-")) {
      const Operator meaning = is_symbol("+") ? Operator::kAdd : Operator::kSubtract;
      ++at_;
      SINEW_ASSIGN(Expr * right, concatenation());
      left = binary(meaning, left, right);
    }
    return left;
  }

  ExprResult concatenation() {
    SINEW_ASSIGN(Expr * first, product());
    if (!is_symbol("~")) return first;
    Expr* made = make(Expr::Kind::kConcat, {first});
    while (skip_symbol("~")) {
      SINEW_ASSIGN(Expr * part, product());
      made->parts.push_back(part);
    }
    return made;
  }

  ExprResult product() {
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

  ExprResult power() {
    SINEW_ASSIGN(Expr * left, unary(true));
    while (skip_symbol("**")) {
      SINEW_ASSIGN(Expr * right, unary(true));
      left = binary(Operator::kPower, left, right);
    }
    return left;
  }

  // A sign binds tighter than a filter: -1 | abs filters -1.
  ExprResult unary(bool with_filters) {
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

  Expr* literal(Value value) {
    Expr* made = make(Expr::Kind::kLiteral);
    made->literal = std::move(value);
    return made;
  }

  ExprResult primary() {
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
        if (std::from_chars(token.text.data(), end, value).ptr != end) {
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

  ExprResult name() {
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

  ExprResult parenthesis() {
    ++at_;
    if (skip_symbol(")")) return make(Expr::Kind::kTuple);
    if (++expr_depth_ > kExprDepthMax) return wrong("an expression is nested too deeply");
    SINEW_ASSIGN(Expr * made, tuple_expression(true));
    --expr_depth_;
    SINEW_TRY(expect_symbol(")"));
    return made;
  }

  ExprResult list() {
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

  ExprResult dict() {
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

  ExprResult postfix(Expr* made) {
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

  ExprResult attribute(Expr* object) {
    if (here().kind == Kind::kInteger) {
      SINEW_ASSIGN(Expr * index, primary());
      return make(Expr::Kind::kItem, {object, index});
    }
    Expr* made = make(Expr::Kind::kAttribute, {object});
    SINEW_ASSIGN(std::string name, expect_name());
    made->literal = Value{std::make_shared<const std::string>(std::move(name))};
    return made;
  }

  ExprResult subscript(Expr* object) {
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

  ExprResult tuple_or_value() {
    SINEW_ASSIGN(Expr * made, expression());
    if (is_symbol(",")) return unsupported(here().line, "subscripts with a comma");
    return made;
  }

  Status arguments(Expr& call) {
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

  // Filters, tests and calls after a value. A test binds as tightly as a filter.
  ExprResult filters(Expr* made) {
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

  ExprResult filter(Expr* value) {
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

  ExprResult filter_chain(Expr* value) {
    SINEW_ASSIGN(Expr * made, filter(value));
    while (skip_symbol("|")) {
      SINEW_ASSIGN(made, filter(made));
    }
    return made;
  }

  bool begins_argument() const {
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

  ExprResult test(Expr* value) {
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

  std::vector<Token> tokens_;
  std::size_t at_ = 0;
  Template template_;
  int block_depth_ = 0;
  int expr_depth_ = 0;
  int loop_depth_ = 0;
};

}  // namespace

Result<Template> parse_template(std::string_view source) {
  SINEW_ASSIGN(auto tokens, tokenize(source));
  return Parser(std::move(tokens)).run();
}

}  // namespace sinew::jinja
