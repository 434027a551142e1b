// Checkpoints that several processes write: division of the tensors, and the steps of a save.
// Not communication: the caller sends the ticket to all processes and the receipts to process 0.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "stowage/base/inside.h"
#include "stowage/base/result.h"
#include "stowage/core/axis_sharding.h"
#include "stowage/core/mesh_shape.h"
#include "stowage/io/checkpoint_file.h"
#include "stowage/io/tensor_slice.h"

namespace stow {

/// An array over a mesh, to be saved.
struct MeshTensor {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;  ///< Shape of the whole array; the mesh axes divide its extents.
  AxisSharding sharding;
};

/// A slice of an array, and the process that writes it.
struct OwnedSlice {
  size_t tensor = 0;  ///< Index of the array among the MeshTensors.
  TensorSlice slice;
  int64_t position = 0;  ///< A mesh position of that process that holds the slice.
  int32_t process = 0;   ///< Number of the process that writes the slice.
};

/// Divides the arrays into slices such that every element is written exactly once. `processes`: the
/// process of each mesh position. A slice that several processes hold is assigned, the largest
/// slices first, to the holder with the fewest bytes so far. The result depends on the arguments
/// only, so it is the same in all processes.
std::vector<OwnedSlice> assign_slices(std::span<const MeshTensor> tensors, const MeshShape& mesh,
                                      std::span<const int32_t> processes);

/// A slice to be written.
struct SliceBytes {
  TensorInfo whole;   ///< Name, type and shape of the whole tensor.
  TensorSlice slice;  ///< Not empty, unless the tensor is.
  /// The slice's bytes, row-major, or a function that returns them; see TensorBytes.
  std::span<const std::byte> bytes = {};
  std::function<void(int64_t offset_bytes, std::span<std::byte> out)> read = {};
};

/// Data of a save that process 0 sends to all processes. Trivially copyable.
struct SaveTicket {
  int64_t step = 0;
  uint64_t save_id = 0;  ///< Random number that identifies the save.
  int32_t n_processes = 1;
  /// 1 if a checkpoint of that step exists, which the last step replaces; else 0.
  int32_t replaces_checkpoint = 0;
};

/// Data of the file that a process has written. Trivially copyable.
struct SaveReceipt {
  uint64_t digest = 0;
  int64_t size_bytes = 0;
};

/// First step, on process 0: creates the folder if needed and returns the ticket. Errors: "PATH:
/// reason".
Result<SaveTicket> begin_sharded_save(const std::string& folder, int64_t step, int32_t n_processes);

/// Second step, on each process, also one without slices: writes
/// FOLDER/step-000123.rank-R.safetensors, where R is the process, under a temporary name, syncs it
/// and renames it. Each slice is a tensor of the file. The file's metadata are a ShardHeader.
/// Errors: "PATH: reason"; earlier checkpoints are then unchanged.
Result<SaveReceipt> write_shard(const std::string& folder, const SaveTicket& ticket,
                                int32_t process, std::span<const SliceBytes> slices);

/// Last step, on process 0, with the receipts of all processes in their order: reads the headers of
/// the files, checks that they hold every element of each tensor once, and writes
/// FOLDER/step-000123.json as save_checkpoint() does. Then removes the checkpoints that `keep` does
/// not name. Returns the path of the JSON file. Errors: "PATH: reason", also for a file that this
/// process cannot see; earlier checkpoints are then unchanged.
Result<std::string> finish_sharded_save(const std::string& folder, const SaveTicket& ticket,
                                        const CheckpointMeta& meta,
                                        std::span<const SaveReceipt> receipts,
                                        const Retention& keep);

}  // namespace stow
