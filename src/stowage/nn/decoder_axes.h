// The names of the axes of a decoder's parameters, by path; and shardings by these names.
// Not the mesh of a training run; that maps these names to its axes.
#pragma once

#include <string_view>
#include <vector>

#include "stowage/nn/decoder.h"
#include "stowage/nn/named/partitioning.h"

namespace stow::nn {

// Names: "layers", "vocab", "embed" (the residual stream), "heads" and "kv_heads", "head_size", and
// "mlp" (within the feed-forward block). Fully sharded parameters map "embed" to an axis of data,
// tensor parallelism maps "heads", "kv_heads", "mlp" and "vocab" to one of the model.

/// One axis of a parameter as it is stored: one named axis, or several flattened into one, the
/// major one first, as the heads of a matrix [d, heads * head_size].
struct ParameterAxis {
  std::vector<named::Axis> parts;
  int64_t size() const { return named::total_size(parts); }  ///< As stored.
};

/// The axes of the parameter at that path of a Decoder ("embed", "layers/wq"), in the order of the
/// array. Errors: TraceError for a path that the configuration has not, naming the nearest.
std::vector<ParameterAxis> decoder_axes(const DecoderConfig& config, std::string_view path,
                                        STOW_AT);
/// The parameter with all its names; flattened axes are unflattened, which moves nothing.
/// Errors: as above; TraceError where the array is of another shape.
named::NamedArray decoder_named(const DecoderConfig& config, std::string_view path,
                                const Array& parameter, STOW_AT);
/// How a mapping of names cuts the parameter. A flattened axis is cut by its major part, so that a
/// piece has whole heads. Errors: as decoder_axes; TraceError where the mapping cuts another part
/// than the major one, or two
///         axes by one mesh axis, naming them.
PartitionSpec decoder_pspec(const DecoderConfig& config, std::string_view path,
                            const named::ResourceMapping& mapping, STOW_AT);
/// A decoder whose parameters lie over the mesh as the mapping says, each in the kind of memory
/// where it was. Works on concrete, traced and abstract ones. Errors: as above, naming the
/// parameter; TraceError where the size of a cut axis is not divisible.
Decoder shard_decoder(const DecoderConfig& config, const Decoder& model,
                      const named::ResourceMapping& mapping, const sharding::Mesh& mesh, STOW_AT);

}  // namespace stow::nn
