#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "jinja/value.h"

namespace sinew::jinja {

enum class Operator : std::uint8_t {
  kAdd,
  kSubtract,
  kMultiply,
  kDivide,
  kFloorDivide,
  kModulo,
  kPower,
  kEqual,
  kNotEqual,
  kLess,
  kLessEqual,
  kGreater,
  kGreaterEqual,
  kIn,
  kNotIn,
};

struct Expr {
  enum class Kind : std::uint8_t {
    kLiteral,    // literal
    kName,       // name
    kList,       // parts
    kTuple,      // parts
    kDict,       // parts: key, value, key, value, ...
    kAttribute,  // parts[0] . literal
    kItem,       // parts[0] [ parts[1] ]
    kSlice,      // parts[0] [ parts[1] : parts[2] : parts[3] ], null where left out
    kCall,       // parts[0] ( parts[1...], named )
    kFilter,     // parts[0] | name ( parts[1...], named )
    kTest,       // parts[0] is name ( parts[1...], named )
    kNot,        // parts[0]
    kNegative,   // parts[0]
    kPositive,   // parts[0]
    kBinary,     // parts[0] operators[0] parts[1]
    kCompare,    // parts[0] operators[0] parts[1] operators[1] parts[2] ...
    kAnd,        // parts[0], parts[1]
    kOr,         // parts[0], parts[1]
    kConcat,     // parts
    kCondition,  // parts[0] if parts[1] else parts[2], null where left out
  };
  Kind kind = Kind::kLiteral;
  int line = 0;
  std::string name;
  Value literal;
  std::vector<const Expr*> parts;
  std::vector<std::pair<std::string, const Expr*>> named;
  std::vector<Operator> operators;
  Builtin builtin = nullptr;  // of a filter or test
};

struct Target {
  std::string name;
  std::string attribute;  // of a namespace; empty if the name itself is set
};

struct Stmt {
  enum class Kind : std::uint8_t {
    kText,         // text
    kOutput,       // value
    kIf,           // value, body, otherwise
    kFor,          // targets in value if condition: body, else otherwise
    kSet,          // targets = value
    kSetBlock,     // targets[0] = body, filtered by value if there is one
    kMacro,        // text is its name; targets with defaults are its parameters; body
    kCallBlock,    // value is the call, targets with defaults the parameters of caller(); body
    kFilterBlock,  // value filters body
    kBreak,
    kContinue,
  };
  Kind kind = Kind::kText;
  int line = 0;
  std::string text;
  const Expr* value = nullptr;
  const Expr* condition = nullptr;
  std::vector<Target> targets;
  std::vector<const Expr*> defaults;  // beside targets; null where there is none
  std::vector<const Stmt*> body;
  std::vector<const Stmt*> otherwise;
};

// A parsed template. Nodes refer to each other by pointer and live here, so that freeing a deep
// tree takes no deep recursion.
struct Template {
  std::deque<Expr> expressions;
  std::deque<Stmt> statements;
  std::vector<const Stmt*> body;
};

// The name by which the filters of a block find its text; no template can spell it.
inline constexpr std::string_view kBlockText = "sinew block text";

}  // namespace sinew::jinja
