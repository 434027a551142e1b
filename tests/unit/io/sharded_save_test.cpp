#include "stowage/io/sharded_save.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cstring>
#include <map>
#include <numeric>
#include <random>

#include "tests/support/file_size_limit.h"
#include "tests/support/killed_at_call.h"
#include "tests/support/temporary_folder.h"

namespace stow {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;
using testing::UnorderedElementsAre;
using testing::UnorderedElementsAreArray;

std::vector<std::string> names(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    names.push_back(entry.path().filename().string());
  return names;
}

// The slice of a tensor that lies whole and row-major in memory: an oracle that counts elements.
std::vector<std::byte> slice_of(std::span<const std::byte> whole, std::span<const int64_t> shape,
                                DType dtype, const TensorSlice& slice) {
  const int64_t elem_bytes = dtype_bytes(dtype);
  std::vector<std::byte> out;
  for (int64_t e = 0; e < slice.elems(); ++e) {
    int64_t rest = e, number = 0, stride = 1;
    for (size_t i = shape.size(); i-- > 0;) {
      number += (slice.starts[i] + rest % slice.sizes[i]) * stride;
      rest /= slice.sizes[i];
      stride *= shape[i];
    }
    const auto at = whole.begin() + number * elem_bytes;
    out.insert(out.end(), at, at + elem_bytes);
  }
  return out;
}

// A run over a mesh, whose tensors' bytes say of which step they are.
struct MeshRun {
  MeshShape mesh = {{"data", "model"}, {2, 2}};
  std::vector<int32_t> processes = {0, 1, 2, 3};  // by position
  std::vector<MeshTensor> tensors = {{"params/w", DType::kF32, {4, 6}, {.axes = {{0}, {1}}}},
                                     {"params/norm", DType::kF32, {5}, {.axes = {{}}}},
                                     {"opt/count", DType::kU8, {}, {.axes = {}}}};
  ConfigText config = {{"model.dim", "8"}};

  int32_t n_processes() const { return *std::max_element(processes.begin(), processes.end()) + 1; }
  std::vector<std::byte> bytes_of(size_t t, int64_t step) const {
    std::vector<std::byte> bytes(
        static_cast<size_t>(*tensor_bytes(tensors[t].dtype, tensors[t].shape)));
    std::mt19937 random(static_cast<unsigned>(1000 * step) + static_cast<unsigned>(t));
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
    return bytes;
  }
  CheckpointRequirements needs() const {
    CheckpointRequirements needs{.tensors = {}, .config = config, .defaults = {}};
    for (const MeshTensor& t : tensors) needs.tensors.push_back({t.name, t.dtype, t.shape});
    return needs;
  }
  CheckpointMeta meta(int64_t step) const {
    return {.step = step, .data_position = step, .seed = 5, .config = config, .extra = {}};
  }

  // What one process writes. Every second slice is given by a function.
  Result<SaveReceipt> write(const std::string& folder, const SaveTicket& ticket, int32_t process,
                            int64_t step) const {
    std::vector<std::vector<std::byte>> all;
    std::vector<SliceBytes> slices;
    for (const OwnedSlice& owned : assign_slices(tensors, mesh, processes)) {
      if (owned.process != process) continue;
      const MeshTensor& t = tensors[owned.tensor];
      all.push_back(slice_of(bytes_of(owned.tensor, step), t.shape, t.dtype, owned.slice));
      slices.push_back({{t.name, t.dtype, t.shape, 0, 0}, owned.slice});
    }
    for (size_t i = 0; i < slices.size(); ++i) {
      if (i % 2 == 0)
        slices[i].bytes = all[i];
      else
        slices[i].read = [&bytes = all[i]](int64_t offset, std::span<std::byte> out) {
          std::memcpy(out.data(), bytes.data() + offset, out.size());
        };
    }
    return write_shard(folder, ticket, process, slices);
  }
  Result<std::string> save(const std::string& folder, int64_t step, int keep = 0) const {
    const Result<SaveTicket> ticket = begin_sharded_save(folder, step, n_processes());
    if (!ticket) return ticket.failure();
    std::vector<SaveReceipt> receipts;
    for (int32_t p = 0; p < n_processes(); ++p) {
      const Result<SaveReceipt> receipt = write(folder, *ticket, p, step);
      if (!receipt) return receipt.failure();
      receipts.push_back(*receipt);
    }
    return finish_sharded_save(folder, *ticket, meta(step), receipts, keep);
  }
  Result<std::string> save_whole(const std::string& folder, int64_t step, int keep = 0) const {
    std::vector<std::vector<std::byte>> all;
    for (size_t t = 0; t < tensors.size(); ++t) all.push_back(bytes_of(t, step));
    std::vector<TensorBytes> whole;
    for (size_t t = 0; t < tensors.size(); ++t)
      whole.push_back({tensors[t].name, tensors[t].dtype, tensors[t].shape, all[t], {}});
    return save_checkpoint(folder, meta(step), whole, keep);
  }

  // "" if the checkpoint has the bytes of its step.
  std::string fault_of(const std::string& path, const CheckpointShare& share = {}) const {
    const Result<Checkpoint> checkpoint = Checkpoint::open(path, needs(), share);
    if (!checkpoint) return checkpoint.error();
    for (size_t t = 0; t < tensors.size(); ++t) {
      const std::vector<std::byte> expected = bytes_of(t, checkpoint->meta().step);
      std::vector<std::byte> got(expected.size());
      if (Result<void> read = checkpoint->read(tensors[t].name, got); !read) return read.error();
      if (got != expected) return tensors[t].name + " has other bytes";
    }
    return "";
  }
};

std::string short_text(std::string text, const TemporaryFolder& folder) {
  for (size_t at; (at = text.find(folder.path())) != std::string::npos;)
    text.replace(at, folder.path().size(), "…");
  return text;
}

TEST(ShardedSave, RoundTrips) {
  const TemporaryFolder folder;
  const MeshRun run;
  const Result<std::string> path = run.save(folder / "made/here", 12);
  ASSERT_TRUE(path.ok()) << path.error();
  EXPECT_EQ(*path, folder / "made/here/step-000012.json");
  EXPECT_THAT(
      names(folder / "made/here"),
      UnorderedElementsAre("step-000012.json", "step-000012.rank-0.safetensors",
                           "step-000012.rank-1.safetensors", "step-000012.rank-2.safetensors",
                           "step-000012.rank-3.safetensors"));
  EXPECT_EQ(run.fault_of(*path), "");
  const Result<Checkpoint> checkpoint = Checkpoint::open(*path);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error();
  EXPECT_EQ(checkpoint->meta().step, 12);
  EXPECT_EQ(checkpoint->meta().seed, 5u);
  EXPECT_EQ(checkpoint->meta().config, run.config);
  EXPECT_EQ(checkpoint->find("params/w")->shape, (std::vector<int64_t>{4, 6}));
  EXPECT_EQ(checkpoint->find("params/none"), nullptr);
}

// Arrays of one to three axes, cut over any of them, written by any split of the mesh into
// processes; read as the parts of another mesh, whole, and from offsets.
TEST(ShardedSave, AnyMeshReadsWhatAnyOtherWrote) {
  std::mt19937 random(17);
  const auto random_run = [&](const std::vector<std::vector<int64_t>>& shapes) {
    MeshRun run;
    run.mesh = {{"replica", "data", "model"}, {1, 1, 1}};
    for (int i = 0; i < 4; ++i)
      run.mesh.extents[random() % 3] *= 1 + static_cast<int64_t>(random() % 2);
    const int64_t per_process = int64_t{1} << (random() % 3);
    run.processes.clear();
    for (int64_t p = 0; p < run.mesh.size(); ++p)
      run.processes.push_back(static_cast<int32_t>(p / per_process));
    run.tensors.clear();
    for (size_t t = 0; t < shapes.size(); ++t) {
      constexpr DType kDTypes[] = {DType::kF32, DType::kBF16, DType::kU8, DType::kF64};
      MeshTensor tensor = {fmt::format("t{}", t), kDTypes[t % 4], shapes[t], {}};
      tensor.sharding.axes.resize(shapes[t].size());
      std::vector<int> axes = {0, 1, 2};
      std::shuffle(axes.begin(), axes.end(), random);
      for (int axis : axes)
        if (!shapes[t].empty() && random() % 3 != 0) {
          MeshAxes& cut = tensor.sharding.axes[random() % shapes[t].size()];
          cut.push_back(axis);
        }
      run.tensors.push_back(tensor);
    }
    return run;
  };
  for (int i = 0; i < 40; ++i) {
    std::vector<std::vector<int64_t>> shapes = {{}, {0, 16}};
    for (int t = 0; t < 5; ++t) {
      std::vector<int64_t> shape(1 + random() % 3);
      for (int64_t& extent : shape) extent = 16 * (1 + static_cast<int64_t>(random() % 2));
      shapes.push_back(std::move(shape));
    }
    const MeshRun from = random_run(shapes), to = random_run(shapes);
    const TemporaryFolder folder;
    const bool is_whole = i % 8 == 0;
    const Result<std::string> path =
        is_whole ? from.save_whole(folder.path(), 3) : from.save(folder.path(), 3);
    ASSERT_TRUE(path.ok()) << path.error();
    const int n = to.n_processes();
    for (int64_t position = 0; position < to.mesh.size(); ++position) {
      const int process = to.processes[static_cast<size_t>(position)];
      const Result<Checkpoint> checkpoint = Checkpoint::open(*path, to.needs(), {process, n});
      ASSERT_TRUE(checkpoint.ok()) << checkpoint.error();
      for (size_t t = 0; t < shapes.size(); ++t) {
        const MeshTensor& tensor = to.tensors[t];
        const TensorSlice slice = slice_at(tensor.shape, tensor.sharding, to.mesh, position);
        const std::vector<std::byte> expected =
            slice_of(from.bytes_of(t, 3), tensor.shape, tensor.dtype, slice);
        std::vector<std::byte> got(expected.size());
        ASSERT_TRUE(checkpoint->read_slice(tensor.name, slice, got).ok());
        ASSERT_TRUE(got == expected) << tensor.name << " " << to_string(slice);
        const size_t elem = static_cast<size_t>(dtype_bytes(tensor.dtype));
        const size_t begin = expected.empty() ? 0 : random() % (expected.size() / elem) * elem;
        std::vector<std::byte> rest(expected.size() - begin);
        ASSERT_TRUE(
            checkpoint->read_slice_part(tensor.name, slice, static_cast<int64_t>(begin), rest)
                .ok());
        ASSERT_TRUE(std::equal(rest.begin(), rest.end(), expected.begin() + begin, expected.end()));
      }
    }
    ASSERT_EQ(from.fault_of(*path), "");
  }
}

// Above the number of files that stay open.
TEST(ShardedSave, ManyProcesses) {
  MeshRun run;
  run.mesh = {{"data"}, {64}};
  run.processes.resize(64);
  std::iota(run.processes.begin(), run.processes.end(), 0);
  run.tensors = {{"w", DType::kF32, {128, 3}, {.axes = {{0}, {}}}},
                 {"v", DType::kF32, {7}, {.axes = {{}}}}};
  const TemporaryFolder folder;
  const Result<std::string> path = run.save(folder.path(), 1);
  ASSERT_TRUE(path.ok()) << path.error();
  EXPECT_EQ(run.fault_of(*path), "");
  const std::string cut = folder / "step-000001.rank-40.safetensors";
  write_bytes(cut, read_bytes(cut).substr(1));
  // Who verifies it says so, and who reads it.
  EXPECT_THAT(run.fault_of(*path, {40, 64}), StartsWith(cut + ": "));
  EXPECT_THAT(run.fault_of(*path, {39, 64}), StartsWith(cut + ": is damaged: it has "));
  EXPECT_THAT(run.fault_of(*path), StartsWith(cut + ": "));
}

TEST(ShardedSave, SharesOutWhatSeveralHold) {
  MeshRun run;
  run.mesh = {{"replica", "data"}, {2, 2}};
  run.tensors.clear();
  for (int64_t i = 0; i < 40; ++i)
    run.tensors.push_back({fmt::format("v{}", i), DType::kF32, {100 + i}, {.axes = {{}}}});
  run.tensors.push_back({"w", DType::kF32, {400}, {.axes = {{1}}}});
  std::map<int32_t, int64_t> bytes;
  std::map<std::string, int> times;
  for (const OwnedSlice& owned : assign_slices(run.tensors, run.mesh, run.processes)) {
    EXPECT_EQ(run.processes[static_cast<size_t>(owned.position)], owned.process);
    EXPECT_EQ(slice_at(run.tensors[owned.tensor].shape, run.tensors[owned.tensor].sharding,
                       run.mesh, owned.position),
              owned.slice);
    bytes[owned.process] += 4 * owned.slice.elems();
    ++times[run.tensors[owned.tensor].name + to_string(owned.slice)];
  }
  EXPECT_EQ(times.size(), 42u);
  for (const auto& [slice, n] : times) EXPECT_EQ(n, 1) << slice;
  const auto [least, most] = std::minmax_element(
      bytes.begin(), bytes.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  EXPECT_EQ(bytes.size(), 4u);
  EXPECT_LE(most->second - least->second, 4 * 139);
}

TEST(ShardedSave, ReplacesOneOfTheSameStepInOneInstant) {
  const TemporaryFolder folder;
  const MeshRun run;
  const std::string path = folder / "step-000005.json";
  // Whole and in parts take each other's place.
  ASSERT_TRUE(run.save_whole(folder.path(), 5).ok());
  ASSERT_TRUE(run.save(folder.path(), 5).ok());
  EXPECT_EQ(run.fault_of(path), "");
  EXPECT_EQ(count_entries(folder.path()), 5u);
  ASSERT_TRUE(run.save(folder.path(), 5).ok());
  EXPECT_EQ(run.fault_of(path), "");
  EXPECT_EQ(count_entries(folder.path()), 5u);
  // Until the JSON file names others, the files of the one that is there stay.
  const SaveTicket ticket = begin_sharded_save(folder.path(), 5, 4).value();
  for (int32_t p = 0; p < 3; ++p) ASSERT_TRUE(run.write(folder.path(), ticket, p, 5).ok());
  EXPECT_EQ(run.fault_of(path), "");
  EXPECT_EQ(count_entries(folder.path()), 8u);
  ASSERT_TRUE(run.save_whole(folder.path(), 5).ok());
  EXPECT_EQ(run.fault_of(path), "");
  EXPECT_EQ(count_entries(folder.path()), 2u);
}

TEST(ShardedSave, KeepsTheNewestAndTidies) {
  const TemporaryFolder folder;
  const MeshRun run;
  for (int64_t step : {1, 2, 3}) ASSERT_TRUE(run.save(folder.path(), step).ok());
  const std::vector<std::string> foreign = {"step-000007.rank-.safetensors",
                                            "step-000007.rank-00.safetensors",
                                            "step-000007.rank-1x.safetensors",
                                            "step-000007.rank--1.safetensors",
                                            "step-000007.rank-1.json",
                                            "step-000007.rank-99999999999.safetensors",
                                            "file"};
  for (const std::string& name : foreign) write_bytes(folder / name, "mine");
  // What killed runs left.
  for (const char* name :
       {"step-000009.rank-0.safetensors", "step-000009-0123456789abcdef.rank-3.safetensors",
        "step-000002.rank-11.safetensors.12-0.tmp"})
    write_bytes(folder / name, "left");
  ASSERT_TRUE(run.save(folder.path(), 4, 2).ok());
  std::vector<std::string> left = foreign;
  for (const char* step : {"3", "4"}) {
    left.push_back(fmt::format("step-00000{}.json", step));
    for (int p = 0; p < 4; ++p)
      left.push_back(fmt::format("step-00000{}.rank-{}.safetensors", step, p));
  }
  EXPECT_THAT(names(folder.path()), UnorderedElementsAreArray(left));
  for (const std::string& name : foreign) EXPECT_FALSE(is_checkpoint_name(name)) << name;
  for (const char* name :
       {"a/step-000009.rank-0.safetensors", "step-000009-0123456789abcdef.rank-3.safetensors",
        "step-000002.rank-11.safetensors.12-0.tmp"})
    EXPECT_TRUE(is_checkpoint_name(name)) << name;
  // Fewer processes at a step that is there.
  MeshRun fewer = run;
  fewer.processes = {0, 0, 1, 1};
  ASSERT_TRUE(fewer.save(folder.path(), 4, 2).ok());
  EXPECT_EQ(count_entries(folder.path()), foreign.size() + 5 + 3);
  EXPECT_EQ(run.fault_of(folder / "step-000004.json"), "");
}

TEST(ShardedSave, IsSetAside) {
  const TemporaryFolder folder;
  const MeshRun run;
  ASSERT_TRUE(run.save(folder.path(), 5).ok());
  ASSERT_TRUE(run.save_whole(folder.path(), 6).ok());
  ASSERT_TRUE(run.save(folder.path(), 6).ok());
  write_bytes(folder / "step-000007.rank-2.safetensors", "left by a killed run");
  EXPECT_EQ(set_aside_checkpoints(folder.path()).value(), folder / "previous");
  EXPECT_THAT(names(folder.path()), ElementsAre("previous"));
  EXPECT_EQ(run.fault_of(folder / "previous/step-000005.json"), "");
  EXPECT_EQ(run.fault_of(folder / "previous/step-000006.json"), "");
  ASSERT_TRUE(run.save(folder.path(), 8).ok());
  ASSERT_TRUE(set_aside_checkpoints(folder.path()).ok());
  EXPECT_EQ(run.fault_of(folder / "previous/step-000008.json"), "");
  EXPECT_EQ(count_entries(folder / "previous"), 5u);
}

TEST(ShardedSave, AFullDiskLeavesThePreviousOne) {
  const TemporaryFolder folder;
  const MeshRun run;
  ASSERT_TRUE(run.save(folder.path(), 5, 1).ok());
  for (const rlim_t limit_bytes : {rlim_t{100}, rlim_t{700}}) {
    const FileSizeLimit limit(limit_bytes);
    const Result<std::string> saved = run.save(folder.path(), 6, 1);
    ASSERT_FALSE(saved.ok()) << limit_bytes;
    EXPECT_THAT(saved.error(), testing::EndsWith(": File too large"));
  }
  EXPECT_EQ(latest_checkpoint(folder.path()).value()->step, 5);
  EXPECT_EQ(run.fault_of(folder / "step-000005.json"), "");
}

// Process 0 does not see what another has written: each has a folder of its own.
TEST(ShardedSave, NeedsOneFolderForAll) {
  const TemporaryFolder folder;
  const MeshRun run;
  const auto finish = [&](const std::string& other) {
    const SaveTicket ticket = begin_sharded_save(folder / "a", 6, 4).value();
    if (Result<void> made = ensure_directory(other); !made) return made.error();
    std::vector<SaveReceipt> receipts;
    for (int32_t p = 0; p < 4; ++p)
      receipts.push_back(run.write(p == 2 ? other : folder / "a", ticket, p, 6).value());
    return short_text(finish_sharded_save(folder / "a", ticket, run.meta(6), receipts, 0).error(),
                      folder);
  };
  EXPECT_EQ(finish(folder / "b"),
            "…/a/step-000006.rank-2.safetensors: expected the file that process 2 has written, got "
            "none; give all processes one folder, on a file system that they share");
  std::filesystem::copy(folder / "b/step-000006.rank-2.safetensors",
                        folder / "a/step-000006.rank-2.safetensors");
  EXPECT_EQ(finish(folder / "b"),
            "…/a/step-000006.rank-2.safetensors: is not the file that process 2 has written; give "
            "all processes one folder, on a file system that they share");
  EXPECT_TRUE(list_checkpoints(folder / "a")->empty());
}

// A caller that forgets a slice, or has two write it.
TEST(ShardedSave, IsNotWrittenWithAHole) {
  const TemporaryFolder folder;
  const SaveTicket ticket = begin_sharded_save(folder.path(), 6, 2).value();
  const std::vector<std::byte> bytes(8);
  const auto receipt = [&](int32_t process, int64_t start) {
    const SliceBytes slice = {{"w", DType::kF32, {4}, 0, 0}, {{start}, {2}}, bytes};
    return write_shard(folder.path(), ticket, process, std::span(&slice, 1)).value();
  };
  const auto finish = [&](int64_t second) {
    const SaveReceipt receipts[] = {receipt(0, 0), receipt(1, second)};
    const CheckpointMeta meta{.step = 6, .data_position = 6, .seed = 0, .config = {}, .extra = {}};
    return short_text(finish_sharded_save(folder.path(), ticket, meta, receipts, 0).error(),
                      folder);
  };
  EXPECT_EQ(
      finish(1),
      "…/step-000006.json: is not written: tensor \"w\": 2 pieces have its elements [1:2], of "
      "which step-000006.rank-0.safetensors and step-000006.rank-1.safetensors have one each");
  EXPECT_TRUE(list_checkpoints(folder.path())->empty());
  EXPECT_EQ(finish(2), "");
}

TEST(ShardedSave, RefusesEveryDamage) {
  const TemporaryFolder folder;
  const MeshRun run;
  ASSERT_TRUE(run.save(folder.path(), 5).ok());
  const std::string json = folder / "step-000005.json";
  for (int rank : {0, 3}) {
    const std::string path = folder / fmt::format("step-000005.rank-{}.safetensors", rank);
    const std::string good = read_bytes(path);
    for (size_t at = 0; at < good.size(); at += 5) {
      std::string bad = good;
      bad[at] = static_cast<char>(bad[at] ^ (1 << (at % 8)));
      write_bytes(path, bad);
      ASSERT_THAT(run.fault_of(json), StartsWith(path + ": "));
      ASSERT_THAT(run.fault_of(json, {rank, 4}), StartsWith(path + ": "));
    }
    for (size_t size = 0; size < good.size(); size += 11) {
      write_bytes(path, good.substr(0, size));
      ASSERT_THAT(run.fault_of(json), StartsWith(path + ": "));
      // One that verifies another file sees at least that.
      ASSERT_THAT(run.fault_of(json, {1, 4}), StartsWith(path + ": is damaged: it has "));
    }
    ASSERT_TRUE(remove_file(path).ok());
    EXPECT_EQ(run.fault_of(json), path + ": No such file or directory");
    EXPECT_EQ(run.fault_of(json, {1, 4}), path + ": No such file or directory");
    write_bytes(path, good);
    EXPECT_EQ(run.fault_of(json), "");
  }
}

TEST(ShardedSave, RefusesFilesOfAnotherSave) {
  const TemporaryFolder folder, other;
  const MeshRun run;
  for (int64_t step : {5, 6}) ASSERT_TRUE(run.save(folder.path(), step).ok());
  ASSERT_TRUE(run.save(other.path(), 5).ok());
  const std::string path = folder / "step-000005.rank-1.safetensors";
  const std::string good = read_bytes(path);
  const auto refusal = [&](const std::string& bytes) {
    write_bytes(path, bytes);
    return short_text(run.fault_of(folder / "step-000005.json"), folder);
  };
  EXPECT_EQ(refusal(read_bytes(folder / "step-000006.rank-1.safetensors")),
            "…/step-000005.rank-1.safetensors: is of step 6, …/step-000005.json is of step 5");
  EXPECT_THAT(refusal(read_bytes(other / "step-000005.rank-1.safetensors")),
              testing::MatchesRegex("…/step-000005.rank-1.safetensors: is of another save: it has "
                                    "the number [0-9a-f]+, …/step-000005.json has [0-9a-f]+"));
  EXPECT_EQ(refusal(read_bytes(folder / "step-000005.rank-2.safetensors")),
            "…/step-000005.rank-1.safetensors: is of process 2 of 4, expected 1 of 4");
  ASSERT_TRUE(run.save_whole(other.path(), 7).ok());
  EXPECT_EQ(refusal(read_bytes(other / "step-000007.safetensors")),
            "…/step-000005.rank-1.safetensors: is not a part of a checkpoint of Stowage");
  EXPECT_EQ(refusal(good), "");
}

TEST(ShardedSave, RefusesAnotherRun) {
  const TemporaryFolder folder;
  MeshRun run;
  ASSERT_TRUE(run.save(folder.path(), 5).ok());
  const auto refusal = [&](auto change) {
    MeshRun changed = run;
    change(changed);
    return short_text(changed.fault_of(folder / "step-000005.json"), folder);
  };
  EXPECT_EQ(refusal([](MeshRun& r) { r.config[0].second = "16"; }),
            "…/step-000005.json: is of another run: it was made with model.dim = \"8\", this run "
            "has \"16\"");
  EXPECT_EQ(refusal([](MeshRun& r) {
              r.tensors[0].shape = {6, 4};
            }),
            "…/step-000005.json: is of another model: 'params/w' is f32[4,6], this run needs "
            "f32[6,4]");
  EXPECT_EQ(
      refusal([](MeshRun& r) { r.tensors.pop_back(); }),
      "…/step-000005.json: is of another model: it has \"opt/count\", which this run has not");
}

// A JSON file whose digest is right and whose content is not.
TEST(ShardedSave, RefusesAWellSealedLie) {
  const TemporaryFolder folder;
  const MeshRun run;
  ASSERT_TRUE(run.save(folder.path(), 5).ok());
  const std::string path = folder / "step-000005.json";
  const std::string good = read_bytes(path);
  // With one text in the place of another.
  const auto refusal = [&](const std::string& what, const std::string& with) {
    const size_t digest_at = good.rfind("\"meta_digest\"");
    std::string text = good;
    const size_t at = text.find(what);
    EXPECT_LT(at, digest_at) << what;
    text.replace(at, what.size(), with);
    Json::Object members = *parse_json(text)->as_object();
    members.pop_back();
    Json json(std::move(members));
    Digest digest;
    digest.update(as_bytes(json.dump()));
    json.set("meta_digest", digest.hex());
    write_bytes(path, json.dump());
    return short_text(run.fault_of(path), folder);
  };
  const std::string damaged = "…/step-000005.json: is damaged: ";
  const std::string remedy = "; move it away to resume from an earlier one";
  EXPECT_EQ(refusal("\"data_position\": 5", "\"data_position\": 5"), "");
  const Json json = *parse_json(good);
  const auto piece = [&](const char* tensor, size_t k) -> Json::Array {
    return *(*json.find("tensors")->find(tensor)->find("pieces")->as_array())[k].as_array();
  };
  const auto with = [&](const char* tensor, size_t k, size_t at, const Json& value) {
    Json::Array changed = piece(tensor, k);
    const std::string before = Json(changed).dump();
    changed[at] = value;
    return refusal(before, Json(std::move(changed)).dump());
  };
  EXPECT_THAT(with("params/w", 1, 0, 4),
              damaged + "tensor \"params/w\": a piece is in file 4 of 4" + remedy);
  EXPECT_THAT(with("params/w", 1, 0, -1), HasSubstr("is not a list of file, offset"));
  EXPECT_THAT(with("params/w", 1, 1, int64_t{1} << 62), HasSubstr("ends behind step-000005.rank-"));
  EXPECT_THAT(with("params/w", 1, 1, 8), HasSubstr("it has no piece [0:2, 3:6] at byte 8, as "));
  EXPECT_EQ(with("params/w", 1, 2, 3),
            damaged + "tensor \"params/w\": a piece lies outside of f32[4,6]" + remedy);
  EXPECT_THAT(with("params/w", 1, 3, 0), HasSubstr("a piece is empty"));
  EXPECT_THAT(with("params/w", 1, 3, ~uint64_t{0} >> 1), HasSubstr("a piece lies outside of"));
  EXPECT_THAT(with("params/w", 1, 3, 1),
              damaged + "tensor \"params/w\": no piece has its elements [1:2, 3:6]" + remedy);
  EXPECT_THAT(with("params/w", 1, 4, 2),
              HasSubstr("tensor \"params/w\": 2 pieces have its elements [0:2, 2:3], of which "));
  EXPECT_THAT(refusal("\"shape\": [4, 6]", "\"shape\": [4,9223372036854775807]"),
              damaged + "tensor \"params/w\": the size of its shape overflows" + remedy);
  EXPECT_THAT(refusal("\"shape\": [4, 6]", "\"shape\": [6]"), HasSubstr("is not a list of"));
  EXPECT_THAT(refusal("\"dtype\": \"f32\", \"shape\": [4", "\"dtype\": \"f31\", \"shape\": [4"),
              HasSubstr("has no dtype"));
  EXPECT_THAT(refusal("\"save\": \"", "\"save\": \"x"), HasSubstr("a field is missing"));
  for (const char* name :
       {"../step-000005.rank-0.safetensors", "step-000006.rank-0.safetensors", "/etc/passwd",
        "step-000005.rank-1.safetensors", "step-000005.safetensors"})
    EXPECT_THAT(refusal("step-000005.rank-0.safetensors", name),
                HasSubstr("is damaged: expected step-000005.rank-0.safetensors or "));
  EXPECT_THAT(refusal("\"bytes\": ", "\"bytes\": 1"), HasSubstr("is damaged: it has "));
  EXPECT_THAT(refusal("\"digest\": \"", "\"digest\": \"0"), HasSubstr("its digest is "));
  // A piece that the file has and the JSON file does not know.
  EXPECT_THAT(refusal("\"opt/count\": ", "\"opt/counts\": "), HasSubstr("is of another model"));
  write_bytes(path, good);
  EXPECT_EQ(run.fault_of(path), "");
}

// Any number of a well sealed JSON file may be any other: the checkpoint is refused, or has its
// bytes.
TEST(ShardedSave, NoNumberOfASealedFileLeadsAstray) {
  const TemporaryFolder folder;
  const MeshRun run;
  ASSERT_TRUE(run.save(folder.path(), 5).ok());
  const std::string path = folder / "step-000005.json";
  const std::string good = read_bytes(path);
  const size_t begin = good.find("\"files\""), end = good.find("\"config\"");
  std::mt19937 random(13);
  int n_refused = 0;
  for (int i = 0; i < 600; ++i) {
    std::string text = good;
    for (int n = 1 + static_cast<int>(random() % 2); n > 0; --n) {
      size_t at = begin + random() % (end - begin);
      while (!std::isdigit(static_cast<unsigned char>(text[at])) ||
             std::isalnum(static_cast<unsigned char>(text[at - 1])))
        if (--at == 0) break;
      if (at < begin) continue;
      const size_t size = text.find_first_not_of("0123456789", at) - at;
      const char* const kNumbers[] = {"0",
                                      "1",
                                      "2",
                                      "3",
                                      "8",
                                      "24",
                                      "1000",
                                      "-1",
                                      "9223372036854775807",
                                      "4611686018427387904",
                                      "18446744073709551615",
                                      "1.5"};
      text.replace(at, size, kNumbers[random() % std::size(kNumbers)]);
    }
    const Result<Json> parsed = parse_json(text);
    if (!parsed) continue;
    Json::Object members = *parsed->as_object();
    members.pop_back();
    Json json(std::move(members));
    json.set("meta_digest", digest_of(json.dump()));
    write_bytes(path, json.dump());
    const std::string fault = run.fault_of(path);
    if (!fault.empty()) {
      ASSERT_THAT(fault, StartsWith(folder.path())) << text;
      ++n_refused;
    }
  }
  EXPECT_GT(n_refused, 400);
}

TEST(ShardedSave, RefusesEveryDamageToTheJsonFile) {
  const TemporaryFolder folder;
  const MeshRun run;
  ASSERT_TRUE(run.save(folder.path(), 5).ok());
  const std::string path = folder / "step-000005.json";
  const std::string good = read_bytes(path);
  const Json meaning = *parse_json(good);
  for (size_t at = 0; at < good.size(); ++at) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ (1 << (at % 8)));
    if (const Result<Json> json = parse_json(bad); json.ok() && *json == meaning) continue;
    write_bytes(path, bad);
    ASSERT_THAT(run.fault_of(path), StartsWith(path + ": ")) << bad;
  }
}

// All processes of a save in one, which is killed before and after each of its system calls.
TEST(ShardedSave, AKillAtAnyCallLeavesTheNewestWhole) {
  const MeshRun run;
  for (const int64_t step : {6, 5}) {  // the second takes the place of the one that is there
    int n_old = 0, n_new = 0;
    for (int n = 0;; ++n) {
      const TemporaryFolder folder(TemporaryFolder::In::kMemory);
      ASSERT_TRUE(run.save(folder.path(), 4, 1).ok());
      ASSERT_TRUE(run.save(folder.path(), 5, 1).ok());
      const std::string before = read_bytes(folder / "step-000005.json");
      const Killed killed =
          killed_at_call(n, [&] { STOW_CHECK(run.save(folder.path(), step, 1).ok()); });
      if (killed == Killed::kCannotTrace) GTEST_SKIP() << "no process may trace another here";
      const auto newest = latest_checkpoint(folder.path()).value();
      ASSERT_TRUE(newest.has_value());
      ASSERT_EQ(run.fault_of(newest->path), "") << "killed at " << n;
      const bool is_new = read_bytes(folder / "step-000005.json") != before;
      ++(is_new ? n_new : n_old);
      // The next save is none the worse, and nothing stays behind.
      ASSERT_TRUE(run.save(folder.path(), 7, 1).ok());
      ASSERT_EQ(run.fault_of(folder / "step-000007.json"), "");
      ASSERT_EQ(count_entries(folder.path()), 5u);
      if (killed == Killed::kEndedBefore) break;
    }
    EXPECT_GT(n_old, 50);
    EXPECT_GT(n_new, 1);
  }
}

}  // namespace
}  // namespace stow
