#include "stowage/runtime/comm/window.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "stowage/base/error.h"

namespace stow::comm {
namespace {

// Looks before a rank sleeps: a few microseconds. Longer would keep the rank it waits for off a
// core that they share.
constexpr int kLooks = 64;
// A rank that sleeps looks up this often, to see that others wait in a circle.
constexpr int64_t kLookUpNs = 100'000'000;

int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

void pause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#endif
}

std::string seconds(int64_t ns) {
  return fmt::format("{:.3g} s", static_cast<double>(ns) * 1e-9);
}

}  // namespace

// While it lives, the caller reads memory of other ranks of its process. They do not give it up
// before, even if the collectives end: either the reader sees that, or they see the reader.
class WindowCommunicator::Reading {
 public:
  explicit Reading(const WindowCommunicator& reader) : state_(reader.own_) {
    state_.reads_memory.store(1);
    if (!reader.region_->is_aborted()) return;
    state_.reads_memory.store(0);
    throw CommunicationError(reader.region_->abort_message());
  }
  ~Reading() { state_.reads_memory.store(0); }
  Reading(const Reading&) = delete;
  Reading& operator=(const Reading&) = delete;

 private:
  RankState& state_;
};

WindowCommunicator::WindowCommunicator(std::shared_ptr<Region> region, int32_t rank,
                                       double timeout_s, bool use_windows)
    : Communicator(rank, region->n_ranks(), region->devices_per_process()),
      region_(std::move(region)),
      own_(region_->state(rank)),
      timeout_ns_(static_cast<int64_t>(timeout_s * 1e9)),
      use_windows_(use_windows) {}

void WindowCommunicator::abort(const std::string& message) {
  region_->abort(message);
}

bool WindowCommunicator::is_local(int32_t rank) const {
  return !use_windows_ && rank / devices_per_process() == process();
}

void WindowCommunicator::end(const std::string& message) const {
  if (!region_->abort(message))
    while (!region_->is_aborted()) pause();  // the first is writing its message
  throw CommunicationError(region_->abort_message());
}

void WindowCommunicator::enter(const Exchange& exchange) {
  if (region_->is_aborted()) throw CommunicationError(region_->abort_message());
  const uint64_t call = own_.call.load(std::memory_order_relaxed) + 1;
  CallRecord& record = own_.records[call % RankState::kRecords];
  record.name.set(exchange.name());
  record.detail.set(exchange.detail);
  record.call.store(call);
  own_.call.store(call);
  own_.inside.store(1);
}

void WindowCommunicator::post(int32_t reader, const Slot& slot, uint64_t number) const {
  Pair& pair = region_->pair(rank(), reader);
  pair.slots[number % 2] = slot;
  pair.sent.store(number, std::memory_order_release);
  region_->ring(reader);
}

// Writes chunk number `chunk` for readers of other processes into a half of the window.
void WindowCommunicator::write_chunk(const Exchange& exchange, int64_t chunk,
                                     const std::vector<int32_t>& readers) {
  std::vector<Chunk>& in_flight = in_flight_[static_cast<size_t>(half_)];
  for (const Chunk& sent : in_flight) wait(sent.reader, sent.number, true);
  in_flight.clear();
  const int64_t chunk_bytes = exchange.chunk_bytes(), from = chunk * chunk_bytes;
  std::byte* place = region_->window(rank()) + half_ * kHalfWindowBytes;
  Slot slot = {exchange.signature(), own_.call.load(std::memory_order_relaxed), 0, {}};
  for (size_t i = 0; i < readers.size(); ++i) {
    if (i == 0 || !exchange.same_for_all) {
      const Strided piece = exchange.piece_for(readers[i]);
      const int64_t bytes = std::clamp<int64_t>(piece.bytes() - from, 0, chunk_bytes);
      copy(piece, from, contiguous(place, bytes), 0, bytes);
      slot.offset = region_->offset_of(place);
      place += chunk_bytes;
    }
    const int32_t reader = exchange.group->ranks[static_cast<size_t>(readers[i])];
    const uint64_t number =
        region_->pair(rank(), reader).sent.load(std::memory_order_relaxed) + 1;
    post(reader, slot, number);
    in_flight.push_back({reader, number});
  }
  half_ = 1 - half_;
}

Slot WindowCommunicator::await_chunk(const Exchange& exchange, int32_t writer,
                                     uint64_t number) const {
  wait(writer, number, false);
  const Slot slot = region_->pair(writer, rank()).slots[number % 2];
  if (slot.signature != exchange.signature()) {
    const RankState& state = region_->state(writer);
    end(mismatch_message(*this, exchange, writer, record_name(state, slot.call),
                         record_detail(state, slot.call)));
  }
  return slot;
}

void WindowCommunicator::acknowledge(int32_t writer, uint64_t number) const {
  region_->pair(writer, rank()).read.store(number, std::memory_order_release);
  region_->ring(writer);
}

void WindowCommunicator::await_readers() const {
  for (int32_t rank = 0; rank < size(); ++rank)
    while (is_local(rank) && region_->state(rank).reads_memory.load() != 0)
      std::this_thread::yield();
}

void WindowCommunicator::exchange(const Exchange& exchange) {
  try {
    enter(exchange);
    move_pieces(exchange);
    own_.inside.store(0);
  } catch (const CommunicationError&) {
    await_readers();
    throw;
  }
}

void WindowCommunicator::move_pieces(const Exchange& exchange) {
  const auto rank_of = [&](int32_t index) {
    return exchange.group->ranks[static_cast<size_t>(index)];
  };
  std::vector<int32_t> remote;
  for (const int32_t reader : exchange.readers) {
    const int32_t to = rank_of(reader);
    if (!is_local(to)) {
      remote.push_back(reader);
      continue;
    }
    const Slot slot = {exchange.signature(), own_.call.load(std::memory_order_relaxed), -1,
                       exchange.piece_for(reader)};
    post(to, slot, region_->pair(rank(), to).sent.load(std::memory_order_relaxed) + 1);
  }

  const int64_t n_chunks = exchange.n_chunks(), chunk_bytes = exchange.chunk_bytes();
  const size_t n_writers = exchange.writers.size();
  // A piece that is read in place is taken at once, unless another process would wait for the next
  // chunk meanwhile.
  const bool takes_whole =
      remote.empty() && std::all_of(exchange.writers.begin(), exchange.writers.end(),
                                    [&](int32_t index) { return is_local(rank_of(index)); });
  std::vector<Slot> slots(n_writers);
  std::vector<ReceivedChunk> arrived(n_writers);
  for (int64_t chunk = 0; chunk < n_chunks; ++chunk) {
    if (!remote.empty()) write_chunk(exchange, chunk, remote);
    const int64_t from = chunk * chunk_bytes;
    // The numbers of chunks still to be acknowledged follow from those that were.
    const auto next = [&](int32_t writer) {
      return region_->pair(writer, rank()).read.load(std::memory_order_relaxed) + 1;
    };
    for (size_t i = 0; i < n_writers; ++i) {
      const int32_t index = exchange.writers[i], writer = rank_of(index);
      const bool local = is_local(writer);
      if (chunk == 0 || !local) slots[i] = await_chunk(exchange, writer, next(writer));
      const int64_t left = exchange.bytes_from(index) - from;
      arrived[i].bytes = std::clamp<int64_t>(left, 0, chunk_bytes);
      if (local) {
        arrived[i].where = slots[i].direct;
        arrived[i].at = from;
        if (exchange.consume && takes_whole) arrived[i].bytes = std::max<int64_t>(left, 0);
      } else {
        arrived[i].where = contiguous(region_->at(slots[i].offset), arrived[i].bytes);
        arrived[i].at = 0;
      }
      if (!exchange.consume || (local && takes_whole && chunk > 0)) continue;
      {
        const Reading reading(*this);
        exchange.consume(index, from, arrived[i]);
      }
      if (local && !takes_whole && chunk + 1 < n_chunks) continue;
      acknowledge(writer, next(writer));
    }
    if (!exchange.consume_all || n_writers == 0) continue;
    {
      const Reading reading(*this);
      exchange.consume_all(from, arrived);
    }
    for (size_t i = 0; i < n_writers; ++i) {
      const int32_t writer = rank_of(exchange.writers[i]);
      if (!is_local(writer) || chunk + 1 == n_chunks) acknowledge(writer, next(writer));
    }
  }

  // What others read in place must stay until they have read it.
  for (const int32_t reader : exchange.readers) {
    const int32_t to = rank_of(reader);
    if (!is_local(to)) continue;
    wait(to, region_->pair(rank(), to).sent.load(std::memory_order_relaxed), true);
  }
}

// Waits until a rank has sent that chunk to the caller, or read that chunk of the caller's.
void WindowCommunicator::wait(int32_t for_rank, uint64_t number, bool read) const {
  const auto is_done = [&] {
    return read ? region_->is_chunk_done(rank(), for_rank, number, true)
                : region_->is_chunk_done(for_rank, rank(), number, false);
  };
  for (int look = 0; look < kLooks; ++look) {
    if (is_done()) return;
    pause();
  }
  const int64_t begin = now_ns();
  own_.since_ns.store(begin);
  own_.awaits_read.store(read ? 1 : 0);
  own_.awaited_number.store(number);
  own_.waits_for.store(for_rank);
  std::string circle;
  int64_t looked_up = begin;
  while (true) {
    own_.sleeping.store(1);
    const uint32_t bell = own_.bell.load();
    if (is_done() || region_->is_aborted()) break;
    const int64_t now = now_ns(), left = timeout_ns_ - (now - begin);
    if (left <= 0) end(why_late(for_rank));
    if (now - looked_up >= kLookUpNs) {
      // A chunk that has come stays so. Ranks that wait at two looks for the same chunks of each
      // other, none of which has come at the second, waited for them at one time, and so for ever.
      looked_up = now;
      const std::string seen = circle_through(for_rank);
      if (!seen.empty() && seen == circle) end(seen);
      circle = seen;
    }
    region_->sleep(rank(), bell, std::min(left, kLookUpNs));
  }
  own_.sleeping.store(0);
  own_.waits_for.store(-1);
  if (!is_done()) throw CommunicationError(region_->abort_message());
}

// Follows who waits for whom to the rank that is late, and names what the one before it waits in.
std::string WindowCommunicator::why_late(int32_t for_rank) const {
  int32_t waiter = rank(), late = for_rank;
  for (int32_t steps = 0; steps < size(); ++steps) {
    const int32_t next = region_->state(late).waits_for.load();
    if (next < 0) break;
    waiter = late;
    late = next;
  }
  const RankState& from = region_->state(waiter);
  const RankState& to = region_->state(late);
  const std::string name = record_name(from, from.call.load());
  const std::string time = seconds(now_ns() - from.since_ns.load());
  const uint64_t call = to.call.load();
  const std::string last = call == 0 ? "" : record_name(to, call);
  if (to.inside.load() != 0 && last == name)
    return fmt::format("{} has not gone on in {} for {}", name_of(late), name, time);
  return fmt::format("{} has not entered {} for {}; {}", name_of(late), name, time,
                     call == 0 ? "it has entered no collective"
                               : fmt::format("it was last in {}", last));
}

// What to say if the ranks behind the one waited for wait for the caller in turn; else empty.
// Begins with the lowest rank, so that all of them say the same.
std::string WindowCommunicator::circle_through(int32_t for_rank) const {
  std::vector<int32_t> circle = {rank()};
  for (int32_t next = for_rank; next != rank();) {
    if (circle.size() > static_cast<size_t>(size())) return "";
    circle.push_back(next);
    const RankState& state = region_->state(next);
    const int32_t awaited = state.waits_for.load();
    if (awaited < 0) return "";
    const bool read = state.awaits_read.load() != 0;
    const uint64_t number = state.awaited_number.load();
    if (read ? region_->is_chunk_done(next, awaited, number, true)
             : region_->is_chunk_done(awaited, next, number, false))
      return "";
    next = awaited;
  }
  std::rotate(circle.begin(), std::min_element(circle.begin(), circle.end()), circle.end());
  std::string text;
  for (size_t i = 0; i < circle.size(); ++i) {
    const RankState& state = region_->state(circle[i]);
    const uint64_t call = state.call.load();
    text += fmt::format("{}{} waits for {} in {} (its collective {})", i == 0 ? "" : ", ",
                        name_of(circle[i]), name_of(circle[(i + 1) % circle.size()]),
                        record_name(state, call), call);
  }
  return text + ": expected the same program on all";
}

std::vector<std::unique_ptr<Communicator>> communicators_of_threads(int32_t n_ranks,
                                                                    const ThreadOptions& options) {
  Result<std::shared_ptr<Region>> region =
      Region::create(n_ranks, n_ranks, false, options.use_windows);
  if (!region) throw CommunicationError(region.error());
  std::vector<std::unique_ptr<Communicator>> result;
  for (int32_t rank = 0; rank < n_ranks; ++rank)
    result.push_back(std::make_unique<WindowCommunicator>(*region, rank, options.timeout_s,
                                                          options.use_windows));
  return result;
}

namespace {

class NullCommunicator : public Communicator {
 public:
  using Communicator::Communicator;
  void abort(const std::string&) override {}
  std::string_view transport() const override { return "null"; }

 protected:
  void exchange(const Exchange&) override {}
};

}  // namespace

std::unique_ptr<Communicator> null_communicator(int32_t rank, int32_t n_ranks,
                                                int32_t devices_per_process) {
  return std::make_unique<NullCommunicator>(rank, n_ranks, devices_per_process);
}

}  // namespace stow::comm
