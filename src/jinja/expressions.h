#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "jinja/ast.h"
#include "jinja/lexer.h"

namespace sinew::jinja {

// The part of the parser that reads expressions; the one of statements (jinja_parser.cpp) extends
// it. The order of the operators, from loose to tight:
//   a if b else c | or | and | not | == < in ... | + - | ~ | * / // % | ** | unary + - | . [] () |
//   is
class ExpressionParser {
 protected:
  using ExprResult = Result<Expr*>;
  using Kind = Token::Kind;

  explicit ExpressionParser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  const Token& here() const { return tokens_[at_]; }
  const Token& next(std::size_t ahead = 1) const;
  bool is(Kind kind, std::string_view text) const;
  bool is_symbol(std::string_view text) const { return is(Kind::kSymbol, text); }
  bool is_name(std::string_view text) const { return is(Kind::kName, text); }
  bool skip_symbol(std::string_view text) { return is_symbol(text) && ++at_ != 0; }
  bool skip_name(std::string_view text) { return is_name(text) && ++at_ != 0; }
  tl::unexpected<Error> wrong(std::string_view what) const;
  tl::unexpected<Error> unsupported(int line, std::string_view what) const;
  std::string found() const;
  Status expect_symbol(std::string_view text);
  Result<std::string> expect_name();
  Status close_block();

  Expr* make(Expr::Kind kind);
  Expr* make(Expr::Kind kind, std::vector<const Expr*> parts);
  // An expression, or several with commas between them: a tuple.
  ExprResult tuple_expression(bool conditions);
  ExprResult expression();
  ExprResult condition();
  ExprResult or_expression();
  ExprResult and_expression();
  ExprResult not_expression();
  std::optional<Operator> comparison_operator();
  ExprResult comparison();
  Expr* binary(Operator meaning, Expr* left, Expr* right);
  ExprResult sum();
  ExprResult concatenation();
  ExprResult product();
  ExprResult power();
  // A sign binds tighter than a filter: -1 | abs filters -1.
  ExprResult unary(bool with_filters);
  Expr* literal(Value value);
  ExprResult primary();
  ExprResult name();
  ExprResult parenthesis();
  ExprResult list();
  ExprResult dict();
  ExprResult postfix(Expr* made);
  ExprResult attribute(Expr* object);
  ExprResult subscript(Expr* object);
  ExprResult tuple_or_value();
  Status arguments(Expr& call);
  // Filters, tests and calls after a value. A test binds as tightly as a filter.
  ExprResult filters(Expr* made);
  ExprResult filter(Expr* value);
  ExprResult filter_chain(Expr* value);
  bool begins_argument() const;
  ExprResult test(Expr* value);

  std::vector<Token> tokens_;
  std::size_t at_ = 0;
  Template template_;
  int expr_depth_ = 0;
};

}  // namespace sinew::jinja
