// Declarations of the program's commands, each of which has its own file in this folder.
// Not their options; those are in each command's file.
#pragma once

#include <span>
#include <string>

#include "stowage/base/inside.h"
#include "stowage/base/result.h"

namespace stow {

/// Exit statuses of the program: success; an error, with one line on stderr; a plan over budget.
/// `train` has two more (train/trainer.h); `bench step` has the first of these.
inline constexpr int kExitDone = 0, kExitError = 1, kExitOverBudget = 2;

/// A command takes the arguments after its name and returns the exit status. A Failure or an
/// exception ends the program with its message and status 1, a CapacityError with status 2.
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
/// Forks; must be called before any thread is started.
Result<int> run_launch(std::span<const std::string> arguments);

/// Commands of `bench`.
Result<int> run_bench_step(std::span<const std::string> arguments);
Result<int> run_bench_generate(std::span<const std::string> arguments);
Result<int> run_program1(std::span<const std::string> arguments);
Result<int> run_bench_collectives(std::span<const std::string> arguments);
Result<int> run_bench_placement(std::span<const std::string> arguments);
Result<int> run_program2(std::span<const std::string> arguments);

}  // namespace stow
