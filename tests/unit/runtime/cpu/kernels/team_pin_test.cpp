// Threads of a team as large as the machine stand on a processor each; others are left alone.
#include "stowage/runtime/cpu/kernels/team_pin.h"

#include <gtest/gtest.h>
#include <omp.h>
#include <sched.h>

#include <cstdlib>
#include <thread>
#include <vector>

namespace stow::cpu {
namespace {

// Of each thread of a team that a new thread calls for: on how many processors it may run.
std::vector<int> processors_of_team(int threads) {
  std::vector<int> n(size_t(threads), 0);
  std::thread([&] {
#pragma omp parallel num_threads(threads)
    {
      pin_in_team();
      cpu_set_t set;
      sched_getaffinity(0, sizeof(set), &set);
      n[size_t(omp_get_thread_num())] = CPU_COUNT(&set);
    }
  }).join();
  return n;
}

TEST(TeamPin, KeepsAWholeTeamApartAndLeavesItsFirstThreadFree) {
  for (const char* name : {"OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY"})
    if (std::getenv(name) != nullptr) GTEST_SKIP() << name << " says where threads run";
  cpu_set_t set;
  ASSERT_EQ(sched_getaffinity(0, sizeof(set), &set), 0);
  const int all = CPU_COUNT(&set);
  if (all == 1) GTEST_SKIP() << "one processor";
  std::vector<int> want(size_t(all), 1);
  want[0] = all;
  EXPECT_EQ(processors_of_team(all), want);
  EXPECT_EQ(processors_of_team(all + 1), std::vector<int>(size_t(all) + 1, all));
}

}  // namespace
}  // namespace stow::cpu
