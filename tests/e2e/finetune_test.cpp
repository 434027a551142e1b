// Fine-tuning a model from files, from the configuration to the last checkpoint: the same bits
// under every policy, place and budget, microbatches that add up, adapters that are written and
// read. The tests of FinetuneOnEachTarget run on the host's target and on OtherTarget, the others
// on the host's alone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <fmt/ranges.h>
#include <omp.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "stowage/io/checkpoint_file.h"
#include "stowage/io/float_convert.h"
#include "stowage/io/sharded_save.h"
#include "stowage/lm/adapter.h"
#include "stowage/lm/score.h"
#include "stowage/nn/loss.h"
#include "stowage/stowage.h"
#include "stowage/train/export.h"
#include "stowage/train/finetune_model.h"
#include "stowage/train/trainer.h"
#include "tests/support/peft_kit.h"
#include "tests/support/source_path.h"
#include "tests/support/training_fixture.h"

namespace stow {
namespace {

using ::testing::HasSubstr;

using testing::joined_losses;
using testing::Outcome;

// The newest checkpoint of a folder as two processes write it, every array cut along its last even
// axis.
void cut_in_two(const std::string& from, const std::string& to) {
  const CheckpointName name = latest_checkpoint(from).value().value();
  const Checkpoint checkpoint = Checkpoint::open(name.path).value();
  const SafetensorsFile file =
      SafetensorsFile::open(std::filesystem::path(name.path).replace_extension(".safetensors"))
          .value();
  const SaveTicket ticket = begin_sharded_save(to, name.step, 2).value();
  std::vector<SaveReceipt> receipts;
  for (int32_t process : {0, 1}) {
    std::vector<SliceBytes> slices;
    std::vector<std::vector<std::byte>> bytes;
    for (const TensorInfo& tensor : file.tensors()) {
      SliceBytes part{tensor, whole_slice(tensor.shape), {}, {}};
      size_t axis = tensor.shape.size();
      while (axis > 0 && tensor.shape[axis - 1] % 2 != 0) --axis;
      if (axis > 0) {
        part.slice.sizes[axis - 1] /= 2;
        part.slice.starts[axis - 1] = process * part.slice.sizes[axis - 1];
      } else if (process == 1) {
        continue;
      }
      bytes.emplace_back(static_cast<size_t>(part.slice.elems() * dtype_bytes(tensor.dtype)));
      STOW_CHECK(checkpoint.read_slice(tensor.name, part.slice, bytes.back()).ok());
      slices.push_back(std::move(part));
    }
    for (size_t i = 0; i < slices.size(); ++i) slices[i].bytes = bytes[i];
    receipts.push_back(write_shard(to, ticket, process, slices).value());
  }
  STOW_CHECK(finish_sharded_save(to, ticket, checkpoint.meta(), receipts, 0).ok());
}

class Finetune : public testing::TrainingFixture {
 protected:
  Finetune() : TrainingFixture(omp_get_max_threads()) {}

  static constexpr int64_t kSeq = 20;

  void SetUp() override {
    testing::write_base(folder_ / "base", /*tied=*/true);
    write_lines(folder_ / "train.jsonl", 48, 1);
    write_lines(folder_ / "valid.jsonl", 5, 2);
  }

  // Random tokens, the last two thirds of each line targets.
  static void write_lines(const std::string& path, int n, uint32_t seed) {
    std::string text;
    uint32_t state = seed;
    const auto draw = [&](uint32_t below) {
      state = state * 1664525u + 1013904223u;
      return (state >> 8) % below;
    };
    for (int i = 0; i < n; ++i) {
      const int length = 4 + static_cast<int>(draw(kSeq - 4));
      std::string tokens, mask;
      for (int k = 0; k < length; ++k) {
        tokens += fmt::format("{}{}", k ? "," : "", draw(24));
        mask += fmt::format("{}{}", k ? "," : "", k >= length / 3 ? 1 : 0);
      }
      text += fmt::format("{{\"tokens\":[{}],\"mask\":[{}]}}\n", tokens, mask);
    }
    ASSERT_TRUE(write_text_file(path, text).ok());
  }

  TrainConfig config(const std::string& name) const {
    TrainConfig c;
    c.model.path = folder_ / "base";
    c.data.path = folder_ / "train.jsonl";
    c.data.seq = kSeq;
    c.data.batch = 4;
    c.data.shuffle = false;
    c.lora.rank = 4;
    c.train.steps = c.optimizer.total_steps = 5;
    c.train.checkpoint_every = 0;
    c.train.out = folder_ / name;
    c.optimizer.warmup = 1;
    c.optimizer.lr = 0.02;
    return c;
  }

  Outcome train(TrainConfig c, std::optional<int64_t> budget = {}, bool resume = false) {
    const Result<ModelFactory> factory = model_factory(c);
    if (!factory) return {.error = factory.error()};
    return train_job(Job(c, target(), *factory), budget, resume);
  }

  // The largest relative difference of losses.
  static double apart(const Outcome& x, const Outcome& y) {
    const std::vector<double> a = x.numbers("loss"), b = y.numbers("loss");
    EXPECT_EQ(a.size(), b.size());
    double most = 0;
    for (size_t i = 0; i < std::min(a.size(), b.size()); ++i)
      most = std::max(most, std::abs(a[i] - b[i]) / std::abs(b[i]));
    return most;
  }

  // The log-probabilities of some rows under the model with an adapter, or of a model alone.
  static std::vector<float> scores(const std::string& model, const std::string& adapter = "") {
    Result<lm::ModelFiles> files = lm::ModelFiles::open(model);
    STOW_CHECK(files.ok(), "{}", files.error());
    lm::WeightOptions options;
    if (!adapter.empty()) {
      Result<lm::AdapterFiles> opened =
          lm::AdapterFiles::open(adapter, files->config, files->weights.get());
      STOW_CHECK(opened.ok(), "{}", opened.error());
      options.adapter = std::make_shared<const lm::AdapterFiles>(std::move(*opened));
    }
    const Result<lm::Model> loaded = lm::load(*files, options);
    STOW_CHECK(loaded.ok(), "{}", loaded.error());
    lm::TokenRows rows;
    rows.n = 2;
    rows.length = 8;
    for (int i = 0; i < 16; ++i) rows.tokens.push_back(i * 7 % 24);
    return lm::score(*loaded, rows, {.logits = true}).logits;
  }
};

using FinetuneOnEachTarget = testing::OnEachTarget<Finetune>;
INSTANTIATE_TEST_SUITE_P(, FinetuneOnEachTarget, testing::each_target(), testing::target_name);

TEST_P(FinetuneOnEachTarget, EveryPolicyAndPlaceGivesTheSameBitsAtThePredictedPeak) {
  const Outcome plain = train(config("plain"));
  ASSERT_EQ(plain.status, 0) << plain.error;
  ASSERT_EQ(plain.losses.size(), 5u);
  EXPECT_LT(plain.numbers("loss").back(), plain.numbers("loss").front());
  for (const std::string policy : {"save_dots", "save_named", "recompute", "nested"}) {
    TrainConfig c = config(policy);
    c.memory.policy = policy;
    EXPECT_EQ(train(c).losses, plain.losses) << policy;
  }
  for (const std::string place : {"pinned_host", "disk"}) {
    for (const std::string what : {"frozen", "all"}) {
      if (place == "pinned_host" && what == "all") continue;
      TrainConfig c = config(place + what);
      c.runtime.platform = "virtual";
      c.memory.disk = 1 << 26;
      c.memory.frozen = place;
      c.memory.policy = "recompute";
      if (what == "all") c.memory.optimizer = c.memory.parameters = place;
      const Outcome o = train(c);
      EXPECT_EQ(o.status, 0) << o.error;
      EXPECT_EQ(o.losses, plain.losses) << place << what;
    }
  }
}

// Down to a budget that nothing fits.
TEST_F(Finetune, EveryBudgetGivesTheSameBitsAtThePredictedPeak) {
  const Outcome plain = train(config("plain"));
  ASSERT_EQ(plain.status, 0) << plain.error;
  TrainConfig c = config("budget");
  c.runtime.platform = "virtual";
  int64_t least = plain.device_peak();
  for (int64_t budget = plain.device_peak(); budget > 0; budget -= plain.device_peak() / 4) {
    const Outcome o = train(c, budget);
    if (!o.error.empty()) break;
    EXPECT_EQ(o.losses, plain.losses) << budget;
    EXPECT_LE(o.device_peak(), budget);
    least = budget;
  }
  EXPECT_LE(least, plain.device_peak() * 3 / 4 + 1);
}

TEST_P(FinetuneOnEachTarget, MicrobatchesAddUpToTheBatch) {
  for (const int64_t rank : {0, 4}) {
    Outcome whole;
    for (const int64_t k : {1, 2, 4}) {
      TrainConfig c = config(fmt::format("k{}-{}", k, rank));
      c.lora.rank = rank;
      c.data.batch = 4 / k;
      c.data.accumulate = k;
      const Outcome o = train(c);
      ASSERT_EQ(o.status, 0) << o.error;
      if (k == 1) whole = o;
      EXPECT_LT(apart(o, whole), 2e-6) << k << " of rank " << rank;
      TrainConfig lean = c;
      lean.train.out += "-lean";
      lean.memory.policy = "recompute";
      EXPECT_EQ(train(lean).losses, o.losses);
    }
  }
}

TEST_F(Finetune, ThePeakDoesNotGrowWithTheNumberOfMicrobatches) {
  std::vector<int64_t> peaks;
  for (const int64_t k : {2, 8}) {
    TrainConfig c = config("peak");
    c.data.batch = 1;
    c.data.accumulate = k;
    const Result<ModelFactory> factory = model_factory(c);
    ASSERT_TRUE(factory.ok()) << factory.error();
    const Job job(c, 1, *factory);
    const int64_t batch_bytes = k * kSeq * 12;  // tokens, targets and weights
    const JobPlan plan = job.plan({});
    peaks.push_back(plan.programs.step->memory_analysis().device().total_bytes - batch_bytes);
  }
  EXPECT_LE(std::abs(peaks[1] - peaks[0]), 1024);
}

TEST_F(Finetune, PackedExamplesDoNotSeeOneAnother) {
  TrainConfig alone = config("alone"), packed = config("packed");
  // The same lines, some of which share a row: as many rows as there are, so that an update has
  // them all.
  write_lines(folder_ / "few.jsonl", 12, 7);
  for (TrainConfig* c : {&alone, &packed}) {
    c->data.path = folder_ / "few.jsonl";
    c->data.batch = 12;
    c->train.steps = 1;
  }
  packed.data.pack = true;
  packed.data.seq = 48;
  {
    TrainConfig c = packed;
    const Result<ModelFactory> factory = model_factory(c);
    const auto data = (*factory)(c)->open_data();
    ASSERT_TRUE(data.ok()) << data.error();
    const std::string text = (*data)->describe();  // "data: 12 examples in 4 rows, …"
    const size_t at = text.find(" in ");
    packed.data.batch = std::stoll(text.substr(at + 4));
    ASSERT_LT(packed.data.batch, 10) << text;
  }
  const Outcome a = train(alone), b = train(packed);
  ASSERT_EQ(a.status, 0) << a.error;
  ASSERT_EQ(b.status, 0) << b.error;
  EXPECT_LT(apart(b, a), 1e-5);
}

TEST_P(FinetuneOnEachTarget, EveryLengthBucketHasItsOwnProgramAndTheLossesOfOneLength) {
  TrainConfig whole = config("whole"), buckets = config("buckets");
  whole.data.seq = buckets.data.seq = 64;
  buckets.data.length_buckets = true;
  const Outcome a = train(whole), b = train(buckets);
  ASSERT_EQ(a.status, 0) << a.error;
  ASSERT_EQ(b.status, 0) << b.error;
  EXPECT_LT(apart(b, a), 1e-5);
}

TEST_P(FinetuneOnEachTarget, ResumesToTheBitWithAnAverageAndMicrobatches) {
  const auto make = [&](const std::string& name, int64_t steps) {
    TrainConfig c = config(name);
    c.train.ema = 0.9;
    c.data.batch = 2;
    c.data.accumulate = 2;
    c.data.shuffle = true;
    c.eval.data = folder_ / "valid.jsonl";
    c.train.steps = steps;
    c.optimizer.total_steps = 6;
    return c;
  };
  const Outcome whole = train(make("whole", 6));
  ASSERT_EQ(whole.status, 0) << whole.error;
  const Outcome first = train(make("parts", 3));
  const Outcome second = train(make("parts", 6), {}, true);
  ASSERT_EQ(second.status, 0) << second.error;
  EXPECT_EQ(joined_losses(first, second), whole.losses);
  EXPECT_EQ(*second.summary.find("validation_loss"), *whole.summary.find("validation_loss"));
  // Another base is not gone on with.
  testing::write_base(folder_ / "other", /*tied=*/false);
  TrainConfig other = make("parts", 8);
  other.model.path = folder_ / "other";
  EXPECT_THAT(train(other, {}, true).error, HasSubstr("model.config"));
  TrainConfig wider = make("parts", 8);
  wider.lora.rank = 8;
  EXPECT_THAT(train(wider, {}, true).error, HasSubstr("lora.rank"));
}

TEST_P(FinetuneOnEachTarget, TheAverageIsWhatIsEvaluatedAndExported) {
  TrainConfig c = config("ema");
  c.train.ema = 0.5;
  c.train.steps = 1;
  c.eval.data = folder_ / "valid.jsonl";
  const Outcome averaged = train(c);
  ASSERT_EQ(averaged.status, 0) << averaged.error;
  TrainConfig last = config("last");
  last.train.steps = 1;
  last.eval.data = c.eval.data;
  const Outcome plain = train(last);
  EXPECT_EQ(averaged.losses, plain.losses);
  EXPECT_NE(*averaged.summary.find("validation_loss"), *plain.summary.find("validation_loss"));
  const Result<Exported> done = export_adapter(c.train.out, folder_ / "ema-adapter");
  ASSERT_TRUE(done.ok()) << done.error();
  EXPECT_TRUE(done->is_ema);
}

TEST_F(Finetune, WhatIsExportedScoresAsTheAdapterDoesAndTrainingGoesOnFromIt) {
  TrainConfig c = config("out");
  ASSERT_EQ(train(c).status, 0);
  const Result<Exported> adapter = export_adapter(c.train.out, folder_ / "adapter");
  ASSERT_TRUE(adapter.ok()) << adapter.error();
  EXPECT_EQ(adapter->step, 5);
  const Result<Exported> model = export_model(c.train.out, folder_ / "merged");
  ASSERT_TRUE(model.ok()) << model.error();
  EXPECT_THAT(export_model(c.train.out, folder_ / "base").error(), HasSubstr("is read from"));
  const std::vector<float> base = scores(folder_ / "base"),
                           with = scores(folder_ / "base", folder_ / "adapter"),
                           merged = scores(folder_ / "merged");
  double moved = 0, off = 0;
  for (size_t i = 0; i < base.size(); ++i) {
    moved = std::max(moved, std::abs(static_cast<double>(with[i]) - base[i]));
    off = std::max(off, std::abs(static_cast<double>(with[i]) - merged[i]));
  }
  EXPECT_GT(moved, 0.01);
  EXPECT_LT(off, 1e-4);
  // A run that starts as the exported adapter begins with the loss that it ends at.
  TrainConfig on = config("on");
  on.lora = {};
  on.lora.init = folder_ / "adapter";
  on.optimizer.lr = 0;
  on.train.steps = 1;
  TrainConfig resumed = c;
  resumed.train.steps = 6;
  resumed.data.path = on.data.path;
  const Outcome next = train(resumed, {}, true), fresh = train(on);
  ASSERT_EQ(next.losses.size(), 1u) << next.error;
  ASSERT_EQ(fresh.losses.size(), 1u) << fresh.error;
  // The sixth update has other lines; of the first ones the trained adapter's loss is lower.
  EXPECT_LT(fresh.numbers("loss")[0], train(config("again")).numbers("loss")[0]);
}

TEST_F(Finetune, AnotherBaseIsNotMerged) {
  TrainConfig c = config("other");
  c.train.steps = 1;
  ASSERT_EQ(train(c).status, 0);
  // The same sizes, and one weight that differs.
  Result<lm::ModelFiles> files = lm::ModelFiles::open(folder_ / "base");
  testing::TensorSet tensors;
  for (const ModelTensor& t : model_tensors(files->config)) tensors.add(t.name, t.shape);
  std::vector<float> norm(16, 1.0f);
  tensors.add("model.norm.weight", {16}, norm);
  ASSERT_TRUE(write_hf_folder(folder_ / "base", files->config, tensors.bytes()).ok());
  EXPECT_THAT(export_model(c.train.out, folder_ / "merged").error(),
              HasSubstr("its weights are not those"));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "merged/config.json"));
  TrainConfig on = c;
  on.train.steps = 2;
  EXPECT_THAT(train(on, {}, true).error, HasSubstr("model.digest"));
}

TEST_F(Finetune, ATestFileIsEvaluatedAtTheEnd) {
  std::filesystem::create_directories((folder_ / "parts"));
  write_lines(folder_ / "parts/train.jsonl", 16, 3);
  write_lines(folder_ / "parts/test.jsonl", 6, 4);
  TrainConfig c = config("tested");
  c.data.path = folder_ / "parts";
  const Outcome o = train(c);
  ASSERT_EQ(o.status, 0) << o.error;
  ASSERT_TRUE(o.summary.find("test_loss")->as_double());
  EXPECT_GT(*o.summary.find("test_loss")->as_double(), 0.5);
  EXPECT_TRUE(o.numbers("validation_loss").empty());
}

TEST_F(Finetune, AllWeightsTrainWithoutARankAndAreExported) {
  TrainConfig c = config("full");
  c.lora.rank = 0;
  c.optimizer.lr = 3e-3;
  const Outcome o = train(c);
  ASSERT_EQ(o.status, 0) << o.error;
  EXPECT_LT(o.numbers("loss").back(), o.numbers("loss").front());
  const Result<Exported> done = export_model(c.train.out, folder_ / "model");
  ASSERT_TRUE(done.ok()) << done.error();
  EXPECT_NE(scores(folder_ / "model"), scores(folder_ / "base"));
  EXPECT_THAT(export_adapter(c.train.out, folder_ / "none").error(), HasSubstr("has no adapter"));

  // The same checkpoint as two processes would have written it gives the same model.
  cut_in_two(c.train.out, folder_ / "parts");
  const Result<Exported> cut = export_model(folder_ / "parts", folder_ / "model-of-parts");
  ASSERT_TRUE(cut.ok()) << cut.error();
  EXPECT_EQ(read_bytes(folder_ / "model-of-parts/model.safetensors"),
            read_bytes(folder_ / "model/model.safetensors"));
}

TEST_F(Finetune, DropoutDrawsTheSameAgainAndStopsInEvaluation) {
  TrainConfig c = config("dropout");
  c.lora.dropout = 0.3;
  c.eval.data = folder_ / "valid.jsonl";
  const Outcome o = train(c);
  ASSERT_EQ(o.status, 0) << o.error;
  TrainConfig lean = c;
  lean.train.out += "-lean";
  lean.memory.policy = "recompute";
  const Outcome again = train(lean);
  EXPECT_EQ(again.losses, o.losses);
  EXPECT_EQ(*again.summary.find("validation_loss"), *o.summary.find("validation_loss"));
  TrainConfig none = config("no-dropout");
  EXPECT_NE(train(none).losses, o.losses);
}

TEST_F(Finetune, StopsWhenTheLossOfWhatIsHeldOutNoLongerFalls) {
  TrainConfig c = config("patience");
  c.eval.data = folder_ / "valid.jsonl";
  c.eval.every = 1;
  c.eval.patience = 2;
  c.optimizer.lr = 0;  // nothing changes, so no evaluation is better than the first
  c.train.steps = 9;
  const Outcome o = train(c);
  ASSERT_EQ(o.status, 0) << o.error;
  EXPECT_EQ(o.losses.size(), 3u);
  EXPECT_EQ(o.numbers("validation_loss").size(), 3u);
}

// Trained too long on few lines: what is held out gets worse again.
TEST_P(FinetuneOnEachTarget, TheBestCheckpointStaysAndIsWhatIsTestedAndExported) {
  std::filesystem::create_directories(folder_ / "lines");
  for (const auto& [from, to] : {std::pair("train.jsonl", "train.jsonl"),
                                 {"valid.jsonl", "valid.jsonl"},
                                 {"valid.jsonl", "test.jsonl"}})
    std::filesystem::copy_file(folder_ / from, fmt::format("{}/{}", folder_ / "lines", to));
  const auto make = [&](const std::string& name, int64_t steps) {
    TrainConfig c = config(name);
    c.data.path = folder_ / "lines";
    c.optimizer.lr = 0.05;
    c.optimizer.schedule = "constant";
    c.eval.every = 1;
    c.eval.keep_best = true;
    c.train.steps = steps;
    c.train.checkpoint_every = 1;
    return c;
  };
  constexpr int64_t kSteps = 14;
  const Outcome whole = train(make("whole", kSteps));
  ASSERT_EQ(whole.status, 0) << whole.error;
  const std::vector<double> losses = whole.numbers("validation_loss");
  ASSERT_EQ(losses.size(), static_cast<size_t>(kSteps - 1));
  const auto least = std::min_element(losses.begin(), losses.end());
  const int64_t best = least - losses.begin() + 1;
  // The newest three would not have kept it.
  ASSERT_LT(best, kSteps - 3) << fmt::format("{}", fmt::join(losses, " "));
  EXPECT_EQ(*whole.summary.find("best_step")->as_int(), best);
  EXPECT_EQ(*whole.summary.find("best_validation_loss")->as_double(), *least);
  std::vector<int64_t> steps;
  const std::vector<CheckpointName> left = list_checkpoints(folder_ / "whole").value();
  for (const CheckpointName& c : left) steps.push_back(c.step);
  EXPECT_THAT(steps, ::testing::ElementsAre(best, kSteps - 2, kSteps - 1, kSteps));

  // What is tested and exported are the weights of that step.
  const Outcome until = train(make("until", best));
  ASSERT_EQ(until.status, 0) << until.error;
  EXPECT_EQ(*whole.summary.find("test_loss"), *until.summary.find("test_loss"));
  EXPECT_NE(*whole.summary.find("test_loss"), *whole.summary.find("validation_loss"));
  const Result<Exported> done =
      export_adapter(folder_ / "whole", folder_ / "best", WhichCheckpoint::kBest);
  ASSERT_TRUE(done.ok()) << done.error();
  EXPECT_EQ(done->step, best);
  ASSERT_TRUE(export_adapter(folder_ / "until", folder_ / "until-adapter").ok());
  EXPECT_EQ(read_bytes(folder_ / "best/adapter_model.safetensors"),
            read_bytes(folder_ / "until-adapter/adapter_model.safetensors"));

  // A run that goes on knows it, also one that is over.
  train(make("parts", best + 2));
  const Outcome parts = train(make("parts", kSteps), {}, true);
  ASSERT_EQ(parts.status, 0) << parts.error;
  for (const char* key : {"best_step", "best_validation_loss", "test_loss", "validation_loss"})
    EXPECT_EQ(*parts.summary.find(key), *whole.summary.find(key)) << key;
  const Outcome again = train(make("parts", kSteps), {}, true);
  EXPECT_EQ(*again.summary.find("best_step"), *whole.summary.find("best_step"));
  EXPECT_EQ(*again.summary.find("test_loss"), *whole.summary.find("test_loss"));

  // One that somebody has removed is forgotten.
  std::filesystem::remove(checkpoint_path(folder_ / "parts", best));
  const Outcome without = train(make("parts", kSteps + 1), {}, true);
  ASSERT_EQ(without.status, 0) << without.error;
  EXPECT_GT(*without.summary.find("best_step")->as_int(), best);
}

TEST_F(Finetune, ARunWithoutABestCheckpointNamesNone) {
  TrainConfig c = config("none");
  ASSERT_EQ(train(c).status, 0);
  const std::string error =
      export_adapter(folder_ / "none", folder_ / "adapter", WhichCheckpoint::kBest).error();
  EXPECT_THAT(error, HasSubstr("names no best checkpoint"));
  c.eval.keep_best = true;
  EXPECT_THAT(train(c).error,
              HasSubstr("eval.keep_best = true has no effect: nothing is held out"));
}

// Weights of bf16 are rounded by a hash of their values: no plan changes a bit.
TEST_F(Finetune, WeightsOfBf16TrainUnderEveryPlanInLess) {
  for (const int64_t rank : {4, 0}) {
    const auto make = [&](const std::string& name, const std::string& compute) {
      TrainConfig c = config(fmt::format("{}-{}", name, rank));
      c.lora.rank = rank;
      if (rank == 0) c.optimizer.lr = 3e-3;
      c.train.compute = compute;
      c.train.ema = 0.5;
      return c;
    };
    const Outcome wide = train(make("wide", "bf16"));
    const std::string policy = "p=bf16,c=bf16,o=f32";
    const Outcome plain = train(make("plain", policy));
    ASSERT_EQ(plain.status, 0) << plain.error;
    EXPECT_LT(plain.numbers("loss").back(), plain.numbers("loss").front());
    EXPECT_LE(apart(plain, wide), 5e-3);
    EXPECT_LT(plain.device_peak(), wide.device_peak());
    for (const std::string memory : {"save_dots", "recompute"}) {
      TrainConfig c = make(memory, policy);
      c.memory.policy = memory;
      EXPECT_EQ(train(c).losses, plain.losses) << memory;
    }
    TrainConfig away = make("away", policy);
    away.runtime.platform = "virtual";
    away.memory.disk = 1 << 26;
    away.memory.policy = "recompute";
    away.memory.optimizer = away.memory.parameters = rank == 0 ? "disk" : "pinned_host";
    const Outcome moved = train(away);
    EXPECT_EQ(moved.losses, plain.losses) << moved.error;
    TrainConfig tight = make("budget", policy);
    tight.runtime.platform = "virtual";
    const Outcome fitted = train(tight, plain.device_peak() * 3 / 4);
    EXPECT_EQ(fitted.losses, plain.losses) << fitted.error;
    TrainConfig first = make("parts", policy);
    first.train.steps = 2;
    const Outcome begun = train(first);
    const Outcome rest = train(make("parts", policy), {}, true);
    EXPECT_EQ(joined_losses(begun, rest), plain.losses) << rest.error;
    // Microbatches add up in f32.
    TrainConfig halves = make("halves", policy);
    halves.data.batch = 2;
    halves.data.accumulate = 2;
    const Outcome o = train(halves);
    EXPECT_LE(apart(o, plain), 5e-3);
  }
}

TEST_F(Finetune, WeightsOfBf16AreExported) {
  TrainConfig c = config("adapter");
  c.train.compute = "p=bf16,c=f32,o=f32";
  ASSERT_EQ(train(c).status, 0);
  ASSERT_TRUE(export_adapter(c.train.out, folder_ / "peft").ok());
  // A run that begins with it holds the same numbers: all of them are bf16.
  TrainConfig next = config("next");
  next.lora.rank = 0;
  next.lora.init = folder_ / "peft";
  next.train.compute = c.train.compute;
  next.optimizer.lr = 0;
  next.train.steps = 1;
  ASSERT_EQ(train(next).status, 0);
  ASSERT_TRUE(export_adapter(next.train.out, folder_ / "again").ok());
  EXPECT_EQ(read_bytes(folder_ / "again/adapter_model.safetensors"),
            read_bytes(folder_ / "peft/adapter_model.safetensors"));

  TrainConfig full = config("full");
  full.lora.rank = 0;
  full.train.compute = "p=bf16,c=bf16,o=f32";
  full.optimizer.lr = 3e-3;
  ASSERT_EQ(train(full).status, 0);
  ASSERT_TRUE(export_model(full.train.out, folder_ / "model").ok());
  ASSERT_TRUE(export_model(full.train.out, folder_ / "wide", DType::kF32).ok());
  // The wide file holds the same numbers.
  const SafetensorsFile half = SafetensorsFile::open(folder_ / "model/model.safetensors").value();
  const SafetensorsFile wide = SafetensorsFile::open(folder_ / "wide/model.safetensors").value();
  ASSERT_GT(half.tensors().size(), 5u);
  for (const TensorInfo& tensor : half.tensors()) {
    ASSERT_EQ(tensor.dtype, DType::kBF16) << tensor.name;
    std::vector<std::byte> own(static_cast<size_t>(tensor.n_bytes)), widened(2 * own.size()),
        other(2 * own.size());
    ASSERT_TRUE(half.read(tensor, own).ok());
    ASSERT_TRUE(wide.read(*wide.find(tensor.name), other).ok());
    convert_floats(DType::kBF16, own, DType::kF32, widened);
    EXPECT_EQ(widened, other) << tensor.name;
  }
}

// An adapter is read leaf by leaf to where it lies.
TEST_P(FinetuneOnEachTarget, ARunBeginsWithAnAdapterThatLiesOnTheDisk) {
  TrainConfig c = config("first");
  c.lora.targets = "q_proj,down_proj";
  ASSERT_EQ(train(c).status, 0);
  ASSERT_TRUE(export_adapter(c.train.out, folder_ / "peft").ok());
  TrainConfig next = config("next");
  next.lora.rank = 0;
  next.lora.init = folder_ / "peft";
  next.optimizer.lr = 0;
  next.train.steps = 1;
  next.runtime.platform = "virtual";
  next.memory.disk = 1 << 26;
  next.memory.policy = "recompute";
  next.memory.frozen = next.memory.optimizer = next.memory.parameters = "disk";
  ASSERT_EQ(train(next).status, 0);
  ASSERT_TRUE(export_adapter(next.train.out, folder_ / "again").ok());
  EXPECT_EQ(read_bytes(folder_ / "again/adapter_model.safetensors"),
            read_bytes(folder_ / "peft/adapter_model.safetensors"));
}

// Weights of Q8_0, Q4_1 and the like are read as f32, or held in half of that.
TEST_F(Finetune, AQuantisedFileIsHeldAsF32OrBf16) {
  std::string text;
  for (int i = 0; i < 16; ++i) {
    text += "{\"tokens\":[";
    for (int k = 0; k < 12; ++k) text += fmt::format("{}{}", k ? "," : "", (i * k + k * k + i) % 8);
    text += "]}\n";
  }
  ASSERT_TRUE(write_text_file(folder_ / "small.jsonl", text).ok());
  const auto make = [&](const std::string& dtype) {
    TrainConfig c = config("gguf-" + dtype);
    c.model.path = source_path("tests/data/gguf/llama.gguf");
    c.model.dtype = dtype;
    c.data.path = folder_ / "small.jsonl";
    return c;
  };
  const auto frozen_bytes = [](TrainConfig c) {
    const Job job(c, 1, model_factory(c).value());
    int64_t bytes = 0;
    for (const StateLeaf& leaf : job.frozen()) bytes += leaf.type.bytes();
    return bytes;
  };
  EXPECT_EQ(frozen_bytes(make("auto")), frozen_bytes(make("f32")));
  EXPECT_EQ(frozen_bytes(make("auto")), 2 * frozen_bytes(make("bf16")));
  const Outcome wide = train(make("auto")), half = train(make("bf16"));
  ASSERT_EQ(wide.status, 0) << wide.error;
  ASSERT_EQ(half.status, 0) << half.error;
  EXPECT_LT(half.device_peak(), wide.device_peak());
  EXPECT_NE(half.losses, wide.losses);
  EXPECT_LE(apart(half, wide), 3e-2);
  // Remedies are planned with it.
  TrainConfig c = make("auto");
  const std::vector<ModelChange> changes = Job(c, 1, model_factory(c).value()).model().changes();
  ASSERT_EQ(changes.size(), 1u);
  EXPECT_EQ(changes[0].setting, "--set model.dtype=bf16");
  changes[0].apply(c);
  EXPECT_EQ(frozen_bytes(c), frozen_bytes(make("bf16")));
}

// Qwen3-4B's head at 8192 tokens: all logits in f32 would be 5 GB, and their gradient as much.
TEST(FinetuneLoss, HoldsTheLogitsOfAChunkAlone) {
  constexpr int64_t kTokens = 8192, kWidth = 2560, kVocab = 151936;
  const auto loss = [](const Array& hidden, const Array& embed, const Array& targets,
                       const Array& weights) {
    return nn::weighted_linear_cross_entropy(hidden, swapaxes(embed, 0, 1), targets, weights, 256);
  };
  const auto with_gradient = [&](const Array& h, const Array& e, const Array& t, const Array& w) {
    return value_and_grad([&](const Array& hidden) { return loss(hidden, e, t, w); })(h);
  };
  const Graph graph = jit(with_gradient)
                          .lower(Array::abstract(Shape{kTokens, kWidth}, DType::kBF16),
                                 Array::abstract(Shape{kVocab, kWidth}, DType::kBF16),
                                 Array::abstract(Shape{kTokens}, DType::kI32),
                                 Array::abstract(Shape{kTokens}))
                          .graph();
  const ExecutablePtr program = compile(graph, {}, 2);
  const KindAnalysis& device = program->memory_analysis().device();
  const int64_t own = device.total_bytes - device.argument_bytes - device.output_bytes;
  EXPECT_GE(own, 256 * kVocab * 4) << "the logits of one chunk in f32";
  EXPECT_LE(own, 300'000'000);
}

TEST(FinetuneLoss, IsThatOfAllLogitsAtOnceAndSoAreItsGradients) {
  const Array hidden = random::normal(random::key(1), {600, 24}),
              head = random::normal(random::key(2), {24, 50});
  const Array targets = iota({600}, 0, DType::kI32) % 50;
  const Array weights = (iota({600}, 0, DType::kI32) % 3).astype(DType::kF32) * 0.01;
  const auto chunked = [&](const Array& h, const Array& w, int64_t chunk) {
    return nn::weighted_linear_cross_entropy(h, w, targets, weights, chunk);
  };
  const auto whole = [&](const Array& h, const Array& w) {
    return sum(cross_entropy(matmul(h, w), targets) * weights);
  };
  const auto [want, want_grads] = value_and_grad<0, 1>(whole)(hidden, head);
  for (const int64_t chunk : {7, 64, 256, 600, 1000}) {
    const auto [loss, grads] = value_and_grad<0, 1>(
        [&](const Array& h, const Array& w) { return chunked(h, w, chunk); })(hidden, head);
    EXPECT_NEAR(loss.item<float>(), want.item<float>(), 1e-5 * want.item<float>()) << chunk;
    EXPECT_LT(max(abs(std::get<0>(grads) - std::get<0>(want_grads))).item<float>(), 1e-6) << chunk;
    EXPECT_LT(max(abs(std::get<1>(grads) - std::get<1>(want_grads))).item<float>(), 1e-5) << chunk;
    if (chunk == 256) {
      EXPECT_EQ(loss.item<float>(), want.item<float>());
      EXPECT_EQ(std::get<0>(grads).to_vector<float>(), std::get<0>(want_grads).to_vector<float>());
    }
  }
}

TEST_F(Finetune, WhatDoesNotFitTheModelIsRefusedByName) {
  TrainConfig c = config("wrong");
  c.lora.targets = "q_proj,nonsense";
  EXPECT_THAT(train(c).error, HasSubstr("nonsense"));
  c = config("wrong");
  c.model.path = folder_ / "nowhere";
  EXPECT_THAT(train(c).error, HasSubstr("model.path: "));
  c = config("wrong");
  write_lines(folder_ / "bad.jsonl", 3, 1);
  std::ofstream(folder_ / "bad.jsonl", std::ios::app) << "{\"tokens\": [1, 99]}\n";
  c.data.path = folder_ / "bad.jsonl";
  EXPECT_THAT(train(c).error, HasSubstr("line 4"));
}

}  // namespace
}  // namespace stow
