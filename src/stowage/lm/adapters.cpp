#include "stowage/lm/adapters.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>

#include "stowage/api/random.h"
#include "stowage/api/trace.h"
#include "stowage/base/error.h"
#include "stowage/lm/adapter.h"
#include "stowage/lm/fit.h"

namespace stow::lm {
namespace {

constexpr auto kFloat = static_cast<int64_t>(sizeof(float));

// Where the axis of the rank is in one adapter's part of a leaf: [n, r, m] or [n, m, r] in its slot, and
// the same in an adapter's own array.
struct Layout {
  int64_t n = 1, m = 1;
  bool rank_first = false, own_rank_first = false;
};

Layout layout_of(const std::string& path, const ArrayType& type) {
  const Shape& s = type.shape;
  const bool is_a = path.ends_with("/a");
  if (path.starts_with("layers/")) return {s[0], is_a ? s[3] : s[2], is_a, is_a};
  if (path == "head/b") return {1, s[0], false, false};
  if (path == "head/a") return {1, s[2], true, true};
  return {1, s[1], false, is_a};
}

// take(element of a part of rank `max_rank`, element of an array of `rank`).
template <typename Take>
void each_element(const Layout& at, int64_t max_rank, int64_t rank, Take take) {
  const auto place = [&](bool first, int64_t r, int64_t i, int64_t k, int64_t j) {
    return static_cast<size_t>(first ? (i * r + k) * at.m + j : (i * at.m + j) * r + k);
  };
  for (int64_t i = 0; i < at.n; ++i)
    for (int64_t k = 0; k < rank; ++k)
      for (int64_t j = 0; j < at.m; ++j)
        take(place(at.rank_first, max_rank, i, k, j), place(at.own_rank_first, rank, i, k, j));
}

// The target of "layers/wq/a", "embed/b" and the like.
const nn::LoraTarget& target_of(const nn::LoraConfig& config, const std::string& path) {
  if (path.starts_with("embed/")) return config.embed;
  if (path.starts_with("head/")) return config.head;
  for (size_t m = 0; m < nn::kNumLoraMatrices; ++m)
    if (path.starts_with(fmt::format("layers/{}/", nn::lora_matrix_name(m)))) return config.layers[m];
  STOW_CHECK(false, "no target of {}", path);
  return config.head;
}

std::vector<const nn::LoraTarget*> targets_of(const nn::LoraConfig& config) {
  std::vector<const nn::LoraTarget*> targets;
  for (const nn::LoraTarget& target : config.layers) targets.push_back(&target);
  targets.push_back(&config.embed);
  targets.push_back(&config.head);
  return targets;
}

int64_t greatest_rank(const nn::LoraConfig& config) {
  int64_t rank = 0;
  for (const nn::LoraTarget* target : targets_of(config)) rank = std::max(rank, target->rank);
  return rank;
}

bool have_same_ranks(const nn::LoraConfig& a, const nn::LoraConfig& b) {
  const auto of = [](const nn::LoraConfig& config) {
    std::vector<std::vector<int64_t>> ranks;
    for (const nn::LoraTarget* target : targets_of(config)) {
      ranks.push_back({target->rank});
      for (size_t l = 0; l < target->scales.size(); ++l)
        ranks.back().push_back(target->rank_of(static_cast<int64_t>(l)));
    }
    return ranks;
  };
  return of(a) == of(b);
}

bool have_same_shapes(const nn::Lora& a, const nn::Lora& b) {
  const std::vector<Array> x = tree_leaves(a), y = tree_leaves(b);
  return tree_paths(a) == tree_paths(b) &&
         std::equal(x.begin(), x.end(), y.begin(), y.end(),
                    [](const Array& p, const Array& q) { return p.shape() == q.shape(); });
}

template <typename T>
DeviceBufferPtr put(Device& device, std::span<const T> values) {
  DeviceBufferPtr buffer = device.allocate(static_cast<int64_t>(values.size_bytes()));
  if (!values.empty()) buffer->write(0, std::as_bytes(values));
  return buffer;
}

// Rows [begin, begin + n) of [B, width] values, and `fill` for those behind the last.
template <typename T>
std::vector<T> cut(const std::vector<T>& all, int64_t begin, int64_t n, int64_t width, T fill) {
  std::vector<T> rows(static_cast<size_t>(n * width), fill);
  const auto first = static_cast<size_t>(begin * width);
  const size_t count = std::min(rows.size(), all.size() - std::min(all.size(), first));
  std::copy_n(all.begin() + static_cast<std::ptrdiff_t>(std::min(all.size(), first)), count, rows.begin());
  return rows;
}

bool needs_reference(nn::TokenLoss kind) {
  return kind == nn::TokenLoss::kImportanceSampling || kind == nn::TokenLoss::kPpo ||
         kind == nn::TokenLoss::kCispo;
}

bool is_finite(const nn::Lora& lora) {
  for (const Array& leaf : tree_leaves(lora))
    for (const float x : leaf.to_vector<float>())
      if (!std::isfinite(x)) return false;
  return true;
}

bool is_finite_positive(float x) {
  return std::isfinite(x) && x > 0;
}

}  // namespace

Result<Adapters> Adapters::make(const Model& model, const AdaptersOptions& options) {
  if (model.adapter()) return fail("adapters: expected a model without an adapter of its own");
  if (options.slots < 2)
    return fail("adapters: expected at least 2 slots, the base and one adapter, got {}", options.slots);
  if (options.max_rank < 1 || options.max_rank > kMaxPeftRank)
    return fail("adapters: expected a max_rank of 1 to {}, got {}", kMaxPeftRank, options.max_rank);
  if (options.chunk < 1 || options.microbatch < 0)
    return fail("adapters: expected a positive chunk and a microbatch of 0 or more, got {} and {}",
                options.chunk, options.microbatch);
  if (!options.attention && !options.mlp && !options.unembed)
    return fail("adapters: expected slots of attention, mlp or unembed, got none");
  if (options.unembed && model.decoder().tied)
    return fail("adapters: train_unembed with tied embeddings: an adapter of either would change both");
  if ((options.slots - 1) > std::numeric_limits<int32_t>::max() / model.decoder().vocab)
    return fail("adapters: {} slots of a vocabulary of {} are too many", options.slots, model.decoder().vocab);
  Adapters made(model);
  made.options_ = options;
  made.config_ = {options.slots - 1, options.max_rank, options.attention, options.mlp, options.unembed};
  made.slots_.resize(static_cast<size_t>(options.slots));
  const nn::LoraSlots types = nn::lora_slots_abstract(model.decoder(), made.config_);
  const std::vector<Array> leaves = tree_leaves(types);
  const std::vector<std::string> paths = tree_paths(types);
  Device& device = *model.device();
  for (size_t i = 0; i < leaves.size(); ++i) {
    const ArrayType& type = leaves[i].type();
    const int64_t outer = nn::slot_axis(paths[i]) == 0 ? 1 : type.shape[0];
    made.leaves_.push_back({paths[i], type, outer,
                            type.shape.elems() / std::max<int64_t>(outer * made.config_.adapters, 1)});
  }
  for (const Group group : {kWeights, kSums, kMu, kNu})
    for (const Leaf& leaf : made.leaves_)
      made.groups_[group].push_back(device.allocate(
          leaf.type.bytes(), group >= kMu ? options.moments : MemoryKind::kDevice));
  for (const Array& scale : tree_leaves(nn::slot_scales_abstract(model.decoder(), made.config_)))
    made.scales_.push_back(device.allocate(scale.type().bytes()));
  return made;
}

bool Adapters::contains(int slot) const {
  return slot > 0 && slot < static_cast<int>(slots_.size()) && slots_[static_cast<size_t>(slot)].used;
}

Result<void> Adapters::check_slot(int slot) const {
  if (contains(slot)) return {};
  if (slot == nn::kBaseSlot) return fail("slot 0 is the base, which is not trained");
  return fail("there is no adapter in slot {}", slot);
}

Result<int> Adapters::take_slot(const nn::LoraConfig& config, const nn::Lora& weights) {
  for (size_t i = 1; i < slots_.size(); ++i) {
    if (slots_[i].used) continue;
    const auto slot = static_cast<int>(i);
    slots_[i] = {true, config};
    set_scales(slot, config);
    write(kWeights, slot, config, weights);
    return slot;
  }
  return fail("Maximum number of LoRA adapters ({}) reached", slots_.size());
}

Result<int> Adapters::create(const AdapterOptions& options) {
  if (options.rank < 1 || options.rank > config_.max_rank)
    return fail("rank: expected 1 to {}, got {}", config_.max_rank, options.rank);
  if (!std::isfinite(options.alpha)) return fail("alpha: expected a finite number, got {}", options.alpha);
  if (!options.train_attention && !options.train_mlp && !options.train_unembed)
    return fail("expected train_attention, train_mlp or train_unembed, got none");
  if (options.train_unembed && model_.decoder().tied)
    return fail("train_unembed with tied embeddings: an adapter of either would change both");
  const std::tuple<const char*, bool, bool> parts[] = {{"attention", options.train_attention, config_.attention},
                                                       {"mlp", options.train_mlp, config_.mlp},
                                                       {"unembed", options.train_unembed, config_.unembed}};
  for (const auto& [name, wanted, there] : parts)
    if (wanted && !there) return fail("train_{}: these adapters have no slots of {}", name, name);
  const double scale = options.alpha / static_cast<double>(options.rank);
  std::vector<nn::LoraMatrix> matrices;
  for (size_t m = 0; m < nn::kNumLoraMatrices; ++m)
    if (m >= nn::kLoraGate ? options.train_mlp : options.train_attention)
      matrices.push_back(static_cast<nn::LoraMatrix>(m));
  nn::LoraConfig config = nn::lora_config(model_.decoder(), matrices, options.rank, scale);
  if (options.train_unembed)
    config.embed = config.head = {options.rank, {}, {static_cast<float>(scale)}};
  const DefaultDevice guard(Device::cpu());
  return take_slot(config, nn::lora_init(model_.decoder(), config, random::key(options.seed)));
}

Result<int> Adapters::load(const std::string& folder) {
  Result<AdapterFiles> files = AdapterFiles::open(folder, model_.config(), model_.files().weights.get());
  if (!files) return files.failure();
  const nn::LoraConfig& config = files->lora();
  if (config.saved_embed || config.saved_head || config.saved_norm)
    return fail("{}/adapter_config.json: modules_to_save: slots hold no whole weights", folder);
  if (const int64_t rank = greatest_rank(config); rank > config_.max_rank)
    return fail("{}/adapter_config.json: expected ranks up to {}, got {}", folder, config_.max_rank, rank);
  if ((config.embed.rank > 0 || config.head.rank > 0) && model_.decoder().tied)
    return fail("{}: an adapter of embedding or head with tied embeddings has no slot", folder);
  for (const std::string& path : tree_paths(files->types(model_.config())))
    if (std::none_of(leaves_.begin(), leaves_.end(), [&](const Leaf& leaf) { return leaf.path == path; }))
      return fail("{}: these adapters have no slots of {}", folder, path);
  Result<Adapter> adapter = load_adapter(*files, model_.config(), Device::cpu());
  if (!adapter) return adapter.failure();
  if (!is_finite(adapter->arrays))
    return fail("{}/adapter_model.safetensors: expected finite weights, got one that is not", folder);
  nn::LoraConfig own = config;
  own.dropout = 0;
  return take_slot(own, adapter->arrays);
}

Result<void> Adapters::remove(int slot) {
  if (Result<void> good = check_slot(slot); !good) return good;
  for (const Group group : {kWeights, kSums, kMu, kNu}) clear(group, slot);
  set_scales(slot, {});
  slots_[static_cast<size_t>(slot)] = {};
  return {};
}

Result<void> Adapters::save(int slot, const std::string& folder) const {
  if (Result<void> good = check_slot(slot); !good) return good;
  const nn::LoraConfig& own = config(slot);
  return save_adapter(read(kWeights, slot, own), own, model_.config(), folder,
                      {.base_model = model_.files().path});
}

Result<SlotState> Adapters::extract(int slot) const {
  if (Result<void> good = check_slot(slot); !good) return good.failure();
  const nn::LoraConfig& own = config(slot);
  return SlotState{own, read(kWeights, slot, own),
                   SlotState::Optimizer{read(kMu, slot, own), read(kNu, slot, own), steps(slot)}};
}

Result<void> Adapters::insert(int slot, const SlotState& state) {
  if (Result<void> good = check_slot(slot); !good) return good;
  const nn::LoraConfig& own = config(slot);
  if (const int64_t a = greatest_rank(own), b = greatest_rank(state.config); a != b)
    return fail("slot {} has rank {}, the state rank {}", slot, a, b);
  if (!have_same_ranks(own, state.config))
    return fail("slot {} and the state have adapters of other matrices, or of other ranks", slot);
  const nn::Lora types = nn::lora_abstract(model_.decoder(), state.config);
  if (!have_same_shapes(state.weights, types) ||
      (state.optimizer && !(have_same_shapes(state.optimizer->mu, types) &&
                            have_same_shapes(state.optimizer->nu, types))))
    return fail("the arrays of the state are not those of its configuration");
  if (!is_finite(state.weights) ||
      (state.optimizer && !(is_finite(state.optimizer->mu) && is_finite(state.optimizer->nu))))
    return fail("the state: expected finite weights and moments, got one that is not");
  for (const Group group : {kWeights, kSums, kMu, kNu}) clear(group, slot);
  slots_[static_cast<size_t>(slot)] = {true, state.config};
  set_scales(slot, state.config);
  write(kWeights, slot, state.config, state.weights);
  if (state.optimizer) {
    write(kMu, slot, state.config, state.optimizer->mu);
    write(kNu, slot, state.config, state.optimizer->nu);
    slots_[static_cast<size_t>(slot)].steps = state.optimizer->steps;
  }
  return {};
}

void Adapters::set_scales(int slot, const nn::LoraConfig& config) {
  constexpr auto kMatrices = static_cast<int64_t>(nn::kNumLoraMatrices);
  const int64_t place = slot - 1;
  for (int64_t l = 0; l < model_.decoder().layers; ++l) {
    float scales[nn::kNumLoraMatrices] = {};
    for (size_t m = 0; m < nn::kNumLoraMatrices; ++m)
      if (config.layers[m].rank > 0) scales[m] = config.layers[m].scales[static_cast<size_t>(l)];
    scales_[0]->write((l * config_.adapters + place) * kMatrices * kFloat, std::as_bytes(std::span(scales)));
  }
  const nn::LoraTarget* outer[] = {&config.embed, &config.head};
  for (size_t i = 0; i < 2; ++i) {
    const float scale = outer[i]->rank > 0 ? outer[i]->scales[0] : 0.0f;
    scales_[i + 1]->write(place * kFloat, std::as_bytes(std::span(&scale, 1)));
  }
}

std::vector<float> Adapters::read_part(Group group, size_t leaf, int slot) const {
  const Leaf& at = leaves_[leaf];
  std::vector<float> values(static_cast<size_t>(at.outer * at.inner));
  for (int64_t o = 0; o < at.outer && at.inner > 0; ++o)
    groups_[group][leaf]->read((o * config_.adapters + slot - 1) * at.inner * kFloat,
                               std::as_writable_bytes(std::span(values).subspan(
                                   static_cast<size_t>(o * at.inner), static_cast<size_t>(at.inner))));
  return values;
}

void Adapters::write_part(Group group, size_t leaf, int slot, const std::vector<float>& values) {
  const Leaf& at = leaves_[leaf];
  for (int64_t o = 0; o < at.outer && at.inner > 0; ++o)
    groups_[group][leaf]->write((o * config_.adapters + slot - 1) * at.inner * kFloat,
                                std::as_bytes(std::span(values).subspan(static_cast<size_t>(o * at.inner),
                                                                        static_cast<size_t>(at.inner))));
}

void Adapters::clear(Group group, int slot) {
  for (size_t i = 0; i < leaves_.size(); ++i)
    write_part(group, i, slot, std::vector<float>(static_cast<size_t>(leaves_[i].outer * leaves_[i].inner)));
}

void Adapters::write(Group group, int slot, const nn::LoraConfig& config, const nn::Lora& values) {
  const std::vector<std::string> paths = tree_paths(values);
  const std::vector<Array> arrays = tree_leaves(values);
  for (size_t i = 0; i < leaves_.size(); ++i) {
    const Leaf& leaf = leaves_[i];
    std::vector<float> part(static_cast<size_t>(leaf.outer * leaf.inner));
    const auto own = std::find(paths.begin(), paths.end(), leaf.path);
    if (own != paths.end()) {
      const std::vector<float> from = arrays[static_cast<size_t>(own - paths.begin())].to_vector<float>();
      each_element(layout_of(leaf.path, leaf.type), config_.max_rank, target_of(config, leaf.path).rank,
                   [&](size_t to, size_t at) { part[to] = from.at(at); });
    }
    write_part(group, i, slot, part);
  }
}

nn::Lora Adapters::read(Group group, int slot, const nn::LoraConfig& config) const {
  const DefaultDevice guard(Device::cpu());
  const nn::Lora types = nn::lora_abstract(model_.decoder(), config);
  std::vector<Array> arrays = tree_leaves(types);
  const std::vector<std::string> paths = tree_paths(types);
  for (size_t i = 0; i < leaves_.size(); ++i) {
    const Leaf& leaf = leaves_[i];
    const auto own = std::find(paths.begin(), paths.end(), leaf.path);
    if (own == paths.end()) continue;
    Array& array = arrays[static_cast<size_t>(own - paths.begin())];
    const std::vector<float> part = read_part(group, i, slot);
    std::vector<float> values(static_cast<size_t>(array.size()));
    each_element(layout_of(leaf.path, leaf.type), config_.max_rank, target_of(config, leaf.path).rank,
                 [&](size_t from, size_t at) { values.at(at) = part[from]; });
    array = Array::from(values, array.shape());
  }
  return tree_unflatten(types, arrays);
}

std::vector<std::byte> Adapters::bytes(int slot) const {
  std::vector<std::byte> all;
  for (const Group group : {kWeights, kSums, kMu, kNu})
    for (size_t i = 0; i < leaves_.size(); ++i) {
      const std::vector<float> part = read_part(group, i, slot);
      const auto raw = std::as_bytes(std::span(part));
      all.insert(all.end(), raw.begin(), raw.end());
    }
  return all;
}

Result<void> Adapters::check(const AdapterBatch& batch) const {
  const int64_t b = batch.rows, t = batch.length;
  if (b < 1 || t < 1) return fail("rows, length: expected at least one row of one token, got {} and {}", b, t);
  if (b > std::numeric_limits<int32_t>::max() / t) return fail("rows, length: {} rows of {} are too many", b, t);
  const auto sized = [&](const char* name, size_t size, int64_t expected) -> Result<void> {
    if (static_cast<int64_t>(size) == expected) return {};
    return fail("{}: expected {} numbers for [{}, {}], got {}", name, expected, b, t, size);
  };
  const std::tuple<const char*, size_t, int64_t> sizes[] = {{"tokens", batch.tokens.size(), b * t},
                                                            {"targets", batch.targets.size(), b * t},
                                                            {"slot", batch.slot.size(), b}};
  for (const auto& [name, size, expected] : sizes)
    if (Result<void> good = sized(name, size, expected); !good) return good;
  const std::tuple<const char*, size_t, int64_t> optional[] = {
      {"weights", batch.weights.size(), b * t},       {"loss", batch.loss.size(), b},
      {"reference", batch.reference.size(), b * t},   {"advantages", batch.advantages.size(), b * t},
      {"positions", batch.positions.size(), b * t},   {"lo", batch.lo.size(), b * t},
      {"hi", batch.hi.size(), b * t}};
  for (const auto& [name, size, expected] : optional)
    if (size > 0)
      if (Result<void> good = sized(name, size, expected); !good) return good;
  if (batch.positions.size() != batch.lo.size() || batch.lo.size() != batch.hi.size())
    return fail("positions, lo, hi: expected all of them or none");
  for (const std::vector<int32_t>* ids : {&batch.tokens, &batch.targets})
    for (size_t i = 0; i < ids->size(); ++i)
      if ((*ids)[i] < 0 || (*ids)[i] >= model_.decoder().vocab)
        return fail("{}: {} at row {}, place {} is outside of the vocabulary of {}",
                    ids == &batch.tokens ? "tokens" : "targets", (*ids)[i], static_cast<int64_t>(i) / t,
                    static_cast<int64_t>(i) % t, model_.decoder().vocab);
  for (size_t i = 0; i < batch.lo.size(); ++i)
    if (batch.lo[i] < 0 || batch.hi[i] < 0 || batch.hi[i] > t || batch.positions[i] < 0)
      return fail("positions, lo, hi: row {}, place {} is outside of its row of {}", static_cast<int64_t>(i) / t,
                  static_cast<int64_t>(i) % t, t);
  for (const float w : batch.weights)
    if (!std::isfinite(w) || w < 0)
      return fail("weights: expected finite numbers of at least 0, got {}", w);
  // One that counts and is not finite would spoil the gradients of other rows' adapters.
  for (const std::vector<float>* values : {&batch.reference, &batch.advantages})
    for (size_t i = 0; i < values->size(); ++i)
      if (!std::isfinite((*values)[i]) && (batch.weights.empty() || batch.weights[i] != 0))
        return fail("{}: expected finite numbers where the weight is not 0, got {} at row {}, place {}",
                    values == &batch.reference ? "reference" : "advantages", (*values)[i],
                    static_cast<int64_t>(i) / t, static_cast<int64_t>(i) % t);
  for (size_t i = 0; i < batch.slot.size(); ++i)
    if (batch.slot[i] != nn::kBaseSlot && !contains(batch.slot[i]))
      return fail("slot: row {}: there is no adapter in slot {}", i, batch.slot[i]);
  const int64_t at_a_time = options_.microbatch > 0 ? options_.microbatch : b;
  std::vector<int> named(batch.loss.size(), 0);
  for (size_t i = 0; i < batch.loss.size(); ++i) {
    const RowLoss& loss = batch.loss[i];
    if (loss.kind < nn::TokenLoss::kCrossEntropy || loss.kind > nn::TokenLoss::kDpo)
      return fail("loss: row {}: unknown kind {}", i, static_cast<int>(loss.kind));
    if (needs_reference(loss.kind) && (batch.reference.empty() || batch.advantages.empty()))
      return fail("reference, advantages: row {} has a loss that needs them", i);
    if (!is_finite_positive(loss.clip_low) || !is_finite_positive(loss.clip_high) ||
        loss.clip_low > loss.clip_high || !is_finite_positive(loss.beta))
      return fail("loss: row {}: expected 0 < clip_low <= clip_high and beta > 0", i);
    if (loss.rejected < 0) continue;
    const auto j = static_cast<size_t>(loss.rejected);
    if (j >= batch.loss.size() || j == i || loss.kind != nn::TokenLoss::kDpo ||
        batch.loss[j].kind != nn::TokenLoss::kDpo || batch.loss[j].rejected >= 0 ||
        batch.slot[j] != batch.slot[i])
      return fail("loss: row {}: expected a rejected row of the same slot and kind, got {}", i, loss.rejected);
    if (static_cast<int64_t>(i) / at_a_time != static_cast<int64_t>(j) / at_a_time)
      return fail("loss: rows {} and {} are a pair and not in one microbatch of {}", i, j, at_a_time);
    ++named[j];
  }
  for (size_t i = 0; i < batch.loss.size(); ++i)
    if (batch.loss[i].kind == nn::TokenLoss::kDpo && batch.loss[i].rejected < 0 && named[i] != 1)
      return fail("loss: row {}: expected one chosen row that names it, got {}", i, named[i]);
  return {};
}

const ExecutablePtr& Adapters::pass(const PassShape& shape) {
  ExecutablePtr& program = passes_[shape];
  if (!program) program = compile_pass(model_, config_, shape, options_.chunk, options_.policy);
  return program;
}

const ExecutablePtr& Adapters::step_program() {
  if (!step_) step_ = compile_step(model_.decoder(), config_, model_.device()->threads(), has_moments_apart());
  return step_;
}

const MemoryAnalysis& Adapters::plan(const PassShape& shape) {
  return pass(shape)->memory_analysis();
}

const MemoryAnalysis& Adapters::step_plan() {
  return step_program()->memory_analysis();
}

BytesByKind Adapters::peak_bytes(const PassShape& shape) {
  const auto device = static_cast<size_t>(MemoryKind::kDevice);
  int64_t array_bytes = 0, scale_bytes = 0;
  for (const Leaf& leaf : leaves_) array_bytes += leaf.type.bytes();
  for (const DeviceBufferPtr& scale : scales_) scale_bytes += scale->bytes();
  const BytesByKind weights = weight_bytes(model_.config(), model_.options());
  BytesByKind peak{};
  for (size_t kind = 0; kind < peak.size(); ++kind) {
    // Beside a pass lie the moments, and where it makes no gradients their sums.
    const int64_t sums = kind == device && !shape.gradients ? array_bytes : 0;
    const int64_t moments = kind == static_cast<size_t>(options_.moments) ? 2 * array_bytes : 0;
    const int64_t beside = sums + moments;
    const int64_t beside_step = weights[kind] + (kind == device ? scale_bytes : 0) +
                                (has_moments_apart() ? moments : 0);
    peak[kind] = std::max(plan(shape).kinds[kind].total_bytes + beside,
                          step_plan().kinds[kind].total_bytes + beside_step);
  }
  return peak;
}

void Adapters::prepare(const ExecutablePtr& program) {
  // The arena that the device keeps of another program would stand beside this one's.
  if (last_ != program.get()) model_.device()->drop_arenas();
  last_ = program.get();
}

Result<PassOutput> Adapters::forward_backward(const AdapterBatch& batch) {
  return run_passes(batch, true);
}

Result<PassOutput> Adapters::forward(const AdapterBatch& batch) {
  return run_passes(batch, false);
}

Result<PassOutput> Adapters::run_passes(const AdapterBatch& batch, bool gradients) {
  if (Result<void> good = check(batch); !good) return good.failure();
  const int64_t b = batch.rows, t = batch.length;
  const int64_t n = options_.microbatch > 0 ? std::min(options_.microbatch, b) : b;
  const auto row_loss = [&](int64_t row) {
    return row < static_cast<int64_t>(batch.loss.size()) ? batch.loss[static_cast<size_t>(row)] : RowLoss{};
  };
  PassShape shape{n, t, !batch.lo.empty(), false, gradients};
  for (const RowLoss& loss : batch.loss) shape.has_pairs |= loss.kind == nn::TokenLoss::kDpo;
  const ExecutablePtr& program = pass(shape);
  prepare(program);
  Device& device = *model_.device();
  PassOutput output;
  for (int64_t begin = 0; begin < b; begin += n) {
    std::vector<DeviceBufferPtr> arguments = model_.arguments();
    const auto append = [&](const std::vector<DeviceBufferPtr>& more) {
      arguments.insert(arguments.end(), more.begin(), more.end());
    };
    append(groups_[kWeights]);
    append(scales_);
    if (gradients) append(groups_[kSums]);
    const auto push = [&](const auto& values) {
      arguments.push_back(put(device, std::span<const std::decay_t<decltype(values[0])>>(values)));
    };
    // Rows behind the last are the base's and count for nothing.
    push(cut(batch.tokens, begin, n, t, 0));
    push(cut(batch.targets, begin, n, t, 0));
    if (shape.has_intervals) {
      push(cut(batch.positions, begin, n, t, 0));
      push(cut(batch.lo, begin, n, t, 0));
      push(cut(batch.hi, begin, n, t, 0));
    }
    push(cut(batch.slot, begin, n, 1, nn::kBaseSlot));
    const std::vector<float> ones(batch.weights.empty() ? static_cast<size_t>(b * t) : 0, 1.0f);
    push(cut(batch.weights.empty() ? ones : batch.weights, begin, n, t, 0.0f));
    push(cut(batch.reference, begin, n, t, 0.0f));
    push(cut(batch.advantages, begin, n, t, 0.0f));
    std::vector<int32_t> kinds, rejected;
    std::vector<float> low, high, beta;
    for (int64_t row = begin; row < begin + n; ++row) {
      const RowLoss loss = row_loss(row);
      kinds.push_back(static_cast<int32_t>(loss.kind));
      low.push_back(loss.clip_low);
      high.push_back(loss.clip_high);
      beta.push_back(loss.beta);
      rejected.push_back(loss.rejected < 0 ? -1 : loss.rejected - static_cast<int32_t>(begin));
    }
    push(kinds);
    push(low);
    push(high);
    push(beta);
    push(rejected);
    std::vector<DeviceBufferPtr> results = program->run(device, arguments);
    size_t next = 0;
    if (gradients)
      for (DeviceBufferPtr& sum : groups_[kSums]) sum = results[next++];
    const int64_t here = std::min(n, b - begin);
    const auto take = [&](std::vector<float>& to, int64_t width) {
      const std::vector<float> values = read_floats(*results[next++]);
      to.insert(to.end(), values.begin(), values.begin() + here * width);
    };
    take(output.logprobs, t);
    take(output.tokens, t);
    take(output.rows, 1);
    for (int64_t row = begin; row < begin + here && gradients; ++row)
      if (!std::isfinite(output.rows[static_cast<size_t>(row)]))
        slots_[static_cast<size_t>(batch.slot[static_cast<size_t>(row)])].is_spoiled = true;
    for (int64_t row = begin; row < begin + here && gradients; ++row) {
      const RowLoss loss = row_loss(row);
      if (loss.kind == nn::TokenLoss::kDpo && loss.rejected < 0) continue;
      if (const int32_t slot = batch.slot[static_cast<size_t>(row)]; slot != nn::kBaseSlot)
        ++slots_[static_cast<size_t>(slot)].examples;
    }
  }
  return output;
}

Result<AdapterStep> Adapters::step(int slot, const AdamWOptions& o) {
  if (Result<void> good = check_slot(slot); !good) return good.failure();
  const auto in_range = [](double x, double low, double high) { return x >= low && x < high; };
  if (!std::isfinite(o.lr) || o.lr < 0) return fail("lr: expected a number of 0 or more, got {}", o.lr);
  if (!in_range(o.beta1, 0, 1) || !in_range(o.beta2, 0, 1))
    return fail("beta1, beta2: expected numbers from 0 to below 1, got {} and {}", o.beta1, o.beta2);
  if (!std::isfinite(o.eps) || static_cast<float>(o.eps) <= 0)
    return fail("eps: expected a positive number, got {}", o.eps);
  if (!std::isfinite(o.weight_decay) || o.weight_decay < 0)
    return fail("weight_decay: expected a number of 0 or more, got {}", o.weight_decay);
  Slot& own = slots_[static_cast<size_t>(slot)];
  AdapterStep made{0, o.lr, own.examples};
  if (own.examples == 0) return made;
  const auto drop = [&](std::string_view why) {
    own.examples = 0;
    own.is_spoiled = false;
    return fail("slot {}: {}: the adapter is as it was, and its gradients are zero again", slot, why);
  };
  if (own.is_spoiled) {
    clear(kSums, slot);
    return drop("a row of it had a loss that is not finite");
  }
  const auto t = static_cast<double>(own.steps + 1);
  float numbers[kNumStepNumbers];
  const auto set = [&](StepNumber i, double x) { numbers[i] = static_cast<float>(x); };
  set(kMeanFactor, 1.0 / static_cast<double>(own.examples));
  set(kLearningRate, o.lr);
  set(kBeta1, o.beta1);
  set(kOneMinusBeta1, 1 - o.beta1);
  set(kBeta2, o.beta2);
  set(kOneMinusBeta2, 1 - o.beta2);
  set(kCorrection1, 1 / (1 - std::pow(o.beta1, t)));
  set(kCorrection2, 1 / (1 - std::pow(o.beta2, t)));
  set(kEpsilon, o.eps);
  set(kWeightDecay, o.weight_decay);
  const int32_t place = slot - 1;
  const ExecutablePtr& program = step_program();
  prepare(program);
  Device& device = *model_.device();
  std::vector<DeviceBufferPtr> arguments;
  for (const Group group : {kWeights, kSums, kMu, kNu})
    for (size_t i = 0; i < leaves_.size(); ++i)
      arguments.push_back(group >= kMu && has_moments_apart()
                              ? put(device, std::span<const float>(read_part(group, i, slot)))
                              : groups_[group][i]);
  arguments.push_back(put(device, std::span(&place, 1)));
  arguments.push_back(put(device, std::span<const float>(numbers)));
  const std::vector<DeviceBufferPtr> results = program->run(device, arguments);
  size_t next = 0;
  for (const Group group : {kWeights, kSums, kMu, kNu})
    for (size_t i = 0; i < leaves_.size(); ++i, ++next)
      if (group >= kMu && has_moments_apart())
        write_part(group, i, slot, read_floats(*results[next]));
      else
        groups_[group][i] = results[next];
  made.grad_norm = read_floats(*results[next])[0];
  if (!std::isfinite(made.grad_norm)) return drop("the norm of its gradient is not finite");
  own.examples = 0;
  ++own.steps;
  return made;
}

}  // namespace stow::lm
