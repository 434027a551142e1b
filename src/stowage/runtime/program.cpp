#include "stowage/runtime/program.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <ctime>
#include <deque>
#include <utility>

#include "stowage/runtime/arena_guard.h"
#include "stowage/runtime/streams.h"

namespace stow {
struct Program::Frame {
  std::vector<Place> bases;          // of buffers
  std::vector<int64_t> iterations;   // of loops
  std::vector<std::byte*> addresses;  // of the operands of each kernel, as it ran last
  std::array<std::byte*, kNumMemoryKinds> arenas{};  // null on disk
  size_t instant = 0;
  Streams* streams = nullptr;
  uint64_t submitted = 0;  // the last kernel given to the compute stream; 0: all are done
  std::vector<std::deque<uint64_t>> tickets;  // of moves under way, by transfer
  RunObserver* observer = nullptr;
  const comm::MeshPosition* mesh = nullptr;
};

namespace {

// While it lives, a checking build lets nobody touch the arenas, but for what a kernel is shown.
class HiddenArenas {
 public:
  HiddenArenas(const std::array<std::byte*, kNumMemoryKinds>& arenas,
               const std::array<int64_t, kNumMemoryKinds>& bytes)
      : arenas_(arenas), bytes_(bytes) {
    for (size_t kind = 0; kind < arenas_.size(); ++kind)
      if (arenas_[kind]) poison(arenas_[kind], bytes_[kind]);
  }
  ~HiddenArenas() {
    for (size_t kind = 0; kind < arenas_.size(); ++kind)
      if (arenas_[kind]) unpoison(arenas_[kind], bytes_[kind]);
  }
  HiddenArenas(const HiddenArenas&) = delete;
  HiddenArenas& operator=(const HiddenArenas&) = delete;

 private:
  std::array<std::byte*, kNumMemoryKinds> arenas_;
  std::array<int64_t, kNumMemoryKinds> bytes_;
};

}  // namespace

Program::Program(Schedule schedule, MemoryPlan plan, TargetPtr target)
    : schedule_(std::move(schedule)), plan_(std::move(plan)),
      target_(std::move(target)),
      reads_directly_(target_->has_host_memory()) {
  steps_ = bind(schedule_.instructions, LoopId());
  if (kFillsDeadBytes) find_deaths();
}

void Program::find_deaths() {
  const Lifetimes lifetimes = compute_lifetimes(schedule_);
  if (!lifetimes.same_in_every_run) return;
  deaths_.resize(lifetimes.at.size());
  for (size_t e = 0; e < lifetimes.owner.size(); ++e) {
    const size_t b = lifetimes.owner[e].index();
    for (const pack::Rect& rect : lifetimes.problem.buffers[e].rects)
      if (rect.upper > rect.lower && rect.upper <= static_cast<int64_t>(deaths_.size()))
        deaths_[static_cast<size_t>(rect.upper - 1)].push_back(
            {schedule_.buffers[b].kind,
             plan_.offsets[b][static_cast<size_t>(lifetimes.slot(e))] + rect.offset, rect.size});
  }
}

Place Program::locate(const Operand& operand, const Frame& frame) const {
  int64_t offset = operand.offset_bytes;
  for (const LoopTerm& term : operand.terms)
    offset += term.bytes_at(frame.iterations[term.loop.index()]);
  if (const Buffer* buffer = operand.places) {
    const int64_t slot = buffer->independent_slots ? offset / buffer->slot_bytes : 0;
    if (slot == 0 && buffer->first_slot.valid()) {
      const size_t first = buffer->first_slot.index();
      if (has_places(schedule_.buffers[first]))
        offset += plan_.offsets[first][static_cast<size_t>(
            schedule_.buffers[first].place(frame.iterations, 0))];
      return frame.bases[first].plus(offset);
    }
    const int64_t place = buffer->place(frame.iterations, slot);
    offset += plan_.offsets[operand.buffer][static_cast<size_t>(place)] - slot * buffer->slot_bytes;
  }
  return frame.bases[operand.buffer].plus(offset);
}

void Program::set_accessible(const Operand& operand, const Place& at, const Frame& frame,
                             bool accessible) const {
  if (!kPoisonsArena || !operand.in_arena || at.disk) return;
  if (operand.places && operand.places->first_slot.valid()) {
    const size_t first = operand.places->first_slot.index();
    const Buffer& buffer = schedule_.buffers[first];
    const std::byte* const begin = frame.bases[first].memory;
    const bool in_arena = buffer.role != BufferRole::kInput && !buffer.outside_arena;
    if (!in_arena && begin <= at.memory && at.memory < begin + buffer.bytes) return;
  }
  const int64_t bytes = operand.high_bytes - operand.low_bytes;
  std::byte* const low = at.memory + operand.low_bytes;
  accessible ? unpoison(low, bytes) : poison(low, bytes);
}

// The first eight bytes at most, for the runner's own decisions.
const std::byte* Program::read_on_host(const Operand& operand, Frame& frame,
                                       std::byte* copy) const {
  finish_kernels(frame);
  const Place at = locate(operand, frame);
  set_accessible(operand, at, frame, true);
  // A loop reads one byte in every iteration: no call for it.
  if (!reads_directly_)
    target_->copy({at.memory, DType::kU8, {operand.high_bytes}, {1}},
                  {copy, DType::kU8, {operand.high_bytes}, {1}}, 1);
  else if (operand.high_bytes == 1)
    *copy = *at.memory;
  else
    std::memcpy(copy, at.memory, static_cast<size_t>(operand.high_bytes));
  set_accessible(operand, at, frame, false);
  return copy;
}

inline void Program::run_kernel(const Step& step, Frame& frame, bool is_first,
                                int64_t iteration) const {
  std::byte** const at = frame.addresses.data() + step.first_address;
  if (is_first) {
    for (size_t k = 0; k < step.operands.size(); ++k)
      at[k] = locate(step.operands[k], frame).memory;
  } else {
    for (const MovingOperand& moving : step.moving) {
      std::byte*& address = at[moving.operand];
      const size_t n = moving.deltas.size();
      if (n == 0)
        address = locate(step.operands[moving.operand], frame).memory;
      else if (address)  // null where there are no elements
        address += moving.deltas[n == 1   ? 0
                                 : n == 2 ? static_cast<uint64_t>(iteration) & 1
                                          : static_cast<uint64_t>(iteration) % n];
    }
  }
  const auto set_all_accessible = [&](bool accessible) {
    for (size_t k = 0; k < step.operands.size(); ++k)
      set_accessible(step.operands[k], {at[k]}, frame, accessible);
  };
  if (kPoisonsArena) set_all_accessible(true);
  const double begin_s = frame.observer ? steady_seconds() : 0;
  std::byte** const outputs = at + step.n_inputs;
  std::byte* const scratch = step.has_scratch ? outputs[step.n_outputs] : nullptr;
  if (step.runs_here)
    step.kernel->run({at, step.n_inputs}, {outputs, step.n_outputs}, scratch);
  else
    run_on_stream(step, frame, at);
  if (kPoisonsArena) set_all_accessible(false);
  if (frame.observer || kFillsDeadBytes)
    end_instant(step, frame, begin_s);
  else
    ++frame.instant;
}

// A collective, or a kernel that goes to the compute stream. The addresses of the frame are others
// by the time that it runs.
void Program::run_on_stream(const Step& step, Frame& frame, std::byte** at) const {
  const size_t first_output = step.n_inputs, first_scratch = first_output + step.n_outputs;
  if (step.collective) {
    run_collective(step, frame, at);
    return;
  }
  std::vector<std::byte*> addresses(at, at + step.operands.size());
  frame.submitted =
      frame.streams->stream(StreamKind::kCompute)
          .start([&step, first_output, first_scratch, addresses = std::move(addresses)] {
            std::byte* const* const a = addresses.data();
            step.kernel->run({a, step.n_inputs}, {a + first_output, step.n_outputs},
                             step.has_scratch ? a[first_scratch] : nullptr);
          });
  // Who looks at each kernel, or at what it leaves, looks at it done.
  if (frame.observer || kPoisonsArena || kFillsDeadBytes) finish_kernels(frame);
}

// The position's own number (axis_index) needs no other position and no stream.
void Program::run_collective(const Step& step, Frame& frame, std::byte** at) const {
  const auto run = [this, &step, mesh = frame.mesh](std::byte* const* a) {
    std::byte* const* const outputs = a + step.n_inputs;
    step.collective->run({a, step.n_inputs}, {outputs, step.n_outputs},
                         step.has_scratch ? outputs[step.n_outputs] : nullptr, mesh, *target_);
  };
  if (step.stream != StreamKind::kCollective) {
    finish_kernels(frame);
    return run(at);
  }
  if (step.phase == MovePhase::kDone) return finish_move(step, frame);
  const bool whole = step.phase == MovePhase::kWhole;
  if (whole) finish_kernels(frame);
  Stream& stream = frame.streams->stream(step.stream);
  // The thread that waits for a whole move tells the observer of it.
  const uint64_t ticket = stream.start(
      [run, &step, observer = whole ? nullptr : frame.observer,
       instant = static_cast<int64_t>(frame.instant), kernels = frame.submitted,
       &compute = frame.streams->stream(StreamKind::kCompute),
       addresses = std::vector<std::byte*>(at, at + step.operands.size())] {
        if (kernels > 0) compute.wait(kernels);  // they read or write where it does
        const double begin_s = observer ? steady_seconds() : 0;
        run(addresses.data());
        if (observer) observer->ran({step.source, step.stream, instant, begin_s, steady_seconds()});
      });
  if (whole)
    stream.wait(ticket);
  else
    frame.tickets[step.transfer].push_back(ticket);
}

inline void Program::finish_kernels(Frame& frame) const {
  if (frame.submitted > 0)
    frame.streams->stream(StreamKind::kCompute).wait(std::exchange(frame.submitted, 0));
}

void Program::run_move(const Step& step, Frame& frame) const {
  const Place from = locate(step.operands[0], frame), to = locate(step.operands[1], frame);
  const Place scratch = step.has_scratch ? locate(step.operands[2], frame) : Place();
  const auto set_all_accessible = [&](bool accessible) {
    set_accessible(step.operands[0], from, frame, accessible);
    set_accessible(step.operands[1], to, frame, accessible);
    if (step.has_scratch) set_accessible(step.operands[2], scratch, frame, accessible);
  };
  if (kPoisonsArena) set_all_accessible(true);
  const double begin_s = frame.observer ? steady_seconds() : 0;
  const std::span<std::byte> bounce(scratch.memory, static_cast<size_t>(step.scratch_bytes));
  if (step.phase == MovePhase::kStart)
    start_move(step, from, to, bounce, frame);
  else if (step.phase == MovePhase::kDone)
    finish_move(step, frame);
  else {
    finish_kernels(frame);
    move(from, to, *step.move, bounce, *target_, target_->threads());
  }
  if (kPoisonsArena) set_all_accessible(false);
  end_instant(step, frame, begin_s);
}

void Program::end_instant(const Step& step, Frame& frame, double begin_s) const {
  if (frame.observer && step.phase != MovePhase::kStart)
    frame.observer->ran({step.source, StreamKind::kCompute, static_cast<int64_t>(frame.instant),
                         begin_s, steady_seconds()});
  if (kFillsDeadBytes && !deaths_.empty())
    for (const Death& death : deaths_[frame.instant])
      if (std::byte* const arena = frame.arenas[static_cast<size_t>(death.kind)])
        fill_dead(arena + death.offset, death.bytes);
  ++frame.instant;
}

void Program::start_move(const Step& step, const Place& from, const Place& to,
                         std::span<std::byte> bounce, Frame& frame) const {
  frame.tickets[step.transfer].push_back(frame.streams->stream(step.stream).start(
      [this, &step, from, to, bounce, observer = frame.observer,
       instant = static_cast<int64_t>(frame.instant), kernels = frame.submitted,
       &compute = frame.streams->stream(StreamKind::kCompute)] {
        if (kernels > 0) compute.wait(kernels);  // they read or write where the move does
        const double begin_s = observer ? steady_seconds() : 0;
        move(from, to, *step.move, bounce, *target_, 1);
        if (observer) observer->ran({step.source, step.stream, instant, begin_s, steady_seconds()});
      }));
}

void Program::finish_move(const Step& step, Frame& frame) const {
  std::deque<uint64_t>& tickets = frame.tickets[step.transfer];
  STOW_CHECK(!tickets.empty(), "a move is awaited that was not started");
  const uint64_t ticket = tickets.front();
  tickets.pop_front();
  frame.streams->stream(step.stream).wait(ticket);
}

// Locates the operands of a loop or a branch, and of all in it, in the first iteration.
void Program::set_to_begin(const Step& step, Frame& frame) const {
  if (step.loop.valid()) frame.iterations[step.loop.index()] = 0;
  std::byte** const at = frame.addresses.data() + step.first_address;
  for (size_t k = 0; k < step.operands.size(); ++k) at[k] = locate(step.operands[k], frame).memory;
  for (const RotatingOperand& rotating : step.rotating) {
    int64_t& iteration = frame.iterations[rotating.loop.index()];
    const int64_t before = iteration;  // the loop may be one around
    for (size_t i = 1; i < rotating.period; ++i) {
      iteration = static_cast<int64_t>(i);
      frame.addresses[rotating.first_other + i - 1] =
          locate(step.operands[rotating.operand], frame).memory;
    }
    iteration = before;
  }
  for (const std::vector<Step>& part : step.parts)
    for (const Step& inner : part) set_to_begin(inner, frame);
}

// Observers and checking builds look at every kernel.
bool Program::run_target_loop(const Step& step, Frame& frame) const {
  if (!step.target_loop || frame.observer || kPoisonsArena || (kFillsDeadBytes && !deaths_.empty()))
    return false;
  set_to_begin(step, frame);
  step.target_loop->run(frame.addresses.data());
  return true;
}

void Program::run_steps(const std::vector<Step>& steps, Frame& frame, bool is_first,
                        int64_t iteration) const {
  for (const Step& step : steps) {
    if (!step.guard.holds(iteration)) continue;
    switch (step.kind) {
      case StepKind::kKernel:
        if (step.move)
          run_move(step, frame);
        else
          run_kernel(step, frame,
                     is_first || (step.guard.begin > 0 && iteration == step.guard.begin),
                     iteration);
        break;
      case StepKind::kLoop:
        if (run_target_loop(step, frame)) break;
        for (int64_t i = 0; i < step.trip_count; ++i) {
          frame.iterations[step.loop.index()] = i;
          run_steps(step.parts[0], frame, i == 0, i);
        }
        break;
      case StepKind::kOpenLoop:
        if (run_target_loop(step, frame)) break;
        for (int64_t i = 0;; ++i) {
          frame.iterations[step.loop.index()] = i;
          run_steps(step.parts[1], frame, i == 0, i);
          std::byte predicate[8];
          if (*read_on_host(step.operands[0], frame, predicate) == std::byte{0}) break;
          run_steps(step.parts[0], frame, i == 0, i);
        }
        break;
      case StepKind::kBranch: {
        std::byte copy[8];
        const std::byte* const at = read_on_host(step.operands[0], frame, copy);
        int32_t index = 0;
        if (step.is_bool_index)
          index = *at != std::byte{0};
        else
          std::memcpy(&index, at, sizeof index);
        const auto last = static_cast<int32_t>(step.parts.size()) - 1;
        run_steps(step.parts[static_cast<size_t>(std::clamp(index, 0, last))], frame, true);
        break;
      }
    }
  }
}

std::vector<DeviceBufferPtr> Program::run(Device& device,
                                          std::span<const DeviceBufferPtr> arguments,
                                          RunObserver* observer,
                                          const comm::MeshPosition* mesh) const {
  STOW_CHECK(arguments.size() == schedule_.inputs.size());
  Frame frame;
  frame.observer = observer;
  frame.mesh = mesh;
  frame.bases.resize(schedule_.buffers.size());
  frame.addresses.resize(n_addresses_);
  frame.iterations.resize(schedule_.n_loops, 0);

  // Outputs that share an arena's bytes make it theirs; else the device's kept arena serves.
  const size_t n = schedule_.buffers.size();
  std::vector<DeviceBufferPtr> by_buffer(n);
  std::array<std::vector<ByteRange>, kNumMemoryKinds> kept;
  std::array<std::vector<size_t>, kNumMemoryKinds> kept_buffers;
  for (size_t b = 0; b < n; ++b) {
    const Buffer& buffer = schedule_.buffers[b];
    const auto kind = static_cast<size_t>(buffer.kind);
    if (buffer.role == BufferRole::kInput) {
      by_buffer[b] = arguments[static_cast<size_t>(buffer.index)];
    } else if (buffer.outside_arena || (buffer.role == BufferRole::kOutput && buffer.bytes == 0)) {
      by_buffer[b] = device.allocate_unfilled(buffer.bytes, buffer.kind);
    } else if (buffer.role == BufferRole::kOutput) {
      kept[kind].push_back({plan_.offsets[b][0], plan_.offsets[b][0] + buffer.bytes});
      kept_buffers[kind].push_back(b);
    }
  }
  std::array<DeviceBufferPtr, kNumMemoryKinds> arenas;
  for (size_t kind = 0; kind < arenas.size(); ++kind)
    if (const int64_t bytes = plan_.arena_bytes[kind]; bytes > 0)
      arenas[kind] = kept[kind].empty()
                         ? device.borrow_arena(bytes, static_cast<MemoryKind>(kind))
                         : device.allocate_unfilled(bytes, static_cast<MemoryKind>(kind));
  for (size_t b = 0; b < n; ++b) {
    const Buffer& buffer = schedule_.buffers[b];
    const DeviceBufferPtr& arena = arenas[static_cast<size_t>(buffer.kind)];
    if (by_buffer[b])
      frame.bases[b] = by_buffer[b]->place();
    else if (arena)
      frame.bases[b] = arena->place().plus(has_places(buffer) ? 0 : plan_.offsets[b][0]);
  }
  for (size_t kind = 0; kind < arenas.size(); ++kind)
    if (arenas[kind]) frame.arenas[kind] = arenas[kind]->place().memory;
  frame.streams = &device.streams();
  frame.tickets.resize(n_transfers_);
  {
    const HiddenArenas hidden(frame.arenas, plan_.arena_bytes);
    const Drain drain(device.streams());  // an error leaves none at work on memory that goes
    try {
      run_steps(steps_, frame, true);
      finish_kernels(frame);
    } catch (const std::exception& error) {
      // Collectives under way would be waited for until the others come.
      if (mesh) mesh->communicator->abort(fmt::format("{}: {}", device.name(), error.what()));
      throw;
    }
  }

  for (size_t kind = 0; kind < arenas.size(); ++kind) {
    if (kept[kind].empty()) continue;
    std::vector<DeviceBufferPtr> parts = device.split(std::move(arenas[kind]), kept[kind]);
    for (size_t i = 0; i < parts.size(); ++i)
      by_buffer[kept_buffers[kind][i]] = std::move(parts[i]);
  }
  std::vector<DeviceBufferPtr> results;
  for (const View& view : schedule_.outputs) results.push_back(by_buffer[view.buffer.index()]);
  return results;
}

}  // namespace stow
