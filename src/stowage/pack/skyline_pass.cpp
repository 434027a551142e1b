#include "stowage/pack/skyline_pass.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "stowage/base/error.h"

namespace stow::pack {
namespace {

constexpr int32_t kLeaf = 8;  // Items in a leaf of the tree of lifetimes, at most.
// The least weight of any section, as a share of that of the section with the largest live sum.
constexpr double kLeastWeight = 0.02;
// The largest share of the slack that a gap given up takes, however narrow the stretch.
constexpr double kMostGivenUp = 0.05;
// More than any demand or slack, and small enough to add to.
constexpr int64_t kFar = int64_t{1} << 62;

// A node of a tree of sections, from its two children.
template <typename Node>
void pull(std::vector<Node>& nodes, int32_t v) {
  const Node &left = nodes[2 * v], &right = nodes[2 * v + 1];
  const Node& least = right.least < left.least ? right : left;
  if constexpr (requires { least.section; }) nodes[v].section = least.section;
  nodes[v].least = least.least + nodes[v].add;
}

}  // namespace

SkylinePass::SkylinePass(const std::vector<Item>& items, int32_t n_sections)
    : items_(items),
      n_sections_(n_sections),
      live_(n_sections + 1),
      count_(n_sections + 1),
      fixed_buffers_(n_sections) {
  const auto n = static_cast<int32_t>(items.size());
  for (const Item& item : items) {
    live_[item.first] += item.size;
    live_[item.last + 1] -= item.size;
    ++count_[item.first];
    --count_[item.last + 1];
    mean_length_ += (item.last - item.first + 1) / static_cast<double>(n);
  }
  std::partial_sum(live_.begin(), live_.end(), live_.begin());
  std::partial_sum(count_.begin(), count_.end(), count_.begin());
  by_box_.resize(n);
  std::iota(by_box_.begin(), by_box_.end(), 0);
  int32_t n_boxes = 2;
  while (n_boxes * kLeaf < 4 * n) n_boxes *= 2;
  boxes_.resize(n_boxes);
  build_boxes(1, 0, n, true);
  position_.resize(n);
  for (int32_t p = 0; p < n; ++p) position_[by_box_[p]] = p;
  for (const int32_t i : by_box_) entries_.push_back({items[i].first, items[i].last, -1});
  while (leaves_ < n_sections) leaves_ *= 2;
  now_.counts.resize(2 * static_cast<size_t>(leaves_));
  now_.slacks.resize(2 * static_cast<size_t>(leaves_));
}

void SkylinePass::build_boxes(int32_t box, int32_t begin, int32_t end, bool by_first) {
  Box& b = boxes_[box];
  b = {INT32_MAX, -1, INT32_MAX, -1, -1, INT64_MAX};
  for (int32_t p = begin; p < end; ++p) {
    const Item& item = items_[by_box_[p]];
    b.first_from = std::min(b.first_from, item.first);
    b.first_to = std::max(b.first_to, item.first);
    b.last_from = std::min(b.last_from, item.last);
    b.last_to = std::max(b.last_to, item.last);
    b.size = std::min(b.size, item.size);
  }
  if (end - begin <= kLeaf) return;
  const int32_t middle = (begin + end) / 2;
  std::nth_element(by_box_.begin() + begin, by_box_.begin() + middle, by_box_.begin() + end,
                   [&](int32_t x, int32_t y) {
                     const int32_t a = by_first ? items_[x].first : items_[x].last;
                     const int32_t c = by_first ? items_[y].first : items_[y].last;
                     return a != c ? a < c : x < y;
                   });
  build_boxes(2 * box, begin, middle, !by_first);
  build_boxes(2 * box + 1, middle, end, !by_first);
}

void SkylinePass::rank_boxes(int32_t box, int32_t begin, int32_t end) {
  if (end - begin <= kLeaf) {
    boxes_[box].rank = -1;
    for (int32_t p = begin; p < end; ++p)
      boxes_[box].rank = std::max(boxes_[box].rank, entries_[p].rank);
    return;
  }
  const int32_t middle = (begin + end) / 2;
  rank_boxes(2 * box, begin, middle);
  rank_boxes(2 * box + 1, middle, end);
  boxes_[box].rank = std::max(boxes_[2 * box].rank, boxes_[2 * box + 1].rank);
}

void SkylinePass::take_out(int32_t item) {
  const double old = entries_[position_[item]].rank;
  entries_[position_[item]].rank = -1;
  // Down to the leaf, then up as far as the rank was the item's.
  int32_t box = 1, begin = 0, end = static_cast<int32_t>(items_.size());
  while (end - begin > kLeaf) {
    const int32_t middle = (begin + end) / 2;
    const bool right = position_[item] >= middle;
    (right ? begin : end) = middle;
    box = 2 * box + right;
  }
  double best = -1;
  for (int32_t p = begin; p < end; ++p) best = std::max(best, entries_[p].rank);
  while (boxes_[box].rank == old) {
    boxes_[box].rank = best;
    if (box == 1) break;
    best = std::max(best, boxes_[box ^ 1].rank);
    box /= 2;
  }
}

void SkylinePass::best_within(const Box& region, int32_t box, int32_t begin, int32_t end,
                              double* rank, int32_t* item) const {
  const Box& b = boxes_[box];
  if (b.rank <= *rank || b.size > region.size || b.first_to < region.first_from ||
      b.first_from > region.first_to || b.last_to < region.last_from ||
      b.last_from > region.last_to)
    return;
  if (end - begin <= kLeaf) {
    for (int32_t p = begin; p < end; ++p) {
      const Entry& e = entries_[p];
      if (e.rank > *rank && e.first >= region.first_from && e.first <= region.first_to &&
          e.last >= region.last_from && e.last <= region.last_to &&
          (region.size == INT64_MAX || items_[by_box_[p]].size <= region.size)) {
        *rank = e.rank;
        *item = by_box_[p];
      }
    }
    return;
  }
  const int32_t middle = (begin + end) / 2;
  const bool right_first = boxes_[2 * box + 1].rank > boxes_[2 * box].rank;
  if (right_first) best_within(region, 2 * box + 1, middle, end, rank, item);
  best_within(region, 2 * box, begin, middle, rank, item);
  if (!right_first) best_within(region, 2 * box + 1, middle, end, rank, item);
}

int32_t SkylinePass::best_item(int32_t first_from, int32_t first_to, int32_t last_from,
                               int32_t last_to, int64_t most_bytes) const {
  double rank = -1;
  int32_t item = -1;
  best_within({first_from, first_to, last_from, last_to, 0, most_bytes}, 1, 0,
              static_cast<int32_t>(items_.size()), &rank, &item);
  return item;
}

template <typename Fn>
void SkylinePass::each_through(int32_t section, int32_t box, int32_t begin, int32_t end,
                               Fn& fn) const {
  const Box& b = boxes_[box];
  if (b.rank < 0 || b.first_from > section || b.last_to < section) return;
  if (end - begin <= kLeaf) {
    for (int32_t p = begin; p < end; ++p) {
      const Entry& e = entries_[p];
      if (e.rank >= 0 && e.first <= section && e.last >= section) fn(by_box_[p]);
    }
    return;
  }
  const int32_t middle = (begin + end) / 2;
  each_through(section, 2 * box, begin, middle, fn);
  each_through(section, 2 * box + 1, middle, end, fn);
}

void SkylinePass::build_sections(int64_t capacity) {
  for (int32_t s = 0; s < leaves_; ++s) {
    const bool real = s < n_sections_;
    now_.counts[leaves_ + s] = {real ? count_[s] : INT32_MAX / 2, 0};
    now_.slacks[leaves_ + s] = {real ? capacity - live_[s] : kFar, 0, s};
  }
  for (int32_t v = leaves_ - 1; v > 0; --v) {
    now_.counts[v].add = 0;
    now_.slacks[v].add = 0;
    pull(now_.counts, v);
    pull(now_.slacks, v);
  }
}

template <typename Node, typename Value>
void SkylinePass::add(std::vector<Node>& nodes, int32_t first, int32_t last, Value value) {
  const auto apply = [&](int32_t v) {
    nodes[v].least += value;
    nodes[v].add += value;
  };
  int32_t a = first + leaves_, b = last + leaves_;
  for (int32_t l = a, r = b + 1; l < r; l /= 2, r /= 2) {
    if (l % 2 == 1) apply(l++);
    if (r % 2 == 1) apply(--r);
  }
  for (a /= 2, b /= 2; a != b; a /= 2, b /= 2) {
    pull(nodes, a);
    pull(nodes, b);
  }
  for (; a > 0; a /= 2) pull(nodes, a);
}

// Takes the sections in which nothing more is to be placed out of the trees; `above` is what
// ancestors add.
void SkylinePass::finish(int32_t first, int32_t last, int32_t above, int32_t v, int32_t l,
                         int32_t r) {
  if (last < l || r < first || now_.counts[v].least + above > 0) return;
  if (l == r) {
    now_.counts[v].least = INT32_MAX / 2;
    now_.slacks[v].least = kFar;
    for (int32_t parent = v / 2; parent > 0; parent /= 2) pull(now_.slacks, parent);
    now_.finished[l] = 1;
    newly_finished_.push_back(l);
    return;
  }
  above += now_.counts[v].add;
  const int32_t middle = (l + r) / 2;
  finish(first, last, above, 2 * v, l, middle);
  finish(first, last, above, 2 * v + 1, middle + 1, r);
  pull(now_.counts, v);
}

SkylinePass::Tightest SkylinePass::tightest(int32_t first, int32_t last) const {
  int32_t l = first + leaves_, r = last + leaves_;
  // The tightest sections seen from either end, up to the ancestors l and r.
  Tightest a{now_.slacks[l].least, first}, b{now_.slacks[r].least, last};
  while ((l ^ r) > 1) {
    if (l % 2 == 0 && now_.slacks[l + 1].least < a.slack)
      a = {now_.slacks[l + 1].least, now_.slacks[l + 1].section};
    if (r % 2 == 1 && now_.slacks[r - 1].least <= b.slack)
      b = {now_.slacks[r - 1].least, now_.slacks[r - 1].section};
    l /= 2;
    r /= 2;
    a.slack += now_.slacks[l].add;
    b.slack += now_.slacks[r].add;
  }
  if (b.slack < a.slack) a = b;
  for (l /= 2; l > 0; l /= 2) a.slack += now_.slacks[l].add;
  return a;
}

void SkylinePass::push(int32_t first, int32_t last, int64_t height) {
  // One stretch with neighbours of the same height.
  if (first > 0 && !now_.finished[first - 1]) {
    const int32_t left = now_.start_of[first - 1];
    if (left >= 0 && now_.end_of[left] == first - 1 && now_.height_of[left] == height) first = left;
  }
  if (last + 1 < n_sections_ && !now_.finished[last + 1] && now_.end_of[last + 1] >= 0 &&
      now_.height_of[last + 1] == height) {
    const int32_t right = last + 1;
    last = now_.end_of[right];
    now_.end_of[right] = -1;
  }
  now_.end_of[first] = last;
  now_.start_of[last] = first;
  now_.height_of[first] = height;
  now_.heap.push_back({height, first, last});
  std::push_heap(now_.heap.begin(), now_.heap.end());
}

void SkylinePass::forget(int32_t first, int32_t last) {
  now_.end_of[first] = -1;
  now_.start_of[last] = -1;
}

// first..last lies at `height`; what is finished in it leaves the skyline.
void SkylinePass::settle(int32_t first, int32_t last, int64_t height) {
  newly_finished_.clear();
  finish(first, last, 0, 1, 0, leaves_ - 1);
  int32_t from = first;
  for (const int32_t s : newly_finished_) {
    if (s > from) push(from, s - 1, height);
    from = s + 1;
  }
  if (from <= last) push(from, last, height);
}

void SkylinePass::place(int32_t item, int32_t first, int32_t last, int64_t height) {
  const Item& it = items_[item];
  now_.offset_at[position_[item]] = height;
  now_.height = std::max(now_.height, height + it.size);
  take_out(item);
  add(now_.counts, it.first, it.last, -1);
  if (it.first > first) push(first, it.first - 1, height);
  if (it.last < last) push(it.last + 1, last, height);
  settle(it.first, it.last, height + it.size);
}

// The stretch first..last stays where it is.
void SkylinePass::leave_out(int32_t item, int32_t first, int32_t last, int64_t height) {
  const Item& it = items_[item];
  now_.offset_at[position_[item]] = kLeftOut;
  ++now_.n_left_out;
  now_.area_left_out += static_cast<double>(it.size) * (it.last - it.first + 1);
  take_out(item);
  add(now_.counts, it.first, it.last, -1);
  add(now_.slacks, it.first, it.last, it.size);
  // Other stretches that the buffer lived in may have come to their end as well.
  newly_finished_.clear();
  finish(it.first, it.last, 0, 1, 0, leaves_ - 1);
  push(first, last, height);
  for (const int32_t s : newly_finished_) {
    int32_t a = s;
    while (now_.end_of[a] < s) --a;
    const int32_t b = now_.end_of[a];
    const int64_t h = now_.height_of[a];
    forget(a, b);
    if (a < s) push(a, s - 1, h);
    if (s < b) push(s + 1, b, h);
  }
}

// The buffer that lives through the section, makes enough room and takes least area; if none makes
// enough room, the largest.
int32_t SkylinePass::choose_victim(int32_t section, int64_t need) const {
  int32_t best = -1;
  double best_area = HUGE_VAL;
  const auto look = [&](int32_t i) {
    const Item& it = items_[i];
    const double area = static_cast<double>(it.size) * (it.last - it.first + 1);
    const bool enough = it.size >= need;
    if (best >= 0) {
      const bool best_enough = items_[best].size >= need;
      if (enough != best_enough) {
        if (!enough) return;
      } else if (enough ? area >= best_area : it.size <= items_[best].size) {
        return;
      }
    }
    best = i;
    best_area = area;
  };
  each_through(section, 1, 0, static_cast<int32_t>(items_.size()), look);
  return best;
}

void SkylinePass::rank(const SkylineStrategy& strategy) {
  std::vector<double>& until = weights_until_[strategy.focus];
  if (until.empty()) {
    const auto most = static_cast<double>(*std::max_element(live_.begin(), live_.end()));
    until.resize(n_sections_ + 1);
    for (int32_t s = 0; s < n_sections_; ++s) {
      const double below = 1 - static_cast<double>(live_[s]) / most;
      until[s + 1] = until[s] + kLeastWeight + std::exp(-below / strategy.focus);
    }
  }
  uint64_t random = strategy.seed | 1;
  for (size_t p = 0; p < entries_.size(); ++p) {
    Entry& e = entries_[p];
    e.rank = -1;
    if (now_.offset_at[p] != kUnplaced) continue;
    if (fixed_ != nullptr && (*fixed_)[by_box_[p]] != FixedBuffers::kFree) continue;
    // Marsaglia 2003, "Xorshift RNGs": a few bits of noise, for all buffers and often.
    random ^= random << 13;
    random ^= random >> 7;
    random ^= random << 17;
    const double unit = static_cast<double>(random >> 11) * 0x1.0p-53;
    e.rank = (until[e.last + 1] - until[e.first]) * (1 + strategy.noise * (2 * unit - 1));
    if (strategy.size_power != 0)
      e.rank *= std::pow(static_cast<double>(items_[by_box_[p]].size), strategy.size_power);
  }
  rank_boxes(1, 0, static_cast<int32_t>(items_.size()));
}

// True if the stretch first..last shall rise by `gap`, to the lower of its neighbours at heights
// `left` and `right`, though something may live within it.
bool SkylinePass::give_up(const SkylineStrategy& strategy, int32_t first, int32_t last,
                          int64_t slack, int64_t left, int64_t right, int64_t gap) const {
  const auto lost = static_cast<double>(gap);
  const double share = strategy.tolerance * mean_length_ / (last - first + 1);
  if (lost <= std::min(share, kMostGivenUp) * static_cast<double>(slack)) return true;
  if (lost > strategy.levelling * static_cast<double>(slack)) return false;
  int64_t other = INT64_MAX;
  if (left <= right) other = tightest(now_.start_of[first - 1], first - 1).slack;
  if (right <= left) other = std::min(other, tightest(last + 1, now_.end_of[last + 1]).slack);
  return lost <= strategy.levelling * static_cast<double>(slack - other);
}

void SkylinePass::begin(int64_t capacity) {
  now_.bounded = capacity != kNoCapacity;
  build_sections(now_.bounded ? capacity : kFar / 2);
  now_.finished.assign(n_sections_, 0);
  now_.end_of.assign(n_sections_, -1);
  now_.start_of.assign(n_sections_, -1);
  now_.height_of.assign(n_sections_, 0);
  now_.offset_at.assign(items_.size(), kUnplaced);
  now_.height = 0;
  now_.n_left_out = 0;
  now_.area_left_out = 0;
  now_.heap.clear();
  push(0, n_sections_ - 1, 0);
}

bool SkylinePass::run(const SkylineStrategy& strategy, int64_t capacity,
                      const std::function<bool()>& stop, double most_left_out) {
  begin(capacity);
  return advance(strategy, INT64_MAX, stop, most_left_out);
}

bool SkylinePass::run_around(const std::vector<int64_t>& fixed, const SkylineStrategy& strategy,
                             int64_t capacity, const std::function<bool()>& stop,
                             double most_left_out) {
  fixed_ = &fixed;
  fixed_buffers_.build(items_, fixed);
  const bool ended = run(strategy, capacity, stop, most_left_out);
  fixed_ = nullptr;
  return ended;
}

// The buffer to put on the stretch first..last, preferably through the section, that does not reach
// the fixed buffers above.
int32_t SkylinePass::best_around(int32_t first, int32_t last, int32_t section,
                                 int64_t height) const {
  int32_t from = first, to = last;
  int32_t wall = fixed_buffers_.lowest(first, last);
  const int32_t lowest = wall;
  // Up to lower ones on either side of what is above the section.
  for (; wall >= 0; wall = fixed_buffers_.lowest(from, to)) {
    if (items_[wall].last < section) {
      from = items_[wall].last + 1;
    } else if (items_[wall].first > section) {
      to = items_[wall].first - 1;
    } else {
      break;
    }
  }
  const auto room = [&](int32_t w) { return w < 0 ? INT64_MAX : (*fixed_)[w] - height; };
  int32_t item = best_item(from, section, section, to, room(wall));
  if (item < 0) item = best_item(from, to, from, to, room(wall));
  if (item < 0) item = best_item(first, last, first, last, room(lowest));
  return item;
}

bool SkylinePass::advance(const SkylineStrategy& strategy, int64_t until,
                          const std::function<bool()>& stop, double most_left_out) {
  rank(strategy);
  for (int64_t step = 1; !now_.heap.empty(); ++step) {
    if (step % 1024 == 0 && stop && stop()) return false;
    if (now_.heap.front().height >= until) return true;
    std::pop_heap(now_.heap.begin(), now_.heap.end());
    const auto [height, first, last] = now_.heap.back();
    now_.heap.pop_back();
    if (now_.end_of[first] != last || now_.height_of[first] != height) continue;
    const int32_t wall = fixed_ == nullptr ? -1 : fixed_buffers_.lowest(first, last);
    if (wall >= 0 && (*fixed_)[wall] == height) {
      fixed_buffers_.pass(wall);
      forget(first, last);
      place(wall, first, last, height);
      continue;
    }
    Tightest tight = tightest(first, last);
    int64_t left = INT64_MAX, right = INT64_MAX;  // Heights of the neighbours.
    if (first > 0 && !now_.finished[first - 1]) left = now_.height_of[now_.start_of[first - 1]];
    if (last + 1 < n_sections_ && !now_.finished[last + 1]) right = now_.height_of[last + 1];
    int64_t rise_to = std::min(left, right);
    int32_t rise_first = first, rise_last = last;  // All of the stretch, or what is below a wall.
    int32_t item = -1;
    if (wall >= 0 && (*fixed_)[wall] < rise_to) {
      rise_to = (*fixed_)[wall];
      rise_first = std::max(first, items_[wall].first);
      rise_last = std::min(last, items_[wall].last);
    }
    const int64_t gap = rise_to - height;
    if (wall >= 0) {
      item = best_around(first, last, tight.section, height);
      tight = tightest(rise_first, rise_last);
    } else if (!now_.bounded || !give_up(strategy, first, last, tight.slack, left, right, gap)) {
      item = best_item(first, tight.section, tight.section, last);
      if (item < 0) item = best_item(first, last, first, last);
    }
    if (item >= 0) {
      forget(first, last);
      place(item, first, last, height);
      continue;
    }
    if (now_.bounded && tight.slack < gap) {
      const int32_t victim = choose_victim(tight.section, gap - tight.slack);
      STOW_CHECK(victim >= 0, "nothing can be left out in section {}", tight.section);
      forget(first, last);
      leave_out(victim, first, last, height);
      if (now_.area_left_out > most_left_out) return false;
      continue;
    }
    forget(first, last);
    add(now_.slacks, rise_first, rise_last, -gap);
    if (rise_first > first) push(first, rise_first - 1, height);
    if (rise_last < last) push(rise_last + 1, last, height);
    push(rise_first, rise_last, rise_to);
  }
  return true;
}

std::vector<int64_t> SkylinePass::offsets() const {
  std::vector<int64_t> offsets(items_.size());
  for (size_t i = 0; i < offsets.size(); ++i) offsets[i] = now_.offset_at[position_[i]];
  return offsets;
}

double SkylinePass::strain(double softness) const {
  // For each node, the sum that its ancestors add, from the root down.
  std::vector<int64_t> above(2 * static_cast<size_t>(leaves_));
  for (int32_t v = 1; v < leaves_; ++v)
    above[2 * v] = above[2 * v + 1] = above[v] + now_.slacks[v].add;
  const int64_t least = now_.slacks[1].least;
  const double left_out = 2 * now_.area_left_out / mean_length_;
  double sum = 0;
  for (int32_t s = 0; s < n_sections_; ++s) {
    if (now_.finished[s]) continue;
    const auto more =
        static_cast<double>(now_.slacks[leaves_ + s].least + above[leaves_ + s] - least);
    if (more < 16 * softness) sum += std::exp(-more / softness);
  }
  if (sum == 0) return left_out;  // Nothing is still to be placed.
  return left_out - static_cast<double>(least) + softness * std::log(sum);
}

}  // namespace stow::pack
