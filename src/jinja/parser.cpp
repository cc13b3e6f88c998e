// Jinja's statements, by recursive descent.
#include "jinja/parser.h"

#include <fmt/format.h>

#include <algorithm>

#include "jinja/expressions.h"

namespace sinew::jinja {
namespace {

// Several times what templates of known models need; it keeps the parser's recursion small.
constexpr int kBlockDepthMax = 40;

class Parser : ExpressionParser {
 public:
  explicit Parser(std::vector<Token> tokens) : ExpressionParser(std::move(tokens)) {}

  Result<Template> run() {
    SINEW_ASSIGN(template_.body, block_body({}));
    return std::move(template_);
  }

 private:
  using Words = std::vector<std::string_view>;

  using ExpressionParser::make;
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

  int block_depth_ = 0;
  int loop_depth_ = 0;
};

}  // namespace

Result<Template> parse_template(std::string_view source) {
  SINEW_ASSIGN(auto tokens, tokenize(source));
  return Parser(std::move(tokens)).run();
}

}  // namespace sinew::jinja
