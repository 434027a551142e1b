#include "stowage/text/jinja_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace stow::text::jinja {
namespace {

enum class Flow : uint8_t { kNext, kBreak, kContinue };

// Variables of one block, and the block around it.
struct Scope {
  Scope* outer = nullptr;
  Dict variables = {};

  const Value* find(std::string_view name) const {
    for (const Scope* s = this; s; s = s->outer)
      if (const Value* v = jinja::find(s->variables, name)) return v;
    return nullptr;
  }
  void set(const std::string& name, Value value) {
    for (auto& [k, v] : variables)
      if (k == name) return void(v = std::move(value));
    variables.emplace_back(name, std::move(value));
  }
};

class Renderer {
 public:
  Renderer(Dict globals, const Limits& limits) : limits_(limits) {
    globals_.variables = std::move(globals);
  }

  std::string run(const Block& block) {
    Scope top{&globals_};
    std::string out;
    statements(block, top, out);
    return out;
  }

 private:
  struct Deeper {
    Deeper(Renderer& r) : depth(r.depth_) {
      if (++depth > r.limits_.depth) throw Error("the template calls itself too deep");
    }
    ~Deeper() { --depth; }
    int& depth;
  };

  void step() {
    if (++steps_ > limits_.steps) throw Error("the template takes too many steps");
  }
  void append(std::string& out, std::string_view text) {
    bytes_ += text.size();
    if (bytes_ > limits_.output_bytes) throw Error("the template writes too much");
    out += text;
  }
  // A text that an expression makes counts as output: it may grow by each step.
  Value made(std::string text) {
    bytes_ += text.size();
    if (bytes_ > limits_.output_bytes) throw Error("the template writes too much");
    return Value(std::move(text));
  }

  Flow statements(const Block& block, Scope& scope, std::string& out) {
    const Deeper deeper(*this);
    for (const Statement& s : block) {
      Flow flow = Flow::kNext;
      try {
        flow = statement(s, scope, out);
      } catch (const Error& e) {
        // The innermost statement names the line.
        const std::string_view what = e.what();
        if (what.starts_with("line ") || what.starts_with("raised: ")) throw;
        throw Error(fmt::format("line {}: {}", s.line, what));
      }
      if (flow != Flow::kNext) return flow;
    }
    return Flow::kNext;
  }

  Flow statement(const Statement& s, Scope& scope, std::string& out) {
    step();
    switch (s.kind) {
      case StatementKind::kText:
        append(out, s.text);
        return Flow::kNext;
      case StatementKind::kPrint:
        append(out, to_text(evaluate(*s.value, scope)));
        return Flow::kNext;
      case StatementKind::kIf:
        for (const auto& [condition, body] : s.branches)
          if (is_true(evaluate(*condition, scope))) return statements(body, scope, out);
        return statements(s.otherwise, scope, out);
      case StatementKind::kFor:
        return loop(s, scope, out);
      case StatementKind::kSet:
        assign(s, evaluate(*s.value, scope), scope);
        return Flow::kNext;
      case StatementKind::kSetBlock: {
        Scope inner{&scope};
        std::string text;
        statements(s.body, inner, text);
        Value value(std::move(text));
        if (s.value) value = filtered(*s.value, value, scope);
        assign(s, std::move(value), scope);
        return Flow::kNext;
      }
      case StatementKind::kMacro:
        scope.set(s.text, macro(s, scope));
        return Flow::kNext;
      case StatementKind::kCallBlock: {
        const Function caller = [this, &s, &scope](const Arguments&) {
          Scope inner{&scope};
          std::string text;
          statements(s.body, inner, text);
          return Value(std::move(text));
        };
        const Value outer = std::exchange(caller_, Value(caller));
        append(out, to_text(evaluate(*s.value, scope)));
        caller_ = outer;
        return Flow::kNext;
      }
      case StatementKind::kFilterBlock: {
        Scope inner{&scope};
        std::string text;
        statements(s.body, inner, text);
        append(out, to_text(filtered(*s.value, Value(std::move(text)), scope)));
        return Flow::kNext;
      }
      case StatementKind::kBreak:
        return Flow::kBreak;
      case StatementKind::kContinue:
        return Flow::kContinue;
      case StatementKind::kBlock:
        return statements(s.body, scope, out);
    }
    return Flow::kNext;
  }

  void assign(const Statement& s, Value value, Scope& scope) {
    if (s.attribute.empty()) return bind(s.targets, std::move(value), scope);
    const Value* found = scope.find(s.targets[0]);
    Namespace* members = found ? found->members() : nullptr;
    if (!members)
      throw Error(fmt::format("'{}' is not a namespace, so '{}' of it cannot be set", s.targets[0],
                              s.attribute));
    for (auto& [k, v] : members->members)
      if (k == s.attribute) return void(v = std::move(value));
    members->members.emplace_back(s.attribute, std::move(value));
  }

  void bind(const std::vector<std::string>& targets, Value value, Scope& scope) {
    if (targets.size() == 1) return scope.set(targets[0], std::move(value));
    const List parts = elements(value);
    if (parts.size() != targets.size())
      throw Error(
          fmt::format("expected {} values to unpack, got {}", targets.size(), parts.size()));
    for (size_t i = 0; i < parts.size(); ++i) scope.set(targets[i], parts[i]);
  }

  Flow loop(const Statement& s, Scope& scope, std::string& out) {
    List items = elements(evaluate(*s.value, scope));
    if (s.condition) {
      List kept;
      for (Value& item : items) {
        step();
        Scope inner{&scope};
        bind(s.targets, item, inner);
        if (is_true(evaluate(*s.condition, inner))) kept.push_back(std::move(item));
      }
      items = std::move(kept);
    }
    const auto n = static_cast<int64_t>(items.size());
    if (n == 0) return statements(s.otherwise, scope, out);
    auto changed = std::make_shared<List>();
    for (int64_t i = 0; i < n; ++i) {
      constexpr int64_t kIteration = 10;  // steps that its variables cost
      steps_ += kIteration;
      step();
      const auto at = [&](int64_t j) {
        return j >= 0 && j < n ? items[static_cast<size_t>(j)]
                               : Value::undefined("there is no such item");
      };
      Dict facts = {{"index", Value(i + 1)},    {"index0", Value(i)},
                    {"revindex", Value(n - i)}, {"revindex0", Value(n - i - 1)},
                    {"first", Value(i == 0)},   {"last", Value(i == n - 1)},
                    {"length", Value(n)},       {"depth", Value(1)},
                    {"depth0", Value(0)},       {"previtem", at(i - 1)},
                    {"nextitem", at(i + 1)}};
      facts.emplace_back("cycle", Value(Function([i](const Arguments& a) {
                           if (a.positional.empty()) throw Error("cycle: expected values");
                           return a.positional[static_cast<size_t>(i) % a.positional.size()];
                         })));
      facts.emplace_back("changed", Value(Function([changed](const Arguments& a) {
                           const bool same =
                               equal(Value(*changed), Value(a.positional)) && !changed->empty();
                           *changed = a.positional;
                           return Value(!same);
                         })));
      Scope inner{&scope};
      bind(s.targets, items[static_cast<size_t>(i)], inner);
      inner.set("loop", Value(std::move(facts)));
      if (statements(s.body, inner, out) == Flow::kBreak) break;
    }
    return Flow::kNext;
  }

  Value macro(const Statement& s, Scope& scope) {
    // A macro sees what stands around its definition; its scope outlives every call, as macros of
    // loops do not leave the loop.
    return Value(Function([this, &s, &scope](const Arguments& given) {
      const Deeper deeper(*this);
      Scope inner{&scope};
      if (given.positional.size() > s.parameters.size())
        throw Error(fmt::format("macro '{}' takes {} arguments, got {}", s.text,
                                s.parameters.size(), given.positional.size()));
      for (const auto& [name, value] : given.named)
        if (std::none_of(s.parameters.begin(), s.parameters.end(),
                         [&](const Parameter& p) { return p.name == name; }))
          throw Error(fmt::format("macro '{}' has no argument '{}'", s.text, name));
      for (size_t i = 0; i < s.parameters.size(); ++i) {
        const Parameter& p = s.parameters[i];
        if (const Value* v = argument(given, i, p.name))
          inner.set(p.name, *v);
        else
          inner.set(p.name, p.value ? evaluate(*p.value, inner) : Value::undefined(p.name));
      }
      if (!caller_.is_undefined()) inner.set("caller", caller_);
      std::string text;
      statements(s.body, inner, text);
      return Value(std::move(text));
    }));
  }

  Arguments evaluate(const std::vector<Argument>& list, Scope& scope) {
    Arguments arguments;
    for (const Argument& a : list) {
      Value value = evaluate(*a.value, scope);
      if (a.name.empty())
        arguments.positional.push_back(std::move(value));
      else
        arguments.named.emplace_back(a.name, std::move(value));
    }
    return arguments;
  }

  // The filter `e` of a value that is not an expression; a chain of them where its part is one,
  // too.
  Value filtered(const Expr& e, Value value, Scope& scope) {
    if (e.parts[0]) value = filtered(*e.parts[0], std::move(value), scope);
    return filter(e.name, value, evaluate(e.arguments, scope));
  }
  Value filter(std::string_view name, const Value& value, const Arguments& arguments) {
    const auto by_name = [this](std::string_view n, const Value& v, const Arguments& a) {
      step();
      return filter(n, v, a);
    };
    const auto test = [this](std::string_view n, const Value& v, const Arguments& a) {
      step();
      return Value(apply_test(n, v, a));
    };
    Value result = apply_filter(name, value, arguments, by_name, test);
    if (const std::string* text = result.string()) bytes_ += text->size();
    if (bytes_ > limits_.output_bytes) throw Error("the template writes too much");
    return result;
  }

  Value evaluate(const Expr& e, Scope& scope) {
    step();
    const auto part = [&](size_t i) { return evaluate(*e.parts[i], scope); };
    switch (e.kind) {
      case ExprKind::kLiteral:
        return e.literal;
      case ExprKind::kName: {
        const Value* found = scope.find(e.name);
        return found ? *found : Value::undefined(fmt::format("'{}' is undefined", e.name));
      }
      case ExprKind::kList: {
        List list;
        for (size_t i = 0; i < e.parts.size(); ++i) list.push_back(part(i));
        return e.name == "tuple" ? Value::tuple(std::move(list)) : Value(std::move(list));
      }
      case ExprKind::kDict: {
        Dict dict;
        for (size_t i = 0; i < e.parts.size(); i += 2) {
          const Value key = part(i);
          if (!key.string()) throw Error("expected a text as the key of a dictionary");
          Value value = part(i + 1);
          const auto same = std::find_if(dict.begin(), dict.end(),
                                         [&](const auto& m) { return m.first == *key.string(); });
          if (same != dict.end())
            same->second = std::move(value);
          else
            dict.emplace_back(*key.string(), std::move(value));
        }
        return Value(std::move(dict));
      }
      case ExprKind::kAttribute:
        return attribute_of(part(0), e.name);
      case ExprKind::kItem:
        return item_of(part(0), part(1));
      case ExprKind::kSlice:
        return slice(e, scope);
      case ExprKind::kCall: {
        const Value callee = part(0);
        if (!callee.function())
          throw Error(callee.is_undefined()
                          ? std::get<Undefined>(callee.data()).name
                          : fmt::format("a value of type {} cannot be called", type_name(callee)));
        return (*callee.function())(evaluate(e.arguments, scope));
      }
      case ExprKind::kFilter:
        return filter(e.name, part(0), evaluate(e.arguments, scope));
      case ExprKind::kTest: {
        const bool holds = apply_test(e.name, part(0), evaluate(e.arguments, scope));
        return Value(holds != e.negated);
      }
      case ExprKind::kNot:
        return Value(!is_true(part(0)));
      case ExprKind::kNegate:
      case ExprKind::kPositive:
        return binary(e.kind == ExprKind::kNegate ? "-" : "+", Value(0), part(0));
      case ExprKind::kAnd: {
        Value left = part(0);
        return is_true(left) ? part(1) : left;
      }
      case ExprKind::kOr: {
        Value left = part(0);
        return is_true(left) ? left : part(1);
      }
      case ExprKind::kBinary: {
        const Value left = part(0);
        return binary(e.name, left, part(1));
      }
      case ExprKind::kCompare: {
        Value left = part(0);
        for (size_t i = 0; i < e.operators.size(); ++i) {
          Value right = part(i + 1);
          if (!compare(e.operators[i], left, right)) return Value(false);
          left = std::move(right);
        }
        return Value(true);
      }
      case ExprKind::kConditional:
        if (is_true(part(1))) return part(0);
        return e.parts[2] ? part(2) : Value::undefined("the condition has no else");
    }
    return {};
  }

  static bool compare(std::string_view op, const Value& a, const Value& b) {
    if (op == "==") return equal(a, b);
    if (op == "!=") return !equal(a, b);
    if (op == "in") return contains(b, a);
    if (op == "not in") return !contains(b, a);
    if (op == "<") return less(a, b);
    if (op == ">") return less(b, a);
    double x = 0, y = 0;
    if (a.is_number(x) && b.is_number(y)) return op == "<=" ? x <= y : x >= y;
    return op == "<=" ? !less(b, a) : !less(a, b);
  }

  Value binary(std::string_view op, const Value& a, const Value& b) {
    if (op == "~") return made(to_text(a) + to_text(b));
    for (const Value* v : {&a, &b})
      if (v->is_undefined()) throw Error(std::get<Undefined>(v->data()).name);
    int64_t i = 0, j = 0;
    if (a.is_integer(i) && b.is_integer(j)) return of_integers(op, i, j);
    double x = 0, y = 0;
    if (a.is_number(x) && b.is_number(y)) return of_floats(op, x, y);
    if (op == "+" && a.string() && b.string()) return made(*a.string() + *b.string());
    if (op == "+" && a.list() && b.list()) {
      List both = *a.list();
      both.insert(both.end(), b.list()->begin(), b.list()->end());
      steps_ += static_cast<int64_t>(both.size());
      return Value(std::move(both));
    }
    if (op == "*" && (a.string() || b.string()) && (a.is_integer(i) || b.is_integer(i))) {
      const std::string& text = a.string() ? *a.string() : *b.string();
      std::string out;
      if (i > 0 &&
          text.size() * static_cast<size_t>(std::min<int64_t>(i, 1 << 30)) > limits_.output_bytes)
        throw Error("the template writes too much");
      for (int64_t k = 0; k < i; ++k) out += text;
      return made(std::move(out));
    }
    if (op == "%" && a.string()) throw Error("formatting by % is not supported");
    throw Error(fmt::format("operator {} takes no values of types {} and {}", op, type_name(a),
                            type_name(b)));
  }

  static Value of_integers(std::string_view op, int64_t i, int64_t j) {
    int64_t result = 0;
    const auto checked = [&](bool overflow) {
      if (overflow) throw Error("an integer is too large");
      return Value(result);
    };
    if (op == "+") return checked(__builtin_add_overflow(i, j, &result));
    if (op == "-") return checked(__builtin_sub_overflow(i, j, &result));
    if (op == "*") return checked(__builtin_mul_overflow(i, j, &result));
    if (op == "**" && j >= 0) {
      result = 1;
      for (int64_t k = 0; k < j; ++k) {
        if (i == 0 || i == 1) return Value(j == 0 ? int64_t{1} : i);
        if (i == -1) return Value(int64_t{j % 2 == 0 ? 1 : -1});
        if (__builtin_mul_overflow(result, i, &result)) throw Error("an integer is too large");
      }
      return Value(result);
    }
    if (op == "**") return of_floats(op, static_cast<double>(i), static_cast<double>(j));
    if (j == 0) throw Error("division by zero");
    if (op == "/") return Value(static_cast<double>(i) / static_cast<double>(j));
    if (j == -1) {  // The least integer divided by -1 overflows.
      if (op == "%") return Value(0);
      return checked(__builtin_sub_overflow(int64_t{0}, i, &result));
    }
    const int64_t rest = i % j != 0 && (i < 0) != (j < 0) ? i % j + j : i % j;
    return Value(op == "%" ? rest : (i - rest) / j);
  }
  static Value of_floats(std::string_view op, double x, double y) {
    if (op == "+") return Value(x + y);
    if (op == "-") return Value(x - y);
    if (op == "*") return Value(x * y);
    if (op == "**") return Value(std::pow(x, y));
    if (y == 0) throw Error("division by zero");
    if (op == "/") return Value(x / y);
    const double floor = std::floor(x / y);
    return Value(op == "//" ? floor : x - floor * y);
  }

  Value slice(const Expr& e, Scope& scope) {
    const Value value = evaluate(*e.parts[0], scope);
    const List items = elements(value);
    const auto n = static_cast<int64_t>(items.size());
    const auto part = [&](size_t i, int64_t otherwise) {
      if (!e.parts[i]) return otherwise;
      const Value v = evaluate(*e.parts[i], scope);
      int64_t number = 0;
      if (v.is_none()) return otherwise;
      if (!v.is_integer(number)) throw Error("expected integers in a slice");
      return number;
    };
    const int64_t stride = part(3, 1);
    if (stride == 0) throw Error("a slice cannot have a step of 0");
    const auto clamp = [&](int64_t i) {
      if (i < 0) i += n;
      return std::clamp<int64_t>(i, stride > 0 ? 0 : -1, stride > 0 ? n : n - 1);
    };
    const int64_t begin =
        e.parts[1] ? clamp(part(1, stride > 0 ? 0 : n - 1)) : (stride > 0 ? 0 : n - 1);
    const int64_t end =
        e.parts[2] ? clamp(part(2, stride > 0 ? n : -n - 1)) : (stride > 0 ? n : -1);
    List out;
    for (int64_t i = begin; stride > 0 ? i < end : i > end; i += stride)
      out.push_back(items[static_cast<size_t>(i)]);
    if (!value.string())
      return value.is_tuple() ? Value::tuple(std::move(out)) : Value(std::move(out));
    std::string text;
    for (const Value& v : out) text += *v.string();
    return made(std::move(text));
  }

  Limits limits_;
  Scope globals_;
  Value caller_;
  int64_t steps_ = 0;
  size_t bytes_ = 0;
  int depth_ = 0;
};

}  // namespace

std::string render(const Block& block, Dict globals, const Limits& limits) {
  return Renderer(std::move(globals), limits).run(block);
}

const Value* argument(const Arguments& arguments, size_t position, std::string_view name) {
  if (position < arguments.positional.size()) return &arguments.positional[position];
  return find(arguments.named, name);
}

int64_t integer_argument(const Arguments& arguments, size_t position, std::string_view name,
                         int64_t otherwise) {
  const Value* value = argument(arguments, position, name);
  if (!value || value->is_none()) return otherwise;
  int64_t number = 0;
  if (!value->is_integer(number))
    throw Error(fmt::format("expected an integer for {}, got {}", name, type_name(*value)));
  return number;
}

Value item_of(const Value& value, const Value& key) {
  int64_t index = 0;
  if (const Dict* dict = value.dict()) {
    if (const Value* found = key.string() ? find(*dict, *key.string()) : nullptr) return *found;
  } else if (value.members() && key.string()) {
    if (const Value* found = find(value.members()->members, *key.string())) return *found;
  } else if ((value.list() || value.string()) && key.is_integer(index)) {
    const List items = value.list() ? List() : elements(value);
    const List& list = value.list() ? *value.list() : items;
    const auto n = static_cast<int64_t>(list.size());
    if (index < 0) index += n;
    if (index >= 0 && index < n) return list[static_cast<size_t>(index)];
    return Value::undefined("there is no such item");
  } else if (value.is_undefined()) {
    throw Error(std::get<Undefined>(value.data()).name);
  }
  if (key.string()) return method_of(value, *key.string());
  return Value::undefined(
      fmt::format("a value of type {} has no item {}", type_name(value), to_repr(key)));
}

Value attribute_of(const Value& value, const std::string& name) {
  if (value.is_undefined()) throw Error(std::get<Undefined>(value.data()).name);
  if (Value method = method_of(value, name); !method.is_undefined()) return method;
  if (const Dict* dict = value.dict()) {
    if (const Value* found = find(*dict, name)) return *found;
  } else if (value.members()) {
    if (const Value* found = find(value.members()->members, name)) return *found;
  }
  return Value::undefined(
      fmt::format("a value of type {} has no attribute '{}'", type_name(value), name));
}

}  // namespace stow::text::jinja
