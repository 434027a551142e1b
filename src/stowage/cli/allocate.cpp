#include "stowage/cli/allocate.h"

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <array>
#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "stowage/base/bytes.h"
#include "stowage/base/printable.h"
#include "stowage/base/text_file.h"
#include "stowage/cli/arguments.h"
#include "stowage/pack/csv.h"
#include "stowage/pack/exact.h"
#include "stowage/pack/svg.h"

namespace stow::cli {
namespace {

struct Flags {
  std::string input, capacity, output, json, svg;
  double time_limit_s = 10;
};

std::string_view verdict_word(pack::Verdict verdict) {
  switch (verdict) {
    case pack::Verdict::kReached:
      return "reached";
    case pack::Verdict::kImpossible:
      return "impossible";
    case pack::Verdict::kOptimal:
      return "optimal";
    case pack::Verdict::kOutOfTime:
      return "out of time";
  }
  return "";
}

nlohmann::json to_json(const Flags& flags, size_t n_buffers, std::optional<int64_t> capacity,
                       const pack::ExactResult& result, double seconds) {
  nlohmann::json json = {{"file", flags.input},
                         {"buffers", n_buffers},
                         {"peak", result.solution.height},
                         {"lower_bound", result.lower_bound},
                         {"optimal", result.optimal()},
                         {"verdict", verdict_word(result.verdict)},
                         {"seconds", seconds},
                         {"capacity", nullptr},
                         {"feasible", nullptr}};
  if (capacity) {
    json["capacity"] = *capacity;
    if (result.verdict != pack::Verdict::kOutOfTime)
      json["feasible"] = result.verdict == pack::Verdict::kReached;
  }
  return json;
}

Result<int> allocate(const Flags& flags) {
  std::optional<int64_t> capacity;
  if (!flags.capacity.empty()) {
    const Result<int64_t> bytes = parse_bytes(flags.capacity);
    if (!bytes) return fail("--capacity: {}", bytes.error());
    capacity = *bytes;
  }
  if (!std::isfinite(flags.time_limit_s) || flags.time_limit_s < 0 || flags.time_limit_s > 1e9)
    return fail("--time-limit: expected seconds from 0 to 1e9, got {}", flags.time_limit_s);

  // An output that goes to standard output has it to itself; messages go to stderr then.
  const std::string* to_stdout = nullptr;
  const std::array paths = {&flags.output, &flags.json, &flags.svg};
  // --output may be the file itself: its rows are all there again, and their offsets.
  const std::array<NamedFile, 2> drawn = {{{"--json", flags.json}, {"--svg", flags.svg}}};
  const std::array<NamedFile, 3> written = {{drawn[0], drawn[1], {"--output", flags.output}}};
  if (Result<void> distinct = check_distinct("", written, {}); !distinct) return distinct.failure();
  const std::array<NamedFile, 1> read = {{{"the file to be read", flags.input}}};
  if (Result<void> kept = check_distinct("", drawn, read); !kept) return kept.failure();
  for (const std::string* path : paths) {
    if (*path != "-") continue;
    if (to_stdout) return fail("only one of --output, --json and --svg can be standard output");
    to_stdout = path;
  }
  std::FILE* const text = to_stdout ? stderr : stdout;

  const auto start = std::chrono::steady_clock::now();
  const Result<pack::CsvProblem> csv = pack::read_csv(flags.input);
  if (!csv) return csv.failure();
  const auto seconds_gone = [start] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  // As long as reading took, validating and writing will take: it is part of the limit.
  const Result<pack::ExactResult> packed = pack::pack_exact(
      csv->problem,
      {.capacity = capacity, .time_limit_s = flags.time_limit_s - 2 * seconds_gone()});
  if (!packed) return packed.failure();
  const pack::Solution& solution = packed->solution;
  const Result<void> valid = pack::validate(csv->problem, solution);
  STOW_CHECK(valid.ok(), "{}", valid.error());
  const double seconds = seconds_gone();

  fmt::print(
      text,
      "buffers      {}\npeak         {} ({})\nlower bound  {} ({})\nproven       {}\n"
      "time         {:.3f} s\n",
      csv->ids.size(), solution.height, format_bytes(solution.height), packed->lower_bound,
      format_bytes(packed->lower_bound),
      packed->optimal()
          ? "optimal"
          : fmt::format("within {:.2f} %",
                        100.0 * (solution.height - packed->lower_bound) / packed->lower_bound),
      seconds);
  std::fflush(text);
  if (!flags.output.empty())
    if (auto done = pack::write_csv(flags.output, *csv, solution.offsets); !done)
      return done.failure();
  if (!flags.svg.empty())
    if (auto done =
            write_text_or_stdout(flags.svg, pack::draw_svg(csv->problem, solution, csv->ids));
        !done)
      return done.failure();
  if (!flags.json.empty()) {
    const std::string json = to_json(flags, csv->ids.size(), capacity, *packed, seconds)
                                 .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) +
                             "\n";
    if (auto done = write_text_or_stdout(flags.json, json); !done) return done.failure();
  }
  if (!capacity || packed->verdict == pack::Verdict::kReached) return 0;
  if (packed->verdict == pack::Verdict::kImpossible)
    fmt::print(stderr, "stowage allocate: capacity {} is impossible: no packing is below {}\n",
               *capacity, packed->lower_bound);
  else
    fmt::print(stderr,
               "stowage allocate: capacity {} was not reached in {} s, nor proven impossible: the "
               "best packing takes {}\n",
               *capacity, flags.time_limit_s, solution.height);
  return 2;
}

}  // namespace

int run_allocate(int argc, char** argv) {
  Flags flags;
  CLI::App app("Packs the buffers of a CSV file (id,lower,upper,size) into as few bytes as it can.",
               "./stowage allocate");
  app.set_help_flag("-h,--help", "This text");
  app.add_option("FILE", flags.input, "The buffers, with half-open lifetimes; - for stdin")
      ->required();
  app.add_option("--capacity", flags.capacity,
                 "Stops at a packing of at most this size: 1MiB, 4096")
      ->type_name("SIZE");
  app.add_option("--time-limit", flags.time_limit_s, "Seconds to search")
      ->capture_default_str()
      ->type_name("SECONDS");
  app.add_option("--output", flags.output, "Writes the rows with their offsets here; - for stdout")
      ->type_name("FILE");
  app.add_option("--json", flags.json, "Writes the outcome here; - for stdout")->type_name("FILE");
  app.add_option("--svg", flags.svg, "Draws the packing here; - for stdout")->type_name("FILE");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);
    fmt::print(stderr, "stowage allocate: {}\n", printable(error.what()));
    return 1;
  }
  const Result<void> given = check_not_empty(app, "");
  const Result<int> status = given ? allocate(flags) : Result<int>(given.failure());
  if (status) return *status;
  fmt::print(stderr, "stowage allocate: {}\n", printable(status.error()));
  return 1;
}

}  // namespace stow::cli
