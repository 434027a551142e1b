// Items: the list of instructions that passes/transfers reorders, with their lanes and accesses.
// Not the rules of reordering; overlapper.h has those.
#pragma once

#include <algorithm>
#include <array>
#include <memory>
#include <utility>
#include <vector>

#include "stowage/base/inside.h"
#include "stowage/ir/schedule_walk.h"
#include "stowage/passes/access.h"

namespace stow {

/// The moves of one stream, numbered as StreamKind. The collective stream has two lanes: its own
/// number for collectives that computation waits for, which start early; kReduced for collectives
/// of computed values, which are awaited late.
using Lane = size_t;
inline constexpr Lane kReduced = kNumStreams;
inline constexpr size_t kNumLanes = kNumStreams + 1;

inline Lane lane_of(const Kernel& kernel, StreamKind stream) {
  const bool reduces = kernel.op == OpKind::kReduceScatter || kernel.op == OpKind::kAllReduce;
  return stream == StreamKind::kCollective && reduces ? kReduced : static_cast<Lane>(stream);
}

/// True for lanes whose moves start early; moves of the other lanes are awaited late.
inline bool is_inward(Lane lane) {
  return lane == static_cast<Lane>(StreamKind::kCopyIn) ||
         lane == static_cast<Lane>(StreamKind::kDiskRead) ||
         lane == static_cast<Lane>(StreamKind::kCollective);
}

/// The accesses of an instruction, shared by copies: those of a kernel are computed once for all
/// trials.
class Accesses {
 public:
  using Shared = std::shared_ptr<const std::vector<Access>>;
  Accesses() : Accesses(std::make_shared<const std::vector<Access>>()) {}
  explicit Accesses(Shared shared) : shared_(std::move(shared)) {}

  const Access& operator[](size_t i) const { return (*shared_)[i]; }
  auto begin() const { return shared_->begin(); }
  auto end() const { return shared_->end(); }
  void append(const Accesses& more) {
    std::vector<Access> all = *shared_;
    all.insert(all.end(), more.begin(), more.end());
    shared_ = std::make_shared<const std::vector<Access>>(std::move(all));
  }

 private:
  Shared shared_;
};

/// One instruction of a list, which runs `shift` iterations earlier than its loop (later, if
/// negative).
struct Item {
  Instruction instruction;
  int shift = 0;
  Accesses accesses;
  int n_in_flight = 0;  // for a start or a done: other moves of its lane in flight meanwhile
  std::array<bool, kNumLanes> moves{};  // by lane: true if a nested list has moves of it
  StreamKind stream = StreamKind::kCompute;
  Lane lane = 0;
  /// The kernel, if it is a move of that lane and phase; else null.
  const Kernel* move(Lane lane, MovePhase phase) const {
    const Kernel* k = instruction.kernel();
    return k && k->phase == phase && this->lane == lane ? k : nullptr;
  }
};

/// A list in which large items change places cheaply: it reorders pointers, and items stay in
/// place.
class Items {
 public:
  Items() = default;
  Items(const Items&) = delete;
  Items& operator=(const Items&) = delete;
  size_t size() const { return items_.size(); }
  bool empty() const { return items_.empty(); }
  Item& operator[](size_t i) { return *items_[i]; }
  const Item& operator[](size_t i) const { return *items_[i]; }

  void add(Item item) { insert(size(), std::move(item)); }
  void insert(size_t at, Item item) {
    if (blocks_.empty() || blocks_.back().size() == kBlock) blocks_.emplace_back().reserve(kBlock);
    blocks_.back().push_back(std::move(item));
    items_.insert(place(at), &blocks_.back().back());
  }
  void erase(size_t at) { items_.erase(place(at)); }
  /// Moves the item at `from` to `to`; the items between shift by one.
  void relocate(size_t from, size_t to) {
    if (from < to)
      std::rotate(place(from), place(from + 1), place(to + 1));
    else
      std::rotate(place(to), place(from), place(from + 1));
  }
  /// Moves the items i of [begin, end) with last[i] to the end of that range.
  void move_to_end(size_t begin, size_t end, const std::vector<bool>& last) {
    std::vector<Item*> moved;
    size_t to = begin;
    for (size_t i = begin; i < end; ++i)
      if (last[i])
        moved.push_back(items_[i]);
      else if (to++ != i)
        items_[to - 1] = items_[i];
    std::copy(moved.begin(), moved.end(), place(to));
  }

  template <typename Pointer>
  struct Iterator {
    Pointer at;
    auto& operator*() const { return **at; }
    Iterator& operator++() {
      ++at;
      return *this;
    }
    bool operator!=(const Iterator& other) const { return at != other.at; }
  };
  auto begin() { return Iterator<Item**>{items_.data()}; }
  auto end() { return Iterator<Item**>{items_.data() + size()}; }

 private:
  static constexpr size_t kBlock = 256;  // items that are allocated at a time
  std::vector<Item*>::iterator place(size_t at) {
    return items_.begin() + static_cast<std::ptrdiff_t>(at);
  }

  std::vector<std::vector<Item>> blocks_;  // all items ever added, at fixed addresses
  std::vector<Item*> items_;
};

}  // namespace stow
