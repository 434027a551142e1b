#include "stowage/runtime/cpu/kernels/team_pin.h"

#include <omp.h>
#include <sched.h>

#include <cstdlib>
#include <initializer_list>

namespace stow::cpu {
namespace {

bool is_left_to_us() {
  for (const char* name : {"OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY"})
    if (std::getenv(name) != nullptr) return false;
  return true;
}

void pin(int thread, int team) {
  static const bool may = is_left_to_us();
  cpu_set_t allowed;
  if (!may || sched_getaffinity(0, sizeof(allowed), &allowed) != 0 || CPU_COUNT(&allowed) != team)
    return;
  for (int cpu = 0, nth = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &allowed) || nth++ != thread) continue;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    sched_setaffinity(0, sizeof(one), &one);  // where that is refused, the thread stays as it was
    return;
  }
}

}  // namespace

void pin_in_team() {
  thread_local int tried = 0;  // as one of so many
  const int thread = omp_get_thread_num(), team = omp_get_num_threads();
  if (thread == 0 || tried == team) return;
  tried = team;
  pin(thread, team);
}

}  // namespace stow::cpu
