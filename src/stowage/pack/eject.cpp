#include "stowage/pack/eject.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <tuple>

namespace stow::pack {
namespace {

constexpr int32_t kLeaf = 16;            // Items below a leaf of the tree.
constexpr int64_t kWorkToAsk = 100'000;  // Between two questions whether to stop.

}  // namespace

Ejector::Ejector(const std::vector<Item>& items, int32_t n_sections) : items_(items) {
  const auto n = static_cast<int32_t>(items.size());
  by_first_.resize(n);
  std::iota(by_first_.begin(), by_first_.end(), 0);
  std::sort(by_first_.begin(), by_first_.end(), [&](int32_t a, int32_t b) {
    return std::tuple(items[a].first, a) < std::tuple(items[b].first, b);
  });
  starts_at_.assign(n_sections + 1, 0);
  for (const Item& item : items) ++starts_at_[item.first + 1];
  std::partial_sum(starts_at_.begin(), starts_at_.end(), starts_at_.begin());
  int32_t leaves = 1;
  while (leaves * kLeaf < n) leaves *= 2;
  latest_.assign(2 * static_cast<size_t>(leaves), -1);
  for (int32_t p = 0; p < n; ++p) {
    int32_t& latest = latest_[leaves + p / kLeaf];
    latest = std::max(latest, items[by_first_[p]].last);
  }
  for (int32_t v = leaves - 1; v > 0; --v)
    latest_[v] = std::max(latest_[2 * v], latest_[2 * v + 1]);
  first_weight_.resize(n);
  for (int32_t i = 0; i < n; ++i)
    first_weight_[i] =
        std::sqrt(static_cast<double>(items[i].size) * (items[i].last - items[i].first + 1));
}

void Ejector::meet(int32_t item) {
  if (offsets_[item] == kLeftOut) return;
  const int64_t low = offsets_[item];
  spans_.push_back({low, low + items_[item].size, weight_[item], item});
}

// Gathers the positions before `before` whose items live in the section.
void Ejector::gather_through(int32_t section, int32_t node, int32_t begin, int32_t end,
                             int32_t before) {
  if (begin >= before || latest_[node] < section) return;
  if (end - begin > kLeaf) {
    const int32_t middle = (begin + end) / 2;
    gather_through(section, 2 * node, begin, middle, before);
    gather_through(section, 2 * node + 1, middle, end, before);
    return;
  }
  work_ += kLeaf;
  for (int32_t p = begin; p < std::min(end, before); ++p)
    if (items_[by_first_[p]].last >= section) meet(by_first_[p]);
}

void Ejector::gather(int32_t first, int32_t last) {
  spans_.clear();
  const auto covered = static_cast<int32_t>(latest_.size() / 2) * kLeaf;
  gather_through(first, 1, 0, covered, starts_at_[first]);
  for (int32_t p = starts_at_[first]; p < starts_at_[last + 1]; ++p) meet(by_first_[p]);
  work_ += 64 + 8 * static_cast<int64_t>(spans_.size());
}

// Sorts by position, in linear time where positions are spread evenly.
void Ejector::sort_edges(std::vector<Edge>& edges) {
  const auto less = [](const Edge& a, const Edge& b) { return a.at < b.at; };
  const size_t n = edges.size();
  if (n < 64) {
    std::sort(edges.begin(), edges.end(), less);
    return;
  }
  const auto [least, most] = std::minmax_element(edges.begin(), edges.end(), less);
  const auto from = static_cast<double>(least->at);
  const double scale = static_cast<double>(n) / (static_cast<double>(most->at) - from + 1);
  const auto bucket = [&](const Edge& e) {
    return std::min(static_cast<size_t>((static_cast<double>(e.at) - from) * scale), n - 1);
  };
  bucket_ends_.assign(n + 1, 0);
  for (const Edge& e : edges) ++bucket_ends_[bucket(e) + 1];
  std::partial_sum(bucket_ends_.begin(), bucket_ends_.end(), bucket_ends_.begin());
  sorted_.resize(n);
  for (const Edge& e : edges) sorted_[bucket_ends_[bucket(e)]++] = e;
  edges.swap(sorted_);
  for (size_t k = 0, begin = 0; k < n; begin = bucket_ends_[k++]) {
    const size_t end = bucket_ends_[k];
    if (end - begin > 16) {
      std::sort(edges.begin() + begin, edges.begin() + end, less);
      continue;
    }
    for (size_t i = begin + 1; i < end; ++i) {
      const Edge e = edges[i];
      size_t to = i;
      for (; to > begin && edges[to - 1].at > e.at; --to) edges[to] = edges[to - 1];
      edges[to] = e;
    }
  }
}

// The offset at which the gathered buffers in the way weigh least. Among equals it is drawn, but a
// place that loses nothing above or below comes before others.
int64_t Ejector::choose_offset(int32_t item) {
  const int64_t size = items_[item].size, top = capacity_ - size;
  lows_.clear();
  highs_.clear();
  for (const Span& s : spans_) {
    lows_.push_back({s.low - size, s.weight});  // In the way of offsets above this,
    highs_.push_back({s.high, s.weight});       // and below this.
  }
  sort_edges(lows_);
  sort_edges(highs_);
  // The floor and the ceiling are places, too.
  lows_.push_back({std::max<int64_t>(top, 0), 0});
  lows_.push_back({INT64_MAX, 0});
  highs_.push_back({INT64_MAX, 0});
  for (size_t i = lows_.size() - 2; i > 0 && lows_[i].at < lows_[i - 1].at; --i)
    std::swap(lows_[i], lows_[i - 1]);
  int64_t best = 0;
  double least = HUGE_VAL;
  int64_t least_hole = 0;
  uint64_t ties = 0;
  double weight = 0;
  size_t low = 0, high = 0;
  for (; lows_[low].at < 0; ++low) weight += lows_[low].weight;
  int64_t floor = 0;
  for (int64_t at = 0; at <= top;) {
    for (; highs_[high].at <= at; ++high) {
      weight -= highs_[high].weight;
      floor = highs_[high].at;
    }
    // Sums that are added and subtracted again keep a trace of rounding. If nothing is in the way,
    // the tightest hole is taken.
    const double w = weight < 1e-6 ? 0 : weight;
    if (w <= least) {
      const int64_t hole = w == 0 ? std::min(lows_[low].at, top) - floor : 0;
      if (w < least || hole < least_hole) {
        least = w;
        least_hole = hole;
        best = at;
        ties = 1;
      } else if (hole == least_hole && random_() % ++ties == 0) {
        best = at;
      }
    }
    for (; lows_[low].at <= at; ++low) weight += lows_[low].weight;
    at = std::min(lows_[low].at, highs_[high].at);
  }
  return best;
}

bool Ejector::run(const std::vector<int64_t>& offsets, int64_t capacity,
                  const EjectStrategy& strategy, int64_t work, const std::function<bool()>& stop) {
  offsets_ = offsets;
  capacity_ = capacity;
  work_ = 0;
  random_.seed(strategy.seed);
  weight_ = first_weight_;
  left_out_.clear();
  for (size_t i = 0; i < items_.size(); ++i) {
    if (offsets_[i] != kLeftOut && offsets_[i] + items_[i].size <= capacity) continue;
    offsets_[i] = kLeftOut;
    left_out_.push_back(static_cast<int32_t>(i));
  }
  n_first_left_out_ = left_out_.size();
  for (int64_t ask_at = kWorkToAsk; !left_out_.empty() && work_ < work;) {
    if (work_ >= ask_at) {
      if (stop && stop()) return false;
      ask_at = work_ + kWorkToAsk;
    }
    // The heaviest of a few.
    size_t which = random_() % left_out_.size();
    for (int k = 0; k < 3; ++k) {
      const size_t other = random_() % left_out_.size();
      if (first_weight_[left_out_[other]] > first_weight_[left_out_[which]]) which = other;
    }
    const int32_t item = left_out_[which];
    left_out_[which] = left_out_.back();
    left_out_.pop_back();
    gather(items_[item].first, items_[item].last);
    const int64_t low = choose_offset(item), high = low + items_[item].size;
    offsets_[item] = low;
    bool forced = false;
    for (const Span& s : spans_) {
      if (s.low >= high || s.high <= low) continue;
      offsets_[s.item] = kLeftOut;
      left_out_.push_back(s.item);
      forced = true;
    }
    if (forced) weight_[item] *= strategy.growth;
  }
  return left_out_.empty();
}

}  // namespace stow::pack
