#include "stowage/io/sharded_save.h"

#include <algorithm>
#include <map>
#include <random>
#include <set>

#include "stowage/base/text_file.h"
#include "stowage/io/checkpoint_names.h"
#include "stowage/io/json_fields.h"

namespace stow {
namespace {

std::string id_text(const SaveTicket& ticket) {
  return fmt::format("{:016x}", ticket.save_id);
}

std::string shard_name(const SaveTicket& ticket, int32_t process) {
  return CheckpointFileName{.step = ticket.step,
                            .is_json = false,
                            .tag = ticket.replaces_checkpoint ? id_text(ticket) : std::string(),
                            .rank = process,
                            .is_temporary = false}
      .text();
}

// The pieces of one file, of which process 0 has the receipt.
Result<void> add_shard(const std::string& folder, const SaveTicket& ticket, int32_t process,
                       const SaveReceipt& receipt, CheckpointIndex& index) {
  const std::string name = shard_name(ticket, process);
  const std::string path = folder + "/" + name;
  if (!file_exists(path))
    return fail(
        "{}: expected the file that process {} has written, got none; give all processes "
        "one folder, on a file system that they share",
        path, process);
  const Result<SafetensorsFile> file = SafetensorsFile::open(path);
  if (!file) return file.failure();
  Result<ShardHeader> header = read_shard_header(*file);
  if (!header) return fail("{}: {}", path, header.error());
  if (header->save_id != index.save_id || header->rank != process ||
      file->size_bytes() != receipt.size_bytes)
    return fail(
        "{}: is not the file that process {} has written; give all processes one folder, "
        "on a file system that they share",
        path, process);
  const size_t number = index.files.size();
  index.files.push_back({name, fmt::format("{:016x}", receipt.digest), receipt.size_bytes});
  for (auto& [info, piece] : header->pieces) {
    StoredTensor& tensor = index.tensors[info.name];
    if (tensor.pieces.empty()) tensor.info = info;
    if (tensor.info.dtype != info.dtype || tensor.info.shape != info.shape)
      return fail("{}: tensor {} is {}, elsewhere {}", path, shown_name(info.name),
                  tensor_type(info.dtype, info.shape),
                  tensor_type(tensor.info.dtype, tensor.info.shape));
    piece.file = number;
    tensor.pieces.push_back(std::move(piece));
  }
  return {};
}

}  // namespace

std::vector<OwnedSlice> assign_slices(std::span<const MeshTensor> tensors, const MeshShape& mesh,
                                      std::span<const int32_t> processes) {
  STOW_CHECK(static_cast<int64_t>(processes.size()) == mesh.size(), "{} positions of {}",
             processes.size(), to_string(mesh));
  struct Held {
    OwnedSlice slice;
    int64_t bytes = 0;
    std::map<int32_t, int64_t> holders;  // the first position of each process
  };
  std::vector<Held> all;
  for (size_t t = 0; t < tensors.size(); ++t) {
    const MeshTensor& tensor = tensors[t];
    std::map<TensorSlice, Held> slices;
    for (int64_t position = 0; position < mesh.size(); ++position) {
      TensorSlice slice = slice_at(tensor.shape, tensor.sharding, mesh, position);
      const int64_t bytes = slice.elems() * dtype_bytes(tensor.dtype);
      if (bytes == 0) slice = whole_slice(tensor.shape);  // An array without elements.
      Held& held = slices[slice];
      held.bytes = bytes;
      held.slice.tensor = t;
      held.holders.emplace(processes[static_cast<size_t>(position)], position);
    }
    for (auto& [slice, held] : slices) {
      held.slice.slice = slice;
      all.push_back(std::move(held));
    }
  }
  // Slices that only one process holds come first, as they leave no choice; then the largest.
  std::stable_sort(all.begin(), all.end(), [](const Held& a, const Held& b) {
    const bool a_chooses = a.holders.size() > 1, b_chooses = b.holders.size() > 1;
    return a_chooses != b_chooses ? b_chooses : a.bytes > b.bytes;
  });
  std::map<int32_t, int64_t> written_bytes;
  std::vector<OwnedSlice> owned;
  for (Held& held : all) {
    const auto least = std::min_element(held.holders.begin(), held.holders.end(),
                                        [&](const auto& a, const auto& b) {
                                          return written_bytes[a.first] < written_bytes[b.first];
                                        });
    held.slice.process = least->first;
    held.slice.position = least->second;
    written_bytes[least->first] += held.bytes;
    owned.push_back(std::move(held.slice));
  }
  return owned;
}

Result<SaveTicket> begin_sharded_save(const std::string& folder, int64_t step,
                                      int32_t n_processes) {
  STOW_CHECK(step >= 0 && n_processes > 0);
  if (Result<void> made = ensure_directory(folder); !made) return made.failure();
  SaveTicket ticket{
      .step = step, .save_id = 0, .n_processes = n_processes, .replaces_checkpoint = 0};
  std::random_device random;
  ticket.save_id = uint64_t{random()} << 32 | random();
  const CheckpointFileName json = {
      .step = step, .is_json = true, .tag = {}, .rank = {}, .is_temporary = false};
  ticket.replaces_checkpoint = file_exists(folder + "/" + json.text());
  return ticket;
}

Result<SaveReceipt> write_shard(const std::string& folder, const SaveTicket& ticket,
                                int32_t process, std::span<const SliceBytes> slices) {
  STOW_CHECK(0 <= process && process < ticket.n_processes, "{} of {}", process, ticket.n_processes);
  ShardHeader header{.save_id = id_text(ticket),
                     .step = ticket.step,
                     .rank = process,
                     .n_ranks = ticket.n_processes,
                     .pieces = {}};
  std::vector<TensorBytes> tensors;
  for (const SliceBytes& slice : slices) {
    header.pieces.emplace_back(slice.whole, StoredPiece{0, 0, slice.slice});
    tensors.push_back({piece_name(slice.whole.name, slice.slice), slice.whole.dtype,
                       slice.slice.sizes, slice.bytes, slice.read});
  }
  const std::string path = folder + "/" + shard_name(ticket, process);
  Digest digest;
  Result<AtomicFile> file = write_safetensors(path, tensors, shard_metadata(header), &digest);
  if (!file) return file.failure();
  if (Result<void> done = file->commit(); !done) return done.failure();
  const Result<InputFile> written = InputFile::open(path);
  if (!written) return written.failure();
  return SaveReceipt{digest.value(), written->size_bytes()};
}

Result<std::string> finish_sharded_save(const std::string& folder, const SaveTicket& ticket,
                                        const CheckpointMeta& meta,
                                        std::span<const SaveReceipt> receipts,
                                        const Retention& keep) {
  STOW_CHECK(meta.step == ticket.step && meta.data_position >= 0);
  STOW_CHECK(static_cast<int64_t>(receipts.size()) == ticket.n_processes, "{} of {} receipts",
             receipts.size(), ticket.n_processes);
  CheckpointIndex index;
  index.meta = meta;
  index.save_id = id_text(ticket);
  for (int32_t p = 0; p < ticket.n_processes; ++p)
    if (Result<void> added = add_shard(folder, ticket, p, receipts[static_cast<size_t>(p)], index);
        !added)
      return added.failure();
  const CheckpointFileName json = {
      .step = ticket.step, .is_json = true, .tag = {}, .rank = {}, .is_temporary = false};
  const std::string path = folder + "/" + json.text();
  if (const std::optional<std::string> fault = find_cover_fault(index))
    return fail("{}: is not written: {}", path, *fault);
  if (Result<void> done = write_text_file(path, checkpoint_json(index) + "\n"); !done)
    return done.failure();
  std::set<std::string> names;
  for (const CheckpointFile& file : index.files) names.insert(file.name);
  remove_old_checkpoints(folder, ticket.step, names, keep);
  return path;
}

}  // namespace stow
