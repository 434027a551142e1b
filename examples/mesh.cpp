// An MLP trained over a mesh: parameters cut over "data" and "model", the optimizer's moments on
// the host. Prints what a device needs on meshes 1x1, 2x1, 2x2 and 4x2, and that all train alike.
//
//   mesh [WIDTH]    layers of WIDTH x 4 WIDTH (256); docs/many-devices.md walks through it
#include <stowage/stowage.h>

#include <cmath>
#include <cstdlib>

namespace {

using namespace stow;
using sharding::Mesh;
using sharding::P;

constexpr int64_t kLayers = 4, kRows = 64;
constexpr int kSteps = 10;

struct Layers {
  Array up;    // [L, D, 4 D]
  Array down;  // [L, 4 D, D]
};
STOW_TREE(Layers, up, down);

Array loss(const Layers& w, const Array& x, const Array& y) {
  const auto layer = checkpoint(
      [](const Array& h, const Layers& v) { return h + matmul(gelu(matmul(h, v.up)), v.down); });
  return mean(square(scan(layer, x, w) - y));
}

struct Run {
  int64_t peak_bytes = 0, measured_bytes = 0, host_bytes = 0;
  std::string report;
  std::vector<double> losses;
};

Run train(int64_t data, int64_t model, int64_t width) {
  constexpr int64_t any = Device::unlimited_bytes();
  std::vector<DevicePtr> devices;
  for (int64_t i = 0; i < data * model; ++i)
    devices.push_back(Device::virtual_device({any, any, any}, 1));
  const DefaultDevice guard(devices[0]);
  const Mesh mesh = make_mesh({data, model}, {"data", "model"}, devices);
  // Each weight is cut by both axes; the stacked layers are not, since the scan goes over them.
  const NamedSharding up(mesh, P(nullptr, "data", "model")),
      down(mesh, P(nullptr, "model", "data"));

  Layers w{random::normal(random::key(1), {kLayers, width, 4 * width}) * std::sqrt(1.0 / width),
           random::normal(random::key(2), {kLayers, 4 * width, width}) * std::sqrt(0.1 / width)};
  w = {device_put(w.up, up), device_put(w.down, down)};
  const optim::GradientTransformation adam = optim::adam(1e-3);
  // Moments are made where they lie: each device its part of each, on the host.
  optim::OptState state = adam.init(w);
  const auto on_host = [&](const std::string& path, const Array& leaf) {
    if (leaf.rank() == 0) return device_put(leaf, NamedSharding(mesh, P()));
    const bool is_up = path.ends_with("up");
    return device_put(leaf, (is_up ? up : down).with_memory_kind("pinned_host"));
  };
  for (auto& [path, leaf] : state) leaf = on_host(path, leaf);

  const NamedSharding rows(mesh, P("data"));
  const Array x = device_put(random::normal(random::key(3), {kRows, width}), rows);
  const Array y = device_put(random::normal(random::key(4), {kRows, width}), rows);
  const auto step = jit(
      [&](const Layers& v, const optim::OptState& s, const Array& in, const Array& out) {
        const auto [value, gradients] = value_and_grad(loss)(v, in, out);
        const auto [updates, next] = adam.update(gradients, device_put(s, MemoryKind::kDevice), v);
        Layers fresh = optim::apply_updates(v, updates);
        fresh = {with_sharding_constraint(fresh.up, up),
                 with_sharding_constraint(fresh.down, down)};
        optim::OptState kept;
        for (const auto& [path, leaf] : next) kept[path] = on_host(path, leaf);
        return std::tuple(fresh, kept, value);
      },
      {.donate_argnums = {0, 1}, .name = "step"});

  const auto compiled = step.lower(w, state, x, y).compile();
  Run run;
  run.peak_bytes = compiled.memory_analysis().device().total_bytes;
  run.host_bytes = compiled.memory_analysis().host().total_bytes;
  run.report = to_string(compiled.sharding_report());
  for (int i = 0; i < kSteps; ++i) {
    for (const DevicePtr& device : devices) device->reset_high_water();
    const auto [fresh, next, value] = compiled(w, state, x, y);
    w = fresh;
    state = next;
    run.losses.push_back(static_cast<double>(value.item<float>()));
    for (const DevicePtr& device : devices)
      run.measured_bytes =
          std::max(run.measured_bytes, device->high_water_bytes(MemoryKind::kDevice));
  }
  return run;
}

}  // namespace

int main(int argc, char** argv) {
  const int64_t width = argc > 1 ? std::atoll(argv[1]) : 256;
  if (width < 8 || width % 8 != 0) {
    fmt::print(stderr, "mesh: expected a width that 8 divides, got '{}'\n", argv[1]);
    return 1;
  }
  bool ok = true;
  std::vector<double> first;
  for (const auto& [data, model] : {std::pair<int64_t, int64_t>{1, 1}, {2, 1}, {2, 2}, {4, 2}}) {
    const Run run = train(data, model, width);
    if (first.empty()) first = run.losses;
    fmt::print("{}x{}  device {:>11}  host {:>11}  loss {:.5f} -> {:.5f}\n", data, model,
               format_bytes(run.peak_bytes), format_bytes(run.host_bytes), run.losses.front(),
               run.losses.back());
    for (size_t i = 0; i < first.size(); ++i)
      ok = ok && std::abs(run.losses[i] - first[i]) <= 1e-5 * std::abs(first[i]);
    if (run.measured_bytes != run.peak_bytes) {
      fmt::print("OTHER BYTES: {} measured\n", format_bytes(run.measured_bytes));
      ok = false;
    }
    if (data * model == 8) fmt::print("\n{}", run.report);
  }
  fmt::print("{}\n", ok ? "the losses agree to 1e-5" : "OTHER LOSSES OR BYTES");
  return ok ? 0 : 1;
}
