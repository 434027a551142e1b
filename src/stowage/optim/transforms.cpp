#include "stowage/optim/transforms.h"

#include "stowage/api/reduce.h"
#include "stowage/base/inside.h"
#include "stowage/optim/internal.h"
#include "stowage/optim/moments.h"
#include "stowage/optim/wrappers.h"

namespace stow::optim {
namespace {

std::string mu_of(const std::string& path) {
  return "mu/" + path;
}
std::string nu_of(const std::string& path) {
  return "nu/" + path;
}

// A gradient in the dtype that its moment is computed in.
Array computed_with(const Array& gradient, const Moment& moment) {
  return moment.is_compact() ? gradient.astype(DType::kF32) : gradient;
}
// The bits by which the moments of a leaf are rounded, from the count of the state; none where they
// are kept whole.
Array bits_for(const Moment& moment, const OptState& state, const std::string& path,
               const Array& value) {
  if (!moment.is_compact()) return Array();
  return rounding_bits(rounding_salt(state.at("count"), path), value);
}

// rms and stddev, which differ in the first moment.
GradientTransformation scale_by_spread(const ScaleByRmsOptions& o, bool centered) {
  const auto init = [=](const Leaves& params) {
    OptState state;
    for (const Leaf& leaf : params) {
      if (centered) state[mu_of(leaf.path)] = moment_like(leaf.value);
      state[nu_of(leaf.path)] = moment_like(leaf.value, {}, o.initial_scale);
    }
    if (o.bias_correction) state["count"] = zero_count();
    return state;
  };
  const auto update = [=](Leaves& updates, OptState& state, const Leaves&) {
    Array count;
    if (o.bias_correction) count = state["count"] = increment(state["count"]);
    const auto corrected = [&](const Array& moment) {
      return o.bias_correction ? bias_correction(moment, o.decay, count) : moment;
    };
    for (Leaf& leaf : updates) {
      const Scope scope(leaf.path);
      Array& nu = state[nu_of(leaf.path)];
      nu = update_moment(square(leaf.value), nu, o.decay).astype(nu.dtype());
      Array spread = corrected(nu);
      if (centered) {
        Array& mu = state[mu_of(leaf.path)];
        mu = update_moment(leaf.value, mu, o.decay).astype(mu.dtype());
        spread = spread - square(corrected(mu));
      }
      leaf.value = leaf.value * (o.eps_in_sqrt ? rsqrt(spread + o.eps)
                                               : reciprocal(sqrt(spread) + o.eps));
    }
  };
  return {centered ? "stddev" : "rms", init, update};
}

}  // namespace

GradientTransformation clip(double max_delta) {
  return leafwise("clip", [=](const Array& u, const Array&) {
    return stow::clip(u, -max_delta, max_delta);
  });
}

GradientTransformation clip_by_global_norm(double max_norm) {
  return stateless("clip", [=](Leaves& updates, const Leaves&) {
    const Array factor = max_norm / maximum(global_norm(updates), max_norm);
    for (Leaf& leaf : updates) {
      const Scope scope(leaf.path);
      leaf.value = leaf.value * factor.astype(leaf.value.dtype());
    }
  });
}

GradientTransformation clip_by_block_rms(double threshold) {
  return leafwise("clip", [=](const Array& u, const Array&) {
    return u / maximum(sqrt(mean(square(u))) / threshold, 1.0);
  });
}

GradientTransformation add_decayed_weights(ScalarOrSchedule weight_decay, Mask mask) {
  if (!weight_decay.is_schedule()) {
    const double decay = weight_decay.value();
    if (decay == 0) return {};
    return masked(
        leafwise("weight_decay", [=](const Array& u, const Array& p) { return u + p * decay; }),
        std::move(mask));
  }
  const auto init = [](const Leaves&) { return OptState{{"count", zero_count()}}; };
  const auto update = [schedule = weight_decay.schedule()](Leaves& updates, OptState& state,
                                                           const Leaves& params) {
    Array& count = state["count"];
    const Array decay = schedule(count);
    for (size_t i = 0; i < updates.size(); ++i) {
      const Scope scope(updates[i].path);
      const Array& p = params[i].value;
      updates[i].value = updates[i].value + p * decay.astype(p.dtype());
    }
    count = increment(count);
  };
  return masked(GradientTransformation("weight_decay", init, update), std::move(mask));
}

GradientTransformation scale(double step_size) {
  return leafwise("scale", [=](const Array& u, const Array&) { return u * step_size; });
}

GradientTransformation scale_by_schedule(Schedule step_size) {
  const auto init = [](const Leaves&) { return OptState{{"count", zero_count()}}; };
  const auto update = [step_size = std::move(step_size)](Leaves& updates, OptState& state,
                                                         const Leaves&) {
    Array& count = state["count"];
    const Array factor = step_size(count);
    for (Leaf& leaf : updates) {
      const Scope scope(leaf.path);
      leaf.value = leaf.value * factor.astype(leaf.value.dtype());
    }
    count = increment(count);
  };
  return {"schedule", init, update};
}

GradientTransformation scale_by_learning_rate(ScalarOrSchedule learning_rate, bool flip_sign) {
  const double sign = flip_sign ? -1 : 1;
  if (!learning_rate.is_schedule()) return scale(sign * learning_rate.value());
  return scale_by_schedule([=, rate = learning_rate.schedule()](const Array& count) {
    return rate(count) * sign;
  });
}

GradientTransformation trace(double decay, const TraceOptions& o) {
  const Moment trace("trace", Moment::Range::kSigned, o.moments, o.accumulator_dtype);
  const auto init = [=](const Leaves& params) {
    OptState state;
    if (trace.is_compact()) state["count"] = zero_count();
    for (const Leaf& leaf : params) trace.init(state, leaf);
    return state;
  };
  const auto update = [=](Leaves& updates, OptState& state, const Leaves&) {
    if (trace.is_compact()) state["count"] = increment(state["count"]);
    for (Leaf& leaf : updates) {
      const Scope scope(leaf.path);
      const Moment::Parts kept = trace.parts(state, leaf.path);
      const Array g = computed_with(leaf.value, trace);
      const Array fresh = g + trace.read(kept) * decay;
      leaf.value = (o.nesterov ? g + fresh * decay : fresh);
      trace.set_parts(state, leaf.path,
                      trace.write(fresh, kept, bits_for(trace, state, leaf.path, fresh)));
    }
  };
  return {"trace", init, update};
}

GradientTransformation ema(double decay, const EmaOptions& o) {
  const auto init = [=](const Leaves& params) {
    OptState state = {{"count", zero_count()}};
    for (const Leaf& leaf : params)
      state["ema/" + leaf.path] = moment_like(leaf.value, o.accumulator_dtype);
    return state;
  };
  const auto update = [=](Leaves& updates, OptState& state, const Leaves&) {
    const Array count = state["count"] = increment(state["count"]);
    for (Leaf& leaf : updates) {
      const Scope scope(leaf.path);
      Array& kept = state["ema/" + leaf.path];
      const Array fresh = update_moment(leaf.value, kept, decay);
      leaf.value = o.debias ? bias_correction(fresh, decay, count) : fresh;
      kept = fresh.astype(kept.dtype());
    }
  };
  return {"ema", init, update};
}

GradientTransformation scale_by_adam(const ScaleByAdamOptions& o) {
  const Moment mu("mu", Moment::Range::kSigned, o.moments, o.mu_dtype);
  const Moment nu("nu", Moment::Range::kPositive, o.moments);
  const auto init = [=](const Leaves& params) {
    OptState state = {{"count", zero_count()}};
    for (const Leaf& leaf : params) {
      mu.init(state, leaf);
      nu.init(state, leaf);
    }
    return state;
  };
  const auto update = [=](Leaves& updates, OptState& state, const Leaves&) {
    const Array count = state["count"] = increment(state["count"]);
    for (Leaf& leaf : updates) {
      const Scope scope(leaf.path);
      const Moment::Parts old_mu = mu.parts(state, leaf.path), old_nu = nu.parts(state, leaf.path);
      const Array g = computed_with(leaf.value, mu);
      const Array m = update_moment(g, mu.read(old_mu), o.b1);
      const Array v = update_moment(square(g), nu.read(old_nu), o.b2);
      const Array m_hat =
          o.nesterov ? look_ahead(m, g, o.b1, count) : bias_correction(m, o.b1, count);
      const Array v_hat = bias_correction(v, o.b2, count);
      leaf.value = m_hat / (sqrt(o.eps_root == 0 ? v_hat : v_hat + o.eps_root) + o.eps);
      const Array bits = bits_for(mu, state, leaf.path, m);
      mu.set_parts(state, leaf.path, mu.write(m, old_mu, bits));
      nu.set_parts(state, leaf.path, nu.write(v, old_nu, bits));
    }
  };
  return {"adam", init, update};
}

GradientTransformation scale_by_lion(const ScaleByLionOptions& o) {
  const Moment mu("mu", Moment::Range::kSigned, o.moments, o.mu_dtype);
  const auto init = [=](const Leaves& params) {
    OptState state;
    if (mu.is_compact()) state["count"] = zero_count();
    for (const Leaf& leaf : params) mu.init(state, leaf);
    return state;
  };
  const auto update = [=](Leaves& updates, OptState& state, const Leaves&) {
    if (mu.is_compact()) state["count"] = increment(state["count"]);
    for (Leaf& leaf : updates) {
      const Scope scope(leaf.path);
      const Moment::Parts old = mu.parts(state, leaf.path);
      const Array g = computed_with(leaf.value, mu), kept = mu.read(old);
      const Array m = update_moment(g, kept, o.b2);
      const Moment::Parts next = mu.write(m, old, bits_for(mu, state, leaf.path, m));
      leaf.value = sign(update_moment(g, kept, o.b1));
      mu.set_parts(state, leaf.path, next);
    }
  };
  return {"lion", init, update};
}

GradientTransformation scale_by_rms(const ScaleByRmsOptions& options) {
  return scale_by_spread(options, false);
}

GradientTransformation scale_by_stddev(const ScaleByRmsOptions& options) {
  return scale_by_spread(options, true);
}

GradientTransformation scale_by_param_block_rms(double min_scale) {
  return leafwise("param_rms", [=](const Array& u, const Array& p) {
    return u * maximum(sqrt(mean(square(p))), min_scale);
  });
}

GradientTransformation set_to_zero() {
  return stateless("freeze", [](Leaves& updates, const Leaves&) {
    for (Leaf& leaf : updates) leaf.value = Array();
  });
}

}  // namespace stow::optim
