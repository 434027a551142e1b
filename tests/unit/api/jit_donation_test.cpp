// Donated arguments that loops begin with: aliased, no copy of them beside, and the bits of a call
// that donates nothing.
#include <gtest/gtest.h>

#include "stowage/stowage.h"

namespace stow {
namespace {

constexpr int64_t kRows = 64, kSteps = 5;

Array gradient(const Array& w, const Array& x) {
  return grad([&](const Array& w) { return sum(square(matmul(x, w))); })(w);
}
Array with_row(const Array& cache, const Array& i, const Array& xs) {
  const Array row = dynamic_index_in_dim(xs, i % kSteps, 0, false).slice(0, 0, 1);
  return dynamic_update_slice_in_dim(cache, row + dynamic_slice_in_dim(cache, i, 1), i, 0);
}

using Pair = std::pair<Array, Array>;
using Body = std::function<Pair(const Array& w, const Array& v, const Array& xs)>;
struct Case {
  const char* name;
  Body body;            // w, v [R, R], both donated; xs [S, R, R]
  double temp;          // at most so many times an argument
  bool aliases = true;  // w; v always is
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

class Donation : public ::testing::TestWithParam<Case> {};

TEST_P(Donation, IsKeptThroughLoops) {
  const Body& body = GetParam().body;
  // Scratch grows with threads.
  const DefaultDevice one_thread(Device::cpu_with_capacity(1 << 30, 1));
  const Array w = random::normal(random::key(1), {kRows, kRows}) * 0.1;
  const Array v = random::normal(random::key(2), {kRows, kRows}) * 0.1;
  const Array xs = random::normal(random::key(3), {kSteps, kRows, kRows}) * 0.1;
  const auto copy = [](const Array& a) { return a + 0.0; };
  const Pair plain = jit(body)(w, v, xs);
  const auto donating = jit(body, {.donate_argnums = {0, 1}});
  const KindAnalysis k = donating.lower(w, v, xs).compile().memory_analysis().device();
  const int64_t bytes = w.type().bytes();
  EXPECT_EQ(k.alias_bytes, GetParam().aliases ? 2 * bytes : bytes);
  EXPECT_LE(static_cast<double>(k.temp_bytes) / static_cast<double>(bytes), GetParam().temp);
  const Pair in_place = donating(copy(w), copy(v), xs);
  EXPECT_EQ(in_place.first.to_vector<float>(), plain.first.to_vector<float>());
  EXPECT_EQ(in_place.second.to_vector<float>(), plain.second.to_vector<float>());
}

const Case kCases[] = {
    {"elementwise",
     [](const Array& w, const Array& v, const Array& xs) {
       return scan([](const Pair& c, const Array& x) { return Pair(c.first + x, c.second * x); },
                   Pair(w, v), xs);
     },
     0.2},
    {"in_reverse",
     [](const Array& w, const Array& v, const Array& xs) {
       return scan([](const Pair& c, const Array& x) { return Pair(c.first + x, c.second * x); },
                   Pair(w, v), xs, {.reverse = true});
     },
     0.2},
    {"rows_of_caches",
     [](const Array& w, const Array& v, const Array& xs) {
       return scan(
           [&](const Pair& c, const Array& i) {
             return Pair(with_row(c.first, i, xs), with_row(c.second, i, xs));
           },
           Pair(w, v), arange(9));
     },
     0.2},
    {"rows_of_caches_unrolled",
     [](const Array& w, const Array& v, const Array& xs) {
       return scan(
           [&](const Pair& c, const Array& i) {
             return Pair(with_row(c.first, i, xs), with_row(c.second, i, xs));
           },
           Pair(w, v), arange(9), {.unroll = 0});
     },
     0.2},
    {"rows_of_caches_unrolled_in_blocks",
     [](const Array& w, const Array& v, const Array& xs) {
       return scan(
           [&](const Pair& c, const Array& i) {
             return Pair(with_row(c.first, i, xs), with_row(c.second, i, xs));
           },
           Pair(w, v), arange(8), {.unroll = 4});
     },
     0.2},
    {"elements_added_at",
     [](const Array& w, const Array& v, const Array& xs) {
       return scan(
           [](const Pair& c, const Array& i) {
             return Pair(c.first.at({i, i + 1}).add(1.0), c.second.at({i}).set(2.0));
           },
           Pair(w, v + 0.0 * sum(xs)), arange(9));
     },
     0.2},
    {"training_steps",
     [](const Array& w, const Array& v, const Array& xs) {
       return scan(
           [](const Pair& c, const Array& x) {
             const Array moment = 0.9 * c.second + gradient(c.first, x);
             return Pair(c.first - 0.1 * moment, moment);
           },
           Pair(w, v), xs);
     },
     4.2},
    {"scan_of_scan",
     [](const Array& w, const Array& v, const Array& xs) {
       return scan(
           [&](const Pair& c, const Array&) {
             return scan(
                 [](const Pair& c, const Array& x) { return Pair(c.first + x, c.second * x); }, c,
                 xs);
           },
           Pair(w, v), arange(3));
     },
     0.2},
    {"scan_of_training_scans",
     [](const Array& w, const Array& v, const Array& xs) {
       return scan(
           [&](const Pair& c, const Array&) {
             return scan(
                 [](const Pair& c, const Array& x) {
                   const Array moment = 0.9 * c.second + gradient(c.first, x);
                   return Pair(c.first - 0.1 * moment, moment);
                 },
                 c, xs);
           },
           Pair(w, v), arange(3));
     },
     4.2},
    {"fori_loop",
     [](const Array& w, const Array& v, const Array& xs) {
       return fori_loop(
           0, 7,
           [&](const Array& i, const Pair& c) {
             return Pair(with_row(c.first, i, xs), c.second + c.first);
           },
           Pair(w, v));
     },
     1.2},
    {"scan_in_a_cond",
     [](const Array& w, const Array& v, const Array& xs) {
       return cond(
           sum(xs) > 0.0,
           [&](const Pair& c) {
             return scan(
                 [](const Pair& c, const Array& x) { return Pair(c.first + x, c.second * x); }, c,
                 xs);
           },
           [](const Pair& c) { return c; }, Pair(w, v));
     },
     0.3},
    {"scan_in_a_while",
     [](const Array& w, const Array& v, const Array& xs) {
       using State = std::pair<Array, Pair>;
       return while_loop([](const State& s) { return s.first < 3; },
                         [&](const State& s) {
                           return State(s.first + 1,
                                        scan(
                                            [](const Pair& c, const Array& x) {
                                              return Pair(c.first + x, c.second * x);
                                            },
                                            s.second, xs));
                         },
                         State(Array::scalar(0, DType::kI32), Pair(w, v)))
           .second;
     },
     0.3},
    {"swapped",
     [](const Array& w, const Array& v, const Array& xs) {
       return scan([](const Pair& c, const Array&) { return Pair(c.second, c.first); }, Pair(w, v),
                   xs);
     },
     2.1},
    {"one_unchanged",
     [](const Array& w, const Array& v, const Array& xs) {
       return scan(
           [](const Pair& c, const Array& x) { return Pair(c.first, c.second + c.first * x); },
           Pair(w, v), xs);
     },
     0.2},
    {"no_iterations",
     [](const Array& w, const Array& v, const Array& xs) {
       return scan(
           [](const Pair& c, const Array& x) { return Pair(c.first + x, matmul(x, c.second)); },
           Pair(w, v), xs.slice(0, 0, 0));
     },
     1.1},
    {"saved_carry",
     [](const Array& w, const Array& v, const Array& xs) {
       const auto [last, all] = scan(
           [](const Array& c, const Array& x) { return std::pair(matmul(c, x), c); }, w, xs);
       return Pair(last, v + sum(all, 0));
     },
     kSteps + 3.2},
    {"read_by_the_body",
     [](const Array& w, const Array& v, const Array& xs) {
       return scan([&](const Pair& c, const Array& x) { return Pair(c.first + x * w, c.second); },
                   Pair(w, v), xs);
     },
     0.2, false},
    {"read_later",
     [](const Array& w, const Array& v, const Array& xs) {
       const Array last = scan([](const Array& c, const Array& x) { return c + x; }, w, xs);
       return Pair(last, v + matmul(w, last));
     },
     2.2, false},
    {"reshaped",
     [](const Array& w, const Array& v, const Array& xs) {
       const Array last =
           scan([](const Array& c, const Array& x) { return c + x.reshape({kRows * kRows}); },
                w.reshape({kRows * kRows}), xs);
       return Pair(last.reshape({kRows, kRows}), v);
     },
     0.2},
    {"changed_behind",
     [](const Array& w, const Array& v, const Array& xs) {
       const Pair last = scan(
           [&](const Pair& c, const Array& i) {
             return Pair(with_row(c.first, i, xs), c.second + 1.0);
           },
           Pair(w, v), arange(9));
       return Pair(last.first * 2.0, tanh(last.second));
     },
     1.2},
};

INSTANTIATE_TEST_SUITE_P(Forms, Donation, ::testing::ValuesIn(kCases),
                         [](const auto& test) { return std::string(test.param.name); });

// A carry that waits on the host or on disk, and comes to the device in each iteration.
TEST(DonationElsewhere, IsKeptThroughLoops) {
  const int64_t any = Device::unlimited_bytes();
  for (MemoryKind kind : {MemoryKind::kPinnedHost, MemoryKind::kDisk}) {
    const DefaultDevice device(Device::virtual_device({any, any, any}, 1));
    const auto body = [&](const Array& w, const Array& xs) {
      return scan(
          [&](const Array& w, const Array& x) {
            const Array here = device_put(w, MemoryKind::kDevice);
            return device_put(here * 0.5 + matmul(x, here), kind);
          },
          w, xs);
    };
    const Array xs = random::normal(random::key(3), {kSteps, kRows, kRows}) * 0.1;
    const auto make = [&] {
      return device_put(random::normal(random::key(1), {kRows, kRows}), kind);
    };
    const auto values = [](const Array& a) {
      return device_put(a, MemoryKind::kDevice).to_vector<float>();
    };
    const auto donating = jit(body, {.donate_argnums = {0}});
    const auto program = donating.lower(make(), xs).compile();
    const KindAnalysis& k = program.memory_analysis().kinds[static_cast<size_t>(kind)];
    EXPECT_EQ(k.alias_bytes, make().type().bytes());
    EXPECT_EQ(k.temp_bytes, 0);
    EXPECT_EQ(values(donating(make(), xs)), values(jit(body)(make(), xs)));
  }
}

}  // namespace
}  // namespace stow
