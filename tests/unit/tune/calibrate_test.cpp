// Calibration on small work: every figure is there, can be written and read, and simulates a step.
#include "stowage/tune/calibrate.h"

#include <gtest/gtest.h>

#include "stowage/runtime/null/simulate.h"
#include "stowage/tune/devices.h"
#include "tests/support/schedule_kit.h"
#include "tests/support/temporary_folder.h"

namespace stow {
namespace {

TEST(Calibrate, DescribesThisMachine) {
  TemporaryFolder folder;
  std::vector<std::string> lines;
  CalibrateOptions options;
  options.threads = 2;
  options.folder = folder.path();
  options.budget_s = 0;
  options.work = 1 << 21;
  options.report = [&](const std::string& line) { lines.push_back(line); };
  const Result<DeviceDescription> d = calibrate(options);
  ASSERT_TRUE(d) << d.error();
  EXPECT_EQ(d->name, machine_name(2));
  EXPECT_EQ(count_entries(folder.path()), 0u);
  EXPECT_GE(lines.size(), 15u);
  // The file's own checks are of every figure: present, positive, a share.
  const std::string toml = device_description_toml(*d);
  const Result<DeviceDescription> read = parse_device_description(toml, "device.toml");
  ASSERT_TRUE(read) << read.error();
  EXPECT_EQ(device_description_toml(*read), toml);
  testing::ScheduleKit k;
  const Simulation s = simulate(k.schedule({k.loop(10, {k.start_in(1000, 0), k.dot(1000),
                                                        k.done_in(1000, 0)})}),
                                *d);
  EXPECT_GT(s.step_s, 0);
  EXPECT_LT(s.step_s, 60);
}

TEST(Calibrate, DiskIsMeasuredInItsFolder) {
  TemporaryFolder folder;
  const Result<DiskRates> rates = measure_disk(folder.path(), 8 << 20);
  ASSERT_TRUE(rates) << rates.error();
  EXPECT_GT(rates->read, 1e5);
  EXPECT_GT(rates->write, 1e5);
  EXPECT_GE(rates->latency_s, 0);
  EXPECT_EQ(rates->slows_compute, 0);  // nothing computed
  EXPECT_EQ(count_entries(folder.path()), 0u);
  EXPECT_EQ(measure_disk(folder / "none", 1).error(),
            "disk folder '" + (folder / "none") +
                "': no file can be made there: No such file or directory");
}

TEST(Calibrate, WhatTheDiskTakesFromComputingIsAShare) {
  TemporaryFolder folder;
  int runs = 0;
  // Half as fast beside the disk.
  const Result<DiskRates> rates =
      measure_disk(folder.path(), 8 << 20, [&] { return ++runs == 1 ? 1.0 : 2.0; });
  ASSERT_TRUE(rates) << rates.error();
  EXPECT_EQ(runs, 2);
  EXPECT_EQ(rates->slows_compute, 0.5);
}

}  // namespace
}  // namespace stow
