#include <stowage/stowage.h>

using namespace stow;

struct Line {
  Array slope, offset;
};
STOW_TREE(Line, slope, offset);

int main() {
  const Array x = arange(16).astype(DType::kF32) / 8.0, y = x * 3.0 - 1.0;
  const auto loss = [&](const Line& l) { return mean(square(x * l.slope + l.offset - y)); };
  const auto opt = optim::chain(optim::clip_by_global_norm(1.0), optim::adamw(0.1));
  auto step = jit([&](const Line& line, const optim::OptState& state) {
    const auto [updates, next] = opt.update(grad(loss)(line), state, line);
    return std::pair(optim::apply_updates(line, updates), next);
  });
  std::pair state(Line{zeros({}), zeros({})}, opt.init(Line{zeros({}), zeros({})}));
  for (int i = 0; i < 300; ++i) state = step(state.first, state.second);
  fmt::print("{:.2f} {:.2f}\n", state.first.slope.item<float>(), state.first.offset.item<float>());
}
