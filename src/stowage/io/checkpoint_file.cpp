#include "stowage/io/checkpoint_file.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <system_error>

#include "stowage/base/text_file.h"
#include "stowage/io/checkpoint_names.h"

namespace stow {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMaxJsonBytes = int64_t{64} << 20;
constexpr size_t kMostHeldFiles = 32;

// The names in a folder; none where there is no folder.
Result<std::vector<std::string>> names_in(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code code;
  fs::directory_iterator at(folder, code);
  for (; !code && at != fs::directory_iterator(); at.increment(code))
    names.push_back(at->path().filename().string());
  if (code && code != std::errc::no_such_file_or_directory)
    return fail("{}: {}", folder, code.message());
  return names;
}

const std::string* value_of(const ConfigText& config, const std::string& key) {
  for (const auto& [k, v] : config)
    if (k == key) return &v;
  return nullptr;
}

Result<void> check_config(const ConfigText& has, const CheckpointRequirements& needs) {
  for (const auto& [key, needed] : needs.config) {
    const std::string* value = value_of(has, key);
    if (!value) value = value_of(needs.defaults, key);
    if (!value) return fail("is of another run: it was made without {}", key);
    if (*value == needed) continue;
    const std::string* const remedy = value_of(needs.remedies, key);
    return fail("is of another run: it was made with {} = {}, this run has {}{}", key,
                Json(*value).dump(), Json(needed).dump(),
                remedy ? fmt::format(fmt::runtime(*remedy), *value) : "");
  }
  return {};
}

Result<void> check_tensors(const CheckpointIndex& index, std::span<const ExpectedTensor> needed) {
  std::set<std::string_view> names;
  for (const ExpectedTensor& tensor : needed) {
    names.insert(tensor.name);
    const auto found = index.tensors.find(tensor.name);
    if (found == index.tensors.end())
      return fail("is of another model: it has no '{}'", tensor.name);
    const TensorInfo& info = found->second.info;
    if (info.dtype != tensor.dtype || info.shape != tensor.shape)
      return fail("is of another model: '{}' is {}, this run needs {}", tensor.name,
                  tensor_type(info.dtype, info.shape), tensor_type(tensor.dtype, tensor.shape));
  }
  for (const auto& [name, tensor] : index.tensors)
    if (!names.contains(name))
      return fail("is of another model: it has {}, which this run has not", Json(name).dump());
  return {};
}

struct FilesOfStep {
  std::vector<std::string> json, tensors;
};

// A checkpoint is whole in one folder or the other at any time: its tensors are in both while its
// JSON file moves. Where files cannot be linked they are moved first.
Result<void> move_files(const FilesOfStep& files, const std::string& from, const std::string& to) {
  const auto move = [&](const std::string& name, bool may_stay) -> Result<void> {
    const std::string source = from + "/" + name, target = to + "/" + name;
    std::error_code code;
    if (may_stay) {
      if (Result<void> gone = remove_file(target); !gone) return gone;
      fs::create_hard_link(source, target, code);
      if (!code) return {};
    }
    fs::rename(source, target, code);
    if (code) return fail("{}: {}", source, code.message());
    return {};
  };
  for (const std::string& name : files.tensors)
    if (Result<void> moved = move(name, true); !moved) return moved;
  for (const std::string& name : files.json)
    if (Result<void> moved = move(name, false); !moved) return moved;
  for (const std::string& name : files.tensors)
    if (Result<void> gone = remove_file(from + "/" + name); !gone) return gone;
  return {};
}

}  // namespace

// The checkpoint just saved is worth more than a tidy folder.
void remove_old_checkpoints(const std::string& folder, int64_t saved_step,
                            const std::set<std::string>& saved_names, const Retention& keep) {
  const Result<std::vector<std::string>> names = names_in(folder);
  const Result<std::vector<CheckpointName>> checkpoints = list_checkpoints(folder);
  if (!names || !checkpoints) return;
  std::set<int64_t> kept;
  for (const CheckpointName& c : *checkpoints) kept.insert(c.step);
  const bool has_pinned = keep.pinned_step && kept.contains(*keep.pinned_step);
  if (keep.newest > 0)
    while (kept.size() > static_cast<size_t>(keep.newest))
      // The checkpoint that was just saved stays, even among those of higher steps.
      kept.erase(*kept.begin() == saved_step ? std::next(kept.begin()) : kept.begin());
  if (has_pinned) kept.insert(*keep.pinned_step);
  // The JSON files first: without it a checkpoint is gone, and not half there.
  for (const bool json : {true, false}) {
    for (const std::string& name : *names) {
      const std::optional<CheckpointFileName> file = parse_checkpoint_file_name(name);
      if (!file || file->is_json != json) continue;
      const bool replaced = file->step == saved_step && !json && !saved_names.contains(name);
      if (file->is_temporary || replaced || !kept.contains(file->step))
        (void)remove_file(folder + "/" + name);
    }
  }
}

bool is_checkpoint_name(const std::string& path) {
  return parse_checkpoint_file_name(fs::path(path).filename().string()).has_value();
}

Result<std::vector<CheckpointName>> list_checkpoints(const std::string& folder) {
  const Result<std::vector<std::string>> names = names_in(folder);
  if (!names) return names.failure();
  std::vector<CheckpointName> checkpoints;
  for (const std::string& name : *names) {
    const std::optional<CheckpointFileName> file = parse_checkpoint_file_name(name);
    std::error_code code;
    if (file && file->is_json && !file->is_temporary &&
        fs::is_regular_file(folder + "/" + name, code))
      checkpoints.push_back({file->step, folder + "/" + name});
  }
  std::sort(checkpoints.begin(), checkpoints.end(),
            [](const CheckpointName& a, const CheckpointName& b) { return a.step < b.step; });
  return checkpoints;
}

Result<std::optional<CheckpointName>> latest_checkpoint(const std::string& folder) {
  const Result<std::vector<CheckpointName>> checkpoints = list_checkpoints(folder);
  if (!checkpoints) return checkpoints.failure();
  if (checkpoints->empty()) return std::optional<CheckpointName>();
  return std::optional(checkpoints->back());
}

Result<std::string> save_checkpoint(const std::string& folder, const CheckpointMeta& meta,
                                    std::span<const TensorBytes> tensors, const Retention& keep) {
  STOW_CHECK(meta.step >= 0 && meta.data_position >= 0);
  if (Result<void> made = ensure_directory(folder); !made) return made.failure();
  CheckpointFileName name = {.step = meta.step, .is_json = true};
  const std::string json_path = folder + "/" + name.text();
  name.is_json = false;
  // A checkpoint of this step that is there keeps its tensors until the new JSON file names others.
  const bool replaces = file_exists(json_path);
  Digest digest;
  Result<AtomicFile> file = write_safetensors(folder + "/" + name.text(), tensors, {}, &digest);
  if (!file) return file.failure();
  if (replaces) name.tag = digest.hex();
  if (Result<void> done = file->commit(folder + "/" + name.text()); !done) return done.failure();
  const CheckpointIndex index = {.meta = meta, .files = {{name.text(), digest.hex(), {}}}};
  if (Result<void> done = write_text_file(json_path, checkpoint_json(index) + "\n"); !done)
    return done.failure();
  remove_old_checkpoints(folder, meta.step, {name.text()}, keep);
  return json_path;
}

std::string set_aside_folder(const std::string& folder) {
  return folder + "/previous";
}

Result<std::string> set_aside_checkpoints(const std::string& folder) {
  const Result<std::vector<CheckpointName>> checkpoints = list_checkpoints(folder);
  if (!checkpoints) return checkpoints.failure();
  if (checkpoints->empty()) return std::string();
  const std::string aside = set_aside_folder(folder);
  if (Result<void> made = ensure_directory(aside); !made) return made.failure();
  const Result<DirectoryLock> held = DirectoryLock::lock(aside);
  if (!held) return held.failure();
  const Result<std::vector<std::string>> names = names_in(folder);
  if (!names) return names.failure();
  std::map<int64_t, FilesOfStep> steps;
  for (const std::string& name : *names) {
    const std::optional<CheckpointFileName> file = parse_checkpoint_file_name(name);
    if (!file) continue;
    if (file->is_temporary) {
      if (Result<void> gone = remove_file(folder + "/" + name); !gone) return gone.failure();
      continue;
    }
    FilesOfStep& files = steps[file->step];
    (file->is_json ? files.json : files.tensors).push_back(name);
  }
  // The oldest first: of a run that is killed here, the newest is still where --resume looks.
  for (const auto& [step, files] : steps)
    if (Result<void> moved = move_files(files, folder, aside); !moved) return moved.failure();
  // And only then what was there before.
  const Result<std::vector<std::string>> there = names_in(aside);
  if (!there) return there.failure();
  for (const std::string& name : *there) {
    const std::optional<CheckpointFileName> file = parse_checkpoint_file_name(name);
    if (!file || std::find(names->begin(), names->end(), name) != names->end()) continue;
    if (Result<void> gone = remove_file(aside + "/" + name); !gone) return gone.failure();
  }
  for (const std::string& changed : {aside, folder})
    if (Result<void> synced = sync_directory(changed); !synced) return synced.failure();
  return aside;
}

namespace {

// Returns the error; if it says that a file is damaged, with the remedy to move `what` away.
std::string with_remedy(const std::string& error, std::string_view what) {
  if (!error.starts_with("is damaged")) return error;
  return fmt::format("{}; move {} away to resume from an earlier one", error, what);
}

// Reads the JSON file of a checkpoint and checks it as far as it can be checked by itself.
Result<CheckpointIndex> read_index(const std::string& path) {
  const Result<std::string> text = read_text_file(path, kMaxJsonBytes);
  if (!text) return text.failure();
  Result<CheckpointIndex> index = parse_checkpoint_json(*text);
  if (!index) return fail("{}: {}", path, with_remedy(index.error(), "it"));
  // Under another step's name it would be found again and again, and newer ones would not.
  const std::optional<CheckpointFileName> name =
      parse_checkpoint_file_name(fs::path(path).filename().string());
  if (name && name->is_json && name->step != index->meta.step)
    return fail("{}: is of step {}, which is not what its name says", path, index->meta.step);
  return index;
}

Result<void> check_size(const InputFile& file, const CheckpointFile& expected) {
  if (file.size_bytes() == *expected.size_bytes) return {};
  const std::string error = fmt::format("is damaged: it has {} bytes, its checkpoint says {}",
                                        file.size_bytes(), *expected.size_bytes);
  return fail("{}: {}", file.path(), with_remedy(error, "its JSON file"));
}

Result<void> check_digest(const SafetensorsFile& file, const std::string& expected,
                          const std::string& json_path) {
  const Result<Digest> digest = file.digest();
  if (!digest) return digest.failure();
  if (digest->hex() == expected) return {};
  const std::string error = fmt::format("is damaged: its digest is {}, {} says {}", digest->hex(),
                                        json_path, expected);
  return fail("{}: {}", file.path(), with_remedy(error, json_path));
}

}  // namespace

Result<CheckpointMeta> read_checkpoint_meta(const std::string& path) {
  Result<CheckpointIndex> index = read_index(path);
  if (!index) return index.failure();
  return std::move(index->meta);
}

std::string checkpoint_path(const std::string& folder, int64_t step) {
  const CheckpointFileName name = {
      .step = step, .is_json = true, .tag = {}, .rank = {}, .is_temporary = false};
  return folder + "/" + name.text();
}

Result<Checkpoint> Checkpoint::open(const std::string& path, const CheckpointRequirements& needs,
                                    CheckpointShare share) {
  return open(path, &needs, share);
}

Result<Checkpoint> Checkpoint::open(const std::string& path) {
  return open(path, nullptr, {});
}

Result<Checkpoint> Checkpoint::open(const std::string& path, const CheckpointRequirements* needs,
                                    CheckpointShare share) {
  STOW_CHECK(0 <= share.index && share.index < share.count, "{} of {}", share.index, share.count);
  Result<CheckpointIndex> index = read_index(path);
  if (!index) return index.failure();
  if (needs)
    if (const Result<void> same = check_config(index->meta.config, *needs); !same)
      return fail("{}: {}", path, same.error());
  Checkpoint checkpoint;
  checkpoint.folder_ = parent_directory(path);
  checkpoint.index_ = std::move(*index);
  const bool is_sharded = checkpoint.index_.is_sharded();
  if (!is_sharded)
    if (Result<void> opened = checkpoint.open_whole(path, share.index == 0); !opened)
      return opened.failure();
  if (needs)
    if (const Result<void> same = check_tensors(checkpoint.index_, needs->tensors); !same)
      return fail("{}: {}", is_sharded ? path : checkpoint.path_of(0), same.error());
  if (is_sharded)
    if (Result<void> opened = checkpoint.open_shards(path, share); !opened) return opened.failure();
  return checkpoint;
}

Result<void> Checkpoint::open_whole(const std::string& path, bool verifies) {
  Result<SafetensorsFile> file = SafetensorsFile::open(path_of(0));
  if (!file) return file.failure();
  if (verifies)
    if (Result<void> same = check_digest(*file, index_.files[0].digest, path); !same) return same;
  index_.files[0].size_bytes = file->size_bytes();
  for (const TensorInfo& info : file->tensors()) {
    StoredTensor& tensor = index_.tensors[info.name];
    tensor.info = info;
    tensor.pieces = {{0, info.offset_bytes, whole_slice(info.shape)}};
  }
  held_.push_back(std::move(*file).release());
  return {};
}

Result<void> Checkpoint::open_shards(const std::string& path, CheckpointShare share) {
  for (size_t i = 0; i < index_.files.size(); ++i) {
    const bool verifies = i % static_cast<size_t>(share.count) == static_cast<size_t>(share.index);
    const bool holds = index_.files.size() <= kMostHeldFiles;
    if (verifies) {
      Result<SafetensorsFile> file = SafetensorsFile::open(path_of(i));
      if (!file) return file.failure();
      if (Result<void> same = verify_shard(path, i, *file); !same) return same;
      if (holds) held_.push_back(std::move(*file).release());
    } else if (holds) {
      Result<InputFile> file = InputFile::open(path_of(i));
      if (!file) return file.failure();
      if (Result<void> same = check_size(*file, index_.files[i]); !same) return same;
      held_.push_back(std::move(*file));
    }
  }
  return {};
}

// The header first: that of another save says more than a digest.
Result<void> Checkpoint::verify_shard(const std::string& path, size_t file,
                                      const SafetensorsFile& opened) const {
  const auto bad = [&](std::string_view why) { return fail("{}: {}", opened.path(), why); };
  const Result<ShardHeader> header = read_shard_header(opened);
  if (!header) return bad(with_remedy(header.error(), path));
  if (header->step != index_.meta.step)
    return bad(
        fmt::format("is of step {}, {} is of step {}", header->step, path, index_.meta.step));
  if (header->save_id != index_.save_id)
    return bad(fmt::format("is of another save: it has the number {}, {} has {}", header->save_id,
                           path, index_.save_id));
  if (static_cast<size_t>(header->rank) != file ||
      static_cast<size_t>(header->n_ranks) != index_.files.size())
    return bad(fmt::format("is of process {} of {}, expected {} of {}", header->rank,
                           header->n_ranks, file, index_.files.size()));
  if (opened.size_bytes() != *index_.files[file].size_bytes)
    return bad(with_remedy(fmt::format("is damaged: it has {} bytes, {} says {}",
                                       opened.size_bytes(), path, *index_.files[file].size_bytes),
                           path));
  if (Result<void> same = check_digest(opened, index_.files[file].digest, path); !same) return same;

  std::map<std::pair<std::string_view, int64_t>, std::pair<const TensorInfo*, const TensorSlice*>>
      pieces;
  for (const auto& [info, piece] : header->pieces)
    pieces[{info.name, piece.offset_bytes}] = {&info, &piece.slice};
  size_t n = 0;
  for (const auto& [name, tensor] : index_.tensors) {
    for (const StoredPiece& piece : tensor.pieces) {
      if (piece.file != file) continue;
      ++n;
      const auto found = pieces.find({name, piece.offset_bytes});
      if (found == pieces.end() || found->second.first->dtype != tensor.info.dtype ||
          found->second.first->shape != tensor.info.shape || *found->second.second != piece.slice)
        return bad(fmt::format("tensor {}: it has no piece {} at byte {}, as {} says",
                               Json(name).dump(), to_string(piece.slice), piece.offset_bytes,
                               path));
    }
  }
  if (n != header->pieces.size())
    return bad(fmt::format("has {} pieces, of which {} names {}", header->pieces.size(), path, n));
  return {};
}

Result<void> Checkpoint::read_file(size_t file, int64_t offset_bytes,
                                   std::span<std::byte> out) const {
  if (!held_.empty()) return held_[file].read(offset_bytes, out);
  const Result<InputFile> opened = InputFile::open(path_of(file));
  if (!opened) return opened.failure();
  if (Result<void> same = check_size(*opened, index_.files[file]); !same) return same;
  return opened->read(offset_bytes, out);
}

const TensorInfo* Checkpoint::find(std::string_view name) const {
  const auto found = index_.tensors.find(name);
  return found == index_.tensors.end() ? nullptr : &found->second.info;
}

Result<void> Checkpoint::read(std::string_view name, std::span<std::byte> out) const {
  return read_slice(name, whole_slice(tensor(name).info.shape), out);
}

Result<void> Checkpoint::read_part(std::string_view name, int64_t offset_bytes,
                                   std::span<std::byte> out) const {
  return read_slice_part(name, whole_slice(tensor(name).info.shape), offset_bytes, out);
}

Result<void> Checkpoint::read_slice(std::string_view name, const TensorSlice& slice,
                                    std::span<std::byte> out) const {
  const StoredTensor& from = tensor(name);
  STOW_CHECK(lies_within(slice, from.info.shape), "{} of {} {}", to_string(slice), name,
             tensor_type(from.info.dtype, from.info.shape));
  for (const StoredPiece& piece : from.pieces) {
    const auto read = [&](int64_t offset, std::span<std::byte> bytes) {
      return read_file(piece.file, offset, bytes);
    };
    if (Result<void> done = read_common(read, piece.slice, piece.offset_bytes, slice,
                                        dtype_bytes(from.info.dtype), out);
        !done)
      return done;
  }
  return {};
}

Result<void> Checkpoint::read_slice_part(std::string_view name, const TensorSlice& slice,
                                         int64_t offset_bytes, std::span<std::byte> out) const {
  const int64_t elem_bytes = dtype_bytes(tensor(name).info.dtype);
  const int64_t n_bytes = static_cast<int64_t>(out.size());
  STOW_CHECK(offset_bytes % elem_bytes == 0 && n_bytes % elem_bytes == 0, "{} bytes from {} of {}",
             n_bytes, offset_bytes, name);
  for (const TensorSlice& part :
       slices_of_range(slice, offset_bytes / elem_bytes, (offset_bytes + n_bytes) / elem_bytes)) {
    const size_t bytes = static_cast<size_t>(part.elems() * elem_bytes);
    if (Result<void> done = read_slice(name, part, out.first(bytes)); !done) return done;
    out = out.subspan(bytes);
  }
  return {};
}

const StoredTensor& Checkpoint::tensor(std::string_view name) const {
  const auto found = index_.tensors.find(name);
  STOW_CHECK(found != index_.tensors.end(), "'{}' was not needed of {}", name, folder_);
  return found->second;
}

}  // namespace stow
