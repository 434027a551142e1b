#include "stowage/nn/decoder_axes.h"

#include <fmt/ranges.h>

#include <map>

#include "stowage/api/memory.h"
#include "stowage/api/trace.h"
#include "stowage/base/nearest.h"

namespace stow::nn {
namespace {

using named::Axis;

// Every parameter that the family can have. Matrices are given as [in, out].
std::map<std::string, std::vector<ParameterAxis>, std::less<>> table_of(const DecoderConfig& c) {
  const ParameterAxis vocab{{{"vocab", c.vocab}}}, embed{{{"embed", c.dim}}}, mlp{{{"mlp", c.ffn}}},
      heads{{{"heads", c.heads}, {"head_size", c.head_dim()}}},
      kv_heads{{{"kv_heads", c.kv_heads}, {"head_size", c.head_dim()}}},
      head_size{{{"head_size", c.head_dim()}}}, layers{{{"layers", c.layers}}};
  const auto matrix = [&](const ParameterAxis& in, const ParameterAxis& out) {
    return c.out_in ? std::vector{layers, out, in} : std::vector{layers, in, out};
  };
  std::map<std::string, std::vector<ParameterAxis>, std::less<>> table{
      {"embed", {vocab, embed}},
      {"norm", {embed}},
      {"layers/wq", matrix(embed, heads)},
      {"layers/wk", matrix(embed, kv_heads)},
      {"layers/wv", matrix(embed, kv_heads)},
      {"layers/wo", matrix(heads, embed)},
      {"layers/w1", matrix(embed, mlp)},
      {"layers/w3", matrix(embed, mlp)},
      {"layers/w2", matrix(mlp, embed)},
      {"layers/norm1", {layers, embed}},
      {"layers/norm2", {layers, embed}},
  };
  if (!c.tied) table["head"] = c.out_in ? std::vector{vocab, embed} : std::vector{embed, vocab};
  if (c.qkv_bias) {
    table["layers/bq"] = {layers, heads};
    table["layers/bk"] = table["layers/bv"] = {layers, kv_heads};
  }
  if (c.out_bias) table["layers/bo"] = {layers, embed};
  if (c.mlp_bias) {
    table["layers/b1"] = table["layers/b3"] = {layers, mlp};
    table["layers/b2"] = {layers, embed};
  }
  if (c.qk_norm) table["layers/q_norm"] = table["layers/k_norm"] = {layers, head_size};
  return table;
}

std::vector<Axis> flat_names(const std::vector<ParameterAxis>& axes) {
  std::vector<Axis> all;
  for (const ParameterAxis& axis : axes)
    all.insert(all.end(), axis.parts.begin(), axis.parts.end());
  return all;
}

std::vector<Axis> majors_of(const std::vector<ParameterAxis>& axes) {
  std::vector<Axis> majors;
  for (const ParameterAxis& axis : axes) majors.push_back(axis.parts[0]);
  return majors;
}

void check_shape(std::string_view path, const std::vector<ParameterAxis>& axes, const Array& x) {
  Dims sizes;
  for (const ParameterAxis& axis : axes) sizes.push_back(axis.size());
  if (x.shape().dims() != sizes)
    trace_error_here("[decoder_axes] expected '{}' of shape [{}], {}, got {}", path,
                     fmt::join(sizes, ","), named::to_string(flat_names(axes)),
                     to_string(x.type()));
}

}  // namespace

std::vector<ParameterAxis> decoder_axes(const DecoderConfig& config, std::string_view path,
                                        SourceLocation at) {
  const CallSiteScope site(at);
  const auto table = table_of(config);
  const auto found = table.find(path);
  if (found != table.end()) return found->second;
  std::vector<std::string> known;
  for (const auto& [name, axes] : table) known.push_back(name);
  const std::string near = nearest_name(path, known);
  trace_error_here("[decoder_axes] this decoder has no parameter '{}'{}", path,
                   near.empty() ? "" : fmt::format("; did you mean '{}'?", near));
}

named::NamedArray decoder_named(const DecoderConfig& config, std::string_view path,
                                const Array& parameter, SourceLocation at) {
  const CallSiteScope site(at);
  const std::vector<ParameterAxis> axes = decoder_axes(config, path, at);
  check_shape(path, axes, parameter);
  const std::vector<Axis> names = flat_names(axes);
  if (names.size() == axes.size()) return named::named(parameter, names);
  Dims sizes;
  for (const Axis& axis : names) sizes.push_back(axis.size);
  return named::named(parameter.reshape(sizes), names);
}

PartitionSpec decoder_pspec(const DecoderConfig& config, std::string_view path,
                            const named::ResourceMapping& mapping, SourceLocation at) {
  const CallSiteScope site(at);
  const std::vector<ParameterAxis> axes = decoder_axes(config, path, at);
  for (const ParameterAxis& axis : axes)
    for (size_t i = 1; i < axis.parts.size(); ++i)
      if (mapping.find(axis.parts[i].name))
        trace_error_here(
            "[decoder_axes] '{}' is stored with {} as one axis, which is cut by '{}' alone; take "
            "'{}' out of the mapping",
            path, named::to_string(axis.parts), axis.parts[0].name, axis.parts[i].name);
  return named::pspec_for_axis(majors_of(axes), mapping, std::string(path), at);
}

Decoder shard_decoder(const DecoderConfig& config, const Decoder& model,
                      const named::ResourceMapping& mapping, const sharding::Mesh& mesh,
                      SourceLocation at) {
  const CallSiteScope site(at);
  const MeshShape shape = named::shape_of(mesh);
  return tree_map_with_path(
      [&](const std::string& path, const Array& x) {
        const std::vector<ParameterAxis> axes = decoder_axes(config, path, at);
        check_shape(path, axes, x);
        named::check_divisible(majors_of(axes), mapping, shape, path, at);
        return device_put(x, NamedSharding(mesh, decoder_pspec(config, path, mapping, at),
                                           memory_kind_name(x.type().kind)));
      },
      model);
}

}  // namespace stow::nn
