// Device descriptions: those in the program, the file's form, and its errors.
#include "stowage/runtime/null/device_description.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "stowage/io/files.h"
#include "stowage/runtime/null/built_in_devices.h"
#include "stowage/tune/devices.h"
#include "tests/support/schedule_kit.h"
#include "tests/support/temporary_folder.h"

namespace stow {
namespace {

std::string full_text() {
  DeviceDescription d = testing::round_device();
  d.memory.device = 1 << 30;
  d.memory.cache = 4096;
  d.memory.cache_bandwidth = 3.5e12;
  d.link.slows_compute = 0.25;
  d.network = {{8, 4.5e11, 2e-6, 0.75}, {64, 5e10, 1e-5, 0.5}};
  return device_description_toml(d);
}

TEST(DeviceDescription, WhatIsWrittenReadsBackTheSame) {
  const std::string text = full_text();
  const Result<DeviceDescription> d = parse_device_description(text, "x.toml");
  ASSERT_TRUE(d) << d.error();
  EXPECT_EQ(device_description_toml(*d), text);
  EXPECT_EQ(d->name, "round");
  EXPECT_EQ(d->memory.device, 1 << 30);
  EXPECT_EQ(d->memory.cache_bandwidth, 3.5e12);
  EXPECT_EQ(d->link.slows_compute, 0.25);
  EXPECT_EQ(d->disk.slows_compute, 0);
  ASSERT_EQ(d->network.size(), 2u);
  EXPECT_EQ(d->network[0].devices, 8);
  EXPECT_EQ(d->network[0].bandwidth, 4.5e11);
  EXPECT_EQ(d->network[0].latency_s, 2e-6);
  EXPECT_EQ(d->network[0].achievable, 0.75);
  EXPECT_EQ(d->network[1].devices, 64);
  EXPECT_EQ(d->network[1].bandwidth, 5e10);
}

// Puts `line` in place of the one that begins with `start`; the error.
std::string error_with(const std::string& start, const std::string& line) {
  std::string text = full_text();
  const size_t at = text.find("\n" + start) + 1;
  EXPECT_NE(at, 0u) << start;
  text.replace(at, text.find('\n', at) - at, line);
  const Result<DeviceDescription> d = parse_device_description(text, "x.toml");
  return d ? "" : d.error();
}

TEST(DeviceDescription, ErrorsNameLineKeyAndWhatItTakes) {
  EXPECT_EQ(error_with("f32_flops", "f32_flop = 1"),
            "x.toml:4: unknown key 'compute.f32_flop'; did you mean 'compute.f32_flops'?");
  EXPECT_EQ(error_with("f32_flops", "f32_flops = -1.5"),
            "x.toml:4: compute.f32_flops takes a rate a second, at least 1, not -1.5");
  // Times are finite.
  EXPECT_EQ(error_with("f32_flops", "f32_flops = 1e-308"),
            "x.toml:4: compute.f32_flops takes a rate a second, at least 1, not 1e-308");
  EXPECT_EQ(error_with("achievable", "achievable = 1e-308"),
            "x.toml:8: compute.achievable takes a share, from 1e-6 to 1, not 1e-308");
  EXPECT_EQ(error_with("f32_flops", "f32_flops = nan"),
            "x.toml:4: compute.f32_flops takes a rate a second, at least 1, not nan");
  EXPECT_EQ(error_with("f32_flops", "f32_flops = inf"),
            "x.toml:4: compute.f32_flops takes a rate a second, at least 1, not inf");
  EXPECT_EQ(error_with("f32_flops", "f32_flops = \"fast\""),
            "x.toml:4: compute.f32_flops takes a rate a second, at least 1, not 'fast'");
  EXPECT_EQ(error_with("f32_flops", "f32_flops = [1]"),
            "x.toml:4: compute.f32_flops takes a rate a second, at least 1, not a value of "
            "this kind");
  EXPECT_EQ(error_with("f32_as", "f32_as = \"fp8\""),
            "x.toml:5: compute.f32_as takes \"f32\" or \"tf32\", not 'fp8'");
  EXPECT_EQ(error_with("achievable", "achievable = 1.01"),
            "x.toml:8: compute.achievable takes a share, from 1e-6 to 1, not 1.01");
  EXPECT_EQ(error_with("launch_s", "launch_s = true"),
            "x.toml:12: compute.launch_s takes seconds, from 0 to 1, not true");
  EXPECT_EQ(error_with("device", "device = \"12 parsecs\""),
            "x.toml:19: memory.device takes a size such as \"141GB\" or a number of bytes, not '12 "
            "parsecs'");
  EXPECT_EQ(error_with("device", "device = -1"),
            "x.toml:19: memory.device takes a size such as \"141GB\" or a number of bytes, not -1");
  EXPECT_EQ(error_with("f32_flops", "f32_flops = "), error_with("f32_flops", "f32_flops ="));
  EXPECT_TRUE(error_with("f32_flops", "f32_flops =").starts_with("x.toml:4: ")) << "syntax";
  EXPECT_EQ(error_with("launch_s", ""), "x.toml: compute.launch_s is missing");
  EXPECT_EQ(parse_device_description("compute = 3", "x.toml").error(),
            "x.toml:1: 'compute' is a section of keys, not a key");
}

// The description without its network, with `levels` at its end; the error.
std::string network_error(const std::string& levels) {
  DeviceDescription d = testing::round_device();
  d.memory.device = 1 << 30;
  const Result<DeviceDescription> read =
      parse_device_description(device_description_toml(d) + levels, "x.toml");
  return read ? "" : read.error();
}

TEST(DeviceDescription, LevelsOfANetworkNest) {
  const std::string inner =
      "[[network]]\ndevices = 8\nbandwidth = 1e9\nlatency_s = 0\nachievable = 1\n";
  EXPECT_EQ(network_error(inner), "");
  EXPECT_EQ(
      parse_device_description("network = [{devices = 8}, 3]", "x.toml").error(),
      "x.toml:1: expected levels of a network, each under [[network]], got network = a value of "
      "this kind");
  EXPECT_EQ(network_error("[network]\n"), "x.toml:30: expected levels of a network, each under "
                                          "[[network]], got network = a value of this kind");
  EXPECT_EQ(network_error("[network]\ndevices = 8\n"),
            "x.toml:31: expected levels of a network, each under [[network]], got network.devices");
  EXPECT_EQ(network_error(inner + "[[network]]\ndevices = 12\nbandwidth = 1e9\nlatency_s = 0\n"
                                  "achievable = 1\n"),
            "x.toml:35: network.devices takes a multiple of the 8 of the level above it, which is "
            "inside, not 12");
  EXPECT_EQ(network_error(inner + inner),
            "x.toml:35: network.devices takes a multiple of the 8 of the level above it, which is "
            "inside, not 8");
  EXPECT_EQ(network_error(inner + "[[network]]\n"), "x.toml:35: network.devices is missing");
  EXPECT_EQ(network_error("[[network]]\ndevices = 8\nbandwith = 1e9\n"),
            "x.toml:32: unknown key 'network.bandwith'; did you mean 'network.bandwidth'?");
  EXPECT_EQ(network_error("[[network]]\ndevices = 1\n"),
            "x.toml:31: network.devices takes a number of devices, from 2 to 1048576, not 1");
  EXPECT_EQ(network_error("[[network]]\ndevices = 2.5\n"),
            "x.toml:31: network.devices takes a number of devices, from 2 to 1048576, not 2.5");
  EXPECT_EQ(network_error("[[network]]\nachievable = 0\n"),
            "x.toml:31: network.achievable takes a share, from 1e-6 to 1, not 0");
}

TEST(DeviceDescription, ThoseInTheProgramAreWhole) {
  const std::vector<std::string> names = device_names();
  EXPECT_EQ(names, (std::vector<std::string>{"a100", "cpu", "h200", "rtx4080-laptop"}));
  for (const std::string& name : names) {
    const Result<DeviceDescription> d = load_device_description(name);
    ASSERT_TRUE(d) << d.error();
    const bool is_cpu = name == "cpu";
    EXPECT_EQ(d->compute.f32_as, is_cpu ? "f32" : "tf32");
    EXPECT_GT(d->compute.f32_flops, d->compute.f64_flops);
    EXPECT_GT(d->compute.vector_flops, d->compute.special_flops);
    EXPECT_GT(d->memory.bandwidth, d->link.to_device);
    EXPECT_GT(d->link.to_device, d->disk.read);
    if (is_cpu) {  // It computes bf16 in f32, and its device memory is the host's.
      EXPECT_GE(d->compute.bf16_flops, d->compute.f32_flops);
      EXPECT_GE(d->memory.pinned_host, d->memory.device);
    } else {
      EXPECT_GT(d->compute.bf16_flops, d->compute.f32_flops);
      EXPECT_GT(d->memory.pinned_host, d->memory.device);
    }
  }
  EXPECT_EQ(load_device_description("h200")->network.size(), 2u);
  EXPECT_EQ(load_device_description("a100")->network.size(), 2u);
  EXPECT_TRUE(load_device_description("rtx4080-laptop")->network.empty());
  EXPECT_EQ(device_description_toml(*load_device_description("cpu")),
            device_description_toml(*common_cpu()));
  EXPECT_EQ(
      load_device_description("h20").error(),
      "no device 'h20'; did you mean 'h200'? There are a100, cpu, h200, rtx4080-laptop, or give a "
      "file: mine.toml");
}

TEST(DeviceDescription, FilesAndTheCache) {
  TemporaryFolder folder;
  EXPECT_EQ(load_device_description(folder / "none.toml").error(),
            (folder / "none.toml") + ": No such file or directory");
  write_bytes(folder / "mine.toml", full_text());
  EXPECT_EQ(load_device_description(folder / "mine.toml")->name, "round");

  const char* before = std::getenv("XDG_CACHE_HOME");
  const std::string restore = before ? before : "";
  ::setenv("XDG_CACHE_HOME", folder.path().c_str(), 1);
  EXPECT_EQ(calibrated_path(), folder / "stowage/device.toml");
  EXPECT_FALSE(calibrated_description(2)->has_value());
  ASSERT_TRUE(ensure_directory(folder / "stowage"));
  // What another machine left there is none of this one's.
  write_bytes(calibrated_path(), full_text());
  EXPECT_FALSE(calibrated_description(2)->has_value());
  DeviceDescription mine = testing::round_device();
  mine.name = machine_name(2);
  write_bytes(calibrated_path(), device_description_toml(mine));
  ASSERT_TRUE(calibrated_description(2)->has_value());
  EXPECT_FALSE(calibrated_description(3)->has_value());
  write_bytes(calibrated_path(), "name = 3");
  EXPECT_EQ(calibrated_description(2).error(),
            calibrated_path() + ":1: name takes a text on one line, without quotes, not 3; "
                                "./stowage calibrate writes it anew");
  if (before)
    ::setenv("XDG_CACHE_HOME", restore.c_str(), 1);
  else
    ::unsetenv("XDG_CACHE_HOME");
}

}  // namespace
}  // namespace stow
