// Meshes of several devices and how shardings cut arrays over them: JAX's array_test, in our words.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "stowage/base/inside.h"
#include "stowage/stowage.h"
#include "tests/support/message_of.h"

namespace stow {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::vector<DevicePtr> several(int n) {
  std::vector<DevicePtr> devices;
  for (int i = 0; i < n; ++i)
    devices.push_back(Device::virtual_device({1 << 20, 1 << 20, 1 << 20}, 1));
  return devices;
}

class Meshes : public ::testing::Test {
 protected:
  std::vector<DevicePtr> devices_ = several(8);
  Mesh mesh_ = make_mesh({4, 2}, {"x", "y"}, devices_);

  std::vector<std::string> indices(const PartitionSpec& spec, const Shape& shape) {
    std::vector<std::string> texts;
    for (const auto& entry : devices_indices(NamedSharding(mesh_, spec), shape))
      texts.push_back(to_string(entry.second));
    return texts;
  }
};

TEST_F(Meshes, AreRowMajor) {
  EXPECT_EQ(mesh_.size(), 8);
  EXPECT_EQ(mesh_.extent("x"), 4);
  EXPECT_EQ(mesh_.mesh_shape().coordinates(5), (std::vector<int64_t>{2, 1}));
  EXPECT_EQ(to_string(mesh_), "Mesh('x': 4, 'y': 2)");
  EXPECT_EQ(mesh_, make_mesh({4, 2}, {"x", "y"}, devices_));
  EXPECT_FALSE(mesh_ == make_mesh({2, 4}, {"x", "y"}, devices_));
  EXPECT_FALSE(mesh_ == make_mesh({4, 2}, {"x", "y"}, several(8)));
}

TEST_F(Meshes, BadOnesAreRefused) {
  std::vector<DevicePtr> twice = devices_, none = devices_;
  twice[3] = twice[5];
  none[2] = nullptr;
  EXPECT_THAT(
      message_of([&] { make_mesh({8}, {"x"}, twice); }),
      AllOf(HasSubstr("[mesh] the device virtual:"), HasSubstr("is in Mesh('x': 8) twice")));
  EXPECT_THAT(message_of([&] { make_mesh({8}, {"x"}, none); }), HasSubstr("the device is null"));
  EXPECT_THAT(message_of([&] { make_mesh({4}, {"x"}, devices_); }),
              HasSubstr("expected 4 devices for Mesh('x': 4), got 8"));
  EXPECT_THAT(message_of([&] { make_mesh({0, 8}, {"x", "y"}, devices_); }),
              HasSubstr("axis 'x' of the mesh has 0"));
}

TEST_F(Meshes, IndicesOfEachDevice) {
  EXPECT_EQ(indices(P("x", "y"), {8, 2}),
            (std::vector<std::string>{"[0:2, 0:1]", "[0:2, 1:2]", "[2:4, 0:1]", "[2:4, 1:2]",
                                      "[4:6, 0:1]", "[4:6, 1:2]", "[6:8, 0:1]", "[6:8, 1:2]"}));
  EXPECT_EQ(indices(P("y"), {8}),
            (std::vector<std::string>{"[0:4]", "[4:8]", "[0:4]", "[4:8]", "[0:4]", "[4:8]", "[0:4]",
                                      "[4:8]"}));
  // The first of several axes is the major one.
  EXPECT_EQ(indices(P(P::Axes{"x", "y"}), {8}),
            (std::vector<std::string>{"[0:1]", "[1:2]", "[2:3]", "[3:4]", "[4:5]", "[5:6]", "[6:7]",
                                      "[7:8]"}));
  EXPECT_EQ(indices(P(P::Axes{"y", "x"}), {8}),
            (std::vector<std::string>{"[0:1]", "[4:5]", "[1:2]", "[5:6]", "[2:3]", "[6:7]", "[3:4]",
                                      "[7:8]"}));
  // A spec in another order than the mesh's axes.
  EXPECT_EQ(indices(P("y", "x"), {2, 4})[5], "[1:2, 2:3]");
  EXPECT_EQ(indices(P(nullptr, "y"), {3, 4})[1], "[0:3, 2:4]");
  EXPECT_EQ(indices(P(), {}), std::vector<std::string>(8, "[]"));
}

TEST_F(Meshes, ReplicasAreCounted) {
  const NamedSharding cut(mesh_, P("y"));
  std::vector<int64_t> replicas;
  for (int64_t i = 0; i < 8; ++i) replicas.push_back(cut.replica_at(i));
  EXPECT_EQ(replicas, (std::vector<int64_t>{0, 0, 1, 1, 2, 2, 3, 3}));
  EXPECT_EQ(NamedSharding(mesh_, P()).replica_at(7), 7);
  EXPECT_EQ(NamedSharding(mesh_, P("x", "y")).replica_at(7), 0);
}

TEST_F(Meshes, ShapesOfShards) {
  EXPECT_EQ(shard_shape(NamedSharding(mesh_, P("x", "y")), {8, 4}), (Shape{2, 2}));
  EXPECT_EQ(shard_shape(NamedSharding(mesh_, P(P::Axes{"x", "y"})), {8, 4}), (Shape{1, 4}));
  EXPECT_EQ(shard_shape(NamedSharding(mesh_, P("x")), {0, 4}), (Shape{0, 4}));
  EXPECT_EQ(shard_shape(SingleDeviceSharding(), {8, 4}), (Shape{8, 4}));
}

TEST_F(Meshes, WholeOnEachDevice) {
  EXPECT_TRUE(is_fully_replicated(NamedSharding(mesh_, P())));
  EXPECT_TRUE(is_fully_replicated(NamedSharding(mesh_, P(nullptr, nullptr))));
  EXPECT_FALSE(is_fully_replicated(NamedSharding(mesh_, P("x"))));
  EXPECT_TRUE(is_fully_replicated(
      NamedSharding(make_mesh({1, 8}, {"one", "x"}, devices_), P("one"))));
  EXPECT_TRUE(is_fully_replicated(SingleDeviceSharding()));
  EXPECT_TRUE(is_fully_addressable(NamedSharding(mesh_, P("x"))));
}

TEST_F(Meshes, EquivalenceIsByDeviceAndPart) {
  const Sharding a = NamedSharding(mesh_, P("x"));
  EXPECT_TRUE(a.is_equivalent_to(NamedSharding(mesh_, P("x", nullptr)), 2));
  EXPECT_FALSE(a.is_equivalent_to(NamedSharding(mesh_, P("y")), 2));
  EXPECT_FALSE(a.is_equivalent_to(NamedSharding(mesh_, P(nullptr, "x")), 2));
  EXPECT_FALSE(a.is_equivalent_to(NamedSharding(mesh_, P("x"), "pinned_host"), 2));
  // Axes of another name, and a grid of another form, that cut alike.
  EXPECT_TRUE(
      a.is_equivalent_to(NamedSharding(make_mesh({4, 2}, {"a", "b"}, devices_), P("a")), 2));
  EXPECT_TRUE(Sharding(NamedSharding(mesh_, P(P::Axes{"x", "y"})))
                  .is_equivalent_to(NamedSharding(make_mesh({8}, {"z"}, devices_), P("z")), 1));
  EXPECT_TRUE(Sharding(NamedSharding(mesh_, P()))
                  .is_equivalent_to(NamedSharding(make_mesh({8}, {"z"}, devices_), P()), 1));
  EXPECT_FALSE(a.is_equivalent_to(SingleDeviceSharding(devices_[0]), 2));
}

TEST_F(Meshes, WhatDoesNotDivideNamesTheNearestSizes) {
  const auto put = [&](const Shape& shape, const PartitionSpec& spec) {
    return message_of([&] { device_put(zeros(shape), NamedSharding(mesh_, spec)); });
  };
  EXPECT_THAT(put({10, 4}, P("x")),
              HasSubstr("[device_put] axis 0 of f32[10,4] is not divisible into 4 parts "
                        "(NamedSharding(Mesh('x': 4, 'y': 2), P('x'), device)); the nearest sizes "
                        "that are: 8 and 12"));
  EXPECT_THAT(put({3}, P(P::Axes{"x", "y"})), HasSubstr("the nearest size that is: 8"));
  EXPECT_THAT(put({}, P("x")), HasSubstr("P('x') has 1 entries, f32[] has 0 axes"));
  EXPECT_THAT(put({4}, P("x", "y")), HasSubstr("has 2 entries, f32[4] has 1 axes"));
  EXPECT_THAT(message_of([&] { NamedSharding(mesh_, P("z")); }), HasSubstr("expected axes of"));
  EXPECT_THAT(message_of([&] { NamedSharding(mesh_, P("x", "x")); }), HasSubstr("names 'x' twice"));
}

}  // namespace
}  // namespace stow
