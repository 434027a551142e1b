#include "stowage/optim/transformation.h"

#include <algorithm>
#include <set>

#include "stowage/api/math.h"
#include "stowage/api/reduce.h"
#include "stowage/api/shaping.h"
#include "stowage/api/trace.h"

namespace stow::optim {
namespace {

// The entries of `state` under "name/", without that.
OptState take_under(OptState& state, const std::string& name) {
  const std::string prefix = name + "/";
  OptState under;
  for (auto it = state.lower_bound(prefix); it != state.end() && it->first.starts_with(prefix);) {
    under.emplace(it->first.substr(prefix.size()), std::move(it->second));
    it = state.erase(it);
  }
  return under;
}

void put_under(OptState& state, const std::string& name, OptState under) {
  for (auto& [key, value] : under) state.emplace(name + "/" + key, std::move(value));
}

// The types of these leaves, to compare a state with.
Leaves abstract_of(const Leaves& leaves) {
  Leaves result;
  for (const Leaf& leaf : leaves) result.push_back({leaf.path, Array::abstract(leaf.value.type())});
  return result;
}

void check_state(const OptState& given, const OptState& expected) {
  for (const auto& [name, array] : expected) {
    const auto found = given.find(name);
    if (found == given.end())
      trace_error_here(
          "[update] expected '{}' in the state, got none: it is of another optimizer or other "
          "parameters",
          name);
    if (found->second.empty())
      trace_error_here("[update] the state's '{}' is an empty Array", name);
    ArrayType there = array.type();
    there.kind = found->second.type().kind;
    if (found->second.type() == there && there.kind != array.type().kind)
      trace_error_here(
          "[update] the state's '{}' lies on {}, expected it on {}: move the state there with "
          "device_put before the update, and its result back",
          name, memory_kind_name(there.kind),
          memory_kind_name(array.type().kind));
    if (!(found->second.type() == array.type()))
      trace_error_here(
          "[update] expected the state's '{}' to be {}, got {}: it is of other parameters", name,
          to_string(array.type()), to_string(found->second.type()));
  }
  for (const auto& [name, array] : given)
    if (!expected.contains(name))
      trace_error_here(
          "[update] the state has '{}', which this optimizer does not keep; make the state with "
          "its init()",
          name);
}

}  // namespace

GradientTransformation::GradientTransformation(std::string name, Init init, Update update) {
  parts_.push_back({std::move(name), std::move(init), std::move(update)});
}

Leaves GradientTransformation::leaves_of_ref(const TreeRef& tree) {
  const std::vector<Array> arrays = leaves_of(tree);
  const std::vector<std::string> paths = paths_of(tree);
  Leaves leaves;
  for (size_t i = 0; i < arrays.size(); ++i) leaves.push_back({paths[i], arrays[i]});
  return leaves;
}

void GradientTransformation::append(const GradientTransformation& other) {
  std::set<std::string> names;
  for (const Part& part : parts_) names.insert(part.name);
  for (Part part : other.parts_) {
    const std::string base = part.name.substr(0, part.name.find_last_not_of("0123456789") + 1);
    const std::string stem = base.ends_with('_') ? base.substr(0, base.size() - 1) : part.name;
    for (int n = 2; names.contains(part.name); ++n) part.name = fmt::format("{}_{}", stem, n);
    names.insert(part.name);
    parts_.push_back(std::move(part));
  }
}

OptState GradientTransformation::init_leaves(const Leaves& params, SourceLocation at) const {
  const CallSiteScope site(at);
  for (const Leaf& leaf : params)
    if (leaf.value.empty()) trace_error_here("[init] parameter '{}' is an empty Array", leaf.path);
  OptState state;
  for (const Part& part : parts_) put_under(state, part.name, part.init(params));
  return state;
}

std::vector<Array> GradientTransformation::update_leaves(Leaves updates, OptState& state,
                                                         const Leaves& params,
                                                         SourceLocation at) const {
  const CallSiteScope site(at);
  check_state(state, init_leaves(abstract_of(params), at));
  for (size_t i = 0; i < updates.size(); ++i)
    if (!updates[i].value.empty() && updates[i].value.shape() != params[i].value.shape())
      trace_error_here("[update] expected an update of the shape of {} for '{}', got {}",
                       to_string(params[i].value.type()), params[i].path,
                       to_string(updates[i].value.type()));
  OptState next;
  for (const Part& part : parts_) {
    const Scope scope(part.name);
    OptState own = take_under(state, part.name);
    Leaves present, present_params;
    for (size_t i = 0; i < updates.size(); ++i) {
      if (updates[i].value.empty()) continue;
      present.push_back(updates[i]);
      present_params.push_back(params[i]);
    }
    part.update(present, own, present_params);
    size_t n = 0;
    for (Leaf& update : updates)
      if (!update.value.empty()) update.value = present[n++].value;
    put_under(next, part.name, std::move(own));
  }
  state = std::move(next);
  std::vector<Array> result;
  for (const Leaf& update : updates) result.push_back(update.value);
  return result;
}

GradientTransformation chain(std::vector<GradientTransformation> transformations) {
  GradientTransformation all;
  for (const GradientTransformation& t : transformations) all.append(t);
  return all;
}

void NestedTransformation::update(Leaves& updates, OptState& state, const Leaves& params) const {
  const std::vector<Array> results = inner_.update_leaves(updates, state, params, {});
  for (size_t i = 0; i < updates.size(); ++i) updates[i].value = results[i];
}

std::vector<Array> apply_updates(const Leaves& params, const Leaves& updates, SourceLocation at) {
  const CallSiteScope site(at);
  const Scope scope("apply_updates");
  std::vector<Array> results;
  for (size_t i = 0; i < params.size(); ++i) {
    const Array &p = params[i].value, &u = updates[i].value;
    const Scope leaf(params[i].path);
    if (!u.empty() && u.shape() != p.shape())
      trace_error_here("[apply_updates] expected an update of the shape of {} for '{}', got {}",
                       to_string(p.type()), params[i].path, to_string(u.type()));
    results.push_back(u.empty() ? p : (p + u).astype(p.dtype()));
  }
  return results;
}

Array global_norm(const Leaves& leaves) {
  const Scope scope("global_norm");
  const bool f64 = !leaves.empty() && std::all_of(leaves.begin(), leaves.end(), [](const Leaf& l) {
    return l.value.empty() || l.value.dtype() == DType::kF64;
  });
  const DType dtype = f64 ? DType::kF64 : DType::kF32;
  Array total;
  for (const Leaf& leaf : leaves) {
    if (leaf.value.empty()) continue;
    const Array part = sum(square(leaf.value.astype(dtype)));
    total = total.empty() ? part : total + part;
  }
  return total.empty() ? zeros({}, dtype) : sqrt(total);
}

}  // namespace stow::optim
