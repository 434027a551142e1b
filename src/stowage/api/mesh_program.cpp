#include "stowage/api/mesh_program.h"

#include <algorithm>
#include <map>
#include <mutex>

#include "stowage/api/distributed.h"
#include "stowage/api/element_reader.h"
#include "stowage/api/manual_mesh.h"
#include "stowage/api/memory.h"
#include "stowage/api/placement.h"
#include "stowage/api/processes.h"
#include "stowage/api/shards.h"
#include "stowage/api/trace.h"
#include "stowage/ir/utilities.h"
#include "stowage/runtime/comm/run_together.h"
#include "stowage/runtime/comm/world.h"
#include "stowage/runtime/target.h"
#include "stowage/session/plan_fact.h"

namespace stow {
namespace {

// The sharding over a mesh that an argument has; also of an abstract one.
const NamedSharding* mesh_of(const Array& x) {
  if (x.empty()) return nullptr;
  if (x.is_concrete()) return is_sharded(x) ? &mesh_sharding_of(x) : nullptr;
  const auto& sharding = x.impl()->sharding;
  return sharding ? sharding_over_mesh(*sharding) : nullptr;
}

}  // namespace

std::optional<MeshLayout> mesh_layout(const std::string& what, std::span<const Array> arguments,
                                      std::span<const std::string> names,
                                      std::span<const std::shared_ptr<const Sharding>> in,
                                      std::span<const std::shared_ptr<const Sharding>> out,
                                      const Sharding* constraint) {
  const auto is_over_mesh = [](const std::shared_ptr<const Sharding>& s) {
    return s && sharding_over_mesh(*s);
  };
  if (std::none_of(arguments.begin(), arguments.end(), [](const Array& x) { return mesh_of(x); }) &&
      std::none_of(in.begin(), in.end(), is_over_mesh) && !constraint &&
      std::none_of(out.begin(), out.end(), is_over_mesh))
    return std::nullopt;
  const NamedSharding* first = nullptr;
  std::string whose;
  const auto join = [&](const NamedSharding* one, const std::string& owner) {
    if (!one) return;
    if (!first) {
      first = one;
      whose = owner;
    } else if (!(first->mesh() == one->mesh())) {
      trace_error_here(
          "[{}] expected one mesh, {} is on {} and {} on {}{}", what, whose,
          to_string(first->mesh()), owner, to_string(one->mesh()),
          first->mesh().mesh_shape() == one->mesh().mesh_shape() ? " of other devices" : "");
    }
  };
  const auto said = [](std::span<const std::shared_ptr<const Sharding>> list, size_t i) {
    return i < list.size() ? list[i] : nullptr;
  };
  std::vector<std::shared_ptr<const Sharding>> inputs;
  for (size_t i = 0; i < std::max(arguments.size(), in.size()); ++i) {
    const std::string name = fmt::format(
        "argument {}", i < names.size() ? names[i] : fmt::format("{}", i));
    const NamedSharding* current = i < arguments.size() ? mesh_of(arguments[i]) : nullptr;
    const std::shared_ptr<const Sharding> asked = said(in, i);
    const NamedSharding* over = asked ? sharding_over_mesh(*asked) : nullptr;
    const bool says_where = asked && (asked->named() || asked->device());  // not a kind alone
    if (current && says_where && !asked->is_equivalent_to(Sharding(*current), arguments[i].rank()))
      trace_error_here(
          "[{}] in_shardings say {} for {}, which lies as {}: {}; move it with device_put first",
          what, to_string(*asked), name, to_string(Sharding(*current)), describe(arguments[i]));
    if (over && !current && i < arguments.size() && !is_fully_addressable(*asked) &&
        !is_fully_replicated(*asked))
      trace_error_here(
          "[{}] expected an array over the mesh for {}, since in_shardings cut it over several "
          "processes ({}), got {}; make it with make_array_from_process_local_data or device_put",
          what, name, to_string(*asked), describe(arguments[i]));
    join(current, name);
    join(over, "in_shardings of " + name);
    inputs.push_back(current ? std::make_shared<const Sharding>(*current) : over ? asked : nullptr);
  }
  for (size_t i = 0; i < out.size(); ++i)
    if (out[i]) join(sharding_over_mesh(*out[i]), fmt::format("out_shardings of result {}", i));
  if (constraint) join(sharding_over_mesh(*constraint), "a sharding inside the program");
  return MeshLayout{first->mesh(), std::move(inputs), {out.begin(), out.end()}};
}

void refuse_over_mesh(const std::string& what, const sharding::Mesh& mesh) {
  trace_error_here(
      "[{}] expected an array on one device, got one over a mesh of {} devices, {}; put it there "
      "with device_put(x, SingleDeviceSharding(device))",
      what, mesh.size(), to_string(mesh));
}

std::shared_ptr<const MeshOptions> mesh_options(const std::string& what, const MeshLayout& layout,
                                                const Graph& graph) {
  auto options = std::make_shared<MeshOptions>();
  options->mesh = layout.mesh.mesh_shape();
  const auto convert = [&](const std::shared_ptr<const Sharding>& sharding, ValueId v,
                           const char* whose, size_t i) -> std::optional<AxisSharding> {
    const NamedSharding* named = sharding ? sharding_over_mesh(*sharding) : nullptr;
    if (!named) return std::nullopt;
    Result<AxisSharding> axes = axis_sharding_of(named->spec(), graph.type(v), options->mesh);
    if (!axes) trace_error_here("[{}] {} {}: {}", what, whose, i, axes.error());
    return std::move(*axes);
  };
  for (size_t i = 0; i < graph.inputs().size(); ++i) {
    const ValueId v = graph.inputs()[i];
    const auto axes = i < layout.inputs.size() ? convert(layout.inputs[i], v, "argument", i)
                                               : std::nullopt;
    options->in.push_back(axes ? *axes : whole_sharding(graph.type(v).shape.rank()));
  }
  for (size_t i = 0; i < graph.outputs().size(); ++i)
    options->out.push_back(i < layout.outputs.size()
                               ? convert(layout.outputs[i], graph.outputs()[i], "result", i)
                               : std::nullopt);
  return options;
}

void record_mesh(const NamedSharding& sharding) {
  if (const MeshShape* mesh = manual_mesh())
    trace_error_here(
        "[device_put] expected a memory kind in the body of shard_map, where arrays are parts, got "
        "{} over {}; move the argument or the result",
        to_string(Sharding(sharding)),
        to_string(*mesh));
  for (const std::shared_ptr<Trace>& trace : context().traces) {
    if (!trace->mesh_sharding)
      trace->mesh_sharding = std::make_shared<const Sharding>(NamedSharding(sharding.mesh(), {}));
    else if (!(trace->mesh_sharding->named()->mesh() == sharding.mesh()))
      trace_error_here("[device_put] expected one mesh in a program, got {} and {}",
                       to_string(trace->mesh_sharding->named()->mesh()),
                       to_string(sharding.mesh()));
  }
}

namespace {

// The specification of a sharding without partial axes.
PartitionSpec spec_of(const AxisSharding& sharding, const MeshShape& mesh) {
  std::vector<PartitionSpec::Axes> entries;
  for (const MeshAxes& axes : sharding.axes) {
    std::vector<std::string> names;
    for (int axis : axes) names.push_back(mesh.names[static_cast<size_t>(axis)]);
    entries.emplace_back(std::move(names));
  }
  return PartitionSpec(std::move(entries));
}

}  // namespace

// One communicator a position. Programs of one mesh run one after another, so they share them:
// memory in which positions meet is there once a mesh, not once a program.
class ThreadRanks {
 public:
  /// Those of a mesh within this process, made when first asked for.
  static std::shared_ptr<ThreadRanks> of(const sharding::Mesh& mesh, double timeout_s) {
    static std::mutex mutex;
    static std::map<std::vector<int64_t>, std::weak_ptr<ThreadRanks>> all;
    std::vector<int64_t> devices;
    for (const DevicePtr& device : mesh.devices()) devices.push_back(device->number());
    const std::lock_guard lock(mutex);
    std::erase_if(all, [](const auto& entry) { return entry.second.expired(); });
    std::weak_ptr<ThreadRanks>& entry = all[devices];
    std::shared_ptr<ThreadRanks> ranks = entry.lock();
    if (!ranks) {
      ranks = std::make_shared<ThreadRanks>();
      ranks->n_ = static_cast<int32_t>(devices.size());
      ranks->timeout_s_ = timeout_s;
      entry = ranks;
    }
    return ranks;
  }
  /// An error ends them; the next run makes new ones.
  void reset() { communicators_.clear(); }
  comm::Communicator& at(int64_t position) {
    if (communicators_.empty())
      communicators_ = comm::communicators_of_threads(n_, {.timeout_s = timeout_s_});
    return *communicators_[static_cast<size_t>(position)];
  }

 private:
  int32_t n_ = 0;
  double timeout_s_ = 0;
  std::vector<std::unique_ptr<comm::Communicator>> communicators_;
};

std::vector<Array> MeshArguments::placed(const sharding::Mesh& mesh, const Inputs& inputs) {
  const NamedSharding replicated(mesh, {});
  const bool is_compared = !is_fully_addressable(Sharding(replicated));
  kept_.resize(inputs.arrays.size());
  const auto name = [&](size_t i) {
    return i < inputs.names.size() ? inputs.names[i] : std::string();
  };
  const auto input_sharding = [&](size_t i) {
    return i < inputs.shardings.size() && inputs.shardings[i]
               ? *sharding_over_mesh(*inputs.shardings[i])
               : NamedSharding(mesh, {}, memory_kind_name(inputs.arrays[i].type().kind));
  };
  // All processes compare at every call, whichever of them have kept what.
  std::vector<PlacedLeaf> compared;
  std::vector<bool> comes_again(inputs.arrays.size());
  for (size_t i = 0; i < inputs.arrays.size(); ++i) {
    const Array& x = inputs.arrays[i];
    if (is_sharded(x)) continue;
    Kept& kept = kept_[i];
    const std::shared_ptr<Storage>& storage = x.impl()->storage;
    comes_again[i] = kept.source.lock() == storage && storage->donated.empty();
    if (!comes_again[i]) kept = {storage, {}, false, {}};
    if (!is_compared) continue;
    PlacedLeaf leaf{name(i), x.type(), kept.fingerprint};
    if (!kept.has_fingerprint) leaf = placed_leaf_of(x, input_sharding(i), name(i));
    kept.fingerprint = leaf.fingerprint;
    kept.has_fingerprint = true;
    compared.push_back(std::move(leaf));
  }
  if (is_compared) check_same_on_processes(replicated, compared);
  std::vector<Array> placed;
  for (size_t i = 0; i < inputs.arrays.size(); ++i) {
    const Array& x = inputs.arrays[i];
    if (is_sharded(x)) {
      placed.push_back(x);
      continue;
    }
    Kept& kept = kept_[i];
    if (!kept.copy.empty()) {
      placed.push_back(kept.copy);
      continue;
    }
    placed.push_back(device_put(x, Sharding(input_sharding(i)), {.check_same = false}));
    const bool is_donated = i < inputs.donated.size() && inputs.donated[i];
    if (!is_donated && (comes_again[i] || i >= inputs.first_captured)) kept.copy = placed.back();
  }
  return placed;
}

MeshRunner::MeshRunner(sharding::Mesh mesh, ExecutablePtr program)
    : mesh_(std::move(mesh)), program_(std::move(program)) {
  const auto all = processes();
  is_fully_local_ = true;
  for (int64_t i = 0; i < mesh_.size(); ++i) {
    const DevicePtr& device = mesh_.devices()[static_cast<size_t>(i)];
    if (all->process_of(device.get()) != all->index()) {
      is_fully_local_ = false;
      continue;
    }
    local_.push_back(
        {{nullptr, {}, i}, device, local_.empty() ? program_ : program_->bound_again()});
  }
}

void MeshRunner::connect() {
  const auto all = processes();
  if (is_fully_local_ && !ranks_) ranks_ = ThreadRanks::of(mesh_, all->timeout_s());
  std::vector<int32_t> ranks;
  for (int64_t i = 0; i < mesh_.size(); ++i)
    ranks.push_back(is_fully_local_
                        ? static_cast<int32_t>(i)
                        : all->rank_of(mesh_.devices()[static_cast<size_t>(i)].get()));
  for (Position& p : local_) {
    p.at.ranks = ranks;
    p.at.communicator = is_fully_local_ ? &ranks_->at(p.at.position)
                                        : &all->communicator_of(p.device.get());
  }
}

// A program that differs would be found at some collective, or at none: two plans may hold the same
// ones.
void MeshRunner::check_same_programs() {
  if (is_fully_local_ || local_.empty() || is_checked_) return;
  const auto all = processes();
  const std::string place = to_string(current_provenance());
  std::string bytes;
  for (const auto& kind : program_->memory_analysis().kinds)
    bytes += fmt::format("{}{}", bytes.empty() ? "" : " + ", kind.total_bytes);
  const std::vector<comm::Fact> facts = {
      {"the plan in bytes of each memory", bytes},
      fact_of_plan("the digest of the program", *program_)};
  const Result<void> alike =
      comm::check_agreement(all->communicator(), all->group_of(all->processes_of(mesh_.devices())),
                            place.empty() ? "a program over a mesh" : place, facts);
  if (!alike) trace_error_here("[mesh] {}", alike.error());
  is_checked_ = true;
}

std::vector<Array> MeshRunner::run(std::span<const Array> arguments,
                                   std::span<const ArrayType> types,
                                   std::span<const std::shared_ptr<const Sharding>> shardings) {
  // By position of this process, then by input.
  std::vector<std::vector<DeviceBufferPtr>> buffers(local_.size());
  for (const Array& argument : arguments) {
    STOW_CHECK(is_sharded(argument), "an argument does not lie over the mesh");
    const std::vector<Shards::Part>& parts = argument.impl()->storage->shards->parts;
    STOW_CHECK(parts.size() == local_.size(), "an array has {} parts here, expected {}",
               parts.size(), local_.size());
    for (size_t i = 0; i < local_.size(); ++i) buffers[i].push_back(parts[i].buffer);
  }
  std::vector<std::vector<DeviceBufferPtr>> outputs(local_.size());
  try {
    // Programs over meshes run one after another, in one order on every device.
    const std::lock_guard lock(processes()->collectives_mutex());
    check_same_programs();
    connect();
    std::vector<comm::Participant> participants;
    for (const Position& p : local_) participants.push_back({p.device.get(), p.at.communicator});
    comm::run_together(participants, [&](size_t i) {
      outputs[i] = local_[i].program->run(*local_[i].device, buffers[i], nullptr, &local_[i].at);
    });
  } catch (...) {
    if (ranks_) ranks_->reset();
    throw;
  }
  std::vector<Array> results;
  for (size_t o = 0; o < types.size(); ++o) {
    const NamedSharding* asked =
        o < shardings.size() && shardings[o] ? sharding_over_mesh(*shardings[o]) : nullptr;
    const NamedSharding result_sharding =
        asked ? *asked
              : NamedSharding(mesh_,
                              spec_of(program_->output_shardings()[o], mesh_.mesh_shape()),
                              memory_kind_name(types[o].kind));
    std::vector<Shards::Part> parts;
    for (size_t i = 0; i < local_.size(); ++i)
      parts.push_back({local_[i].at.position, std::move(outputs[i][o])});
    results.push_back(array_of_shards(types[o], result_sharding, std::move(parts)));
  }
  return results;
}

std::vector<Array> MeshPrograms::run(const std::string& what, const MeshLayout& layout,
                                     const Graph& graph, std::span<const Array> arguments) {
  constexpr size_t kMostPrograms = 4096;
  std::string key;
  for (const Array& argument : arguments) key += mesh_key(argument) + ";";
  // The program may name the mesh alone, without its devices.
  for (const DevicePtr& device : layout.mesh.devices()) key += fmt::format(" {}", device->number());
  std::vector<ArrayType> types;
  for (ValueId v : graph.outputs()) types.push_back(graph.type(v));
  const std::vector<Array> placed =
      MeshArguments().placed(layout.mesh, {.arrays = arguments, .shardings = layout.inputs});
  const size_t hash = structural_hash(graph);
  const auto [first, last] = programs_.equal_range(hash);
  for (auto it = first; it != last; ++it)
    if (it->second.key == key && equal(it->second.graph, graph))
      return it->second.runner->run(placed, types, {});
  CompileOptions options;
  options.mesh = mesh_options(what, layout, graph);
  auto runner = std::make_shared<MeshRunner>(
      layout.mesh, compile(graph, options, target_of(layout.mesh)));
  if (programs_.size() >= kMostPrograms) programs_.clear();
  programs_.emplace(hash, Entry{graph, key, runner});
  return runner->run(placed, types, {});
}

TargetPtr target_of(const sharding::Mesh& mesh) {
  TargetPtr target;
  for (const DevicePtr& device : mesh.devices()) {
    if (!distributed::is_local(device)) continue;
    if (!device->target()->has_host_memory())
      trace_error_here(
          "[mesh] expected devices whose memory the host can address, as collectives need, got {}",
          device->name());
    if (target && target->key() != device->target()->key())
      trace_error_here(
          "[mesh] expected devices of one kind with as many threads each, got {} and {}",
          target->key(), device->target()->key());
    target = device->target();
  }
  return target ? target : default_device()->target();
}

std::string mesh_key(const Array& array) {
  const NamedSharding* sharding = mesh_of(array);
  if (!sharding) return "";
  std::string key = to_string(Sharding(*sharding));
  for (const DevicePtr& device : sharding->mesh().devices())
    key += fmt::format(" {}", device->number());
  return key;
}

}  // namespace stow
