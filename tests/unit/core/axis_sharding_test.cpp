#include "stowage/core/axis_sharding.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace stow {
namespace {

using sharding::P;
using ::testing::HasSubstr;

const MeshShape kMesh{{"data", "model"}, {4, 2}};
const ArrayType kMatrix{DType::kF32, {16, 6}};

AxisSharding of(const PartitionSpec& spec, const ArrayType& type = kMatrix) {
  const auto result = axis_sharding_of(spec, type, kMesh);
  EXPECT_TRUE(result.ok()) << result.error();
  return *result;
}
std::string error_of(const PartitionSpec& spec, const ArrayType& type = kMatrix) {
  const auto result = axis_sharding_of(spec, type, kMesh);
  EXPECT_FALSE(result.ok());
  return result.error();
}

TEST(AxisSharding, IsWhatTheSpecificationMeans) {
  EXPECT_EQ(of(P()), whole_sharding(2));
  EXPECT_TRUE(of(P(nullptr, nullptr)).is_whole());
  const AxisSharding s = of(P("data", "model"));
  EXPECT_EQ(s.axes, (std::vector<MeshAxes>{{0}, {1}}));
  EXPECT_EQ(local_type(kMatrix, s, kMesh).shape, (Shape{4, 3}));
  const AxisSharding both = of(P(P::Axes{"model", "data"}));
  EXPECT_EQ(both.axes, (std::vector<MeshAxes>{{1, 0}, {}}));
  EXPECT_EQ(local_type(kMatrix, both, kMesh).shape, (Shape{2, 6}));
  EXPECT_EQ(to_string(both, kMesh), "['model'+'data', None]");
}

// The major axis of an entry comes first: position (data 1, model 1) has part 1 * 4 + 1.
TEST(AxisSharding, NumbersPartsMajorFirst) {
  const AxisSharding s = of(P(P::Axes{"model", "data"}));
  EXPECT_EQ(part_index(s, 0, kMesh, 3), 5);
  EXPECT_EQ(part_index(of(P(P::Axes{"data", "model"})), 0, kMesh, 3), 3);
  EXPECT_EQ(part_index(s, 1, kMesh, 3), 0);
}

TEST(AxisSharding, RefusesWhatCannotBe) {
  EXPECT_EQ(error_of(P("modle")),
            "P('modle') names the axis 'modle', which Mesh('data': 4, 'model': 2) does not have");
  EXPECT_THAT(error_of(P("data", "data")), HasSubstr("mesh axis 'data' is used twice"));
  EXPECT_THAT(error_of(P("data", nullptr, nullptr)),
              HasSubstr("has 3 entries, f32[16,6] has 2 axes"));
  EXPECT_THAT(error_of(P("data"), {DType::kF32, {}}), HasSubstr("has 1 entries, f32[] has 0 axes"));
  EXPECT_EQ(
      error_of(P(nullptr, "data")),
      "P(None, 'data'): axis 1 of f32[16,6] is not divisible into 4 parts (mesh axes 'data'); "
      "the nearest divisible size is 4 or 8");
  EXPECT_THAT(error_of(P("data"), {DType::kF32, {3}}),
              HasSubstr("the nearest divisible size is 4"));
}

TEST(AxisSharding, KnowsFaultsOfMeshes) {
  EXPECT_EQ(mesh_fault(kMesh), std::nullopt);
  EXPECT_THAT(*mesh_fault({{"x"}, {2, 2}}), HasSubstr("1 names and 2 extents"));
  EXPECT_THAT(*mesh_fault({{"x", "x"}, {2, 2}}), HasSubstr("two axes named 'x'"));
  EXPECT_THAT(*mesh_fault({{""}, {2}}), HasSubstr("has no name"));
  EXPECT_THAT(*mesh_fault({{"x"}, {0}}), HasSubstr("at least 1"));
  EXPECT_THAT(*mesh_fault({{"x", "y"}, {1 << 30, 8}}), HasSubstr("2^31"));
}

}  // namespace
}  // namespace stow
