#include "stowage/optim/wrappers.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "stowage/api/control.h"
#include "stowage/api/reduce.h"
#include "stowage/api/trace.h"
#include "stowage/optim/internal.h"
#include "stowage/optim/transforms.h"

namespace stow::optim {
namespace {

// The entries of `state` with these names or under "acc/", taken out of it.
OptState take_own(OptState& state, std::initializer_list<const char*> names) {
  OptState own;
  for (const char* name : names) own.insert(state.extract(name));
  for (auto it = state.lower_bound("acc/"); it != state.end() && it->first.starts_with("acc/");)
    own.insert(state.extract(it++));
  return own;
}

// The update of `nested` where `accept` holds; else updates of zero and the state as it was, and
// then nothing of the nested work is done.
void update_if(const Array& accept, const NestedTransformation& nested, Leaves& updates,
               OptState& state, const Leaves& params) {
  using Updated = std::pair<std::vector<Array>, OptState>;
  std::vector<Array> given;
  for (const Leaf& leaf : updates) given.push_back(leaf.value);
  // The first trace of the update shows its types. An update that leaves a parameter alone is an
  // empty array, which no branch can return.
  std::vector<Array> like(updates.size());
  const auto update = [&](const std::vector<Array>& values, const OptState& before) {
    Leaves leaves = updates;
    for (size_t i = 0; i < leaves.size(); ++i) leaves[i].value = values[i];
    Updated result{{}, before};
    nested.update(leaves, result.second, params);
    for (size_t i = 0; i < leaves.size(); ++i) {
      if (!leaves[i].value.empty()) like[i] = Array::abstract(leaves[i].value.type());
      result.first.push_back(leaves[i].value.empty() ? zeros_like(values[i]) : leaves[i].value);
    }
    return result;
  };
  const auto leave = [&](const std::vector<Array>& values, const OptState& before) {
    Updated result{{}, before};
    for (size_t i = 0; i < values.size(); ++i)
      result.first.push_back(
          zeros(values[i].shape(), like[i].empty() ? values[i].dtype() : like[i].dtype()));
    return result;
  };
  const Updated updated = cond(logical_not(accept), leave, update, given, state);
  for (size_t i = 0; i < updates.size(); ++i)
    updates[i].value = like[i].empty() ? Array() : updated.first[i];
  state = updated.second;
}

}  // namespace

GradientTransformation masked(const GradientTransformation& inner, Mask mask) {
  if (!mask.given()) return inner;
  GradientTransformation result;
  for (const GradientTransformation::Part& part : inner.parts_) {
    const auto init = [=, what = "[" + part.name + "] the mask's"](const Leaves& params) {
      mask.check(params, what);
      Leaves meant;
      std::copy_if(params.begin(), params.end(), std::back_inserter(meant), mask);
      return part.init(meant);
    };
    const auto update = [=](Leaves& updates, OptState& state, const Leaves& params) {
      Leaves meant, meant_params;
      std::vector<size_t> places;
      for (size_t i = 0; i < params.size(); ++i) {
        if (!mask(params[i])) continue;
        places.push_back(i);
        meant.push_back(updates[i]);
        meant_params.push_back(params[i]);
      }
      part.update(meant, state, meant_params);
      for (size_t i = 0; i < places.size(); ++i) updates[places[i]].value = meant[i].value;
    };
    result.append(GradientTransformation(part.name, init, update));
  }
  return result;
}

GradientTransformation freeze(Mask mask) {
  return masked(set_to_zero(), std::move(mask));
}

GradientTransformation selective_transform(const GradientTransformation& optimizer,
                                           Mask freeze_mask) {
  return chain(freeze(freeze_mask), masked(optimizer, !freeze_mask));
}

GradientTransformation partition(
    const std::vector<std::pair<std::string, GradientTransformation>>& transformations,
    std::function<std::string(const std::string& path, const Array& param)> label) {
  std::vector<std::string> labels;
  for (const auto& [name, inner] : transformations) labels.push_back(name);
  // Asked for each leaf by each part: a mask that also refuses labels that nobody has.
  const auto labelled = [=](const std::string& wanted) {
    return Mask([=](const std::string& path, const Array& param) {
      const std::string name = label(path, param);
      if (std::find(labels.begin(), labels.end(), name) == labels.end())
        trace_error_here(
            "[partition] expected the label of a transformation, '{}', got '{}' for '{}'",
            fmt::join(labels, "' or '"), name, path);
      return name == wanted;
    });
  };
  std::vector<GradientTransformation> parts;
  for (const auto& [name, inner] : transformations) parts.push_back(masked(inner, labelled(name)));
  return chain(parts);
}

GradientTransformation multi_steps(const GradientTransformation& inner, int64_t k,
                                   bool use_grad_mean) {
  if (k <= 0) trace_error("[multi_steps] expected a positive k, got {}", k);
  const NestedTransformation nested(inner);
  const auto init = [=](const Leaves& params) {
    OptState state = {{"mini_step", zero_count()}, {"gradient_step", zero_count()}};
    for (const Leaf& leaf : params)
      state["acc/" + leaf.path] = moment_like(leaf.value, DType::kF32);
    state.merge(nested.init(params));
    return state;
  };
  const auto update = [=](Leaves& updates, OptState& state, const Leaves& params) {
    OptState own = take_own(state, {"mini_step", "gradient_step"});
    const Array mini_step = own["mini_step"];
    const Array emit = mini_step == k - 1;
    for (Leaf& leaf : updates) {
      const Scope scope(leaf.path);
      Array& acc = own["acc/" + leaf.path];
      const Array total = use_grad_mean
                              ? acc + (leaf.value - acc) / (mini_step.astype(DType::kF32) + 1.0)
                              : acc + leaf.value;
      acc = where(emit, 0.0, total).astype(acc.dtype());
      leaf.value = total.astype(leaf.value.dtype());
    }
    update_if(emit, nested, updates, state, params);
    own["mini_step"] = (mini_step + 1) % k;
    own["gradient_step"] =
        where(emit, increment(own["gradient_step"]), own["gradient_step"]);
    state.merge(own);
  };
  return {"multi_steps", init, update};
}

GradientTransformation apply_if_finite(const GradientTransformation& inner,
                                       int64_t max_consecutive_errors) {
  const NestedTransformation nested(inner);
  const auto init = [=](const Leaves& params) {
    OptState state = {{"notfinite_count", zero_count()},
                      {"last_finite", Array::scalar(true, DType::kBool)},
                      {"total_notfinite", zero_count()}};
    state.merge(nested.init(params));
    return state;
  };
  const auto update = [=](Leaves& updates, OptState& state, const Leaves& params) {
    OptState own = take_own(state, {"notfinite_count", "last_finite", "total_notfinite"});
    Array finite = Array::scalar(true, DType::kBool);
    for (const Leaf& leaf : updates) {
      const Scope scope(leaf.path);
      finite = logical_and(finite, all(isfinite(leaf.value)));
    }
    Array &count = own["notfinite_count"], &total = own["total_notfinite"];
    count = where(finite, 0, increment(count));
    total = where(finite, total, increment(total));
    own["last_finite"] = finite;
    const Array accept = logical_or(finite, count > max_consecutive_errors);
    update_if(accept, nested, updates, state, params);
    state.merge(own);
  };
  return {"apply_if_finite", init, update};
}

}  // namespace stow::optim
