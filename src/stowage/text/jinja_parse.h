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
  std::string name;            ///< Name, attribute, filter, test or operator; "tuple" of a list.
  std::vector<ExprPtr> parts;  ///< Operands; null where a part of a slice or an else is left out.
  std::vector<Argument> arguments;
  std::vector<std::string> operators;  ///< Operators of a chain of comparisons.
  bool negated = false;                ///< is not
};

struct Statement;
using Block = std::vector<Statement>;

struct Parameter {
  std::string name;
  ExprPtr value;  ///< null: it must be given, or is undefined.
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
  std::vector<std::string> targets;  ///< Names that are set or looped over.
  std::string attribute;             ///< Attribute of a namespace that is set.
  ExprPtr value, condition;          ///< The expression printed, set or looped over; the filter of a loop.
  std::vector<std::pair<ExprPtr, Block>> branches;  ///< Branches of an if.
  std::vector<Parameter> parameters;
  Block body, otherwise;
};

/// The statements of a template, as Jinja2 reads it with trim_blocks and lstrip_blocks.
/// Throws Error with the line for wrong syntax and for what is not supported, by name.
Block parse(std::string_view source);

}  // namespace stow::text::jinja
