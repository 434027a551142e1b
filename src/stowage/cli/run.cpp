#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "stowage/api/policies.h"
#include "stowage/base/bytes.h"
#include "stowage/base/nearest.h"
#include "stowage/base/printable.h"
#include "stowage/cli/arguments.h"
#include "stowage/cli/commands.h"
#include "stowage/core/scalar.h"
#include "stowage/io/files.h"
#include "stowage/io/json.h"
#include "stowage/io/safetensors.h"
#include "stowage/session/buffer_file.h"
#include "stowage/session/compile.h"
#include "stowage/session/dump.h"
#include "stowage/session/graph_file.h"
#include "stowage/train/step.h"

namespace stow {
namespace {

constexpr int64_t kMostShown = 16;  // elements of a result

struct Flags {
  std::string graph, inputs, output, json, memory;
  bool plan = false;
};

double element(std::span<const std::byte> bytes, DType dtype, int64_t i) {
  return decode_scalar(dtype, bytes.subspan(static_cast<size_t>(i * dtype_bytes(dtype))));
}

// Least, greatest and mean of what is finite, and how much is not.
struct Summary {
  double min = 0, max = 0, mean = 0;
  int64_t n_not_finite = 0;
};
Summary summarize(std::span<const std::byte> bytes, const ArrayType& type) {
  Summary s;
  int64_t n = 0;
  for (int64_t i = 0; i < type.elems(); ++i) {
    const double x = element(bytes, type.dtype, i);
    if (!std::isfinite(x)) continue;
    s.min = n ? std::min(s.min, x) : x;
    s.max = n ? std::max(s.max, x) : x;
    s.mean += (x - s.mean) / static_cast<double>(++n);
  }
  s.n_not_finite = type.elems() - n;
  return s;
}

std::string describe(std::span<const std::byte> bytes, const ArrayType& type) {
  if (type.elems() <= kMostShown) {
    std::string text;
    for (int64_t i = 0; i < type.elems(); ++i)
      text += fmt::format("{}{}", i ? ", " : "", element(bytes, type.dtype, i));
    return "[" + text + "]";
  }
  const Summary s = summarize(bytes, type);
  std::string text = fmt::format("min {} max {} mean {}", s.min, s.max, s.mean);
  if (s.n_not_finite) text += fmt::format(", {} not finite", s.n_not_finite);
  return text;
}

Json to_json(std::span<const std::byte> bytes, const ArrayType& type) {
  Json object = Json::object({{"type", to_string(type)}});
  const Summary s = summarize(bytes, type);
  object.set("min", s.min);
  object.set("max", s.max);
  object.set("mean", s.mean);
  object.set("not_finite", s.n_not_finite);
  if (type.elems() > kMostShown) return object;
  Json values = Json::array();
  for (int64_t i = 0; i < type.elems(); ++i) values.push_back(element(bytes, type.dtype, i));
  object.set("values", values);
  return object;
}

// The inputs where none are named.
std::string inputs_beside(const Flags& flags) {
  return parent_directory(flags.graph) + "/inputs.safetensors";
}

// One buffer an input, filled from the file.
Result<std::vector<DeviceBufferPtr>> load_inputs(const Graph& graph, const Flags& flags,
                                                 const DevicePtr& device) {
  std::vector<DeviceBufferPtr> buffers;
  if (graph.inputs().empty()) return buffers;
  const std::string beside = inputs_beside(flags);
  const std::string path = !flags.inputs.empty() ? flags.inputs : beside;
  const std::vector<std::string> keys = input_keys(graph);
  if (flags.inputs.empty() && !file_exists(beside))
    return fail(
        "{}: the graph has {} inputs, the first '{}' {}: give --inputs FILE.safetensors, or "
        "--plan to run nothing",
        flags.graph, keys.size(), keys[0], to_string(graph.type(graph.inputs()[0])));
  const Result<SafetensorsFile> file = SafetensorsFile::open(path);
  if (!file) return file.failure();
  std::vector<std::string> names;
  for (const TensorInfo& tensor : file->tensors()) names.push_back(tensor.name);
  for (size_t i = 0; i < keys.size(); ++i) {
    const ArrayType& type = graph.type(graph.inputs()[i]);
    const TensorInfo* tensor = file->find(keys[i]);
    if (!tensor)
      return fail("{}: no tensor '{}', which is input {} of {}{}", path, keys[i], i, flags.graph,
                  names.empty()
                      ? std::string()
                      : fmt::format("; the nearest is '{}'", nearest_name(keys[i], names)));
    if (tensor->dtype != type.dtype || tensor->shape != type.shape.dims())
      return fail("{}: '{}' is {}, input {} of {} is {}", path, keys[i],
                  tensor_type(tensor->dtype, tensor->shape), i, flags.graph, to_string(type));
    DeviceBufferPtr buffer = device->allocate(type.bytes(), type.kind);
    const auto read = [&](int64_t offset, std::span<std::byte> out) {
      return file->read_part(*tensor, offset, out);
    };
    if (Result<void> filled = fill(*buffer, read); !filled) return filled.failure();
    buffers.push_back(std::move(buffer));
  }
  return buffers;
}

Result<void> save_outputs(const std::string& path, const Executable& program,
                          const std::vector<DeviceBufferPtr>& outputs) {
  std::vector<TensorBytes> tensors;
  for (size_t i = 0; i < outputs.size(); ++i)
    tensors.push_back(tensor_of(std::to_string(i), program.output_types()[i], *outputs[i]));
  return save_safetensors(path, tensors);
}

// The policy of a name; one that is not known by name keeps everything, which changes no number.
PolicyPtr resolve_policy(std::string_view name) {
  if (PolicyPtr known = policy_by_name(name)) return known;
  if (PolicyPtr known = step_policy_by_name(name)) return known;
  fmt::print(stderr, "stowage: what policy '{}' decides is not in the file: everything is kept\n",
             name);
  return everything_saveable();
}

Result<int> run(const Flags& flags) {
  const Result<GraphPtr> graph = load_graph(flags.graph, resolve_policy);
  if (!graph) return graph.failure();
  DevicePtr device = Device::cpu();
  if (!flags.memory.empty()) {
    const Result<int64_t> bytes = parse_bytes(flags.memory);
    if (!bytes) return fail("--memory: {}", bytes.error());
    device = Device::cpu_with_capacity(*bytes);
  }
  ExecutablePtr program;
  try {
    CompileOptions options;
    options.dump_name = "run";
    program = compile(**graph, options, device->target());
  } catch (const TraceError& e) {
    return fail("{}: {}", flags.graph, e.what());
  }
  Result<std::optional<JsonLines>> json = open_json(flags.json);
  if (!json) return json.failure();
  std::FILE* const text = flags.json == "-" ? stderr : stdout;
  const MemoryAnalysis& analysis = program->memory_analysis();
  fmt::print(text, "{}", printable(to_string(analysis)));
  const KindAnalysis& need = analysis.device();
  Json report = Json::object({{"file", flags.graph},
                              {"predicted_peak_bytes", need.total_bytes},
                              {"lower_bound_bytes", need.lower_bound_bytes}});
  const int64_t there = device->capacity_bytes(MemoryKind::kDevice);
  if (need.total_bytes > there && !(flags.plan && flags.memory.empty())) {
    const bool hidden = format_bytes(need.total_bytes) == format_bytes(there);
    const auto shown = [&](int64_t n) { return hidden ? fmt::format("{} B", n) : format_bytes(n); };
    if (Result<void> written = write_json(*json, report); !written) return written.failure();
    throw CapacityError(fmt::format("{} needs {} of the {} there are", flags.graph,
                                    shown(need.total_bytes), shown(there)));
  }
  if (!flags.plan) {
    Result<std::vector<DeviceBufferPtr>> inputs = load_inputs(**graph, flags, device);
    if (!inputs) return inputs.failure();
    const std::vector<DeviceBufferPtr> outputs = program->run(*device, *inputs);
    const int64_t measured = device->high_water_bytes(MemoryKind::kDevice);
    report.set("measured_peak_bytes", measured);
    Json results = Json::array();
    for (size_t i = 0; i < outputs.size(); ++i) {
      const ArrayType& type = program->output_types()[i];
      std::vector<std::byte> bytes(static_cast<size_t>(type.bytes()));
      outputs[i]->read(0, bytes);
      fmt::print(text, "output {}: {} {}\n", i, to_string(type), describe(bytes, type));
      results.push_back(to_json(bytes, type));
    }
    fmt::print(text, "peak: predicted {} bytes, measured {} bytes\n", need.total_bytes, measured);
    report.set("outputs", results);
    if (!flags.output.empty())
      if (Result<void> saved = save_outputs(flags.output, *program, outputs); !saved)
        return saved.failure();
  }
  if (Result<void> written = write_json(*json, report); !written) return written.failure();
  return kExitDone;
}

}  // namespace

Result<int> run_graph_file(std::span<const std::string> arguments) {
  Flags flags;
  CLI::App app("Runs a graph as print() and STOW_DUMP write it.", "./stowage run");
  app.set_help_flag("-h,--help", "This text");
  app.add_option("GRAPH.txt", flags.graph, "The graph")->required();
  app.add_option("--inputs", flags.inputs,
                 "Its inputs, by name (default: inputs.safetensors beside it)")
      ->type_name("FILE");
  app.add_option("--output", flags.output, "Writes the results here, as 0, 1 and so on")
      ->type_name("FILE");
  app.add_option("--json", flags.json, "Writes plan and results here; - for stdout")
      ->type_name("FILE");
  app.add_option("--memory", flags.memory, "The budget: 64MiB, 1.5GB or a number of bytes")
      ->type_name("SIZE");
  app.add_flag("--plan", flags.plan, "Plans alone: allocates nothing and runs nothing");
  std::vector<std::string> reversed(arguments.rbegin(), arguments.rend());
  try {
    app.parse(std::move(reversed));
  } catch (const CLI::CallForHelp&) {
    fmt::print("{}", app.help());
    return kExitDone;
  } catch (const CLI::ParseError& error) {
    return fail("run: {} (see ./stowage run --help)", error.what());
  }
  if (Result<void> given = check_not_empty(app, "run: "); !given) return given.failure();
  if (flags.plan && !(flags.inputs.empty() && flags.output.empty()))
    return fail("run: {} has no effect with --plan: nothing is run; leave it out",
                flags.inputs.empty() ? "--output" : "--inputs");
  if (flags.output == "-") return fail("run: --output takes a file, not standard output");
  const Result<void> distinct = check_distinct(
      "run: ", std::array<NamedFile, 2>{{{"--output", flags.output}, {"--json", flags.json}}},
      std::array<NamedFile, 3>{{{"the graph", flags.graph},
                                {"--inputs", flags.inputs},
                                {"the inputs beside the graph", inputs_beside(flags)}}});
  if (!distinct) return distinct.failure();
  return run(flags);
}

}  // namespace stow
