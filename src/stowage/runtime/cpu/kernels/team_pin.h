// Pins a thread of an OpenMP team to a processor.
// Not for the thread that starts the team: threads that it starts later would inherit the pinning.
#pragma once

namespace stow::cpu {

/// Pins the calling thread, thread i of its team, to the i-th processor that the process may use.
/// Does nothing for thread 0, for a team whose size is not the number of those processors, or if
/// the environment sets OMP_PROC_BIND, OMP_PLACES or GOMP_CPU_AFFINITY.
void pin_in_team();

}  // namespace stow::cpu
