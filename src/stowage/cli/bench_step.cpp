#include <omp.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>

#include "stowage/base/bytes.h"
#include "stowage/cli/arguments.h"
#include "stowage/cli/commands.h"
#include "stowage/io/json.h"
#include "stowage/runtime/device.h"
#include "stowage/train/decoder_model.h"
#include "stowage/train/kernel_profile.h"
#include "stowage/train/step_run.h"
#include "stowage/train/trainer.h"

namespace stow {
namespace {

const std::vector<std::string> kConfigs = {"small", "medium", "vocab", "long"};

struct StepArguments {
  std::string config = "small", dtype = "f32", memory, json;
  std::vector<std::string> settings;
  int64_t steps = 5;
  StepRunOptions run;
};

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

// Refuses settings that would make it another benchmark than its name says.
Result<void> check_settings(const StepArguments& a) {
  for (const std::string& setting : a.settings) {
    if (setting.starts_with("train.compute="))
      return fail("bench step: --set {}: --dtype decides it", setting);
    if (setting.starts_with("train.steps="))
      return fail("bench step: --set {}: --steps decides it", setting);
    for (const char* key : {"data.path=", "train.out=", "train.checkpoint_every=",
                            "train.eval_every=", "train.sample=", "eval."})
      if (setting.starts_with(key))
        return fail("bench step: --set {}: it has no effect: only steps are run; leave it out",
                    setting);
    if (setting.starts_with("train.ema="))
      return fail(
          "bench step: --set {}: it changes the step that the name stands for; leave it out",
          setting);
    if (setting.starts_with("model."))
      return fail("bench step: --set {}: --config decides the model", setting);
  }
  return {};
}

// The help to print, or nothing where there is work to do.
Result<std::string> parse(std::span<const std::string> arguments, StepArguments& a) {
  CLI::App app("Times the training step of a benchmark's model, in one process and nothing else.",
               "./stowage bench step");
  app.set_help_flag("-h,--help", "This text");
  app.add_option("--config", a.config, "The model: " + joined(kConfigs))->capture_default_str();
  app.add_option("--dtype", a.dtype, "Dtype of activations and products: f32 or bf16")
      ->capture_default_str();
  app.add_option("--steps", a.steps, "Steps to run; the best counts")->capture_default_str();
  app.add_option("--weights", a.run.weights_path, "Safetensors with the first weights")
      ->type_name("FILE");
  app.add_option("--tokens", a.run.tokens_path, "Safetensors with the tokens")->type_name("FILE");
  app.add_option("--memory", a.memory, "The budget: 64MiB, 1.5GB or a number of bytes")
      ->type_name("SIZE");
  app.add_option("--set", a.settings, "One key of the configuration, but none of the model's")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  app.add_option("--json", a.json, "Writes one JSON object to FILE, - for stdout")
      ->type_name("FILE");
  std::vector<std::string> reversed(arguments.rbegin(), arguments.rend());
  try {
    app.parse(std::move(reversed));
  } catch (const CLI::CallForHelp&) {
    return app.help();
  } catch (const CLI::ParseError& error) {
    return fail("bench step: {} (see ./stowage bench step --help)", error.what());
  }
  if (Result<void> given = check_not_empty(app, "bench step: "); !given) return given.failure();
  const Result<void> distinct =
      check_distinct("bench step: ", std::array<NamedFile, 1>{{{"--json", a.json}}},
                     std::array<NamedFile, 2>{
                         {{"--weights", a.run.weights_path}, {"--tokens", a.run.tokens_path}}});
  if (!distinct) return distinct.failure();
  if (std::find(kConfigs.begin(), kConfigs.end(), a.config) == kConfigs.end())
    return fail("bench step: no configuration '{}'; there are {}", a.config, joined(kConfigs));
  if (a.dtype != "f32" && a.dtype != "bf16")
    return fail("bench step: --dtype takes f32 or bf16, not '{}'", a.dtype);
  if (a.steps < 1 || a.steps > 1'000'000)
    return fail("bench step: --steps takes 1 to 1000000, not {}", a.steps);
  if (Result<void> fitting = check_settings(a); !fitting) return fitting.failure();
  ConfigSources sources;
  sources.toml_path = repository_file("data/bench/" + a.config + ".toml");
  sources.settings = a.settings;
  sources.settings.insert(sources.settings.begin(), "train.compute=" + a.dtype);
  sources.memory = a.memory;
  Result<TrainConfig> config = load_train_config(sources);
  if (!config) return config.failure();
  a.run.config = std::move(*config);
  a.run.factory = decoder_model;
  a.run.threads = omp_get_max_threads();
  a.run.budget_bytes = a.run.config.memory.device.value_or(
      Device::cpu()->capacity_bytes(MemoryKind::kDevice));
  return std::string();
}

}  // namespace

Result<int> run_bench_step(std::span<const std::string> arguments) {
  StepArguments a;
  const Result<std::string> help = parse(arguments, a);
  if (!help) return help.failure();
  if (!help->empty()) {
    fmt::print("{}", *help);
    return kExitDone;
  }
  Result<std::optional<JsonLines>> json = open_json(a.json);
  if (!json) return json.failure();
  const Json::Array settings(a.settings.begin(), a.settings.end());
  const auto made = [&] {
    try {
      return StepRun::make(a.run);
    } catch (const CapacityError& error) {
      const Json refusal = Json::object({{"config", a.config},
                                         {"dtype", a.dtype},
                                         {"settings", settings},
                                         {"refused", error.what()}});
      if (Result<void> written = write_json(*json, refusal); !written)
        fmt::print(stderr, "stowage: error: {}\n", written.error());
      throw;
    }
  };
  Result<StepRun> run = made();
  if (!run) return run.failure();
  KernelProfile profile(a.run.threads);
  double best = 0;
  Json losses = Json::array();
  int status = kExitDone;
  for (int64_t i = 0; i < a.steps; ++i) {
    const double start = steady_seconds();
    const float loss = run->step(&profile);
    const double seconds = steady_seconds() - start;
    best = i == 0 ? seconds : std::min(best, seconds);
    losses.push_back(static_cast<double>(loss));
    if (std::isfinite(loss)) continue;
    fmt::print(stderr, "stowage: error: step {}: the loss is {}\n", i + 1,
               std::isnan(loss) ? std::abs(loss) : loss);  // a NaN of either sign is one
    status = kStatusNotFinite;
    break;
  }
  const KindAnalysis& memory = run->program().memory_analysis().device();
  const TrainConfig::Data& data = a.run.config.data;
  const double tokens_per_s = static_cast<double>(data.batch * data.seq) / best;
  fmt::print(a.json == "-" ? stderr : stdout,
             "{} {}{}: {:.4f} s a step, {:.0f} tokens/s, {:.0f} % in products; {} planned ({}), "
             "{} at least; ready in {:.2f} s\n",
             a.config, a.dtype, a.settings.empty() ? "" : " with " + joined(a.settings), best,
             tokens_per_s, 100 * profile.gemm_share(), format_bytes(memory.total_bytes),
             to_string(run->placement()), format_bytes(memory.lower_bound_bytes), run->compile_s());
  const Result<void> written =
      write_json(*json, Json::object({{"config", a.config},
                                      {"dtype", a.dtype},
                                      {"settings", settings},
                                      {"steps", a.steps},
                                      {"threads", a.run.threads},
                                      {"policy", to_string(run->placement())},
                                      {"step_s", best},
                                      {"tokens_per_s", tokens_per_s},
                                      {"compile_s", run->compile_s()},
                                      {"peak_bytes", memory.total_bytes},
                                      {"measured_peak_bytes", run->measured_peak_bytes()},
                                      {"lower_bound_bytes", memory.lower_bound_bytes},
                                      {"losses", losses},
                                      {"gemm_share", profile.gemm_share()}}));
  if (!written) return written.failure();
  return status;
}

}  // namespace stow
