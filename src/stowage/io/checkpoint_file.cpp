#include "stowage/io/checkpoint_file.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <map>
#include <set>
#include <system_error>

#include "stowage/base/text_file.h"

namespace stow {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kFormat = "stowage-checkpoint";
constexpr int64_t kVersion = 1;
constexpr int64_t kMaxJsonBytes = 16 << 20;
constexpr std::string_view kDigestKey = "meta_digest";

std::string stem_of(int64_t step) {
  return fmt::format("step-{:06}", step);
}

// What a file name of ours says: step-000123.json, step-000123.safetensors or, where a checkpoint
// of that step was there already, step-000123-0123456789abcdef.safetensors; each also with what
// AtomicFile puts after a temporary name.
struct FileName {
  int64_t step = 0;
  bool json = false;
  bool temporary = false;
};

std::optional<FileName> parse_file_name(std::string_view name) {
  FileName result;
  const auto strip = [&](std::string_view prefix) {
    if (!name.starts_with(prefix)) return false;
    name.remove_prefix(prefix.size());
    return true;
  };
  if (!strip("step-")) return std::nullopt;
  const auto [end, code] = std::from_chars(name.data(), name.data() + name.size(), result.step);
  const size_t digits = static_cast<size_t>(end - name.data());
  if (code != std::errc() || name[0] == '-' || digits < 6 || (digits > 6 && name[0] == '0'))
    return std::nullopt;
  name.remove_prefix(digits);
  if (strip(".json")) {
    result.json = true;
  } else {
    if (strip("-")) {
      if (name.size() < 16 || name.find_first_not_of("0123456789abcdef") < 16) return std::nullopt;
      name.remove_prefix(16);
    }
    if (!strip(".safetensors")) return std::nullopt;
  }
  if (name.ends_with(".tmp")) {
    name.remove_suffix(4);
    result.temporary = true;
    // What AtomicFile puts between.
    if (strip("."))
      name.remove_prefix(std::min(name.find_first_not_of("0123456789-"), name.size()));
  }
  if (!name.empty()) return std::nullopt;
  return result;
}

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

Json to_json(const CheckpointMeta& meta, const std::string& tensors_name, const Digest& digest) {
  Json config = Json::object();
  for (const auto& [key, value] : meta.config) config.set(key, value);
  Json json = Json::object({{"format", kFormat},
                            {"version", kVersion},
                            {"step", meta.step},
                            {"data_position", meta.data_position},
                            {"seed", meta.seed},
                            {"tensors", tensors_name},
                            {"tensors_digest", digest.hex()},
                            {"config", std::move(config)},
                            {"extra", meta.extra}});
  json.set(kDigestKey, digest_of(json.dump()));
  return json;
}

struct ParsedMeta {
  CheckpointMeta meta;
  std::string tensors_name;
  std::string tensors_digest;
};

Result<ParsedMeta> parse_meta(std::string_view text) {
  const Result<Json> json = parse_json(text);
  if (!json) return fail("is damaged: {}", json.error());
  const auto string_at = [&](std::string_view key) -> const std::string* {
    const Json* value = json->find(key);
    return value ? value->as_string() : nullptr;
  };
  const std::string* format = string_at("format");
  if (!format || *format != kFormat) return fail("is no checkpoint of Stowage");
  const Json* version = json->find("version");
  if (!version || !version->as_int()) return fail("is damaged: it has no version");
  if (*version->as_int() != kVersion)
    return fail("has version {}; this Stowage reads version {}", version->dump(), kVersion);

  // The digest is of all that stands before it.
  const std::string* digest = string_at(kDigestKey);
  Json::Object rest = *json->as_object();
  if (!digest || rest.back().key != kDigestKey)
    return fail("is damaged: it has no digest at its end");
  rest.pop_back();
  if (digest_of(Json(std::move(rest)).dump()) != *digest)
    return fail("is damaged: its content does not have the digest it names");

  ParsedMeta parsed;
  const auto number = [&](std::string_view key, auto get, auto& out) {
    const Json* value = json->find(key);
    const auto got = value ? (value->*get)() : fail("");
    if (got) out = *got;
    return got.ok();
  };
  const std::string* name = string_at("tensors");
  const std::string* tensors_digest = string_at("tensors_digest");
  const Json* config = json->find("config");
  if (!number("step", &Json::as_int, parsed.meta.step) ||
      !number("data_position", &Json::as_int, parsed.meta.data_position) ||
      !number("seed", &Json::as_uint, parsed.meta.seed) || parsed.meta.step < 0 ||
      parsed.meta.data_position < 0 || !name || !tensors_digest || !config || !config->is_object())
    return fail("is damaged: a field is missing or of the wrong kind");
  const std::optional<FileName> file = parse_file_name(*name);
  if (!file || file->json || file->temporary || file->step != parsed.meta.step)
    return fail("is damaged: '{}' is no tensors' file of its step", Json(*name).dump());
  for (const auto& [key, value] : *config->as_object()) {
    if (!value.as_string()) return fail("is damaged: the configuration is not text");
    parsed.meta.config.emplace_back(key, *value.as_string());
  }
  if (const Json* extra = json->find("extra")) parsed.meta.extra = *extra;
  parsed.tensors_name = *name;
  parsed.tensors_digest = *tensors_digest;
  return parsed;
}

const std::string* value_of(const ConfigText& config, const std::string& key) {
  for (const auto& [k, v] : config)
    if (k == key) return &v;
  return nullptr;
}

Result<void> check_config(const ConfigText& has, const CheckpointNeeds& needs) {
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

Result<void> check_tensors(const SafetensorsFile& file, std::span<const ExpectedTensor> needed) {
  std::set<std::string_view> names;
  for (const ExpectedTensor& tensor : needed) {
    names.insert(tensor.name);
    const TensorInfo* found = file.find(tensor.name);
    if (!found) return fail("is of another model: it has no '{}'", tensor.name);
    if (found->dtype != tensor.dtype || found->shape != tensor.shape)
      return fail("is of another model: '{}' is {}, this run needs {}", tensor.name,
                  tensor_type(found->dtype, found->shape), tensor_type(tensor.dtype, tensor.shape));
  }
  for (const TensorInfo& tensor : file.tensors())
    if (!names.contains(tensor.name))
      return fail("is of another model: it has {}, which this run has not",
                  Json(tensor.name).dump());
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

// Removes old checkpoints and leftovers. Whatever cannot be removed stays: the checkpoint just
// saved is worth more than a tidy folder.
void tidy(const std::string& folder, const FileName& saved, const std::string& tensors_name,
          int keep_resident) {
  const Result<std::vector<std::string>> names = names_in(folder);
  const Result<std::vector<CheckpointName>> checkpoints = list_checkpoints(folder);
  if (!names || !checkpoints) return;
  std::set<int64_t> kept;
  for (const CheckpointName& c : *checkpoints) kept.insert(c.step);
  if (keep_resident > 0)
    while (kept.size() > static_cast<size_t>(keep_resident))
      // What was just saved stays even among those of higher steps.
      kept.erase(*kept.begin() == saved.step ? std::next(kept.begin()) : kept.begin());
  // The JSON files first: without it a checkpoint is gone, and not half there.
  for (const bool json : {true, false}) {
    for (const std::string& name : *names) {
      const std::optional<FileName> file = parse_file_name(name);
      if (!file || file->json != json) continue;
      const bool replaced = file->step == saved.step && !json && name != tensors_name;
      if (file->temporary || replaced || !kept.contains(file->step))
        (void)remove_file(folder + "/" + name);
    }
  }
}

}  // namespace

bool is_checkpoint_name(const std::string& path) {
  return parse_file_name(fs::path(path).filename().string()).has_value();
}

Result<std::vector<CheckpointName>> list_checkpoints(const std::string& folder) {
  const Result<std::vector<std::string>> names = names_in(folder);
  if (!names) return names.failure();
  std::vector<CheckpointName> checkpoints;
  for (const std::string& name : *names) {
    const std::optional<FileName> file = parse_file_name(name);
    std::error_code code;
    if (file && file->json && !file->temporary && fs::is_regular_file(folder + "/" + name, code))
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
                                    std::span<const TensorBytes> tensors, int keep_resident) {
  STOW_CHECK(meta.step >= 0 && meta.data_position >= 0);
  if (Result<void> made = ensure_directory(folder); !made) return made.failure();
  const std::string stem = stem_of(meta.step);
  const std::string json_path = folder + "/" + stem + ".json";
  // A checkpoint of this step that is there keeps its tensors until the new JSON file names others.
  const bool replaces = file_exists(json_path);
  Digest digest;
  Result<AtomicFile> file =
      write_safetensors(folder + "/" + stem + ".safetensors", tensors, {}, &digest);
  if (!file) return file.failure();
  const std::string tensors_name = (replaces ? stem + "-" + digest.hex() : stem) + ".safetensors";
  if (Result<void> done = file->commit(folder + "/" + tensors_name); !done) return done.failure();
  const std::string text = to_json(meta, tensors_name, digest).dump() + "\n";
  if (Result<void> done = write_text_file(json_path, text); !done) return done.failure();
  tidy(folder, {.step = meta.step}, tensors_name, keep_resident);
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
  const Result<HeldDirectory> held = HeldDirectory::hold(aside);
  if (!held) return held.failure();
  const Result<std::vector<std::string>> names = names_in(folder);
  if (!names) return names.failure();
  std::map<int64_t, FilesOfStep> steps;
  for (const std::string& name : *names) {
    const std::optional<FileName> file = parse_file_name(name);
    if (!file) continue;
    if (file->temporary) {
      if (Result<void> gone = remove_file(folder + "/" + name); !gone) return gone.failure();
      continue;
    }
    FilesOfStep& files = steps[file->step];
    (file->json ? files.json : files.tensors).push_back(name);
  }
  // The oldest first: of a run that is killed here, the newest is still where --resume looks.
  for (const auto& [step, files] : steps)
    if (Result<void> moved = move_files(files, folder, aside); !moved) return moved.failure();
  // And only then what was there before.
  const Result<std::vector<std::string>> there = names_in(aside);
  if (!there) return there.failure();
  for (const std::string& name : *there) {
    const std::optional<FileName> file = parse_file_name(name);
    if (!file || std::find(names->begin(), names->end(), name) != names->end()) continue;
    if (Result<void> gone = remove_file(aside + "/" + name); !gone) return gone.failure();
  }
  for (const std::string& changed : {aside, folder})
    if (Result<void> synced = sync_directory(changed); !synced) return synced.failure();
  return aside;
}

namespace {

// What the JSON file of a checkpoint says, checked as far as it can be by itself.
Result<ParsedMeta> read_meta(const std::string& path) {
  const Result<std::string> text = read_text_file(path, kMaxJsonBytes);
  if (!text) return text.failure();
  Result<ParsedMeta> parsed = parse_meta(*text);
  if (!parsed) return fail("{}: {}", path, parsed.error());
  // Under another step's name it would be found again and again, and newer ones would not.
  const std::optional<FileName> name = parse_file_name(fs::path(path).filename().string());
  if (name && name->json && name->step != parsed->meta.step)
    return fail("{}: is of step {}, which is not what its name says", path, parsed->meta.step);
  return parsed;
}

Result<SafetensorsFile> open_tensors(const std::string& path, const ParsedMeta& parsed) {
  const std::string tensors_path = parent_directory(path) + "/" + parsed.tensors_name;
  Result<SafetensorsFile> file = SafetensorsFile::open(tensors_path);
  if (!file) return file.failure();
  const Result<Digest> digest = file->digest();
  if (!digest) return digest.failure();
  if (digest->hex() != parsed.tensors_digest)
    return fail("{}: is damaged: its digest is {}, {} says {}", tensors_path, digest->hex(), path,
                parsed.tensors_digest);
  return file;
}

}  // namespace

Result<Checkpoint> Checkpoint::open(const std::string& path, const CheckpointNeeds& needs) {
  Result<ParsedMeta> parsed = read_meta(path);
  if (!parsed) return parsed.failure();
  if (const Result<void> same = check_config(parsed->meta.config, needs); !same)
    return fail("{}: {}", path, same.error());
  Result<SafetensorsFile> file = open_tensors(path, *parsed);
  if (!file) return file.failure();
  if (const Result<void> same = check_tensors(*file, needs.tensors); !same)
    return fail("{}: {}", file->path(), same.error());
  return Checkpoint(std::move(parsed->meta), std::move(*file));
}

Result<Checkpoint> Checkpoint::open(const std::string& path) {
  Result<ParsedMeta> parsed = read_meta(path);
  if (!parsed) return parsed.failure();
  Result<SafetensorsFile> file = open_tensors(path, *parsed);
  if (!file) return file.failure();
  return Checkpoint(std::move(parsed->meta), std::move(*file));
}

Result<void> Checkpoint::read(std::string_view name, std::span<std::byte> out) const {
  return file_.read(tensor(name), out);
}

Result<void> Checkpoint::read_part(std::string_view name, int64_t offset_bytes,
                                   std::span<std::byte> out) const {
  return file_.read_part(tensor(name), offset_bytes, out);
}

const TensorInfo& Checkpoint::tensor(std::string_view name) const {
  const TensorInfo* tensor = file_.find(name);
  STOW_CHECK(tensor, "'{}' was not needed of {}", name, file_.path());
  return *tensor;
}

}  // namespace stow
