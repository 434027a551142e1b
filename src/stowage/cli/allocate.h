// `stowage allocate`: packs the buffers of a CSV.
// Not the planner: nothing here knows of models.
#pragma once

namespace stow::cli {

/// argv[0] is the name of the command. Returns the exit status: 0 when packed (within the capacity,
/// if one is given), 2 when the capacity is proven impossible or not reached in time, 1 for bad
/// arguments or input, with one line on stderr.
int run_allocate(int argc, char** argv);

}  // namespace stow::cli
