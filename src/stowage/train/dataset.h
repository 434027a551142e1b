// Dataset: batches of tokens, targets and visible keys for fine-tuning a language model.
// Not how lines become tokens (dataset_lines.h), and not bytes of a text file (data.h).
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

/// The lengths that rows of at most `seq` tokens may have, the largest first: `seq` alone, or with
/// buckets its half, quarter and eighth too, as far as these are 16 at least.
std::vector<int64_t> bucket_lengths(int64_t seq, bool buckets);

/// The treatment of an example of more than seq + 1 tokens: its first ones stay, or none.
enum class TooLong : uint8_t { kCut, kDrop };

struct DatasetOptions {
  /// A JSONL file, or a folder with train.jsonl and, where wanted, valid.jsonl and test.jsonl.
  std::string path;
  int64_t seq = 1024;      ///< Tokens of a row; an example of seq + 1 has seq to predict from.
  int64_t batch = 1;       ///< Rows of a microbatch.
  int64_t accumulate = 1;  ///< Microbatches of an update.
  bool pack = false;       ///< Several examples in a row.
  bool mask_prompt = true;
  bool shuffle = true;
  bool length_buckets = false;  ///< Shorter rows in shorter batches: of seq, seq/2, seq/4, seq/8.
  TooLong too_long = TooLong::kCut;
  uint64_t seed = 0;
  /// A JSONL file for validation; empty: valid.jsonl of the folder.
  std::string valid_path = {};
  /// Without either: the part of the lines, from the end of the file, held out for validation.
  double valid_fraction = 0;
  int64_t eval_batch = 0;  ///< Batch of validation and test; 0: as `batch`.
  int64_t eval_seq = 0;    ///< 0: as `seq`.
};

/// A microbatch: arrays [B, T], row-major. Unused slots have token, target, weight and position 0
/// and see nothing: lo = hi = 0. They are known by length, never by an id.
struct TokenBatch {
  int64_t rows = 0, length = 0;  ///< B and T.
  std::vector<int32_t> tokens;
  std::vector<int32_t> targets;    ///< The next token of the example.
  std::vector<float> weights;      ///< 1 where the target counts, 0 elsewhere.
  std::vector<int32_t> positions;  ///< From 0 on in each example.
  /// A token sees keys lo <= key < hi, those of its own example, and of these none after itself
  /// (nn::ForwardOptions).
  std::vector<int32_t> lo, hi;
  int64_t n_targets = 0;  ///< The sum of weights.
  int64_t n_tokens = 0;   ///< Slots in use.
};

/// The microbatches of one update, all of one shape.
struct TokenUpdate {
  std::vector<TokenBatch> microbatches;
  int64_t n_targets = 0;  ///< Targets of all microbatches, at least 1: divisor of the loss's sum.
  int64_t n_tokens = 0;
  int64_t epoch = 0;  ///< Epoch of the first row.
};

/// Counts of the lines of a part, by their fate.
struct DatasetCounts {
  int64_t lines = 0;
  int64_t examples = 0;        ///< Kept.
  int64_t rows = 0;            ///< Rows of an epoch.
  int64_t tokens = 0;          ///< Kept, as inputs.
  int64_t targets = 0;         ///< Kept.
  int64_t cut = 0;             ///< Kept examples that lost their end.
  int64_t cut_tokens = 0;      ///< Tokens that these lost.
  int64_t dropped_long = 0;    ///< Examples dropped for their length.
  int64_t without_target = 0;  ///< Examples dropped, as no target is in them or was left by a cut.
  int64_t lost_turns = 0;      ///< Assistant turns of the file not found; see read_examples.
};

/// The rows that a file, or a part of one, makes.
class DatasetPart {
 public:
  /// Lines `first` to `last` - 1 of the examples.
  DatasetPart(std::shared_ptr<const Examples> examples, int64_t first, int64_t last, int64_t seq,
              bool in_order, const DatasetOptions& options);

  const DatasetCounts& counts() const { return counts_; }
  /// The lengths T that batches may have, ascending.
  const std::vector<int64_t>& lengths() const { return lengths_; }
  int64_t n_rows() const { return layout_.n_rows(); }
  /// The place in lengths() of the least length that holds the row.
  int32_t bucket(int64_t row) const { return buckets_[static_cast<size_t>(row)]; }
  /// Rows as a batch of `length`; row -1 is empty.
  TokenBatch batch(const std::vector<int64_t>& rows, int64_t length) const;

 private:
  std::shared_ptr<const Examples> examples_;
  int64_t seq_ = 0;
  std::vector<int32_t> kept_;  // the examples that the layout's items are
  RowLayout layout_;
  std::vector<int64_t> lengths_;
  std::vector<int32_t> buckets_;
  DatasetCounts counts_;
};

/// Data for fine-tuning. Rows come as an endless sequence: an epoch's rows, then the next epoch's.
/// Update s takes rows s * U to (s + 1) * U - 1 with U = batch * accumulate, in order, microbatch
/// by microbatch, so that it holds the same rows however U is divided. An epoch that does not fill
/// its last update shares it with the next epoch. Every update is a pure function of the files, the
/// options and s. Not for several threads at once.
///
/// Order: with shuffle, a permutation that seed and epoch give; with length_buckets too, rows of
/// one bucket come together, U at a time, in an order that seed and epoch give. Without, the
/// file's. Packing is the same in every epoch: in the file's order, or with shuffle as tightly as
/// it goes.
class Dataset {
 public:
  enum class HeldOut : uint8_t { kValidation, kTest };

  /// `text` may be null where all lines are tokens. Ids must be below `vocab`.
  /// Errors: options out of range; "FILE: line N: reason", as of read_examples; no example is left.
  static Result<Dataset> open(const DatasetOptions& options, const text::TokenizerFolder* text,
                              int64_t vocab);

  const DatasetOptions& options() const { return options_; }
  /// The lengths T that updates may have, ascending; those of held-out batches.
  const std::vector<int64_t>& lengths() const { return train_.lengths(); }
  std::vector<int64_t> lengths(HeldOut part) const;
  const DatasetCounts& counts() const { return train_.counts(); }
  /// null where there is no such part.
  const DatasetCounts* counts(HeldOut part) const;

  /// The data of an update, from 0 on.
  TokenUpdate update(int64_t step);
  /// The length T of an update, without its data.
  int64_t length_of_update(int64_t step);

  /// Batches that hold each row of a part once, in order; the last may end in empty rows.
  int64_t n_batches(HeldOut part) const;
  TokenBatch batch(HeldOut part, int64_t index) const;

  /// Digest of all tokens and targets of training, in hexadecimal digits (io/digest.h).
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
