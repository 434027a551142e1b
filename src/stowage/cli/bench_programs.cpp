#include <host_offload.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <optional>

#include "stowage/base/bytes.h"
#include "stowage/cli/arguments.h"
#include "stowage/cli/commands.h"
#include "stowage/io/files.h"
#include "stowage/io/json.h"
#include "stowage/io/safetensors.h"
#include "stowage/runtime/target.h"
#include "stowage/train/forecast.h"
#include "stowage/tune/devices.h"

namespace stow {
namespace {

using host_offload::Layers;
using host_offload::Parameters;
using host_offload::Placement1;
using host_offload::Placement2;

constexpr int64_t kLayers = 10, kWidth = 256, kHidden = 1024;
constexpr int kTimedRuns = 3;

struct Flags {
  std::string json, dump, trace;
  std::string device_name = "h200";  // what the step time is simulated on
  int64_t n = 7168;
  bool plan_only = false;
  std::optional<DeviceDescription> device;
};

// The inputs and results of one row.
struct Row {
  std::string program, name;
  MemoryAnalysis analysis;
  double simulated_s = 0, bound_s = 0;
  std::optional<double> order_bound_s;
  std::optional<int64_t> measured_peak_bytes;
  std::optional<double> step_s;
};

// Fills the figures of a row that are known without running it.
Result<void> plan(const Executable& program, const Flags& flags, Row& row) {
  row.analysis = program.memory_analysis();
  const Forecast forecast = forecast_step(program, flags.device);
  row.simulated_s = forecast.simulation->step_s;
  row.bound_s = forecast.simulation->bound_s;
  row.order_bound_s = forecast.order_bound_s;
  if (flags.trace.empty()) return {};
  if (Result<void> made = ensure_directory(flags.trace); !made) return made;
  return write_simulated_trace(fmt::format("{}/{}.{}.json", flags.trace, row.program, row.name),
                               program, forecast);
}

// Tensors of a dump, which outlive the arrays.
class Dump {
 public:
  template <Tree T>
  void add(const std::string& prefix, const T& tree) {
    const std::vector<std::string> paths = tree_paths(tree);
    const std::vector<Array> leaves = tree_leaves(tree);
    for (size_t i = 0; i < leaves.size(); ++i)
      add_array(paths[i].empty() ? prefix : prefix + paths[i], leaves[i]);
  }
  void add_array(const std::string& name, const Array& array) {
    data_.push_back(device_put(array, MemoryKind::kDevice).to_vector<float>());
    tensors_.push_back({name, DType::kF32, array.shape().dims(),
                        std::as_bytes(std::span<const float>(data_.back()))});
  }
  Result<void> save(const std::string& path) const { return save_safetensors(path, tensors_); }

 private:
  std::vector<std::vector<float>> data_;
  std::vector<TensorBytes> tensors_;
};

// A device whose plans are made for the one that is simulated. Each memory kind has a heap of its
// own, bounded by nothing but the machine.
DevicePtr new_device(const Flags& flags) {
  constexpr int64_t any = Device::unlimited_bytes();
  return std::make_shared<Device>(
      "virtual", Device::Capacities{any, any, any},
      host_target(0, std::make_shared<const DeviceDescription>(*flags.device)));
}

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Measures one run. Beside the arrays that the program is given, only the program may take memory
// while it runs.
class Meter {
 public:
  explicit Meter(DevicePtr device) : device_(std::move(device)) {
    device_->drop_arenas();
    device_->reset_high_water();
    start_ = std::chrono::steady_clock::now();
  }
  void stop(Row& row) {
    const double s = seconds_since(start_);
    row.step_s = row.step_s ? std::min(*row.step_s, s) : s;
    row.measured_peak_bytes = std::max(row.measured_peak_bytes.value_or(0),
                                       device_->high_water_bytes(MemoryKind::kDevice));
  }

 private:
  DevicePtr device_;
  std::chrono::steady_clock::time_point start_;
};

std::string dump_path(const Flags& flags, const Row& row) {
  return fmt::format("{}/{}.{}.safetensors", flags.dump, row.program, row.name);
}

// ---- program 1 ----

Result<Row> measure1(const Placement1& at, const Flags& flags) {
  Row row{.program = "program1", .name = at.row};
  const DevicePtr device = new_device(flags);
  const DefaultDevice guard(device);
  const auto f = jit(
      [&](const Layers& w, const Array& x) { return host_offload::layer_gradients(w, x, at); },
      host_offload::within(at.budget_mib * (1 << 20), {.name = "program1-" + at.row}));
  const Shape in{kLayers, kWidth, kHidden}, out{kLayers, kHidden, kWidth}, input{kWidth, kWidth};
  const auto compiled = f.lower(Layers{Array::abstract({DType::kF32, in, at.weights}),
                                       Array::abstract({DType::kF32, out, at.weights})},
                                Array::abstract(input))
                            .compile();
  if (Result<void> planned = plan(compiled.executable(), flags, row); !planned)
    return planned.failure();
  if (flags.plan_only) return row;
  const auto weight = [&](uint64_t seed, const Shape& shape) {
    return device_put(random::normal(random::key(seed), shape) * 0.05, at.weights);
  };
  const Layers w{weight(1, in), weight(2, out)};
  const Array x = random::normal(random::key(3), input);
  for (int run = 0; run < kTimedRuns; ++run) {
    Meter meter(device);
    const Layers g = compiled(w, x);
    meter.stop(row);
    if (run > 0 || flags.dump.empty()) continue;
    Dump dump;
    dump.add_array("x", x);
    dump.add("", w);
    dump.add("g_", g);
    if (Result<void> saved = dump.save(dump_path(flags, row)); !saved) return saved.failure();
  }
  return row;
}

// ---- program 2 ----

void add_to_dump(Dump& dump, const std::string& prefix, const Parameters& params,
                 const optim::OptState& state) {
  dump.add(prefix, params);
  for (const auto& [name, array] : state)
    for (const auto& [from, to] : {std::pair{"adam/mu/w", "m"}, std::pair{"adam/nu/w", "v"}})
      if (name.starts_with(from))
        dump.add_array(prefix + to + name.substr(std::string_view(from).size()), array);
}

Result<Row> measure2(const Placement2& at, const Flags& flags) {
  Row row{.program = "program2", .name = at.row};
  const DevicePtr device = new_device(flags);
  const DefaultDevice guard(device);
  const auto step = jit(
      [&](const Parameters& params, const optim::OptState& state, const Array& inputs) {
        return host_offload::train_step(params, state, inputs, at);
      },
      host_offload::within(at.budget_matrices * static_cast<double>(4 * flags.n * flags.n),
                           {.donate_argnums = {0, 1}, .name = "program2-" + at.row}));
  const auto abstract = [&](MemoryKind kind) {
    return Array::abstract({DType::kF32, Shape{flags.n, flags.n}, kind});
  };
  Parameters params;
  for (int i = 1; i <= 4; ++i) params[fmt::format("w{}", i)] = abstract(at.params);
  const optim::OptState state =
      device_put(host_offload::optimizer().init(params), at.moments);
  const auto compiled = step.lower(params, state, abstract(at.activations)).compile();
  if (Result<void> planned = plan(compiled.executable(), flags, row); !planned)
    return planned.failure();
  if (flags.plan_only) return row;
  // Weights that keep the size of what they multiply, so that nothing vanishes.
  uint64_t seed = 0;
  const auto matrix = [&](double scale, MemoryKind kind) {
    return device_put(random::normal(random::key(++seed), {flags.n, flags.n}) * scale, kind);
  };
  for (auto& [name, w] : params)
    w = matrix(1.5 / std::sqrt(static_cast<double>(flags.n)), at.params);
  optim::OptState now = device_put(host_offload::optimizer().init(params), at.moments);
  const Array x = matrix(1, at.activations);
  Dump dump;
  if (!flags.dump.empty()) {
    dump.add_array("x", x);
    dump.add("", params);
  }
  for (int run = 0; run < kTimedRuns; ++run) {
    Meter meter(device);
    std::tie(params, now) = compiled(params, now, x);
    meter.stop(row);
    if (run > 0 || flags.dump.empty()) continue;
    add_to_dump(dump, "new_", params, now);
    if (Result<void> saved = dump.save(dump_path(flags, row)); !saved) return saved.failure();
  }
  return row;
}

// ---- the reports ----

Json to_json(const Row& row) {
  const KindAnalysis& k = row.analysis.device();
  Json object = Json::object({{"row", row.name},
                              {"argument_bytes", k.argument_bytes},
                              {"output_bytes", k.output_bytes},
                              {"alias_bytes", k.alias_bytes},
                              {"temp_bytes", k.temp_bytes},
                              {"total_bytes", k.total_bytes},
                              {"host_bytes", row.analysis.host().total_bytes},
                              {"disk_bytes", row.analysis.disk().total_bytes}});
  object.set("measured_peak_bytes",
             row.measured_peak_bytes ? Json(*row.measured_peak_bytes) : Json(nullptr));
  object.set("step_s", row.step_s ? Json(*row.step_s) : Json(nullptr));
  object.set("simulated_s", row.simulated_s);
  object.set("bound_s", row.bound_s);
  object.set("order_bound_s", row.order_bound_s ? Json(*row.order_bound_s) : Json(nullptr));
  return object;
}

void print_row(std::FILE* text, const Row& row) {
  const KindAnalysis& k = row.analysis.device();
  fmt::print(text, "{:<22}{:>11}{:>11}{:>11}{:>11}{:>11}{:>11}{:>11}{:>13.5f} s{:>11.5f} s\n",
             row.name, format_bytes(k.total_bytes), format_bytes(k.argument_bytes),
             format_bytes(k.output_bytes), format_bytes(k.alias_bytes), format_bytes(k.temp_bytes),
             format_bytes(row.analysis.host().total_bytes),
             format_bytes(row.analysis.disk().total_bytes), row.simulated_s, row.bound_s);
  if (row.measured_peak_bytes && *row.measured_peak_bytes != k.total_bytes)
    fmt::print(text, "  measured {}, predicted {}\n", *row.measured_peak_bytes, k.total_bytes);
}

template <typename Placement>
Result<int> run_rows(const Flags& flags, const std::vector<Placement>& placements,
                     Result<Row> (*measure)(const Placement&, const Flags&)) {
  if (!flags.dump.empty()) {
    if (flags.plan_only) return fail("bench: --dump has no effect with --plan-only; leave it out");
    if (Result<void> made = ensure_directory(flags.dump); !made) return made.failure();
  }
  std::FILE* const text = flags.json == "-" ? stderr : stdout;
  Result<std::optional<JsonLines>> json = open_json(flags.json);
  if (!json) return json.failure();
  fmt::print(text, "{:<22}{:>11}{:>11}{:>11}{:>11}{:>11}{:>11}{:>11}{:>15}{:>13}\n", "row", "total",
             "argument", "output", "alias", "temp", "host", "disk", "simulated", "its bound");
  for (const Placement& placement : placements) {
    const Result<Row> row = measure(placement, flags);
    if (!row) return row.failure();
    print_row(text, *row);
    if (Result<void> written = write_json(*json, to_json(*row)); !written) return written.failure();
  }
  return kExitDone;
}

// Reads the flags; an exit status where there is nothing left to do.
Result<std::optional<int>> parse(CLI::App& app, const char* name, Flags& flags,
                                 std::span<const std::string> arguments) {
  app.set_help_flag("-h,--help", "This text");
  app.add_option("--json", flags.json, "Writes one object a row here; - for stdout")
      ->type_name("FILE");
  app.add_option("--dump", flags.dump, "Writes the inputs and results of each row here")
      ->type_name("DIR");
  app.add_flag("--plan-only", flags.plan_only, "Plans alone: allocates nothing and runs nothing");
  app.add_option("--device-description", flags.device_name, "The device of the simulated times")
      ->type_name("NAME")
      ->capture_default_str();
  app.add_option("--trace", flags.trace, "Writes the simulated run of each row here, for Perfetto")
      ->type_name("DIR");
  std::vector<std::string> reversed(arguments.rbegin(), arguments.rend());
  try {
    app.parse(std::move(reversed));
  } catch (const CLI::CallForHelp&) {
    fmt::print("{}", app.help());
    return std::optional<int>(kExitDone);
  } catch (const CLI::ParseError& error) {
    return fail("bench {0}: {1} (see ./stowage bench {0} --help)", name, error.what());
  }
  if (Result<void> given = check_not_empty(app, fmt::format("bench {}: ", name)); !given)
    return given.failure();
  Result<DeviceDescription> device = load_device_description(flags.device_name);
  if (!device) return device.failure();
  flags.device = std::move(*device);
  return std::optional<int>();
}

}  // namespace

Result<int> run_program1(std::span<const std::string> arguments) {
  Flags flags;
  CLI::App app("Gradients of ten scanned layers of two products: what each row needs.",
               "./stowage bench program1");
  const Result<std::optional<int>> status = parse(app, "program1", flags, arguments);
  if (!status) return status.failure();
  if (*status) return **status;
  return run_rows(flags, host_offload::placements1(), measure1);
}

Result<int> run_program2(std::span<const std::string> arguments) {
  Flags flags;
  CLI::App app("A training step of four layers of gelu with Adam: what each row needs.",
               "./stowage bench program2");
  app.add_option("--n", flags.n, "Rows and columns of input and weights")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 16))
      ->capture_default_str();
  const Result<std::optional<int>> status = parse(app, "program2", flags, arguments);
  if (!status) return status.failure();
  if (*status) return **status;
  return run_rows(flags, host_offload::placements2(), measure2);
}

}  // namespace stow
