// Value: what expressions of a template work on, with the meaning of Python's values.
// Not a general object model: lists and dictionaries cannot be changed, as in the sandbox of
// Hugging Face.
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

/// Why a template cannot be rendered. It never leaves the library: render turns it into a Failure.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class Value;
using List = std::vector<Value>;
/// In the order in which keys were set.
using Dict = std::vector<std::pair<std::string, Value>>;

struct Arguments {
  List positional;
  Dict named;
};
using Function = std::function<Value(const Arguments&)>;

struct Undefined {
  std::string name;  ///< The name looked for, for errors.
};
struct None {};
/// The result of namespace(): its members can be set.
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
  /// A list that Python prints in round brackets and holds unequal to other lists.
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
  /// True for integers and booleans, whose value `out` receives.
  bool is_integer(int64_t& out) const;
  /// True for numbers of any kind and booleans, whose value `out` receives.
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

/// The value of a key, or null.
const Value* find(const Dict& dict, std::string_view key);

/// True as Python's bool() says.
bool is_true(const Value& value);
/// As Python's str() and repr(). Undefined is empty text.
std::string to_text(const Value& value);
std::string to_repr(const Value& value);
/// Python's name of the type: "str", "dict".
std::string_view type_name(const Value& value);
/// True as Python's `a == b`.
bool equal(const Value& a, const Value& b);
/// True if a comes before b. Errors: values that Python does not order.
bool less(const Value& a, const Value& b);
/// True as Python's `item in container`.
bool contains(const Value& container, const Value& item);
/// The elements that a loop goes through: of a list, the characters of a text, the keys of a
/// dictionary.
List elements(const Value& value);
/// Python's json.dumps(value, ensure_ascii=False, indent=…, sort_keys=…); indent -1: one line.
std::string to_json(const Value& value, int64_t indent, bool sort_keys,
                    std::string_view item_separator, std::string_view key_separator);
/// The shortest text that reads back as the same double, as Python writes it.
std::string float_text(double value);

}  // namespace stow::text::jinja
