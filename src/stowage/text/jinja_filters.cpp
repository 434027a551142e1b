// Filters, tests and methods of templates. Source: Jinja2's documentation, "List of Builtin
// Filters" and "List of Builtin Tests"; Python's documentation of str and dict.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "stowage/text/jinja_text.h"

namespace stow::text::jinja {
namespace {

List dict_items(const Dict& dict) {
  List out;
  for (const auto& [k, v] : dict) out.push_back(Value::tuple({Value(k), v}));
  return out;
}

// The value that "a.b.0" names within another.
Value by_path(Value value, const std::string& path) {
  size_t begin = 0;
  while (begin <= path.size()) {
    const size_t end = std::min(path.find('.', begin), path.size());
    const std::string name = path.substr(begin, end - begin);
    const bool is_index =
        !name.empty() && name.find_first_not_of("0123456789") == std::string::npos;
    value = is_index ? item_of(value, Value(int64_t{std::stoll(name.substr(0, 18))}))
                     : item_of(value, Value(name));
    begin = end + 1;
  }
  return value;
}

Arguments rest_of(const Arguments& a, size_t n) {
  Arguments rest;
  for (size_t i = n; i < a.positional.size(); ++i) rest.positional.push_back(a.positional[i]);
  rest.named = a.named;
  return rest;
}

// select, reject, selectattr, rejectattr.
List chosen(const Value& value, const Arguments& a, const Apply& test, bool by_attribute,
            bool keep) {
  const size_t at = by_attribute ? 1 : 0;
  std::string path;
  if (by_attribute) path = text_argument(a, 0, "attribute", "selectattr");
  const std::string name =
      a.positional.size() > at ? text_of(a.positional[at], "select") : std::string();
  List out;
  for (const Value& e : elements(value)) {
    const Value subject = by_attribute ? by_path(e, path) : e;
    const bool holds =
        name.empty() ? is_true(subject) : is_true(test(name, subject, rest_of(a, at + 1)));
    if (holds == keep) out.push_back(e);
  }
  return out;
}

// Jinja2 compares texts without their case unless told otherwise.
Value sort_key(const Value& value, const Value* attribute, bool case_sensitive) {
  Value key = !attribute || attribute->is_none() ? value
              : attribute->string()              ? by_path(value, *attribute->string())
                                                 : item_of(value, *attribute);
  return key.string() && !case_sensitive ? Value(cased(*key.string(), false)) : key;
}
List sorted(const Value& value, const Value* attribute, bool reverse, bool case_sensitive) {
  std::vector<std::pair<Value, Value>> keyed;
  for (const Value& e : elements(value))
    keyed.emplace_back(sort_key(e, attribute, case_sensitive), e);
  std::stable_sort(keyed.begin(), keyed.end(), [&](const auto& x, const auto& y) {
    return reverse ? less(y.first, x.first) : less(x.first, y.first);
  });
  List out;
  for (auto& [k, v] : keyed) out.push_back(std::move(v));
  return out;
}

int64_t length_of(const Value& value) {
  if (value.string()) return n_chars(*value.string());
  if (value.dict()) return static_cast<int64_t>(value.dict()->size());
  if (value.list()) return static_cast<int64_t>(value.list()->size());
  if (value.is_undefined()) return 0;
  throw Error(fmt::format("a value of type {} has no length", type_name(value)));
}

std::string indented(const std::string& text, const Arguments& a) {
  const Value* width = argument(a, 0, "width");
  const std::string pad = width && width->string()
                              ? *width->string()
                              : std::string(static_cast<size_t>(std::clamp<int64_t>(
                                                integer_argument(a, 0, "width", 4), 0, 1 << 16)),
                                            ' ');
  const Value* first = argument(a, 1, "first");
  const Value* blank = argument(a, 2, "blank");
  std::string out;
  const List lines = split_lines(text + "\n", false);
  for (size_t i = 0; i < lines.size(); ++i) {
    const std::string& line = *lines[i].string();
    if (i > 0) out += '\n';
    if ((i > 0 || (first && is_true(*first))) && (!line.empty() || (blank && is_true(*blank))))
      out += pad;
    out += line;
  }
  return out;
}

Value rounded(const Value& value, const Arguments& a) {
  double x = 0;
  if (!value.is_number(x)) throw Error("round: expected a number");
  const double scale = std::pow(10.0, static_cast<double>(integer_argument(a, 0, "precision", 0)));
  const Value* method = argument(a, 1, "method");
  const std::string how = method ? text_of(*method, "round") : "common";
  const double scaled = x * scale;
  const double whole = how == "ceil"    ? std::ceil(scaled)
                       : how == "floor" ? std::floor(scaled)
                                        : std::nearbyint(scaled);
  return Value(whole / scale);
}

Value to_number(const Value& value, const Arguments& a, bool integer) {
  const Value* otherwise = argument(a, 0, "default");
  double x = 0;
  bool ok = value.is_number(x);
  if (!ok && value.string()) {
    const std::string text = stripped(*value.string(), nullptr, true, true);
    char* end = nullptr;
    x = std::strtod(text.c_str(), &end);
    ok = !text.empty() && *end == '\0';
  }
  if (!ok || (integer && !(std::abs(x) < 9e18)))
    return otherwise ? *otherwise : integer ? Value(0) : Value(0.0);
  int64_t exact = 0;
  if (integer && value.is_integer(exact)) return Value(exact);
  return integer ? Value(static_cast<int64_t>(x)) : Value(x);
}

Value json_filter(const Value& value, const Arguments& a) {
  if (value.is_undefined()) throw Error("tojson: the value is undefined");
  // Hugging Face's tojson: (x, ensure_ascii=False, indent=None, separators=None, sort_keys=False).
  const Value* ascii = argument(a, 0, "ensure_ascii");
  if (ascii && is_true(*ascii)) throw Error("tojson: ensure_ascii is not supported");
  const int64_t indent = std::min<int64_t>(integer_argument(a, 1, "indent", -1), 64);
  const Value* sort = argument(a, 3, "sort_keys");
  std::string item = indent < 0 ? ", " : ",", key = ": ";
  if (const Value* separators = argument(a, 2, "separators");
      separators && !separators->is_none()) {
    const List both = elements(*separators);
    if (both.size() != 2) throw Error("tojson: expected two separators");
    item = text_of(both[0], "tojson");
    key = text_of(both[1], "tojson");
  }
  return Value(to_json(value, indent, sort && is_true(*sort), item, key));
}

Value extreme(const Value& value, const Arguments& a, bool largest) {
  const List items =
      sorted(value, argument(a, 1, "attribute"), false,
             argument(a, 0, "case_sensitive") && is_true(*argument(a, 0, "case_sensitive")));
  if (items.empty()) return Value::undefined("there is no item");
  return largest ? items.back() : items.front();
}

Value mapped(const Value& value, const Arguments& a, const Apply& filter) {
  List out;
  const Value* attribute = find(a.named, "attribute");
  const Value* otherwise = find(a.named, "default");
  for (const Value& e : elements(value)) {
    if (attribute) {
      Value v = attribute->string() ? by_path(e, *attribute->string()) : item_of(e, *attribute);
      out.push_back(v.is_undefined() && otherwise ? *otherwise : std::move(v));
    } else {
      out.push_back(filter(text_argument(a, 0, "filter", "map"), e, rest_of(a, 1)));
    }
  }
  return Value(std::move(out));
}

List unique(const Value& value, const Arguments& a) {
  const Value* sensitive = argument(a, 0, "case_sensitive");
  List keys, out;
  for (const Value& e : elements(value)) {
    Value key = sort_key(e, argument(a, 1, "attribute"), sensitive && is_true(*sensitive));
    if (std::any_of(keys.begin(), keys.end(), [&](const Value& k) { return equal(k, key); }))
      continue;
    keys.push_back(std::move(key));
    out.push_back(e);
  }
  return out;
}

using Filter = Value (*)(const Value&, const Arguments&);
const std::map<std::string_view, Filter>& filters() {
  static const std::map<std::string_view, Filter> table = {
      {"abs",
       [](const Value& v, const Arguments&) {
         int64_t i = 0;
         if (v.is_integer(i)) return Value(i < 0 ? -i : i);
         double x = 0;
         if (!v.is_number(x)) throw Error("abs: expected a number");
         return Value(std::abs(x));
       }},
      {"capitalize",
       [](const Value& v, const Arguments&) { return Value(capitalized(to_text(v))); }},
      {"title", [](const Value& v, const Arguments&) { return Value(titled(to_text(v))); }},
      {"upper", [](const Value& v, const Arguments&) { return Value(cased(to_text(v), true)); }},
      {"lower", [](const Value& v, const Arguments&) { return Value(cased(to_text(v), false)); }},
      {"trim",
       [](const Value& v, const Arguments& a) {
         return Value(stripped(to_text(v), argument(a, 0, "chars"), true, true));
       }},
      {"string", [](const Value& v, const Arguments&) { return Value(to_text(v)); }},
      {"safe", [](const Value& v, const Arguments&) { return v; }},
      {"length", [](const Value& v, const Arguments&) { return Value(length_of(v)); }},
      {"count", [](const Value& v, const Arguments&) { return Value(length_of(v)); }},
      {"list", [](const Value& v, const Arguments&) { return Value(elements(v)); }},
      {"first",
       [](const Value& v, const Arguments&) {
         const List l = elements(v);
         return l.empty() ? Value::undefined("there is no first item") : l.front();
       }},
      {"last",
       [](const Value& v, const Arguments&) {
         const List l = elements(v);
         return l.empty() ? Value::undefined("there is no last item") : l.back();
       }},
      {"reverse",
       [](const Value& v, const Arguments&) {
         List l = elements(v);
         std::reverse(l.begin(), l.end());
         if (!v.string()) return Value(std::move(l));
         std::string out;
         for (const Value& c : l) out += *c.string();
         return Value(std::move(out));
       }},
      {"join",
       [](const Value& v, const Arguments& a) {
         const Value* by = argument(a, 0, "d");
         const Value* attribute = argument(a, 1, "attribute");
         std::string out;
         bool first = true;
         for (const Value& e : elements(v)) {
           if (!first && by) out += to_text(*by);
           first = false;
           out += to_text(attribute ? by_path(e, text_of(*attribute, "join")) : e);
         }
         return Value(std::move(out));
       }},
      {"default",
       [](const Value& v, const Arguments& a) {
         const Value* otherwise = argument(a, 0, "default_value");
         const Value* also_false = argument(a, 1, "boolean");
         const bool missing =
             v.is_undefined() || (also_false && is_true(*also_false) && !is_true(v));
         return missing ? (otherwise ? *otherwise : Value("")) : v;
       }},
      {"replace",
       [](const Value& v, const Arguments& a) {
         return Value(replaced(to_text(v), text_argument(a, 0, "old", "replace"),
                               text_argument(a, 1, "new", "replace"),
                               integer_argument(a, 2, "count", -1)));
       }},
      {"int", [](const Value& v, const Arguments& a) { return to_number(v, a, true); }},
      {"float", [](const Value& v, const Arguments& a) { return to_number(v, a, false); }},
      {"round", rounded},
      {"indent", [](const Value& v, const Arguments& a) { return Value(indented(to_text(v), a)); }},
      {"tojson", json_filter},
      {"items",
       [](const Value& v, const Arguments&) {
         if (v.is_undefined()) return Value(List());
         if (!v.dict()) throw Error("items: expected a dictionary");
         return Value(dict_items(*v.dict()));
       }},
      {"dictsort",
       [](const Value& v, const Arguments& a) {
         if (!v.dict()) throw Error("dictsort: expected a dictionary");
         const Value* sensitive = argument(a, 0, "case_sensitive");
         const Value* by = argument(a, 1, "by");
         const Value* reverse = argument(a, 2, "reverse");
         const Value index(by && text_of(*by, "dictsort") == "value" ? 1 : 0);
         return Value(sorted(Value(dict_items(*v.dict())), &index, reverse && is_true(*reverse),
                             sensitive && is_true(*sensitive)));
       }},
      {"sort",
       [](const Value& v, const Arguments& a) {
         const Value* reverse = argument(a, 0, "reverse");
         const Value* sensitive = argument(a, 1, "case_sensitive");
         return Value(sorted(v, argument(a, 2, "attribute"), reverse && is_true(*reverse),
                             sensitive && is_true(*sensitive)));
       }},
      {"unique", [](const Value& v, const Arguments& a) { return Value(unique(v, a)); }},
      {"min", [](const Value& v, const Arguments& a) { return extreme(v, a, false); }},
      {"max", [](const Value& v, const Arguments& a) { return extreme(v, a, true); }},
      {"sum",
       [](const Value& v, const Arguments& a) {
         const Value* attribute = argument(a, 0, "attribute");
         double total = 0;
         int64_t exact = integer_argument(a, 1, "start", 0);
         bool integers = true;
         for (const Value& e : elements(v)) {
           const Value item =
               attribute && !attribute->is_none() ? by_path(e, text_of(*attribute, "sum")) : e;
           int64_t i = 0;
           double x = 0;
           if (!item.is_number(x)) throw Error("sum: expected numbers");
           integers &= item.is_integer(i);
           if (integers && __builtin_add_overflow(exact, i, &exact))
             throw Error("an integer is too large");
           total += x;
         }
         return integers ? Value(exact) : Value(total);
       }},
      {"wordcount",
       [](const Value& v, const Arguments&) {
         return Value(static_cast<int64_t>(split(to_text(v), nullptr, -1, false).size()));
       }},
  };
  return table;
}

bool is_mapping(const Value& v) {
  return v.dict() || v.members();
}

}  // namespace

Value apply_filter(std::string_view name, const Value& value, const Arguments& a,
                   const Apply& filter, const Apply& test) {
  if (name == "d") name = "default";
  if (name == "select") return Value(chosen(value, a, test, false, true));
  if (name == "reject") return Value(chosen(value, a, test, false, false));
  if (name == "selectattr") return Value(chosen(value, a, test, true, true));
  if (name == "rejectattr") return Value(chosen(value, a, test, true, false));
  if (name == "map") return mapped(value, a, filter);
  const auto found = filters().find(name);
  if (found == filters().end()) throw Error(fmt::format("the filter {} is not supported", name));
  return found->second(value, a);
}

bool apply_test(std::string_view name, const Value& v, const Arguments& a) {
  int64_t i = 0;
  double x = 0;
  const auto other = [&]() -> const Value& {
    const Value* o = argument(a, 0, "other");
    if (!o) throw Error(fmt::format("the test {} takes an argument", name));
    return *o;
  };
  if (name == "defined") return !v.is_undefined();
  if (name == "undefined") return v.is_undefined();
  if (name == "none") return v.is_none();
  if (name == "string") return v.string();
  if (name == "mapping") return is_mapping(v);
  if (name == "iterable") return v.string() || v.list() || v.dict() || v.is_undefined();
  if (name == "sequence") return v.string() || v.list() || v.dict() || v.is_undefined();
  if (name == "number") return v.is_number(x);
  if (name == "integer") return std::holds_alternative<int64_t>(v.data());
  if (name == "float") return std::holds_alternative<double>(v.data());
  if (name == "boolean") return std::holds_alternative<bool>(v.data());
  if (name == "true") return std::holds_alternative<bool>(v.data()) && std::get<bool>(v.data());
  if (name == "false") return std::holds_alternative<bool>(v.data()) && !std::get<bool>(v.data());
  if (name == "callable") return v.function();
  if (name == "odd" || name == "even" || name == "divisibleby") {
    if (!v.is_integer(i)) throw Error(fmt::format("the test {} takes an integer", name));
    if (name != "divisibleby") return (i % 2 == 0) == (name == "even");
    const int64_t by = integer_argument(a, 0, "num", 0);
    if (by == 0) throw Error("division by zero");
    return by == -1 || i % by == 0;
  }
  if (name == "lower" || name == "upper") return cased(to_text(v), name == "upper") == to_text(v);
  if (name == "in") return contains(other(), v);
  if (name == "eq" || name == "equalto" || name == "==" || name == "sameas")
    return equal(v, other());
  if (name == "ne" || name == "!=") return !equal(v, other());
  if (name == "lt" || name == "lessthan" || name == "<") return less(v, other());
  if (name == "gt" || name == "greaterthan" || name == ">") return less(other(), v);
  if (name == "le" || name == "<=") return !less(other(), v);
  if (name == "ge" || name == ">=") return !less(v, other());
  throw Error(fmt::format("the test {} is not supported", name));
}

Value method_of(const Value& value, std::string_view name) {
  if (const std::string* text = value.string()) return text_method(*text, name);
  if (const Dict* dict = value.dict()) {
    if (name == "items")
      return Value(Function([d = *dict](const Arguments&) { return Value(dict_items(d)); }));
    if (name == "keys")
      return Value(Function([value](const Arguments&) { return Value(elements(value)); }));
    if (name == "values")
      return Value(Function([d = *dict](const Arguments&) {
        List out;
        for (const auto& [k, v] : d) out.push_back(v);
        return Value(std::move(out));
      }));
    if (name == "get")
      return Value(Function([d = *dict](const Arguments& a) {
        const Value* key = argument(a, 0, "key");
        const Value* found = key && key->string() ? find(d, *key->string()) : nullptr;
        if (found) return *found;
        const Value* otherwise = argument(a, 1, "default");
        return otherwise ? *otherwise : Value(None{});
      }));
  }
  return {};
}

}  // namespace stow::text::jinja
