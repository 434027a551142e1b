// The two programs of JAX's tutorial on host offloading: what each placement needs, and that none
// changes a bit. docs/host_offload.md walks through it.
//
//   host_offload [N]    program 2 is planned for 7168 x 7168 matrices, and run for N x N (512)
#include "host_offload.h"

#include <cstdlib>

namespace {

using namespace host_offload;

void print_analysis(const std::string& row, const MemoryAnalysis& analysis) {
  const KindAnalysis& device = analysis.device();
  fmt::print("{:<22} device {:>11} = argument {:>11} + output {:>11} - alias {:>11} + temp {:>11}\n",
             row, format_bytes(device.total_bytes), format_bytes(device.argument_bytes),
             format_bytes(device.output_bytes), format_bytes(device.alias_bytes),
             format_bytes(device.temp_bytes));
  for (const auto& [name, kind] : {std::pair{"host", analysis.host()}, {"disk", analysis.disk()}})
    if (kind.total_bytes > 0) fmt::print("{:<22} {} {:>13}\n", "", name, format_bytes(kind.total_bytes));
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
  return ok ? 0 : 1;
}
