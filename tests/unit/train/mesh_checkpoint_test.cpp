// Threads stand for the processes of a run: each has its positions and a world of its own.
#include "stowage/train/mesh_checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <random>
#include <thread>

#include "stowage/core/tiling.h"
#include "stowage/runtime/comm/region.h"
#include "stowage/runtime/comm/window.h"
#include "tests/support/temporary_folder.h"

namespace stow {
namespace {

using testing::Each;
using testing::HasSubstr;

class WorldOfThreads : public comm::World {
 public:
  WorldOfThreads(int32_t process, int32_t n,
                 std::span<std::unique_ptr<comm::Communicator>> communicators)
      : World({.process = process, .n_processes = n}) {
    for (auto& communicator : communicators) communicators_.push_back(std::move(communicator));
  }
};

// Runs `body` as every process of a mesh of devices of that memory; returns what each returned.
std::vector<std::string> run_processes(const MeshShape& mesh, int n,
                                       const std::function<std::string(Positions&)>& body,
                                       double timeout_s = 20) {
  const auto devices_each = static_cast<size_t>(mesh.size() / n);
  const std::shared_ptr<comm::Region> region =
      comm::Region::create(static_cast<int32_t>(mesh.size()), static_cast<int32_t>(devices_each),
                           false, true)
          .value();
  std::vector<std::unique_ptr<comm::Communicator>> all;
  for (int32_t rank = 0; rank < mesh.size(); ++rank)
    all.push_back(std::make_unique<comm::WindowCommunicator>(region, rank, timeout_s));
  std::vector<std::string> said(static_cast<size_t>(n));
  std::vector<std::thread> threads;
  for (int p = 0; p < n; ++p)
    threads.emplace_back([&, p] {
      WorldOfThreads world(
          p, n, std::span(all).subspan(static_cast<size_t>(p) * devices_each, devices_each));
      std::vector<DevicePtr> devices;
      for (size_t i = 0; i < devices_each; ++i)
        devices.push_back(Device::virtual_device({1 << 22, 1 << 22, 1 << 22}));
      Positions positions(mesh, devices, n > 1 ? &world : nullptr, timeout_s);
      try {
        said[static_cast<size_t>(p)] = body(positions);
      } catch (const std::exception& error) {
        said[static_cast<size_t>(p)] = std::string("threw: ") + error.what();
      }
    });
  for (std::thread& thread : threads) thread.join();
  return said;
}

// A state of matrices, stacks and vectors, cut as the run's own are.
std::vector<StateLeaf> leaves_over(const MeshShape& mesh, std::mt19937& random) {
  const std::vector<std::pair<DType, std::vector<int64_t>>> types = {{DType::kF32, {3, 16, 8}},
                                                                     {DType::kBF16, {16, 32}},
                                                                     {DType::kF32, {32}},
                                                                     {DType::kI32, {}},
                                                                     {DType::kF32, {8, 8, 16}}};
  std::vector<StateLeaf> leaves;
  for (const auto& [dtype, shape] : types) {
    StateLeaf leaf{fmt::format("leaf/{}", leaves.size()), {.dtype = dtype, .shape = Shape(shape)}};
    leaf.sharding = whole_sharding(leaf.type.shape.rank());
    for (int axis = 0; axis < mesh.rank(); ++axis)
      if (!shape.empty() && random() % 4 != 0)
        leaf.sharding.axes[random() % shape.size()].push_back(axis);
    if (shape.size() == 3 && shape[0] == 3) leaf.sharding.axes[0].clear();
    leaf.part = local_type(leaf.type, leaf.sharding, mesh);
    leaves.push_back(std::move(leaf));
  }
  return leaves;
}

// The bytes of a whole leaf.
std::vector<std::byte> bytes_of(const StateLeaf& leaf, int64_t step) {
  std::mt19937 random(static_cast<unsigned>(step * 100) + static_cast<unsigned>(leaf.name.back()));
  std::vector<std::byte> bytes(static_cast<size_t>(leaf.type.bytes()));
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

// Some leaves lie on the host, some on disk.
std::vector<ArrayType> places_of(std::span<const StateLeaf> leaves) {
  std::vector<ArrayType> types;
  for (size_t i = 0; i < leaves.size(); ++i) {
    types.push_back(leaves[i].part);
    types.back().kind = static_cast<MemoryKind>(i % kNumMemoryKinds);
  }
  return types;
}

// The part of an array that a position holds, and its bytes: what slices of files are judged by.
ShardIndex box_of_part(const ArrayType& type, const AxisSharding& sharding, const MeshShape& mesh,
                       int64_t position) {
  const ArrayType part = local_type(type, sharding, mesh);
  ShardIndex box;
  for (int axis = 0; axis < type.shape.rank(); ++axis) {
    const int64_t extent = part.shape.dims()[static_cast<size_t>(axis)];
    const int64_t begin = part_index(sharding, axis, mesh, position) * extent;
    box.push_back({begin, begin + extent});
  }
  return box;
}

std::vector<std::byte> part_of(std::span<const std::byte> whole, const ArrayType& type,
                               const ShardIndex& box) {
  const int64_t n = elems_of(box);
  const int64_t size = type.elems() > 0 ? type.bytes() / type.elems() : 0;
  std::vector<std::byte> part(static_cast<size_t>(n * size));
  for (int64_t at = 0; at < n;) {
    const ElementRun run = run_in_box(type.shape, box, at);
    std::memcpy(part.data() + at * size, whole.data() + run.elem * size,
                static_cast<size_t>(run.n_elems * size));
    at += run.n_elems;
  }
  return part;
}

std::vector<std::byte> part_of_leaf(const StateLeaf& leaf, int64_t step, const Positions& positions,
                                    size_t p) {
  return part_of(bytes_of(leaf, step), leaf.type,
                 box_of_part(leaf.type, leaf.sharding, positions.mesh(), positions.position(p)));
}

CheckpointMeta meta_of(int64_t step) {
  return {.step = step, .data_position = step, .seed = 1, .config = {{"key", "1"}}, .extra = {}};
}
CheckpointRequirements needs_of(std::span<const StateLeaf> leaves, const char* key = "1") {
  CheckpointRequirements needs{.tensors = {}, .config = {{"key", key}}, .defaults = {}};
  for (const StateLeaf& leaf : leaves)
    needs.tensors.push_back({leaf.name, leaf.type.dtype, leaf.type.shape.dims()});
  return needs;
}

std::string save(const std::string& folder, int64_t step, std::span<const StateLeaf> leaves,
                 Positions& positions) {
  const std::vector<ArrayType> types = places_of(leaves);
  PositionBuffers state(positions.size());
  for (size_t p = 0; p < positions.size(); ++p)
    for (size_t i = 0; i < leaves.size(); ++i) {
      const std::vector<std::byte> part = part_of_leaf(leaves[i], step, positions, p);
      state[p].push_back(
          positions.device(p).allocate(static_cast<int64_t>(part.size()), types[i].kind));
      state[p].back()->write(0, part);
    }
  const Result<std::string> path = save_state(folder, meta_of(step), leaves, state, positions, 2);
  return path ? *path : "error: " + path.error();
}

// "" if every position gets its part of the newest checkpoint.
std::string load(const std::string& folder, int64_t step, std::span<const StateLeaf> leaves,
                 Positions& positions) {
  const auto newest = latest_checkpoint_of_all(folder, positions);
  if (!newest) return newest.error();
  if (!*newest || (*newest)->step != step) return "another step";
  const Result<Checkpoint> checkpoint =
      open_checkpoint((*newest)->path, needs_of(leaves), positions);
  if (!checkpoint) return checkpoint.error();
  const std::vector<ArrayType> types = places_of(leaves);
  const Result<PositionBuffers> state = read_state(*checkpoint, leaves, types, positions);
  if (!state) return state.error();
  for (size_t p = 0; p < positions.size(); ++p)
    for (size_t i = 0; i < leaves.size(); ++i) {
      const DeviceBuffer& buffer = *(*state)[p][i];
      std::vector<std::byte> got(static_cast<size_t>(buffer.bytes()));
      buffer.read(0, got);
      if (got != part_of_leaf(leaves[i], step, positions, p)) return leaves[i].name + " differs";
    }
  return "";
}

const MeshShape kMeshes[] = {
    {{"data"}, {4}}, {{"data", "model"}, {2, 2}}, {{"replica", "data"}, {2, 2}}, {{"model"}, {8}}};

TEST(MeshCheckpoint, AnyMeshAndSplitLoadsWhatAnyOtherSaved) {
  std::mt19937 random(23);
  for (int i = 0; i < 24; ++i) {
    const MeshShape &from = kMeshes[random() % 4], &to = kMeshes[random() % 4];
    const std::vector<StateLeaf> saved = leaves_over(from, random),
                                 loaded = leaves_over(to, random);
    const int n_from = 1 << random() % 3, n_to = 1 << random() % 3;
    const TemporaryFolder folder;
    EXPECT_THAT(
        run_processes(from, n_from, [&](Positions& p) { return save(folder.path(), 7, saved, p); }),
        Each(folder / "step-000007.json"));
    // One process writes what a run on one device writes.
    EXPECT_EQ(count_entries(folder.path()), n_from == 1 ? 2u : static_cast<size_t>(1 + n_from));
    EXPECT_THAT(
        run_processes(to, n_to, [&](Positions& p) { return load(folder.path(), 7, loaded, p); }),
        Each(""));
  }
}

// A run without a mesh reads what a mesh saved, and the other way around.
TEST(MeshCheckpoint, OneDeviceLoadsWhatAMeshSaved) {
  std::mt19937 random(29);
  const std::vector<StateLeaf> leaves = leaves_over(kMeshes[1], random);
  std::vector<StateLeaf> alone = leaves;
  for (StateLeaf& leaf : alone) {
    leaf.sharding = {};
    leaf.part = leaf.type;
  }
  const TemporaryFolder folder;
  const auto on_one = [&](auto&& body) {
    Positions positions(Device::virtual_device({1 << 22, 1 << 22, 1 << 22}));
    return body(positions);
  };
  run_processes(kMeshes[1], 4, [&](Positions& p) { return save(folder.path(), 3, leaves, p); });
  const Result<Checkpoint> checkpoint =
      Checkpoint::open(folder / "step-000003.json", needs_of(alone));
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error();
  on_one([&](Positions& positions) {
    const Result<PositionBuffers> state =
        read_state(*checkpoint, alone, places_of(alone), positions);
    EXPECT_TRUE(state.ok()) << state.error();
    for (size_t i = 0; state.ok() && i < alone.size(); ++i) {
      std::vector<std::byte> got(static_cast<size_t>((*state)[0][i]->bytes()));
      (*state)[0][i]->read(0, got);
      EXPECT_TRUE(got == bytes_of(alone[i], 3)) << i;
    }
    EXPECT_TRUE(save_state(folder / "alone", meta_of(4), alone, *state, positions, 2).ok());
    return 0;
  });
  // The bytes are those of step 3.
  std::filesystem::copy(folder / "alone", folder / "from3");
  EXPECT_THAT(
      run_processes(kMeshes[0], 2,
                    [&](Positions& p) {
                      const std::vector<StateLeaf> cut = [&] {
                        std::mt19937 again(31);
                        return leaves_over(kMeshes[0], again);
                      }();
                      const Result<Checkpoint> back =
                          open_checkpoint(folder / "from3/step-000004.json", needs_of(cut), p);
                      if (!back) return back.error();
                      const auto state = read_state(*back, cut, places_of(cut), p);
                      if (!state) return state.error();
                      for (size_t i = 0; i < cut.size(); ++i) {
                        std::vector<std::byte> got(static_cast<size_t>((*state)[0][i]->bytes()));
                        (*state)[0][i]->read(0, got);
                        if (got != part_of_leaf(cut[i], 3, p, 0)) return cut[i].name;
                      }
                      return std::string();
                    }),
      Each(""));
}

TEST(MeshCheckpoint, AllSucceedOrFailTogether) {
  const std::vector<std::string> said =
      run_processes(kMeshes[0], 4, [](Positions& positions) -> std::string {
        const auto work = [&]() -> Result<void> {
          if (positions.process() == 2) return fail("the disk is full");
          return {};
        };
        return run_on_all_processes(positions, "test", work).error();
      });
  EXPECT_THAT(said,
              testing::ElementsAre("process 2: the disk is full", "process 2: the disk is full",
                                   "the disk is full", "process 2: the disk is full"));
  EXPECT_THAT(run_processes(kMeshes[0], 2,
                            [](Positions& positions) {
                              return run_on_all_processes(positions, "test",
                                                          [&]() -> Result<void> {
                                                            if (positions.process() == 1)
                                                              throw std::runtime_error("oh");
                                                            return {};
                                                          })
                                  .error();
                            }),
              testing::ElementsAre("process 1: oh", "threw: oh"));
  EXPECT_THAT(run_processes(kMeshes[0], 4,
                            [](Positions& positions) {
                              return text_of_process_0(positions, "test",
                                                       [&]() -> Result<std::string> {
                                                         return fmt::format("of {}",
                                                                            positions.process());
                                                       })
                                  .value();
                            }),
              Each("of 0"));
}

// Work that takes longer than a process may be late.
TEST(MeshCheckpoint, SlowWorkIsNotLate) {
  constexpr double kTimeout = 0.5;
  EXPECT_THAT(run_processes(
                  kMeshes[0], 2,
                  [&](Positions& positions) {
                    return run_on_all_processes(
                               positions, "test",
                               [&]() -> Result<void> {
                                 if (positions.process() == 1)
                                   std::this_thread::sleep_for(std::chrono::milliseconds(1500));
                                 return {};
                               })
                        .error();
                  },
                  kTimeout),
              Each(""));
}

TEST(MeshCheckpoint, DamageIsRefusedByAllAndNamed) {
  std::mt19937 random(37);
  const std::vector<StateLeaf> leaves = leaves_over(kMeshes[0], random);
  const TemporaryFolder folder;
  for (int64_t step : {3, 4})
    run_processes(kMeshes[0], 4,
                  [&](Positions& p) { return save(folder.path(), step, leaves, p); });
  const std::string path = folder / "step-000004.rank-3.safetensors";
  const std::string good = read_bytes(path);
  const auto load_all = [&] {
    return run_processes(kMeshes[1], 2,
                         [&](Positions& p) { return load(folder.path(), 4, leaves, p); });
  };
  std::string bad = good;
  bad.back() = static_cast<char>(bad.back() ^ 1);
  write_bytes(path, bad);
  EXPECT_THAT(load_all(),
              Each(HasSubstr("step-000004.rank-3.safetensors: is damaged: its digest")));
  write_bytes(path, read_bytes(folder / "step-000003.rank-3.safetensors"));
  EXPECT_THAT(load_all(), Each(HasSubstr("step-000004.rank-3.safetensors: is of step 3, ")));
  ASSERT_TRUE(remove_file(path).ok());
  EXPECT_THAT(load_all(), Each(HasSubstr("step-000004.rank-3.safetensors: No such file")));
}

// Process 2 cannot write its file: a folder is in its place.
TEST(MeshCheckpoint, AFailedWriteLeavesTheOneBefore) {
  std::mt19937 random(41);
  const std::vector<StateLeaf> leaves = leaves_over(kMeshes[0], random);
  const TemporaryFolder folder;
  const auto save_all = [&](int64_t step) {
    return run_processes(kMeshes[0], 4,
                         [&](Positions& p) { return save(folder.path(), step, leaves, p); });
  };
  save_all(3);
  ASSERT_TRUE(ensure_directory(folder / "step-000004.rank-2.safetensors/x").ok());
  const std::vector<std::string> said = save_all(4);
  EXPECT_THAT(said[2], testing::StartsWith("error: " + folder.path()));
  EXPECT_THAT(said, Each(HasSubstr("step-000004.rank-2.safetensors: Is a directory")));
  EXPECT_THAT(
      run_processes(kMeshes[0], 4, [&](Positions& p) { return load(folder.path(), 3, leaves, p); }),
      Each(""));
}

}  // namespace
}  // namespace stow
