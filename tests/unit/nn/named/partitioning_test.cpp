// shard by a mapping of names; the names of a decoder's axes.
#include "stowage/nn/named/partitioning.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "stowage/nn/decoder_axes.h"
#include "stowage/nn/named.h"
#include "stowage/stowage.h"
#include "tests/support/message_of.h"

namespace stow::named {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

const Axis kBatch{"Batch", 2}, kEmbed{"Embed", 3}, kMlp{"Mlp", 4};

TEST(NamedSharding, SpecificationsByName) {
  const ResourceMapping mapping{
      {"Embed", "data"}, {"Batch", {"replica", "data"}}, {"Mlp", "model"}};
  EXPECT_EQ(pspec_for_axis({kEmbed, kMlp}, mapping), sharding::P("data", "model"));
  EXPECT_EQ(pspec_for_axis({Axis{"Pos", 7}, kBatch}, mapping),
            sharding::P(nullptr, sharding::P::Axes{"replica", "data"}));
  EXPECT_EQ(pspec_for_axis({}, mapping), sharding::P());
  EXPECT_THAT(
      message_of([&] {
        pspec_for_axis({kBatch, kEmbed}, mapping);
      }),
      StartsWith("[shard] axes 'Batch' and 'Embed' of {Batch: 2, Embed: 3} are both mapped to "
                 "mesh axis 'data'"));
  EXPECT_EQ(pspec_for_axis({kBatch, kEmbed}, mapping.with("Batch", "replica")),
            sharding::P("replica", "data"));
  EXPECT_EQ(to_string(mapping.merged({{"Embed", "model"}})),
            "{Batch: ('replica', 'data'), Embed: ('model'), Mlp: ('model')}");
  EXPECT_THAT(message_of([] {
                ResourceMapping{{"a", "x"}, {"a", "y"}};
              }),
              HasSubstr("'a' is there twice"));
}

TEST(NamedSharding, ShardPutsNamedArraysAndLeavesOthers) {
  const sharding::Mesh mesh = make_mesh({1, 1}, {"data", "model"});
  const ResourceMapping mapping{{"Embed", "data"}, {"Mlp", "model"}};
  const std::pair<NamedArray, Array> tree{ones({kMlp, kEmbed}), stow::ones({3})};
  const auto put = shard(tree, mapping, mesh);
  EXPECT_EQ(sharding_of(put.first.array()),
            Sharding(NamedSharding(mesh, sharding::P("model", "data"))));
  EXPECT_EQ(sharding_of(put.second), sharding_of(tree.second));
  EXPECT_EQ(put.first.axes(), tree.first.axes());
  EXPECT_EQ(put.first.to_vector<float>(), tree.first.to_vector<float>());
  // Another kind of memory stays.
  const NamedArray host(device_put(stow::ones({3}), MemoryKind::kPinnedHost), {"Embed"});
  EXPECT_EQ(shard(host, mapping, mesh).array().type().kind, MemoryKind::kPinnedHost);
  // Traced and abstract arrays.
  auto f = jit([&](const NamedArray& x) { return shard(x, mapping, mesh) * 2; });
  EXPECT_EQ(f(ones(kEmbed)).to_vector<float>(), (std::vector<float>{2, 2, 2}));
  EXPECT_TRUE(shard(abstract({kEmbed}), mapping, mesh).array().is_abstract());
}

TEST(NamedSharding, TheScopeIsWhereNothingIsGiven) {
  const sharding::Mesh mesh = make_mesh({1}, {"data"}), other = make_mesh({1}, {"other"});
  const ResourceMapping mapping{{"Embed", "data"}};
  const NamedArray x = ones(kEmbed);
  EXPECT_EQ(auto_sharded(x).array().impl(), x.array().impl());  // no scope, no copy
  EXPECT_THAT(
      message_of([&] { shard(x, mapping); }),
      StartsWith(
          "[shard] expected a mesh, got none; pass one, or give one to an AxisMappingScope"));
  const AxisMappingScope scope(mapping, mesh);
  EXPECT_EQ(sharding_of(auto_sharded(x).array()),
            Sharding(NamedSharding(mesh, sharding::P("data"))));
  EXPECT_EQ(sharding_of(shard(x, mapping).array()),
            Sharding(NamedSharding(mesh, sharding::P("data"))));
  {
    const AxisMappingScope inner(ResourceMapping{});
    EXPECT_EQ(sharding_of(auto_sharded(x).array()),
              Sharding(NamedSharding(mesh, sharding::P(nullptr))));
    // What is given counts before the scope.
    EXPECT_EQ(sharding_of(shard(x, {{"Embed", "other"}}, other).array()),
              Sharding(NamedSharding(other, sharding::P("other"))));
  }
  EXPECT_EQ(sharding_of(auto_sharded(x).array()),
            Sharding(NamedSharding(mesh, sharding::P("data"))));
}

TEST(NamedSharding, ErrorsNameTheAxes) {
  const sharding::Mesh mesh = make_mesh({1}, {"data"});
  const std::map<std::string, NamedArray> tree{{"w", ones({kMlp, kEmbed})}};
  EXPECT_THAT(
      message_of([&] {
        shard(tree, {{"Embed", "data"}, {"Mlp", "data"}}, mesh);
      }),
      StartsWith("[shard] axes 'Mlp' and 'Embed' of {Mlp: 4, Embed: 3} of 'w' are both mapped to "
                 "mesh axis 'data'"));
  EXPECT_THAT(
      message_of([&] {
        shard(tree, {{"Embed", "model"}}, mesh);
      }),
      StartsWith("[shard] expected an axis of Mesh('data': 1), got 'model' in the mapping of "
                 "axis Embed: 3 of 'w'"));
  // Sizes are checked against any shape of a mesh.
  const MeshShape large{{"replica", "data"}, {2, 4}};
  const ResourceMapping mapping{{"Embed", {"replica", "data"}}, {"Mlp", "data"}};
  EXPECT_EQ(physical_axis_size(kEmbed, mapping, large), 8);
  EXPECT_EQ(physical_axis_size(kBatch, mapping, large), 1);
  EXPECT_EQ(round_axis_for_partitioning(kEmbed.resize(17), mapping, large), kEmbed.resize(24));
  EXPECT_EQ(round_axis_for_partitioning(kMlp, mapping, large), kMlp);
  EXPECT_EQ(message_of([&] { check_divisible({kMlp}, mapping, large); }), "nothing was thrown");
  EXPECT_THAT(
      message_of([&] {
        check_divisible({kMlp, kEmbed}, mapping, large, "layers/w");
      }),
      StartsWith("[shard] axis Embed: 3 of 'layers/w' is not divisible into the 8 parts of mesh "
                 "axes replica, data; the next size that is: 8"));
  EXPECT_EQ(shape_of(mesh), (MeshShape{{"data"}, {1}}));
}

}  // namespace
}  // namespace stow::named

namespace stow::nn {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

std::vector<DecoderConfig> configurations() {
  const DecoderConfig plain{
      .vocab = 96, .dim = 24, .layers = 3, .heads = 4, .kv_heads = 2, .ffn = 40};
  DecoderConfig all = plain, tied = plain, files = plain;
  all.head_size = 10;
  all.qkv_bias = all.out_bias = all.mlp_bias = all.qk_norm = true;
  tied.tied = true;
  files.out_in = true;
  return {plain, all, tied, files};
}

TEST(DecoderAxes, EveryParameterHasNamesThatFitItsSizes) {
  for (const DecoderConfig& config : configurations()) {
    const Decoder model = decoder_abstract(config);
    const std::vector<std::string> paths = tree_paths(model);
    const std::vector<Array> leaves = tree_leaves(model);
    for (size_t i = 0; i < paths.size(); ++i) {
      Dims sizes;
      for (const ParameterAxis& axis : decoder_axes(config, paths[i])) sizes.push_back(axis.size());
      EXPECT_EQ(sizes, leaves[i].shape().dims()) << paths[i];
      const named::NamedArray x = decoder_named(config, paths[i], leaves[i]);
      EXPECT_EQ(x.size(), leaves[i].size()) << paths[i];
      EXPECT_EQ(x.has_axis("layers"), paths[i].starts_with("layers/")) << paths[i];
    }
  }
}

TEST(DecoderAxes, NamesAreThoseOfTheMatrices) {
  const DecoderConfig config = configurations()[0], files = configurations()[3];
  const Decoder model = decoder_abstract(config);
  EXPECT_EQ(named::to_string(decoder_named(config, "layers/wq", model.layers.wq).axes()),
            "{layers: 3, embed: 24, heads: 4, head_size: 6}");
  EXPECT_EQ(named::to_string(decoder_named(config, "layers/wk", model.layers.wk).axes()),
            "{layers: 3, embed: 24, kv_heads: 2, head_size: 6}");
  EXPECT_EQ(
      named::to_string(decoder_named(files, "layers/w2", decoder_abstract(files).layers.w2).axes()),
      "{layers: 3, embed: 24, mlp: 40}");
  EXPECT_EQ(named::to_string(decoder_named(config, "head", *model.head).axes()),
            "{embed: 24, vocab: 96}");
}

TEST(DecoderAxes, MappingsCutParameters) {
  const DecoderConfig config = configurations()[0];
  const named::ResourceMapping mapping{{"embed", "data"},
                                       {"heads", "model"},
                                       {"kv_heads", "model"},
                                       {"mlp", "model"},
                                       {"vocab", "model"}};
  EXPECT_EQ(decoder_pspec(config, "layers/wq", mapping), sharding::P(nullptr, "data", "model"));
  EXPECT_EQ(decoder_pspec(config, "layers/wo", mapping), sharding::P(nullptr, "model", "data"));
  EXPECT_EQ(decoder_pspec(config, "layers/w2", mapping), sharding::P(nullptr, "model", "data"));
  EXPECT_EQ(decoder_pspec(config, "embed", mapping), sharding::P("model", "data"));
  EXPECT_EQ(decoder_pspec(config, "norm", mapping), sharding::P("data"));
  const sharding::Mesh mesh = make_mesh({1, 1}, {"data", "model"});
  const Decoder model = decoder_init(config, random::key(1));
  const Decoder put = shard_decoder(config, model, mapping, mesh);
  EXPECT_EQ(sharding_of(put.layers.w1),
            Sharding(NamedSharding(mesh, sharding::P(nullptr, "data", "model"))));
  EXPECT_EQ(put.layers.w1.to_vector<float>(), model.layers.w1.to_vector<float>());
}

TEST(DecoderAxes, Errors) {
  const DecoderConfig config = configurations()[0];
  EXPECT_THAT(message_of([&] { decoder_axes(config, "layers/wqq"); }),
              StartsWith("[decoder_axes] this decoder has no parameter 'layers/wqq'; did you mean "
                         "'layers/wq'?"));
  EXPECT_THAT(message_of([&] { decoder_axes(config, "layers/bq"); }), HasSubstr("no parameter"));
  EXPECT_THAT(
      message_of([&] {
        decoder_pspec(config, "layers/wq", {{"head_size", "model"}});
      }),
      HasSubstr("'layers/wq' is stored with {heads: 4, head_size: 6} as one axis, which is cut "
                "by 'heads' alone"));
  EXPECT_THAT(message_of([&] { decoder_named(config, "norm", zeros({23})); }),
              StartsWith("[decoder_axes] expected 'norm' of shape [24], {embed: 24}, got f32[23]"));
}

}  // namespace
}  // namespace stow::nn
