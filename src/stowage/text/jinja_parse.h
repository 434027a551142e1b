// The syntax of a template: expressions and statements as trees.
// Not their evaluation; see jinja_run.cpp.
#pragma once

#include <memory>
#include <optional>

#include "stowage/text/jinja_value.h"

namespace stow::text::jinja {

struct Expr;
using ExprPtr = std::unique_ptr<Expr>;

struct Argument {
  std::string name;  ///< Empty: by position.
  ExprPtr value;
};

enum class ExprKind : uint8_t {
  kLiteral,
  kName,
  kList,
  kDict,
  kAttribute,
  kItem,
  kSlice,
  kCall,
  kFilter,
  kTest,
  kNot,
  kNegate,
  kPositive,
  kAnd,
  kOr,
  kBinary,
  kCompare,
  kConditional
};

struct Expr {
  ExprKind kind = ExprKind::kLiteral;
  int line = 0;
  Value literal;
  std::string name;            ///< Name, attribute, filter, test or operator; "tuple" for a tuple.
  std::vector<ExprPtr> parts;  ///< Operands; an omitted part of a slice, or else, is null.
  std::vector<Argument> arguments;
  std::vector<std::string> operators;  ///< Operators of a chain of comparisons.
  bool negated = false;                ///< True for a test with `is not`.
};

struct Statement;
using Block = std::vector<Statement>;

struct Parameter {
  std::string name;
  ExprPtr value;  ///< The default. Null: none; a missing argument is undefined.
};

enum class StatementKind : uint8_t {
  kText,
  kPrint,
  kIf,
  kFor,
  kSet,
  kSetBlock,
  kMacro,
  kCallBlock,
  kFilterBlock,
  kBreak,
  kContinue,
  kBlock
};

struct Statement {
  StatementKind kind = StatementKind::kText;
  int line = 0;
  std::string text;  ///< Text of kText; the name of a macro; the namespace of a set.
  std::vector<std::string> targets;  ///< Names that a set or a loop assigns.
  std::string attribute;             ///< Attribute of a namespace that is set.
  ExprPtr value, condition;  ///< The expression printed, set or looped over; the `if` of a loop.
  std::vector<std::pair<ExprPtr, Block>> branches;  ///< Branches of an if.
  std::vector<Parameter> parameters;
  Block body, otherwise;
};

/// Parses a template as Jinja2 does with trim_blocks and lstrip_blocks, and returns its statements.
/// Throws Error with the line for wrong syntax and for unsupported constructs (by name).
Block parse(std::string_view source);

}  // namespace stow::text::jinja
