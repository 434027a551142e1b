// The safetensors of a Hugging Face folder.
#include <algorithm>
#include <filesystem>
#include <set>

#include "stowage/base/error.h"
#include "stowage/io/files.h"
#include "stowage/io/float_convert.h"
#include "stowage/io/json_fields.h"
#include "stowage/io/safetensors.h"
#include "stowage/io/weights.h"

namespace stow {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kSingle = "model.safetensors";
constexpr std::string_view kIndex = "model.safetensors.index.json";
constexpr int64_t kMaxIndexBytes = int64_t{1} << 26;
constexpr size_t kMaxShards = 512;  // each is an open file

// Directories in which the files of a folder may lie: the folder itself, or the blobs of the
// repository, to which a Hugging Face cache links.
class Bounds {
 public:
  static Result<Bounds> of(const std::string& folder) {
    std::error_code error;
    const fs::path root = fs::canonical(folder, error);
    if (error) return fail("{}: {}", folder, error.message());
    Bounds bounds{{root}};
    if (root.parent_path().filename() == "snapshots")
      bounds.roots.push_back(root.parent_path().parent_path() / "blobs");
    return bounds;
  }
  // Errors: the file is not there or is elsewhere.
  Result<void> check(const std::string& path) const {
    std::error_code error;
    const fs::path real = fs::canonical(path, error);
    if (error) return fail("{}: {}", path, error.message());
    for (const fs::path& root : roots)
      if (std::mismatch(root.begin(), root.end(), real.begin(), real.end()).first == root.end())
        return {};
    return fail("{}: lies outside the folder, at {}", path, real.string());
  }

  std::vector<fs::path> roots;
};

bool is_pickle(const std::string& name) {
  return name.ends_with(".bin") || name.ends_with(".pt") || name.ends_with(".pth");
}

// The shards of an index and the names in each.
Result<std::map<std::string, std::set<std::string>>> read_index(const std::string& path) {
  const Result<std::string> text = read_regular_file(path, kMaxIndexBytes);
  if (!text) return text.failure();
  const Result<Json> json = parse_json(*text, {.depth = 4, .n_values = 1 << 20});
  if (!json) return fail("{}: {}", path, json.error());
  const Json* map = json->find("weight_map");
  if (!map || !map->is_object())
    return fail("{}: weight_map: expected an object of names and files, got {}", path,
                shown(map));
  std::map<std::string, std::set<std::string>> shards;
  for (const JsonMember& member : *map->as_object()) {
    const auto bad = [&](std::string_view why) {
      return fail("{}: weight_map: {}: {}", path, shown_name(member.key), why);
    };
    const std::string* shard = member.value.as_string();
    if (!shard) return bad("expected the name of a file, got " + shown(member.value));
    if (shard->find('/') != std::string::npos || shard->find('\0') != std::string::npos)
      return bad(
          fmt::format("the shard {} is not a name of a file in the folder", shown_name(*shard)));
    if (is_pickle(*shard))
      return bad(
          fmt::format("the shard {} is a pickle, which can run programs; convert the model "
                      "to safetensors",
                      shown_name(*shard)));
    if (!shard->ends_with(".safetensors"))
      return bad(fmt::format("the shard {} is not a safetensors file", shown_name(*shard)));
    shards[*shard].insert(member.key);
    if (shards.size() > kMaxShards) return bad(fmt::format("more than {} shards", kMaxShards));
  }
  if (shards.empty()) return fail("{}: weight_map: is empty", path);
  return shards;
}

// The names of the safetensors files to read; `index` is set where there is one.
struct FileList {
  std::map<std::string, std::set<std::string>> shards;  // without an index: one, with no names
  bool has_index = false;
};

Result<FileList> list_files(const std::string& folder, const Bounds& bounds) {
  const auto exists = [&](std::string_view name) {
    return file_exists(folder + "/" + std::string(name));
  };
  if (exists(kSingle)) return FileList{{{std::string(kSingle), {}}}, false};
  if (exists(kIndex)) {
    const std::string path = folder + "/" + std::string(kIndex);
    if (Result<void> inside = bounds.check(path); !inside) return inside.failure();
    auto shards = read_index(path);
    if (!shards) return shards.failure();
    return FileList{std::move(*shards), true};
  }
  std::vector<std::string> found;
  std::string pickle;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename().string();
    if (name.ends_with(".safetensors")) found.push_back(name);
    if (is_pickle(name)) pickle = name;
  }
  if (error) return fail("{}: {}", folder, error.message());
  if (found.size() == 1) return FileList{{{found[0], {}}}, false};
  if (!found.empty())
    return fail("{}: has {} safetensors files, but neither {} nor {}", folder, found.size(),
                kSingle, kIndex);
  if (!pickle.empty())
    return fail(
        "{}: has weights as a pickle alone, which can run programs; convert the model to "
        "safetensors",
        folder + "/" + pickle);
  return fail("{}: expected safetensors files, got none", folder);
}

class SafetensorsFolder : public WeightSource {
 public:
  SafetensorsFolder(std::string folder, HfConfig config)
      : WeightSource(std::move(folder), std::move(config)) {}

  Result<void> open_files();
  const std::string& file_path(size_t file) const override { return files_[file].path(); }
  Result<void> read_rows(const WeightInfo& tensor, int64_t begin, int64_t end, DType dtype,
                         std::span<std::byte> out) const override;
  Result<void> read_slice(const WeightInfo& tensor, const TensorSlice& slice, DType dtype,
                          std::span<std::byte> out) const override;

 private:
  std::vector<SafetensorsFile> files_;
};

// A tensor's name, type and place, as its file has them.
TensorInfo place_of(const WeightInfo& tensor) {
  return {.name = tensor.name,
          .dtype = tensor.dtype,
          .shape = tensor.shape,
          .offset_bytes = tensor.offset_bytes,
          .n_bytes = tensor.n_bytes};
}

Result<void> SafetensorsFolder::open_files() {
  const Result<Bounds> bounds = Bounds::of(path());
  if (!bounds) return bounds.failure();
  const Result<FileList> list = list_files(path(), *bounds);
  if (!list) return list.failure();
  std::vector<WeightInfo> tensors;
  for (const auto& [name, expected] : list->shards) {
    const std::string shard = path() + "/" + name;
    if (Result<void> inside = bounds->check(shard); !inside) return inside;
    Result<SafetensorsFile> file = SafetensorsFile::open(shard);
    if (!file) return file.failure();
    for (const std::string& tensor : expected)
      if (!file->find(tensor))
        return fail("{}: the tensor {} is missing, which {} has here", shard, shown_name(tensor),
                    kIndex);
    for (const TensorInfo& tensor : file->tensors()) {
      if (list->has_index && !expected.contains(tensor.name)) {
        const auto other =
            std::find_if(list->shards.begin(), list->shards.end(),
                         [&](const auto& s) { return s.second.contains(tensor.name); });
        if (other != list->shards.end())
          return fail("{}: the tensor {} is here too; {} has it in {}", shard,
                      shown_name(tensor.name), kIndex, other->first);
        return fail("{}: the tensor {} is not in {}", shard, shown_name(tensor.name), kIndex);
      }
      tensors.push_back({.name = tensor.name,
                         .shape = tensor.shape,
                         .dtype = tensor.dtype,
                         .stored_type = std::string(dtype_name(tensor.dtype)),
                         .file = files_.size(),
                         .offset_bytes = tensor.offset_bytes,
                         .n_bytes = tensor.n_bytes});
    }
    files_.push_back(std::move(*file));
  }
  if (Result<void> checked = set_tensors(std::move(tensors)); !checked) return checked;
  return resolve_tied_head();
}

Result<void> SafetensorsFolder::read_rows(const WeightInfo& tensor, int64_t begin, int64_t end,
                                          DType dtype, std::span<std::byte> out) const {
  STOW_CHECK(0 <= begin && begin <= end && end <= tensor.n_rows(), "rows {} to {} of {}", begin,
             end, tensor.n_rows());
  const int64_t n = (end - begin) * tensor.row_elements();
  STOW_CHECK(static_cast<int64_t>(out.size()) == n * dtype_bytes(dtype), "{} bytes for {} elements",
             out.size(), n);
  const TensorInfo where = place_of(tensor);
  const SafetensorsFile& file = files_[tensor.file];
  const int64_t stored = dtype_bytes(tensor.dtype), wanted = dtype_bytes(dtype);
  const int64_t from = begin * tensor.row_elements() * stored;
  if (dtype == tensor.dtype) return file.read_part(where, from, out);
  alignas(64) std::byte scratch[kScratchBytes];
  const int64_t piece = kScratchBytes / stored;
  for (int64_t at = 0; at < n; at += piece) {
    const int64_t part = std::min(piece, n - at);
    const std::span<std::byte> in(scratch, static_cast<size_t>(part * stored));
    if (Result<void> read = file.read_part(where, from + at * stored, in); !read) return read;
    convert_floats(
        tensor.dtype, in, dtype,
        out.subspan(static_cast<size_t>(at * wanted), static_cast<size_t>(part * wanted)));
  }
  return {};
}

Result<void> SafetensorsFolder::read_slice(const WeightInfo& tensor, const TensorSlice& slice,
                                           DType dtype, std::span<std::byte> out) const {
  STOW_CHECK(lies_within(slice, tensor.shape), "{} of {}", to_string(slice), tensor.name);
  const TensorInfo where = place_of(tensor);
  const SafetensorsFile& file = files_[tensor.file];
  const auto read = [&](int64_t offset, std::span<std::byte> bytes) {
    return file.read_part(where, offset, bytes);
  };
  const TensorSlice whole = whole_slice(tensor.shape);
  const int64_t stored = dtype_bytes(tensor.dtype), wanted = dtype_bytes(dtype);
  if (dtype == tensor.dtype) return read_common(read, whole, 0, slice, stored, out);
  std::vector<std::byte> scratch;
  const int64_t piece = kSlicePieceBytes / stored, n = slice.elems();
  for (int64_t at = 0; at < n; at += piece) {
    const int64_t end = std::min(at + piece, n);
    scratch.resize(static_cast<size_t>((end - at) * stored));
    std::span<std::byte> rest = scratch;
    for (const TensorSlice& part : slices_of_range(slice, at, end)) {
      const auto bytes = static_cast<size_t>(part.elems() * stored);
      if (Result<void> done = read_common(read, whole, 0, part, stored, rest.first(bytes)); !done)
        return done;
      rest = rest.subspan(bytes);
    }
    convert_floats(tensor.dtype, scratch, dtype,
                   out.subspan(static_cast<size_t>(at * wanted),
                               static_cast<size_t>((end - at) * wanted)));
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<WeightSource>> open_safetensors_folder(const std::string& folder) {
  Result<HfConfig> config = HfConfig::load(folder + "/config.json");
  if (!config) return config.failure();
  auto source = std::make_unique<SafetensorsFolder>(folder, std::move(*config));
  if (Result<void> opened = source->open_files(); !opened) return opened.failure();
  return std::unique_ptr<WeightSource>(std::move(source));
}

}  // namespace stow
