// Rendering of a parsed template.
// Not its syntax (jinja_parse.h), nor what chat templates are given (chat_template.h).
#pragma once

#include "stowage/text/jinja_parse.h"

namespace stow::text::jinja {

/// Bounds on the cost of a rendering.
struct Limits {
  int64_t steps = 2'000'000;       ///< Expressions and statements.
  size_t output_bytes = 64 << 20;  ///< Most bytes of all texts that it makes together.
  int depth = 100;                 ///< Most calls and blocks within each other.
};

/// The text of a template over global variables.
/// Throws Error, with the line, for what goes wrong or is not supported, and beyond the limits.
std::string render(const Block& block, Dict globals, const Limits& limits = {});

/// A filter of Jinja2 by its name: value|name(arguments). `apply` calls another filter or test by
/// name, for map and select. Throws Error for an unknown name and for wrong arguments.
using Apply =
    std::function<Value(std::string_view name, const Value& value, const Arguments& arguments)>;
Value apply_filter(std::string_view name, const Value& value, const Arguments& arguments,
                   const Apply& filter, const Apply& test);
/// A test of Jinja2 by its name: true if `value is name(arguments)` holds.
bool apply_test(std::string_view name, const Value& value, const Arguments& arguments);
/// A method of a text or a dictionary, bound to it; undefined where there is none.
Value method_of(const Value& value, std::string_view name);
/// value[key] and value.name as Jinja2 looks them up; undefined where there is nothing.
Value item_of(const Value& value, const Value& key);
Value attribute_of(const Value& value, const std::string& name);
/// The argument at a position or of a name, or null.
const Value* argument(const Arguments& arguments, size_t position, std::string_view name);
int64_t integer_argument(const Arguments& arguments, size_t position, std::string_view name,
                         int64_t otherwise);

}  // namespace stow::text::jinja
