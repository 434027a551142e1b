// The same collectives over Open MPI: the test starts itself under mpirun, and each process is a
// rank.
#include <fmt/core.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <thread>

#include "stowage/runtime/comm/mpi.h"
#include "stowage/runtime/comm/world.h"
#include "tests/conformance/collective_cases.h"

namespace stow {
namespace {

std::string why_not() {
  if (!comm::has_mpi()) return "this build has no Open MPI (libopenmpi-dev, openmpi-bin)";
  if (std::system("mpirun --version >/dev/null 2>&1") != 0) return "there is no mpirun";
  return "";
}

struct Ended {
  int status;
  std::string said;
};

// Runs one of the tests below in so many processes; what they print, and the status of mpirun.
Ended under_mpirun(int processes, const char* test, int devices = 1) {
  char self[4096] = {};
  (void)!::readlink("/proc/self/exe", self, sizeof self - 1);
  const std::string command = fmt::format(
      "env -u GTEST_TOTAL_SHARDS -u GTEST_SHARD_INDEX OMPI_ALLOW_RUN_AS_ROOT=1 "
      "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 STOW_TEST_DEVICES={} "
      "timeout -k 5 60 mpirun --oversubscribe -n {} '{}' --gtest_brief=1 "
      "--gtest_also_run_disabled_tests --gtest_filter=MpiRank.DISABLED_{} "
      "2>&1 </dev/null",
      devices, processes, self, test);
  std::FILE* const pipe = ::popen(command.c_str(), "r");
  Ended ended{-1, ""};
  char buffer[4096];
  for (size_t n; (n = std::fread(buffer, 1, sizeof buffer, pipe)) > 0;)
    ended.said.append(buffer, n);
  const int status = ::pclose(pipe);
  ended.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return ended;
}

// Joins and runs the body on every rank of this process; what is wrong at any of them.
std::string as_ranks(const std::function<std::string(comm::Communicator&)>& body,
                     double timeout_s = 60) {
  const char* const devices = std::getenv("STOW_TEST_DEVICES");
  auto joined = comm::World::join(
      {.devices = devices == nullptr ? 1 : std::atoi(devices), .timeout_s = timeout_s});
  if (!joined) return joined.error();
  comm::World& world = **joined;
  std::vector<std::string> texts(static_cast<size_t>(world.devices()));
  std::vector<std::thread> threads;
  for (int32_t device = 0; device < world.devices(); ++device)
    threads.emplace_back([&, device] {
      try {
        texts[static_cast<size_t>(device)] = body(world.communicator(device));
      } catch (const std::exception& e) {
        texts[static_cast<size_t>(device)] = e.what();
      }
    });
  for (std::thread& thread : threads) thread.join();
  std::string fault;
  for (const std::string& text : texts) fault += text;
  if (fault.empty()) world.leave();
  return fault;
}

// What mpirun starts; disabled, as they have nothing to check by themselves.
TEST(MpiRank, DISABLED_RunsTheCases) {
  EXPECT_EQ(as_ranks([](comm::Communicator& c) {
              std::string fault = check_collectives(c, {.few = c.size() > 2, .seed = 3});
              if (c.size() == 2) fault += check_collectives(c, {.large = true, .seed = 4});
              if (c.size() == 8) fault += check_factorings(c);
              return fault + check_compare(c);
            }),
            "");
}

// Sums by MPI itself, within what their rounding allows; all else to the bit.
TEST(MpiRank, DISABLED_RunsTheCasesNatively) {
  EXPECT_EQ(as_ranks([](comm::Communicator& c) {
              constexpr auto kNative = comm::ReduceOrder::kNative;
              std::string fault =
                  check_collectives(c, {.few = c.size() == 8, .seed = 7, .order = kNative});
              if (c.size() == 3)
                fault +=
                    check_collectives(c, {.large = true, .few = true, .seed = 8, .order = kNative});
              if (c.size() == 4 && c.devices_per_process() == 1) fault += check_reduce_order(c);
              c.set_reduce_order(kNative);
              return fault + check_compare(c);
            }),
            "");
}

TEST(MpiRank, DISABLED_PartsNatively) {
  const std::string said = as_ranks([](comm::Communicator& c) -> std::string {
    std::vector<std::byte> bytes(64);
    c.set_reduce_order(comm::ReduceOrder::kNative);
    const auto sum = [&](const char* label, int64_t n) {
      c.all_reduce(c.all(), label, ReduceKind::kSum, DType::kF32, n, bytes.data(), bytes.data());
    };
    sum("first (a.cpp:1)", 4);
    sum("loss (a.cpp:2)", c.rank() == 1 ? 3 : 4);
    return "";
  }, 20);
  std::fprintf(stderr, "%s\n", said.c_str());
  std::_Exit(1);
}

TEST(MpiRank, DISABLED_IsLateNatively) {
  const std::string said = as_ranks([](comm::Communicator& c) -> std::string {
    float x = 1;
    c.set_reduce_order(comm::ReduceOrder::kNative);
    const auto sum = [&](const char* label) {
      c.all_reduce(c.all(), label, ReduceKind::kSum, DType::kF32, 1,
                   reinterpret_cast<std::byte*>(&x), reinterpret_cast<std::byte*>(&x));
    };
    sum("start");
    if (c.rank() == 1) std::this_thread::sleep_for(std::chrono::seconds(30));
    sum("end (a.cpp:3)");
    return "";
  }, 0.5);
  std::fprintf(stderr, "%s\n", said.c_str());
  std::_Exit(1);
}

TEST(MpiRank, DISABLED_Parts) {
  const std::string said = as_ranks([](comm::Communicator& c) -> std::string {
    std::vector<std::byte> in(256), out(256);
    if (c.rank() == 1)
      c.reduce_scatter(c.all(), "loss (b.cpp:2)", ReduceKind::kSum, DType::kF32, 1, 4, in.data(),
                       out.data());
    else
      c.all_gather(c.all(), "head (a.cpp:1)", DType::kF32, 1, 4, in.data(), out.data());
    return "";
  }, 20);
  std::fprintf(stderr, "%s\n", said.c_str());
  std::_Exit(1);
}

TEST(MpiRank, DISABLED_IsLate) {
  const std::string said = as_ranks([](comm::Communicator& c) -> std::string {
    c.barrier(c.all(), "start");
    if (c.rank() == 1) std::this_thread::sleep_for(std::chrono::seconds(30));
    c.barrier(c.all(), "end (a.cpp:3)");
    return "";
  }, 0.5);
  std::fprintf(stderr, "%s\n", said.c_str());
  std::_Exit(1);
}

TEST(Mpi, CollectivesAreThoseOfTheOracle) {
  if (const std::string reason = why_not(); !reason.empty()) GTEST_SKIP() << reason;
  for (const int processes : {1, 2, 3, 4, 8}) {
    const Ended ended = under_mpirun(processes, "RunsTheCases");
    EXPECT_EQ(ended.status, 0) << processes << " processes: " << ended.said;
  }
  const Ended ended = under_mpirun(2, "RunsTheCases", 2);
  EXPECT_EQ(ended.status, 0) << "2 processes with 2 devices: " << ended.said;
}

TEST(Mpi, ReducesNatively) {
  if (const std::string reason = why_not(); !reason.empty()) GTEST_SKIP() << reason;
  for (const int processes : {2, 3, 4, 8}) {
    const Ended ended = under_mpirun(processes, "RunsTheCasesNatively");
    EXPECT_EQ(ended.status, 0) << processes << " processes: " << ended.said;
  }
  const Ended ended = under_mpirun(2, "RunsTheCasesNatively", 2);
  EXPECT_EQ(ended.status, 0) << "2 processes with 2 devices: " << ended.said;
  const Ended parts = under_mpirun(2, "PartsNatively");
  EXPECT_EQ(parts.status, 1) << parts.said;
  EXPECT_NE(
      parts.said.find("process 0 enters all_reduce at loss (a.cpp:2) of sum of f32[4], native, "
                      "process 1 enters all_reduce at loss (a.cpp:2) of sum of f32[3], native: "
                      "expected the same program on all"),
      std::string::npos)
      << parts.said;
  const Ended late = under_mpirun(3, "IsLateNatively");
  EXPECT_EQ(late.status, 1) << late.said;
  EXPECT_NE(late.said.find("process 1 has not entered all_reduce at end (a.cpp:3) for "),
            std::string::npos)
      << late.said;
}

TEST(Mpi, NamesWhereProgramsPart) {
  if (const std::string reason = why_not(); !reason.empty()) GTEST_SKIP() << reason;
  const Ended ended = under_mpirun(2, "Parts");
  EXPECT_EQ(ended.status, 1) << ended.said;
  EXPECT_NE(ended.said.find("process 0 enters all_gather at head (a.cpp:1), process 1 enters "
                            "reduce_scatter at loss (b.cpp:2): expected the same program on all"),
            std::string::npos)
      << ended.said;
}

TEST(Mpi, NamesTheRankThatIsLate) {
  if (const std::string reason = why_not(); !reason.empty()) GTEST_SKIP() << reason;
  const Ended ended = under_mpirun(2, "IsLate");
  EXPECT_EQ(ended.status, 1) << ended.said;
  EXPECT_NE(ended.said.find("process 1 has not entered barrier at end (a.cpp:3) for 0.5"),
            std::string::npos)
      << ended.said;
}

}  // namespace
}  // namespace stow
