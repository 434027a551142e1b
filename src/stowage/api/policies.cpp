#include "stowage/api/policies.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <optional>

#include "stowage/api/trace.h"
#include "stowage/ir/graph.h"
#include "stowage/ir/policy_wants.h"

namespace stow {
namespace {

using Names = std::vector<std::string>;

constexpr PolicyAnswer kKeepIt{Mark::kKeep, MemoryKind::kDevice};
constexpr PolicyAnswer kRecomputeIt{Mark::kRecompute, MemoryKind::kDevice};

PolicyAnswer keep_if(bool condition) {
  return condition ? kKeepIt : kRecomputeIt;
}

bool contains(const Names& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

PolicyPtr make(std::string name, std::function<PolicyAnswer(const PolicyQuery&)> decide,
               Names wanted = {}) {
  return std::make_shared<const Policy>(
      Policy{std::move(name), std::move(decide), std::move(wanted)});
}

std::string called(std::string_view function, const Names& names) {
  return fmt::format("{}({})", function, fmt::join(names, ", "));
}

}  // namespace

PolicyPtr everything_saveable() {
  static const PolicyPtr policy =
      make("everything_saveable", [](const PolicyQuery&) { return kKeepIt; });
  return policy;
}

PolicyPtr nothing_saveable() {
  static const PolicyPtr policy =
      make("nothing_saveable", [](const PolicyQuery&) { return kRecomputeIt; });
  return policy;
}

PolicyPtr dots_saveable() {
  static const PolicyPtr policy = make("dots_saveable", [](const PolicyQuery& query) {
    return keep_if(query.op == OpKind::kDotGeneral || query.op == OpKind::kConvolution);
  });
  return policy;
}

PolicyPtr dots_with_no_batch_dims_saveable() {
  static const PolicyPtr policy =
      make("dots_with_no_batch_dims_saveable",
           [](const PolicyQuery& query) { return keep_if(is_plain_product(*query.node)); });
  return policy;
}

PolicyPtr offload_dot_with_no_batch_dims(MemoryKind destination) {
  return make(
      fmt::format("offload_dot_with_no_batch_dims({})", memory_kind_name(destination)),
      [destination](const PolicyQuery& query) {
        return is_plain_product(*query.node) ? PolicyAnswer{Mark::kOffload, destination}
                                             : kRecomputeIt;
      },
      {std::string(kWantsPlainProduct)});
}

PolicyPtr save_only_these_names(Names names) {
  return make(
      called("save_only_these_names", names),
      [names](const PolicyQuery& query) {
        return keep_if(query.op == OpKind::kName && contains(names, query.name));
      },
      names);
}

PolicyPtr save_any_names_but_these(Names names) {
  return make(
      called("save_any_names_but_these", names),
      [names](const PolicyQuery& query) {
        return keep_if(query.op == OpKind::kName && !contains(names, query.name));
      },
      names);
}

PolicyPtr save_anything_except_these_names(Names names) {
  return make(
      called("save_anything_except_these_names", names),
      [names](const PolicyQuery& query) {
        const auto refused = [&](std::string_view name) { return contains(names, name); };
        return keep_if(!refused(query.name) &&
                       std::none_of(query.twins.begin(), query.twins.end(), refused));
      },
      names);
}

PolicyPtr save_and_offload_only_these_names(Names saved, Names offloaded, MemoryKind destination,
                                            SourceLocation at) {
  const CallSiteScope site(at);
  for (const std::string& name : saved)
    if (contains(offloaded, name))
      trace_error_here("[save_and_offload_only_these_names] '{}' is both saved and offloaded",
                       name);
  Names wanted = saved;
  wanted.insert(wanted.end(), offloaded.begin(), offloaded.end());
  return make(
      fmt::format("save_and_offload_only_these_names([{}], [{}], {})", fmt::join(saved, ", "),
                  fmt::join(offloaded, ", "), memory_kind_name(destination)),
      [saved, offloaded, destination](const PolicyQuery& query) {
        if (query.op != OpKind::kName) return kRecomputeIt;
        if (contains(offloaded, query.name)) return PolicyAnswer{Mark::kOffload, destination};
        return keep_if(contains(saved, query.name));
      },
      wanted);
}

PolicyPtr save_from_both_policies(PolicyPtr a, PolicyPtr b) {
  if (!a) a = nothing_saveable();
  if (!b) b = nothing_saveable();
  Names wanted = a->wanted_names;
  wanted.insert(wanted.end(), b->wanted_names.begin(), b->wanted_names.end());
  const std::string name = fmt::format("save_from_both_policies({}, {})", a->name, b->name);
  return make(
      name,
      [a, b](const PolicyQuery& query) {
        const PolicyAnswer x = a->decide(query), y = b->decide(query);
        if (x.mark == Mark::kKeep || y.mark == Mark::kKeep) return kKeepIt;
        return x.mark == Mark::kOffload ? x : y;
      },
      wanted);
}

PolicyPtr custom_policy(std::string name, std::function<PolicyAnswer(const PolicyQuery&)> decide,
                        SourceLocation at) {
  const CallSiteScope site(at);
  if (!decide)
    trace_error_here("[custom_policy] expected a function that decides, got none for '{}'", name);
  return make(std::move(name), std::move(decide));
}

namespace {

// Splits a list at its commas, except those within brackets.
Names items(std::string_view list) {
  Names result;
  int depth = 0;
  size_t begin = 0;
  for (size_t i = 0; i < list.size(); ++i) {
    depth += list[i] == '(' || list[i] == '[' ? 1 : list[i] == ')' || list[i] == ']' ? -1 : 0;
    if (depth > 0 || !list.substr(i).starts_with(", ")) continue;
    result.emplace_back(list.substr(begin, i - begin));
    begin = i + 2;
  }
  if (!list.empty()) result.emplace_back(list.substr(begin));
  return result;
}
Names bracketed(std::string_view list) {
  return list.size() < 2 ? Names() : items(list.substr(1, list.size() - 2));
}

// The policy that a function of this name makes of these arguments; null for any other function.
PolicyPtr policy_of(std::string_view function, const Names& arguments) {
  const size_t n = arguments.size();
  if (function == "save_only_these_names") return save_only_these_names(arguments);
  if (function == "save_any_names_but_these") return save_any_names_but_these(arguments);
  if (function == "save_anything_except_these_names")
    return save_anything_except_these_names(arguments);
  if (function == "save_from_both_policies" && n == 2) {
    const PolicyPtr a = policy_by_name(arguments[0]), b = policy_by_name(arguments[1]);
    return a && b ? save_from_both_policies(a, b) : nullptr;
  }
  const std::optional<MemoryKind> to = parse_memory_kind(n > 0 ? arguments.back() : std::string());
  if (function == "offload_dot_with_no_batch_dims" && n == 1 && to)
    return offload_dot_with_no_batch_dims(*to);
  if (function == "save_and_offload_only_these_names" && n == 3 && to) {
    const Names saved = bracketed(arguments[0]), offloaded = bracketed(arguments[1]);
    const auto is_saved = [&](const std::string& name) { return contains(saved, name); };
    if (std::none_of(offloaded.begin(), offloaded.end(), is_saved))
      return save_and_offload_only_these_names(saved, offloaded, *to);
  }
  return nullptr;
}

}  // namespace

PolicyPtr policy_by_name(std::string_view name) {
  using Plain = PolicyPtr (*)();
  for (const Plain policy :
       {&everything_saveable, &nothing_saveable, &dots_saveable, &dots_with_no_batch_dims_saveable})
    if (policy()->name == name) return policy();
  const size_t open = name.find('(');
  if (open == std::string_view::npos || !name.ends_with(')')) return nullptr;
  const PolicyPtr made =
      policy_of(name.substr(0, open), items(name.substr(open + 1, name.size() - open - 2)));
  return made && made->name == name ? made : nullptr;
}

}  // namespace stow
