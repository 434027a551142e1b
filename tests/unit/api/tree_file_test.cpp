#include "stowage/api/tree_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "stowage/io/safetensors.h"
#include "stowage/stowage.h"
#include "tests/support/temporary_folder.h"

namespace {

struct Layer {
  stow::Array w, b;
};
STOW_TREE(Layer, w, b);
struct Net {
  std::vector<Layer> layers;
  std::map<std::string, stow::Array> more;
  stow::None nothing;
};
STOW_TREE(Net, layers, more, nothing);

}  // namespace

namespace stow {
namespace {

Net net() {
  return {
      {{arange(6).reshape({2, 3}).astype(DType::kF32), Array::from({1.5f, 2.f}, {2}, DType::kBF16)},
       {Array::scalar(0.5), zeros({0, 4})}},
      {{"mask", Array::from({true, false, true})},
       {"host", device_put(arange(5), MemoryKind::kPinnedHost)},
       {"disk", device_put(arange(700000), MemoryKind::kDisk)}},
      {}};
}

class TreeFile : public ::testing::Test {
 protected:
  std::string path() const { return folder_ / "net.safetensors"; }
  std::string load_error(const Net& like, const TreeFileOptions& options = {}) const {
    const Result<Net> loaded = load_tree(path(), like, options);
    if (loaded.ok()) return "no error";
    return loaded.error().starts_with(path() + ": ") ? loaded.error().substr(path().size() + 2)
                                                     : loaded.error();
  }
  TemporaryFolder folder_;
};

TEST_F(TreeFile, HoldsEveryLeafByItsPath) {
  const Net saved = net();
  ASSERT_TRUE(save_tree(path(), saved).ok());
  const Result<SafetensorsFile> file = SafetensorsFile::open(path());
  ASSERT_TRUE(file.ok());
  for (const std::string& name : tree_paths(saved)) EXPECT_TRUE(file->find(name)) << name;
  // By abstract arrays, so nothing but the file can give the values.
  const Net like = tree_map([](const Array& a) { return Array::abstract(a.type()); }, saved);
  const Result<Net> loaded = load_tree(path(), like);
  ASSERT_TRUE(loaded.ok()) << loaded.error();
  const std::vector<Array> a = tree_leaves(saved), b = tree_leaves(*loaded);
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].type(), b[i].type());
    EXPECT_EQ(a[i].to_vector<double>(), b[i].to_vector<double>());
  }
  EXPECT_EQ(count_entries(folder_.path()), 1u);
}

TEST_F(TreeFile, PrefixAndNamesOfOnesOwn) {
  ASSERT_TRUE(save_tree(path(), ones({2}), {.prefix = "w"}).ok());
  EXPECT_EQ(load_tree(path(), zeros({2}), {.prefix = "w"})->to_vector<float>(),
            (std::vector<float>{1, 1}));
  const auto dots = [](std::string name) {
    std::replace(name.begin(), name.end(), '/', '.');
    return name;
  };
  const Layer layer{ones({1}), zeros({2})};
  ASSERT_TRUE(save_tree(path(), layer, {.prefix = "model/0", .name = dots}).ok());
  EXPECT_TRUE(SafetensorsFile::open(path())->find("model.0.w"));
  EXPECT_TRUE(load_tree(path(), layer, {.prefix = "model/0", .name = dots}).ok());
  EXPECT_EQ(save_tree(path(), ones({2})).error(),
            path() + ": a leaf has no name: the path of a lone Array is empty; give a prefix");
  EXPECT_EQ(save_tree(path(), layer, {.name = [](const std::string&) { return "x"; }}).error(),
            path() + ": two leaves have the name 'x'");
}

TEST_F(TreeFile, PartOfAFileByItsPrefix) {
  ASSERT_TRUE(save_tree(path(), std::pair(Layer{ones({1}), zeros({2})}, ones({3}))).ok());
  const Result<Layer> part = load_tree(path(), Layer{zeros({1}), ones({2})}, {.prefix = "0"});
  ASSERT_TRUE(part.ok()) << part.error();
  EXPECT_EQ(part->w.item<float>(), 1);
  EXPECT_EQ(
      load_tree(path(), std::map<std::string, Array>{{"w", ones({1})}}, {.prefix = "0"}).error(),
      path() + ": no leaf is named '0/b'; allow_surplus leaves such tensors aside");
}

TEST_F(TreeFile, NamesWhatDiffers) {
  ASSERT_TRUE(save_tree(path(), net()).ok());
  Net other = net();
  other.more["maskk"] = other.more["mask"];
  other.more.erase("mask");
  EXPECT_EQ(load_error(other),
            "it has no tensor 'more/maskk' (it has 'more/mask'); no leaf is named 'more/mask'; "
            "allow_surplus leaves such tensors aside");
  other = net();
  other.layers[0].w = zeros({3, 2});
  other.layers[0].b = zeros({2});
  EXPECT_EQ(
      load_error(other),
      "'layers/0/w' is f32[2,3], expected f32[3,2]; 'layers/0/b' is bf16[2], expected f32[2]");
  other = net();
  other.layers.pop_back();
  EXPECT_EQ(load_error(other),
            "no leaf is named 'layers/1/b', 'layers/1/w'; allow_surplus leaves such tensors aside");
  EXPECT_EQ(load_error(other, {.allow_surplus = true}), "no error");
  other.layers[0].w = Array();
  EXPECT_EQ(load_error(other),
            "the leaf 'layers/0/w' is an empty Array, which has no type to load");
}

TEST_F(TreeFile, RefusesHostileFiles) {
  EXPECT_EQ(load_error(net()), "No such file or directory");
  write_bytes(path(), "not a file of tensors");
  EXPECT_THAT(load_error(net()), testing::HasSubstr("is not a safetensors file"));
  const std::byte bytes[] = {std::byte{1}, std::byte{7}};
  const TensorBytes tensor{"b", DType::kBool, {2}, bytes, {}};
  ASSERT_TRUE(save_safetensors(path(), {&tensor, 1}).ok());
  EXPECT_EQ(load_tree(path(), Array::abstract({2}, DType::kBool), {.prefix = "b"}).error(),
            path() + ": tensor 'b' has a byte 7 where a bool is 0 or 1");
}

TEST_F(TreeFile, LeavesWhatStoodThereWhereItFails) {
  const Layer layer{ones({2}), zeros({2})};
  ASSERT_TRUE(save_tree(path(), layer).ok());
  const std::string before = read_bytes(path());
  EXPECT_EQ(save_tree(path(), Layer{ones({2}), Array::abstract({2})}).error(),
            path() + ": 'b' has no data: f32[2]");
  EXPECT_FALSE(save_tree(folder_ / "missing/net.safetensors", layer).ok());
  EXPECT_EQ(read_bytes(path()), before);
}

}  // namespace
}  // namespace stow
