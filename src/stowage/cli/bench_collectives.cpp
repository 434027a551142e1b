// `bench collectives`: how many bytes a second each collective moves, beside memcpy in the same
// run. An all_reduce moves the array twice, as a ring does.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <thread>

#include "stowage/base/bytes.h"
#include "stowage/cli/arguments.h"
#include "stowage/cli/commands.h"
#include "stowage/cli/launch.h"
#include "stowage/runtime/comm/world.h"

namespace stow {
namespace {

using Clock = std::chrono::steady_clock;

struct Options {
  int64_t bytes = 32 << 20;
  int64_t rounds = 5;
  comm::ReduceOrder reduce = comm::ReduceOrder::kTree;
};

struct Row {
  std::string op;
  // Times that the array's bytes pass: twice for all_reduce, which scatters and gathers.
  int64_t passes = 1;
  int64_t sent_bytes = 0;  // of one rank in one call
  double seconds = 0;      // of the slowest rank in the best round
};

// Measures on one rank. Bytes are those of the whole array, of which every rank has a part.
std::vector<Row> measure(comm::Communicator& communicator, const Options& options) {
  const comm::Group all = communicator.all();
  const int64_t n = all.size(), part = std::max<int64_t>(options.bytes / 4 / n, 1),
                whole = part * n;
  std::vector<float> small(static_cast<size_t>(part), 1.0f),
      large(static_cast<size_t>(whole), 1.0f), other(static_cast<size_t>(whole), 2.0f);
  auto* const p = reinterpret_cast<std::byte*>(small.data());
  auto* const w = reinterpret_cast<std::byte*>(large.data());
  auto* const o = reinterpret_cast<std::byte*>(other.data());
  std::vector<std::pair<int32_t, int32_t>> shift;
  for (int32_t i = 0; i < all.size(); ++i) shift.emplace_back(i, (i + 1) % all.size());
  const std::string_view label = "bench collectives";
  constexpr DType kType = DType::kF32;
  const std::vector<std::pair<std::string, std::function<void()>>> work = {
      {"memcpy", [&] { std::memcpy(o, w, static_cast<size_t>(whole) * 4); }},
      {"all_gather", [&] { communicator.all_gather(all, label, kType, 1, part, p, w); }},
      {"reduce_scatter",
       [&] { communicator.reduce_scatter(all, label, ReduceKind::kSum, kType, 1, part, w, p); }},
      {"all_reduce",
       [&] { communicator.all_reduce(all, label, ReduceKind::kMax, kType, whole, w, o); }},
      {"all_to_all", [&] { communicator.all_to_all(all, label, kType, 1, part, 1, part, w, o); }},
      {"permute", [&] { communicator.permute(all, label, kType, shift, whole, w, o); }},
  };
  std::vector<Row> rows;
  for (const auto& [name, run] : work) {
    Row row = {name, name == "all_reduce" ? 2 : 1, communicator.sent_bytes(), 1e30};
    run();
    row.sent_bytes = communicator.sent_bytes() - row.sent_bytes;
    for (int64_t round = 0; round < options.rounds; ++round) {
      communicator.barrier(all, label);
      const auto begin = Clock::now();
      run();
      // Until all have done it: with fewer cores than ranks a copy of one leaves out that of
      // others.
      communicator.barrier(all, label);
      double seconds = std::chrono::duration<double>(Clock::now() - begin).count(), slowest = 0;
      communicator.all_reduce(all, label, ReduceKind::kMax, DType::kF64, 1,
                              reinterpret_cast<const std::byte*>(&seconds),
                              reinterpret_cast<std::byte*>(&slowest));
      row.seconds = std::min(row.seconds, slowest);
    }
    rows.push_back(row);
  }
  return rows;
}

Result<std::vector<Row>> run_rank(comm::Communicator& communicator, const Options& options) {
  try {
    std::vector<comm::Fact> facts = comm::facts_of_program();
    facts.push_back({"--size", fmt::format("{}", options.bytes)});
    facts.push_back({"--rounds", fmt::format("{}", options.rounds)});
    facts.push_back({"--reduce", std::string(comm::reduce_order_name(options.reduce))});
    if (const Result<void> alike = comm::check_agreement(communicator, facts); !alike)
      return fail("bench collectives: {}", alike.error());
    communicator.set_reduce_order(options.reduce);
    return measure(communicator, options);
  } catch (const std::exception& e) {
    // The other ranks of this process must not wait for one that has given up.
    communicator.abort(e.what());
    return fail("{}", e.what());
  }
}

}  // namespace

Result<int> run_bench_collectives(std::span<const std::string> command_line) {
  LaunchOptions launch;
  std::string size = "32MiB", json_path, reduce = "tree";
  Options options;
  double timeout_s = 60;
  CLI::App app(
      "Measures each collective over all devices of all processes, and memcpy by all of them.",
      "./stowage bench collectives");
  app.set_help_flag("-h,--help", "This text");
  add_launch_options(app, launch);
  app.add_option("--size", size, "Bytes of the whole array (default 32MiB)");
  app.add_option("--rounds", options.rounds,
                 "Measurements of each; the best is reported (default 5)")
      ->check(CLI::PositiveNumber);
  app.add_option("--timeout", timeout_s, "Seconds that a process may be late (default 60)")
      ->check(CLI::PositiveNumber);
  app.add_option("--reduce", reduce,
                 "Sums are made by: tree (the default), or native, the transport")
      ->check(CLI::IsMember({"tree", "native"}));
  app.add_option("--json", json_path, "Writes one JSON object a line to FILE, - for stdout");
  const Result<bool> helped = parse_or_help(app, "bench collectives", command_line);
  if (!helped) return helped.failure();
  if (*helped) return kExitDone;
  const Result<int64_t> bytes = parse_bytes(size);
  if (!bytes) return fail("bench collectives: --size {}: {}", size, bytes.error());
  constexpr int64_t kMostBytes = int64_t{1} << 36;
  if (*bytes < 4 || *bytes > kMostBytes)
    return fail("bench collectives: --size {}: expected 4 bytes to 64 GiB", size);
  options.bytes = *bytes;
  options.reduce = *comm::reduce_order_of(reduce);
  Result<std::unique_ptr<comm::World>> joined =
      comm::World::join({.devices = launch.devices, .timeout_s = timeout_s});
  if (!joined) return fail("bench collectives: {}", joined.error());
  comm::World& world = **joined;
  Result<std::optional<JsonLines>> json = open_json(world.process() == 0 ? json_path : "");
  if (!json) return json.failure();

  std::vector<std::thread> threads;
  std::vector<Result<std::vector<Row>>> results(static_cast<size_t>(world.devices()),
                                                std::vector<Row>());
  for (int32_t device = 1; device < world.devices(); ++device)
    threads.emplace_back([&, device] {
      results[static_cast<size_t>(device)] = run_rank(world.communicator(device), options);
    });
  results[0] = run_rank(world.communicator(), options);
  for (std::thread& thread : threads) thread.join();
  for (const auto& result : results)
    if (!result) return result.failure();
  world.leave();
  if (world.process() != 0) return kExitDone;

  const comm::Communicator& communicator = world.communicator();
  if (json_path != "-")
    fmt::print(
        "{} processes with {} devices each, {} by transport {}\n{:<16}{:>10}{:>12}{:>12}{:>14}\n",
        world.n_processes(), world.devices(), format_bytes(options.bytes), communicator.transport(),
        "", "ms", "GB/s", "of memcpy", "sent a rank");
  const double memcpy_rate = static_cast<double>(options.bytes) / (*results[0])[0].seconds;
  for (const Row& row : *results[0]) {
    const double rate = static_cast<double>(row.passes * options.bytes) / row.seconds;
    if (json_path != "-")
      fmt::print("{:<16}{:>10.3f}{:>12.2f}{:>12.2f}{:>14}\n", row.op, row.seconds * 1e3,
                 rate * 1e-9, rate / memcpy_rate, format_bytes(row.sent_bytes));
    Json object = Json::object();
    object.set("op", row.op);
    object.set("transport", communicator.transport());
    object.set("reduce", reduce);
    object.set("processes", world.n_processes());
    object.set("devices", world.devices());
    object.set("bytes", options.bytes);
    object.set("seconds", row.seconds);
    object.set("bytes_per_second", rate);
    object.set("of_memcpy", rate / memcpy_rate);
    object.set("sent_bytes", row.sent_bytes);
    if (const Result<void> written = write_json(*json, object); !written) return written.failure();
  }
  return kExitDone;
}

}  // namespace stow
