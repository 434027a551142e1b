#include "stowage/train/dataset.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "tests/unit/train/dataset_kit.h"

namespace stow {
namespace {

using HeldOut = Dataset::HeldOut;

struct RandomFile {
  std::string lines;
  std::vector<std::vector<int32_t>> tokens;
  std::vector<std::vector<int>> masks;
};

RandomFile random_file(std::mt19937& rng, int n, int longest) {
  const auto draw = [&](int least, int most) {
    return std::uniform_int_distribution<int>(least, most)(rng);
  };
  RandomFile file;
  for (int i = 0; i < n; ++i) {
    std::vector<int32_t> tokens(static_cast<size_t>(draw(0, longest)));
    std::vector<int> mask(tokens.size());
    const int odds = draw(0, 4);
    for (size_t k = 0; k < tokens.size(); ++k) {
      tokens[k] = draw(0, static_cast<int>(kVocab) - 1);
      mask[k] = draw(0, 3) < odds;
    }
    Json line = Json::object();
    Json ids = Json::array(), ones = Json::array();
    for (const int32_t id : tokens) ids.push_back(id);
    for (const int one : mask) ones.push_back(one);
    line.set("tokens", ids);
    line.set("mask", ones);
    file.lines += line.dump() + "\n";
    file.tokens.push_back(tokens);
    file.masks.push_back(mask);
  }
  return file;
}

// What is to be seen of a file, in its order; written apart from the dataset.
std::vector<SeenExample> expected_of(const RandomFile& file, size_t seq, TooLong too_long) {
  std::vector<SeenExample> out;
  for (size_t i = 0; i < file.tokens.size(); ++i) {
    std::vector<int32_t> tokens = file.tokens[i];
    std::vector<int> mask = file.masks[i];
    if (tokens.size() > seq + 1) {
      if (too_long == TooLong::kDrop) continue;
      tokens.resize(seq + 1);
      mask.resize(seq + 1);
    }
    if (tokens.size() < 2 || std::count(mask.begin() + 1, mask.end(), 1) == 0) continue;
    SeenExample seen;
    seen.tokens.assign(tokens.begin(), tokens.end() - 1);
    seen.targets.assign(tokens.begin() + 1, tokens.end());
    seen.weights.assign(mask.begin() + 1, mask.end());
    out.push_back(seen);
  }
  return out;
}

std::vector<std::vector<SeenExample>> rows_of(const TokenUpdate& update) {
  std::vector<std::vector<SeenExample>> rows;
  for (const TokenBatch& batch : update.microbatches)
    for (auto& row : stow::rows_of(batch)) rows.push_back(std::move(row));
  return rows;
}

bool same(const TokenBatch& a, const TokenBatch& b) {
  return std::tie(a.rows, a.length, a.tokens, a.targets, a.weights, a.positions, a.lo, a.hi,
                  a.n_targets, a.n_tokens) == std::tie(b.rows, b.length, b.tokens, b.targets,
                                                       b.weights, b.positions, b.lo, b.hi,
                                                       b.n_targets, b.n_tokens);
}

bool same(const TokenUpdate& a, const TokenUpdate& b) {
  return a.n_targets == b.n_targets && a.n_tokens == b.n_tokens && a.epoch == b.epoch &&
         std::equal(a.microbatches.begin(), a.microbatches.end(), b.microbatches.begin(),
                    b.microbatches.end(),
                    [](const TokenBatch& x, const TokenBatch& y) { return same(x, y); });
}

// trl#6668, trl#1230, nanoVLM#204 and mlx-examples#1076 among others: whatever the options, each
// kept example is seen once an epoch, sees itself alone, and batches have a length known before.
TEST(Dataset, EachExampleIsSeenOnceAnEpoch) {
  std::mt19937 rng(7);
  for (int trial = 0; trial < 300; ++trial) {
    SCOPED_TRACE(trial);
    const auto draw = [&](int least, int most) {
      return std::uniform_int_distribution<int>(least, most)(rng);
    };
    DatasetOptions options;
    options.seq = draw(1, 70);
    options.batch = draw(1, 5);
    options.accumulate = draw(1, 4);
    options.pack = draw(0, 1);
    options.shuffle = draw(0, 1);
    options.length_buckets = draw(0, 1);
    options.too_long = draw(0, 1) ? TooLong::kCut : TooLong::kDrop;
    options.seed = static_cast<uint64_t>(draw(0, 1000));
    const RandomFile file = random_file(rng, draw(1, 60), draw(2, 90));
    std::vector<SeenExample> expected =
        expected_of(file, static_cast<size_t>(options.seq), options.too_long);
    Result<Dataset> data = open_lines(file.lines, options);
    if (expected.empty()) {
      ASSERT_FALSE(data.ok());
      EXPECT_NE(data.error().find("no example is left to train on"), std::string::npos);
      continue;
    }
    ASSERT_TRUE(data.ok()) << data.error();
    const int64_t n_rows = data->counts().rows, per_update = options.batch * options.accumulate;
    EXPECT_EQ(data->counts().examples, static_cast<int64_t>(expected.size()));
    EXPECT_EQ(data->counts().lines, static_cast<int64_t>(file.tokens.size()));
    const std::vector<int64_t>& lengths = data->lengths();
    EXPECT_TRUE(std::is_sorted(lengths.begin(), lengths.end()));
    if (!options.length_buckets) {
      EXPECT_EQ(lengths, std::vector<int64_t>{options.seq});
    }

    std::vector<std::vector<SeenExample>> stream;
    std::set<int64_t> met;
    for (int64_t step = 0; static_cast<int64_t>(stream.size()) < 3 * n_rows; ++step) {
      const TokenUpdate update = data->update(step);
      EXPECT_EQ(update.epoch, step * per_update / n_rows);
      ASSERT_EQ(update.microbatches.size(), static_cast<size_t>(options.accumulate));
      int64_t n_targets = 0;
      size_t longest = 0;
      for (const TokenBatch& batch : update.microbatches) {
        EXPECT_EQ(batch.rows, options.batch);
        EXPECT_EQ(batch.length, update.microbatches[0].length);
        n_targets += std::count(batch.weights.begin(), batch.weights.end(), 1.0f);
      }
      EXPECT_EQ(update.n_targets, n_targets);
      EXPECT_GT(n_targets, 0);
      for (auto& row : rows_of(update)) {
        EXPECT_FALSE(row.empty());
        size_t used = 0;
        for (const SeenExample& seen : row) used += seen.tokens.size();
        longest = std::max(longest, used);
        stream.push_back(std::move(row));
      }
      const int64_t length = update.microbatches[0].length;
      EXPECT_EQ(length,
                *std::lower_bound(lengths.begin(), lengths.end(), static_cast<int64_t>(longest)));
      EXPECT_EQ(data->length_of_update(step), length);
      met.insert(length);
    }
    EXPECT_TRUE(std::includes(lengths.begin(), lengths.end(), met.begin(), met.end()));
    std::vector<std::vector<SeenExample>> epochs;
    for (int64_t epoch = 0; epoch < 3; ++epoch) {
      std::vector<SeenExample>& all = epochs.emplace_back();
      for (int64_t r = epoch * n_rows; r < (epoch + 1) * n_rows; ++r) {
        if (!options.pack) {
          EXPECT_EQ(stream[static_cast<size_t>(r)].size(), 1u);
        }
        for (const SeenExample& seen : stream[static_cast<size_t>(r)]) all.push_back(seen);
      }
    }
    if (!options.shuffle) {
      for (const auto& epoch : epochs) EXPECT_EQ(epoch, expected);
    }
    std::sort(expected.begin(), expected.end());
    for (auto epoch : epochs) {
      std::sort(epoch.begin(), epoch.end());
      EXPECT_EQ(epoch, expected);
    }
    if (options.shuffle && !options.length_buckets && n_rows > 20) {
      EXPECT_NE(epochs[0], epochs[1]);
    }
  }
}

// transformers#34191, #37766: an update is the same however it is divided, and so is its divisor.
TEST(Dataset, AccumulationDoesNotChangeAnUpdate) {
  std::mt19937 rng(3);
  const RandomFile file = random_file(rng, 50, 40);
  for (const bool pack : {false, true})
    for (const bool shuffle : {false, true})
      for (const bool buckets : {false, true}) {
        DatasetOptions options{
            .seq = 48, .pack = pack, .shuffle = shuffle, .length_buckets = buckets};
        options.batch = 4;
        Result<Dataset> whole = open_lines(file.lines, options);
        ASSERT_TRUE(whole.ok()) << whole.error();
        for (const int64_t accumulate : {2, 4}) {
          options.batch = 4 / accumulate;
          options.accumulate = accumulate;
          Result<Dataset> parts = open_lines(file.lines, options);
          ASSERT_TRUE(parts.ok());
          for (int64_t step = 0; step < 40; ++step) {
            const TokenUpdate a = whole->update(step), b = parts->update(step);
            EXPECT_EQ(rows_of(a), rows_of(b));
            EXPECT_EQ(a.n_targets, b.n_targets);
            EXPECT_EQ(a.microbatches[0].length, b.microbatches[0].length);
          }
        }
      }
}

// mlx-lm#97: a run that goes on at a step meets the data it would have met.
TEST(Dataset, UpdatesDependOnTheStepAlone) {
  std::mt19937 rng(4);
  const RandomFile file = random_file(rng, 40, 40);
  for (const bool buckets : {false, true}) {
    DatasetOptions options{
        .seq = 40, .batch = 3, .accumulate = 2, .length_buckets = buckets, .seed = 5};
    Result<Dataset> first = open_lines(file.lines, options);
    ASSERT_TRUE(first.ok());
    std::vector<TokenUpdate> updates;
    for (int64_t step = 0; step < 30; ++step) updates.push_back(first->update(step));
    for (const int64_t step : {17, 3, 29, 0, 12}) {
      Result<Dataset> resumed = open_lines(file.lines, options);
      EXPECT_EQ(resumed->digest(), first->digest());
      EXPECT_TRUE(same(resumed->update(step), updates[static_cast<size_t>(step)]));
      EXPECT_TRUE(same(first->update(step), updates[static_cast<size_t>(step)]));
    }
    options.seed = 6;
    Result<Dataset> other = open_lines(file.lines, options);
    EXPECT_FALSE(same(other->update(0), updates[0]));
  }
}

TEST(Dataset, DigestIsOfTokensAndTargets) {
  const auto digest = [](const std::string& lines, DatasetOptions options = {}) {
    return open_lines(lines, options)->digest();
  };
  const std::string lines = "{\"tokens\":[1,2,3],\"mask\":[0,1,1]}\n{\"tokens\":[4,5]}\n";
  EXPECT_EQ(digest(lines), digest("\n" + lines));
  EXPECT_NE(digest(lines), digest("{\"tokens\":[1,2,3],\"mask\":[0,0,1]}\n{\"tokens\":[4,5]}\n"));
  EXPECT_NE(digest(lines), digest("{\"tokens\":[1,2,7],\"mask\":[0,1,1]}\n{\"tokens\":[4,5]}\n"));
  // Where an example ends is part of it, and what is said of a first token is not.
  EXPECT_NE(digest("{\"tokens\":[1,2,3],\"mask\":[0,1,0]}\n{\"tokens\":[4,5]}\n"),
            digest("{\"tokens\":[1,2]}\n{\"tokens\":[3,4,5],\"mask\":[0,0,1]}\n"));
  EXPECT_EQ(digest("{\"tokens\":[4,5]}"), digest("{\"tokens\":[4,5],\"mask\":[1,1]}"));
  EXPECT_NE(digest(lines), digest(lines, {.valid_fraction = 0.5}));
}

TEST(Dataset, CountsWhatIsCutAndDropped) {
  const std::string lines =
      "{\"tokens\":[1,2,3,4,5]}\n"                           // fits
      "{\"tokens\":[1,2,3,4,5,6,7]}\n"                       // two too long
      "{\"tokens\":[1,2,3,4,5,6],\"mask\":[0,0,0,0,0,1]}\n"  // its target is beyond the row
      "{\"tokens\":[1,2,3],\"mask\":[1,0,0]}\n"              // the first token is no target
      "{\"tokens\":[1,2,3,4,5,6,7],\"mask\":[0,0,0,0,0,0,0]}\n"
      "{\"tokens\":[9]}\n{\"tokens\":[]}\n";
  Result<Dataset> data = open_lines(lines, {.seq = 4, .too_long = TooLong::kCut});
  ASSERT_TRUE(data.ok()) << data.error();
  DatasetCounts c = data->counts();
  EXPECT_EQ(c.lines, 7);
  EXPECT_EQ(c.examples, 2);
  EXPECT_EQ(c.rows, 2);
  EXPECT_EQ(c.tokens, 8);
  EXPECT_EQ(c.targets, 8);
  EXPECT_EQ(c.cut, 1);
  EXPECT_EQ(c.cut_tokens, 2);
  EXPECT_EQ(c.dropped_long, 0);
  EXPECT_EQ(c.without_target, 5);
  data = open_lines(lines, {.seq = 4, .too_long = TooLong::kDrop});
  ASSERT_TRUE(data.ok()) << data.error();
  c = data->counts();
  EXPECT_EQ(c.examples, 1);
  EXPECT_EQ(c.cut, 0);
  EXPECT_EQ(c.cut_tokens, 0);
  EXPECT_EQ(c.dropped_long, 2);
  EXPECT_EQ(c.without_target, 4);
}

// trl#6668: no loss of 0 where nothing is learned.
TEST(Dataset, DataWithoutATargetIsAnError) {
  EXPECT_EQ(error_of("{\"tokens\":[1,2,3],\"mask\":[1,0,0]}\n{\"tokens\":[1,2,3,4,5]}", nullptr,
                     {.seq = 3, .too_long = TooLong::kDrop}),
            "data.jsonl: no example is left to train on: of 2 lines 1 have no target within 4 "
            "tokens and 1 are longer and dropped");
}

TEST(Dataset, PackingFillsRows) {
  std::string lines;
  for (int i = 0; i < 64; ++i) lines += "{\"tokens\":[1,2,3,4,5,6,7,8,9]}\n";
  for (const bool shuffle : {false, true}) {
    Result<Dataset> data = open_lines(lines, {.seq = 32, .pack = true, .shuffle = shuffle});
    ASSERT_TRUE(data.ok());
    EXPECT_EQ(data->counts().rows, 16);
    EXPECT_EQ(data->update(0).n_tokens, 32);
  }
}

TEST(Dataset, BucketsPutRowsOfOneLengthTogether) {
  std::string lines;
  for (int i = 0; i < 400; ++i) {
    Json ids = Json::array();
    for (int k = 0; k < (i % 2 ? 130 : 10); ++k) ids.push_back(k);
    lines += Json::object({{"tokens", ids}}).dump() + "\n";
  }
  Result<Dataset> data = open_lines(lines, {.seq = 256, .batch = 7, .length_buckets = true});
  ASSERT_TRUE(data.ok());
  EXPECT_EQ(data->lengths(), (std::vector<int64_t>{32, 256}));
  std::map<int64_t, int> updates;
  for (int64_t step = 0; step < 400; ++step) ++updates[data->length_of_update(step)];
  // Of 57 updates an epoch one or two have rows of both kinds.
  EXPECT_GE(updates[32], 185);
  EXPECT_GE(updates[256], 185);
}

TEST(Dataset, HeldOutBatchesHoldEachRowOnce) {
  TemporaryFolder folder;
  std::mt19937 rng(9);
  const RandomFile train = random_file(rng, 20, 20), valid = random_file(rng, 23, 60);
  write_bytes(folder / "train.jsonl", train.lines);
  write_bytes(folder / "valid.jsonl", valid.lines);
  DatasetOptions options{
      .path = folder.path(), .seq = 16, .batch = 2, .eval_batch = 5, .eval_seq = 40};
  options.valid_fraction = 0.5;  // of no effect beside valid.jsonl
  Result<Dataset> data = Dataset::open(options, nullptr, kVocab);
  ASSERT_TRUE(data.ok()) << data.error();
  EXPECT_EQ(data->counts().lines, 20);
  EXPECT_EQ(data->n_batches(HeldOut::kTest), 0);
  EXPECT_EQ(data->counts(HeldOut::kTest), nullptr);
  ASSERT_NE(data->counts(HeldOut::kValidation), nullptr);
  std::vector<SeenExample> seen;
  int64_t n_rows = 0;
  for (int64_t b = 0; b < data->n_batches(HeldOut::kValidation); ++b) {
    const TokenBatch batch = data->batch(HeldOut::kValidation, b);
    EXPECT_EQ(batch.rows, 5);
    EXPECT_EQ(batch.length, 40);
    n_rows += batch.rows;
    for (const auto& row : stow::rows_of(batch)) seen.insert(seen.end(), row.begin(), row.end());
  }
  EXPECT_EQ(seen, expected_of(valid, 40, TooLong::kCut));
  EXPECT_LT(n_rows - data->counts(HeldOut::kValidation)->rows, 5);
  const std::string digest = data->digest();
  write_bytes(folder / "test.jsonl", valid.lines);
  EXPECT_GT(Dataset::open(options, nullptr, kVocab)->n_batches(HeldOut::kTest), 0);
  EXPECT_EQ(Dataset::open(options, nullptr, kVocab)->digest(), digest);
  // What a run is evaluated on may change; what it trains on may not.
  write_bytes(folder / "valid.jsonl", train.lines);
  EXPECT_EQ(Dataset::open(options, nullptr, kVocab)->digest(), digest);
  write_bytes(folder / "train.jsonl", valid.lines);
  EXPECT_NE(Dataset::open(options, nullptr, kVocab)->digest(), digest);
}

TEST(Dataset, HoldsOutTheEndOfAFile) {
  std::string lines;
  for (int i = 0; i < 10; ++i) lines += fmt::format("{{\"tokens\":[{},{}]}}\n", i, i + 1);
  Result<Dataset> data = open_lines(lines, {.seq = 4, .shuffle = false, .valid_fraction = 0.25});
  ASSERT_TRUE(data.ok()) << data.error();
  EXPECT_EQ(data->counts().rows, 8);
  EXPECT_EQ(data->n_batches(HeldOut::kValidation), 2);
  EXPECT_EQ(data->batch(HeldOut::kValidation, 0).tokens[0], 8);
  EXPECT_EQ(data->batch(HeldOut::kValidation, 1).tokens[0], 9);
  EXPECT_EQ(error_of(lines, nullptr, {.valid_fraction = 0.05}),
            "data.jsonl: 10 lines are too few to hold out 0.05 of them for validation; take more, "
            "or data.valid_fraction=0");
}

TEST(Dataset, RefusesOptionsOutOfRange) {
  const std::string line = "{\"tokens\":[1,2]}";
  EXPECT_EQ(error_of(line, nullptr, {.seq = 0}),
            "data.seq: expected an integer from 1 to 16777216, got 0");
  EXPECT_EQ(error_of(line, nullptr, {.batch = -1}),
            "data.batch: expected an integer from 1 to 16777216, got -1");
  EXPECT_EQ(error_of(line, nullptr, {.batch = 1 << 14, .accumulate = 1 << 14}),
            "data.accumulate: expected at most 16777216 rows an update, got 16384 times 16384");
  EXPECT_EQ(error_of(line, nullptr, {.valid_fraction = 1}),
            "data.valid_fraction: expected a number from 0 to below 1, got 1");
}

TEST(Packing, RowsHoldEachItemOnceWithinTheCapacity) {
  std::mt19937 rng(1);
  for (int trial = 0; trial < 200; ++trial) {
    const int64_t capacity = std::uniform_int_distribution<int64_t>(1, 50)(rng);
    std::vector<int32_t> sizes(std::uniform_int_distribution<size_t>(0, 80)(rng));
    for (int32_t& size : sizes)
      size = std::uniform_int_distribution<int32_t>(1, static_cast<int32_t>(capacity))(rng);
    const RowLayout in_order = pack_in_order(sizes, capacity),
                    tight = pack_tightly(sizes, capacity);
    for (const RowLayout& layout : {in_order, tight}) {
      std::vector<int32_t> all = layout.items;
      for (int64_t r = 0; r < layout.n_rows(); ++r) {
        int64_t used = 0;
        for (const int32_t item : layout.row(r)) used += sizes[static_cast<size_t>(item)];
        EXPECT_GT(used, 0);
        EXPECT_LE(used, capacity);
      }
      std::sort(all.begin(), all.end());
      std::vector<int32_t> each(sizes.size());
      std::iota(each.begin(), each.end(), 0);
      EXPECT_EQ(all, each);
    }
    EXPECT_TRUE(std::is_sorted(in_order.items.begin(), in_order.items.end()));
    // Best fit never leaves two rows that would go into one.
    std::vector<int64_t> used(static_cast<size_t>(tight.n_rows()));
    for (size_t r = 0; r < used.size(); ++r)
      for (const int32_t item : tight.row(static_cast<int64_t>(r)))
        used[r] += sizes[static_cast<size_t>(item)];
    std::sort(used.begin(), used.end());
    if (used.size() > 1) {
      EXPECT_GT(used[0] + used[1], capacity);
    }
  }
}

}  // namespace
}  // namespace stow
