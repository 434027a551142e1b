#include "stowage/train/model.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace stow {

Result<std::vector<DeviceBufferPtr>> read_arrays(
    Device& device, std::span<const ArrayType> types,
    const std::function<Result<void>(size_t, DeviceBuffer&)>& read) {
  std::vector<DeviceBufferPtr> buffers;
  for (size_t i = 0; i < types.size(); ++i) {
    buffers.push_back(device.allocate(types[i].bytes(), types[i].kind));
    if (Result<void> done = read(i, *buffers.back()); !done) return done.failure();
  }
  return buffers;
}

optim::Mask TrainModel::muon_matrices() const {
  const NamedArrays weights = parameters();
  std::vector<std::string> paths;
  for (size_t i = 0; i < weights.names.size(); ++i) {
    const std::vector<WeightAxis> axes = axes_of(weights.names[i]);
    const auto n_layers = static_cast<size_t>(std::count_if(
        axes.begin(), axes.end(), [](const WeightAxis& a) { return a.name == "layers"; }));
    if (weights.arrays[i].shape().dims().size() == n_layers + 2) paths.push_back(weights.names[i]);
  }
  return [paths = std::move(paths)](const std::string& path) {
    return std::find(paths.begin(), paths.end(), path) != paths.end();
  };
}

std::string TrainModel::describe_batch() const {
  const NamedArrays arrays = batch(0);
  const bool has_rows = !arrays.arrays.empty() && arrays.arrays[0].rank() > 0;
  const int64_t rows = has_rows ? arrays.arrays[0].dim(0) : 1;
  return fmt::format("{} row{}", rows, rows == 1 ? "" : "s");
}

}  // namespace stow
