#include "stowage/text/bpe.h"

#include <algorithm>
#include <bit>
#include <queue>

#include "stowage/text/unicode.h"

namespace stow::text {
namespace {

constexpr int32_t kMaxId = (1 << 24) - 1;
constexpr uint64_t kNoKey = ~uint64_t{0};
// Words up to here are searched for the best pair at each step; a heap costs more than that.
constexpr size_t kShortWord = 40;

uint64_t key_of(int32_t left, int32_t right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}
uint64_t mix(uint64_t key) {
  key *= 0x9e3779b97f4a7c15u;
  return key ^ key >> 32;
}

// The byte-level alphabet: printable Latin-1 stands for itself, the rest for U+0100 and on.
struct ByteAlphabet {
  std::array<int16_t, 512> byte_of{};
  ByteAlphabet() {
    byte_of.fill(-1);
    char32_t next = 256;
    for (unsigned b = 0; b < 256; ++b) {
      const bool prints = (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
      byte_of[prints ? b : next++] = static_cast<int16_t>(b);
    }
  }
};
const ByteAlphabet& alphabet() {
  static const ByteAlphabet table;
  return table;
}

}  // namespace

bool byte_level_bytes(std::string_view token, std::string& bytes) {
  bytes.clear();
  for (size_t at = 0; at < token.size(); at += static_cast<size_t>(char_bytes(token, at))) {
    const char32_t c = decode_char(token, at);
    if (c >= alphabet().byte_of.size() || alphabet().byte_of[c] < 0) return false;
    bytes += static_cast<char>(alphabet().byte_of[c]);
  }
  return true;
}

Result<Bpe> Bpe::create(BpeModel model) {
  Bpe bpe;
  bpe.fuse_unk_ = model.fuse_unk;
  bpe.byte_fallback_ = model.byte_fallback;
  bpe.ignore_merges_ = model.ignore_merges;
  bpe.byte_level_ = model.byte_level;
  std::string word;
  for (auto& [token, id] : model.vocab) {
    if (id < 0 || id > kMaxId)
      return fail("model.vocab: expected ids from 0 to {}, got {} for '{}'", kMaxId, id, token);
    if (static_cast<size_t>(id) >= bpe.tokens_.size())
      bpe.tokens_.resize(static_cast<size_t>(id) + 1);
    if (const std::string* other = bpe.token_of(id))
      return fail("model.vocab: '{}' and '{}' have the same id {}", *other, token, id);
    if (!model.byte_level)
      bpe.words_.emplace(token, id);
    else if (byte_level_bytes(token, word))
      bpe.words_.emplace(word, id);
    bpe.tokens_[static_cast<size_t>(id)] = token;
    if (!bpe.ids_.emplace(std::move(token), id).second)
      return fail("model.vocab: a token stands there twice");
  }
  size_t slots = 16;
  while (slots < 2 * model.merges.size() + 1) slots *= 2;
  bpe.merge_keys_.assign(slots, kNoKey);
  bpe.merges_.resize(slots);
  for (size_t rank = 0; rank < model.merges.size(); ++rank) {
    const auto& [left, right] = model.merges[rank];
    const int32_t l = bpe.id_of(left), r = bpe.id_of(right);
    const int32_t both = bpe.id_of(left + right);
    if (l < 0 || r < 0 || both < 0)
      return fail(
          "model.merges: merge {} makes '{}' of '{}' and '{}', and '{}' is not in model.vocab",
          rank, left + right, left, right,
          l < 0   ? left
          : r < 0 ? right
                  : left + right);
    bpe.insert_merge(l, r, {static_cast<uint32_t>(rank), both});
  }
  for (unsigned b = 0; b < 256; ++b) {
    const auto found = model.byte_level ? bpe.words_.find(std::string(1, static_cast<char>(b)))
                                        : bpe.words_.find(fmt::format("<0x{:02X}>", b));
    bpe.byte_ids_[b] = found == bpe.words_.end() ? -1 : found->second;
    if (b >= 128) continue;
    const auto ascii = bpe.words_.find(std::string(1, static_cast<char>(b)));
    bpe.ascii_ids_[b] = ascii == bpe.words_.end() ? -1 : ascii->second;
  }
  if (!model.unk_token.empty()) {
    bpe.unk_id_ = bpe.id_of(model.unk_token);
    if (bpe.unk_id_ < 0)
      return fail("model.unk_token: '{}' is not in model.vocab", model.unk_token);
  }
  return bpe;
}

int32_t Bpe::id_of(std::string_view token) const {
  const auto found = ids_.find(token);
  return found == ids_.end() ? -1 : found->second;
}

const std::string* Bpe::token_of(int32_t id) const {
  if (id < 0 || id >= end_id()) return nullptr;
  const std::string& token = tokens_[static_cast<size_t>(id)];
  return token.empty() && id_of(token) != id ? nullptr : &token;
}

const Bpe::Merge* Bpe::find_merge(int32_t left, int32_t right) const {
  const uint64_t key = key_of(left, right);
  const size_t mask = merge_keys_.size() - 1;
  for (size_t at = mix(key) & mask;; at = (at + 1) & mask) {
    if (merge_keys_[at] == key) return &merges_[at];
    if (merge_keys_[at] == kNoKey) return nullptr;
  }
}

void Bpe::insert_merge(int32_t left, int32_t right, Merge merge) {
  const uint64_t key = key_of(left, right);
  const size_t mask = merge_keys_.size() - 1;
  size_t at = mix(key) & mask;
  while (merge_keys_[at] != kNoKey && merge_keys_[at] != key) at = (at + 1) & mask;
  merge_keys_[at] = key;
  merges_[at] = merge;
}

void Bpe::first_symbols(std::string_view word, std::vector<int32_t>& symbols) const {
  bool has_pending_unk = false;
  const auto unknown = [&] {
    if (unk_id_ < 0) return;
    if (has_pending_unk && !fuse_unk_) symbols.push_back(unk_id_);
    has_pending_unk = true;
  };
  const auto known = [&](int32_t id) {
    if (has_pending_unk) symbols.push_back(unk_id_);
    has_pending_unk = false;
    symbols.push_back(id);
  };
  if (byte_level_) {
    for (const char b : word) {
      const int32_t id = byte_ids_[static_cast<uint8_t>(b)];
      id >= 0 ? known(id) : unknown();
    }
  } else {
    for (size_t at = 0; at < word.size();) {
      const std::string_view c = word.substr(at, static_cast<size_t>(char_bytes(word, at)));
      at += c.size();
      int32_t id = -1;
      if (c.size() == 1) {
        id = ascii_ids_[static_cast<uint8_t>(c[0])];
      } else if (const auto found = words_.find(c); found != words_.end()) {
        id = found->second;
      }
      const auto byte_id = [&](char b) { return byte_ids_[static_cast<uint8_t>(b)]; };
      if (id >= 0)
        known(id);
      else if (byte_fallback_ &&
               std::all_of(c.begin(), c.end(), [&](char b) { return byte_id(b) >= 0; }))
        // As in the reference, an unknown token that waits comes behind these.
        for (const char b : c) symbols.push_back(byte_id(b));
      else
        unknown();
    }
  }
  if (has_pending_unk) symbols.push_back(unk_id_);
}

void Bpe::merge_short(std::vector<int32_t>& symbols) const {
  constexpr uint32_t kNone = ~uint32_t{0};
  std::array<Merge, kShortWord> pairs;  // of a symbol and the next
  const auto merge_at = [&](size_t i) {
    const Merge* merge = i + 1 < symbols.size() ? find_merge(symbols[i], symbols[i + 1]) : nullptr;
    return merge ? *merge : Merge{kNone, 0};
  };
  for (size_t i = 0; i < symbols.size(); ++i) pairs[i] = merge_at(i);
  for (size_t n = symbols.size(); n > 1; --n) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < n; ++i)
      if (pairs[i].rank < pairs[best].rank) best = i;
    if (pairs[best].rank == kNone) return;
    symbols[best] = pairs[best].id;
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(best) + 1);
    std::copy(pairs.begin() + static_cast<std::ptrdiff_t>(best) + 2,
              pairs.begin() + static_cast<std::ptrdiff_t>(n),
              pairs.begin() + static_cast<std::ptrdiff_t>(best) + 1);
    pairs[best] = merge_at(best);
    if (best > 0) pairs[best - 1] = merge_at(best - 1);
  }
}

void Bpe::merge_long(std::vector<int32_t>& symbols) const {
  constexpr uint32_t kEnd = ~uint32_t{0};
  struct Link {
    uint32_t previous, next;
    bool gone;
  };
  struct Candidate {
    uint32_t rank, at;
    int32_t id;
    bool operator<(const Candidate& o) const { return rank != o.rank ? rank > o.rank : at > o.at; }
  };
  const auto n = static_cast<uint32_t>(symbols.size());
  std::vector<Link> links(n);
  std::priority_queue<Candidate> queue;
  const auto offer = [&](uint32_t left, uint32_t right) {
    if (left == kEnd || right == kEnd) return;
    if (const Merge* merge = find_merge(symbols[left], symbols[right]))
      queue.push({merge->rank, left, merge->id});
  };
  for (uint32_t i = 0; i < n; ++i)
    links[i] = {i == 0 ? kEnd : i - 1, i + 1 == n ? kEnd : i + 1, false};
  for (uint32_t i = 0; i + 1 < n; ++i) offer(i, i + 1);
  while (!queue.empty()) {
    const Candidate best = queue.top();
    queue.pop();
    const uint32_t right = links[best.at].next;
    if (links[best.at].gone || right == kEnd) continue;
    const Merge* merge = find_merge(symbols[best.at], symbols[right]);
    if (!merge || merge->id != best.id) continue;  // The pair has changed since.
    symbols[best.at] = best.id;
    links[right].gone = true;
    links[best.at].next = links[right].next;
    if (links[right].next != kEnd) links[links[right].next].previous = best.at;
    offer(links[best.at].previous, best.at);
    offer(best.at, links[best.at].next);
  }
  size_t kept = 0;
  for (uint32_t i = 0; i < n; ++i)
    if (!links[i].gone) symbols[kept++] = symbols[i];
  symbols.resize(kept);
}

void Bpe::encode(std::string_view word, std::vector<int32_t>& ids) const {
  if (ignore_merges_) {
    if (const auto found = words_.find(word); found != words_.end()) {
      ids.push_back(found->second);
      return;
    }
  }
  std::vector<int32_t> symbols;
  symbols.reserve(word.size());
  first_symbols(word, symbols);
  symbols.size() <= kShortWord ? merge_short(symbols) : merge_long(symbols);
  ids.insert(ids.end(), symbols.begin(), symbols.end());
}

}  // namespace stow::text
