// Value: the values of template expressions, with the semantics of Python.
// Not a general object model: lists and dictionaries are immutable, as in Hugging Face's sandbox.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "stowage/io/json.h"

namespace stow::text::jinja {

/// The reason why a template cannot be parsed or rendered. It never leaves the library:
/// ChatTemplate turns it into a Failure.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class Value;
using List = std::vector<Value>;
/// Entries in the order in which keys were set.
using Dict = std::vector<std::pair<std::string, Value>>;

struct Arguments {
  List positional;
  Dict named;
};
using Function = std::function<Value(const Arguments&)>;

struct Undefined {
  std::string name;  ///< The name that was not found, for errors.
};
struct None {};
/// The result of Jinja2's namespace(), whose members a template can set.
struct Namespace {
  Dict members;
};

class Value {
 public:
  using Data =
      std::variant<Undefined, None, bool, int64_t, double, std::shared_ptr<const std::string>,
                   std::shared_ptr<const List>, std::shared_ptr<const Dict>,
                   std::shared_ptr<Namespace>, std::shared_ptr<const Function>>;
  Value() : data_(Undefined{}) {}
  Value(None) : data_(None{}) {}
  Value(bool b) : data_(b) {}
  Value(int64_t i) : data_(i) {}
  Value(int i) : data_(int64_t{i}) {}
  Value(double d) : data_(d) {}
  Value(std::string s) : data_(std::make_shared<const std::string>(std::move(s))) {}
  Value(std::string_view s) : Value(std::string(s)) {}
  Value(const char* s) : Value(std::string(s)) {}
  Value(List l) : data_(std::make_shared<const List>(std::move(l))) {}
  Value(Dict d) : data_(std::make_shared<const Dict>(std::move(d))) {}
  Value(std::shared_ptr<Namespace> n) : data_(std::move(n)) {}
  Value(Function f) : data_(std::make_shared<const Function>(std::move(f))) {}
  static Value undefined(std::string name) {
    Value v;
    v.data_ = Undefined{std::move(name)};
    return v;
  }
  /// Returns a Python tuple: it prints in parentheses and never equals a list.
  static Value tuple(List l) {
    Value v(std::move(l));
    v.is_tuple_ = true;
    return v;
  }
  static Value from_json(const Json& json);

  const Data& data() const { return data_; }
  bool is_undefined() const { return std::holds_alternative<Undefined>(data_); }
  bool is_none() const { return std::holds_alternative<None>(data_); }
  const std::string* string() const { return get<std::string>(); }
  const List* list() const { return get<List>(); }
  bool is_tuple() const { return is_tuple_; }
  const Dict* dict() const { return get<Dict>(); }
  const Function* function() const { return get<Function>(); }
  Namespace* members() const {
    const auto* p = std::get_if<std::shared_ptr<Namespace>>(&data_);
    return p ? p->get() : nullptr;
  }
  /// True for integers and booleans; then sets `out` to the value.
  bool is_integer(int64_t& out) const;
  /// True for integers, floats and booleans; then sets `out` to the value.
  bool is_number(double& out) const;

 private:
  template <typename T>
  const T* get() const {
    const auto* p = std::get_if<std::shared_ptr<const T>>(&data_);
    return p ? p->get() : nullptr;
  }
  Data data_;
  bool is_tuple_ = false;
};

/// Returns the value of a key, or null.
const Value* find(const Dict& dict, std::string_view key);

/// True if Python's bool(value) is True.
bool is_true(const Value& value);
/// Returns Python's str(value); "" for undefined.
std::string to_text(const Value& value);
/// Returns Python's repr(value).
std::string to_repr(const Value& value);
/// Returns Python's name of the type: "str", "dict".
std::string_view type_name(const Value& value);
/// True if Python's `a == b` is True.
bool equal(const Value& a, const Value& b);
/// True if Python's `a < b` is True. Throws Error for values that Python does not order.
bool less(const Value& a, const Value& b);
/// True if Python's `item in container` is True.
bool contains(const Value& container, const Value& item);
/// Returns the elements that a loop iterates over: those of a list, the characters of a text, the
/// keys of a dictionary.
List elements(const Value& value);
/// Returns Python's json.dumps(value, ensure_ascii=False, indent=…, sort_keys=…); indent -1: one
/// line.
std::string to_json(const Value& value, int64_t indent, bool sort_keys,
                    std::string_view item_separator, std::string_view key_separator);
/// Returns Python's repr() of a float: the shortest text that reads back as the same double.
std::string float_text(double value);

}  // namespace stow::text::jinja
