// What cannot be: refusals that name the key to raise and by how much, remedies that were planned,
// folders that are no place for a disk; for people and as JSON, from `plan` and from `train`.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "stowage/base/bytes.h"
#include "stowage/cli/commands.h"
#include "stowage/io/files.h"
#include "stowage/train/decoder_model.h"
#include "stowage/train/trainer.h"
#include "stowage/tune/devices.h"
#include "tests/support/file_size_limit.h"
#include "tests/support/message_of.h"
#include "tests/support/temporary_folder.h"

namespace stow {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class Refusal : public ::testing::Test {
 protected:
  struct Outcome {
    Result<int> status;
    std::string printed, errors;
    std::vector<Json> json;
  };

  // A small job; what it says and writes.
  Outcome run(Command command, const std::vector<std::string>& settings) {
    std::vector<std::string> arguments = {"--json", folder_ / "out.jsonl"};
    for (const char* setting :
         {"model.dim=32", "model.layers=4", "model.ffn=64", "data.batch=4", "data.seq=32",
          "train.steps=2", "optimizer.warmup=1"})
      arguments.insert(arguments.end(), {"--set", setting});
    arguments.insert(arguments.end(), {"--set", "train.out=" + (folder_ / "out")});
    for (const std::string& setting : settings)
      arguments.insert(arguments.end(), {"--set", setting});
    write_bytes(folder_ / "out.jsonl", "");
    ::testing::internal::CaptureStdout();
    ::testing::internal::CaptureStderr();
    Outcome o{fail("it threw"), {}, {}, {}};
    std::string thrown;
    try {
      o.status = command(arguments);
    } catch (const CapacityError& error) {  // as main() has it
      o.status = kExitOverBudget;
      thrown = error.what();
    }
    std::fflush(stdout);
    o.printed = ::testing::internal::GetCapturedStdout();
    o.errors = ::testing::internal::GetCapturedStderr() + thrown;
    std::ifstream lines(folder_ / "out.jsonl");
    for (std::string line; std::getline(lines, line);) o.json.push_back(*parse_json(line));
    return o;
  }
  static Job job_of(const std::vector<std::string>& settings) {
    return Job(*load_train_config({.settings = settings}), 1, decoder_model);
  }
  static int64_t bytes(const Json& object, const char* field, const char* kind) {
    return *object.find(field)->find(kind)->as_int();
  }
  // `settings`, and those of a row of remedies.
  static std::vector<std::string> with_settings_of(const std::string& line,
                                                   std::vector<std::string> settings) {
    for (size_t at = 0; (at = line.find("--set ", at)) != std::string::npos; at += 6)
      settings.push_back(line.substr(at + 6, line.find(' ', at + 6) - at - 6));
    return settings;
  }
  // Behind the first `--set KEY=` in a text.
  static std::string suggested(const std::string& text, const std::string& key) {
    const size_t at = text.find("--set " + key + "=");
    if (at == std::string::npos) return "";
    const size_t begin = at + 6;
    return text.substr(begin, text.find(' ', begin) - begin);
  }

  TemporaryFolder folder_;
};

constexpr std::pair<const char*, Command> kCommands[] = {{"plan", run_plan}, {"train", run_train}};

TEST_F(Refusal, NamesTheKeyToRaiseAndByHowMuch) {
  const struct {
    const char *key, *kind;
    std::vector<std::string> settings;
  } kCases[] = {
      {"memory.host", "pinned_host",
       {"runtime.platform=virtual", "memory.optimizer=pinned_host", "memory.host=100KiB",
        "memory.policy=recompute"}},
      {"memory.disk", "disk",
       {"memory.parameters=disk", "memory.policy=recompute", "memory.disk=50KiB"}},
      {"memory.disk", "disk",
       {"runtime.platform=virtual", "memory.policy=offload_all", "memory.activations=disk",
        "memory.optimizer=device", "memory.parameters=device", "memory.disk=4KiB"}},
  };
  for (const auto& [key, kind, settings] : kCases)
    for (const auto& [name, command] : kCommands) {
      // They refuse by the same code: once is enough.
      if (command == run_train && settings != kCases[0].settings) continue;
      SCOPED_TRACE(fmt::format("{}, {}", key, name));
      const Outcome o = run(command, settings);
      ASSERT_TRUE(o.status.ok()) << o.status.error();
      EXPECT_EQ(*o.status, kExitOverBudget);
      const std::string first = o.errors.substr(0, o.errors.find('\n'));
      EXPECT_THAT(first, AllOf(StartsWith("stowage: over budget: no plan fits every memory; "),
                               HasSubstr(fmt::format(" of {}, ", kind)),
                               HasSubstr(fmt::format(" more than {} = ", key))));
      ASSERT_EQ(o.json.size(), 1u);
      const Json& json = o.json[0];
      EXPECT_TRUE(*json.find("summary")->as_bool());
      EXPECT_EQ("stowage: over budget: " + *json.find("refused")->as_string(), first);
      const int64_t needed = bytes(json, "needed_bytes", kind);
      EXPECT_EQ(bytes(json, "over_bytes", kind), needed - bytes(json, "allowed_bytes", kind));
      EXPECT_GT(bytes(json, "over_bytes", kind), 0);
      EXPECT_EQ(bytes(json, "over_bytes", "device"), 0);
      // What is said is enough, and a byte less is not.
      const std::string enough = suggested(o.errors, key);
      EXPECT_EQ(enough, fmt::format("{}={}", key, needed));
      if (command == run_train) continue;
      std::vector<std::string> raised = settings;
      raised.push_back(enough);
      EXPECT_EQ(*run(run_plan, raised).status, kExitDone) << enough;
      raised.back() = fmt::format("{}={}", key, needed - 1);
      EXPECT_EQ(*run(run_plan, raised).status, kExitOverBudget);
    }
}

TEST_F(Refusal, OfTheDeviceListsRemediesThatWerePlanned) {
  for (const auto& [name, command] : kCommands) {
    SCOPED_TRACE(name);
    const Outcome o = run(command, {"memory.device=400KiB"});
    EXPECT_EQ(*o.status, kExitOverBudget);
    EXPECT_THAT(o.errors, StartsWith("stowage: over budget: the least plan ("));
    ASSERT_EQ(o.json.size(), 1u);
    EXPECT_EQ(bytes(o.json[0], "allowed_bytes", "device"), 400 << 10);
    EXPECT_EQ(bytes(o.json[0], "over_bytes", "device"),
              bytes(o.json[0], "needed_bytes", "device") - (400 << 10));
    EXPECT_TRUE(o.json[0].find("allowed_bytes")->find("pinned_host")->is_null());
    EXPECT_THAT(o.errors, HasSubstr("what would lower it (each planned for this budget)"));
    // 128 tokens of 32 over a vocabulary of 256: a chunk's logits are as many as the hidden states.
    for (const char* change : {"train.compute=bf16", "train.loss_chunk=16", "data.batch=2"}) {
      const size_t at = o.errors.find(fmt::format("--set {} (", change));
      ASSERT_NE(at, std::string::npos) << change << "\n" << o.errors;
      EXPECT_THAT(o.errors.substr(at, o.errors.find('\n', at) - at),
                  EndsWith("; changes the numbers"));
    }
  }
  const Outcome set =
      run(run_plan, {"memory.device=300KiB", "train.compute=bf16", "train.loss_chunk=16"});
  EXPECT_EQ(*set.status, kExitOverBudget);
  EXPECT_EQ(set.errors.find("train.compute=bf16"), std::string::npos);
  EXPECT_EQ(set.errors.find("train.loss_chunk=16"), std::string::npos);
}

// The time of planning does not grow with extents: pieces of concatenations are not counted out.
TEST_F(Refusal, OfBillionsOfSequencesComesAtOnce) {
  const Outcome o = run(run_plan, {"data.batch=2147483647", "data.seq=31", "memory.device=1GiB"});
  EXPECT_EQ(*o.status, kExitOverBudget);
  EXPECT_THAT(o.errors, HasSubstr("--set data.batch=1073741823"));
}

// A change after which nothing is left of what is asked for is no remedy, and no error.
TEST_F(Refusal, OfAJobWhoseHeadIsFrozenByNameIsARefusal) {
  for (const char* freeze : {"head", "h*", "embed,norm,layers"}) {
    const Outcome o =
        run(run_plan, {"memory.device=100KiB", fmt::format("optimizer.freeze={}", freeze)});
    ASSERT_TRUE(o.status.ok()) << o.status.error();
    EXPECT_EQ(*o.status, kExitOverBudget);
    EXPECT_THAT(o.errors, HasSubstr("--set data.batch="));
    EXPECT_EQ(o.json.size(), 1u);
  }
}

// Where the head no longer is the peak, the feed-forward blocks may be: a change is weighed with
// these either way.
TEST_F(Refusal, ARemedyThatFitsIsSaidTo) {
  const std::vector<std::string> settings = {
      "model.dim=22",           "model.layers=4",         "model.heads=1",
      "model.kv_heads=1",       "model.ffn=97",           "model.vocab=511",
      "model.tied=false",       "data.seq=300",           "data.batch=3",
      "optimizer.name=rmsprop", "optimizer.freeze=embed", "train.sample=3",
      "memory.device=2500000"};
  EXPECT_EQ(*run(run_plan, settings).status, kExitDone);  // with its loss in chunks
  std::vector<std::string> whole = settings;
  whole.push_back("memory.loss=whole");
  const Outcome o = run(run_plan, whole);
  EXPECT_EQ(*o.status, kExitOverBudget);
  for (const std::string change :
       {"--set train.vocab_block=16 ", "--set memory.policy=recompute "}) {
    const size_t at = o.errors.find(change);
    ASSERT_NE(at, std::string::npos) << o.errors;
    const std::string line = o.errors.substr(at, o.errors.find('\n', at) - at);
    EXPECT_THAT(line, HasSubstr("  fits")) << line;
    EXPECT_EQ(*run(run_plan, with_settings_of(line, whole)).status, kExitDone) << line;
  }
}

// Tiles and moves ahead follow the budget, so a plan may need less of a smaller one.
TEST_F(Refusal, OfTheDeviceNamesTheLeastThatIsEnough) {
  const Job job = job_of({"model.dim=48", "model.heads=1", "model.kv_heads=1", "model.layers=2",
                          "model.ffn=600", "model.vocab=509", "model.tied=true", "data.batch=7",
                          "data.seq=5", "optimizer.name=rmsprop", "runtime.platform=virtual",
                          "memory.policy=offload_all", "memory.optimizer=device",
                          "memory.parameters=device", "memory.gradients=pinned_host"});
  const Budgets budgets = budgets_of(job.config(), 260274);
  const Choice choice = choose_plan(job, budgets);
  ASSERT_FALSE(choice.plan);
  const Shortfall least = shortfalls(job, choice, budgets)[0];
  const int64_t needed = least.needed_bytes[0];
  EXPECT_EQ(least.over_bytes[0], needed - 260274);
  EXPECT_TRUE(choose_plan(job, budgets_of(job.config(), needed)).plan);
  EXPECT_FALSE(choose_plan(job, budgets_of(job.config(), needed - 1)).plan);
}

// The memories that a refusal does not raise are counted in what it proposes: state that the host
// has no room for goes to the disk, and what then is enough of the device is what is named. No
// budget below that admits the job.
TEST_F(Refusal, OfTheDeviceIsWithTheOtherMemoriesAsTheyAre) {
  for (const std::vector<std::string>& settings :
       std::vector<std::vector<std::string>>{{"memory.host=300KiB", "memory.disk=1GiB"},
                                             {"memory.host=200KiB", "memory.disk=500KiB"}}) {
    std::vector<std::string> all = settings;
    for (const char* more :
         {"runtime.platform=virtual", "model.dim=32", "model.layers=2", "model.ffn=64",
          "data.batch=2", "data.seq=32", "memory.policy=offload_carries", "memory.loss=whole",
          "memory.feed_forward=whole", "memory.gradients=pinned_host"})
      all.push_back(more);
    SCOPED_TRACE(settings[0] + " " + settings[1]);
    const Job job = job_of(all);
    constexpr int64_t kDevice = 64 << 10;
    const Budgets budgets = budgets_of(job.config(), kDevice);
    const Choice choice = choose_plan(job, budgets);
    ASSERT_FALSE(choice.plan);
    const std::vector<Shortfall> near = shortfalls(job, choice, budgets);
    const auto on_device = std::find_if(near.begin(), near.end(), [](const Shortfall& s) {
      return s.over_bytes[0] == s.total() && s.is_enough;
    });
    ASSERT_NE(on_device, near.end()) << "something is enough of the device alone";
    const int64_t needed = on_device->needed_bytes[0];
    EXPECT_TRUE(find_fit(job, budgets_of(job.config(), needed)).plan);
    for (int64_t less = needed - needed / 50; less > kDevice; less -= less / 3)
      EXPECT_FALSE(find_fit(job, budgets_of(job.config(), less)).plan)
          << less << " is enough as well, and " << needed << " was named";
  }
}

// What is named, the peak below it and the row of its placement are of one plan.
TEST_F(Refusal, OfTheDeviceIsOfOnePlanThroughout) {
  for (const std::vector<std::string>& settings : std::vector<std::vector<std::string>>{
           {"model.vocab=3000", "train.compute=bf16", "data.batch=1", "optimizer.name=lion",
            "memory.device=512KiB"},
           {"model.dim=64", "data.batch=1", "optimizer.name=sgd", "memory.device=512KiB"},
           {"memory.disk=1GiB", "memory.policy=offload_nested", "memory.device=200KiB"}}) {
    const Outcome o = run(run_plan, settings);
    ASSERT_EQ(*o.status, kExitOverBudget);
    const int64_t needed = bytes(o.json[0], "needed_bytes", "device");
    const std::string placement = *o.json[0].find("placement")->as_string();
    EXPECT_THAT(o.errors, HasSubstr(fmt::format("the least plan ({}) needs {} ({} bytes)",
                                                placement, format_bytes(needed), needed)));
    if (settings[0] != "memory.disk=1GiB") {  // where the host's memory is counted beside
      EXPECT_THAT(o.errors, HasSubstr("\npeak of the run: " + format_bytes(needed) + " in "));
    }
    const std::string policy = placement.substr(0, placement.find_first_of(", "));
    EXPECT_THAT(o.errors, HasSubstr(fmt::format("{:>11}  --set memory.policy={} ",
                                                format_bytes(needed), policy)));
    std::vector<std::string> raised = settings;
    raised.back() = fmt::format("memory.device={}", needed);
    EXPECT_EQ(*run(run_plan, raised).status, kExitDone);
  }
}

// Where something is asked for, a remedy says what else has to be: no row is an error when it is
// followed, and those that fit do.
TEST_F(Refusal, RemediesCanBeFollowed) {
  const std::string large_batch = "data.batch=16";  // which has chunks, and half of which has none
  for (const std::vector<std::string>& settings : std::vector<std::vector<std::string>>{
           {"memory.policy=save_named", "memory.device=1000KiB"},
           {"memory.feed_forward=chunked", "memory.policy=recompute", "memory.device=1MiB",
            large_batch},
           {"memory.loss=whole", "memory.policy=recompute", "memory.device=2MiB", large_batch,
            "model.vocab=1000", "model.tied=true"},
           {"model.layers=0", "memory.device=100KiB", large_batch},
           {"memory.policy=save_named", "memory.device=600KiB", "memory.disk=1GiB",
            "optimizer.name=sgd"},
           {"memory.activations=disk", "memory.policy=offload_all", "memory.device=300KiB",
            "memory.disk=1GiB"}}) {
    const Outcome o = run(run_plan, settings);
    ASSERT_EQ(*o.status, kExitOverBudget) << settings[0];
    int n_followed = 0;
    std::istringstream lines(o.errors);
    for (std::string line; std::getline(lines, line);) {
      if (!line.starts_with("  ") || line.find("  --set ") == std::string::npos ||
          line.find("  for ") != std::string::npos)
        continue;
      ++n_followed;
      const std::vector<std::string> followed = with_settings_of(line, settings);
      if (line.find("  fits") == std::string::npos) {
        EXPECT_TRUE(load_train_config({.settings = followed}).ok()) << line;
        EXPECT_NO_THROW(job_of(followed)) << line;
      } else {
        EXPECT_EQ(*run(run_plan, followed).status, kExitDone) << line;
      }
    }
    EXPECT_GE(n_followed, 2) << o.errors;
  }
}

TEST_F(Refusal, NamesAMemoryThatIsTooSmallForAnyUse) {
  const std::vector<std::string> settings = {"memory.device=600KiB", "memory.policy=recompute",
                                             "memory.disk=4096"};
  const Outcome o = run(run_plan, settings);
  ASSERT_EQ(*o.status, kExitOverBudget);
  const std::string disk = suggested(o.errors, "memory.disk");
  ASSERT_FALSE(disk.empty()) << o.errors;
  std::vector<std::string> raised = settings;
  raised.back() = disk;
  EXPECT_EQ(*run(run_plan, raised).status, kExitDone) << disk;
}

TEST_F(Refusal, OfAPlaceThatNothingWouldGoTo) {
  EXPECT_EQ(message_of([&] {
              job_of({"optimizer.name=sgd", "memory.disk=1GiB", "memory.optimizer=disk"});
            }),
            "memory.optimizer = disk has no effect with optimizer.name = sgd: its state is scalars "
            "alone; set memory.optimizer=auto");
  EXPECT_EQ(
      message_of([&] {
        job_of({"optimizer.freeze=*", "memory.disk=1GiB", "memory.gradients=disk"});
      }),
      "memory.gradients = disk has no effect with optimizer.freeze = *: nothing is trained; set "
      "memory.gradients=auto");
}

// Each row has the peak of a plan with those settings, and fits where that fits.
TEST_F(Refusal, RemediesAreWhatAPlanOfThemTakes) {
  TrainConfig c;
  c.model = {
      .dim = 32, .layers = 4, .heads = 4, .kv_heads = 2, .ffn = 64, .vocab = 256, .tied = false};
  c.data = {.path = "none", .batch = 4, .seq = 32};
  const Job job(c, 1, decoder_model);
  const Budgets budgets = budgets_of(c, int64_t{700} << 10);
  const Choice choice = choose_plan(job, budgets);
  ASSERT_FALSE(choice.plan);
  const Candidate& least = *std::min_element(
      choice.candidates.begin(), choice.candidates.end(),
      [](const Candidate& a, const Candidate& b) { return a.peak_bytes[0] < b.peak_bytes[0]; });
  bool bf16 = false, chunk = false, block = false;
  for (const Remedy& r : plan_remedies(Job(c, 1, decoder_model), choice, budgets)) {
    EXPECT_EQ(!r.over, r.peak_bytes <= *budgets[0]) << r.change;
    TrainConfig changed = c;
    if (r.change.starts_with("--set train.compute=bf16 ")) {
      bf16 = true;
      changed.train.compute = "bf16";
    } else if (r.change.starts_with("--set train.loss_chunk=16 ")) {
      chunk = true;
      changed.train.loss_chunk = 16;
    } else if (r.change.starts_with("--set train.vocab_block=32 ")) {
      block = true;
      changed.train.vocab_block = 32;
    } else {
      continue;
    }
    EXPECT_TRUE(r.changes_numbers);
    EXPECT_EQ(r.peak_bytes,
              Job(changed, 1, decoder_model).plan(least.placement, budgets).peak_bytes[0]);
  }
  EXPECT_TRUE(bf16);
  EXPECT_TRUE(chunk);
  EXPECT_TRUE(block);
}

// What is admitted is told what its loss would take a part at a time.
TEST_F(Refusal, APlanThatFitsSaysWhatALossInPartsSaves) {
  const std::vector<std::string> settings = {"model.vocab=2048", "model.dim=32",
                                             "memory.policy=save_all"};
  const auto peak_with = [&](std::vector<std::string> more, bool chunked_loss = false) {
    more.insert(more.end(), settings.begin(), settings.end());
    const Job job = job_of(more);
    const Placement placement = {.policy = StepPolicy::kSaveAll, .chunked_loss = chunked_loss};
    return job.plan(placement, budgets_of(job.config(), {})).peak_bytes[0];
  };
  const Job job = job_of(settings);
  const Budgets budgets = budgets_of(job.config(), {});
  const JobPlan plan = job.plan({.policy = StepPolicy::kSaveAll}, budgets);
  const std::vector<Remedy> remedies = loss_remedies(job, plan, budgets);
  ASSERT_EQ(remedies.size(), 3u);
  for (const Remedy& r : remedies) {
    ASSERT_TRUE(r.change.starts_with("--set "));
    const std::string setting = r.change.substr(6);
    const bool is_form = setting == "memory.loss=chunked";
    EXPECT_EQ(r.changes_numbers, !is_form);
    EXPECT_EQ(r.peak_bytes, is_form ? peak_with({}, true) : peak_with({setting}));
    EXPECT_LT(r.peak_bytes, plan.peak_bytes[0]);
    EXPECT_THAT(describe_loss(job, plan, remedies),
                HasSubstr(r.change + ": " + format_bytes(r.peak_bytes)));
  }
  const Job chunked = job_of({"train.loss_chunk=64", "memory.policy=save_all"});
  EXPECT_THAT(
      loss_remedies(chunked, chunked.plan({.policy = StepPolicy::kSaveAll}, budgets), budgets),
      ::testing::IsEmpty());
  const Outcome o = run(run_plan, {"model.vocab=2048"});
  EXPECT_THAT(o.printed, HasSubstr(" less, the loss a part at a time; changes the numbers\n"));
  ASSERT_EQ(o.json.size(), 1u);
  EXPECT_EQ(o.json[0].find("loss_in_parts")->as_array()->size(), 2u);
}

// Where another placement would be chosen by itself, it is part of what to set.
TEST_F(Refusal, WhatALossInPartsSavesIsWhatItsSettingsTake) {
  const std::vector<std::string> settings = {
      "model.vocab=1000", "model.dim=32", "model.layers=4", "model.heads=2",     "model.kv_heads=1",
      "model.ffn=65",     "data.batch=4", "data.seq=100",   "train.compute=bf16"};
  const Job job = job_of(settings);
  const int64_t whole = choose_plan(job, budgets_of(job.config(), {})).plan->peak_bytes[0];
  bool asks = false;
  for (const int percent : {100, 99, 98, 97, 96}) {
    const Budgets budgets = {whole * percent / 100, std::nullopt, std::nullopt};
    const Choice choice = choose_plan(job, budgets);
    if (!choice.plan) continue;
    for (const Remedy& r : loss_remedies(job, *choice.plan, budgets)) {
      const std::vector<std::string> more = with_settings_of(r.change, settings);
      asks = asks || more.size() > settings.size() + 1;
      const Choice changed = choose_plan(job_of(more), budgets);
      ASSERT_TRUE(changed.plan) << r.change;
      EXPECT_EQ(changed.plan->peak_bytes[0], r.peak_bytes) << r.change << " of " << percent;
    }
  }
  EXPECT_TRUE(asks);
}

TEST_F(Refusal, NoneOfABudgetThatAPlanWithoutOneKeeps) {
  const Job job = job_of({"model.dim=16",
                          "model.layers=3",
                          "model.heads=4",
                          "model.kv_heads=2",
                          "model.ffn=1",
                          "model.tied=true",
                          "model.vocab=256",
                          "data.batch=8",
                          "data.seq=17",
                          "train.loss_chunk=64",
                          "optimizer.name=muon",
                          "optimizer.warmup=0",
                          "optimizer.clip=0.1",
                          "optimizer.weight_decay=0.1",
                          "train.steps=3",
                          "train.sample=0",
                          "runtime.platform=virtual",
                          "memory.policy=save_all",
                          "memory.optimizer=pinned_host",
                          "memory.parameters=pinned_host",
                          "memory.gradients=pinned_host"});
  const int64_t peak = choose_plan(job, budgets_of(job.config(), {})).plan->peak_bytes[0];
  EXPECT_TRUE(choose_plan(job, budgets_of(job.config(), peak)).plan);
}

TEST_F(Refusal, OfAFolderNamesItAndTheKey) {
  write_bytes(folder_ / "file", "no folder");
  const std::pair<std::string, const char*> kFolders[] = {
      {folder_ / "missing", "No such file or directory"}, {folder_ / "file", "Not a directory"}};
  for (const auto& [place, reason] : kFolders)
    for (const auto& [name, command] : kCommands) {
      const Outcome o = run(command, {"memory.disk=1GiB", "runtime.disk_folder=" + place});
      ASSERT_FALSE(o.status.ok()) << name;
      EXPECT_EQ(o.status.error(),
                fmt::format("runtime.disk_folder: disk folder '{}': no file can be made there: {}",
                            place, reason));
    }
}

TEST_F(Refusal, OfAFullFolderComesBeforeTheRun) {
  const std::vector<std::string> settings = {"memory.disk=1GiB", "memory.optimizer=disk",
                                             "runtime.disk_folder=" + folder_.path()};
  const Outcome first = run(run_train, settings);
  ASSERT_EQ(*first.status, kExitDone);
  EXPECT_THAT(first.printed,
              HasSubstr(fmt::format("disk: a file in {}, moved by ", folder_.path())));
  const Json& disk = *first.json.back().find("disk");
  EXPECT_EQ(*disk.find("folder")->as_string(), folder_.path());
  EXPECT_THAT(*disk.find("engine")->as_string(), ::testing::AnyOf("io_uring", "threads"));
  const size_t n_checkpoints = count_entries(folder_ / "out");

  const FileSizeLimit limit(100 << 10);
  const Outcome plan = run(run_plan, settings);
  EXPECT_EQ(*plan.status, kExitDone);
  EXPECT_THAT(plan.printed, HasSubstr(folder_.path() + " has 100.00 KiB to give "
                                      "(runtime.disk_folder), "));
  const Outcome train = run(run_train, settings);
  EXPECT_EQ(*train.status, kExitOverBudget);
  EXPECT_THAT(train.errors, HasSubstr(fmt::format("runtime.disk_folder: disk folder '{}': ",
                                                  folder_.path())));
  EXPECT_THAT(train.errors, HasSubstr("cannot be reserved: File too large"));
  ASSERT_EQ(train.json.size(), 1u);
  EXPECT_EQ(*train.json[0].find("refused")->as_string(), train.errors);
  EXPECT_GT(bytes(train.json[0], "needed_bytes", "disk"), 100 << 10);
  EXPECT_EQ(bytes(train.json[0], "allowed_bytes", "disk"), 1 << 30);
  EXPECT_EQ(count_entries(folder_ / "out"), n_checkpoints) << "checkpoints are where they were";
}

TEST_F(Refusal, OfAFolderOfCheckpointsComesBeforeTheRun) {
  write_bytes(folder_ / "file", "no folder");
  const Outcome o = run(run_train, {"train.out=" + (folder_ / "file/out")});
  ASSERT_FALSE(o.status.ok());
  EXPECT_EQ(o.status.error(), "train.out: " + (folder_ / "file/out") + ": Not a directory");
  EXPECT_TRUE(o.printed.empty()) << "nothing was planned";

  ASSERT_TRUE(ensure_directory(folder_ / "out").ok());
  const Result<DirectoryLock> other = DirectoryLock::lock(folder_ / "out");
  ASSERT_TRUE(other.ok());
  const Outcome second = run(run_train, {});
  ASSERT_FALSE(second.status.ok());
  EXPECT_EQ(second.status.error(),
            "train.out: " + (folder_ / "out") +
                ": another run is at work in this folder; end it or name another folder");
  EXPECT_EQ(count_entries(folder_ / "out"), 0u);
}

TEST_F(Refusal, OfFilesThatAreCheckpoints) {
  ASSERT_EQ(*run(run_train, {}).status, kExitDone);
  const std::string out = folder_ / "out";
  const size_t n_checkpoints = count_entries(out);
  for (const auto& [name, command] : kCommands)
    for (const std::string file :
         {"step-000002.json", "step-000002.safetensors", "step-000009.json"})
      for (const std::string option : {"--json", "--trace"}) {
        const Result<int> status = command(
            std::vector<std::string>{"--set", "train.out=" + out, option, out + "/" + file});
        ASSERT_FALSE(status.ok());
        EXPECT_EQ(status.error(), fmt::format("{}: {} {}/{} has the name of a checkpoint in "
                                              "train.out",
                                              name, option, out, file));
      }
  std::filesystem::create_symlink(out + "/step-000002.json", folder_ / "log.json");
  std::filesystem::create_directory(out + "/previous");
  for (const std::string& file : {folder_ / "log.json", out + "/previous/step-000002.json"}) {
    const Result<int> status =
        run_train(std::vector<std::string>{"--set", "train.out=" + out, "--json", file});
    ASSERT_FALSE(status.ok());
    EXPECT_THAT(status.error(), EndsWith("has the name of a checkpoint in train.out"));
  }
  EXPECT_EQ(count_entries(out), n_checkpoints + 1);
}

TEST_F(Refusal, OfWhatOnlyATrainingGoesOnWith) {
  const Result<int> status = run_plan(std::vector<std::string>{"--resume"});
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error(), "plan: --resume has no effect: nothing is run; leave it out");
}

TEST_F(Refusal, OfMoreStepsSaysHowToGoOn) {
  ASSERT_EQ(*run(run_train, {}).status, kExitDone);
  std::vector<std::string> arguments = {"--resume", "--json", folder_ / "out.jsonl"};
  for (const std::string& setting :
       {std::string("model.dim=32"), std::string("model.layers=4"), std::string("model.ffn=64"),
        std::string("data.batch=4"), std::string("data.seq=32"), std::string("train.steps=3"),
        std::string("optimizer.warmup=1"), "train.out=" + (folder_ / "out")})
    arguments.insert(arguments.end(), {"--set", setting});
  const std::string log = read_bytes(folder_ / "out.jsonl");
  ::testing::internal::CaptureStdout();
  const Result<int> status = run_train(arguments);
  ::testing::internal::GetCapturedStdout();
  ASSERT_FALSE(status.ok());
  EXPECT_THAT(status.error(),
              HasSubstr("made with optimizer.total_steps = \"2\", this run has \"3\", its "
                        "train.steps; --set optimizer.total_steps=2 keeps the schedule"));
  EXPECT_EQ(read_bytes(folder_ / "out.jsonl"), log) << "the log of the steps that were";
  arguments.insert(arguments.end(), {"--set", "optimizer.total_steps=2"});
  ::testing::internal::CaptureStdout();
  EXPECT_EQ(*run_train(arguments), kExitDone);
  ::testing::internal::GetCapturedStdout();
}

TEST_F(Refusal, APlanSaysThatTheDeviceThatWasNamedIsTooSmall) {
  const std::string path = folder_ / "small.toml";
  DeviceDescription small = load_device_description("a100").value();
  small.name = "a small one";
  small.memory.device = 1000;
  write_bytes(path, device_description_toml(small));
  const std::vector<std::string> arguments = {"--device-description", path};
  ::testing::internal::CaptureStdout();
  EXPECT_EQ(*run_plan(arguments), kExitDone);
  EXPECT_THAT(::testing::internal::GetCapturedStdout(),
              HasSubstr("a small one has 1000 B of device, 82.22 MiB are needed: it would not run "
                        "there\n"));
}

}  // namespace
}  // namespace stow
