// The two programs of JAX's tutorial on host offloading, as functions over arrays.
// Not their measurement: host_offload.cpp prints what they need, `./stowage bench` checks it.
#pragma once

#include <stowage/stowage.h>

#include <cmath>
#include <map>
#include <string>
#include <vector>

namespace host_offload {

using namespace stow;

// ---- Program 1: ten layers of two products, scanned ----

struct Layers {
  Array w1;  // [L, D, H]
  Array w2;  // [L, H, D]
};
STOW_TREE(Layers, w1, w2);

/// What of the device a program may take. Where there is room, moves run ahead of their use.
inline JitOptions within(double budget_bytes, JitOptions options = {}) {
  options.compile.capacities[0] = static_cast<int64_t>(budget_bytes);
  return options;
}

/// Where the layers' inputs wait for the backward pass, where the weights lie and where their
/// gradients go; and a budget for the device.
struct Placement1 {
  std::string row;
  double budget_mib;
  MemoryKind activations = MemoryKind::kDevice, weights = MemoryKind::kDevice,
             gradients = MemoryKind::kDevice;
};
inline std::vector<Placement1> placements1() {
  constexpr MemoryKind host = MemoryKind::kPinnedHost, disk = MemoryKind::kDisk;
  return {{"save_all", 44.5},
          {"offload_x", 42.5, host},
          {"offload_x_w", 23.5, host, host},
          {"offload_x_w_g", 4.5, host, host, host},
          {"disk", 4.5, disk, disk, disk}};
}

/// The gradients of sum(x w1[0] w2[0] w1[1] …) for the weights.
inline Layers layer_gradients(const Layers& weights, const Array& input, const Placement1& at) {
  const PolicyPtr policy = at.activations == MemoryKind::kDevice
                               ? everything_saveable()
                               : save_and_offload_only_these_names({}, {"x"}, at.activations);
  const auto layer = checkpoint(
      [](const Array& carry, const Layers& slices) {
        const Layers w = device_put(slices, MemoryKind::kDevice);  // nothing where they are there
        const Array x = checkpoint_name(carry, "x");
        return matmul(matmul(x, w.w1), w.w2);
      },
      policy);
  const auto loss = [&](const Layers& w) { return sum(scan(layer, input, w)); };
  // A gradient lies where its parameter lies; device_put moves what shall lie elsewhere.
  return device_put(grad(loss)(weights), at.gradients);
}

// ---- Program 2: four layers of gelu, trained by Adam with clipping ----

using Parameters = std::map<std::string, Array>;  // "w1" to "w4", [n, n] each

/// The budget is in matrices: nineteen are the least with everything on the device.
struct Placement2 {
  std::string row;
  double budget_matrices;
  MemoryKind moments = MemoryKind::kDevice, params = MemoryKind::kDevice,
             activations = MemoryKind::kDevice;
};
inline std::vector<Placement2> placements2() {
  constexpr MemoryKind device = MemoryKind::kDevice, host = MemoryKind::kPinnedHost;
  return {{"device", 19.3},
          {"adam_host", 11.4, host},
          {"adam_host_params_host", 7.3, host, host},
          {"all_host", 5.2, host, host, host},
          {"adam_disk", 11.4, MemoryKind::kDisk, device, device}};
}

inline Array gelu(const Array& x) {
  return 0.5 * x * (1.0 + tanh(std::sqrt(2.0 / M_PI) * (x + 0.044715 * (x * x * x))));
}

/// mean((f(inputs) - inputs)^2) + 0.001 * the sum of all squared weights.
inline Array reconstruction_loss(const Parameters& params, const Array& inputs, const Placement2& at) {
  // What a product makes is kept, here or in another memory; gelu is computed again.
  const PolicyPtr policy = at.activations == MemoryKind::kDevice
                               ? dots_saveable()
                               : offload_dot_with_no_batch_dims(at.activations);
  const auto forward = checkpoint(
      [](const Parameters& weights, Array x) {
        for (const auto& [name, w] : weights) x = gelu(matmul(x, device_put(w, MemoryKind::kDevice)));
        return x;
      },
      policy);
  const Array x = device_put(inputs, MemoryKind::kDevice);
  Array l2 = 0.0;
  for (const auto& [name, w] : params) l2 = l2 + sum(square(device_put(w, MemoryKind::kDevice)));
  return mean(square(forward(params, x) - x)) + 0.001 * l2;
}

inline optim::GradientTransformation optimizer() {
  return optim::chain(optim::clip_by_global_norm(1.0), optim::adam(0.1));
}

/// One step: the new parameters and the new state, each where the old one lies.
inline std::pair<Parameters, optim::OptState> train_step(const Parameters& params,
                                                     const optim::OptState& state,
                                                     const Array& inputs, const Placement2& at) {
  const auto loss = [&](const Parameters& p) { return reconstruction_loss(p, inputs, at); };
  const Parameters gradients = grad(loss)(params);
  // Arithmetic is done on the device. Written on whole arrays, run tile by tile.
  const Parameters here = device_put(params, MemoryKind::kDevice);
  const auto [updates, next] = optimizer().update(device_put(gradients, MemoryKind::kDevice),
                                                  device_put(state, MemoryKind::kDevice), here);
  return {device_put(optim::apply_updates(here, updates), at.params),
          device_put(next, at.moments)};
}

// ---- Both programs over a mesh: parameters, gradients and moments wait on the host, in parts ----

using sharding::Mesh;
using sharding::P;

/// How a weight is cut over a mesh of "data" and "model": both axes cut it, so that each device has a part
/// of it. Products gather it over "data"; over "model" they share their work. `n_stacked`: leading axes.
inline NamedSharding weight_sharding(const Mesh& mesh, std::string_view path, int n_stacked = 0) {
  const bool is_up = path.ends_with('1') || path.ends_with('3');  // "w1"; the other kind turns it back
  std::vector<P::Axes> axes(static_cast<size_t>(n_stacked), nullptr);
  axes.push_back(is_up ? "data" : "model");
  axes.push_back(is_up ? "model" : "data");
  return NamedSharding(mesh, P(std::move(axes)), "pinned_host");
}

/// A leaf of the parameters or of the optimizer's state, on the host; numbers on every device.
inline Array on_host(const Mesh& mesh, const std::string& path, const Array& leaf) {
  return device_put(leaf, leaf.rank() == 0 ? NamedSharding(mesh, P()) : weight_sharding(mesh, path));
}
template <typename Leaves>  // a map by path
Leaves on_host(const Mesh& mesh, Leaves leaves) {
  for (auto& [path, leaf] : leaves) leaf = on_host(mesh, path, leaf);
  return leaves;
}

/// Bytes of a device that program 2 takes over a mesh, but for some KiB. Of n x n matrices:
///   inputs       1 / data            rows are cut over "data"
///   products     2 / data            of w2 and w4, which kept work reads whole along "model"
///                2 / (data model)    of w1 and w3
///   activation   1 / (data model)
///   weight       1 / model           gathered over "data", or its gradient before it is scattered
inline double formula2_bytes(int64_t n, int64_t data, int64_t model) {
  const auto d = static_cast<double>(data), m = static_cast<double>(model);
  return 4.0 * static_cast<double>(n * n) * (3 / d + 3 / (d * m) + 1 / m);
}
/// The same of program 1, beside its kernels' scratch: rows of x, its product with w1, w1 itself.
inline double formula1_bytes(int64_t data, int64_t model) {
  const auto d = static_cast<double>(data), m = static_cast<double>(model);
  return static_cast<double>(1 << 20) * (1 / d + 1 / (d * m) + 1 / m);
}

/// layer_gradients() with weights and gradients in parts on the host.
inline Layers layer_gradients_over(const Mesh& mesh, const Layers& weights, const Array& input) {
  constexpr MemoryKind host = MemoryKind::kPinnedHost;
  const Layers g = layer_gradients(weights, input, {"", 0, host, host, host});
  return {device_put(g.w1, weight_sharding(mesh, "w1", 1)),
          device_put(g.w2, weight_sharding(mesh, "w2", 1))};
}

/// train_step() with parameters and state in parts on the host.
inline std::pair<Parameters, optim::OptState> train_step_over(const Mesh& mesh,
                                                              const Parameters& params,
                                                              const optim::OptState& state,
                                                              const Array& inputs) {
  constexpr MemoryKind host = MemoryKind::kPinnedHost;
  auto [next, kept] = train_step(params, state, inputs, {"", 0, host, host});
  return {on_host(mesh, std::move(next)), on_host(mesh, std::move(kept))};
}

}  // namespace host_offload
