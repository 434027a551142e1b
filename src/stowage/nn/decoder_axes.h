// The names of the axes of a decoder's parameters, by path; and shardings by these names.
// Not the mesh of a training run, which maps these names to its axes.
#pragma once

#include <string_view>
#include <vector>

#include "stowage/nn/decoder.h"
#include "stowage/nn/named/partitioning.h"

namespace stow::nn {

// Names: "layers", "vocab", "embed" (the residual stream), "heads" and "kv_heads", "head_size", and
// "mlp" (within the feed-forward block). Fully sharded parameters map "embed" to a mesh axis for
// data; tensor parallelism maps "heads", "kv_heads", "mlp" and "vocab" to a mesh axis for the
// model.

/// One axis of a stored parameter: one named axis, or several flattened into one, the major one
/// first, for example axis 1 of a matrix [d, heads * head_size].
struct ParameterAxis {
  std::vector<named::Axis> parts;
  int64_t size() const { return named::total_size(parts); }  ///< Extent of the stored axis.
};

/// Returns the axes of the parameter at a path of a Decoder ("embed", "layers/wq"), in the order of
/// the array. Errors: TraceError for a path that the configuration lacks, naming the nearest path.
std::vector<ParameterAxis> decoder_axes(const DecoderConfig& config, std::string_view path,
                                        STOW_AT);
/// Returns the parameter with all its names; flattened axes are unflattened, which moves no data.
/// Errors: as decoder_axes; TraceError if the array has another shape.
named::NamedArray decoder_named(const DecoderConfig& config, std::string_view path,
                                const Array& parameter, STOW_AT);
/// Returns the PartitionSpec of the parameter under a mapping of names. A flattened axis is cut
/// along its major part, so each piece has whole heads. Errors: as decoder_axes; TraceError if the
/// mapping cuts a part other than the major one, or two axes by one mesh axis, naming them.
PartitionSpec decoder_pspec(const DecoderConfig& config, std::string_view path,
                            const named::ResourceMapping& mapping, STOW_AT);
/// Returns the decoder with its parameters sharded over the mesh by the mapping; each keeps its
/// memory kind. Takes concrete, traced and abstract parameters. Errors: as decoder_pspec, naming
/// the parameter; TraceError if the size of a cut axis is not divisible.
Decoder shard_decoder(const DecoderConfig& config, const Decoder& model,
                      const named::ResourceMapping& mapping, const sharding::Mesh& mesh, STOW_AT);

}  // namespace stow::nn
