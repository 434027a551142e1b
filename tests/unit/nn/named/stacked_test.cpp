// Stacked and ArrayStacked: values, paths, loops, and what each word of a checkpoint policy costs.
#include "stowage/nn/named/stacked.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "stowage/nn/named.h"
#include "stowage/stowage.h"
#include "tests/support/message_of.h"
#include "tests/support/temporary_folder.h"

namespace {

using stow::Array;
using stow::named::Axis;
using stow::named::NamedArray;

const Axis kEmbed{"Embed", 8}, kMlp{"Mlp", 16}, kBatch{"Batch", 4};

struct Block {
  NamedArray up, down;

  static Block init(const Array& key) {
    const auto [a, b] = stow::random::split(key);
    return {stow::named::random::normal(a, {kEmbed, kMlp}) * 0.3,
            stow::named::random::normal(b, {kMlp, kEmbed}) * 0.3};
  }
  NamedArray operator()(const NamedArray& x) const {
    const NamedArray h = checkpoint_name(dot(x, up, "Embed"), "up");
    return x + dot(gelu(h), down, "Mlp");
  }
};
STOW_TREE(Block, up, down);

struct PlainBlock {
  Array w, b;
  Array operator()(const Array& x) const { return x + stow::tanh(stow::matmul(x, w) + b); }
};
STOW_TREE(PlainBlock, w, b);

struct Model {
  stow::named::Stacked<Block> layers;
  NamedArray norm;
};
STOW_TREE(Model, layers, norm);

}  // namespace

namespace stow::named {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

const Axis kLayers{"Layers", 4};

std::vector<float> floats(const NamedArray& x) {
  return x.to_vector<float>();
}
NamedArray input() {
  return random::normal(stow::random::key(9), {kBatch, kEmbed});
}

TEST(Stacked, InitGivesWhatLayersMadeOneByOneHave) {
  const Array key = stow::random::key(1);
  const auto stacked = Stacked<Block>::init(kLayers, Block::init, key);
  EXPECT_EQ(stacked.stacked.up.axes(), (std::vector{kLayers, kEmbed, kMlp}));
  std::vector<Block> blocks;
  for (const Array& k : stow::random::split(key, 4)) blocks.push_back(Block::init(k));
  for (int64_t i = 0; i < 4; ++i) {
    const Block layer = stacked.get_layer(i);
    EXPECT_EQ(layer.up.axes(), (std::vector{kEmbed, kMlp}));
    EXPECT_EQ(floats(layer.up), floats(blocks[static_cast<size_t>(i)].up)) << i;
    EXPECT_EQ(floats(layer.down), floats(blocks[static_cast<size_t>(i)].down)) << i;
  }
  const auto joined = Stacked<Block>::from_blocks("Layers", blocks);
  EXPECT_EQ(floats(joined.stacked.up), floats(stacked.stacked.up));
  EXPECT_EQ(joined.stacked.up.axes(), stacked.stacked.up.axes());
  EXPECT_EQ(floats(joined.unstacked()[3].down), floats(blocks[3].down));
  EXPECT_EQ(joined.length(), 4);
}

TEST(Stacked, FoldAndScanAreTheLoopOverLayers) {
  const auto stacked = Stacked<Block>::init(kLayers, Block::init, stow::random::key(1));
  NamedArray expected = input();
  std::vector<NamedArray> each;
  for (const Block& block : stacked.unstacked()) {
    expected = block(expected);
    each.push_back(sum(expected, "Embed"));
  }
  EXPECT_EQ(floats(stacked.fold(input())), floats(expected));
  const auto [carry, ys] = stacked.scan_via(
      [](const Block& block, const NamedArray& x) {
        const NamedArray y = block(x);
        return std::pair(y, sum(y, "Embed"));
      },
      input());
  EXPECT_EQ(floats(carry), floats(expected));
  EXPECT_EQ(ys.axes(), (std::vector{kLayers, kBatch}));
  EXPECT_EQ(floats(ys), floats(stack("Layers", each)));
  // An argument with the axis of layers is sliced, one without is not.
  const auto scaled =
      stacked.fold_via([](const Block& block, const NamedArray& x, const NamedArray& scale,
                          const NamedArray& bias) { return block(x) * scale + bias; },
                       input(), arange(kLayers, 1, 1, DType::kF32), ones(kEmbed));
  NamedArray want = input();
  float scale = 1;
  for (const Block& block : stacked.unstacked()) want = block(want) * scale++ + ones(kEmbed);
  EXPECT_EQ(floats(scaled), floats(want));
  const NamedArray all = stacked.vmap_via([](const Block& b) { return sum(b.up); });
  EXPECT_EQ(all.axes(), std::vector{kLayers});
}

TEST(Stacked, IsATreeWithThePathsOfItsBlock) {
  const Model model{Stacked<Block>::init(kLayers, Block::init, stow::random::key(1)), ones(kEmbed)};
  EXPECT_THAT(tree_paths(model), ElementsAre("layers/up", "layers/down", "norm"));
  EXPECT_THAT(tree_paths(model.layers.unstacked()),
              ElementsAre("0/up", "0/down", "1/up", "1/down", "2/up", "2/down", "3/up", "3/down"));
  Model other = model;
  other.layers.checkpoint = true;
  EXPECT_NE(tree_structure(other), tree_structure(model));
  int traces = 0;
  auto f = jit([&](const Model& m, const NamedArray& x) {
    ++traces;
    return m.layers.fold(x) * m.norm;
  });
  const std::vector<float> value = floats(f(model, input()));
  EXPECT_EQ(value, floats(f(other, input())));
  EXPECT_EQ(traces, 2);
}

struct Arrays {
  Array up, down;
};
STOW_TREE(Arrays, up, down);

TEST(Stacked, FilesAreThoseOfStackedArrays) {
  const TemporaryFolder folder;
  const std::string path = folder / "layers.safetensors";
  const auto stacked = Stacked<Block>::init(kLayers, Block::init, stow::random::key(1));
  ASSERT_TRUE(save_tree(path, stacked).ok());
  const auto plain =
      load_tree(path, Arrays{Array::abstract({4, 8, 16}), Array::abstract({4, 16, 8})});
  ASSERT_TRUE(plain.ok()) << plain.error();
  EXPECT_EQ(plain->down.to_vector<float>(), floats(stacked.stacked.down));
  const auto back = load_tree(path, stacked);
  ASSERT_TRUE(back.ok()) << back.error();
  EXPECT_EQ(back->stacked.up.axes(), stacked.stacked.up.axes());
  EXPECT_EQ(floats(back->stacked.up), floats(stacked.stacked.up));
}

TEST(Stacked, Errors) {
  std::vector<Block> blocks{Block::init(stow::random::key(1)), Block::init(stow::random::key(2))};
  blocks[1].down = zeros({kMlp, kEmbed.resize(7)});
  EXPECT_THAT(message_of([&] { Stacked<Block>::from_blocks("Layers", blocks); }),
              HasSubstr("[Stacked] blocks 0 and 1: the structures differ at 'down'"));
  blocks[1].down = zeros({kMlp, kEmbed}, DType::kBF16);
  EXPECT_THAT(message_of([&] { Stacked<Block>::from_blocks("Layers", blocks); }),
              StartsWith("[Stacked] 'down' of block 1 is bf16[16,8], and f32[16,8] in block 0"));
  EXPECT_THAT(message_of([&] { Stacked<Block>::from_blocks("Layers", {}); }),
              HasSubstr("at least one block, got none"));
  EXPECT_THAT(message_of([&] { Stacked<Block>::from_stacked(kLayers, blocks[0]); }),
              StartsWith("[Stacked] expected 'up' with axis Layers: 4, got {Embed: 8, Mlp: 16}"));
  EXPECT_THAT(message_of([&] {
                Stacked<Block>::init(kLayers, Block::init, stow::random::key(1)).get_layer(4);
              }),
              StartsWith("[get_layer] layer 4 is out of range for 4 layers"));
  EXPECT_THAT(message_of([&] { ArrayStacked<Block>::from_blocks({blocks[0]}); }),
              StartsWith("[ArrayStacked] 'up' is a NamedArray"));
}

TEST(ArrayStacked, IsTheSameWithoutNames) {
  const auto init = [](const Array& key) {
    return PlainBlock{stow::random::normal(key, {8, 8}) * 0.2, stow::zeros({8})};
  };
  const auto stacked = ArrayStacked<PlainBlock>::init(3, init, stow::random::key(5), true);
  EXPECT_THAT(tree_paths(stacked), ElementsAre("w", "b"));
  EXPECT_EQ(stacked.length(), 3);
  EXPECT_EQ(stacked.stacked().w.shape(), (Shape{3, 8, 8}));
  const Array x = stow::random::normal(stow::random::key(6), {2, 8});
  Array expected = x;
  const std::vector<Array> keys = stow::random::split(stow::random::key(5), 3);
  for (const Array& key : keys) expected = init(key)(expected);
  EXPECT_EQ(stacked.fold(x).to_vector<float>(), expected.to_vector<float>());
  EXPECT_EQ(
      ArrayStacked<PlainBlock>::from_blocks(stacked.unstacked()).stacked().w.to_vector<float>(),
      stacked.stacked().w.to_vector<float>());
}

struct Cost {
  int64_t device = 0, host = 0;
  std::vector<float> values;
};

// The loss and its gradient for 16 layers: planned for a device whose memories are apart, and run.
Cost cost_of(const ScanCheckpoint& checkpoint) {
  const Axis layers{"Layers", 16};
  auto stacked = Stacked<Block>::init(layers, Block::init, stow::random::key(1), checkpoint);
  const NamedArray x = random::normal(stow::random::key(2), {kBatch.resize(64), kEmbed});
  auto f = jit(value_and_grad([](const Stacked<Block>& s, const NamedArray& h) {
    return mean(square(s.fold(h))).scalar();
  }));
  const auto compiled = f.lower(stacked, x).compile();
  Cost cost{compiled.memory_analysis().device().temp_bytes,
            compiled.memory_analysis().host().total_bytes};
  const auto [loss, gradient] = compiled(stacked, x);
  cost.values = {loss.template item<float>()};
  for (const Array& leaf : tree_leaves(gradient))
    for (float v : leaf.to_vector<float>()) cost.values.push_back(v);
  return cost;
}

TEST(Stacked, EachWordChangesTheMemoryAsItSaysAndNoBit) {
  constexpr int64_t any = Device::unlimited_bytes();
  const DefaultDevice guard(Device::virtual_device({any, any, any}));
  const Cost keep = cost_of(false), recompute = cost_of(true);
  const int64_t carries = 16 * 64 * 8 * 4, internals = 16 * 64 * 16 * 4;
  // All that the gradient needs: carries and at least one array a layer within it.
  EXPECT_GE(keep.device, carries + internals);
  EXPECT_EQ(keep.host, 0);
  // The carries stay, the rest goes.
  EXPECT_GE(recompute.device, carries);
  EXPECT_LE(recompute.device, keep.device - internals / 2);
  const Cost save_all = cost_of("save_all");
  EXPECT_GE(save_all.device, keep.device - carries / 16);
  for (const char* word : {"recompute", "full"}) EXPECT_EQ(cost_of(word).device, recompute.device);
  const Cost offload = cost_of("offload");
  EXPECT_EQ(offload.host, carries);
  EXPECT_LE(offload.device, recompute.device - carries / 2);
  const Cost nested = cost_of("nested"), blocks = cost_of(4), two = cost_of(2);
  EXPECT_LE(nested.device, recompute.device - carries / 4);
  EXPECT_EQ(blocks.device, nested.device);  // √16 blocks are blocks of 4
  EXPECT_NE(two.device, nested.device);
  const Cost outer = cost_of(ScanCheckpointPolicy{.nested = true, .outer_blocks = 8});
  EXPECT_EQ(outer.device, two.device);  // eight blocks are blocks of 2
  const Cost named = cost_of(ScanCheckpointPolicy{.save_names = {"up"}});
  EXPECT_GT(named.device, recompute.device);
  const Cost moved = cost_of(ScanCheckpointPolicy{.offload_names = {"up"}});
  EXPECT_EQ(moved.host, internals);
  const Cost parked = cost_of(ScanCheckpointPolicy{.offload_carries = true, .nested = true});
  EXPECT_EQ(parked.host, 4 * 64 * 8 * 4);
  for (const Cost* cost :
       {&recompute, &save_all, &offload, &nested, &blocks, &two, &outer, &named, &moved, &parked})
    EXPECT_EQ(cost->values, keep.values);
}

}  // namespace
}  // namespace stow::named
