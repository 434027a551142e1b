// The seconds of collectives, against values computed by hand.
#include "stowage/runtime/null/collective_time.h"

#include <gtest/gtest.h>

#include <cmath>

#include "stowage/tune/devices.h"
#include "tests/support/schedule_kit.h"

namespace stow {
namespace {

// Hosts of 4 devices at 1000 B/s and half a second; 8 hosts at 100 B/s, of which half is reached,
// and 2 seconds.
DeviceDescription two_levels() {
  DeviceDescription d = testing::round_device();
  d.network = {{4, 1000, 0.5, 1}, {32, 100, 2, 0.5}};
  return d;
}

double seconds(OpKind op, const MeshShape& mesh, const std::vector<int>& axes, double bytes) {
  return collective_seconds(two_levels(), op, mesh, axes, bytes);
}

TEST(CollectiveTime, WithinAHostAllGoesOverTheInnerLevel) {
  const MeshShape mesh{{"data", "model"}, {8, 4}};
  // 2000 * 3/4 / 1000 + 2 * 0.5
  EXPECT_DOUBLE_EQ(seconds(OpKind::kAllGather, mesh, {1}, 2000), 2.5);
  EXPECT_DOUBLE_EQ(seconds(OpKind::kReduceScatter, mesh, {1}, 2000), 2.5);
  EXPECT_DOUBLE_EQ(seconds(OpKind::kAllReduce, mesh, {1}, 2000), 5);
  // 2000 * 3/4 / 1000 + 0.5
  EXPECT_DOUBLE_EQ(seconds(OpKind::kAllToAll, mesh, {1}, 2000), 2);
  EXPECT_DOUBLE_EQ(seconds(OpKind::kPermute, mesh, {1}, 2000), 2.5);
}

TEST(CollectiveTime, AGroupWithOneMemberAHostUsesTheOuterLevelAlone) {
  const MeshShape mesh{{"data", "model"}, {8, 4}};
  // 400 * 7/8 / 50 + 3 * 2
  EXPECT_DOUBLE_EQ(seconds(OpKind::kAllGather, mesh, {0}, 400), 13);
  EXPECT_DOUBLE_EQ(seconds(OpKind::kAllToAll, mesh, {0}, 400), 9);
  EXPECT_DOUBLE_EQ(seconds(OpKind::kPermute, mesh, {0}, 400), 10);
}

TEST(CollectiveTime, TheOuterLevelCarriesWhatTheInnerOneSplits) {
  const MeshShape mesh{{"data"}, {32}};
  // Inner: 4000 * 3/4 / 1000 + 2 * 0.5 = 4. Outer: 1000 * 7/8 / 50 + 3 * 2 = 23.5.
  EXPECT_DOUBLE_EQ(seconds(OpKind::kAllGather, mesh, {0}, 4000), 27.5);
  EXPECT_DOUBLE_EQ(seconds(OpKind::kAllReduce, mesh, {0}, 4000), 55);
  // Of 31 parts 3 stay on the host: 4000 * 3/32 / 1000 + 0.5, and 4000 * 28/32 / 50 + 2.
  EXPECT_DOUBLE_EQ(seconds(OpKind::kAllToAll, mesh, {0}, 4000), 0.875 + 72);
  EXPECT_DOUBLE_EQ(seconds(OpKind::kPermute, mesh, {0}, 4000), 82);
  // Two members a host: 400 * 1/2 / 1000 + 0.5, 200 * 7/8 / 50 + 6.
  EXPECT_DOUBLE_EQ(seconds(OpKind::kAllGather, {{"data", "model"}, {16, 2}}, {0}, 400), 0.7 + 9.5);
  // Both axes are one group of all.
  EXPECT_DOUBLE_EQ(seconds(OpKind::kAllGather, {{"data", "model"}, {16, 2}}, {0, 1}, 4000), 27.5);
}

TEST(CollectiveTime, GroupsWithinAnAxisAreAsLargeAsTheyAre) {
  const MeshShape mesh{{"data"}, {32}};
  const auto in_pairs = [&](int64_t apart) {
    std::vector<int64_t> groups;
    for (int64_t i = 0; i < 32; ++i)
      if (i / apart % 2 == 0) groups.insert(groups.end(), {i, i + apart});
    return collective_seconds(two_levels(), OpKind::kAllGather, mesh, std::vector{0}, 400, groups,
                              16);
  };
  EXPECT_DOUBLE_EQ(in_pairs(1), 400.0 / 2 / 1000 + 0.5);  // neighbours, on one host
  EXPECT_DOUBLE_EQ(in_pairs(4), 400.0 / 2 / 50 + 2);      // on two hosts
}

TEST(CollectiveTime, GroupsOfOneTakeNoTime) {
  EXPECT_EQ(seconds(OpKind::kAllGather, {{"data", "model"}, {8, 1}}, {1}, 400), 0);
  EXPECT_EQ(seconds(OpKind::kAllReduce, {{"data"}, {8}}, {}, 400), 0);
  EXPECT_EQ(collective_seconds(testing::round_device(), OpKind::kAllReduce, {{"data"}, {1}},
                               std::vector<int>{0}, 400),
            0);
}

TEST(CollectiveTime, TheSlowestGroupCountsWhereHostsAreNotFilledAlike) {
  // 6 devices: hosts hold 4 and 2 of them.
  const auto levels = [](const MeshShape& mesh, const std::vector<int>& axes) {
    std::vector<std::vector<int64_t>> all;
    for (const GroupLevel& l : group_levels(two_levels(), mesh, axes))
      all.push_back({l.parts, l.inside, l.members});
    return all;
  };
  using Levels = std::vector<std::vector<int64_t>>;
  EXPECT_EQ(levels({{"data"}, {6}}, {0}), (Levels{{4, 1, 4}, {2, 2, 6}}));
  // Groups {0,1,2} and {3,4,5}: the second has one device on the first host.
  EXPECT_EQ(levels({{"data", "model"}, {2, 3}}, {1}), (Levels{{3, 1, 3}, {2, 1, 3}}));
  // Groups {0,3}, {1,4}, {2,5}: the first stays on its host, the others do not.
  EXPECT_EQ(levels({{"data", "model"}, {2, 3}}, {0}), (Levels{{2, 1, 2}, {2, 1, 2}}));
  // The closed form of even meshes agrees with counting, and so do blocks that no axis ends at.
  EXPECT_EQ(levels({{"data", "model"}, {4, 8}}, {1}), (Levels{{4, 1, 4}, {2, 4, 8}}));
  EXPECT_EQ(levels({{"data", "model"}, {4, 8}}, {0}), (Levels{{1, 1, 1}, {4, 1, 4}}));
  EXPECT_EQ(levels({{"replica", "data", "model"}, {2, 4, 2}}, {0, 2}),
            (Levels{{2, 1, 2}, {2, 2, 4}}));
}

TEST(CollectiveTime, AMissingLevelIsNamed) {
  const MeshShape mesh{{"data"}, {64}};
  EXPECT_EQ(seconds(OpKind::kAllGather, mesh, {0}, 1), INFINITY);
  EXPECT_EQ(
      check_network(two_levels(), mesh).error(),
      "expected a [[network]] of round that joins the 64 devices of Mesh('data': 64), got levels "
      "of 4 and 32; add a level to the device description");
  EXPECT_EQ(
      check_network(testing::round_device(), {{"data"}, {2}}).error(),
      "round has no [[network]]: the time of collectives over Mesh('data': 2) is not known; give "
      "a device description with its levels");
  EXPECT_TRUE(check_network(testing::round_device(), {{"data"}, {1}}));
  EXPECT_TRUE(check_network(two_levels(), {{"data"}, {32}}));
}

// A layer of Llama-3.1-70B: 855.6e6 weights gathered twice in bf16 and reduced in f32 over data.
TEST(CollectiveTime, A70BLayerOver1024H200) {
  const DeviceDescription h200 = *load_device_description("h200");
  const double weights = 855.6e6;
  const auto fsdp_ms = [&](int64_t model) {
    const MeshShape mesh{{"data", "model"}, {1024 / model, model}};
    const std::vector<int> data = {0};
    const double bytes = weights / static_cast<double>(model);
    return 1e3 * (2 * collective_seconds(h200, OpKind::kAllGather, mesh, data, 2 * bytes) +
                  collective_seconds(h200, OpKind::kReduceScatter, mesh, data, 4 * bytes));
  };
  EXPECT_NEAR(fsdp_ms(1), 35.32, 0.01);
  EXPECT_NEAR(fsdp_ms(2), 25.81, 0.01);
  EXPECT_NEAR(fsdp_ms(4), 21.04, 0.01);
  EXPECT_NEAR(fsdp_ms(8), 18.66, 0.01);
}

}  // namespace
}  // namespace stow
