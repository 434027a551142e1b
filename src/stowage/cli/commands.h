// The commands of the program, one file each beside this one.
// Not their options; those stand with each command.
#pragma once

#include <span>
#include <string>

#include "stowage/base/inside.h"
#include "stowage/base/result.h"

namespace stow {

/// Exit statuses of the program: done; an error, one line on stderr; a plan over budget. A training
/// has two more (train/trainer.h), `bench step` the first of them.
inline constexpr int kExitDone = 0, kExitError = 1, kExitOverBudget = 2;

/// A command gets the arguments behind its name and returns the exit status. A Failure, like an
/// exception, ends with status 1 and its message; a CapacityError with status 2.
using Command = Result<int> (*)(std::span<const std::string> arguments);

Result<int> run_train(std::span<const std::string> arguments);
Result<int> run_plan(std::span<const std::string> arguments);
Result<int> run_calibrate(std::span<const std::string> arguments);
Result<int> run_config(std::span<const std::string> arguments);
Result<int> run_bench(std::span<const std::string> arguments);
Result<int> run_sweep(std::span<const std::string> arguments);
Result<int> run_profile(std::span<const std::string> arguments);
Result<int> run_graph_file(std::span<const std::string> arguments);
Result<int> run_tokenize(std::span<const std::string> arguments);
Result<int> run_score(std::span<const std::string> arguments);
Result<int> run_generate(std::span<const std::string> arguments);
Result<int> run_export(std::span<const std::string> arguments);
Result<int> run_fuse(std::span<const std::string> arguments);
/// Forks: called before any thread is started.
Result<int> run_launch(std::span<const std::string> arguments);

/// Commands of `bench`.
Result<int> run_bench_step(std::span<const std::string> arguments);
Result<int> run_bench_generate(std::span<const std::string> arguments);
Result<int> run_program1(std::span<const std::string> arguments);
Result<int> run_bench_collectives(std::span<const std::string> arguments);
Result<int> run_bench_placement(std::span<const std::string> arguments);
Result<int> run_program2(std::span<const std::string> arguments);

}  // namespace stow
