#include <algorithm>
#include <cstdlib>
#include <limits>

#include "stowage/plan/memory_plan.h"

namespace stow {
namespace {

// A loop whose iterations would make the timeline longer than this is walked at its ends only.
constexpr int64_t kMaxInstants = 400'000;

int64_t count_instants(const std::vector<Instruction>& body) {
  int64_t n = 0;
  for (const Instruction& i : body) n += i.kernel() ? 1 : i.loop()->trip_count * count_instants(i.loop()->body);
  return n;
}

// Only what lies in the arena is laid out.
bool is_placed(const Buffer& buffer) {
  return buffer.role != BufferRole::kInput && !buffer.separate;
}

class Walker {
 public:
  explicit Walker(const Schedule& schedule) : schedule_(schedule) {
    lives_.resize(schedule.buffers.size());
    for (size_t b = 0; b < lives_.size(); ++b)
      lives_[b].resize(static_cast<size_t>(schedule.buffers[b].slots) *
                       schedule.buffers[b].parts.size());
    iteration_.resize(schedule.n_loops);
    sampled_.resize(schedule.n_loops);
    for (size_t b = 0; b < lives_.size(); ++b) {
      const Buffer& buffer = schedule.buffers[b];
      result_.first.push_back(result_.owner.size());
      result_.owner.insert(result_.owner.end(),
                           static_cast<size_t>(buffer.apart ? buffer.slots : buffer.iterations),
                           BufferId(b));
    }
    result_.problem.buffers.resize(result_.owner.size());
  }

  Lifetimes run() {
    walk(schedule_.instructions, 1);
    const int64_t end = static_cast<int64_t>(result_.at.size()) + 1;
    for (size_t b = 0; b < lives_.size(); ++b) {
      const Buffer& buffer = schedule_.buffers[b];
      for (size_t s = 0; s < lives_[b].size(); ++s) {
        Life& life = lives_[b][s];
        // What is returned lives to the end; what was never written has no life.
        if (life.open && buffer.role == BufferRole::kOutput) life.end = end;
        close(b, s);
      }
    }
    return std::move(result_);
  }

 private:
  struct Life {
    bool open = false;
    int64_t begin = 0, end = 0;
    int64_t iteration = 0;  // of Buffer::each
  };

  void walk(const std::vector<Instruction>& body, int64_t repeats) {
    for (const Instruction& instruction : body) {
      if (const Kernel* kernel = instruction.kernel()) {
        visit(*kernel);
        continue;
      }
      const Loop& loop = *instruction.loop();
      const int64_t n = loop.trip_count, inside = count_instants(loop.body);
      const bool sample = n > 4 && repeats * n * inside > kMaxInstants;
      sampled_[loop.id.index()] = sample;
      for (int64_t i = 0; i < n; ++i) {
        if (sample && i == 2) i = n - 2;
        iteration_[loop.id.index()] = i;
        walk(loop.body, sample ? repeats * 4 : repeats * n);
      }
    }
  }

  void visit(const Kernel& kernel) {
    const int64_t now = static_cast<int64_t>(result_.at.size());
    result_.at.push_back(&kernel);
    for (const View& view : kernel.inputs) touch(view, now, false);
    for (const View& view : kernel.outputs) touch(view, now, view.begins);
    if (kernel.scratch.valid()) {
      Life& life = lives_[kernel.scratch.index()][0];
      if (life.open) close(kernel.scratch.index(), 0);
      life = {true, now, now + 1, iteration_of(schedule_.buffers[kernel.scratch.index()])};
    }
  }

  void touch(const View& view, int64_t now, bool begins) {
    const size_t b = view.buffer.index();
    const Buffer& buffer = schedule_.buffers[b];
    if (!is_placed(buffer) || view.elems() == 0) return;
    // A piece that a loop fills bit by bit begins with the first bit.
    bit_bytes_ = std::numeric_limits<int64_t>::max();
    for (const LoopTerm& term : view.terms)
      if (iteration_[term.loop.index()] > 0)
        bit_bytes_ = std::min(bit_bytes_, std::abs(term.step * term.stride_bytes));
    if (lives_[b].size() == 1) {
      touch_piece(b, 0, now, begins, false);
      return;
    }
    // Dimensions that step over whole slots are walked; the others span bytes of one.
    bool sampled = false;
    int64_t low = view.offset_bytes;
    for (const LoopTerm& term : view.terms) {
      sampled |= sampled_[term.loop.index()];
      int64_t slot = term.start + term.step * iteration_[term.loop.index()];
      if (term.modulo > 0) slot %= term.modulo;
      low += slot * term.stride_bytes;
    }
    int64_t high = low + dtype_bytes(view.dtype);
    std::vector<std::pair<int64_t, int64_t>> outer;  // extent, stride in bytes
    for (size_t d = 0; d < view.dims.size(); ++d) {
      const int64_t stride = view.strides[d] * dtype_bytes(view.dtype);
      if (std::abs(stride) >= buffer.slot_bytes && view.dims[d] > 1)
        outer.emplace_back(view.dims[d], stride);
      else
        (stride < 0 ? low : high) += (view.dims[d] - 1) * stride;
    }
    if (sampled) {
      for (size_t piece = 0; piece < lives_[b].size(); ++piece)
        touch_piece(b, piece, now, begins, true);
      return;
    }
    int64_t n = 1;
    for (const auto& [extent, stride] : outer) n *= extent;
    for (int64_t i = 0; i < n; ++i) {
      int64_t shift = 0, rest = i;
      for (const auto& [extent, stride] : outer) {
        shift += rest % extent * stride;
        rest /= extent;
      }
      touch_range(b, low + shift, high + shift, now, begins);
    }
  }

  void touch_range(size_t b, int64_t low, int64_t high, int64_t now, bool begins) {
    const Buffer& buffer = schedule_.buffers[b];
    STOW_CHECK(low >= 0 && high <= buffer.bytes, "a window reaches out of its buffer");
    for (size_t piece = piece_at(buffer, low); piece < lives_[b].size(); ++piece) {
      if (piece_begin(buffer, piece) >= high) break;
      touch_piece(b, piece, now, begins, false);
    }
  }

  // The piece (a part of a slot) that holds a byte.
  static size_t piece_at(const Buffer& buffer, int64_t byte) {
    const int64_t slot = byte / buffer.slot_bytes, inside = byte % buffer.slot_bytes;
    const auto part = std::upper_bound(buffer.parts.begin(), buffer.parts.end(), inside) - 1;
    return static_cast<size_t>(slot) * buffer.parts.size() +
           static_cast<size_t>(part - buffer.parts.begin());
  }
  static int64_t piece_begin(const Buffer& buffer, size_t piece) {
    return static_cast<int64_t>(piece / buffer.parts.size()) * buffer.slot_bytes +
           buffer.parts[piece % buffer.parts.size()];
  }
  static int64_t piece_end(const Buffer& buffer, size_t piece) {
    return std::min(buffer.bytes, (piece + 1) % buffer.parts.size() == 0
                                      ? static_cast<int64_t>(piece / buffer.parts.size() + 1) *
                                            buffer.slot_bytes
                                      : piece_begin(buffer, piece + 1));
  }

  void touch_piece(size_t b, size_t piece, int64_t now, bool begins, bool sampled) {
    Life& life = lives_[b][piece];
    const Buffer& buffer = schedule_.buffers[b];
    const int64_t iteration = iteration_of(buffer);
    begins &= piece_end(buffer, piece) - piece_begin(buffer, piece) <= bit_bytes_;
    if (life.open && ((begins && !sampled) || iteration != life.iteration)) close(b, piece);
    if (!life.open) life = {true, now, now, iteration};
    life.end = now + 1;
  }

  int64_t iteration_of(const Buffer& buffer) const {
    return buffer.each.valid() ? iteration_[buffer.each.index()] : 0;
  }

  void close(size_t b, size_t piece) {
    Life& life = lives_[b][piece];
    if (!life.open) return;
    life.open = false;
    const Buffer& buffer = schedule_.buffers[b];
    if (buffer.slot_bytes == 0) return;
    pack::Rect rect;
    rect.offset = piece_begin(buffer, piece);
    rect.size = piece_end(buffer, piece) - rect.offset;
    rect.lower = life.begin;
    rect.upper = life.end;
    size_t entry = result_.first[b];
    if (buffer.apart) {
      entry += piece / buffer.parts.size();
      rect.offset %= buffer.slot_bytes;
    } else if (buffer.each.valid()) {
      entry += static_cast<size_t>(life.iteration);
    }
    result_.problem.buffers[entry].rects.push_back(rect);
  }

  const Schedule& schedule_;
  std::vector<std::vector<Life>> lives_;
  std::vector<int64_t> iteration_;
  std::vector<bool> sampled_;
  int64_t bit_bytes_ = 0;  // the least step of a loop in a later iteration around this touch
  Lifetimes result_;
};

}  // namespace

Lifetimes compute_lifetimes(const Schedule& schedule) { return Walker(schedule).run(); }

}  // namespace stow
