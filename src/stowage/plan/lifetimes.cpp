#include <algorithm>

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
  return buffer.role != BufferRole::kInput && !is_separate_output(buffer);
}

class Walker {
 public:
  explicit Walker(const Schedule& schedule) : schedule_(schedule) {
    lives_.resize(schedule.buffers.size());
    for (size_t b = 0; b < lives_.size(); ++b)
      lives_[b].resize(static_cast<size_t>(schedule.buffers[b].slots));
    iteration_.resize(schedule.n_loops);
    sampled_.resize(schedule.n_loops);
    result_.problem.buffers.resize(schedule.buffers.size());
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
      life = {true, now, now + 1};
    }
  }

  void touch(const View& view, int64_t now, bool begins) {
    const size_t b = view.buffer.index();
    const Buffer& buffer = schedule_.buffers[b];
    if (!is_placed(buffer) || view.elems() == 0) return;
    size_t first = 0, last = static_cast<size_t>(buffer.slots);
    bool sampled = false;
    if (buffer.slots > 1) {
      int64_t low = view.offset_bytes, high;
      for (const LoopTerm& term : view.terms) {
        sampled |= sampled_[term.loop.index()];
        int64_t slot = term.start + term.step * iteration_[term.loop.index()];
        if (term.modulo > 0) slot %= term.modulo;
        low += slot * term.stride_bytes;
      }
      high = low;
      for (size_t d = 0; d < view.dims.size(); ++d) {
        const int64_t reach = (view.dims[d] - 1) * view.strides[d] * dtype_bytes(view.dtype);
        (reach < 0 ? low : high) += reach;
      }
      high += dtype_bytes(view.dtype);
      STOW_CHECK(low >= 0 && high <= buffer.bytes, "a window reaches out of its buffer");
      if (!sampled) {
        first = static_cast<size_t>(low / buffer.slot_bytes);
        last = static_cast<size_t>((high + buffer.slot_bytes - 1) / buffer.slot_bytes);
      }
    }
    for (size_t s = first; s < last; ++s) {
      Life& life = lives_[b][s];
      if (begins && !sampled && life.open) close(b, s);
      if (!life.open) life = {true, now, now};
      life.end = now + 1;
    }
  }

  void close(size_t b, size_t slot) {
    Life& life = lives_[b][slot];
    if (!life.open) return;
    life.open = false;
    const Buffer& buffer = schedule_.buffers[b];
    if (buffer.slot_bytes == 0) return;
    pack::Rect rect;
    rect.offset = static_cast<int64_t>(slot) * buffer.slot_bytes;
    rect.size = buffer.slot_bytes;
    rect.lower = life.begin;
    rect.upper = life.end;
    result_.problem.buffers[b].rects.push_back(rect);
  }

  const Schedule& schedule_;
  std::vector<std::vector<Life>> lives_;
  std::vector<int64_t> iteration_;
  std::vector<bool> sampled_;
  Lifetimes result_;
};

}  // namespace

Lifetimes compute_lifetimes(const Schedule& schedule) { return Walker(schedule).run(); }

}  // namespace stow
