// The two programs of JAX's tutorial on host offloading: what each placement needs, and that none
// changes a bit. docs/host_offload.md walks through it.
//
// Both over meshes of 1, 2, 4 and 8 devices as well.
//
//   host_offload [N]    program 2 is planned for 7168 x 7168 matrices, and run for N x N (512)
#include "host_offload.h"

#include <cstdlib>

namespace {

using namespace host_offload;

void print_analysis(const std::string& row, const MemoryAnalysis& analysis) {
  const KindAnalysis& device = analysis.device();
  fmt::print(
      "{:<22} device {:>11} = argument {:>11} + output {:>11} - alias {:>11} + temp {:>11}\n", row,
      format_bytes(device.total_bytes), format_bytes(device.argument_bytes),
      format_bytes(device.output_bytes), format_bytes(device.alias_bytes),
      format_bytes(device.temp_bytes));
  for (const auto& [name, kind] : {std::pair{"host", analysis.host()}, {"disk", analysis.disk()}})
    if (kind.total_bytes > 0)
      fmt::print("{:<22} {} {:>13}\n", "", name, format_bytes(kind.total_bytes));
}

// Each kind of memory a heap of its own, as an accelerator has; on a plain CPU they are one RAM.
DevicePtr accelerator() {
  constexpr int64_t any = Device::unlimited_bytes();
  return Device::virtual_device({any, any, any});
}

template <concepts::Tree T>
std::vector<float> values_of(const T& tree) {
  std::vector<float> values;
  for (const Array& leaf : tree_leaves(tree)) {
    const std::vector<float> v = device_put(leaf, MemoryKind::kDevice).to_vector<float>();
    values.insert(values.end(), v.begin(), v.end());
  }
  return values;
}

// Every placement must give what the first gave.
class SameBits {
 public:
  bool check(std::vector<float> values) {
    if (first_.empty()) first_ = values;
    const bool same = values == first_;
    fmt::print("{:<22} {}\n", "", same ? "the same bits" : "OTHER BITS");
    return same;
  }

 private:
  std::vector<float> first_;
};

bool run_program1() {
  SameBits same;
  bool ok = true;
  for (const Placement1& at : placements1()) {
    const DefaultDevice guard(accelerator());
    const Array input = full({256, 256}, 0.001f);
    const Layers weights = device_put(
        Layers{full({10, 256, 1024}, 0.001f), full({10, 1024, 256}, 0.001f)}, at.weights);
    const auto f = jit([&](const Layers& w, const Array& x) { return layer_gradients(w, x, at); },
                       within(at.budget_mib * (1 << 20)));
    const auto compiled = f.lower(weights, input).compile();
    print_analysis(at.row, compiled.memory_analysis());
    const std::vector<float> g = values_of(compiled(weights, input));
    fmt::print("{:<22} sample of results: {:.7e} {:.7e}\n", "", g[0], g[1]);
    ok = same.check(g) && ok;
  }
  return ok;
}

bool run_program2(int64_t n, bool run) {
  SameBits same;
  bool ok = true;
  for (const Placement2& at : placements2()) {
    const DefaultDevice guard(accelerator());
    const auto array = [&](uint64_t seed, MemoryKind kind) {
      const ArrayType type{DType::kF32, {n, n}, kind};
      if (!run) return Array::abstract(type);
      return device_put(random::normal(random::key(seed), type.shape) * 0.05, kind);
    };
    Parameters params;
    for (uint64_t i = 1; i <= 4; ++i) params[fmt::format("w{}", i)] = array(i, at.params);
    const Array inputs = array(5, at.activations);
    const optim::OptState state = device_put(optimizer().init(params), at.moments);
    // Old parameters and moments may be written over by the new ones.
    const auto step = jit(
        [&](const Parameters& p, const optim::OptState& s, const Array& x) {
          return train_step(p, s, x, at);
        },
        within(at.budget_matrices * static_cast<double>(4 * n * n), {.donate_argnums = {0, 1}}));
    const auto compiled = step.lower(params, state, inputs).compile();
    print_analysis(at.row, compiled.memory_analysis());
    if (run) ok = same.check(values_of(compiled(params, state, inputs))) && ok;
  }
  return ok;
}

// ---- Over meshes ----

struct Devices {
  explicit Devices(int64_t n) {
    constexpr int64_t any = Device::unlimited_bytes();
    for (int64_t i = 0; i < n; ++i) list.push_back(Device::virtual_device({any, any, any}, 1));
  }
  // The largest peak of any; they are alike.
  int64_t measured_bytes() const {
    int64_t most = 0;
    for (const DevicePtr& d : list) most = std::max(most, d->high_water_bytes(MemoryKind::kDevice));
    return most;
  }
  std::vector<DevicePtr> list;
};

// Sums over other axes have another order: near, not the same bits.
bool check_near(std::vector<float>& first, const std::vector<float>& values, int64_t predicted,
                int64_t measured) {
  if (first.empty()) first = values;
  float most = 0, largest = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    most = std::max(most, std::abs(values[i] - first[i]));
    largest = std::max(largest, std::abs(first[i]));
  }
  const bool near = values.size() == first.size() && most <= 1e-5f * largest,
             exact = predicted == measured;
  fmt::print("{:<22} {}, {}\n", "", near ? "near the first" : "OTHER VALUES",
             exact ? "measured as planned" : "OTHER BYTES");
  return near && exact;
}

// At most 1.03 of what the formula gives.
bool check_formula(double formula, int64_t bytes) {
  const double ratio = static_cast<double>(bytes) / formula;
  fmt::print("{:<22} {:.3f} of the formula's {}{}\n", "", ratio,
             format_bytes(static_cast<int64_t>(formula)), ratio <= 1.03 ? "" : ", OVER IT");
  return ratio <= 1.03;
}

// What kernels at the peak need beside arrays.
int64_t scratch_bytes(const MemoryAnalysis& analysis) {
  int64_t bytes = 0;
  for (const PeakOwner& owner : analysis.owners)
    if (owner.what == "scratch") bytes += owner.bytes;
  return bytes;
}

bool run_over_meshes(int64_t n, bool run) {
  bool ok = true;
  std::vector<float> first1, first2;
  for (const auto& [data, model] : {std::pair<int64_t, int64_t>{1, 1}, {2, 1}, {2, 2}, {4, 2}}) {
    const Devices devices(data * model);
    const DefaultDevice guard(devices.list[0]);
    const Mesh mesh = make_mesh({data, model}, {"data", "model"}, devices.list);
    const NamedSharding rows(mesh, P("data"));
    const auto array = [&](uint64_t seed, const Shape& shape, float scale,
                           const NamedSharding& to) {
      if (run) return device_put(random::normal(random::key(seed), shape) * scale, to);
      return device_put(Array::abstract({DType::kF32, shape}), to);
    };
    const Layers weights = {array(1, {10, 256, 1024}, 0.06f, weight_sharding(mesh, "w1", 1)),
                            array(2, {10, 1024, 256}, 0.03f, weight_sharding(mesh, "w2", 1))};
    const Array input = array(3, {256, 256}, 1.0f, rows);
    const auto gradients =
        jit([&](const Layers& w, const Array& x) { return layer_gradients_over(mesh, w, x); },
            within(1));
    const auto compiled1 = gradients.lower(weights, input).compile();
    const MemoryAnalysis& analysis = compiled1.memory_analysis();
    print_analysis(fmt::format("program 1, {} x {}", data, model), analysis);
    ok = check_formula(formula1_bytes(data, model),
                       analysis.device().total_bytes - scratch_bytes(analysis)) && ok;
    if (run) {
      for (const DevicePtr& d : devices.list) d->reset_high_water();
      const Layers g = compiled1(weights, input);
      const int64_t measured = devices.measured_bytes();
      ok = check_near(first1, values_of(g), compiled1.memory_analysis().device().total_bytes,
                      measured) &&
           ok;
    }
  }
  for (const auto& [data, model] : {std::pair<int64_t, int64_t>{1, 1}, {2, 1}, {2, 2}, {4, 2}}) {
    const Devices devices(data * model);
    const DefaultDevice guard(devices.list[0]);
    const Mesh mesh = make_mesh({data, model}, {"data", "model"}, devices.list);
    Parameters params;
    for (uint64_t i = 1; i <= 4; ++i)
      params[fmt::format("w{}", i)] = run ? random::normal(random::key(i), {n, n}) * 0.05f
                                          : Array::abstract({DType::kF32, {n, n}});
    const optim::OptState state = on_host(mesh, optimizer().init(params));
    params = on_host(mesh, std::move(params));
    const Array inputs = device_put(run ? random::normal(random::key(5), {n, n}) * 0.05f
                                        : Array::abstract({DType::kF32, {n, n}}),
                                    NamedSharding(mesh, P("data")));
    const auto step = jit(
        [&](const Parameters& p, const optim::OptState& s, const Array& x) {
          return train_step_over(mesh, p, s, x);
        },
        within(1, {.donate_argnums = {0, 1}}));
    const auto compiled = step.lower(params, state, inputs).compile();
    print_analysis(fmt::format("program 2, {} x {}", data, model), compiled.memory_analysis());
    // Of small matrices tiles and scratch are a good part.
    if (!run)
      ok = check_formula(formula2_bytes(n, data, model),
                         compiled.memory_analysis().device().total_bytes) &&
           ok;
    if (run) {
      for (const DevicePtr& d : devices.list) d->reset_high_water();
      const auto [next, kept] = compiled(params, state, inputs);
      const int64_t measured = devices.measured_bytes();
      ok = check_near(first2, values_of(next), compiled.memory_analysis().device().total_bytes,
                      measured) &&
           ok;
    }
  }
  return ok;
}

}  // namespace

int main(int argc, char** argv) {
  const int64_t n = argc > 1 ? std::atoll(argv[1]) : 512;
  if (n < 1) {
    fmt::print(stderr, "host_offload: '{}' is no size\n", argv[1]);
    return 1;
  }
  fmt::print("program 1: ten layers of two products\n");
  bool ok = run_program1();
  fmt::print("\nprogram 2: four layers of gelu and Adam, planned for 7168 x 7168\n");
  run_program2(7168, false);
  fmt::print("\nprogram 2, run for {} x {}\n", n, n);
  ok = run_program2(n, true) && ok;
  fmt::print("\nover meshes of data x model, program 2 planned for 7168 x 7168\n");
  ok = run_over_meshes(7168, false) && ok;
  fmt::print("\nover meshes, program 2 run for {} x {}\n", n, n);
  ok = run_over_meshes(n, true) && ok;
  return ok ? 0 : 1;
}
