#include "stowage/runtime/comm/mpi.h"

#include "stowage/base/error.h"
#include "stowage/runtime/comm/exchange.h"

namespace stow::comm {
namespace {

// Stands before the bytes of every chunk. Names are cut to what fits.
struct Header {
  uint64_t signature;
  char name[216];
  char detail[96];
};
static_assert(sizeof(Header) % 64 == 0);

}  // namespace

int64_t mpi_window_bytes(int64_t n_ranks) {
  constexpr int64_t kLeastSlotBytes = int64_t{sizeof(Header)} + 64;
  return 3 * (kHalfWindowBytes + kLeastSlotBytes * n_ranks);
}

}  // namespace stow::comm

#ifdef STOW_HAS_MPI
#define OMPI_SKIP_MPICXX 1
#include <mpi.h>
#endif

#if defined(STOW_HAS_MPI) && defined(OPEN_MPI)

#include <dlfcn.h>
#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <iterator>
#include <map>
#include <mutex>
#include <set>
#include <thread>

#include "stowage/runtime/comm/native_form.h"

namespace stow::comm {
namespace {

// Open MPI's functions. They are looked up when mpirun has started the process: one that it has not
// started shall not load a library that takes 14 MiB.
struct Functions {
  decltype(&MPI_Init_thread) init_thread;
  decltype(&MPI_Finalize) finalize;
  decltype(&MPI_Comm_dup) comm_dup;
  decltype(&MPI_Comm_set_errhandler) set_errhandler;
  decltype(&MPI_Isend) isend;
  decltype(&MPI_Improbe) improbe;
  decltype(&MPI_Mrecv) mrecv;
  decltype(&MPI_Get_count) get_count;
  decltype(&MPI_Test) test;
  decltype(&MPI_Error_string) error_string;
  decltype(&MPI_Comm_group) comm_group;
  decltype(&MPI_Group_incl) group_incl;
  decltype(&MPI_Group_free) group_free;
  decltype(&MPI_Comm_create_group) comm_create_group;
  decltype(&MPI_Iallreduce) iallreduce;
  decltype(&MPI_Ireduce_scatter_block) ireduce_scatter_block;
  MPI_Datatype elements[9];  // by NativeForm::Element
  MPI_Op ops[5];             // by ReduceKind
  MPI_Comm world;
  MPI_Datatype byte;
  MPI_Errhandler errors_return;
};

Result<Functions> load() {
  void* const library = ::dlopen("libmpi.so.40", RTLD_NOW | RTLD_GLOBAL);
  if (library == nullptr)
    return fail("mpirun has started this process, and Open MPI cannot be loaded: {}", ::dlerror());
  Functions f{};
  const char* missing = nullptr;
  const auto find = [&](const char* name) {
    void* const symbol = ::dlsym(library, name);
    if (symbol == nullptr) missing = name;
    return symbol;
  };
  const auto set = [&]<typename T>(T& function, const char* name) {
    function = reinterpret_cast<T>(find(name));
  };
  set(f.init_thread, "MPI_Init_thread");
  set(f.finalize, "MPI_Finalize");
  set(f.comm_dup, "MPI_Comm_dup");
  set(f.set_errhandler, "MPI_Comm_set_errhandler");
  set(f.isend, "MPI_Isend");
  set(f.improbe, "MPI_Improbe");
  set(f.mrecv, "MPI_Mrecv");
  set(f.get_count, "MPI_Get_count");
  set(f.test, "MPI_Test");
  set(f.error_string, "MPI_Error_string");
  set(f.comm_group, "MPI_Comm_group");
  set(f.group_incl, "MPI_Group_incl");
  set(f.group_free, "MPI_Group_free");
  set(f.comm_create_group, "MPI_Comm_create_group");
  set(f.iallreduce, "MPI_Iallreduce");
  set(f.ireduce_scatter_block, "MPI_Ireduce_scatter_block");
  constexpr const char* kElements[] = {"ompi_mpi_int8_t",   "ompi_mpi_int16_t", "ompi_mpi_int32_t",
                                       "ompi_mpi_int64_t",  "ompi_mpi_uint8_t", "ompi_mpi_uint32_t",
                                       "ompi_mpi_uint64_t", "ompi_mpi_float",   "ompi_mpi_double"};
  for (size_t i = 0; i < std::size(kElements); ++i) set(f.elements[i], kElements[i]);
  constexpr const char* kOps[] = {"ompi_mpi_op_sum", "ompi_mpi_op_max", "ompi_mpi_op_min",
                                  "ompi_mpi_op_band", "ompi_mpi_op_bor"};
  for (size_t i = 0; i < std::size(kOps); ++i) set(f.ops[i], kOps[i]);
  // What mpi.h calls MPI_COMM_WORLD, MPI_BYTE and MPI_ERRORS_RETURN are the addresses of these.
  set(f.world, "ompi_mpi_comm_world");
  set(f.byte, "ompi_mpi_byte");
  set(f.errors_return, "ompi_mpi_errors_return");
  if (missing != nullptr) return fail("Open MPI has no {}: expected version 4 or 5", missing);
  return f;
}

// What the ranks of one process share.
struct Process {
  Functions mpi;
  MPI_Comm comm = nullptr;
  int64_t timeout_ns = 0;
  std::atomic<bool> is_aborted = false;
  std::mutex mutex;
  std::string message;
};

int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

class MpiCommunicator : public Communicator {
 public:
  MpiCommunicator(std::shared_ptr<Process> process, int32_t rank, int32_t size, int32_t devices)
      : Communicator(rank, size, devices), process_(std::move(process)) {}

  void abort(const std::string& message) override {
    const std::lock_guard lock(process_->mutex);
    if (!process_->is_aborted) process_->message = message;
    process_->is_aborted = true;
  }
  std::string_view transport() const override { return "mpi"; }
  bool has_native_reduction() const override { return true; }
  int64_t window_bytes() const override { return mpi_window_bytes(size()); }

 protected:
  void exchange(const Exchange& exchange) override;
  bool reduce_natively(const NativeReduction& reduction) override;

 private:
  using Buffer = std::vector<double>;  // aligned for every dtype

  static std::byte* bytes_of(Buffer& buffer) { return reinterpret_cast<std::byte*>(buffer.data()); }
  static void make_room(Buffer& buffer, int64_t bytes) {
    const size_t n = static_cast<size_t>(bytes + 7) / 8;
    if (buffer.size() < n) buffer.resize(n);
  }
  // A tag of its own for every pair of devices of two processes.
  int tag(int32_t from, int32_t to) const {
    return from % devices_per_process() * devices_per_process() + to % devices_per_process();
  }
  void check(int status) const;
  void send(const Exchange& exchange, int64_t chunk, Buffer& half,
            std::vector<MPI_Request>& requests);
  ReceivedChunk receive(const Exchange& exchange, int32_t index, int64_t chunk,
                        std::byte* buffer) const;
  void finish(const Exchange& exchange, std::vector<MPI_Request>& requests) const;
  template <typename Done>
  void poll(const Exchange& exchange, int32_t for_rank, const Done& done) const;
  template <typename Done, typename Late>
  void poll_until(const Done& done, int64_t timeout_ns, const Late& late) const;
  MPI_Comm group_comm(const Group& group);
  void meet(const NativeReduction& reduction, std::vector<int32_t> readers,
            std::vector<int32_t> writers);
  void await(const NativeReduction& reduction, MPI_Request& request) const;
  [[noreturn]] void end(const std::string& message) const {
    const_cast<MpiCommunicator*>(this)->abort(message);
    const std::lock_guard lock(process_->mutex);
    throw CommunicationError(process_->message);
  }

  std::shared_ptr<Process> process_;
  Buffer halves_[2], received_;
  std::map<std::vector<int32_t>, MPI_Comm> group_comms_;  // by ranks
};

void MpiCommunicator::check(int status) const {
  if (status == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  process_->mpi.error_string(status, text, &length);
  end(fmt::format("{}: Open MPI: {}", name_of(rank()),
                  std::string(text, static_cast<size_t>(length))));
}

// Asks until it is done. Messages move while a process asks, so it does so often at first; later it
// sleeps in between, as the rank it waits for may need its core.
template <typename Done, typename Late>
void MpiCommunicator::poll_until(const Done& done, int64_t timeout_ns, const Late& late) const {
  constexpr int kLooks = 200;
  constexpr int64_t kMostSleepNs = 200'000;
  int64_t sleep_ns = 20'000;
  const int64_t begin = now_ns();
  for (int look = 0; !done(); ++look) {
    if (process_->is_aborted) end("");
    if (look < kLooks) {
      std::this_thread::yield();
      continue;
    }
    if (now_ns() - begin > timeout_ns)
      end(fmt::format("{} for {:.3g} s", late(), static_cast<double>(now_ns() - begin) * 1e-9));
    std::this_thread::sleep_for(std::chrono::nanoseconds(sleep_ns));
    sleep_ns = std::min(sleep_ns * 2, kMostSleepNs);
  }
}

template <typename Done>
void MpiCommunicator::poll(const Exchange& exchange, int32_t for_rank, const Done& done) const {
  poll_until(done, process_->timeout_ns, [&] {
    return fmt::format("{} has not entered {}", name_of(for_rank), exchange.name());
  });
}

void MpiCommunicator::send(const Exchange& exchange, int64_t chunk, Buffer& half,
                           std::vector<MPI_Request>& requests) {
  const int64_t chunk_bytes = exchange.chunk_bytes(), from = chunk * chunk_bytes;
  const int64_t slot_bytes =
      int64_t{sizeof(Header)} + std::min(chunk_bytes, (exchange.longest_bytes + 63) / 64 * 64);
  const size_t n_slots = exchange.same_for_all ? std::min<size_t>(exchange.readers.size(), 1)
                                               : exchange.readers.size();
  make_room(half, slot_bytes * static_cast<int64_t>(n_slots));
  Header header{exchange.signature(), {}, {}};
  const std::string name = exchange.name();
  std::memcpy(header.name, name.data(), std::min(name.size(), sizeof header.name - 1));
  std::memcpy(header.detail, exchange.detail.data(),
              std::min(exchange.detail.size(), sizeof header.detail - 1));
  std::byte* place = bytes_of(half);
  int64_t bytes = 0;
  for (size_t i = 0; i < exchange.readers.size(); ++i) {
    if (i == 0 || !exchange.same_for_all) {
      if (i > 0) place += slot_bytes;
      const Strided piece = exchange.piece_for(exchange.readers[i]);
      bytes = std::clamp<int64_t>(piece.bytes() - from, 0, chunk_bytes);
      std::memcpy(place, &header, sizeof header);
      copy(piece, from, contiguous(place + sizeof header, bytes), 0, bytes);
    }
    const int32_t reader = exchange.group->ranks[static_cast<size_t>(exchange.readers[i])];
    MPI_Request request;
    check(process_->mpi.isend(place, static_cast<int>(int64_t{sizeof header} + bytes),
                              process_->mpi.byte, reader / devices_per_process(),
                              tag(rank(), reader), process_->comm, &request));
    requests.push_back(request);
  }
}

ReceivedChunk MpiCommunicator::receive(const Exchange& exchange, int32_t index, int64_t chunk,
                                       std::byte* buffer) const {
  const Functions& mpi = process_->mpi;
  const int32_t writer = exchange.group->ranks[static_cast<size_t>(index)];
  MPI_Message message;
  MPI_Status status;
  poll(exchange, writer, [&] {
    int found = 0;
    check(mpi.improbe(writer / devices_per_process(), tag(writer, rank()), process_->comm, &found,
                      &message, &status));
    return found != 0;
  });
  int count = 0;
  check(mpi.get_count(&status, mpi.byte, &count));
  const int64_t chunk_bytes = exchange.chunk_bytes();
  const int64_t bytes =
      std::clamp<int64_t>(exchange.bytes_from(index) - chunk * chunk_bytes, 0, chunk_bytes);
  Header header;
  if (count != int64_t{sizeof header} + bytes) {
    // Of another collective; only who it is matters.
    Buffer other(static_cast<size_t>(std::max<int64_t>(count, sizeof header) + 7) / 8);
    check(mpi.mrecv(other.data(), count, mpi.byte, &message, MPI_STATUS_IGNORE));
    std::memcpy(&header, other.data(), sizeof header);
  } else {
    check(mpi.mrecv(buffer, count, mpi.byte, &message, MPI_STATUS_IGNORE));
    std::memcpy(&header, buffer, sizeof header);
  }
  if (header.signature != exchange.signature() || count != int64_t{sizeof header} + bytes) {
    header.name[sizeof header.name - 1] = header.detail[sizeof header.detail - 1] = '\0';
    end(mismatch_message(*this, exchange, writer, header.name, header.detail));
  }
  return {contiguous(buffer + sizeof header, bytes), 0, bytes};
}

void MpiCommunicator::finish(const Exchange& exchange, std::vector<MPI_Request>& requests) const {
  for (size_t i = 0; i < requests.size(); ++i) {
    const int32_t reader = exchange.group->ranks[static_cast<size_t>(exchange.readers[i])];
    poll(exchange, reader, [&] {
      int is_done = 0;
      check(process_->mpi.test(&requests[i], &is_done, MPI_STATUS_IGNORE));
      return is_done != 0;
    });
  }
  requests.clear();
}

void MpiCommunicator::exchange(const Exchange& exchange) {
  const int64_t slot_bytes =
      int64_t{sizeof(Header)} +
      std::min(exchange.chunk_bytes(), (exchange.longest_bytes + 63) / 64 * 64);
  const size_t n_writers = exchange.writers.size();
  make_room(received_, slot_bytes * static_cast<int64_t>(exchange.consume ? 1 : n_writers));
  std::vector<MPI_Request> requests[2];
  std::vector<ReceivedChunk> arrived(n_writers);
  const int64_t n_chunks = exchange.n_chunks();
  for (int64_t chunk = 0; chunk < n_chunks; ++chunk) {
    const auto half = static_cast<size_t>(chunk % 2);
    finish(exchange, requests[half]);
    send(exchange, chunk, halves_[half], requests[half]);
    for (size_t i = 0; i < n_writers; ++i) {
      std::byte* const place =
          bytes_of(received_) + (exchange.consume ? 0 : static_cast<int64_t>(i) * slot_bytes);
      arrived[i] = receive(exchange, exchange.writers[i], chunk, place);
      if (exchange.consume)
        exchange.consume(exchange.writers[i], chunk * exchange.chunk_bytes(), arrived[i]);
    }
    if (exchange.consume_all && n_writers > 0)
      exchange.consume_all(chunk * exchange.chunk_bytes(), arrived);
  }
  finish(exchange, requests[0]);
  finish(exchange, requests[1]);
}

// Exchanges the names of the reduction and no bytes of it: who is late or in another one is named.
void MpiCommunicator::meet(const NativeReduction& reduction, std::vector<int32_t> readers,
                           std::vector<int32_t> writers) {
  Exchange names;
  names.group = reduction.group;
  names.op = reduction.op;
  names.label = reduction.label;
  names.detail = reduction.detail + ", native";
  names.same_for_all = true;
  names.readers = std::move(readers);
  names.writers = std::move(writers);
  names.piece_for = [](int32_t) { return Strided{}; };
  names.bytes_from = [](int32_t) { return int64_t{0}; };
  names.consume = [](int32_t, int64_t, const ReceivedChunk&) {};
  exchange(names);
}

// MPI's communicator of a group whose members are in processes of their own.
MPI_Comm MpiCommunicator::group_comm(const Group& group) {
  const Functions& mpi = process_->mpi;
  std::vector<int> processes;
  for (const int32_t rank : group.ranks) processes.push_back(rank / devices_per_process());
  MPI_Group all, some;
  MPI_Comm comm;
  check(mpi.comm_group(process_->comm, &all));
  check(mpi.group_incl(all, group.size(), processes.data(), &some));
  // Groups that are made at the same time share no rank, but may share processes: devices of a
  // process make theirs at once. Their tags tell them apart.
  check(mpi.comm_create_group(process_->comm, some, group.ranks[0], &comm));
  mpi.set_errhandler(comm, mpi.errors_return);
  mpi.group_free(&some);
  mpi.group_free(&all);
  return comm;
}

void MpiCommunicator::await(const NativeReduction& reduction, MPI_Request& request) const {
  // Who sees that a member has not come says so first.
  constexpr int64_t kGraceNs = 1'000'000'000;
  const auto is_done = [&] {
    int flag = 0;
    check(process_->mpi.test(&request, &flag, MPI_STATUS_IGNORE));
    return flag != 0;
  };
  poll_until(is_done, process_->timeout_ns + kGraceNs, [&] {
    return fmt::format("{} waits for the other members of {}", name_of(rank()), reduction.name());
  });
}

bool MpiCommunicator::reduce_natively(const NativeReduction& r) {
  const Group& group = *r.group;
  const int32_t n = group.size();
  std::set<int32_t> processes;
  for (const int32_t rank : group.ranks) processes.insert(rank / devices_per_process());
  // A process is one member of MPI's groups, whatever the number of its devices.
  if (static_cast<int32_t>(processes.size()) != n) return false;
  auto found = group_comms_.find(group.ranks);
  if (found == group_comms_.end()) {
    meet(r, other_members(group), other_members(group));
    found = group_comms_.emplace(group.ranks, group_comm(group)).first;
  } else {
    // In a ring everyone hears of one other, and all that differs is heard by somebody.
    meet(r, {(group.index + 1) % n}, {(group.index + n - 1) % n});
  }
  const NativeForm form = NativeForm::of(r.kind, r.dtype);
  const int64_t elem = form.elem_bytes(), array_elem = dtype_bytes(r.dtype);
  const int64_t n_elems = r.outer * r.inner, n_pieces = r.scatters ? n : 1;
  const int64_t step = std::max<int64_t>(kHalfWindowBytes / (n_pieces * elem), 1);
  const MPI_Datatype type = process_->mpi.elements[static_cast<size_t>(form.element)];
  const MPI_Op op = process_->mpi.ops[static_cast<size_t>(r.kind)];
  MPI_Request requests[2] = {MPI_Request(), MPI_Request()};
  make_room(received_, std::min(step, n_elems) * array_elem);
  const auto finish_at = [&](int64_t from) {
    const auto half = static_cast<size_t>(from / step % 2);
    await(r, requests[half]);
    form.decode(bytes_of(halves_[half]), std::min(step, n_elems - from), r.out + from * array_elem);
  };
  for (int64_t from = 0; from < n_elems; from += step) {
    const auto half = static_cast<size_t>(from / step % 2);
    if (from >= 2 * step) finish_at(from - 2 * step);
    const int64_t now = std::min(step, n_elems - from);
    make_room(halves_[half], n_pieces * now * elem);
    std::byte* const place = bytes_of(halves_[half]);
    for (int64_t i = 0; i < n_pieces; ++i) {
      const Strided piece = r.scatters ? part_of(r.in, r.outer, n, r.inner * array_elem, i)
                                       : contiguous(r.in, n_elems * array_elem);
      const std::byte* const bytes = read_at(piece, from * array_elem, now * array_elem,
                                             bytes_of(received_));
      form.encode(bytes, now, place + i * now * elem);
    }
    check(r.scatters
              ? process_->mpi.ireduce_scatter_block(MPI_IN_PLACE, place, static_cast<int>(now),
                                                    type, op, found->second, &requests[half])
              : process_->mpi.iallreduce(MPI_IN_PLACE, place, static_cast<int>(now), type, op,
                                         found->second, &requests[half]));
  }
  for (int64_t from = std::max<int64_t>((n_elems - 1) / step - 1, 0) * step; from < n_elems;
       from += step)
    finish_at(from);
  return true;
}

class MpiWorld : public World {
 public:
  MpiWorld(const Launch& launch, std::shared_ptr<Process> process, int32_t devices)
      : World(launch), process_(std::move(process)) {
    for (int32_t device = 0; device < devices; ++device)
      communicators_.push_back(std::make_unique<MpiCommunicator>(
          process_, launch.process * devices + device, launch.n_processes * devices, devices));
  }
  // Without it mpirun takes the process for lost and ends the others.
  void leave() override {
    if (!process_->is_aborted) process_->mpi.finalize();
  }

 private:
  std::shared_ptr<Process> process_;
};

}  // namespace

bool has_mpi() { return true; }

Result<std::unique_ptr<World>> join_mpi(const Launch& launch, const WorldOptions& options) {
  Result<Functions> functions = load();
  if (!functions) return functions.failure();
  auto process = std::make_shared<Process>();
  process->mpi = *functions;
  process->timeout_ns = static_cast<int64_t>(options.timeout_s * 1e9);
  const int wanted = options.devices > 1 ? MPI_THREAD_MULTIPLE : MPI_THREAD_SERIALIZED;
  int provided = 0;
  // Streams may call from a thread of their own, one at a time.
  if (process->mpi.init_thread(nullptr, nullptr, wanted, &provided) !=
      MPI_SUCCESS)
    return fail("Open MPI could not be initialised");
  if (provided < wanted)
    return fail("this Open MPI has no {}, which {} device{} a process need{}",
                options.devices > 1 ? "MPI_THREAD_MULTIPLE" : "MPI_THREAD_SERIALIZED",
                options.devices, options.devices > 1 ? "s" : "",
                options.devices > 1 ? "; give --devices 1" : "s");
  if (process->mpi.comm_dup(process->mpi.world, &process->comm) != MPI_SUCCESS)
    return fail("Open MPI: no communicator");
  process->mpi.set_errhandler(process->comm, process->mpi.errors_return);
  return std::unique_ptr<World>(
      std::make_unique<MpiWorld>(launch, std::move(process), options.devices));
}

}  // namespace stow::comm

#else

namespace stow::comm {

bool has_mpi() { return false; }

Result<std::unique_ptr<World>> join_mpi(const Launch&, const WorldOptions&) {
  return fail(
      "mpirun has started this process, and this build has no Open MPI; install libopenmpi-dev and "
      "openmpi-bin and build again, or start processes of one host with --processes");
}

}  // namespace stow::comm

#endif
