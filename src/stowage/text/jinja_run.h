// Rendering of a parsed template, with Jinja2's filters, tests and methods.
// Not its syntax (jinja_parse.h), nor the variables of chat templates (chat_template.h).
#pragma once

#include "stowage/text/jinja_parse.h"

namespace stow::text::jinja {

/// Bounds on the cost of a rendering.
struct Limits {
  int64_t steps = 2'000'000;       ///< Most expressions and statements that are evaluated.
  size_t output_bytes = 64 << 20;  ///< Most bytes of all texts made while rendering, together.
  int depth = 100;                 ///< Deepest nesting of calls and blocks.
};

/// Renders a template over global variables.
/// Throws Error, with the line, for failures, unsupported operations, and beyond the limits.
std::string render(const Block& block, Dict globals, const Limits& limits = {});

/// Calls a filter or a test by its name.
using Apply =
    std::function<Value(std::string_view name, const Value& value, const Arguments& arguments)>;
/// Returns value|name(arguments) for a filter of Jinja2. `filter`, `test`: called by filters such
/// as map and select. Throws Error for an unknown name and for wrong arguments.
Value apply_filter(std::string_view name, const Value& value, const Arguments& arguments,
                   const Apply& filter, const Apply& test);
/// True if `value is name(arguments)` holds for a test of Jinja2.
bool apply_test(std::string_view name, const Value& value, const Arguments& arguments);
/// Returns a method of a text or a dictionary, bound to it; undefined if there is none.
Value method_of(const Value& value, std::string_view name);
/// Returns value[key] as Jinja2 looks it up; undefined if there is none.
Value item_of(const Value& value, const Value& key);
/// Returns value.name as Jinja2 looks it up; undefined if there is none.
Value attribute_of(const Value& value, const std::string& name);
/// Returns the argument at a position or with a name, or null.
const Value* argument(const Arguments& arguments, size_t position, std::string_view name);
/// Returns an argument that must be an integer; `otherwise` if it is missing.
int64_t integer_argument(const Arguments& arguments, size_t position, std::string_view name,
                         int64_t otherwise);

}  // namespace stow::text::jinja
