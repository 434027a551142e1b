// An MLP trained over all devices of all processes that were started together. The same program
// runs by itself, and gives the same bits on as many devices, however they are spread over
// processes.
//
//   stowage launch --processes 2 --devices 2 -- processes [STEPS]    steps of training (10)
#include <stowage/stowage.h>

#include <bit>
#include <cmath>
#include <cstdlib>

namespace {

using namespace stow;
using sharding::Mesh;
using sharding::P;

constexpr int64_t kRows = 32, kWidth = 64;

struct Mlp {
  Array up;    // [D, 4 D]
  Array down;  // [4 D, D]
};
STOW_TREE(Mlp, up, down);

Array loss(const Mlp& w, const Array& x) {
  return mean(square(matmul(gelu(matmul(x, w.up)), w.down) - x));
}

// Row r, column c of the batch of a step. Each process makes the rows that its devices hold.
float element(int64_t step, int64_t r, int64_t c) {
  return std::sin(static_cast<float>(step + 1) * 0.37f * static_cast<float>(r * kWidth + c));
}

Array batch(int64_t step, const NamedSharding& rows) {
  return make_array_from_fill(
      {kRows, kWidth}, DType::kF32, rows, [&](const ShardIndex& index, std::span<std::byte> out) {
        auto* at = reinterpret_cast<float*>(out.data());
        for (int64_t r = index[0].begin; r < index[0].end; ++r)
          for (int64_t c = index[1].begin; c < index[1].end; ++c) *at++ = element(step, r, c);
      });
}

// A number that tells arrays of other bits apart.
uint64_t checksum(const Mlp& w) {
  uint64_t h = 0xcbf29ce484222325u;
  for (const Array& leaf : {w.up, w.down})
    for (const float value : leaf.to_vector<float>())
      h = (h ^ std::bit_cast<uint32_t>(value)) * 0x100000001b3u;
  return h;
}

void train(int64_t steps) {
  const auto n = static_cast<int64_t>(distributed::devices().size());
  const int64_t model = n % 2 == 0 ? 2 : 1;
  const Mesh mesh = make_mesh({n / model, model}, {"data", "model"});
  const NamedSharding up(mesh, P("data", "model")), down(mesh, P("model", "data")),
      whole(mesh, P());
  const bool is_first = distributed::process_index() == 0;
  if (is_first)
    fmt::print("{} x {} devices, {} here\n", n / model, model, distributed::local_devices().size());

  // The same numbers in every process; each device keeps its part.
  Mlp w = {device_put(random::normal(random::key(1), {kWidth, 4 * kWidth}) * 0.1f, up),
           device_put(random::normal(random::key(2), {4 * kWidth, kWidth}) * 0.1f, down)};
  const auto step = jit(
      [&](const Mlp& v, const Array& x) {
        const auto [value, g] = value_and_grad(loss)(v, x);
        const Mlp next =
            tree_map([](const Array& p, const Array& d) { return p - 0.3f * d; }, v, g);
        return std::pair(Mlp{with_sharding_constraint(next.up, up),
                             with_sharding_constraint(next.down, down)},
                         value);
      },
      {.donate_argnums = {0}, .name = "step"});
  for (int64_t i = 0; i < steps; ++i) {
    const auto [next, value] = step(w, batch(i, NamedSharding(mesh, P("data"))));
    w = next;
    const float number = value.item<float>();
    if (is_first) fmt::print("step {:>3}  loss {:.6f}  {:a}\n", i + 1, number, number);
  }
  const Mlp all = device_put(w, whole);  // every process takes part
  if (is_first) fmt::print("weights {:016x}\n", checksum(all));
}

}  // namespace

int main(int argc, char** argv) {
  const int64_t steps = argc > 1 ? std::atoll(argv[1]) : 10;
  if (steps < 1) {
    fmt::print(stderr, "processes: expected a number of steps from 1 on, got '{}'\n", argv[1]);
    return 1;
  }
  try {
    distributed::initialize();  // first of all: joins the processes that were started together
    train(steps);
    distributed::finish();
  } catch (const std::exception& error) {
    fmt::print(stderr, "processes: {}\n", error.what());
    return 1;
  }
  return 0;
}
