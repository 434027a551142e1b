#include "stowage/cli/process_group.h"

#include <omp.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "stowage/cli/arguments.h"
#include "stowage/cli/launch.h"
#include "stowage/train/mesh.h"

namespace stow {
namespace {

// Processes of the job on this machine. The launcher starts all of its on one.
int64_t processes_on_host(const comm::Launch& launch) {
  if (launch.by != comm::Launch::By::kMpirun) return launch.n_processes;
  const char* const text = std::getenv("OMPI_COMM_WORLD_LOCAL_SIZE");
  const int64_t n = text ? std::atoll(text) : 0;
  return n >= 1 && n <= launch.n_processes ? n : launch.n_processes;
}

// Devices of each of so many processes, as many as was said or as make up the mesh.
Result<int64_t> devices_of_process(const TrainConfig& config, int64_t n, int64_t said,
                                   const char* command) {
  const int64_t size = config.mesh.size(),
                devices = said > 0 ? said : std::max<int64_t>(size / n, 1);
  if (devices * n == size) return devices;
  const std::string mesh = size == 1 ? "one device (no mesh.* is set)" : to_string(mesh_of(config));
  return fail(
      "{}: {} process{} of {} device{} {} not the {} of {}: set mesh.data, --devices or "
      "--processes",
      command, n, n == 1 ? "" : "es", devices, devices == 1 ? "" : "s", n == 1 ? "is" : "are",
      size == 1 ? "mesh" : fmt::format("{} devices", size), mesh);
}

// Runs it for every device of this process at once; the result of the first that failed.
Result<void> for_each_device(comm::World& world,
                             const std::function<Result<void>(comm::Communicator&)>& run) {
  std::vector<Result<void>> results(static_cast<size_t>(world.devices()));
  std::vector<std::thread> threads;
  const auto run_one = [&](int32_t device) {
    Result<void>& result = results[static_cast<size_t>(device)];
    try {
      result = run(world.communicator(device));
    } catch (const std::exception& error) {
      result = fail("{}", error.what());
    }
  };
  for (int32_t device = 1; device < world.devices(); ++device)
    threads.emplace_back(run_one, device);
  run_one(0);
  for (std::thread& thread : threads) thread.join();
  for (Result<void>& result : results)
    if (!result) return std::move(result);
  return {};
}

}  // namespace

int threads_per_device(int64_t devices_on_host) {
  return static_cast<int>(std::max<int64_t>(omp_get_max_threads() / devices_on_host, 1));
}

void add_devices_of_mesh(std::vector<std::string>& arguments) {
  const auto has = [&](std::string_view option) {
    return std::any_of(arguments.begin(), arguments.end(), [&](const std::string& argument) {
      return argument == option || argument.starts_with(std::string(option) + "=");
    });
  };
  if (!has("--processes") || has("--devices") || has("--help") || has("-h")) return;
  std::vector<std::string> left = arguments;
  const Result<LaunchOptions> launch = take_launch_options(left);
  if (!launch) return;
  const Result<CommandLine> line = parse_train_arguments("train", "", left);
  if (!line || line->config.mesh.size() % launch->processes != 0) return;
  if (const int64_t devices = line->config.mesh.size() / launch->processes; devices > 1)
    arguments.insert(arguments.end(), {"--devices", fmt::format("{}", devices)});
}

Result<comm::Window> planned_window(const TrainConfig& config, int32_t processes, int32_t devices) {
  comm::Launch launch;
  if (processes > 1) launch.by = comm::Launch::By::kLauncher;
  launch.n_processes = launch.n_on_host = std::max(processes, 1);
  const Result<int64_t> each = devices_of_process(config, launch.n_processes, devices, "plan");
  if (!each) return each.failure();
  return comm::window_of(launch, static_cast<int32_t>(*each));
}

Result<ProcessGroup> join_processes(const TrainConfig& config, int32_t devices) {
  const Result<comm::Launch> launch = comm::launch_of_environment();
  if (!launch) return launch.failure();
  const int64_t n = launch->n_processes;
  ProcessGroup group;
  const Result<int64_t> each = devices_of_process(config, n, devices, "train");
  if (!each) return each.failure();
  group.devices = *each;
  group.window = comm::window_of(*launch, static_cast<int32_t>(*each));
  group.devices_on_host = group.devices * processes_on_host(*launch);
  group.threads = threads_per_device(group.devices_on_host);
  if (n == 1) return group;
  Result<std::unique_ptr<comm::World>> world = comm::World::join(
      {.devices = static_cast<int32_t>(group.devices), .timeout_s = config.runtime.timeout});
  if (!world) return fail("train: {}", world.error());
  group.world = std::move(*world);
  // Threads change no bit, but plans must be equal.
  group.threads = static_cast<int>(min_over_processes(group, group.threads));
  return group;
}

Result<void> check_agreement(const ProcessGroup& group, std::span<const comm::Fact> facts) {
  if (!group.world) return {};
  return for_each_device(*group.world, [&](comm::Communicator& communicator) {
    return comm::check_agreement(communicator, facts);
  });
}

Result<void> process_barrier(const ProcessGroup& group, std::string_view label) {
  if (!group.world) return {};
  return for_each_device(*group.world, [&](comm::Communicator& communicator) {
    communicator.barrier(communicator.all(), label);
    return Result<void>();
  });
}

int64_t min_over_processes(const ProcessGroup& group, int64_t value) {
  if (!group.world) return value;
  int64_t least = value;
  const Result<void> done = for_each_device(*group.world, [&](comm::Communicator& communicator) {
    int64_t mine = value, found = value;
    communicator.all_reduce(communicator.all(), "start", ReduceKind::kMin, DType::kI64, 1,
                            reinterpret_cast<const std::byte*>(&mine),
                            reinterpret_cast<std::byte*>(&found));
    if (communicator.rank() % communicator.devices_per_process() == 0) least = found;
    return Result<void>();
  });
  if (!done) throw comm::CommunicationError(done.error());
  return least;
}

}  // namespace stow
