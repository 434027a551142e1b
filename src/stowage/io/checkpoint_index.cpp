#include "stowage/io/checkpoint_index.h"

#include <charconv>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "stowage/io/checkpoint_names.h"
#include "stowage/io/digest.h"
#include "stowage/io/json_fields.h"

namespace stow {
namespace {

constexpr std::string_view kFormat = "stowage-checkpoint";
constexpr std::string_view kShardFormat = "stowage-checkpoint-part";
constexpr int64_t kVersionWhole = 1, kVersionSharded = 2;
constexpr std::string_view kDigestKey = "meta_digest";
constexpr JsonLimits kLimits = {.depth = 32, .n_values = 4 << 20};

bool is_hex16(std::string_view text) {
  return text.size() == 16 && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

Json json_of(std::span<const int64_t> values) {
  return Json(Json::Array(values.begin(), values.end()));
}

// --- writing -----------------------------------------------------------------------------------

Json files_json(const CheckpointIndex& index) {
  Json files = Json::array();
  for (const CheckpointFile& file : index.files)
    files.push_back(
        Json::object({{"name", file.name}, {"bytes", *file.size_bytes}, {"digest", file.digest}}));
  return files;
}

// A piece is [file, offset, start, size of axis 0, start, size of axis 1, …].
Json tensors_json(const CheckpointIndex& index) {
  Json::Object tensors;
  for (const auto& [name, tensor] : index.tensors) {
    Json pieces = Json::array();
    for (const StoredPiece& piece : tensor.pieces) {
      Json::Array numbers = {Json(piece.file), Json(piece.offset_bytes)};
      for (size_t i = 0; i < piece.slice.starts.size(); ++i) {
        numbers.emplace_back(piece.slice.starts[i]);
        numbers.emplace_back(piece.slice.sizes[i]);
      }
      pieces.push_back(Json(std::move(numbers)));
    }
    tensors.push_back({name, Json::object({{"dtype", dtype_name(tensor.info.dtype)},
                                           {"shape", json_of(tensor.info.shape)},
                                           {"pieces", std::move(pieces)}})});
  }
  return Json(std::move(tensors));
}

// --- reading -----------------------------------------------------------------------------------

Failure wrong_field() {
  return fail("is damaged: a field is missing or of the wrong kind");
}

const std::string* string_at(const Json& json, std::string_view key) {
  const Json* value = json.find(key);
  return value ? value->as_string() : nullptr;
}

std::optional<int64_t> size_at(const Json& json, std::string_view key) {
  const Json* value = json.find(key);
  const Result<int64_t> number = value ? value->as_int() : fail("");
  if (!number || *number < 0) return std::nullopt;
  return *number;
}

std::optional<std::vector<int64_t>> sizes_of(const Json* json) {
  if (!json || !json->as_array()) return std::nullopt;
  std::vector<int64_t> values;
  for (const Json& element : *json->as_array()) {
    const Result<int64_t> value = element.as_int();
    if (!value || *value < 0) return std::nullopt;
    values.push_back(*value);
  }
  return values;
}

// Name, type and size of a whole tensor.
Result<TensorInfo> tensor_info(const std::string& name, std::optional<DType> dtype,
                               std::optional<std::vector<int64_t>> shape) {
  if (!dtype || !shape) return fail("tensor {}: has no dtype or no shape", shown_name(name));
  const std::optional<int64_t> bytes = tensor_bytes(*dtype, *shape);
  if (!bytes) return fail("tensor {}: the size of its shape overflows", shown_name(name));
  return TensorInfo{name, *dtype, std::move(*shape), 0, *bytes};
}

Result<void> parse_files(const Json& json, CheckpointIndex& index) {
  const Json* files = json.find("files");
  if (!files || !files->as_array()) return wrong_field();
  for (const Json& entry : *files->as_array()) {
    const std::string* name = string_at(entry, "name");
    const std::string* digest = string_at(entry, "digest");
    const std::optional<int64_t> bytes = size_at(entry, "bytes");
    if (!name || !digest || !bytes) return wrong_field();
    CheckpointFileName expected = {.step = index.meta.step,
                                   .rank = static_cast<int32_t>(index.files.size())};
    const std::string plain = expected.text();
    expected.tag = index.save_id;
    if (*name != plain && *name != expected.text())
      return fail("is damaged: expected {} or {} as file {}, got {}", plain, expected.text(),
                  index.files.size(), shown_name(*name));
    index.files.push_back({*name, *digest, *bytes});
  }
  return {};
}

Result<StoredPiece> parse_piece(const TensorInfo& tensor, const Json& json,
                                std::span<const CheckpointFile> files) {
  const auto bad = [&](std::string_view why) {
    return fail("tensor {}: {} {}", shown_name(tensor.name), "a piece", why);
  };
  const std::optional<std::vector<int64_t>> numbers = sizes_of(&json);
  if (!numbers || numbers->size() != 2 + 2 * tensor.shape.size())
    return bad("is not a list of file, offset and the start and size of each axis");
  StoredPiece piece;
  if (static_cast<uint64_t>((*numbers)[0]) >= files.size())
    return bad(fmt::format("is in file {} of {}", (*numbers)[0], files.size()));
  piece.file = static_cast<size_t>((*numbers)[0]);
  piece.offset_bytes = (*numbers)[1];
  for (size_t i = 2; i < numbers->size(); i += 2) {
    piece.slice.starts.push_back((*numbers)[i]);
    piece.slice.sizes.push_back((*numbers)[i + 1]);
  }
  if (!lies_within(piece.slice, tensor.shape))
    return bad(fmt::format("lies outside of {}", tensor_type(tensor.dtype, tensor.shape)));
  if (piece.slice.elems() == 0 && tensor.n_bytes > 0) return bad("is empty");
  const int64_t bytes = piece.slice.elems() * dtype_bytes(tensor.dtype);
  const CheckpointFile& file = files[piece.file];
  if (piece.offset_bytes > *file.size_bytes || bytes > *file.size_bytes - piece.offset_bytes)
    return bad(fmt::format("of {} bytes from {} ends behind {}, which has {}", bytes,
                           piece.offset_bytes, file.name, *file.size_bytes));
  return piece;
}

Result<void> parse_tensors(const Json& json, CheckpointIndex& index) {
  const Json* tensors = json.find("tensors");
  if (!tensors || !tensors->is_object()) return wrong_field();
  for (const auto& [name, entry] : *tensors->as_object()) {
    const std::string* dtype = string_at(entry, "dtype");
    Result<TensorInfo> info = tensor_info(name, dtype ? parse_dtype(*dtype) : std::nullopt,
                                          sizes_of(entry.find("shape")));
    if (!info) return fail("is damaged: {}", info.error());
    StoredTensor tensor{std::move(*info), {}};
    const Json* pieces = entry.find("pieces");
    if (!pieces || !pieces->as_array()) return wrong_field();
    for (const Json& element : *pieces->as_array()) {
      Result<StoredPiece> piece = parse_piece(tensor.info, element, index.files);
      if (!piece) return fail("is damaged: {}", piece.error());
      tensor.pieces.push_back(std::move(*piece));
    }
    index.tensors.emplace(name, std::move(tensor));
  }
  if (const std::optional<std::string> fault = find_cover_fault(index))
    return fail("is damaged: {}", *fault);
  return {};
}

// The file of version 1, whose header has the rest.
Result<void> parse_whole(const Json& json, CheckpointIndex& index) {
  const std::string* name = string_at(json, "tensors");
  const std::string* digest = string_at(json, "tensors_digest");
  if (!name || !digest) return wrong_field();
  const std::optional<CheckpointFileName> file = parse_checkpoint_file_name(*name);
  if (!file || file->is_json || file->is_temporary || file->rank || file->step != index.meta.step)
    return fail("is damaged: expected the name of the tensors' file of its step, got {}",
                Json(*name).dump());
  index.files.push_back({*name, *digest, std::nullopt});
  return {};
}

}  // namespace

std::string checkpoint_json(const CheckpointIndex& index) {
  const CheckpointMeta& meta = index.meta;
  Json config = Json::object();
  for (const auto& [key, value] : meta.config) config.set(key, value);
  Json json = Json::object({{"format", kFormat},
                            {"version", index.is_sharded() ? kVersionSharded : kVersionWhole},
                            {"step", meta.step},
                            {"data_position", meta.data_position},
                            {"seed", meta.seed}});
  if (index.is_sharded()) {
    json.set("save", index.save_id);
    json.set("files", files_json(index));
    json.set("tensors", tensors_json(index));
  } else {
    json.set("tensors", index.files[0].name);
    json.set("tensors_digest", index.files[0].digest);
  }
  json.set("config", std::move(config));
  json.set("extra", meta.extra);
  json.set(kDigestKey, digest_of(json.dump()));
  return json.dump();
}

Result<CheckpointIndex> parse_checkpoint_json(std::string_view text) {
  const Result<Json> json = parse_json(text, kLimits);
  if (!json) return fail("is damaged: {}", json.error());
  const std::string* format = string_at(*json, "format");
  if (!format || *format != kFormat) return fail("is not a checkpoint of Stowage");
  const Json* version = json->find("version");
  if (!version || !version->as_int()) return fail("is damaged: it has no version");
  const int64_t number = *version->as_int();
  if (number != kVersionWhole && number != kVersionSharded)
    return fail("has version {}; this Stowage reads versions {} and {}", number, kVersionWhole,
                kVersionSharded);

  // The digest is of all that stands before it.
  const std::string* digest = string_at(*json, kDigestKey);
  Json::Object rest = *json->as_object();
  if (!digest || rest.back().key != kDigestKey)
    return fail("is damaged: it has no digest at its end");
  rest.pop_back();
  if (digest_of(Json(std::move(rest)).dump()) != *digest)
    return fail("is damaged: its content does not have the digest it names");

  CheckpointIndex index;
  const std::optional<int64_t> step = size_at(*json, "step");
  const std::optional<int64_t> position = size_at(*json, "data_position");
  const Json* seed = json->find("seed");
  const Json* config = json->find("config");
  if (!step || !position || !seed || !seed->as_uint() || !config || !config->is_object())
    return wrong_field();
  index.meta.step = *step;
  index.meta.data_position = *position;
  index.meta.seed = *seed->as_uint();
  for (const auto& [key, value] : *config->as_object()) {
    if (!value.as_string()) return fail("is damaged: the configuration is not text");
    index.meta.config.emplace_back(key, *value.as_string());
  }
  if (const Json* extra = json->find("extra")) index.meta.extra = *extra;
  if (number == kVersionWhole) {
    if (Result<void> parsed = parse_whole(*json, index); !parsed) return parsed.failure();
    return index;
  }
  const std::string* save = string_at(*json, "save");
  if (!save || !is_hex16(*save)) return wrong_field();
  index.save_id = *save;
  if (Result<void> parsed = parse_files(*json, index); !parsed) return parsed.failure();
  if (Result<void> parsed = parse_tensors(*json, index); !parsed) return parsed.failure();
  return index;
}

std::optional<std::string> find_cover_fault(const CheckpointIndex& index) {
  for (const auto& [name, tensor] : index.tensors) {
    const auto says = [&](std::string_view what) {
      return fmt::format("tensor {}: {}", shown_name(name), what);
    };
    std::vector<TensorSlice> slices;
    for (const StoredPiece& piece : tensor.pieces) slices.push_back(piece.slice);
    const std::optional<CoverFault> fault = cover_fault(tensor.info.shape, slices);
    if (!fault) continue;
    if (fault->is_too_irregular)
      return says(fmt::format("its {} pieces do not make a grid", tensor.pieces.size()));
    if (fault->slices.empty())
      return says(fmt::format("no piece has its elements {}", to_string(fault->where)));
    const auto file = [&](size_t k) -> const std::string& {
      return index.files[tensor.pieces[fault->slices[k]].file].name;
    };
    return says(fmt::format("{} pieces have its elements {}, of which {} and {} have one each",
                            fault->slices.size(), to_string(fault->where), file(0), file(1)));
  }
  return std::nullopt;
}

// --- the header of a part ----------------------------------------------------------------------

std::string piece_name(std::string_view tensor, const TensorSlice& slice) {
  return fmt::format("{}@{}", tensor, fmt::join(slice.starts, ","));
}

std::map<std::string, std::string> shard_metadata(const ShardHeader& header) {
  Json::Object pieces;
  for (const auto& [tensor, piece] : header.pieces)
    pieces.push_back({piece_name(tensor.name, piece.slice),
                      Json::object({{"tensor", tensor.name},
                                    {"shape", json_of(tensor.shape)},
                                    {"starts", json_of(piece.slice.starts)}})});
  return {{"format", std::string(kShardFormat)},     {"save", header.save_id},
          {"step", std::to_string(header.step)},     {"rank", std::to_string(header.rank)},
          {"ranks", std::to_string(header.n_ranks)}, {"pieces", Json(std::move(pieces)).dump()}};
}

Result<ShardHeader> read_shard_header(const SafetensorsFile& file) {
  ShardHeader header;
  const auto text = [&](const std::string& key) -> std::string_view {
    const auto found = file.metadata().find(key);
    return found == file.metadata().end() ? std::string_view() : found->second;
  };
  const auto number = [&](const std::string& key, auto& out) {
    const std::string_view digits = text(key);
    const auto [end, code] = std::from_chars(digits.data(), digits.data() + digits.size(), out);
    return code == std::errc() && end == digits.data() + digits.size() && out >= 0;
  };
  if (text("format") != kShardFormat) return fail("is not a part of a checkpoint of Stowage");
  header.save_id = text("save");
  if (!is_hex16(header.save_id) || !number("step", header.step) || !number("rank", header.rank) ||
      !number("ranks", header.n_ranks))
    return fail("is damaged: its header has no save, step or rank");
  const Result<Json> pieces = parse_json(text("pieces"), kLimits);
  if (!pieces || !pieces->is_object()) return fail("is damaged: its header has no pieces");
  if (pieces->as_object()->size() != file.tensors().size())
    return fail("is damaged: its header names {} pieces, {} are there", pieces->as_object()->size(),
                file.tensors().size());
  for (const auto& [key, entry] : *pieces->as_object()) {
    const TensorInfo* stored = file.find(key);
    const std::string* name = string_at(entry, "tensor");
    std::optional<std::vector<int64_t>> starts = sizes_of(entry.find("starts"));
    if (!stored || !name || !starts)
      return fail("is damaged: its header names the piece {}, which is not there", shown_name(key));
    Result<TensorInfo> whole = tensor_info(*name, stored->dtype, sizes_of(entry.find("shape")));
    if (!whole) return fail("is damaged: {}", whole.error());
    StoredPiece piece{0, stored->offset_bytes, {std::move(*starts), stored->shape}};
    if (!lies_within(piece.slice, whole->shape) || (piece.slice.elems() == 0 && whole->n_bytes > 0))
      return fail("is damaged: tensor {}: the piece {} is empty or lies outside of {}",
                  shown_name(*name), shown_name(key), tensor_type(whole->dtype, whole->shape));
    header.pieces.emplace_back(std::move(*whole), std::move(piece));
  }
  return header;
}

}  // namespace stow
