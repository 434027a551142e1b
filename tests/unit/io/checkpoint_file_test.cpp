#include "stowage/io/checkpoint_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "stowage/io/files.h"
#include "tests/support/file_size_limit.h"
#include "tests/support/temporary_folder.h"

namespace stow {
namespace {

using testing::ElementsAre;
using testing::UnorderedElementsAre;

// A run of two tensors, whose data say of which step they are.
struct SmallRun {
  std::string data = std::string(3000, '?');
  CheckpointMeta meta{.step = 0,
                      .data_position = 77,
                      .seed = ~uint64_t{0},
                      .config = {{"model.dim", "8"}, {"train.out", "x"}},
                      .extra = Json::object({{"first_loss", 5.5}})};
  CheckpointRequirements needs{
      .tensors = {{"params/w", DType::kF32, {10, 50}}, {"opt/count", DType::kU8, {}}},
      .config = {{"model.dim", "8"}}};

  std::vector<TensorBytes> tensors() const {
    return {{"params/w", DType::kF32, {10, 50}, as_bytes(data).first(2000)},
            {"opt/count", DType::kU8, {}, as_bytes(data).first(1)}};
  }
  Result<std::string> save(const std::string& folder, int64_t step, int keep_resident = 0) {
    meta.step = step;
    data.assign(data.size(), static_cast<char>(step));
    return save_checkpoint(folder, meta, tensors(), keep_resident);
  }
};

std::vector<std::string> names(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    names.push_back(entry.path().filename().string());
  return names;
}

// The reason why the checkpoint is refused, with "…/" for the folder.
std::string refusal(const TemporaryFolder& folder, int64_t step,
                    const CheckpointRequirements& needs) {
  const Result<Checkpoint> checkpoint =
      Checkpoint::open(folder / fmt::format("step-{:06}.json", step), needs);
  std::string error = checkpoint.error();
  for (size_t at; (at = error.find(folder.path())) != std::string::npos;)
    error.replace(at, folder.path().size(), "…");
  return error;
}

TEST(CheckpointFile, RoundTrips) {
  const TemporaryFolder folder;
  SmallRun run;
  const Result<std::string> path = run.save(folder / "made/here", 12);
  ASSERT_TRUE(path.ok()) << path.error();
  EXPECT_EQ(*path, folder / "made/here/step-000012.json");
  EXPECT_THAT(names(folder / "made/here"),
              UnorderedElementsAre("step-000012.json", "step-000012.safetensors"));

  const Result<Checkpoint> checkpoint = Checkpoint::open(*path, run.needs);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error();
  EXPECT_EQ(checkpoint->meta().step, 12);
  EXPECT_EQ(checkpoint->meta().data_position, 77);
  EXPECT_EQ(checkpoint->meta().seed, ~uint64_t{0});
  EXPECT_EQ(checkpoint->meta().config, run.meta.config);
  EXPECT_EQ(checkpoint->meta().extra.find("first_loss")->as_double().value(), 5.5);
  std::string out(2000, ' ');
  ASSERT_TRUE(checkpoint->read("params/w", std::as_writable_bytes(std::span(out))).ok());
  EXPECT_EQ(out, run.data.substr(0, 2000));
}

// Stowage before checkpoints of several processes reads the files of one process.
TEST(CheckpointFile, OfOneProcessHasTheFormatOfVersion1) {
  const TemporaryFolder folder;
  SmallRun run;
  const Result<std::string> path = run.save(folder.path(), 12);
  ASSERT_TRUE(path.ok()) << path.error();
  std::string text = fmt::format(
      R"({{"format": "stowage-checkpoint", "version": 1, "step": 12, "data_position": 77, )"
      R"("seed": 18446744073709551615, "tensors": "step-000012.safetensors", )"
      R"("tensors_digest": "{}", "config": {{"model.dim": "8", "train.out": "x"}}, )"
      R"("extra": {{"first_loss": 5.5}}}})",
      digest_of(read_bytes(folder / "step-000012.safetensors")));
  const std::string digest = digest_of(text);
  text.pop_back();
  EXPECT_EQ(read_bytes(*path), text + fmt::format(R"(, "meta_digest": "{}"}})", digest) + "\n");
}

TEST(CheckpointFile, ListsByStepAndKeepsTheLast) {
  const TemporaryFolder folder;
  EXPECT_TRUE(list_checkpoints(folder / "none")->empty());
  EXPECT_FALSE(latest_checkpoint(folder / "none")->has_value());
  write_bytes(folder / "file", "");
  EXPECT_FALSE(list_checkpoints(folder / "file").ok());

  SmallRun run;
  for (int64_t step : {5, 1000000, 20, 999999}) ASSERT_TRUE(run.save(folder.path(), step).ok());
  // What is none of ours is neither listed nor removed.
  const std::vector<std::string> foreign = {"step-7.json",          "step-0000007.json",
                                            "step-000007x.json",    "xstep-000007.json",
                                            "step-000007.json.bak", "file"};
  for (const std::string& name : foreign) write_bytes(folder / name, "mine");
  // What a killed run left.
  write_bytes(folder / "step-000003.safetensors", "without its JSON file");
  write_bytes(folder / "step-000004.safetensors.tmp", "half");
  write_bytes(folder / "step-000004.json.12-0.tmp", "half");
  // Nobody writes into it: reading it would take for ever.
  ASSERT_EQ(::mkfifo((folder / "step-2000000.json").c_str(), 0600), 0);

  EXPECT_THAT(list_checkpoints(folder.path()).value(),
              ElementsAre(CheckpointName{5, folder / "step-000005.json"},
                          CheckpointName{20, folder / "step-000020.json"},
                          CheckpointName{999999, folder / "step-999999.json"},
                          CheckpointName{1000000, folder / "step-1000000.json"}));
  EXPECT_EQ(latest_checkpoint(folder.path()).value()->step, 1000000);
  ASSERT_EQ(::unlink((folder / "step-2000000.json").c_str()), 0);

  ASSERT_TRUE(run.save(folder.path(), 1000001, 2).ok());
  std::vector<std::string> left = foreign;
  for (const char* step : {"1000000", "1000001"})
    for (const char* ending : {".json", ".safetensors"})
      left.push_back(std::string("step-") + step + ending);
  EXPECT_THAT(names(folder.path()), testing::UnorderedElementsAreArray(left));
}

TEST(CheckpointFile, WhatWasJustSavedIsNeverTidiedAway) {
  const TemporaryFolder folder;
  SmallRun run;
  for (int64_t step : {10, 20, 5}) ASSERT_TRUE(run.save(folder.path(), step, 1).ok());
  EXPECT_EQ(refusal(folder, 5, run.needs), "");
  EXPECT_EQ(list_checkpoints(folder.path())->size(), 1u);
}

TEST(CheckpointFile, ReplacesOneOfTheSameStepInOneInstant) {
  const TemporaryFolder folder;
  SmallRun run;
  ASSERT_TRUE(run.save(folder.path(), 5, 3).ok());
  run.meta.data_position = 78;
  run.data[0] = 'x';
  ASSERT_TRUE(save_checkpoint(folder.path(), run.meta, run.tensors(), 3).ok());
  const Result<Checkpoint> checkpoint = Checkpoint::open(folder / "step-000005.json", run.needs);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error();
  EXPECT_EQ(checkpoint->meta().data_position, 78);
  std::byte first[1];
  ASSERT_TRUE(checkpoint->read("opt/count", first).ok());
  EXPECT_EQ(first[0], std::byte{'x'});
  EXPECT_EQ(count_entries(folder.path()), 2u);

  // A disk that fills up while it is replaced again leaves it as it is.
  {
    const FileSizeLimit limit(1000);
    EXPECT_FALSE(run.save(folder.path(), 5, 3).ok());
  }
  EXPECT_EQ(refusal(folder, 5, run.needs), "");
  EXPECT_EQ(count_entries(folder.path()), 2u);

  // So does a run that ends between the two files: its tensors alone are there.
  run.data[0] = 'y';
  const TemporaryFolder other;
  std::filesystem::copy(folder.path(), other.path());
  ASSERT_TRUE(save_checkpoint(other.path(), run.meta, run.tensors(), 3).ok());
  using std::filesystem::copy_options;
  std::filesystem::copy(other.path(), folder.path(),
                        copy_options::skip_existing | copy_options::recursive);
  EXPECT_EQ(count_entries(folder.path()), 3u);
  EXPECT_EQ(refusal(folder, 5, run.needs), "");
  ASSERT_TRUE(run.save(folder.path(), 5, 3).ok());
  EXPECT_EQ(refusal(folder, 5, run.needs), "");
  EXPECT_EQ(count_entries(folder.path()), 2u);
}

TEST(CheckpointFile, AFullDiskLeavesThePreviousOne) {
  const TemporaryFolder folder;
  SmallRun run;
  ASSERT_TRUE(run.save(folder.path(), 5, 1).ok());
  // At each size: in the tensors, in the JSON file, not at all.
  for (const rlim_t limit_bytes : {rlim_t{1000}, rlim_t{100}}) {
    const FileSizeLimit limit(limit_bytes);
    const Result<std::string> saved = run.save(folder.path(), 6, 1);
    ASSERT_FALSE(saved.ok());
    EXPECT_EQ(saved.error(), folder / "step-000006.safetensors" + ": File too large");
  }
  EXPECT_EQ(latest_checkpoint(folder.path()).value()->step, 5);
  EXPECT_EQ(refusal(folder, 5, run.needs), "");
  EXPECT_EQ(count_entries(folder.path()), 2u);

  // A JSON file that cannot be put in place leaves no checkpoint of its step either.
  ASSERT_TRUE(ensure_directory(folder / "step-000006.json/x").ok());
  const Result<std::string> saved = run.save(folder.path(), 6, 1);
  EXPECT_EQ(saved.error(), folder / "step-000006.json" + ": Is a directory");
  EXPECT_EQ(refusal(folder, 5, run.needs), "");
}

TEST(CheckpointFile, APinnedCheckpointStaysBesideTheNewest) {
  const TemporaryFolder folder;
  SmallRun run;
  const auto steps = [&] {
    std::vector<int64_t> all;
    const std::vector<CheckpointName> names = list_checkpoints(folder.path()).value();
    for (const CheckpointName& name : names) all.push_back(name.step);
    return all;
  };
  const auto save = [&](int64_t step, std::optional<int64_t> pinned) {
    run.meta.step = step;
    ASSERT_TRUE(save_checkpoint(folder.path(), run.meta, run.tensors(), {2, pinned}).ok());
  };
  for (int64_t step = 1; step <= 5; ++step) save(step, step < 2 ? 1 : 2);
  EXPECT_THAT(steps(), ElementsAre(2, 4, 5));
  save(6, 4);
  EXPECT_THAT(steps(), ElementsAre(4, 5, 6));
  save(7, 7);
  EXPECT_THAT(steps(), ElementsAre(6, 7));
  save(8, 3);  // one that is not there
  EXPECT_THAT(steps(), ElementsAre(7, 8));
  EXPECT_EQ(refusal(folder, 7, run.needs), "");
  EXPECT_EQ(read_checkpoint_meta(checkpoint_path(folder.path(), 8)).value().step, 8);
}

TEST(CheckpointFile, RefusesAFolderThatCannotBe) {
  const TemporaryFolder folder;
  write_bytes(folder / "file", "");
  SmallRun run;
  EXPECT_EQ(run.save(folder / "file/out", 1).error(), folder / "file/out" + ": Not a directory");
}

TEST(CheckpointFile, RefusesAnotherRun) {
  const TemporaryFolder folder;
  SmallRun run;
  ASSERT_TRUE(run.save(folder.path(), 5).ok());
  const auto with = [&](auto change) {
    CheckpointRequirements needs = run.needs;
    change(needs);
    return refusal(folder, 5, needs);
  };
  EXPECT_EQ(with([](auto& needs) { needs.config[0].second = "16"; }),
            "…/step-000005.json: is of another run: it was made with model.dim = \"8\", this run "
            "has \"16\"");
  EXPECT_EQ(with([](auto& needs) { needs.config.emplace_back("model.new", "1"); }),
            "…/step-000005.json: is of another run: it was made without model.new");
  const auto with_new = [&](const char* value) {
    return with([&](auto& needs) {
      needs.config.emplace_back("model.new", value);
      needs.defaults = {{"model.new", "0"}, {"model.dim", "16"}};
    });
  };
  EXPECT_EQ(with_new("0"), "");
  EXPECT_EQ(with_new("1"),
            "…/step-000005.json: is of another run: it was made with model.new = \"0\", this run "
            "has \"1\"");
  EXPECT_EQ(with([](auto& needs) { needs.tensors[0].shape = {500}; }),
            "…/step-000005.safetensors: is of another model: 'params/w' is f32[10,50], this run "
            "needs f32[500]");
  EXPECT_EQ(with([](auto& needs) { needs.tensors[1].dtype = DType::kI8; }),
            "…/step-000005.safetensors: is of another model: 'opt/count' is u8[], this run needs "
            "i8[]");
  EXPECT_EQ(with([](auto& needs) { needs.tensors[0].name = "w"; }),
            "…/step-000005.safetensors: is of another model: it has no 'w'");
  EXPECT_EQ(with([](auto& needs) { needs.tensors.pop_back(); }),
            "…/step-000005.safetensors: is of another model: it has \"opt/count\", which this run "
            "has not");
}

TEST(CheckpointFile, RefusesTheNameOfAnotherStep) {
  const TemporaryFolder folder;
  SmallRun run;
  ASSERT_TRUE(run.save(folder.path(), 5).ok());
  std::filesystem::copy(folder / "step-000005.json", folder / "step-000009.json");
  std::filesystem::copy(folder / "step-000005.json", folder / "best.json");
  EXPECT_EQ(refusal(folder, 9, run.needs),
            "…/step-000009.json: is of step 5, which is not what its name says");
  EXPECT_TRUE(Checkpoint::open(folder / "best.json", run.needs).ok());
}

TEST(CheckpointFile, RefusesForeignFiles) {
  const TemporaryFolder folder;
  const SmallRun run;
  const auto refusal_of = [&](std::string_view text) {
    write_bytes(folder / "step-000001.json", text);
    return refusal(folder, 1, run.needs);
  };
  EXPECT_EQ(refusal(folder, 2, run.needs), "…/step-000002.json: No such file or directory");
  for (const char* text : {"{}", "[]", "3", R"({"format": "other"})", R"({"format": 1})"})
    EXPECT_EQ(refusal_of(text), "…/step-000001.json: is not a checkpoint of Stowage") << text;
  EXPECT_EQ(refusal_of(""),
            "…/step-000001.json: is damaged: not JSON that can be read: a syntax error at byte 1; "
            "move it away to resume from an earlier one");
  EXPECT_EQ(refusal_of(R"({"format": "stowage-checkpoint"})"),
            "…/step-000001.json: is damaged: it has no version; move it away to resume from an "
            "earlier one");
  EXPECT_EQ(refusal_of(R"({"format": "stowage-checkpoint", "version": 3})"),
            "…/step-000001.json: has version 3; this Stowage reads versions 1 and 2");
  EXPECT_EQ(refusal_of(R"({"format": "stowage-checkpoint", "version": 1})"),
            "…/step-000001.json: is damaged: it has no digest at its end; move it away to resume "
            "from an earlier one");
}

// A JSON file whose digest is right and whose content is not: made with intent, or by another
// version. It must not lead out of its folder.
TEST(CheckpointFile, RefusesAWellSealedLie) {
  const TemporaryFolder folder;
  SmallRun run;
  ASSERT_TRUE(run.save(folder.path(), 5).ok());
  const Json good = *parse_json(read_bytes(folder / "step-000005.json"));
  const auto refusal_with = [&](const std::string& key, const Json& value) {
    Json::Object members = *good.as_object();
    members.pop_back();
    Json json(std::move(members));
    json.set(key, value);
    Digest digest;
    digest.update(as_bytes(json.dump()));
    json.set("meta_digest", digest.hex());
    write_bytes(folder / "step-000005.json", json.dump());
    return refusal(folder, 5, run.needs);
  };
  const std::string wrong =
      "…/step-000005.json: is damaged: a field is missing or of the wrong kind; move it away to "
      "resume from an earlier one";
  EXPECT_EQ(refusal_with("data_position", 3), "");
  EXPECT_EQ(refusal_with("step", -5), wrong);
  EXPECT_EQ(refusal_with("data_position", "3"), wrong);
  EXPECT_EQ(refusal_with("seed", -1), wrong);
  EXPECT_EQ(refusal_with("tensors", 3), wrong);
  EXPECT_EQ(refusal_with("config", nullptr), wrong);
  EXPECT_EQ(refusal_with("config", Json::object({{"a", 1}})),
            "…/step-000005.json: is damaged: the configuration is not text; move it away to resume "
            "from an earlier one");
  for (const char* name : {"../step-000005.safetensors", "/etc/passwd", "step-000006.safetensors",
                           "step-000005.json", "step-000005.safetensors.tmp", ""})
    EXPECT_THAT(refusal_with("tensors", name),
                testing::HasSubstr("expected the name of the tensors' file of its step"))
        << name;
}

TEST(CheckpointFile, RefusesEveryDamageToTheTensors) {
  const TemporaryFolder folder;
  SmallRun run;
  ASSERT_TRUE(run.save(folder.path(), 5).ok());
  const std::string path = folder / "step-000005.safetensors";
  const std::string good = read_bytes(path);
  for (size_t at = 0; at < good.size(); at += 7) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ (1 << (at % 8)));
    write_bytes(path, bad);
    ASSERT_THAT(refusal(folder, 5, run.needs), testing::StartsWith("…/step-000005.safetensors: "));
  }
  for (size_t size = 0; size < good.size(); size += 11) {
    write_bytes(path, good.substr(0, size));
    ASSERT_THAT(refusal(folder, 5, run.needs), testing::StartsWith("…/step-000005.safetensors: "));
  }
  write_bytes(path, good + "x");
  EXPECT_EQ(refusal(folder, 5, run.needs),
            "…/step-000005.safetensors: has 1 bytes behind the last tensor");
  std::string bad = good;
  bad.back() = 'x';
  write_bytes(path, bad);
  EXPECT_THAT(refusal(folder, 5, run.needs),
              testing::MatchesRegex("…/step-000005.safetensors: is damaged: its digest is "
                                    "[0-9a-f]+, …/step-000005.json says [0-9a-f]+; move "
                                    "…/step-000005.json away to resume from an earlier one"));
  ASSERT_TRUE(remove_file(path).ok());
  EXPECT_EQ(refusal(folder, 5, run.needs), "…/step-000005.safetensors: No such file or directory");
  write_bytes(path, good);
  EXPECT_EQ(refusal(folder, 5, run.needs), "");
}

TEST(CheckpointFile, RefusesEveryDamageToTheJsonFile) {
  const TemporaryFolder folder;
  SmallRun run;
  ASSERT_TRUE(run.save(folder.path(), 5).ok());
  const std::string path = folder / "step-000005.json";
  const std::string good = read_bytes(path);
  const Json meaning = *parse_json(good);
  for (size_t bit = 0; bit < 8 * good.size(); ++bit) {
    std::string bad = good;
    bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ (1 << (bit % 8)));
    // Between the values one white space is as good as another.
    if (const Result<Json> json = parse_json(bad); json.ok() && *json == meaning) continue;
    write_bytes(path, bad);
    ASSERT_THAT(refusal(folder, 5, run.needs), testing::StartsWith("…/step-000005.json: ")) << bad;
  }
  for (size_t size = 0; size + 1 < good.size(); ++size) {
    write_bytes(path, good.substr(0, size));
    ASSERT_THAT(refusal(folder, 5, run.needs),
                testing::StartsWith("…/step-000005.json: is damaged: "));
  }
}

TEST(CheckpointFile, SetsAnEarlierRunAside) {
  const TemporaryFolder folder;
  EXPECT_EQ(set_aside_checkpoints(folder.path()).value(), "");
  SmallRun run;
  ASSERT_TRUE(run.save(folder.path(), 5).ok());
  write_bytes(folder / "notes.txt", "mine");
  EXPECT_EQ(set_aside_checkpoints(folder.path()).value(), folder / "previous");
  EXPECT_THAT(names(folder.path()), UnorderedElementsAre("notes.txt", "previous"));
  EXPECT_TRUE(Checkpoint::open(folder / "previous/step-000005.json", run.needs).ok());

  ASSERT_TRUE(run.save(folder.path(), 6).ok());
  EXPECT_EQ(set_aside_checkpoints(folder.path()).value(), folder / "previous");
  EXPECT_EQ(set_aside_checkpoints(folder.path()).value(), "");
  EXPECT_THAT(names(folder / "previous"),
              UnorderedElementsAre("step-000006.json", "step-000006.safetensors"));

  // Tensors that a killed run had linked there already, and a checkpoint of another run's same
  // step.
  ASSERT_TRUE(run.save(folder.path(), 6).ok());
  ASSERT_TRUE(run.save(folder.path(), 7).ok());
  std::filesystem::create_hard_link(folder / "step-000007.safetensors",
                                    folder / "previous/step-000007.safetensors");
  EXPECT_EQ(set_aside_checkpoints(folder.path()).value(), folder / "previous");
  EXPECT_THAT(names(folder.path()), UnorderedElementsAre("notes.txt", "previous"));
  for (const char* name : {"previous/step-000006.json", "previous/step-000007.json"})
    EXPECT_TRUE(Checkpoint::open(folder / name, run.needs).ok());
}

TEST(CheckpointFile, SetsNothingAsideWhereARunIsAtWork) {
  const TemporaryFolder folder;
  SmallRun run;
  ASSERT_TRUE(run.save(folder / "previous", 5).ok());
  ASSERT_TRUE(run.save(folder.path(), 6).ok());
  const DirectoryLock held = DirectoryLock::lock(folder / "previous").value();
  EXPECT_THAT(set_aside_checkpoints(folder.path()).error(), testing::HasSubstr("another run"));
  EXPECT_TRUE(Checkpoint::open(folder / "previous/step-000005.json", run.needs).ok());
  EXPECT_TRUE(Checkpoint::open(folder / "step-000006.json", run.needs).ok());
}

}  // namespace
}  // namespace stow
