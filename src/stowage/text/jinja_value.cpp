#include "stowage/text/jinja_value.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "stowage/text/unicode.h"

namespace stow::text::jinja {
namespace {

constexpr int kMaxDepth = 64;

void check_depth(int depth) {
  if (depth > kMaxDepth) throw Error("a value nests too deep");
}

Value from_json_at(const Json& json, int depth) {
  check_depth(depth);
  if (const bool* b = json.as_bool()) return Value(*b);
  if (const std::string* s = json.as_string()) return Value(*s);
  if (const Json::Array* a = json.as_array()) {
    List list;
    for (const Json& e : *a) list.push_back(from_json_at(e, depth + 1));
    return Value(std::move(list));
  }
  if (const Json::Object* o = json.as_object()) {
    Dict dict;
    for (const JsonMember& m : *o) dict.emplace_back(m.key, from_json_at(m.value, depth + 1));
    return Value(std::move(dict));
  }
  if (const Result<int64_t> i = json.as_int()) return Value(*i);
  if (const Result<double> d = json.as_double()) return Value(*d);
  return Value(None{});
}

// Python's repr of a text.
std::string quoted(const std::string& text) {
  const bool has_single = text.find('\'') != std::string::npos;
  const char quote = has_single && text.find('"') == std::string::npos ? '"' : '\'';
  std::string out(1, quote);
  for (const char c : text) {
    if (c == quote || c == '\\') out += '\\';
    if (c == '\n')
      out += "\\n";
    else if (c == '\r')
      out += "\\r";
    else if (c == '\t')
      out += "\\t";
    else if (static_cast<uint8_t>(c) < 0x20 || c == 0x7f)
      out += fmt::format("\\x{:02x}", static_cast<uint8_t>(c));
    else
      out += c;
  }
  return out += quote;
}

std::string repr_at(const Value& value, int depth) {
  check_depth(depth);
  if (const std::string* s = value.string()) return quoted(*s);
  std::string out;
  if (const List* list = value.list()) {
    for (const Value& v : *list) out += (out.empty() ? "" : ", ") + repr_at(v, depth + 1);
    if (!value.is_tuple()) return "[" + out + "]";
    return "(" + out + (list->size() == 1 ? ",)" : ")");
  }
  if (const Dict* dict = value.dict()) {
    for (const auto& [k, v] : *dict)
      out += (out.empty() ? "" : ", ") + quoted(k) + ": " + repr_at(v, depth + 1);
    return "{" + out + "}";
  }
  return to_text(value);
}

struct JsonWriter {
  int64_t indent;
  bool sort_keys;
  std::string_view item_separator, key_separator;
  std::string out;

  void line(int depth) {
    if (indent < 0) return;
    out += '\n';
    out.append(static_cast<size_t>(indent) * static_cast<size_t>(depth), ' ');
  }
  void write(const Value& value, int depth) {
    check_depth(depth);
    if (const std::string* s = value.string()) {
      out += Json(*s).dump();
    } else if (const List* list = value.list()) {
      sequence('[', ']', list->size(), depth, [&](size_t i) { write((*list)[i], depth + 1); });
    } else if (value.dict() || value.members()) {
      Dict dict = value.dict() ? *value.dict() : value.members()->members;
      if (sort_keys)
        std::stable_sort(dict.begin(), dict.end(),
                         [](const auto& a, const auto& b) { return a.first < b.first; });
      sequence('{', '}', dict.size(), depth, [&](size_t i) {
        out += Json(dict[i].first).dump();
        out += key_separator;
        write(dict[i].second, depth + 1);
      });
    } else if (const bool* b = std::get_if<bool>(&value.data())) {
      out += *b ? "true" : "false";
    } else if (value.is_none()) {
      out += "null";
    } else if (const double* d = std::get_if<double>(&value.data())) {
      out += std::isnan(*d)   ? "NaN"
             : std::isinf(*d) ? (*d > 0 ? "Infinity" : "-Infinity")
                              : float_text(*d);
    } else if (std::holds_alternative<int64_t>(value.data())) {
      out += to_text(value);
    } else {
      throw Error(fmt::format("tojson: a value of type {} has no JSON", type_name(value)));
    }
  }
  template <typename Element>
  void sequence(char open, char close, size_t n, int depth, const Element& element) {
    out += open;
    for (size_t i = 0; i < n; ++i) {
      if (i > 0) out += item_separator;
      line(depth + 1);
      element(i);
    }
    if (n > 0) line(depth);
    out += close;
  }
};

}  // namespace

Value Value::from_json(const Json& json) {
  return from_json_at(json, 0);
}

bool Value::is_integer(int64_t& out) const {
  if (const bool* b = std::get_if<bool>(&data_)) return out = *b, true;
  if (const int64_t* i = std::get_if<int64_t>(&data_)) return out = *i, true;
  return false;
}

bool Value::is_number(double& out) const {
  int64_t i = 0;
  if (is_integer(i)) return out = static_cast<double>(i), true;
  if (const double* d = std::get_if<double>(&data_)) return out = *d, true;
  return false;
}

const Value* find(const Dict& dict, std::string_view key) {
  for (const auto& [k, v] : dict)
    if (k == key) return &v;
  return nullptr;
}

bool is_true(const Value& value) {
  if (value.is_undefined() || value.is_none()) return false;
  double number = 0;
  if (value.is_number(number)) return number != 0;
  if (const std::string* s = value.string()) return !s->empty();
  if (const List* list = value.list()) return !list->empty();
  if (const Dict* dict = value.dict()) return !dict->empty();
  return true;
}

std::string float_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  std::string text = fmt::format("{}", value);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

std::string to_text(const Value& value) {
  if (value.is_undefined()) return "";
  if (value.is_none()) return "None";
  if (const bool* b = std::get_if<bool>(&value.data())) return *b ? "True" : "False";
  if (const int64_t* i = std::get_if<int64_t>(&value.data())) return std::to_string(*i);
  if (const double* d = std::get_if<double>(&value.data())) return float_text(*d);
  if (const std::string* s = value.string()) return *s;
  if (value.list() || value.dict()) return to_repr(value);
  throw Error(fmt::format("a value of type {} has no text", type_name(value)));
}

std::string to_repr(const Value& value) {
  return repr_at(value, 0);
}

std::string_view type_name(const Value& value) {
  constexpr std::string_view kNames[] = {"Undefined", "NoneType", "bool", "int",       "float",
                                         "str",       "list",     "dict", "Namespace", "function"};
  return kNames[value.data().index()];
}

bool equal(const Value& a, const Value& b) {
  double x = 0, y = 0;
  if (a.is_number(x) && b.is_number(y)) return x == y;
  if (a.data().index() != b.data().index()) return false;
  if (a.string()) return *a.string() == *b.string();
  if (a.list())
    return a.is_tuple() == b.is_tuple() && std::equal(a.list()->begin(), a.list()->end(),
                                                      b.list()->begin(), b.list()->end(), equal);
  if (a.dict()) {
    if (a.dict()->size() != b.dict()->size()) return false;
    return std::all_of(a.dict()->begin(), a.dict()->end(), [&](const auto& member) {
      const Value* other = find(*b.dict(), member.first);
      return other && equal(member.second, *other);
    });
  }
  if (a.members()) return a.members() == b.members();
  if (a.function()) return a.function() == b.function();
  return true;  // undefined, none
}

bool less(const Value& a, const Value& b) {
  double x = 0, y = 0;
  if (a.is_number(x) && b.is_number(y)) return x < y;
  if (a.string() && b.string()) return *a.string() < *b.string();
  if (a.list() && b.list())
    return std::lexicographical_compare(a.list()->begin(), a.list()->end(), b.list()->begin(),
                                        b.list()->end(), less);
  throw Error(fmt::format("cannot order values of types {} and {}", type_name(a), type_name(b)));
}

bool contains(const Value& container, const Value& item) {
  if (const std::string* s = container.string()) {
    if (!item.string())
      throw Error(fmt::format("expected a text before 'in', got {}", type_name(item)));
    return s->find(*item.string()) != std::string::npos;
  }
  if (const List* list = container.list())
    return std::any_of(list->begin(), list->end(), [&](const Value& v) { return equal(v, item); });
  if (const Dict* dict = container.dict()) return item.string() && find(*dict, *item.string());
  if (container.is_undefined()) return false;
  throw Error(fmt::format("a value of type {} holds no items", type_name(container)));
}

List elements(const Value& value) {
  if (const List* list = value.list()) return *list;
  List out;
  if (const std::string* s = value.string()) {
    for (size_t at = 0; at < s->size();) {
      const auto n = static_cast<size_t>(char_bytes(*s, at));
      out.emplace_back(s->substr(at, n));
      at += n;
    }
  } else if (const Dict* dict = value.dict()) {
    for (const auto& member : *dict) out.emplace_back(member.first);
  } else if (!value.is_undefined()) {
    throw Error(fmt::format("a value of type {} cannot be iterated over", type_name(value)));
  }
  return out;
}

std::string to_json(const Value& value, int64_t indent, bool sort_keys,
                    std::string_view item_separator, std::string_view key_separator) {
  JsonWriter writer{indent, sort_keys, item_separator, key_separator, {}};
  writer.write(value, 0);
  return std::move(writer.out);
}

}  // namespace stow::text::jinja
