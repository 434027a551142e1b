#include "stowage/api/distributed.h"

#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <set>

#include "stowage/api/processes.h"
#include "stowage/api/trace.h"
#include "stowage/runtime/comm/world.h"
#include "stowage/runtime/target.h"

namespace stow {
namespace {

thread_local std::shared_ptr<const Processes> acting;

// A process belongs to one world from its start to its end, whatever thread asks.
struct Membership {
  std::mutex mutex;
  std::unique_ptr<comm::World> world;          // null: not joined
  std::shared_ptr<const Processes> processes;  // null: nothing was said
  bool has_left = false;
};

Membership& membership() {
  static Membership instance;
  return instance;
}

void check_devices(const char* what, const std::vector<DevicePtr>& devices) {
  std::set<const Device*> seen;
  for (const DevicePtr& device : devices) {
    if (!device) trace_error_here("[{}] expected devices, one of them is null", what);
    if (!seen.insert(device.get()).second)
      trace_error_here("[{}] the device {}:{} is there twice; a process has each device once", what,
                       device->name(), device->number());
  }
}

// The devices of a process that has named none: each has its share of the host's memory and
// threads.
std::vector<DevicePtr> shares_of_host(const comm::World& world) {
  const int n = world.devices() * world.n_on_host();
  if (n == 1) return {Device::cpu()};
  const Device& all = *Device::cpu();
  const bool was_said = std::getenv("OMP_NUM_THREADS") != nullptr;
  const int threads = was_said ? all.threads() : std::max(all.threads() / n, 1);
  std::vector<DevicePtr> devices;
  for (int32_t i = 0; i < world.devices(); ++i)
    devices.push_back(
        Device::cpu_with_capacity(all.capacity_bytes(MemoryKind::kDevice) / n, threads));
  return devices;
}

// Demands that all processes agree on everything that must be the same before they compute
// together.
void check_alike(comm::World& world, const Device& device, comm::ReduceOrder reduce) {
  if (world.n_processes() == 1) return;
  std::vector<int32_t> ranks;
  for (int32_t i = 0; i < world.n_processes(); ++i) ranks.push_back(i * world.devices());
  std::vector<comm::Fact> facts = comm::facts_of_program();
  facts.push_back({"the kind of its devices", device.target()->key()});
  facts.push_back({"the order of sums", std::string(comm::reduce_order_name(reduce))});
  comm::Communicator& communicator = world.communicator();
  const Result<void> alike = comm::check_agreement(
      communicator, comm::Group::of(std::move(ranks), communicator.rank()), "start", facts);
  if (!alike) trace_error_here("[distributed::initialize] {}", alike.error());
}

}  // namespace

Processes::Processes(std::vector<DevicePtr> local, double timeout_s)
    : local_(std::move(local)), all_(local_), timeout_s_(timeout_s) {}

Processes::Processes(int index, int count, std::vector<DevicePtr> local,
                     comm::Communicator* communicator, int ranks_per_process)
    : Processes(index, count, std::move(local), std::vector{communicator}) {
  ranks_per_process_ = ranks_per_process;
}

Processes::Processes(int index, int count, std::vector<DevicePtr> local,
                     std::vector<comm::Communicator*> communicators, double timeout_s)
    : index_(index),
      count_(count),
      ranks_per_process_(static_cast<int>(local.size())),
      local_(std::move(local)),
      communicators_(std::move(communicators)),
      timeout_s_(timeout_s) {
  for (int process = 0; process < count_; ++process)
    for (size_t i = 0; i < local_.size(); ++i) {
      // No capacity: a request for its memory names it and fails.
      const DevicePtr device =
          process == index_
              ? local_[i]
              : std::make_shared<Device>(fmt::format("process {}, device {}", process, i),
                                         Device::Capacities{}, 1);
      process_of_.emplace(device.get(), process);
      rank_of_.emplace(device.get(), static_cast<int32_t>(all_.size()));
      all_.push_back(device);
    }
}

int Processes::process_of(const Device* device) const {
  const auto found = process_of_.find(device);
  return found == process_of_.end() ? index_ : found->second;
}

std::vector<int> Processes::processes_of(const std::vector<DevicePtr>& devices) const {
  std::set<int> found;
  for (const DevicePtr& device : devices) found.insert(process_of(device.get()));
  return {found.begin(), found.end()};
}

std::mutex& Processes::collectives_mutex() const {
  // A process by itself has no communicator, and a new Processes whenever it is asked who it is.
  static std::mutex alone;
  return count_ > 1 ? collectives_ : alone;
}

comm::Communicator& Processes::communicator() const {
  if (communicators_.empty() || !communicators_[0])
    trace_error_here(
        "[distributed] expected several processes, this one is by itself; start it with "
        "`stowage launch` or mpirun and call distributed::initialize() first");
  return *communicators_[0];
}

comm::Communicator& Processes::communicator_of(const Device* device) const {
  communicator();
  for (size_t i = 0; i < local_.size() && i < communicators_.size(); ++i)
    if (local_[i].get() == device) return *communicators_[i];
  trace_error_here("[distributed] expected a device given to distributed::initialize(), got {}",
                   device->name());
}

int32_t Processes::rank_of(const Device* device) const {
  const auto found = rank_of_.find(device);
  if (found == rank_of_.end())
    trace_error_here("[distributed] expected a device of distributed::devices(), got {}",
                     device->name());
  return found->second;
}

comm::Group Processes::group_of(const std::vector<int>& processes) const {
  std::vector<int32_t> ranks;
  for (int process : processes) ranks.push_back(static_cast<int32_t>(process * ranks_per_process_));
  return comm::Group::of(std::move(ranks), static_cast<int32_t>(index_ * ranks_per_process_));
}

std::shared_ptr<const Processes> processes() {
  if (acting) return acting;
  {
    Membership& own = membership();
    const std::lock_guard lock(own.mutex);
    if (own.processes) return own.processes;
  }
  return std::make_shared<const Processes>(std::vector<DevicePtr>{default_device()});
}

bool is_of_other_process(const Device* device) {
  if (acting) return acting->process_of(device) != acting->index();
  Membership& own = membership();
  const std::lock_guard lock(own.mutex);
  return own.processes && own.processes->process_of(device) != own.processes->index();
}

ActAsProcess::ActAsProcess(std::shared_ptr<const Processes> processes)
    : before_(std::exchange(acting, std::move(processes))) {}
ActAsProcess::~ActAsProcess() { acting = std::move(before_); }

namespace distributed {

void initialize(const Options& options) {
  check_devices("distributed::initialize", options.local_devices);
  std::vector<DevicePtr> devices = options.local_devices;
  Membership& own = membership();
  const std::lock_guard lock(own.mutex);
  // Those that the program has named before.
  if (devices.empty() && own.processes) devices = own.processes->local();
  if (devices.empty() && context().device) devices = {context().device};
  if (own.world)
    trace_error_here(
        "[distributed::initialize] this process is process {} of {} already; call it once",
        own.world->process(), own.world->n_processes());
  Result<std::unique_ptr<comm::World>> world = comm::World::join(
      {.devices = static_cast<int32_t>(devices.size()), .timeout_s = options.timeout_s});
  if (!world) trace_error_here("[distributed::initialize] {}", world.error());
  own.world = std::move(*world);
  if (devices.empty()) {
    devices = shares_of_host(*own.world);
    context().device = devices.size() == 1 && own.world->n_on_host() == 1 ? nullptr : devices[0];
  }
  check_alike(*own.world, *devices[0], options.reduce);
  own.world->set_reduce_order(options.reduce);
  std::vector<comm::Communicator*> communicators;
  for (int32_t i = 0; i < own.world->devices(); ++i)
    communicators.push_back(&own.world->communicator(i));
  own.processes =
      own.world->n_processes() == 1
          ? std::make_shared<const Processes>(std::move(devices), options.timeout_s)
          : std::make_shared<const Processes>(own.world->process(), own.world->n_processes(),
                                              std::move(devices), std::move(communicators),
                                              options.timeout_s);
}

void finish() {
  Membership& own = membership();
  const std::lock_guard lock(own.mutex);
  if (own.world && !own.has_left) own.world->leave();
  own.has_left = true;
}

int64_t window_bytes() {
  Membership& own = membership();
  const std::lock_guard lock(own.mutex);
  return own.world ? own.world->window_bytes() : 0;
}

int process_index() { return processes()->index(); }
int process_count() { return processes()->count(); }
std::vector<DevicePtr> devices() { return processes()->devices(); }
std::vector<DevicePtr> local_devices() { return processes()->local(); }
int process_of(const DevicePtr& device) { return processes()->process_of(device.get()); }
bool is_local(const DevicePtr& device) { return !is_of_other_process(device.get()); }

void set_local_devices(std::vector<DevicePtr> devices) {
  if (devices.empty())
    trace_error_here("[set_local_devices] expected one device at least, got none");
  check_devices("set_local_devices", devices);
  if (process_count() > 1)
    trace_error_here(
        "[set_local_devices] the {} processes know each other's devices already; give them to "
        "distributed::initialize()",
        process_count());
  auto alone = std::make_shared<const Processes>(std::move(devices));
  if (acting) {
    acting = std::move(alone);
    return;
  }
  Membership& own = membership();
  const std::lock_guard lock(own.mutex);
  own.processes = std::move(alone);
}

}  // namespace distributed
}  // namespace stow
