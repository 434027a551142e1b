// The program of docs/named-axes.md: compiled, run, and the same text as on the page.
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "tests/support/source_path.h"

// [page]
#include <stowage/nn/named.h>
#include <stowage/stowage.h>

using namespace stow;
using named::Axis, named::NamedArray, named::Stacked;

const Axis kBatch{"Batch", 8}, kEmbed{"Embed", 16}, kMlp{"Mlp", 64}, kLayers{"Layers", 4};

struct Block {
  NamedArray up, down;

  static Block init(const Array& key) {
    auto [a, b] = random::split(key);
    return {named::random::normal(a, {kEmbed, kMlp}) * 0.1,
            named::random::normal(b, {kMlp, kEmbed}) * 0.1};
  }
  NamedArray operator()(const NamedArray& x) const {
    return x + dot(gelu(dot(x, up, "Embed")), down, "Mlp");
  }
};
STOW_TREE(Block, up, down);

float train() {
  // Layer i has the values of Block::init(key i); its gradient keeps one array a layer.
  auto layers = Stacked<Block>::init(kLayers, Block::init, random::key(0), true);
  const NamedArray x = named::random::normal(random::key(1), {kBatch, kEmbed});
  const NamedArray y = named::random::normal(random::key(2), {kBatch, kEmbed});

  auto step = jit([](const Stacked<Block>& layers, const NamedArray& x, const NamedArray& y) {
    auto loss = [&](const Stacked<Block>& l) { return mean(square(l.fold(x) - y)).scalar(); };
    auto [value, gradient] = value_and_grad(loss)(layers);
    auto next =
        tree_map([](const Array& w, const Array& g) { return w - 0.1 * g; }, layers, gradient);
    return std::pair(next, value);
  });
  Array loss;
  for (int i = 0; i < 20; ++i) std::tie(layers, loss) = step(layers, x, y);
  return loss.item<float>();
}
// [page]

namespace {

std::string text_of(const std::string& path) {
  std::ifstream file(source_path(path));
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string between(const std::string& text, const std::string& begin, const std::string& end) {
  const size_t from = text.find(begin);
  if (from == std::string::npos) return "";
  const size_t first = from + begin.size();
  return text.substr(first, text.find(end, first) - first);
}

TEST(NamedAxesPage, ShowsTheProgramThatRunsHere) {
  const std::string shown = between(text_of("docs/named-axes.md"), "```cpp\n", "```\n");
  EXPECT_EQ(shown,
            between(text_of("tests/unit/nn/named_docs_test.cpp"), "// [page]\n", "// [page]\n"));
  EXPECT_FALSE(shown.empty());
  EXPECT_LT(train(), 1.0f);
}

}  // namespace
