// The trainer's rule for weights cuts a decoder as nn's mapping of axis names does.
#include <gtest/gtest.h>

#include "stowage/base/inside.h"
#include "stowage/nn/decoder_axes.h"
#include "stowage/train/decoder_model.h"
#include "stowage/train/mesh.h"

namespace stow {
namespace {

bool has_embed(const nn::DecoderConfig& config, const std::string& path) {
  for (const nn::ParameterAxis& axis : nn::decoder_axes(config, path))
    if (axis.parts[0].name == "embed") return true;
  return false;
}

TEST(WeightSharding, OfADecoderIsThatOfItsAxisNames) {
  nn::DecoderConfig decoder{
      .vocab = 96, .dim = 24, .layers = 3, .heads = 4, .kv_heads = 2, .ffn = 40};
  decoder.qkv_bias = decoder.out_bias = decoder.mlp_bias = decoder.qk_norm = true;
  const named::ResourceMapping mapping{
      {"heads", "model"}, {"kv_heads", "model"}, {"mlp", "model"}, {"vocab", "model"}};
  for (const bool out_in : {false, true})
    for (const bool is_sharded : {false, true}) {
      decoder.out_in = out_in;
      TrainConfig config;
      config.mesh.data = config.mesh.model = 2;
      config.mesh.parameters = is_sharded ? "sharded" : "replicated";
      const named::ResourceMapping all = is_sharded ? mapping.with("embed", {"data"}) : mapping;
      const MeshShape mesh = mesh_of(config);
      const NamedArrays weights = named_arrays(nn::decoder_abstract(decoder));
      ASSERT_GT(weights.names.size(), 15u);
      for (size_t i = 0; i < weights.names.size(); ++i) {
        const std::string& path = weights.names[i];
        // One without an axis "embed" the trainer cuts over `data` along another axis.
        if (is_sharded && !has_embed(decoder, path)) continue;
        const ArrayType& type = weights.arrays[i].type();
        const Result<AxisSharding> named =
            axis_sharding_of(nn::decoder_pspec(decoder, path, all), type, mesh);
        ASSERT_TRUE(named) << named.error();
        EXPECT_EQ(
            to_string(weight_sharding(config, mesh, path, type, weight_axes(decoder, path)), mesh),
            to_string(*named, mesh))
            << path << " " << config.mesh.parameters;
      }
    }
}

TEST(WeightSharding, DataCutsNoAxisThatIsNamedLayers) {
  TrainConfig config;
  config.mesh.data = 2;
  config.mesh.parameters = "sharded";
  const MeshShape mesh = mesh_of(config);
  const ArrayType type = Array::abstract(Shape{64, 2}).type();
  const std::vector<WeightAxis> axes = {{"layers", 64}, {}};
  const std::vector<MeshAxes> cut_first = {{0}, {}}, cut_second = {{}, {0}};
  EXPECT_EQ(weight_sharding(config, mesh, "blocks/w", type, axes).axes, cut_second);
  EXPECT_EQ(weight_sharding(config, mesh, "layers/w", type, {}).axes, cut_first)
      << "names alone say it, not paths";
}

}  // namespace
}  // namespace stow
