#include "stowage/lm/adapters.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>

#include "stowage/api/random.h"
#include "stowage/api/trace.h"
#include "stowage/base/error.h"
#include "stowage/lm/adapter.h"

namespace stow::lm {
namespace {

constexpr auto kFloat = static_cast<int64_t>(sizeof(float));

// Layout of one adapter's part of a leaf: the axis of the rank makes it [n, r, m] or [n, m, r], in
// its slot and in an adapter's own array.
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
    if (path.starts_with(fmt::format("layers/{}/", nn::lora_matrix_name(m))))
      return config.layers[m];
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

bool is_finite(const nn::Lora& lora) {
  for (const Array& leaf : tree_leaves(lora))
    for (const float x : leaf.to_vector<float>())
      if (!std::isfinite(x)) return false;
  return true;
}

}  // namespace

Result<Adapters> Adapters::make(const Model& model, const AdaptersOptions& options) {
  if (model.adapter()) return fail("adapters: expected a model without an adapter of its own");
  if (options.slots < 2)
    return fail("adapters: expected at least 2 slots, the base and one adapter, got {}",
                options.slots);
  if (options.max_rank < 1 || options.max_rank > kMaxPeftRank)
    return fail("adapters: expected a max_rank of 1 to {}, got {}", kMaxPeftRank, options.max_rank);
  if (options.chunk < 1 || options.microbatch < 0)
    return fail("adapters: expected a positive chunk and a microbatch of 0 or more, got {} and {}",
                options.chunk, options.microbatch);
  if (!options.attention && !options.mlp && !options.unembed)
    return fail("adapters: expected slots of attention, mlp or unembed, got none");
  if (options.unembed && model.decoder().tied)
    return fail(
        "adapters: train_unembed with tied embeddings: an adapter of either would change both");
  if ((options.slots - 1) > std::numeric_limits<int32_t>::max() / model.decoder().vocab)
    return fail("adapters: {} slots of a vocabulary of {} are too many", options.slots,
                model.decoder().vocab);
  Adapters made(model);
  made.options_ = options;
  made.config_ = {options.slots - 1, options.max_rank, options.attention, options.mlp,
                  options.unembed};
  made.slots_.resize(static_cast<size_t>(options.slots));
  const nn::LoraSlots types = nn::lora_slots_abstract(model.decoder(), made.config_);
  const std::vector<Array> leaves = tree_leaves(types);
  const std::vector<std::string> paths = tree_paths(types);
  Device& device = *model.device();
  for (size_t i = 0; i < leaves.size(); ++i) {
    const ArrayType& type = leaves[i].type();
    const int64_t outer = nn::slot_axis(paths[i]) == 0 ? 1 : type.shape[0];
    made.leaves_.push_back(
        {paths[i], type, outer,
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
  return slot > 0 && slot < static_cast<int>(slots_.size()) &&
         slots_[static_cast<size_t>(slot)].used;
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
  if (!std::isfinite(options.alpha))
    return fail("alpha: expected a finite number, got {}", options.alpha);
  if (!options.train_attention && !options.train_mlp && !options.train_unembed)
    return fail("expected train_attention, train_mlp or train_unembed, got none");
  if (options.train_unembed && model_.decoder().tied)
    return fail("train_unembed with tied embeddings: an adapter of either would change both");
  const std::tuple<const char*, bool, bool> parts[] = {
      {"attention", options.train_attention, config_.attention},
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
  Result<AdapterFiles> files =
      AdapterFiles::open(folder, model_.config(), model_.files().weights.get());
  if (!files) return files.failure();
  const nn::LoraConfig& config = files->lora();
  if (config.saved_embed || config.saved_head || config.saved_norm)
    return fail(
        "{}/adapter_config.json: modules_to_save: expected none, as slots hold no whole weights",
        folder);
  if (const int64_t rank = greatest_rank(config); rank > config_.max_rank)
    return fail("{}/adapter_config.json: expected ranks up to {}, got {}", folder, config_.max_rank,
                rank);
  if ((config.embed.rank > 0 || config.head.rank > 0) && model_.decoder().tied)
    return fail(
        "{}: expected no adapter of embedding or head, which are tied: it would change both",
        folder);
  for (const std::string& path : tree_paths(files->types(model_.config())))
    if (std::none_of(leaves_.begin(), leaves_.end(),
                     [&](const Leaf& leaf) { return leaf.path == path; }))
      return fail("{}: these adapters have no slots of {}", folder, path);
  Result<Adapter> adapter = load_adapter(*files, model_.config(), Device::cpu());
  if (!adapter) return adapter.failure();
  if (!is_finite(adapter->arrays))
    return fail("{}/adapter_model.safetensors: expected finite weights, got one that is not",
                folder);
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
    return fail("expected a state of rank {}, as slot {} has, got rank {}", a, slot, b);
  if (!have_same_ranks(own, state.config))
    return fail("expected a state with the matrices and ranks of slot {}, got other matrices or "
                "other ranks",
                slot);
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
    scales_[0]->write((l * config_.adapters + place) * kMatrices * kFloat,
                      std::as_bytes(std::span(scales)));
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
    groups_[group][leaf]->read(
        (o * config_.adapters + slot - 1) * at.inner * kFloat,
        std::as_writable_bytes(std::span(values).subspan(static_cast<size_t>(o * at.inner),
                                                         static_cast<size_t>(at.inner))));
  return values;
}

void Adapters::write_part(Group group, size_t leaf, int slot, const std::vector<float>& values) {
  const Leaf& at = leaves_[leaf];
  for (int64_t o = 0; o < at.outer && at.inner > 0; ++o)
    groups_[group][leaf]->write(
        (o * config_.adapters + slot - 1) * at.inner * kFloat,
        std::as_bytes(std::span(values).subspan(static_cast<size_t>(o * at.inner),
                                                static_cast<size_t>(at.inner))));
}

void Adapters::clear(Group group, int slot) {
  for (size_t i = 0; i < leaves_.size(); ++i)
    write_part(group, i, slot,
               std::vector<float>(static_cast<size_t>(leaves_[i].outer * leaves_[i].inner)));
}

void Adapters::write(Group group, int slot, const nn::LoraConfig& config, const nn::Lora& values) {
  const std::vector<std::string> paths = tree_paths(values);
  const std::vector<Array> arrays = tree_leaves(values);
  for (size_t i = 0; i < leaves_.size(); ++i) {
    const Leaf& leaf = leaves_[i];
    std::vector<float> part(static_cast<size_t>(leaf.outer * leaf.inner));
    const auto own = std::find(paths.begin(), paths.end(), leaf.path);
    if (own != paths.end()) {
      const std::vector<float> from =
          arrays[static_cast<size_t>(own - paths.begin())].to_vector<float>();
      each_element(layout_of(leaf.path, leaf.type), config_.max_rank,
                   target_of(config, leaf.path).rank,
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
    each_element(layout_of(leaf.path, leaf.type), config_.max_rank,
                 target_of(config, leaf.path).rank,
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

}  // namespace stow::lm
