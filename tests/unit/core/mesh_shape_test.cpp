#include "stowage/core/mesh_shape.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace stow {
namespace {

using ::testing::ElementsAre;

TEST(MeshShape, CountsPositionsRowMajor) {
  const MeshShape mesh{{"replica", "data", "model"}, {2, 3, 2}};
  EXPECT_EQ(mesh.size(), 12);
  EXPECT_EQ(mesh.axis("data"), 1);
  EXPECT_EQ(mesh.axis("none"), -1);
  EXPECT_THAT(mesh.coordinates(9), ElementsAre(1, 1, 1));
  EXPECT_EQ(to_string(mesh), "Mesh('replica': 2, 'data': 3, 'model': 2)");
}

TEST(MeshShape, TheFirstAxisOfAGroupIsTheMajorOne) {
  const MeshShape mesh{{"x", "y"}, {2, 3}};
  EXPECT_THAT(mesh.group(4, std::vector<int>{0}), ElementsAre(1, 4));
  EXPECT_THAT(mesh.group(4, std::vector<int>{1}), ElementsAre(3, 4, 5));
  EXPECT_THAT(mesh.group(4, std::vector<int>{1, 0}), ElementsAre(0, 3, 1, 4, 2, 5));
  EXPECT_THAT(mesh.group(4, std::vector<int>{}), ElementsAre(4));
}

TEST(MeshShape, APositionStandsAtItsIndexInItsGroup) {
  const MeshShape mesh{{"x", "y", "z"}, {2, 3, 4}};
  for (const std::vector<int>& axes : {std::vector<int>{2, 0}, {1}, {0, 1, 2}, {2, 1, 0}})
    for (int64_t position = 0; position < mesh.size(); ++position) {
      const auto index = static_cast<size_t>(mesh.index_in_group(position, axes));
      EXPECT_EQ(mesh.group(position, axes).at(index), position);
    }
}

}  // namespace
}  // namespace stow
