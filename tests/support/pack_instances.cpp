#include "tests/support/pack_instances.h"

#include <algorithm>
#include <cmath>
#include <random>

namespace stow::pack {
namespace {

// Integers and reals from a seed. The standard's distributions differ between libraries; the
// generator does not.
class Dice {
 public:
  explicit Dice(uint64_t seed) : random_(seed) {}

  int64_t pick(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(random_() % static_cast<uint64_t>(high - low + 1));
  }
  double unit() { return static_cast<double>(random_() >> 11) * 0x1.0p-53; }
  bool chance(double share) { return unit() < share; }
  int64_t exponential(double mean) { return 1 + static_cast<int64_t>(-mean * std::log1p(-unit())); }
  /// At least `least`, P(x) falling as x^-power, at most `most`.
  int64_t pareto(double least, double power, double most) {
    return static_cast<int64_t>(std::min(most, least * std::pow(1 - unit(), -1 / power)));
  }
  /// About exp(normal * spread) * middle.
  int64_t lognormal(double middle, double spread) {
    double sum = -6;
    for (int i = 0; i < 12; ++i) sum += unit();
    return 1 + static_cast<int64_t>(middle * std::exp(spread * sum));
  }

 private:
  std::mt19937_64 random_;
};

void add(Problem& problem, int64_t lower, int64_t upper, int64_t size) {
  problem.buffers.push_back({{{0, size, lower, upper}}, 1});
}

// Starts, lengths and sizes without a pattern; `length` is the mean in instants of n.
Problem uniform(int n, uint64_t seed, double length) {
  Dice dice(seed);
  Problem p;
  for (int i = 0; i < n; ++i) {
    const int64_t lower = dice.pick(0, n);
    add(p, lower, lower + dice.pick(1, 1 + static_cast<int64_t>(2 * length)), dice.pick(1, 1000));
  }
  return p;
}
Problem uniform_sparse(int n, uint64_t seed) {
  return uniform(n, seed, 4);
}
Problem uniform_some(int n, uint64_t seed) {
  return uniform(n, seed, 60);
}
Problem uniform_dense(int n, uint64_t seed) {
  return uniform(n, seed, 0.02 * n);
}
Problem uniform_huge(int n, uint64_t seed) {
  return uniform(n, seed, 0.3 * n);
}

// Two random ends.
Problem two_ends(int n, uint64_t seed) {
  Dice dice(seed);
  Problem p;
  for (int i = 0; i < n; ++i) {
    const auto [lower, upper] = std::minmax({dice.pick(0, 4 * n), dice.pick(0, 4 * n)});
    add(p, lower, upper + 1, dice.lognormal(4096, 1));
  }
  return p;
}

Problem heavy_tails(int n, uint64_t seed) {
  Dice dice(seed);
  Problem p;
  for (int i = 0; i < n; ++i) {
    const int64_t lower = dice.pick(0, 2 * n);
    add(p, lower, lower + dice.pareto(2, 1.1, n), dice.pareto(64, 1.2, 1e6));
  }
  return p;
}

Problem powers_of_two(int n, uint64_t seed) {
  Dice dice(seed);
  Problem p;
  for (int i = 0; i < n; ++i) {
    const int64_t lower = dice.pick(0, n);
    add(p, lower, lower + dice.exponential(150), int64_t{1} << dice.pick(6, 16));
  }
  return p;
}

// Activations live from the forward to the backward pass of their layer, temporaries for a few
// steps, gradients to the end or to their update.
Problem training(int n, uint64_t seed) {
  Dice dice(seed);
  Problem p;
  const int per_layer = 24, layers = std::max(1, n / per_layer);
  const int64_t width = 3 * per_layer, end = 2 * layers * width;
  for (int l = 0; l < layers; ++l) {
    const int64_t unit = 256 * dice.pick(8, 64);
    const int64_t forward = l * width, backward = end - (l + 1) * width;
    for (int k = 0; k < per_layer; ++k) {
      const int64_t at = dice.pick(0, width - 10), size = unit * dice.pick(1, 16) / 4;
      if (k < 8) {
        add(p, forward + at, backward + width - at, size);
      } else if (k < 11) {
        add(p, backward + at, dice.chance(0.5) ? end : backward + width, unit * dice.pick(1, 8));
      } else {
        const int64_t from = (k % 2 == 0 ? forward : backward) + at;
        add(p, from, from + dice.pick(1, 9), 4 * size);
      }
    }
  }
  return p;
}

// Values of an inference: short lives, residual streams, a cache that grows.
Problem inference(int n, uint64_t seed) {
  Dice dice(seed);
  Problem p;
  for (int i = 0; i < n; ++i) {
    const int64_t size = 64 * dice.lognormal(200, 1.2);
    int64_t life = dice.pick(1, 4);
    if (i % 12 == 0) life = dice.pick(12, 60);
    if (i % 100 == 0) life = n - i;
    add(p, i, i + life, i % 100 == 0 ? size / 20 + 1 : size);
  }
  return p;
}

// Nested scopes, as a compiler's stack of passes: most values die with their scope, some escape.
Problem nested_noisy(int n, uint64_t seed) {
  Dice dice(seed);
  Problem p;
  struct Open {
    int64_t lower, size;
    bool escapes;
  };
  std::vector<std::vector<Open>> scopes(1);
  int64_t now = 0;
  while (static_cast<int>(p.buffers.size()) < n) {
    now += dice.pick(0, 2);
    const double u = dice.unit();
    if (u < 0.15 && scopes.size() < 60) {
      scopes.emplace_back();
    } else if (u < 0.30 && scopes.size() > 1) {
      ++now;
      std::vector<Open> escaped;
      for (const Open& v : scopes.back()) {
        if (v.escapes && dice.chance(0.7))
          escaped.push_back(v);
        else
          add(p, v.lower, now + dice.pick(0, 3), v.size);
      }
      scopes.pop_back();
      auto& outer = scopes.back();
      outer.insert(outer.end(), escaped.begin(), escaped.end());
    } else {
      scopes.back().push_back({now, dice.pareto(16, 1.0, 1 << 18), dice.chance(0.2)});
    }
  }
  return p;
}

// A heap kept full: whenever the next value has no room, random ones are given back. The live sum
// is near its largest all the time.
Problem full_heap(int n, uint64_t seed, int64_t capacity, bool heavy) {
  Dice dice(seed);
  Problem p;
  struct Live {
    int64_t lower, size;
  };
  std::vector<Live> live;
  int64_t sum = 0, now = 0;
  for (int i = 0; i < n; ++i) {
    const int64_t size =
        heavy ? dice.pareto(16, 1.1, static_cast<double>(capacity) / 8) : dice.pick(1, 1000);
    while (sum + size > capacity) {
      const auto k = static_cast<size_t>(dice.pick(0, static_cast<int64_t>(live.size()) - 1));
      add(p, live[k].lower, now, live[k].size);
      sum -= live[k].size;
      live[k] = live.back();
      live.pop_back();
    }
    live.push_back({now++, size});
    sum += size;
  }
  for (const Live& v : live) add(p, v.lower, now, v.size);
  return p;
}
Problem full_heap_small(int n, uint64_t seed) {
  return full_heap(n, seed, 30'000, false);
}
Problem full_heap_large(int n, uint64_t seed) {
  return full_heap(n, seed, 500'000, false);
}
Problem full_heap_heavy(int n, uint64_t seed) {
  return full_heap(n, seed, 1 << 18, true);
}

// Phases whose sizes and lives differ, over a floor of long-lived state.
Problem phases(int n, uint64_t seed) {
  Dice dice(seed);
  Problem p;
  const int n_phases = std::min(n, 40);
  for (int k = 0; k < n_phases; ++k) {
    const double middle = static_cast<double>(dice.pick(100, 100'000)),
                 life = static_cast<double>(dice.pick(3, 300));
    for (int i = 0; i < n / n_phases; ++i) {
      const int64_t lower = k * (n / n_phases) + i;
      const bool lasts = dice.chance(0.01);
      add(p, lower, lower + (lasts ? dice.pick(n / 20, n) : dice.exponential(life)),
          dice.lognormal(middle, 0.7));
    }
  }
  return p;
}

// Few distinct sizes and lives, as unrolled iterations of one body with jitter.
Problem unrolled(int n, uint64_t seed) {
  Dice dice(seed);
  Problem p;
  const int body = 50;
  std::vector<int64_t> sizes, starts, lives;
  for (int k = 0; k < body; ++k) {
    sizes.push_back(512 * dice.pareto(1, 0.8, 2000));
    starts.push_back(dice.pick(0, 99));
    lives.push_back(dice.chance(0.2) ? dice.pick(50, 400) : dice.pick(2, 40));
  }
  for (int i = 0; i < n; ++i) {
    const int64_t at = i / body * 100;
    const int k = i % body;
    add(p, at + starts[k], at + starts[k] + lives[k] + dice.pick(0, 5),
        sizes[k] + (dice.chance(0.1) ? 512 : 0));
  }
  return p;
}

// Many short lives under few long ones.
Problem short_under_long(int n, uint64_t seed) {
  Dice dice(seed);
  Problem p;
  for (int i = 0; i < n; ++i) {
    const int64_t lower = dice.pick(0, n);
    if (dice.chance(0.01))
      add(p, lower, lower + dice.pick(n / 20 + 1, n / 2 + 1), dice.pick(1000, 200'000));
    else
      add(p, lower, lower + dice.exponential(30), dice.lognormal(3000, 1));
  }
  return p;
}

// One in ten is large and lives longer.
Problem large_and_small(int n, uint64_t seed) {
  Dice dice(seed);
  Problem p;
  for (int i = 0; i < n; ++i) {
    const int64_t lower = dice.pick(0, n);
    const bool large = dice.chance(0.1);
    add(p, lower, lower + dice.exponential(n / (large ? 80.0 : 200.0)),
        large ? dice.pick(50'000, 100'000) : dice.pick(100, 5000));
  }
  return p;
}

// Starts that are dense, then sparse, six times over.
Problem waves(int n, uint64_t seed) {
  Dice dice(seed);
  Problem p;
  for (int i = 0; i < n; ++i) {
    int64_t lower = dice.pick(0, n);
    while (!dice.chance(0.6 + 0.4 * std::sin(40.0 * static_cast<double>(lower) / n)))
      lower = dice.pick(0, n);
    add(p, lower, lower + dice.pick(1, n / 50 + 1), dice.lognormal(2000, 0.5));
  }
  return p;
}

// Sizes as an allocator of devices rounds them: to 512 bytes, large ones to 2 MiB.
Problem rounded(int n, uint64_t seed) {
  Dice dice(seed);
  Problem p;
  for (int i = 0; i < n; ++i) {
    const int64_t lower = dice.pick(0, n);
    int64_t size = dice.lognormal(200'000, 1.5);
    const int64_t unit = size < (1 << 20) ? 512 : 1 << 21;
    size = (size + unit - 1) / unit * unit;
    add(p, lower, lower + dice.lognormal(n / 150.0, 1.2), size);
  }
  return p;
}

Problem cut_straight(int n, uint64_t seed) {
  return cut_rectangle(n, 1 << 30, false, seed);
}
Problem cut_windmill(int n, uint64_t seed) {
  return cut_rectangle(n, 1 << 30, true, seed);
}

constexpr Nature kNatures[] = {
    {"uniform-sparse", uniform_sparse},
    {"uniform-some", uniform_some},
    {"uniform-dense", uniform_dense},
    {"uniform-huge", uniform_huge},
    {"two-ends", two_ends},
    {"heavy-tails", heavy_tails},
    {"powers-of-two", powers_of_two},
    {"training", training},
    {"inference", inference},
    {"nested-noisy", nested_noisy},
    {"full-heap-small", full_heap_small},
    {"full-heap-large", full_heap_large},
    {"full-heap-heavy", full_heap_heavy},
    {"phases", phases},
    {"unrolled", unrolled},
    {"short-under-long", short_under_long},
    {"large-and-small", large_and_small},
    {"waves", waves},
    {"rounded", rounded},
    {"cut-straight", cut_straight},
    {"cut-windmill", cut_windmill},
};

}  // namespace

std::span<const Nature> all_natures() {
  return kNatures;
}

Problem cut_rectangle(int n_buffers, int64_t capacity, bool windmills, uint64_t seed) {
  Dice dice(seed);
  struct Piece {
    int64_t lower, upper, bottom, top;
  };
  const int64_t duration = int64_t{1} << 40;
  std::vector<Piece> pieces = {{0, duration, 0, capacity}};
  // The largest of a few random pieces is cut, across its longer side where it is long.
  while (static_cast<int>(pieces.size()) < n_buffers) {
    const auto area = [&](size_t i) {
      const Piece& q = pieces[i];
      return static_cast<double>(q.upper - q.lower) * static_cast<double>(q.top - q.bottom);
    };
    size_t which = 0;
    for (int k = 0; k < 3; ++k) {
      const auto other = static_cast<size_t>(dice.pick(0, static_cast<int64_t>(pieces.size()) - 1));
      if (k == 0 || area(other) > area(which)) which = other;
    }
    const Piece q = pieces[which];
    const int64_t width = q.upper - q.lower, height = q.top - q.bottom;
    if (windmills && width > 16 && height > 16 && dice.chance(0.3)) {
      const int64_t x1 = q.lower + dice.pick(width / 8, width / 2 - 1);
      const int64_t x2 = dice.pick(x1 + 1, q.upper - 1);
      const int64_t y1 = q.bottom + dice.pick(height / 8, height / 2 - 1);
      const int64_t y2 = dice.pick(y1 + 1, q.top - 1);
      pieces[which] = {q.lower, x2, q.bottom, y1};
      pieces.push_back({x2, q.upper, q.bottom, y2});
      pieces.push_back({x1, q.upper, y2, q.top});
      pieces.push_back({q.lower, x1, y1, q.top});
      pieces.push_back({x1, x2, y1, y2});
      continue;
    }
    const double wide = static_cast<double>(width) / static_cast<double>(duration);
    const double high = static_cast<double>(height) / static_cast<double>(capacity);
    const bool in_time = dice.chance(wide / (wide + high));
    if ((in_time ? width : height) < 4) continue;
    if (in_time) {
      const int64_t at = q.lower + dice.pick(width / 4, width - width / 4);
      pieces[which].upper = at;
      pieces.push_back({at, q.upper, q.bottom, q.top});
    } else {
      const int64_t at = q.bottom + dice.pick(height / 4, height - height / 4);
      pieces[which].top = at;
      pieces.push_back({q.lower, q.upper, at, q.top});
    }
  }
  std::shuffle(pieces.begin(), pieces.end(), std::mt19937_64(seed));
  Problem p;
  for (const Piece& q : pieces) add(p, q.lower, q.upper, q.top - q.bottom);
  return p;
}

}  // namespace stow::pack
