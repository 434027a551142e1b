// What processes must have alike is compared by digests, and who differs is named.
#include <gtest/gtest.h>
#include <stdlib.h>

#include "stowage/runtime/comm/mpi.h"
#include "stowage/runtime/comm/region.h"
#include "stowage/runtime/comm/world.h"
#include "tests/conformance/rank_runners.h"

namespace stow {
namespace {

using comm::Communicator;
using comm::Fact;

std::string said(Communicator& c, const std::vector<Fact>& facts) {
  const Result<void> alike = comm::check_agreement(c, facts);
  return alike ? "" : alike.error();
}

TEST(Agreement, NamesWhatDiffersAndWhere) {
  const auto body = [](Communicator& c) -> std::string {
    const bool odd = c.rank() == 2, few = c.rank() < 2;
    std::string fault;
    const auto expect = [&](const std::string& want, const std::vector<Fact>& facts) {
      if (const std::string got = said(c, facts); got != want)
        fault += "expected '" + want + "', got '" + got + "' ";
    };
    expect("", comm::facts_of_program());
    expect("", {{"configuration", std::string(500, 'x')}});
    expect(
        "configuration is 17 at processes 0, 1, 3 and 4, 18 at process 2: expected the same at every process",
        {{"version", "1"}, {"configuration", odd ? "18" : "17"}});
    expect(
        "a is x at processes 0 and 1, y at processes 2, 3 and 4; b is 1 at processes 0, 1, 3 and 4, 2 at process "
        "2: expected the same at every process",
        {{"a", few ? "x" : "y"}, {"b", odd ? "2" : "1"}});
    // The same digest of another fact is another fact; the end of a long value counts.
    const std::string value(300, 'v');
    if (said(c, {{"data", odd ? value + "1" : value + "2"}}).empty())
      fault += "the end of a value is not compared";
    return fault;
  };
  EXPECT_EQ(run_processes(5, 1, body), "");
  EXPECT_EQ(run_threads(5, [](Communicator& c) { return said(c, comm::facts_of_program()); }), "");
}

TEST(Agreement, SendsConstantBytes) {
  const auto sent = [](size_t n_facts) {
    return [n_facts](Communicator& c) -> std::string {
      const std::vector<Fact> facts(n_facts, Fact{"data", std::string(1 << 16, 'd')});
      const std::string fault = said(c, facts);
      return c.sent_bytes() <= 64 ? fault : "sent too much";
    };
  };
  EXPECT_EQ(run_threads(4, sent(1)), "");
  EXPECT_EQ(run_threads(4, sent(100)), "");
}

TEST(Launch, IsReadFromTheEnvironment) {
  const auto with = [](const char* variable) {
    ::setenv("STOW_LAUNCH", variable, 1);
    auto launch = comm::launch_of_environment();
    ::unsetenv("STOW_LAUNCH");
    return launch;
  };
  const auto good = with("3/8:5");
  ASSERT_TRUE(good.ok());
  EXPECT_EQ(good->process, 3);
  EXPECT_EQ(good->n_processes, 8);
  EXPECT_EQ(good->fd, 5);
  for (const char* bad :
       {"", "3", "3/8", "3/8:", "8/8:5", "-1/8:5", "3/8:5x", "3/8:99999999999", "/8:5"})
    EXPECT_FALSE(with(bad).ok()) << bad;
}

TEST(World, IsOneProcessWhereNobodyStartedOthers) {
  if (comm::launch_of_environment()->by != comm::Launch::By::kItself)
    GTEST_SKIP() << "under mpirun";
  const auto world = comm::World::join({.devices = 3});
  ASSERT_TRUE(world.ok()) << world.error();
  EXPECT_EQ((*world)->n_processes(), 1);
  EXPECT_EQ((*world)->devices(), 3);
  EXPECT_EQ((*world)->communicator(2).rank(), 2);
  EXPECT_EQ((*world)->communicator(2).name_of(1), "rank 1");
  EXPECT_EQ((*world)->window_bytes(), comm::window_of({}, 3).bytes);
  const auto unsaid = comm::World::join({.devices = 0});
  ASSERT_TRUE(unsaid.ok()) << unsaid.error();
  EXPECT_EQ((*unsaid)->devices(), 1);
  const auto none = comm::World::join({.devices = -1});
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.error(), "expected at least one device, got -1");
  const auto late = comm::World::join({.timeout_s = 0});
  ASSERT_FALSE(late.ok());
  EXPECT_EQ(late.error(), "expected a timeout of more than 0 s and at most 1e9 s, got 0 s");
}

// What docs/many-devices.md and distributed::window_bytes() say of the memory beside plans.
// What is planned before a run is what is mapped in it.
TEST(Region, IsAsLargeAsItsWindowIsPlanned) {
  comm::Launch launch;
  EXPECT_EQ(comm::window_of(launch, 1).bytes, 0);
  const auto threads = comm::communicators_of_threads(4);
  EXPECT_EQ(comm::window_of(launch, 4).bytes, threads[0]->window_bytes());
  EXPECT_LT(threads[0]->window_bytes(), 32 << 10) << "threads read each other's memory";
  launch.by = comm::Launch::By::kLauncher;
  launch.n_processes = launch.n_on_host = 3;
  const auto region = comm::Region::create(6, 2, true);
  ASSERT_TRUE(region.ok()) << region.error();
  const comm::Window window = comm::window_of(launch, 2);
  EXPECT_EQ(window.bytes, (*region)->bytes());
  EXPECT_EQ(window.n_sharers, 6);
  EXPECT_GE(window.bytes_of_device() * 6, window.bytes);
  EXPECT_LT((window.bytes_of_device() - 1) * 6, window.bytes);
  launch.by = comm::Launch::By::kMpirun;
  EXPECT_EQ(comm::window_of(launch, 2).bytes, 2 * comm::mpi_window_bytes(6));
  EXPECT_EQ(comm::window_of(launch, 2).n_sharers, 2);
}

TEST(Region, TakesAWindowARankAndItsStates) {
  for (const int64_t n : {1, 4, 64}) {
    const auto region = comm::Region::create(static_cast<int32_t>(n), 1, true);
    ASSERT_TRUE(region.ok()) << region.error();
    const int64_t said = (int64_t{2} << 20) * n + 1664 * n + 128 * n * n;
    EXPECT_GE((*region)->bytes(), said);
    EXPECT_LE((*region)->bytes(), said + 4 * 4096) << "in pages";
  }
}

}  // namespace
}  // namespace stow
