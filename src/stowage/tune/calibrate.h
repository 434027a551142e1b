// Calibration: this machine's rates, measured with the kernels that programs run.
// Not a benchmark of those kernels; bench/ sets them beside their peers.
#pragma once

#include <functional>
#include <string>

#include "stowage/runtime/null/device_description.h"

namespace stow {

struct CalibrateOptions {
  int threads = 1;
  std::string folder;    ///< Where the disk is measured; the file in it goes again.
  double budget_s = 0.4;  ///< Of each measurement, which is the median of what fits in, at least 3.
  int64_t work = 1 << 30;  ///< Scale: multiply-adds of the largest product; all else follows.
  std::function<void(const std::string&)> report;  ///< Told what was measured, line by line.
};

/// Measures and describes this machine: products of f32, bf16 and f64 over a few shapes, attention,
/// elementwise and special functions, a triad in memory and in cache, the cost of a kernel that does
/// nothing; memcpy by another thread while products run (the copies of virtual devices) and what
/// that costs the products; reading and writing a file in `folder` past the page cache where the
/// file system allows it.
/// Errors: the folder cannot be written, with path and reason.
Result<DeviceDescription> calibrate(const CalibrateOptions& options);

/// Bytes a second of a file, and the seconds of one small read.
struct DiskRates {
  double read = 0, write = 0, latency_s = 0;
  bool direct = false;  ///< Past the page cache.
};
/// Writes and reads a file of `bytes` in the folder, a few MiB at a time, one after another.
/// Errors: system_failure.
Result<DiskRates> measure_disk(const std::string& folder, int64_t bytes);

}  // namespace stow
