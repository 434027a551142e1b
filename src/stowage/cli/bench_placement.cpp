// `bench placement`: a replicated array from each process's own copy, and what it costs in memory
// and in bytes between processes.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <fstream>
#include <vector>

#include "stowage/api/distributed.h"
#include "stowage/api/memory.h"
#include "stowage/api/processes.h"
#include "stowage/api/sharding.h"
#include "stowage/api/shards.h"
#include "stowage/base/bytes.h"
#include "stowage/cli/arguments.h"
#include "stowage/cli/commands.h"
#include "stowage/cli/launch.h"

namespace stow {
namespace {

// Physical memory of the process, by the kernel's own count of its pages.
int64_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  int64_t all_pages = 0, resident_pages = 0;
  statm >> all_pages >> resident_pages;
  return resident_pages * sysconf(_SC_PAGESIZE);
}

// The copy of each process, whose elements are not all equal; that of the process `flip` has
// another bit.
std::vector<uint32_t> own_copy(int64_t bytes, int64_t flip) {
  std::vector<uint32_t> copy(static_cast<size_t>(bytes / 4));
  for (size_t i = 0; i < copy.size(); ++i) copy[i] = static_cast<uint32_t>(i * 2654435761u);
  if (distributed::process_index() == flip) copy[copy.size() / 2] ^= 1u << 7;
  return copy;
}

struct Figures {
  int64_t device_bytes = 0, rss_growth_bytes = 0, sent_bytes = 0;
};

Figures place(int64_t bytes, int64_t flip) {
  const DevicePtr device = distributed::local_devices()[0];
  const bool is_alone = distributed::process_count() == 1;
  const auto sent = [&] { return is_alone ? 0 : processes()->communicator().sent_bytes(); };
  const Scope name("weights");  // what a message about it calls it
  const std::vector<uint32_t> copy = own_copy(bytes, flip);
  const Sharding replicated = NamedSharding(
      make_mesh({static_cast<int64_t>(distributed::devices().size())}, {"data"}), PartitionSpec());
  // The stacks and tables that a first placement touches are there before the measurement.
  const Array warm = device_put(std::span<const uint32_t>(copy).first(1), {1}, replicated);
  const int64_t device_before = device->in_use_bytes(MemoryKind::kDevice);
  const int64_t resident_before = resident_bytes(), sent_before = sent();
  const Array placed =
      device_put(std::span<const uint32_t>(copy), {static_cast<int64_t>(copy.size())}, replicated);
  return {device->in_use_bytes(MemoryKind::kDevice) - device_before,
          resident_bytes() - resident_before, sent() - sent_before};
}

// The figures of all processes, by process.
std::vector<Figures> gather(const Figures& own) {
  const auto all = processes();
  std::vector<Figures> figures(static_cast<size_t>(all->count()), own);
  if (all->count() == 1) return figures;
  std::vector<int> members;
  for (int i = 0; i < all->count(); ++i) members.push_back(i);
  all->communicator().all_gather(all->group_of(members), "bench placement", DType::kI64, 1, 3,
                                 reinterpret_cast<const std::byte*>(&own),
                                 reinterpret_cast<std::byte*>(figures.data()));
  return figures;
}

}  // namespace

Result<int> run_bench_placement(std::span<const std::string> command_line) {
  LaunchOptions launch;
  std::string size = "64MiB", json_path;
  int64_t flip = -1;
  CLI::App app("Places an array replicated over all processes from the copy that each of them has.",
               "./stowage bench placement");
  app.set_help_flag("-h,--help", "This text");
  add_launch_options(app, launch);
  app.add_option("--size", size, "Bytes of the array (default 64MiB)");
  app.add_option("--flip", flip, "The process whose copy differs in one bit")->type_name("RANK");
  app.add_option("--json", json_path, "Writes one JSON object a line to FILE, - for stdout");
  const Result<bool> helped = parse_or_help(app, "bench placement", command_line);
  if (!helped) return helped.failure();
  if (*helped) return kExitDone;
  const Result<int64_t> bytes = parse_bytes(size);
  if (!bytes) return fail("bench placement: --size {}: {}", size, bytes.error());
  constexpr int64_t kMostBytes = int64_t{1} << 36;
  if (*bytes < 4 || *bytes > kMostBytes || *bytes % 4 != 0)
    return fail("bench placement: --size {}: expected a multiple of 4 bytes, up to 64 GiB", size);
  if (launch.devices != 1)
    return fail("bench placement: --devices {}: expected 1, a copy a process", launch.devices);
  distributed::initialize();
  if (flip < -1 || flip >= distributed::process_count())
    return fail("bench placement: --flip {}: expected a process from 0 to {}", flip,
                distributed::process_count() - 1);
  const bool is_first = distributed::process_index() == 0;
  Result<std::optional<JsonLines>> json = open_json(is_first ? json_path : "");
  if (!json) return json.failure();
  const std::vector<Figures> figures = gather(place(*bytes, flip));
  distributed::finish();
  if (!is_first) return kExitDone;
  if (json_path != "-")
    fmt::print("{:<6}{:>16}{:>16}{:>12}\n", "rank", "device bytes", "rss growth", "sent");
  for (size_t rank = 0; rank < figures.size(); ++rank) {
    const Figures& f = figures[rank];
    if (json_path != "-")
      fmt::print("{:<6}{:>16}{:>16}{:>12}\n", rank, f.device_bytes, f.rss_growth_bytes,
                 f.sent_bytes);
    const Result<void> written =
        write_json(*json, Json::object({{"rank", static_cast<int64_t>(rank)},
                                        {"device_bytes", f.device_bytes},
                                        {"rss_growth_bytes", f.rss_growth_bytes},
                                        {"sent_bytes", f.sent_bytes}}));
    if (!written) return written.failure();
  }
  return kExitDone;
}

}  // namespace stow
