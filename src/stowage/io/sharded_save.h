// Checkpoints that several processes write: which of them writes what, and the steps of a save.
// Not their communication: the caller passes the ticket to all processes and the receipts to one.
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

/// An array over a mesh.
struct MeshTensor {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;  ///< Shape of the whole array, cut evenly.
  AxisSharding sharding;
};

/// A slice of one of those, and who writes it.
struct OwnedSlice {
  size_t tensor = 0;  ///< Its number.
  TensorSlice slice;
  int64_t position = 0;  ///< A position of the mesh that holds it, of that process.
  int32_t process = 0;   ///< Number of the process that writes it.
};

/// Every element of every array exactly once. `processes`: of each position. Of slices that several
/// processes hold each goes, the largest first, to the holder that writes the fewest bytes so far.
/// The same on all processes, as it depends on the arguments alone.
std::vector<OwnedSlice> share_out_slices(std::span<const MeshTensor> tensors, const MeshShape& mesh,
                                         std::span<const int32_t> processes);

/// A slice to be written.
struct SliceBytes {
  TensorInfo whole;   ///< Name, type and shape of the whole tensor.
  TensorSlice slice;  ///< Not empty, unless the tensor is.
  /// The slice's bytes, row-major, or a function that gives them; see TensorBytes.
  std::span<const std::byte> bytes = {};
  std::function<void(int64_t offset_bytes, std::span<std::byte> out)> read = {};
};

/// The facts of a save that all its processes must know. Plain bytes, which may be sent.
struct SaveTicket {
  int64_t step = 0;
  uint64_t save_id = 0;  ///< Random: no other save has it.
  int32_t n_processes = 1;
  int32_t is_replaced = 0;  ///< 1 if a checkpoint of that step is there, which stays until the end.
};

/// The file that a process has written. Plain bytes, which may be sent.
struct SaveReceipt {
  uint64_t digest = 0;
  int64_t size_bytes = 0;
};

/// The first step, on process 0: makes the folder where needed and the ticket. Errors: "PATH:
/// reason".
Result<SaveTicket> begin_sharded_save(const std::string& folder, int64_t step, int32_t n_processes);

/// The second, on each process, also one without slices: writes
/// FOLDER/step-000123.rank-R.safetensors under a temporary name, synced and renamed; R is the
/// process. Each slice is a tensor of the file; its metadata say of which save, step and process
/// the file is, and of which tensor each slice. Errors: "PATH: reason"; the checkpoints that were
/// there stay.
Result<SaveReceipt> write_shard(const std::string& folder, const SaveTicket& ticket,
                                int32_t process, std::span<const SliceBytes> slices);

/// The last, on process 0, once it has all receipts, by process: reads the headers of the files,
/// checks that each tensor has every element once, and writes FOLDER/step-000123.json as
/// save_checkpoint() does. Then removes the checkpoints that `keep` does not name. Returns the path of
/// the JSON file. Errors: "PATH: reason", also for a file that this process cannot see; the
/// checkpoints that were there stay.
Result<std::string> finish_sharded_save(const std::string& folder, const SaveTicket& ticket,
                                        const CheckpointMeta& meta,
                                        std::span<const SaveReceipt> receipts,
                                        const Retention& keep);

}  // namespace stow
