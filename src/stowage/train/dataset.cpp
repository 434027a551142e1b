#include "stowage/train/dataset.h"

#include <algorithm>
#include <filesystem>
#include <numeric>

#include "stowage/base/error.h"
#include "stowage/io/digest.h"
#include "stowage/io/files.h"
#include "stowage/train/data.h"

namespace stow {
namespace {

constexpr int64_t kMaxSeq = int64_t{1} << 24;
constexpr int64_t kMaxRows = int64_t{1} << 24;

Result<void> check_options(const DatasetOptions& o) {
  const auto within = [](const char* key, int64_t value, int64_t least,
                         int64_t most) -> Result<void> {
    if (value >= least && value <= most) return {};
    return fail("{}: expected an integer from {} to {}, got {}", key, least, most, value);
  };
  for (const Result<void>& good :
       {within("data.seq", o.seq, 1, kMaxSeq), within("data.batch", o.batch, 1, kMaxRows),
        within("data.accumulate", o.accumulate, 1, kMaxRows),
        within("eval.batch", o.eval_batch, 0, kMaxRows),
        within("eval.seq", o.eval_seq, 0, kMaxSeq)})
    if (!good) return good;
  if (o.batch * o.accumulate > kMaxRows)
    return fail("data.accumulate: expected at most {} rows an update, got {} times {}", kMaxRows,
                o.accumulate, o.batch);
  if (!(o.valid_fraction >= 0 && o.valid_fraction < 1))
    return fail("data.valid_fraction: expected a number from 0 to below 1, got {}",
                o.valid_fraction);
  return {};
}

// The Fisher-Yates shuffle, with bits from seed, epoch and `salt`.
template <typename T>
void shuffle(std::vector<T>& items, uint64_t seed, uint64_t epoch, uint64_t salt) {
  const uint64_t key = mix_bits(seed, epoch, salt);
  for (size_t i = items.size(); i > 1; --i)
    std::swap(items[i - 1], items[mix_bits(key, i, salt) % i]);
}

}  // namespace

std::vector<int64_t> bucket_lengths(int64_t seq, bool buckets) {
  constexpr int64_t kLeast = 16;
  std::vector<int64_t> lengths = {seq};
  for (int64_t parts = 2; buckets && parts <= 8; parts *= 2)
    if (const int64_t length = (seq + parts - 1) / parts; length >= kLeast)
      lengths.push_back(length);
  return lengths;
}

DatasetPart::DatasetPart(std::shared_ptr<const Examples> examples, int64_t first, int64_t last,
                         int64_t seq, bool in_order, const DatasetOptions& options)
    : examples_(std::move(examples)), seq_(seq) {
  counts_.lines = last - first;
  counts_.lost_turns = examples_->n_lost_turns;
  std::vector<int32_t> sizes;  // tokens to predict from, of kept examples
  for (int64_t i = first; i < last; ++i) {
    const int64_t length = examples_->length(i);
    const bool too_long = length - 1 > seq;
    const int64_t size = std::min(length - 1, seq);
    int64_t n_targets = 0;
    for (int64_t k = 1; k <= size; ++k) n_targets += examples_->is_target(i, k);
    // An example without targets counts as such even if it is too long.
    bool any = n_targets > 0;
    for (int64_t k = size + 1; k < length && !any && options.too_long == TooLong::kDrop; ++k)
      any = examples_->is_target(i, k);
    if (!any) {
      ++counts_.without_target;
      continue;
    }
    if (too_long && options.too_long == TooLong::kDrop) {
      ++counts_.dropped_long;
      continue;
    }
    if (too_long) {
      ++counts_.cut;
      counts_.cut_tokens += length - 1 - size;
    }
    counts_.tokens += size;
    counts_.targets += n_targets;
    kept_.push_back(static_cast<int32_t>(i));
    sizes.push_back(static_cast<int32_t>(size));
  }
  counts_.examples = static_cast<int64_t>(kept_.size());
  layout_ = !options.pack ? one_item_per_row(counts_.examples)
            : in_order    ? pack_in_order(sizes, seq)
                          : pack_tightly(sizes, seq);
  counts_.rows = layout_.n_rows();

  std::vector<int64_t> candidates = bucket_lengths(seq, options.length_buckets);
  std::reverse(candidates.begin(), candidates.end());
  std::vector<int32_t> place(candidates.size(), -1);
  for (int64_t r = 0; r < counts_.rows; ++r) {
    int64_t used = 0;
    for (const int32_t item : layout_.row(r)) used += sizes[static_cast<size_t>(item)];
    const auto least = std::lower_bound(candidates.begin(), candidates.end(), used);
    buckets_.push_back(static_cast<int32_t>(least - candidates.begin()));
    place[static_cast<size_t>(buckets_.back())] = 0;
  }
  for (size_t c = 0; c < candidates.size(); ++c)
    if (place[c] == 0) {
      place[c] = static_cast<int32_t>(lengths_.size());
      lengths_.push_back(candidates[c]);
    }
  for (int32_t& bucket : buckets_) bucket = place[static_cast<size_t>(bucket)];
}

TokenBatch DatasetPart::batch(const std::vector<int64_t>& rows, int64_t length) const {
  TokenBatch out;
  out.rows = static_cast<int64_t>(rows.size());
  out.length = length;
  const auto n = static_cast<size_t>(out.rows * length);
  for (auto* values : {&out.tokens, &out.targets, &out.positions, &out.lo, &out.hi})
    values->assign(n, 0);
  out.weights.assign(n, 0.0f);
  for (size_t r = 0; r < rows.size(); ++r) {
    if (rows[r] < 0) continue;
    int64_t begin = 0;
    for (const int32_t item : layout_.row(rows[r])) {
      const int64_t i = kept_[static_cast<size_t>(item)];
      const int64_t size = std::min(examples_->length(i) - 1, seq_);
      STOW_CHECK(begin + size <= length, "a row longer than {}", length);
      for (int64_t k = 0; k < size; ++k) {
        const auto at = r * static_cast<size_t>(length) + static_cast<size_t>(begin + k);
        out.tokens[at] = examples_->token(i, k);
        out.targets[at] = examples_->token(i, k + 1);
        out.positions[at] = static_cast<int32_t>(k);
        out.lo[at] = static_cast<int32_t>(begin);
        out.hi[at] = static_cast<int32_t>(begin + size);
        if (!examples_->is_target(i, k + 1)) continue;
        out.weights[at] = 1.0f;
        ++out.n_targets;
      }
      begin += size;
    }
    out.n_tokens += begin;
  }
  return out;
}

Result<Dataset> Dataset::open(const DatasetOptions& options, const text::TokenizerFolder* text,
                              int64_t vocab) {
  if (Result<void> good = check_options(options); !good) return good.failure();
  std::error_code ignored;
  const bool is_folder = std::filesystem::is_directory(options.path, ignored);
  const auto file_of = [&](const char* name) { return options.path + "/" + name; };
  const std::string train_path = is_folder ? file_of("train.jsonl") : options.path;
  const LineOptions lines{.text = text, .vocab = vocab, .mask_prompt = options.mask_prompt};
  const auto read = [&](const std::string& path) -> Result<std::shared_ptr<const Examples>> {
    Result<Examples> examples = read_examples(path, lines);
    if (!examples) return examples.failure();
    return std::shared_ptr<const Examples>(std::make_shared<Examples>(std::move(*examples)));
  };
  const int64_t eval_seq = options.eval_seq ? options.eval_seq : options.seq;
  const auto check_kept = [&](const DatasetPart& part, const std::string& path, const char* use,
                              int64_t seq) -> Result<void> {
    const DatasetCounts& c = part.counts();
    if (c.examples > 0) return {};
    return fail(
        "{}: no example is left {}: of {} lines {} have no target within {} tokens and {} "
        "are longer and dropped",
        path, use, c.lines, c.without_target, seq + 1, c.dropped_long);
  };

  const auto examples = read(train_path);
  if (!examples) return examples.failure();
  const std::string valid_path =
      !options.valid_path.empty()                            ? options.valid_path
      : is_folder && file_exists(file_of("valid.jsonl")) ? file_of("valid.jsonl")
                                                             : "";
  const bool has_valid = !valid_path.empty();
  int64_t n_train = (*examples)->size();
  if (!has_valid && options.valid_fraction > 0) {
    const auto held = static_cast<int64_t>(options.valid_fraction * static_cast<double>(n_train));
    if (held == 0)
      return fail(
          "{}: {} lines are too few to hold out {} of them for validation; take more, or "
          "data.valid_fraction=0",
          train_path, n_train, options.valid_fraction);
    n_train -= held;
  }
  Dataset data(options, DatasetPart(*examples, 0, n_train, options.seq, !options.shuffle, options));
  if (Result<void> good = check_kept(data.train_, train_path, "to train on", options.seq); !good)
    return good.failure();
  Digest digest;
  (*examples)->digest_into(digest);
  const auto add = [&](std::optional<DatasetPart>& part, std::shared_ptr<const Examples> from,
                       int64_t first, const std::string& path, const char* use) -> Result<void> {
    const int64_t last = from->size();
    part.emplace(std::move(from), first, last, eval_seq, true, options);
    return check_kept(*part, path, use, eval_seq);
  };
  if (has_valid) {
    const auto valid = read(valid_path);
    if (!valid) return valid.failure();
    if (Result<void> good =
            add(data.validation_, *valid, 0, valid_path, "for validation");
        !good)
      return good.failure();
  } else if (n_train < (*examples)->size()) {
    digest.update(std::as_bytes(std::span(&n_train, 1)));
    if (Result<void> good = add(data.validation_, *examples, n_train, train_path, "for validation");
        !good)
      return good.failure();
  }
  if (is_folder && file_exists(file_of("test.jsonl"))) {
    const auto test = read(file_of("test.jsonl"));
    if (!test) return test.failure();
    if (Result<void> good = add(data.test_, *test, 0, file_of("test.jsonl"), "to test on"); !good)
      return good.failure();
  }
  data.digest_ = digest.hex();
  return data;
}

std::vector<int64_t> Dataset::lengths(HeldOut part) const {
  return held_out(part) ? held_out(part)->lengths() : std::vector<int64_t>();
}

const DatasetCounts* Dataset::counts(HeldOut part) const {
  return held_out(part) ? &held_out(part)->counts() : nullptr;
}

void Dataset::set_order(int64_t epoch) {
  if (order_epoch_ == epoch) return;
  order_epoch_ = epoch;
  const int64_t n = train_.n_rows();
  order_.resize(static_cast<size_t>(n));
  std::iota(order_.begin(), order_.end(), 0);
  const auto e = static_cast<uint64_t>(epoch);
  shuffle(order_, options_.seed, e, 1);
  if (!options_.length_buckets || train_.lengths().size() == 1) return;
  std::stable_sort(order_.begin(), order_.end(),
                   [&](int32_t a, int32_t b) { return train_.bucket(a) < train_.bucket(b); });
  // Groups of rows that fill one update each. The shortest rows are at the ends of the epoch, where
  // an update also takes rows of the neighbouring epoch.
  const int64_t per_update = rows_per_update();
  const int64_t before = (epoch % per_update) * (n % per_update) % per_update;
  const int64_t head = std::min(n, (per_update - before) % per_update);
  const int64_t tail = (n - head) % per_update;
  std::vector<int64_t> groups(static_cast<size_t>((n - head - tail) / per_update));
  std::iota(groups.begin(), groups.end(), int64_t{0});
  shuffle(groups, options_.seed, e, 2);
  std::vector<int32_t> order(order_.begin(), order_.begin() + head);
  for (const int64_t g : groups) {
    const auto first = order_.begin() + head + tail + g * per_update;
    order.insert(order.end(), first, first + per_update);
  }
  order.insert(order.end(), order_.begin() + head, order_.begin() + head + tail);
  order_ = std::move(order);
}

std::vector<int64_t> Dataset::rows_of_update(int64_t step) {
  const int64_t n = train_.n_rows(), per_update = rows_per_update();
  STOW_CHECK(step >= 0 && step <= (int64_t{1} << 38), "step {}", step);
  std::vector<int64_t> rows;
  rows.reserve(static_cast<size_t>(per_update));
  for (int64_t g = step * per_update; g < (step + 1) * per_update; ++g) {
    const int64_t epoch = g / n;
    int64_t row = g % n;
    if (options_.shuffle) {
      set_order(epoch);
      row = order_[static_cast<size_t>(row)];
    }
    rows.push_back(row);
  }
  return rows;
}

int64_t Dataset::length_of(const DatasetPart& part, const std::vector<int64_t>& rows) const {
  int32_t bucket = 0;
  for (const int64_t row : rows)
    if (row >= 0) bucket = std::max(bucket, part.bucket(row));
  return part.lengths()[static_cast<size_t>(bucket)];
}

int64_t Dataset::length_of_update(int64_t step) {
  return length_of(train_, rows_of_update(step));
}

TokenUpdate Dataset::update(int64_t step) {
  const std::vector<int64_t> rows = rows_of_update(step);
  const int64_t length = length_of(train_, rows);
  TokenUpdate out;
  out.epoch = step * rows_per_update() / train_.n_rows();
  for (int64_t m = 0; m < options_.accumulate; ++m) {
    const auto first = rows.begin() + m * options_.batch;
    out.microbatches.push_back(
        train_.batch(std::vector<int64_t>(first, first + options_.batch), length));
    out.n_targets += out.microbatches.back().n_targets;
    out.n_tokens += out.microbatches.back().n_tokens;
  }
  STOW_CHECK(out.n_targets > 0, "every row holds an example, and every example a target");
  return out;
}

int64_t Dataset::n_batches(HeldOut part) const {
  const int64_t batch = options_.eval_batch ? options_.eval_batch : options_.batch;
  return held_out(part) ? (held_out(part)->n_rows() + batch - 1) / batch : 0;
}

TokenBatch Dataset::batch(HeldOut part, int64_t index) const {
  STOW_CHECK(index >= 0 && index < n_batches(part), "batch {} of {}", index, n_batches(part));
  const int64_t batch = options_.eval_batch ? options_.eval_batch : options_.batch;
  std::vector<int64_t> rows(static_cast<size_t>(batch), -1);
  for (int64_t r = 0; r < batch; ++r)
    if (const int64_t row = index * batch + r; row < held_out(part)->n_rows())
      rows[static_cast<size_t>(r)] = row;
  return held_out(part)->batch(rows, length_of(*held_out(part), rows));
}

}  // namespace stow
