// Every transport gives every collective the same bits, and says why one cannot end.
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "tests/conformance/collective_cases.h"
#include "tests/conformance/rank_runners.h"

namespace stow {
namespace {

using comm::Communicator;
using comm::Group;
using testing::HasSubstr;

// How ranks are started.
struct Transport {
  const char* name;
  int32_t devices_per_process;  // 0: threads of one process
  bool use_windows;
};
constexpr Transport kThreads = {"threads", 0, false}, kWindows = {"windows", 0, true},
                    kProcesses = {"processes", 1, false}, kMixed = {"mixed", 2, false};

std::string run_on(const Transport& transport, int32_t n, const RankBody& body,
                   double timeout_s = 60) {
  if (transport.devices_per_process == 0)
    return run_threads(n, body, {.timeout_s = timeout_s, .use_windows = transport.use_windows});
  return run_processes(n / transport.devices_per_process, transport.devices_per_process, body,
                       timeout_s);
}

class Collectives : public testing::TestWithParam<Transport> {
 protected:
  // Numbers of ranks that the transport can start.
  std::vector<int32_t> sizes() const {
    std::vector<int32_t> result;
    for (const int32_t n : {1, 2, 3, 4, 6, 8})
      if (GetParam().devices_per_process <= 1 || n % GetParam().devices_per_process == 0)
        result.push_back(n);
    return result;
  }
};

TEST_P(Collectives, AreThoseOfTheOracle) {
  for (const int32_t n : sizes())
    EXPECT_EQ(run_on(GetParam(), n, [&](Communicator& c) { return check_collectives(c, {}); }), "")
        << n << " ranks";
}

TEST_P(Collectives, OfManyWindowsAreThoseOfTheOracle) {
  for (const int32_t n : {2, 4})
    EXPECT_EQ(
        run_on(GetParam(), n,
               [&](Communicator& c) { return check_collectives(c, {.large = true, .seed = 2}); }),
        "")
        << n << " ranks";
}

// No transport within a host has a reduction that beats the tree: native is the tree, bit for bit.
TEST_P(Collectives, AreTheTreeUnderNativeToo) {
  for (const int32_t n : {2, 4})
    EXPECT_EQ(run_on(GetParam(), n,
                     [&](Communicator& c) {
                       if (c.has_native_reduction()) return std::string("a reduction of its own");
                       return check_collectives(
                           c, {.few = true, .seed = 6, .order = comm::ReduceOrder::kNative});
                     }),
              "")
        << n << " ranks";
  EXPECT_EQ(run_on(GetParam(), 4, check_reduce_order), "");
}

TEST_P(Collectives, GiveTheSameBitsForEveryFactoring) {
  EXPECT_EQ(run_on(GetParam(), 8, check_factorings), "");
}

TEST_P(Collectives, FindOddFingerprints) {
  for (const int32_t n : sizes())
    EXPECT_EQ(run_on(GetParam(), n, check_compare), "") << n << " ranks";
}

TEST_P(Collectives, CountTheBytesOfARing) {
  constexpr int64_t kElems = 40000;
  const auto body = [](Communicator& c) -> std::string {
    const Group all = c.all();
    const int64_t n = all.size();
    std::vector<float> part(kElems, 1.0f), whole(static_cast<size_t>(n * kElems), 1.0f);
    auto* const p = reinterpret_cast<std::byte*>(part.data());
    auto* const w = reinterpret_cast<std::byte*>(whole.data());
    c.all_gather(all, "", DType::kF32, 1, kElems, p, w);
    const int64_t gathered = c.sent_bytes();
    c.reduce_scatter(all, "", ReduceKind::kSum, DType::kF32, 1, kElems, w, p);
    const int64_t scattered = c.sent_bytes() - gathered;
    c.all_reduce(all, "", ReduceKind::kSum, DType::kF32, kElems, p, p);
    const int64_t reduced = c.sent_bytes() - gathered - scattered;
    const int64_t expected = 4 * kElems * (n - 1);
    if (gathered != expected || scattered != expected || reduced != 2 * (expected / n) ||
        c.n_collectives() != 3)
      return fmt::format("{} {} {} for {}", gathered, scattered, reduced, expected);
    return "";
  };
  EXPECT_EQ(run_on(GetParam(), 4, body), "");
  EXPECT_EQ(body(*comm::null_communicator(5, 1024)), "");
}

// What all ranks say, where they say the same.
std::string in_unison(const std::string& texts, int32_t n) {
  const std::string first = texts.substr(0, texts.find('\n') + 1);
  std::string expected;
  for (int32_t i = 0; i < n; ++i) expected += first;
  return texts == expected ? first.substr(0, first.size() - 1) : texts;
}

std::string name_of(const Transport& transport, int32_t rank, int32_t n_ranks = 4) {
  if (transport.devices_per_process == 0 || n_ranks == transport.devices_per_process)
    return fmt::format("rank {}", rank);
  if (transport.devices_per_process == 1) return fmt::format("process {}", rank);
  return fmt::format("rank {} (device {} of process {})", rank, rank % 2, rank / 2);
}

TEST_P(Collectives, NameTheRankThatIsLate) {
  const auto body = [](Communicator& c) -> std::string {
    c.barrier(c.all(), "start (main.cpp:1)");
    if (c.rank() == 2) {
      std::this_thread::sleep_for(std::chrono::milliseconds(900));
      c.barrier(c.all(), "late (main.cpp:2)");
    }
    float x = 0;
    c.all_reduce(c.all(), "layers/mlp (main.cpp:3)", ReduceKind::kSum, DType::kF32, 1,
                 reinterpret_cast<std::byte*>(&x), reinterpret_cast<std::byte*>(&x));
    return "";
  };
  EXPECT_THAT(
      in_unison(run_on(GetParam(), 4, body, 0.3), 4),
      testing::MatchesRegex(
          ".* has not entered all_reduce at layers/mlp \\(main\\.cpp:3\\) for 0\\.[0-9]+ s; "
          "it was last in barrier at start \\(main\\.cpp:1\\)"));
  EXPECT_THAT(run_on(GetParam(), 4, body, 0.3),
              HasSubstr(name_of(GetParam(), 2) + " has not entered"));
}

// Rank 0 waits for 1, which waits for 2: 2 is late, though 0 runs out of time first.
TEST_P(Collectives, NameTheLastRankOfAChain) {
  const auto body = [](Communicator& c) -> std::string {
    std::byte x{};
    if (c.rank() == 3) std::this_thread::sleep_for(std::chrono::milliseconds(100));
    if (c.rank() == 2) std::this_thread::sleep_for(std::chrono::milliseconds(900));
    const auto pair = [&](int32_t a, int32_t b, const char* label) {
      if (c.rank() == a || c.rank() == b)
        c.broadcast(Group::of({a, b}, c.rank()), label, 0, {&x, 1});
    };
    pair(2, 1, "first");
    pair(1, 0, "second");
    return "";
  };
  EXPECT_THAT(run_on(GetParam(), 4, body, 0.3),
              HasSubstr(name_of(GetParam(), 2) + " has not entered broadcast at first for"));
}

TEST_P(Collectives, NameWhereProgramsPart) {
  const auto begin = std::chrono::steady_clock::now();
  const auto op = [](Communicator& c) -> std::string {
    std::vector<std::byte> in(64), out(64);
    if (c.rank() == 1) {
      c.reduce_scatter(c.all(), "loss (b.cpp:2)", ReduceKind::kSum, DType::kF32, 1, 4, in.data(),
                       out.data());
    } else {
      c.all_gather(c.all(), "head (a.cpp:1)", DType::kF32, 1, 4, in.data(), out.data());
    }
    return "";
  };
  EXPECT_THAT(in_unison(run_on(GetParam(), 4, op), 4),
              testing::MatchesRegex(
                  ".*(all_gather at head \\(a\\.cpp:1\\).*reduce_scatter at loss \\(b\\.cpp:2\\)|"
                  "reduce_scatter at loss \\(b\\.cpp:2\\).*all_gather at head \\(a\\.cpp:1\\))"
                  ": expected the same program on all"));
  const auto size = [](Communicator& c) -> std::string {
    std::vector<std::byte> bytes(64);
    c.all_reduce(c.all(), "loss (b.cpp:2)", ReduceKind::kSum, DType::kF32, c.rank() == 0 ? 2 : 3,
                 bytes.data(), bytes.data());
    return "";
  };
  EXPECT_EQ(
      in_unison(run_on(GetParam(), 2, size), 2),
      fmt::format("{} enters all_reduce at loss (b.cpp:2) of sum of f32[2], {} enters all_reduce "
                  "at loss (b.cpp:2) of sum of f32[3]: expected the same program on all",
                  name_of(GetParam(), 0, 2), name_of(GetParam(), 1, 2)));
  // Two groups in different orders: no message ever comes, and yet it does not take the timeout.
  const auto order = [](Communicator& c) -> std::string {
    const Group near = Group::of(c.rank() < 2 ? std::vector{0, 1} : std::vector{2, 3}, c.rank());
    const Group far =
        Group::of(c.rank() % 2 == 0 ? std::vector{0, 2} : std::vector{1, 3}, c.rank());
    const bool first = c.rank() == 0 || c.rank() == 3;
    c.barrier(first ? near : far, first ? "near" : "far");
    c.barrier(first ? far : near, first ? "far" : "near");
    return "";
  };
  const std::string said = in_unison(run_on(GetParam(), 4, order), 4);
  EXPECT_THAT(said, HasSubstr("in barrier at near (its collective 1)"));
  EXPECT_THAT(said, HasSubstr("in barrier at far (its collective 1)"));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
}

INSTANTIATE_TEST_SUITE_P(Transports, Collectives,
                         testing::Values(kThreads, kWindows, kProcesses, kMixed),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace stow
