#include "stowage/train/mesh_checkpoint.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <exception>
#include <future>
#include <stdexcept>

#include <fmt/format.h>

#include "stowage/io/sharded_save.h"
#include "stowage/session/buffer_file.h"

namespace stow {
namespace {

std::vector<MeshTensor> mesh_tensors(std::span<const StateLeaf> leaves, const MeshShape& mesh) {
  std::vector<MeshTensor> tensors;
  for (const StateLeaf& leaf : leaves)
    tensors.push_back({leaf.name, leaf.type.dtype, leaf.type.shape.dims(),
                       mesh.rank() == 0 ? whole_sharding(leaf.type.shape.rank()) : leaf.sharding});
  return tensors;
}

// The parts of a leaf that a process has: one slice of each kind, and a buffer that holds it.
struct Part {
  TensorSlice slice;
  const DeviceBuffer* buffer = nullptr;
};
std::vector<std::vector<Part>> parts_here(std::span<const OwnedSlice> owned, size_t n_leaves,
                                          const PositionBuffers& state,
                                          const Positions& positions) {
  std::vector<std::vector<Part>> parts(n_leaves);
  for (const OwnedSlice& slice : owned) {
    if (slice.process != positions.process()) continue;
    const int64_t p = slice.position - positions.position(0);
    parts[slice.tensor].push_back({slice.slice, state[static_cast<size_t>(p)][slice.tensor].get()});
  }
  return parts;
}

// Returns a leaf whose parts are all here as one tensor, which is read from the parts when it is
// written.
TensorBytes gathered(const StateLeaf& leaf, std::vector<Part> parts) {
  if (parts.size() == 1) return tensor_of(leaf.name, leaf.type, *parts[0].buffer);
  TensorBytes tensor{leaf.name, leaf.type.dtype, leaf.type.shape.dims(), {}, {}};
  tensor.read = [parts = std::move(parts), elem_bytes = dtype_bytes(leaf.type.dtype),
                 whole = whole_slice(leaf.type.shape.dims())](int64_t offset,
                                                              std::span<std::byte> out) {
    const int64_t begin = offset / elem_bytes;
    const int64_t end = begin + static_cast<int64_t>(out.size()) / elem_bytes;
    for (const TensorSlice& wanted : slices_of_range(whole, begin, end)) {
      const auto bytes = static_cast<size_t>(wanted.elems() * elem_bytes);
      for (const Part& part : parts) {
        const auto read = [&](int64_t at, std::span<std::byte> to) -> Result<void> {
          part.buffer->read(at, to);
          return {};
        };
        if (Result<void> done =
                read_common(read, part.slice, 0, wanted, elem_bytes, out.first(bytes));
            !done)
          throw std::runtime_error(done.error());
      }
      out = out.subspan(bytes);
    }
  };
  return tensor;
}

Result<SaveReceipt> write_parts(const std::string& folder, const SaveTicket& ticket,
                                std::span<const StateLeaf> leaves,
                                const std::vector<std::vector<Part>>& parts, int32_t process) {
  std::vector<SliceBytes> slices;
  for (size_t i = 0; i < leaves.size(); ++i) {
    const ArrayType& type = leaves[i].type;
    for (const Part& part : parts[i]) {
      const ArrayType local{
          .dtype = type.dtype, .shape = Shape(part.slice.sizes), .kind = type.kind};
      TensorBytes bytes = tensor_of(leaves[i].name, local, *part.buffer);
      slices.push_back({{leaves[i].name, type.dtype, type.shape.dims(), 0, 0},
                        part.slice,
                        bytes.bytes,
                        std::move(bytes.read)});
    }
  }
  return write_shard(folder, ticket, process, slices);
}

// The first bytes of a text as integers, for a collective, and back.
using Words = std::array<int64_t, 128>;
Words words_of(std::string_view text) {
  Words words{};
  std::memcpy(words.data(), text.data(), std::min(text.size(), sizeof words));
  return words;
}
std::string text_of(std::span<const int64_t> words) {
  const auto* const text = reinterpret_cast<const char*>(words.data());
  return {text, ::strnlen(text, words.size_bytes())};
}

Result<std::string> save_in_parts(const std::string& folder, const CheckpointMeta& meta,
                                  std::span<const StateLeaf> leaves,
                                  const std::vector<std::vector<Part>>& parts, Positions& positions,
                                  const Retention& keep) {
  constexpr std::string_view kLabel = "saving a checkpoint";
  SaveTicket ticket{.step = meta.step, .n_processes = positions.n_processes()};
  SaveReceipt receipt;
  const auto begin = [&]() -> Result<void> {
    if (!positions.is_first()) return {};
    const Result<SaveTicket> begun = begin_sharded_save(folder, meta.step, ticket.n_processes);
    if (!begun) return begun.failure();
    ticket = *begun;
    return {};
  };
  if (Result<void> all = run_on_all_processes(positions, kLabel, begin); !all) return all.failure();
  const std::array mine = {static_cast<int64_t>(ticket.save_id),
                           int64_t{ticket.replaces_checkpoint}};
  const std::vector<int64_t> first = positions.gather_over_processes(mine, kLabel)[0];
  ticket.save_id = static_cast<uint64_t>(first[0]);
  ticket.replaces_checkpoint = static_cast<int32_t>(first[1]);

  const auto write = [&]() -> Result<void> {
    const Result<SaveReceipt> written =
        write_parts(folder, ticket, leaves, parts, positions.process());
    if (!written) return written.failure();
    receipt = *written;
    return {};
  };
  if (Result<void> all = run_on_all_processes(positions, kLabel, write); !all) return all.failure();
  const std::array written = {static_cast<int64_t>(receipt.digest), receipt.size_bytes};
  std::vector<SaveReceipt> receipts;
  for (const std::vector<int64_t>& of_process : positions.gather_over_processes(written, kLabel))
    receipts.push_back({static_cast<uint64_t>(of_process[0]), of_process[1]});

  const auto finish = [&]() -> Result<void> {
    if (!positions.is_first()) return {};
    const Result<std::string> path = finish_sharded_save(folder, ticket, meta, receipts, keep);
    return path ? Result<void>() : path.failure();
  };
  if (Result<void> all = run_on_all_processes(positions, kLabel, finish); !all)
    return all.failure();
  return checkpoint_path(folder, meta.step);
}

}  // namespace

Result<void> run_on_all_processes(Positions& positions, std::string_view label,
                                  const std::function<Result<void>()>& work) {
  if (positions.n_processes() == 1) return work();
  std::exception_ptr thrown;
  std::future<Result<void>> running = std::async(std::launch::async, [&]() -> Result<void> {
    try {
      return work();
    } catch (const std::exception& error) {
      thrown = std::current_exception();
      return fail("{}", error.what());
    }
  });
  // A process that is done waits for the others in a collective. This interval bounds how late it
  // notices them.
  constexpr auto kLongest = std::chrono::milliseconds(100);
  auto wait = std::chrono::milliseconds(1);
  for (bool all_done = false; !all_done; wait = std::min(2 * wait, kLongest)) {
    const int64_t is_done = running.wait_for(wait) == std::future_status::ready;
    all_done = true;
    for (const std::vector<int64_t>& other :
         positions.gather_over_processes(std::span(&is_done, 1), label))
      all_done = all_done && other[0] != 0;
  }
  const Result<void> mine = running.get();
  const int64_t has_failed = !mine.ok();
  const std::vector<std::vector<int64_t>> failed =
      positions.gather_over_processes(std::span(&has_failed, 1), label);
  if (std::all_of(failed.begin(), failed.end(), [](const auto& f) { return f[0] == 0; })) return {};
  const std::vector<std::vector<int64_t>> messages =
      positions.gather_over_processes(words_of(mine.error()), label);
  if (thrown) std::rethrow_exception(thrown);
  if (!mine.ok()) return mine;
  size_t first = 0;
  while (failed[first][0] == 0) ++first;
  return fail("process {}: {}", first, text_of(messages[first]));
}

Result<std::string> text_of_process_0(Positions& positions, std::string_view label,
                                      const std::function<Result<std::string>()>& make) {
  std::string text;
  const auto work = [&]() -> Result<void> {
    if (!positions.is_first()) return {};
    Result<std::string> made = make();
    if (!made) return made.failure();
    text = std::move(*made);
    return {};
  };
  if (Result<void> all = run_on_all_processes(positions, label, work); !all) return all.failure();
  STOW_CHECK(text.size() <= sizeof(Words), "{} bytes", text.size());
  if (positions.n_processes() == 1) return text;
  return text_of(positions.gather_over_processes(words_of(text), label)[0]);
}

Result<std::optional<CheckpointName>> latest_checkpoint_of_all(const std::string& folder,
                                                               Positions& positions) {
  const Result<std::string> step =
      text_of_process_0(positions, "the newest checkpoint", [&]() -> Result<std::string> {
        const Result<std::optional<CheckpointName>> latest = latest_checkpoint(folder);
        if (!latest) return latest.failure();
        return *latest ? std::to_string((*latest)->step) : std::string();
      });
  if (!step) return step.failure();
  if (step->empty()) return std::optional<CheckpointName>();
  const int64_t number = std::stoll(*step);
  return std::optional<CheckpointName>({number, checkpoint_path(folder, number)});
}

Result<Checkpoint> open_checkpoint(const std::string& path, const CheckpointRequirements& needs,
                                   Positions& positions) {
  Result<Checkpoint> checkpoint = fail("{}: is not open", path);
  const auto open = [&]() -> Result<void> {
    checkpoint = Checkpoint::open(path, needs, {positions.process(), positions.n_processes()});
    return checkpoint ? Result<void>() : checkpoint.failure();
  };
  if (Result<void> all = run_on_all_processes(positions, "opening a checkpoint", open); !all)
    return all.failure();
  return checkpoint;
}

TensorSlice slice_of_position(const StateLeaf& leaf, const MeshShape& mesh, int64_t position) {
  if (mesh.rank() == 0) return whole_slice(leaf.type.shape.dims());
  return slice_at(leaf.type.shape.dims(), leaf.sharding, mesh, position);
}

Result<PositionBuffers> read_parts(
    std::span<const StateLeaf> leaves, std::span<const ArrayType> types, Positions& positions,
    const std::function<Result<void>(size_t, const TensorSlice&, DeviceBuffer&)>& read) {
  PositionBuffers parts(positions.size());
  const auto read_all = [&]() -> Result<void> {
    for (size_t i = 0; i < leaves.size(); ++i) {
      for (size_t p = 0; p < positions.size(); ++p) {
        const TensorSlice slice =
            slice_of_position(leaves[i], positions.mesh(), positions.position(p));
        parts[p].push_back(positions.device(p).allocate(
            slice.elems() * dtype_bytes(leaves[i].type.dtype), types[i].kind));
        if (Result<void> done = read(i, slice, *parts[p].back()); !done) return done;
      }
    }
    return {};
  };
  if (Result<void> all = run_on_all_processes(positions, "reading the state", read_all); !all)
    return all.failure();
  return parts;
}

Result<PositionBuffers> read_state(const Checkpoint& checkpoint, std::span<const StateLeaf> leaves,
                                   std::span<const ArrayType> types, Positions& positions) {
  const auto read = [&](size_t i, const TensorSlice& slice, DeviceBuffer& buffer) {
    return fill(buffer, [&](int64_t offset, std::span<std::byte> out) {
      return checkpoint.read_slice_part(leaves[i].name, slice, offset, out);
    });
  };
  return read_parts(leaves, types, positions, read);
}

Result<std::string> save_state(const std::string& folder, const CheckpointMeta& meta,
                               std::span<const StateLeaf> leaves, const PositionBuffers& state,
                               Positions& positions, const Retention& keep) {
  const MeshShape& mesh = positions.mesh();
  std::vector<int32_t> processes;
  for (int64_t position = 0; position < mesh.size(); ++position)
    processes.push_back(static_cast<int32_t>(position / static_cast<int64_t>(positions.size())));
  const std::vector<std::vector<Part>> parts = parts_here(
      assign_slices(mesh_tensors(leaves, mesh), mesh, processes), leaves.size(), state, positions);
  if (positions.n_processes() > 1)
    return save_in_parts(folder, meta, leaves, parts, positions, keep);
  std::vector<TensorBytes> tensors;
  for (size_t i = 0; i < leaves.size(); ++i) tensors.push_back(gathered(leaves[i], parts[i]));
  return save_checkpoint(folder, meta, tensors, keep);
}

}  // namespace stow
