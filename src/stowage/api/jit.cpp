#include "stowage/api/jit.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "stowage/api/element_reader.h"
#include "stowage/api/memory.h"
#include "stowage/api/mesh_program.h"
#include "stowage/api/trace.h"
#include "stowage/base/log.h"
#include "stowage/ir/print.h"
#include "stowage/runtime/target.h"

namespace stow {
namespace {

// Appends what distinguishes one call's arguments from another's: structure and types.
struct KeyWriter : TreeVisitor {
  std::string key;
  template <typename T>
  void put(const T& value) {
    key.append(reinterpret_cast<const char*>(&value), sizeof(value));
  }
  void leaf(Array& array) override {
    const ArrayType& type = array.type();
    const uint8_t head[] = {'*', static_cast<uint8_t>(type.dtype), static_cast<uint8_t>(type.kind),
                            static_cast<uint8_t>(type.weak),
                            static_cast<uint8_t>(type.shape.rank())};
    put(head);
    for (int64_t d : type.shape) put(d);
    if (const std::string mesh = mesh_key(array); !mesh.empty()) {
      key += '@';
      put(mesh.size());
      key += mesh;
    }
  }
  void enter(std::string_view name) override {
    put(name.size());
    key += name;
  }
  void leave() override { key += '>'; }
  void node(std::string_view kind, int64_t children) override {
    put(kind.size());
    key += kind;
    put(children);
  }
};

std::string key_of(std::span<const TreeRef> arguments) {
  KeyWriter writer;
  for (const TreeRef& tree : arguments) {
    writer.put(tree.type);
    tree.visit(tree.tree, writer);
  }
  return std::move(writer.key);
}

std::vector<Array> all_leaves(std::span<const TreeRef> arguments) {
  std::vector<Array> leaves;
  for (const TreeRef& tree : arguments)
    for (Array& leaf : leaves_of(tree)) leaves.push_back(std::move(leaf));
  return leaves;
}

std::vector<std::string> all_paths(std::span<const TreeRef> arguments) {
  std::vector<std::string> paths;
  for (const TreeRef& tree : arguments)
    for (std::string& path : paths_of(tree)) paths.push_back(std::move(path));
  return paths;
}

// "0/layers/w1" belongs to argument 0.
int argument_number(const std::string& path) {
  return std::stoi(path);
}

// A donated buffer must not be an argument twice: the program would overwrite the other.
void check_donation(const JitEntry& entry, std::span<const Array> arguments) {
  for (size_t i = 0; i < entry.options.donated.size(); ++i) {
    if (!entry.options.donated[i]) continue;
    for (size_t j = 0; j < arguments.size(); ++j)
      if (j != i && arguments[j].impl()->storage == arguments[i].impl()->storage)
        trace_error_here(
            "[{}] argument {} is donated, and the same array is argument {}; donate a copy",
            entry.name, entry.input_names[i], entry.input_names[j]);
  }
}

std::vector<std::string> all_parts(std::span<const TreeRef> arguments) {
  std::vector<std::string> paths;
  for (const TreeRef& tree : arguments)
    for (std::string& path : part_paths_of(tree)) paths.push_back(std::move(path));
  return paths;
}

void check_known(const JitOptions& options, const char* option, const char* whose,
                 const ShardingsByPath& shardings, const std::vector<std::string>& parts,
                 const std::vector<std::string>& paths) {
  if (const std::optional<std::string> path = shardings.unknown(parts))
    trace_error_here("[{}] expected {} to name parts of the {}, got '{}'; the leaves are {}",
                     options.name, option, whose, *path,
                     paths.empty() ? "none" : fmt::format("'{}'", fmt::join(paths, "', '")));
}

void check_in_sharding(const JitOptions& options, const std::string& path, const ArrayType& type) {
  const Sharding* sharding = options.in_shardings.find(path);
  if (!sharding) return;
  if (sharding->memory_kind() != type.kind)
    trace_error_here(
        "[{}] in_shardings say {} for argument {}, which is on {}: {}; move it with device_put "
        "first",
        options.name, memory_kind_name(sharding->memory_kind()), path,
        memory_kind_name(type.kind), to_string(type));
  check_sharding(options.name, *sharding, type);
}

// Donated arguments that no result of their kind could take, and one of another kind would have: a
// donation never crosses kinds, so they are kept.
void keep_crossing_donations(JitEntry& entry) {
  std::vector<ArrayType> results = entry.output_types;
  const auto take = [&](const ArrayType& type) {
    const auto it = std::find(results.begin(), results.end(), type);
    if (it == results.end()) return false;
    results.erase(it);
    return true;
  };
  std::vector<size_t> left;
  for (size_t i = 0; i < entry.options.donated.size(); ++i)
    if (entry.options.donated[i] && !take(entry.graph.type(entry.graph.inputs()[i])))
      left.push_back(i);
  for (size_t i : left) {
    ArrayType type = entry.graph.type(entry.graph.inputs()[i]);
    const MemoryKind from = type.kind;
    for (int kind = 0; kind < kNumMemoryKinds && entry.options.donated[i]; ++kind) {
      type.kind = static_cast<MemoryKind>(kind);
      if (type.kind == from || !take(type)) continue;
      entry.options.donated[i] = false;
      log_warning(fmt::format(
          "[{}] argument {} is donated on {} and its result is on {}; a donation "
          "never crosses memories, the argument is kept",
          entry.name, entry.input_names[i], memory_kind_name(from), memory_kind_name(type.kind)));
    }
  }
}

// The target that the entry's programs are compiled for.
TargetPtr target_of_entry(const JitEntry& entry) {
  return entry.mesh ? target_of(*entry.mesh) : default_device()->target();
}

}  // namespace

bool is_tracing() {
  return current_trace() != nullptr;
}
std::string print_graph(const Graph& graph) {
  return print(graph);
}

std::vector<CapturedArray> captured_of(const JitEntry& entry) {
  std::vector<CapturedArray> captured;
  for (size_t i = 0; i < entry.captures.size(); ++i)
    captured.push_back({entry.input_names[entry.n_leaves + i], entry.captures[i].type(),
                        to_string(entry.captures[i].impl()->provenance)});
  return captured;
}

Array JitEntry::placed(Array result, size_t i) const {
  result.impl()->sharding = output_shardings[i];
  return result;
}

std::vector<Array> abstract_results(const JitEntry& entry) {
  std::vector<Array> results;
  for (const ArrayType& type : entry.output_types)
    results.push_back(entry.placed(Array::abstract(type), results.size()));
  return results;
}

const ExecutablePtr& compile_for_default_device(JitEntry& entry) {
  return entry.executable(target_of_entry(entry));
}

ExecutablePtr compile_for_default_device(const JitEntry& entry, CompileOptions options) {
  options.donated = entry.options.donated;
  options.mesh = entry.options.mesh;
  if (options.dump_name.empty()) options.dump_name = entry.name;
  return stow::compile(entry.graph, options, target_of_entry(entry));
}

const ExecutablePtr& JitEntry::executable(const TargetPtr& target) {
  ExecutablePtr& slot = executables[target->key()];
  if (!slot) slot = stow::compile(graph, options, target);
  return slot;
}

namespace {

// Donated arguments hold nothing any more.
void take_donated(const JitEntry& entry, std::span<const Array> arguments, const char* how) {
  for (size_t i = 0; i < entry.options.donated.size(); ++i) {
    if (!entry.options.donated[i]) continue;
    Storage& storage = *arguments[i].impl()->storage;
    storage.donated = entry.name + how;
    if (entry.at.line) storage.donated += " at " + to_string(current_provenance());
    storage.buffer.reset();
    storage.shards.reset();
  }
}

// True if another array holds a buffer of it.
bool shares_memory(const Storage& storage) {
  if (!storage.shares_buffer) return false;
  if (!storage.shards) return storage.buffer.use_count() > 1;
  const std::vector<Shards::Part>& parts = storage.shards->parts;
  return std::any_of(parts.begin(), parts.end(),
                     [](const Shards::Part& part) { return part.buffer.use_count() > 1; });
}

std::vector<Array> run_over_mesh(JitEntry& entry, std::span<const Array> arguments,
                                 const ExecutablePtr& program) {
  for (size_t i = 0; i < arguments.size(); ++i)
    if (!arguments[i].is_concrete())
      trace_error_here("[{}] argument {} has no data: {}", entry.name, entry.input_names[i],
                       describe(arguments[i]));
  for (size_t i = 0; i < entry.options.donated.size(); ++i)
    if (entry.options.donated[i] && shares_memory(*arguments[i].impl()->storage))
      trace_error_here(
          "[{}] argument {} is donated, and shares its memory with another array, of which it "
          "or its parts are shards; donate a copy",
          entry.name, entry.input_names[i]);
  const ExecutablePtr runs = program ? program : entry.executable(target_of_entry(entry));
  std::shared_ptr<MeshRunner>& runner = entry.mesh_runners[runs.get()];
  if (!runner) runner = std::make_shared<MeshRunner>(*entry.mesh, runs);
  // Outside of the try below: nothing has run yet when this fails.
  if (!entry.mesh_arguments) entry.mesh_arguments = std::make_shared<MeshArguments>();
  const std::vector<Array> placed =
      entry.mesh_arguments->placed(*entry.mesh, {.arrays = arguments,
                                                .shardings = entry.input_shardings,
                                                .names = entry.input_names,
                                                .donated = entry.options.donated,
                                                .first_captured = entry.n_leaves});
  std::vector<Array> results;
  try {
    results = runner->run(placed, entry.output_types, entry.output_shardings);
  } catch (...) {
    // If one device was too small, others may have begun.
    take_donated(entry, arguments, " (whose run failed)");
    throw;
  }
  take_donated(entry, arguments, "");
  return results;
}

}  // namespace

std::vector<Array> JitEntry::run(std::span<const TreeRef> trees, const ExecutablePtr& program) {
  const CallSiteScope site(at);
  std::vector<Array> arguments = all_leaves(trees);
  if (std::any_of(arguments.begin(), arguments.end(),
                  [](const Array& a) { return a.is_abstract(); }))
    return abstract_results(*this);
  arguments.insert(arguments.end(), captures.begin(), captures.end());
  check_donation(*this, arguments);
  if (mesh) return run_over_mesh(*this, arguments, program);
  const DevicePtr device = common_device(arguments);
  std::vector<DeviceBufferPtr> buffers;
  buffers.reserve(arguments.size());
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (!arguments[i].is_concrete())
      trace_error_here("[{}] argument {} has no data: {}", name, input_names[i],
                       describe(arguments[i]));
    buffers.push_back(buffer_of(arguments[i], device));
  }
  // The storage and this list hold it; anybody else would see it overwritten.
  for (size_t i = 0; i < options.donated.size(); ++i)
    if (options.donated[i] && arguments[i].impl()->storage->shares_buffer &&
        buffers[i].use_count() > 2)
      trace_error_here(
          "[{}] argument {} is donated, and shares its memory with the array of which it is a "
          "shard; donate a copy",
          name, input_names[i]);
  const ExecutablePtr& runs = program ? program : executable(device->target());
  std::vector<DeviceBufferPtr> outputs;
  try {
    outputs = runs->run(*device, buffers);
  } catch (const DiskError&) {
    take_donated(*this, arguments, " (whose run failed)");  // and may have been written in part
    throw;
  }
  take_donated(*this, arguments, "");
  std::vector<Array> results;
  results.reserve(outputs.size());
  for (size_t i = 0; i < output_types.size(); ++i)
    results.push_back(placed(make_concrete(output_types[i], std::move(outputs[i])), i));
  return results;
}

JitCache::JitCache(JitOptions options, SourceLocation at) : options_(std::move(options)), at_(at) {}

JitEntryPtr JitCache::find(std::span<const TreeRef> arguments, const LeafFunction& function) {
  const CallSiteScope site(at_);
  std::string key = key_of(arguments);
  const auto found = entries_.find(key);
  if (found != entries_.end()) return found->second;
  JitEntryPtr entry = trace(arguments, function);
  ++n_traces_;
  entry->key = key;
  entries_.emplace(std::move(key), entry);
  return entry;
}

JitEntryPtr JitCache::trace(std::span<const TreeRef> arguments,
                            const LeafFunction& function) const {
  const CallSiteScope site(at_);
  auto entry = std::make_shared<JitEntry>();
  entry->name = options_.name;
  entry->at = at_;
  entry->options = options_.compile;
  if (entry->options.dump_name.empty()) entry->options.dump_name = options_.name;
  entry->input_names = all_paths(arguments);
  entry->n_leaves = entry->input_names.size();

  const std::vector<std::string> parts = all_parts(arguments);
  int n_arguments = 0;
  for (const std::string& path : parts)
    if (!path.empty()) n_arguments = std::max(n_arguments, argument_number(path) + 1);
  const std::set<int> donated(options_.donate_argnums.begin(), options_.donate_argnums.end());
  for (int argnum : donated)
    if (argnum < 0 || argnum >= n_arguments)
      trace_error_here("[{}] donate_argnums names argument {}, the function has {}", options_.name,
                       argnum, n_arguments);

  check_known(options_, "in_shardings", "arguments", options_.in_shardings, parts,
              entry->input_names);

  auto trace = std::make_shared<Trace>(options_.name, true);
  {
    const ActiveTrace active(trace);
    std::vector<Array> inputs;
    std::vector<Array> leaves = all_leaves(arguments);
    std::vector<std::shared_ptr<const Sharding>> in_shardings;
    for (size_t i = 0; i < leaves.size(); ++i) {
      check_in_sharding(options_, entry->input_names[i], leaves[i].type());
      const Sharding* in = options_.in_shardings.find(entry->input_names[i]);
      in_shardings.push_back(in ? std::make_shared<const Sharding>(*in) : nullptr);
      entry->input_mesh_keys.push_back(mesh_key(leaves[i]));
      inputs.push_back(trace->input(leaves[i].type(), entry->input_names[i]));
    }
    entry->result = function(inputs);
    const CallSiteScope back(at_);
    std::vector<Array> results = leaves_of(entry->result.ref);
    const std::vector<std::string> paths = paths_of(entry->result.ref);
    check_known(options_, "out_shardings", "result", options_.out_shardings,
                part_paths_of(entry->result.ref), paths);
    std::vector<ValueId> outputs;
    for (size_t i = 0; i < results.size(); ++i) {
      if (results[i].empty())
        trace_error_here("[{}] the function returned an empty Array{}", options_.name,
                         paths[i].empty() ? "" : " at '" + paths[i] + "'");
      if (const Sharding* sharding = options_.out_shardings.find(paths[i]))
        results[i] = device_put(results[i], *sharding);
      entry->output_shardings.push_back(results[i].impl()->sharding);
      outputs.push_back(trace->lift(results[i]));
      entry->output_types.push_back(results[i].type());
    }
    // The token of effects is one more output of the program, without a byte.
    if (!trace->last_effect.empty()) outputs.push_back(trace->lift(trace->last_effect));
    trace->graph.set_outputs(std::move(outputs));
    leaves.insert(leaves.end(), trace->captures.begin(), trace->captures.end());
    if (std::optional<MeshLayout> layout =
            mesh_layout(options_.name, leaves, trace->graph.input_names(), in_shardings,
                        entry->output_shardings, trace->mesh_sharding.get())) {
      MeshOptions over = *mesh_options(options_.name, *layout, trace->graph);
      over.partition.strict = options_.strict_sharding;
      entry->options.mesh = std::make_shared<const MeshOptions>(std::move(over));
      entry->mesh = std::make_shared<const sharding::Mesh>(layout->mesh);
      entry->input_shardings = std::move(layout->inputs);
    }
  }
  assign_leaves(entry->result.ref, std::vector<Array>(entry->output_types.size()));
  entry->graph = std::move(trace->graph);
  entry->captures = std::move(trace->captures);
  entry->input_names = entry->graph.input_names();
  if (!donated.empty())
    for (size_t i = 0; i < entry->input_names.size(); ++i)
      entry->options.donated.push_back(i < entry->n_leaves &&
                                       donated.count(argument_number(entry->input_names[i])) > 0);
  keep_crossing_donations(*entry);
  return entry;
}

void check_arguments(const JitEntry& entry, std::span<const TreeRef> arguments) {
  const CallSiteScope site(entry.at);
  if (key_of(arguments) == entry.key) return;
  const std::vector<Array> leaves = all_leaves(arguments);
  const std::vector<std::string> paths = all_paths(arguments);
  for (size_t i = 0; i < leaves.size() && i < entry.n_leaves; ++i) {
    const ArrayType& want = entry.graph.type(entry.graph.inputs()[i]);
    if (paths[i] != entry.input_names[i])
      trace_error_here("[{}] expected argument {}, as compiled, got {}", entry.name,
                       entry.input_names[i], paths[i]);
    if (!(leaves[i].type() == want) || leaves[i].type().weak != want.weak)
      trace_error_here("[{}] expected argument {} to be {}{}, as compiled, got {}{}", entry.name,
                       paths[i], to_string(want), want.weak ? " (weak)" : "",
                       to_string(leaves[i].type()), leaves[i].type().weak ? " (weak)" : "");
    const auto place = [](const std::string& mesh) {
      return mesh.empty() ? std::string("on one device")
                          : fmt::format("over a mesh as {}", mesh.substr(0, mesh.rfind(") ") + 1));
    };
    if (const std::string mesh = mesh_key(leaves[i]); mesh != entry.input_mesh_keys[i])
      trace_error_here("[{}] argument {} lies {}{}, compiled for one {}; move it with device_put",
                       entry.name, paths[i], place(mesh),
                       place(mesh) == place(entry.input_mesh_keys[i]) ? " of other devices" : "",
                       place(entry.input_mesh_keys[i]));
  }
  trace_error_here(
      "[{}] expected arguments of the structure that it was compiled for, with {} leaves, got {}",
      entry.name, entry.n_leaves, leaves.size());
}

}  // namespace stow
