#include "stowage/api/tree_file.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>

#include "stowage/api/element_reader.h"
#include "stowage/api/processes.h"
#include "stowage/api/trace.h"
#include "stowage/base/nearest.h"
#include "stowage/io/safetensors.h"

namespace stow {
namespace {

constexpr int64_t kPieceBytes = 1 << 20;
constexpr size_t kShown = 8;

Result<std::vector<std::string>> names_of(const TreeRef& tree, const TreeFileOptions& options) {
  std::vector<std::string> names;
  std::set<std::string> seen;
  for (std::string path : paths_of(tree)) {
    if (!options.prefix.empty()) path = options.prefix + (path.empty() ? "" : "/") + path;
    if (options.name) path = options.name(path);
    if (path.empty())
      return fail("a leaf has no name: the path of a lone Array is empty; give a prefix");
    if (!seen.insert(path).second) return fail("two leaves have the name '{}'", path);
    names.push_back(std::move(path));
  }
  return names;
}

std::string listed(std::span<const std::string> names) {
  std::string text = fmt::format(
      "'{}'", fmt::join(names.first(std::min(names.size(), kShown)), "', '"));
  if (names.size() > kShown) text += fmt::format(" and {} more", names.size() - kShown);
  return text;
}

// True if a tensor that no leaf has is an error. It is none if the tree is a part of the file and
// the tensor lies outside of that part.
bool is_surplus(const std::string& name, const TreeFileOptions& options) {
  if (options.allow_surplus) return false;
  return options.prefix.empty() || options.name || name == options.prefix ||
         name.starts_with(options.prefix + "/");
}

// Names that one side has alone, and types that differ.
Result<void> check_tensors(const SafetensorsFile& file, std::span<const std::string> names,
                           std::span<const Array> leaves, const TreeFileOptions& options) {
  std::vector<std::string> missing, unread, surplus, others;
  const std::set<std::string> wanted(names.begin(), names.end());
  for (const TensorInfo& tensor : file.tensors()) {
    if (wanted.contains(tensor.name)) continue;
    unread.push_back(tensor.name);
    if (is_surplus(tensor.name, options)) surplus.push_back(tensor.name);
  }
  for (size_t i = 0; i < names.size(); ++i) {
    const TensorInfo* tensor = file.find(names[i]);
    if (!tensor) {
      missing.push_back(names[i]);
      continue;
    }
    const ArrayType& type = leaves[i].type();
    if (tensor->dtype != type.dtype || tensor->shape != type.shape.dims())
      others.push_back(fmt::format("'{}' is {}, expected {}", names[i],
                                   tensor_type(tensor->dtype, tensor->shape),
                                   tensor_type(type.dtype, type.shape.dims())));
  }
  std::vector<std::string> faults;
  if (!missing.empty()) {
    faults.push_back("it has no tensor " + listed(missing));
    const std::string near = nearest_name(missing[0], unread);
    if (!near.empty()) faults.back() += fmt::format(" (it has '{}')", near);
  }
  if (!surplus.empty())
    faults.push_back(fmt::format("no leaf is named {}; allow_surplus leaves such tensors aside",
                                 listed(surplus)));
  for (size_t i = 0; i < others.size() && i < kShown; ++i) faults.push_back(others[i]);
  if (others.size() > kShown)
    faults.push_back(fmt::format("{} more differ in type", others.size() - kShown));
  if (faults.empty()) return {};
  return fail("{}: {}", file.path(), fmt::join(faults, "; "));
}

// Bytes other than 0 and 1 are no bools, and kernels would take them for some.
Result<void> check_bools(const std::string& path, const std::string& name,
                         std::span<const std::byte> bytes) {
  for (const std::byte b : bytes)
    if (b > std::byte{1})
      return fail("{}: tensor '{}' has a byte {} where a bool is 0 or 1", path, name,
                  static_cast<int>(b));
  return {};
}

Result<Array> load(const SafetensorsFile& file, const std::string& name, const Array& like,
                   const DevicePtr& device) {
  const TensorInfo& tensor = *file.find(name);
  ArrayType type = like.type();
  type.weak = false;
  const DeviceBufferPtr buffer = device->allocate(type.bytes(), type.kind);
  std::vector<std::byte> piece(static_cast<size_t>(std::min(type.bytes(), kPieceBytes)));
  for (int64_t at = 0; at < type.bytes(); at += kPieceBytes) {
    const std::span<std::byte> part =
        std::span(piece).first(static_cast<size_t>(std::min(kPieceBytes, type.bytes() - at)));
    if (Result<void> read = file.read_part(tensor, at, part); !read) return read.failure();
    if (type.dtype == DType::kBool)
      if (Result<void> bools = check_bools(file.path(), name, part); !bools)
        return bools.failure();
    buffer->write(at, part);
  }
  Array array = make_concrete(type, buffer);
  array.impl()->sharding = like.impl()->sharding;
  return array;
}

// The sharding where a leaf is to be held in shards; else null.
const NamedSharding* mesh_of(const Array& like) {
  const auto& sharding = like.impl()->sharding;
  return sharding ? sharding_over_mesh(*sharding) : nullptr;
}

// Reads the ranges of the file that the shards of this process hold, each once.
Result<Array> load_shards(const SafetensorsFile& file, const std::string& name, const Array& like,
                          const NamedSharding& to) {
  const TensorInfo& tensor = *file.find(name);
  ArrayType type = like.type();
  type.weak = false;
  type.kind = to.memory_kind();
  const Tiling tiling = to.tiling(type.shape);
  const int64_t width = dtype_bytes(type.dtype);
  const auto all = processes();
  std::map<int64_t, DeviceBufferPtr> by_tile;
  std::vector<Shards::Part> parts;
  Result<void> outcome;
  for (int64_t position = 0; position < to.mesh().size() && outcome; ++position) {
    const DevicePtr& device = to.mesh().devices()[static_cast<size_t>(position)];
    if (all->process_of(device.get()) != all->index()) continue;
    const int64_t tile = to.tile_at(position);
    DeviceBufferPtr& known = by_tile[tile];
    DeviceBufferPtr buffer;
    if (known) {
      buffer =
          write_buffer(device, known->bytes(), type.kind,
                       [&](int64_t offset, std::span<std::byte> out) { known->read(offset, out); });
    } else {
      buffer = write_part(device, type, tiling.index_of(tile),
                          [&](int64_t first, std::span<std::byte> out) {
                            if (!outcome) return;
                            outcome = file.read_part(tensor, first * width, out);
                            if (outcome && type.dtype == DType::kBool)
                              outcome = check_bools(file.path(), name, out);
                          });
      known = buffer;
    }
    parts.push_back({position, std::move(buffer)});
  }
  if (!outcome) return outcome.failure();
  return array_of_shards(type, to, std::move(parts));
}

}  // namespace

Result<void> save_leaves(const std::string& file, const TreeRef& tree,
                         const TreeFileOptions& options) {
  const Result<std::vector<std::string>> names = names_of(tree, options);
  if (!names) return fail("{}: {}", file, names.error());
  const std::vector<Array> leaves = leaves_of(tree);
  std::vector<TensorBytes> tensors;
  for (size_t i = 0; i < leaves.size(); ++i) {
    const Array& leaf = leaves[i];
    if (leaf.empty() || !leaf.is_concrete())
      return fail("{}: '{}' has no data: {}", file, (*names)[i], describe(leaf));
    const Storage& storage = *leaf.impl()->storage;
    if (!storage.donated.empty())
      return fail("{}: '{}' was donated to {} and cannot be used again", file, (*names)[i],
                  storage.donated);
    const auto reader = std::make_shared<const ElementReader>(leaf);
    if (!reader->is_complete())
      return fail(
          "{}: '{}' is cut over {} ({}); put it replicated with device_put first", file,
          (*names)[i],
          name_processes(processes()->processes_of(mesh_sharding_of(leaf).mesh().devices())),
          to_string(Sharding(mesh_sharding_of(leaf))));
    TensorBytes tensor{(*names)[i], leaf.dtype(), leaf.shape().dims(), {}, {}};
    if (leaf.type().bytes() > 0)
      tensor.read = [reader, width = dtype_bytes(leaf.dtype())](int64_t offset,
                                                                std::span<std::byte> out) {
        reader->read(offset / width, out);
      };
    tensors.push_back(std::move(tensor));
  }
  return save_safetensors(file, tensors);
}

Result<std::vector<Array>> load_leaves(const std::string& path, const TreeRef& like,
                                       const TreeFileOptions& options) {
  const Result<std::vector<std::string>> names = names_of(like, options);
  if (!names) return fail("{}: {}", path, names.error());
  const std::vector<Array> leaves = leaves_of(like);
  for (size_t i = 0; i < leaves.size(); ++i)
    if (leaves[i].empty())
      return fail("{}: the leaf '{}' is an empty Array, which has no type to load", path,
                  (*names)[i]);
  const Result<SafetensorsFile> file = SafetensorsFile::open(path);
  if (!file) return file.failure();
  if (Result<void> fits = check_tensors(*file, *names, leaves, options); !fits)
    return fits.failure();
  for (size_t i = 0; i < leaves.size(); ++i)
    if (const NamedSharding* mesh = mesh_of(leaves[i]))
      check_sharding("load_tree", *mesh, leaves[i].type());
  const DevicePtr device = common_device(leaves);
  std::vector<Array> loaded;
  for (size_t i = 0; i < leaves.size(); ++i) {
    const NamedSharding* mesh = mesh_of(leaves[i]);
    Result<Array> array = mesh ? load_shards(*file, (*names)[i], leaves[i], *mesh)
                               : load(*file, (*names)[i], leaves[i], device);
    if (!array) return array.failure();
    loaded.push_back(std::move(*array));
  }
  return loaded;
}

}  // namespace stow
