#include "stowage/runtime/disk/window.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "stowage/base/bytes.h"
#include "stowage/base/error.h"

namespace stow {
namespace {

// Pieces of this size keep a disk busy; those that need no copy may be larger.
constexpr int64_t kBouncePiece = 128 << 10, kDirectPiece = 512 << 10;
// Contiguous bytes worth pieces of their own, and a gap that it is cheaper to read than to skip.
constexpr int64_t kLongRun = 64 << 10, kSmallGap = 4096;

// A window as an outer nest of chunks, each an inner nest of runs in the order of the disk.
struct Layout {
  int64_t offset;
  std::byte* memory;
  std::vector<DiskAxis> outer, inner;
  int64_t run;   // bytes that are contiguous on both sides
  int64_t span;  // bytes of the disk from a chunk's first to its last
  bool dense;    // all of which belong to the window
};

Layout layout_of(const DiskWindow& window) {
  Layout layout{window.offset, window.memory, {}, {}, window.width, 0, true};
  std::vector<DiskAxis> axes;
  for (DiskAxis axis : window.axes) {
    if (axis.extent == 1) continue;
    if (axis.disk_bytes < 0) {
      layout.offset += (axis.extent - 1) * axis.disk_bytes;
      layout.memory += (axis.extent - 1) * axis.memory_bytes;
      axis.disk_bytes = -axis.disk_bytes;
      axis.memory_bytes = -axis.memory_bytes;
    }
    axes.push_back(axis);
  }
  // The order of the disk, innermost last. What repeats the same bytes comes first.
  std::stable_sort(axes.begin(), axes.end(), [](const DiskAxis& a, const DiskAxis& b) {
    if ((a.disk_bytes == 0) != (b.disk_bytes == 0)) return a.disk_bytes == 0;
    return a.disk_bytes > b.disk_bytes;
  });
  while (!axes.empty() && axes.back().disk_bytes == layout.run &&
         axes.back().memory_bytes == layout.run) {
    layout.run *= axes.back().extent;
    axes.pop_back();
  }
  layout.span = layout.run;
  int64_t used = layout.run;
  while (!axes.empty() && layout.run < kLongRun) {
    const DiskAxis& axis = axes.back();
    const int64_t gap = axis.disk_bytes - layout.span;
    if (gap < 0 || gap > std::max(kSmallGap, layout.span)) break;
    layout.span += (axis.extent - 1) * axis.disk_bytes;
    used *= axis.extent;
    layout.inner.insert(layout.inner.begin(), axis);
    axes.pop_back();
  }
  layout.dense = used == layout.span;
  layout.outer = std::move(axes);
  return layout;
}

// Walks a nest from its innermost axis, the last.
class Odometer {
 public:
  explicit Odometer(const std::vector<DiskAxis>& axes) : axes_(axes), index_(axes.size(), 0) {}
  int64_t disk() const { return disk_; }
  int64_t memory() const { return memory_; }
  bool over() const { return over_; }
  void restart() {
    std::fill(index_.begin(), index_.end(), 0);
    disk_ = memory_ = 0;
    over_ = false;
  }
  void next() {
    for (size_t a = axes_.size(); a-- > 0;) {
      const DiskAxis& axis = axes_[a];
      disk_ += axis.disk_bytes;
      memory_ += axis.memory_bytes;
      if (++index_[a] < axis.extent) return;
      index_[a] = 0;
      disk_ -= axis.extent * axis.disk_bytes;
      memory_ -= axis.extent * axis.memory_bytes;
    }
    over_ = true;
  }

 private:
  const std::vector<DiskAxis>& axes_;
  std::vector<int64_t> index_;
  int64_t disk_ = 0, memory_ = 0;
  bool over_ = false;
};

// Most runs are whole blocks or single elements.
void copy_run(std::byte* to, const std::byte* from, int64_t bytes) {
  switch (bytes) {
    case 2:
      std::memcpy(to, from, 2);
      return;
    case 4:
      std::memcpy(to, from, 4);
      return;
    case 8:
      std::memcpy(to, from, 8);
      return;
    default:
      std::memcpy(to, from, static_cast<size_t>(bytes));
  }
}

class Mover {
 public:
  Mover(TransferQueue& transfers, bool write, const Layout& layout, std::span<std::byte> bounce,
        int64_t block)
      : transfers_(transfers),
        write_(write),
        layout_(layout),
        bounce_(bounce.data()),
        block_(block),
        runs_(layout.inner) {
    const auto size = static_cast<int64_t>(bounce.size()) / block_ * block_;
    slot_bytes_ = std::min({kBouncePiece, align_up(layout.span, block_) + block_, size});
    n_slots_ = std::min<int64_t>(size / slot_bytes_, TransferQueue::kMost);
  }

  void run() {
    for (Odometer chunk(layout_.outer); !chunk.over(); chunk.next())
      move_chunk(layout_.offset + chunk.disk(), layout_.memory + chunk.memory());
    while (transfers_.count() > 0) retire();
  }

 private:
  struct Piece {
    DiskPiece io;
    int64_t begin = 0, end = 0;   // bytes of the chunk that it carries
    int64_t chunk = 0;            // where that begins
    std::byte* memory = nullptr;  // of the chunk
    bool direct = false;
  };

  int64_t down(int64_t at) const { return at & ~(block_ - 1); }
  int64_t up(int64_t at) const { return align_up(at, block_); }

  void move_chunk(int64_t chunk, std::byte* memory) {
    const int64_t end = chunk + layout_.span;
    const auto phase = reinterpret_cast<intptr_t>(memory) - static_cast<intptr_t>(chunk);
    const bool in_step = layout_.inner.empty() && (phase & (block_ - 1)) == 0;
    for (int64_t at = chunk; at < end;) {
      Piece piece{{}, at, end, chunk, memory, false};
      if (in_step && at == up(at) && end - at >= block_) {
        piece.direct = true;
        piece.end = std::min(down(end), at + kDirectPiece);
      } else if (in_step && at != up(at)) {
        piece.end = std::min(end, up(at));
      } else {
        piece.end = std::min(end, down(at) + slot_bytes_);
      }
      at = piece.end;
      begin(piece);
    }
  }

  void begin(Piece piece) {
    while (transfers_.count() >= (piece.direct ? TransferQueue::kMost : n_slots_)) retire();
    const uint64_t number = begun_++;
    if (piece.direct) {
      piece.io = {write_, piece.begin, piece.memory + (piece.begin - piece.chunk),
                  piece.end - piece.begin};
    } else {
      // The pieces in flight are the ones before this: their slots are others.
      std::byte* const slot =
          bounce_ + static_cast<int64_t>(number % static_cast<uint64_t>(n_slots_)) * slot_bytes_;
      piece.io = {write_, down(piece.begin), slot, up(piece.end) - down(piece.begin)};
      if (write_) fill(piece);
    }
    pieces_[number % pieces_.size()] = piece;
    transfers_.begin(piece.io);
  }

  void retire() {
    transfers_.end_oldest();
    const Piece& piece = pieces_[retired_++ % pieces_.size()];
    if (!write_ && !piece.direct) copy(piece);
  }

  // The bytes of the blocks outside the window are read before the blocks are written.
  void fill(const Piece& piece) {
    const DiskPiece& io = piece.io;
    const bool head = io.offset < piece.begin, tail = piece.end < io.end();
    if (!layout_.dense || head || tail) {
      while (transfers_.touches(io.offset, io.end())) retire();
      const auto read = [&](int64_t from, int64_t bytes) {
        transfers_.move_now({false, from, io.memory + (from - io.offset), bytes});
      };
      if (!layout_.dense || io.bytes <= 2 * block_) {
        read(io.offset, io.bytes);
      } else {
        if (head) read(io.offset, block_);
        if (tail) read(io.end() - block_, block_);
      }
    }
    copy(piece);
  }

  // Between the bounce and memory, in the window's direction.
  void copy(const Piece& piece) {
    std::byte* const bounce = piece.io.memory + (piece.chunk - piece.io.offset);
    const auto copy_at = [&](int64_t disk, int64_t memory, int64_t bytes) {
      write_ ? copy_run(bounce + disk, piece.memory + memory, bytes)
             : copy_run(piece.memory + memory, bounce + disk, bytes);
    };
    const int64_t begin = piece.begin - piece.chunk, end = piece.end - piece.chunk;
    if (layout_.inner.empty()) return copy_at(begin, begin, end - begin);
    if (begin == 0) {
      runs_.restart();
      inside_ = 0;
    }
    while (!runs_.over() && runs_.disk() + inside_ < end) {
      const int64_t n = std::min(layout_.run - inside_, end - runs_.disk() - inside_);
      copy_at(runs_.disk() + inside_, runs_.memory() + inside_, n);
      inside_ += n;
      if (inside_ < layout_.run) continue;
      inside_ = 0;
      runs_.next();
    }
  }

  TransferQueue& transfers_;
  bool write_;
  const Layout& layout_;
  std::byte* bounce_;
  int64_t block_, slot_bytes_ = 0, n_slots_ = 0;
  Odometer runs_;       // of the chunk that was copied last
  int64_t inside_ = 0;  // the run there
  std::array<Piece, DiskQueue::kDepth> pieces_;
  uint64_t begun_ = 0, retired_ = 0;
};

}  // namespace

void move_window(TransferQueue& transfers, bool write, const DiskWindow& window,
                 std::span<std::byte> bounce, int64_t block_bytes) {
  for (const DiskAxis& axis : window.axes)
    if (axis.extent == 0) return;
  const Layout layout = layout_of(window);
  STOW_CHECK(static_cast<int64_t>(bounce.size()) >= block_bytes, "a bounce of {} bytes",
             bounce.size());
  Mover(transfers, write, layout, bounce, block_bytes).run();
}

}  // namespace stow
