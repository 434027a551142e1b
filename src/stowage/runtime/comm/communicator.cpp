#include "stowage/runtime/comm/communicator.h"

#include <algorithm>
#include <cstring>
#include <map>

#include "stowage/base/error.h"
#include "stowage/runtime/comm/exchange.h"
#include "stowage/runtime/comm/tree_reduce.h"

namespace stow::comm {
namespace {

// Up to here every member reduces all elements: one exchange costs less than two with fewer bytes.
constexpr int64_t kDirectBytes = 16 << 10;
// A reduction gathers rows with gaps into pieces of this size.
constexpr int64_t kScratchBytes = 4096;

uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

Exchange between_all(const Group& group) {
  Exchange exchange;
  exchange.group = &group;
  exchange.readers = exchange.writers = other_members(group);
  return exchange;
}

// Reduces a chunk of all members, the caller's own included, and writes it to offset `from` of
// `out`. `own` is the caller's piece; it may be the memory of `out`.
void reduce_chunk(const Group& group, std::span<const int32_t> writers, ReduceKind kind,
                  DType dtype, const Strided& own, int64_t from,
                  std::span<const ReceivedChunk> arrived, std::byte* out) {
  const auto n = static_cast<size_t>(group.size());
  const int64_t bytes = arrived[0].bytes;
  std::vector<ReceivedChunk> by_index(n);
  by_index[static_cast<size_t>(group.index)] = {own, from, bytes};
  for (size_t i = 0; i < writers.size(); ++i)
    by_index[static_cast<size_t>(writers[i])] = arrived[i];
  bool gaps = false;
  for (const ReceivedChunk& part : by_index) gaps = gaps || !part.where.is_contiguous();
  const int64_t step = gaps ? kScratchBytes : bytes;
  std::vector<double> scratch(gaps ? n * kScratchBytes / sizeof(double) : 0);
  std::vector<const std::byte*> parts(n);
  for (int64_t at = 0; at < bytes; at += step) {
    const int64_t now = std::min(step, bytes - at);
    for (size_t i = 0; i < n; ++i)
      parts[i] =
          read_at(by_index[i].where, by_index[i].at + at, now,
                  reinterpret_cast<std::byte*>(scratch.data()) + (gaps ? i * kScratchBytes : 0));
    tree_reduce(kind, dtype, parts, now / dtype_bytes(dtype), out + from + at);
  }
}

}  // namespace

Group Group::of(std::vector<int32_t> ranks, int32_t rank) {
  const auto found = std::find(ranks.begin(), ranks.end(), rank);
  STOW_CHECK(found != ranks.end(), "rank {} is not in the group", rank);
  const auto index = static_cast<int32_t>(found - ranks.begin());
  return {std::move(ranks), index};
}

std::vector<int32_t> other_members(const Group& group) {
  std::vector<int32_t> result;
  for (int32_t i = 1; i < group.size(); ++i) result.push_back((group.index + i) % group.size());
  return result;
}

uint64_t Exchange::signature() const {
  uint64_t h = 0x9e3779b97f4a7c15u;
  const auto add = [&](std::string_view text) {
    for (const char c : text) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
    h = mix(h);
  };
  add(op), add(label), add(detail);
  for (const int32_t rank : group->ranks) h = mix(h ^ static_cast<uint64_t>(rank));
  return h;
}

namespace {
std::string name_at(std::string_view op, std::string_view label) {
  return label.empty() ? std::string(op) : fmt::format("{} at {}", op, label);
}
}  // namespace

std::string Exchange::name() const { return name_at(op, label); }
std::string NativeReduction::name() const { return name_at(op, label); }

int64_t Exchange::chunk_bytes() const {
  const int64_t slots = same_for_all ? 1 : std::max<int64_t>(group->size() - 1, 1);
  // A slot begins at a line of the cache, so that it is aligned for every dtype.
  return std::max<int64_t>(kHalfWindowBytes / slots / 64 * 64, 64);
}

int64_t Exchange::n_chunks() const {
  const int64_t chunk = chunk_bytes();
  return std::max<int64_t>((longest_bytes + chunk - 1) / chunk, 1);
}

std::string mismatch_message(const Communicator& caller, const Exchange& exchange, int32_t writer,
                             const std::string& other_name, const std::string& other_detail) {
  std::string own = exchange.name(), other = other_name;
  if (own == other) {
    own += fmt::format(" of {}", exchange.detail);
    other +=
        fmt::format(" of {}", other_detail == exchange.detail ? "another group" : other_detail);
  }
  std::string first = fmt::format("{} enters {}", caller.name_of(caller.rank()), own);
  std::string second = fmt::format("{} enters {}", caller.name_of(writer), other);
  if (writer < caller.rank()) std::swap(first, second);
  return fmt::format("{}, {}: expected the same program on all", first, second);
}

struct Communicator::Call {
  std::string_view op, label;
  int64_t sent_bytes;
};

Communicator::Communicator(int32_t rank, int32_t size, int32_t devices_per_process)
    : rank_(rank), size_(size), devices_per_process_(devices_per_process) {
  STOW_CHECK(devices_per_process >= 1 && size >= 1 && size % devices_per_process == 0 &&
                 rank >= 0 && rank < size,
             "rank {} of {}, {} a process", rank, size, devices_per_process);
}

Communicator::~Communicator() = default;

Group Communicator::all() const {
  Group group;
  group.index = rank_;
  for (int32_t i = 0; i < size_; ++i) group.ranks.push_back(i);
  return group;
}

std::string Communicator::name_of(int32_t rank) const {
  if (size_ == 1 || n_processes() == 1) return fmt::format("rank {}", rank);
  if (devices_per_process_ == 1) return fmt::format("process {}", rank);
  return fmt::format("rank {} (device {} of process {})", rank, rank % devices_per_process_,
                     rank / devices_per_process_);
}

void Communicator::run(const Call& call, Exchange& exchange_) {
  exchange_.op = call.op;
  exchange_.label = call.label;
  sent_bytes_ += call.sent_bytes;
  const Group& group = *exchange_.group;
  STOW_CHECK(group.index >= 0 && group.index < group.size() &&
                 group.ranks[static_cast<size_t>(group.index)] == rank_,
             "{}: index {} of the group is not rank {}", exchange_.name(), group.index, rank_);
  if (group.size() > 1) exchange(exchange_);
}

bool Communicator::try_native(const NativeReduction& reduction, int64_t sent_bytes) {
  if (reduce_order_ != ReduceOrder::kNative || reduction.group->size() == 1) return false;
  if (!reduce_natively(reduction)) return false;
  sent_bytes_ += sent_bytes;
  return true;
}

void Communicator::all_gather(const Group& group, std::string_view label, DType dtype,
                              int64_t outer, int64_t inner, const std::byte* part,
                              std::byte* whole) {
  ++n_collectives_;
  const int64_t inner_bytes = inner * dtype_bytes(dtype), bytes = outer * inner_bytes;
  const int32_t n = group.size();
  const auto place = [&](int32_t i) { return part_of(whole, outer, n, inner_bytes, i); };
  if (transport() != "null") copy(contiguous(part, bytes), 0, place(group.index), 0, bytes);
  Exchange exchange = between_all(group);
  exchange.detail = fmt::format("{}[{}, {}]", dtype_name(dtype), outer, inner);
  exchange.longest_bytes = bytes;
  exchange.elem_bytes = dtype_bytes(dtype);
  exchange.same_for_all = true;
  exchange.piece_for = [&](int32_t) { return contiguous(part, bytes); };
  exchange.bytes_from = [&](int32_t) { return bytes; };
  exchange.consume = [&](int32_t writer, int64_t from, const ReceivedChunk& piece) {
    copy(piece.where, piece.at, place(writer), from, piece.bytes);
  };
  run({"all_gather", label, bytes * (n - 1)}, exchange);
}

void Communicator::reduce_scatter(const Group& group, std::string_view label, ReduceKind kind,
                                  DType dtype, int64_t outer, int64_t inner, const std::byte* whole,
                                  std::byte* part) {
  ++n_collectives_;
  const int64_t inner_bytes = inner * dtype_bytes(dtype), bytes = outer * inner_bytes;
  const int32_t n = group.size();
  const auto piece = [&](int32_t i) { return part_of(whole, outer, n, inner_bytes, i); };
  if (n == 1) {
    if (transport() != "null") copy(piece(0), 0, contiguous(part, bytes), 0, bytes);
  }
  const std::string detail =
      fmt::format("{} of {}[{}, {}]", reduce_kind_name(kind), dtype_name(dtype), outer, inner);
  if (try_native({.group = &group, .op = "reduce_scatter", .label = label, .detail = detail,
                  .kind = kind, .dtype = dtype, .scatters = true, .outer = outer, .inner = inner,
                  .in = whole, .out = part},
                 bytes * (n - 1)))
    return;
  Exchange exchange = between_all(group);
  exchange.detail = detail;
  exchange.longest_bytes = bytes;
  exchange.elem_bytes = dtype_bytes(dtype);
  exchange.piece_for = piece;
  exchange.bytes_from = [&](int32_t) { return bytes; };
  exchange.consume_all = [&](int64_t from, std::span<const ReceivedChunk> pieces) {
    reduce_chunk(group, exchange.writers, kind, dtype, piece(group.index), from, pieces, part);
  };
  run({"reduce_scatter", label, bytes * (n - 1)}, exchange);
}

namespace {
std::string all_reduce_detail(ReduceKind kind, DType dtype, int64_t n_elems) {
  return fmt::format("{} of {}[{}]", reduce_kind_name(kind), dtype_name(dtype), n_elems);
}
}  // namespace

void Communicator::all_reduce(const Group& group, std::string_view label, ReduceKind kind,
                              DType dtype, int64_t n_elems, const std::byte* in, std::byte* out) {
  const int32_t n = group.size();
  if (try_native({.group = &group, .op = "all_reduce", .label = label,
                  .detail = all_reduce_detail(kind, dtype, n_elems), .kind = kind, .dtype = dtype,
                  .inner = n_elems, .in = in, .out = out},
                 2 * n_elems * dtype_bytes(dtype) * (n - 1) / n)) {
    ++n_collectives_;
    return;
  }
  all_reduce_by_tree(group, label, kind, dtype, n_elems, in, out);
}

void Communicator::all_reduce_by_tree(const Group& group, std::string_view label, ReduceKind kind,
                                      DType dtype, int64_t n_elems, const std::byte* in,
                                      std::byte* out) {
  ++n_collectives_;
  const int64_t elem = dtype_bytes(dtype), bytes = n_elems * elem;
  const int32_t n = group.size();
  if (n == 1 && transport() != "null")
    copy(contiguous(in, bytes), 0, contiguous(out, bytes), 0, bytes);
  const std::string detail = all_reduce_detail(kind, dtype, n_elems);
  if (bytes <= kDirectBytes) {
    // `out` may be `in`, which others still read: the results wait beside it.
    std::vector<double> result(static_cast<size_t>(bytes + 7) / sizeof(double));
    auto* const beside = reinterpret_cast<std::byte*>(result.data());
    Exchange exchange = between_all(group);
    exchange.detail = detail;
    exchange.longest_bytes = bytes;
    exchange.elem_bytes = elem;
    exchange.same_for_all = true;
    exchange.piece_for = [&](int32_t) { return contiguous(in, bytes); };
    exchange.bytes_from = [&](int32_t) { return bytes; };
    exchange.consume_all = [&](int64_t from, std::span<const ReceivedChunk> pieces) {
      reduce_chunk(group, exchange.writers, kind, dtype, contiguous(in, bytes), from, pieces,
                   beside);
    };
    run({"all_reduce", label, 2 * bytes * (n - 1) / n}, exchange);
    if (n > 1 && transport() != "null" && bytes > 0)
      std::memcpy(out, beside, static_cast<size_t>(bytes));
    return;
  }
  // Every member reduces its share and sends it to the others.
  const int64_t share = (n_elems + n - 1) / n * elem;
  const auto share_of = [&](const std::byte* base, int32_t i) {
    const int64_t begin = std::min(share * i, bytes), end = std::min(share * (i + 1), bytes);
    return contiguous(base + begin, end - begin);
  };
  Exchange scatter = between_all(group);
  scatter.detail = detail;
  scatter.longest_bytes = share;
  scatter.elem_bytes = elem;
  const Strided own = share_of(in, group.index), reduced = share_of(out, group.index);
  scatter.piece_for = [&](int32_t reader) { return share_of(in, reader); };
  scatter.bytes_from = [&](int32_t) { return own.bytes(); };
  scatter.consume_all = [&](int64_t from, std::span<const ReceivedChunk> pieces) {
    reduce_chunk(group, scatter.writers, kind, dtype, own, from, pieces, reduced.base);
  };
  run({"all_reduce", label, bytes * (n - 1) / n}, scatter);
  Exchange gather = between_all(group);
  gather.detail = detail + ", results";
  gather.longest_bytes = share;
  gather.elem_bytes = elem;
  gather.same_for_all = true;
  gather.piece_for = [&](int32_t) { return reduced; };
  gather.bytes_from = [&](int32_t writer) { return share_of(out, writer).bytes(); };
  gather.consume = [&](int32_t writer, int64_t from, const ReceivedChunk& piece) {
    copy(piece.where, piece.at, share_of(out, writer), from, piece.bytes);
  };
  run({"all_reduce", label, bytes * (n - 1) / n}, gather);
}

void Communicator::all_to_all(const Group& group, std::string_view label, DType dtype,
                              int64_t in_outer, int64_t in_inner, int64_t out_outer,
                              int64_t out_inner, const std::byte* in, std::byte* out) {
  ++n_collectives_;
  const int64_t elem = dtype_bytes(dtype), bytes = in_outer * in_inner * elem;
  STOW_CHECK(in_outer * in_inner == out_outer * out_inner, "[{}, {}] and [{}, {}]", in_outer,
             in_inner, out_outer, out_inner);
  const int32_t n = group.size();
  const auto source = [&](int32_t i) { return part_of(in, in_outer, n, in_inner * elem, i); };
  const auto target = [&](int32_t i) { return part_of(out, out_outer, n, out_inner * elem, i); };
  if (transport() != "null") copy(source(group.index), 0, target(group.index), 0, bytes);
  Exchange exchange = between_all(group);
  exchange.detail = fmt::format("{}[{}, {}] to [{}, {}]", dtype_name(dtype), in_outer, in_inner,
                                out_outer, out_inner);
  exchange.longest_bytes = bytes;
  exchange.elem_bytes = elem;
  exchange.piece_for = source;
  exchange.bytes_from = [&](int32_t) { return bytes; };
  exchange.consume = [&](int32_t writer, int64_t from, const ReceivedChunk& piece) {
    copy(piece.where, piece.at, target(writer), from, piece.bytes);
  };
  run({"all_to_all", label, bytes * (n - 1)}, exchange);
}

void Communicator::permute(const Group& group, std::string_view label, DType dtype,
                           std::span<const std::pair<int32_t, int32_t>> pairs, int64_t n_elems,
                           const std::byte* in, std::byte* out) {
  ++n_collectives_;
  const int64_t elem = dtype_bytes(dtype), bytes = n_elems * elem;
  Exchange exchange;
  exchange.group = &group;
  exchange.detail = fmt::format("{}[{}]", dtype_name(dtype), n_elems);
  exchange.longest_bytes = bytes;
  exchange.elem_bytes = elem;
  exchange.same_for_all = true;  // There is one reader.
  bool to_itself = false;
  std::vector<bool> sends(group.ranks.size()), receives(group.ranks.size());
  for (const auto& [from, to] : pairs) {
    STOW_CHECK(from >= 0 && from < group.size() && to >= 0 && to < group.size(),
               "permute: {} to {} in a group of {}", from, to, group.size());
    STOW_CHECK(!sends[static_cast<size_t>(from)] && !receives[static_cast<size_t>(to)],
               "permute: {} to {} is there twice", from, to);
    sends[static_cast<size_t>(from)] = receives[static_cast<size_t>(to)] = true;
    exchange.detail += fmt::format(" {}>{}", from, to);
    if (from == to) {
      to_itself = to_itself || from == group.index;
      continue;
    }
    if (from == group.index) exchange.readers.push_back(to);
    if (to == group.index) exchange.writers.push_back(from);
  }
  const Strided place = contiguous(out, bytes);
  exchange.piece_for = [&](int32_t) { return contiguous(in, bytes); };
  exchange.bytes_from = [&](int32_t) { return bytes; };
  exchange.consume = [&](int32_t, int64_t from, const ReceivedChunk& piece) {
    copy(piece.where, piece.at, place, from, piece.bytes);
  };
  if (transport() != "null" && bytes > 0) {
    if (to_itself) std::memcpy(out, in, static_cast<size_t>(bytes));
    if (!to_itself && exchange.writers.empty()) std::memset(out, 0, static_cast<size_t>(bytes));
  }
  const int64_t sent = exchange.readers.empty() ? 0 : bytes;
  run({"permute", label, sent}, exchange);
}

void Communicator::barrier(const Group& group, std::string_view label) {
  ++n_collectives_;
  Exchange exchange = between_all(group);
  exchange.same_for_all = true;
  exchange.piece_for = [](int32_t) { return Strided{}; };
  exchange.bytes_from = [](int32_t) { return int64_t{0}; };
  exchange.consume = [](int32_t, int64_t, const ReceivedChunk&) {};
  run({"barrier", label, 0}, exchange);
}

void Communicator::broadcast(const Group& group, std::string_view label, int32_t root,
                             std::span<std::byte> bytes) {
  ++n_collectives_;
  const auto n_bytes = static_cast<int64_t>(bytes.size());
  Exchange exchange;
  exchange.group = &group;
  exchange.detail = fmt::format("{} bytes from index {}", n_bytes, root);
  exchange.longest_bytes = n_bytes;
  exchange.same_for_all = true;
  if (group.index == root) {
    exchange.readers = other_members(group);
  } else {
    exchange.writers = {root};
  }
  const Strided place = contiguous(bytes.data(), n_bytes);
  exchange.piece_for = [&](int32_t) { return place; };
  exchange.bytes_from = [&](int32_t) { return n_bytes; };
  exchange.consume = [&](int32_t, int64_t from, const ReceivedChunk& piece) {
    copy(piece.where, piece.at, place, from, piece.bytes);
  };
  const int64_t sent = group.index == root ? n_bytes * (group.size() - 1) / group.size() : 0;
  run({"broadcast", label, sent}, exchange);
}

std::vector<std::vector<int32_t>> Communicator::compare(const Group& group, std::string_view label,
                                                        std::span<const Fingerprint> items) {
  // One fingerprint of all items and of their number. The minimum of a word and of its complement
  // give its minimum and maximum.
  Fingerprint one = {items.size(), ~items.size()};
  for (const Fingerprint& item : items) {
    one[0] = mix(one[0] ^ item[0]) + item[1];
    one[1] = mix(one[1] + item[1]) ^ item[0];
  }
  const std::array<uint64_t, 4> own = {one[0], one[1], ~one[0], ~one[1]};
  std::array<uint64_t, 4> least{};
  // Also before the ranks know that they reduce in one order.
  all_reduce_by_tree(group, label, ReduceKind::kMin, DType::kU64, 4,
                     reinterpret_cast<const std::byte*>(own.data()),
                     reinterpret_cast<std::byte*>(least.data()));
  std::vector<std::vector<int32_t>> odd(items.size());
  if (transport() == "null") return odd;
  if (least[0] == ~least[2] && least[1] == ~least[3]) return odd;
  const auto n = static_cast<size_t>(group.size());
  std::vector<Fingerprint> all(items.size() * n);
  all_gather(group, label, DType::kU64, 1, static_cast<int64_t>(2 * items.size()),
             reinterpret_cast<const std::byte*>(items.data()),
             reinterpret_cast<std::byte*>(all.data()));
  for (size_t item = 0; item < items.size(); ++item) {
    std::map<Fingerprint, int> count;
    for (size_t i = 0; i < n; ++i) ++count[all[i * items.size() + item]];
    Fingerprint usual = all[item];
    for (size_t i = 0; i < n; ++i) {
      const Fingerprint& candidate = all[i * items.size() + item];
      if (count[candidate] > count[usual]) usual = candidate;
    }
    for (size_t i = 0; i < n; ++i)
      if (all[i * items.size() + item] != usual) odd[item].push_back(group.ranks[i]);
  }
  return odd;
}

}  // namespace stow::comm
