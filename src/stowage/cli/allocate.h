// `stowage allocate`: packs the buffers of a CSV file.
// Not the planner of programs; it is independent of models.
#pragma once

namespace stow::cli {

/// Runs the command; argv[0] is its name. Returns the exit status: 0 if the buffers are packed,
/// within the capacity if one is given; 2 if the capacity is proven impossible or not reached in
/// time; 1 for bad arguments or input, with one line on stderr.
int run_allocate(int argc, char** argv);

}  // namespace stow::cli
