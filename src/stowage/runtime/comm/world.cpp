#include "stowage/runtime/comm/world.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <charconv>
#include <cstdlib>

#include "stowage/base/error.h"
#include "stowage/runtime/comm/mpi.h"
#include "stowage/runtime/comm/window.h"

namespace stow::comm {
namespace {

constexpr int32_t kMostProcesses = 1 << 20;

// Reads a number and what must stand behind it; false where it is another text.
bool take_number(std::string_view& text, std::string_view behind, int32_t& number) {
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (code != std::errc() || number < 0 || number > kMostProcesses) return false;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  if (!text.starts_with(behind)) return false;
  text.remove_prefix(behind.size());
  return true;
}

class WindowWorld : public World {
 public:
  WindowWorld(const Launch& launch, const std::shared_ptr<Region>& region, double timeout_s)
      : World(launch) {
    const int32_t devices = region->devices_per_process();
    for (int32_t device = 0; device < devices; ++device)
      communicators_.push_back(std::make_unique<WindowCommunicator>(
          region, launch.process * devices + device, timeout_s));
  }
};

}  // namespace

Result<Launch> launch_of_environment() {
  Launch launch;
  if (const char* const variable = std::getenv("STOW_LAUNCH")) {
    std::string_view text = variable;
    launch.by = Launch::By::kLauncher;
    int32_t fd = -1;
    if (!take_number(text, "/", launch.process) || !take_number(text, ":", launch.n_processes) ||
        !take_number(text, "", fd) || !text.empty() || launch.process >= launch.n_processes)
      return fail("STOW_LAUNCH={}: expected PROCESS/PROCESSES:FD, which the launcher sets",
                  variable);
    launch.fd = fd;
    launch.n_on_host = launch.n_processes;
    return launch;
  }
  const char *const rank = std::getenv("OMPI_COMM_WORLD_RANK"),
             *const size = std::getenv("OMPI_COMM_WORLD_SIZE"),
             *const local_size = std::getenv("OMPI_COMM_WORLD_LOCAL_SIZE");
  if (rank == nullptr || size == nullptr) return launch;
  std::string_view rank_text = rank, size_text = size;
  launch.by = Launch::By::kMpirun;
  if (!take_number(rank_text, "", launch.process) || !rank_text.empty() ||
      !take_number(size_text, "", launch.n_processes) || !size_text.empty() ||
      launch.process >= launch.n_processes)
    return fail("OMPI_COMM_WORLD_RANK={} of OMPI_COMM_WORLD_SIZE={}: expected numbers", rank, size);
  std::string_view local_text = local_size == nullptr ? "" : local_size;
  if (!take_number(local_text, "", launch.n_on_host) || !local_text.empty() || launch.n_on_host < 1)
    launch.n_on_host = launch.n_processes;
  return launch;
}

Window window_of(const Launch& launch, int32_t devices) {
  const int64_t n_ranks = int64_t{launch.n_processes} * devices;
  if (n_ranks == 1) return {};
  if (launch.by == Launch::By::kMpirun) return {devices * mpi_window_bytes(n_ranks), devices};
  // A mesh too large for a process is spread over hosts in a way that is not known: no window is
  // told.
  if (launch.n_processes == 1 && n_ranks > kMostRanks) return {};
  return {Region::bytes_for(n_ranks, launch.n_processes > 1), n_ranks};
}

World::~World() = default;

int64_t World::window_bytes() const {
  if (n_processes() * devices() == 1) return 0;
  const int64_t bytes = communicators_[0]->window_bytes();
  return launch_.by == Launch::By::kMpirun ? bytes * devices() : bytes;
}

void World::set_reduce_order(ReduceOrder order) {
  for (const auto& communicator : communicators_) communicator->set_reduce_order(order);
}

Communicator& World::communicator(int32_t device) const {
  STOW_CHECK(device >= 0 && device < devices(), "device {} of {}", device, devices());
  return *communicators_[static_cast<size_t>(device)];
}

Result<std::unique_ptr<World>> World::join(const WorldOptions& options) {
  if (options.devices < 0) return fail("expected at least one device, got {}", options.devices);
  if (!(options.timeout_s > 0) || options.timeout_s > 1e9)
    return fail("expected a timeout of more than 0 s and at most 1e9 s, got {} s",
                options.timeout_s);
  const Result<Launch> launch = launch_of_environment();
  if (!launch) return launch.failure();
  WorldOptions own = options;
  if (own.devices == 0 && launch->by != Launch::By::kLauncher) own.devices = 1;
  if (launch->by == Launch::By::kMpirun) return join_mpi(*launch, own);
  const bool alone = launch->by == Launch::By::kItself;
  const Result<std::shared_ptr<Region>> region =
      alone ? Region::create(own.devices, own.devices, false) : Region::attach(launch->fd);
  if (!region) return region.failure();
  const int32_t devices = (*region)->devices_per_process();
  if ((*region)->n_ranks() != launch->n_processes * devices)
    return fail("STOW_LAUNCH names {} processes, its memory has {} ranks", launch->n_processes,
                (*region)->n_ranks());
  if (own.devices > 0 && devices != own.devices)
    return fail(
        "expected {} device{} a process, as the launcher was told, got {}; give --devices {}",
        devices, devices == 1 ? "" : "s", own.devices, own.devices);
  return std::unique_ptr<World>(
      std::make_unique<WindowWorld>(*launch, *region, options.timeout_s));
}

}  // namespace stow::comm
