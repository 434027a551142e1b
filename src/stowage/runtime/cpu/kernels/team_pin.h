// Pins a thread of a team to a processor.
// Not for the thread that calls for a team: others that it starts would stand on its processor too.
#pragma once

namespace stow::cpu {

/// Called by each thread of a parallel region: keeps all but the first on a processor each, in the
/// order of those that the process may use, where the team is as large as their number. Leaves them
/// alone where the environment has OMP_PROC_BIND, OMP_PLACES or GOMP_CPU_AFFINITY.
void pin_in_team();

}  // namespace stow::cpu
