// Dataset: batches of tokens, targets and attention intervals for fine-tuning a language model.
// Not the tokenization of lines (dataset_lines.h), and not the bytes of a text file (data.h).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "stowage/base/inside.h"
#include "stowage/base/result.h"
#include "stowage/text/tokenizer_folder.h"
#include "stowage/train/dataset_lines.h"
#include "stowage/train/packing.h"

namespace stow {

/// Returns the lengths that rows of at most `seq` tokens may have, the largest first: only `seq`,
/// or with `buckets` also seq/2, seq/4 and seq/8, if they are at least 16.
std::vector<int64_t> bucket_lengths(int64_t seq, bool buckets);

/// The treatment of an example of more than seq + 1 tokens: keep the first seq + 1, or drop it.
enum class TooLong : uint8_t { kCut, kDrop };

struct DatasetOptions {
  /// A JSONL file, or a folder with train.jsonl and optionally valid.jsonl and test.jsonl.
  std::string path;
  int64_t seq = 1024;      ///< Tokens of a row; an example of seq + 1 tokens fills a row.
  int64_t batch = 1;       ///< Rows of a microbatch.
  int64_t accumulate = 1;  ///< Microbatches of an update.
  bool pack = false;       ///< True: a row may hold several examples.
  bool mask_prompt = true;  ///< See LineOptions.
  bool shuffle = true;
  bool length_buckets = false;  ///< True: batches have one of the bucket_lengths().
  TooLong too_long = TooLong::kCut;
  uint64_t seed = 0;
  /// A JSONL file for validation; empty: valid.jsonl of the folder, if it exists.
  std::string valid_path = {};
  /// Share of the lines, at the end of the file, held out for validation if there is no validation
  /// file.
  double valid_fraction = 0;
  int64_t eval_batch = 0;  ///< Batch of validation and test; 0: as `batch`.
  int64_t eval_seq = 0;    ///< 0: as `seq`.
};

/// A microbatch: arrays [B, T], row-major. Padding has token, target, weight and position 0 and
/// attends to nothing: lo = hi = 0. No token id marks padding.
struct TokenBatch {
  int64_t rows = 0, length = 0;  ///< B and T.
  std::vector<int32_t> tokens;
  std::vector<int32_t> targets;    ///< The next token of the example.
  std::vector<float> weights;      ///< 1 if the target counts in the loss, else 0.
  std::vector<int32_t> positions;  ///< Counted from 0 in each example.
  /// The keys of a token's example are lo <= key < hi. A token attends to those of them that are
  /// not after itself (nn::ForwardOptions).
  std::vector<int32_t> lo, hi;
  int64_t n_targets = 0;  ///< The sum of weights.
  int64_t n_tokens = 0;   ///< Tokens without padding.
};

/// The microbatches of one update, all of one shape.
struct TokenUpdate {
  std::vector<TokenBatch> microbatches;
  int64_t n_targets = 0;  ///< Targets of all microbatches, at least 1: divisor of the loss's sum.
  int64_t n_tokens = 0;   ///< Tokens of all microbatches, without padding.
  int64_t epoch = 0;      ///< Epoch of the first row.
};

/// Counts of examples and tokens of a file or a part of one.
struct DatasetCounts {
  int64_t lines = 0;
  int64_t examples = 0;        ///< Examples kept.
  int64_t rows = 0;            ///< Rows of an epoch.
  int64_t tokens = 0;          ///< Input tokens of kept examples.
  int64_t targets = 0;         ///< Targets of kept examples.
  int64_t cut = 0;             ///< Kept examples that were truncated.
  int64_t cut_tokens = 0;      ///< Tokens removed by truncation.
  int64_t dropped_long = 0;    ///< Examples dropped because they are too long.
  int64_t without_target = 0;  ///< Examples dropped because they have no target (after truncation).
  int64_t lost_turns = 0;      ///< Assistant turns that were not found; see read_examples().
};

/// The rows of a file, or of a part of one.
class DatasetPart {
 public:
  /// Takes examples `first` to `last` - 1. `in_order`: true: packing keeps the order of the file.
  DatasetPart(std::shared_ptr<const Examples> examples, int64_t first, int64_t last, int64_t seq,
              bool in_order, const DatasetOptions& options);

  const DatasetCounts& counts() const { return counts_; }
  /// The lengths T that batches may have, ascending.
  const std::vector<int64_t>& lengths() const { return lengths_; }
  int64_t n_rows() const { return layout_.n_rows(); }
  /// The index in lengths() of the smallest length that holds the row.
  int32_t bucket(int64_t row) const { return buckets_[static_cast<size_t>(row)]; }
  /// Returns rows as a batch of `length` tokens each; row -1 is padding only.
  TokenBatch batch(const std::vector<int64_t>& rows, int64_t length) const;

 private:
  std::shared_ptr<const Examples> examples_;
  int64_t seq_ = 0;
  std::vector<int32_t> kept_;  // item i of layout_ is example kept_[i]
  RowLayout layout_;
  std::vector<int64_t> lengths_;
  std::vector<int32_t> buckets_;
  DatasetCounts counts_;
};

/// Data for fine-tuning. Rows come as an endless sequence: an epoch's rows, then the next epoch's.
/// Update s takes rows s * U to (s + 1) * U - 1 with U = batch * accumulate, in order, microbatch
/// by microbatch: it holds the same rows for every division of U into microbatches. An epoch that
/// does not fill its last update shares it with the next epoch. Every update is a pure function of
/// the files, the options and s. One thread at a time uses it.
///
/// Order: without shuffle, that of the file. With shuffle, a permutation by seed and epoch. With
/// length_buckets too, updates are filled with U rows of one bucket, in an order by seed and epoch.
/// Packing is the same in every epoch: pack_in_order() without shuffle, pack_tightly() with it.
class Dataset {
 public:
  enum class HeldOut : uint8_t { kValidation, kTest };

  /// `text` may be null if all lines are tokens. Ids must be below `vocab`.
  /// Errors: options out of range; "FILE: line N: reason" of read_examples(); no example is left.
  static Result<Dataset> open(const DatasetOptions& options, const text::TokenizerFolder* text,
                              int64_t vocab);

  const DatasetOptions& options() const { return options_; }
  /// The lengths T that updates may have, ascending.
  const std::vector<int64_t>& lengths() const { return train_.lengths(); }
  /// The lengths T that batches of a held-out part may have, ascending.
  std::vector<int64_t> lengths(HeldOut part) const;
  const DatasetCounts& counts() const { return train_.counts(); }
  /// Counts of a held-out part; null if there is no such part.
  const DatasetCounts* counts(HeldOut part) const;

  /// Returns the data of an update, counted from 0.
  TokenUpdate update(int64_t step);
  /// Returns the length T of an update, without its data.
  int64_t length_of_update(int64_t step);

  /// The number of batches of a held-out part. They hold each row once, in order; the last may end
  /// in empty rows.
  int64_t n_batches(HeldOut part) const;
  TokenBatch batch(HeldOut part, int64_t index) const;

  /// Digest of all training tokens and targets, in hexadecimal digits (io/digest.h).
  const std::string& digest() const { return digest_; }

 private:
  Dataset(DatasetOptions options, DatasetPart train)
      : options_(std::move(options)), train_(std::move(train)) {}

  const std::optional<DatasetPart>& held_out(HeldOut part) const {
    return part == HeldOut::kValidation ? validation_ : test_;
  }
  int64_t rows_per_update() const { return options_.batch * options_.accumulate; }
  std::vector<int64_t> rows_of_update(int64_t step);
  int64_t length_of(const DatasetPart& part, const std::vector<int64_t>& rows) const;
  void set_order(int64_t epoch);

  DatasetOptions options_;
  DatasetPart train_;
  std::optional<DatasetPart> validation_, test_;
  std::string digest_;
  std::vector<int32_t> order_;  // the rows of order_epoch_; unused without shuffle
  int64_t order_epoch_ = -1;
};

}  // namespace stow
