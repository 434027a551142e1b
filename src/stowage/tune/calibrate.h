// Calibration: this machine's rates, measured with the kernels that programs run.
// Not a benchmark of those kernels; bench/ compares them with other libraries.
#pragma once

#include <functional>
#include <string>

#include "stowage/base/inside.h"
#include "stowage/runtime/null/device_description.h"

namespace stow {

struct CalibrateOptions {
  int threads = 1;
  std::string folder;     ///< The folder whose disk is measured, with a file that is then removed.
  double budget_s = 0.4;  ///< Time of each measurement: the median of as many runs as fit, >= 3.
  int64_t work = 1 << 30;  ///< Multiply-adds of the largest product; other sizes scale with it.
  std::function<void(const std::string&)> report;  ///< Receives the results, line by line.
};

/// Measures this machine and returns its description: products of f32, bf16 and f64 over a few
/// shapes, attention, elementwise and special functions, a triad in memory and in cache, and the
/// overhead of an empty kernel; memcpy by another thread while products run (the copies of virtual
/// devices) and the slowdown of these products; likewise transfers of a disk memory in `folder`.
/// Errors: "PATH: reason" if the folder cannot be written.
Result<DeviceDescription> calibrate(const CalibrateOptions& options);

/// Transfer rates of a disk memory in a folder.
struct DiskRates {
  double read = 0, write = 0;  ///< Bytes per second.
  double latency_s = 0;        ///< Fixed time of a transfer, besides its bytes.
  double slows_compute = 0;    ///< Share of its speed that compute loses during transfers.
  bool direct = false;         ///< True if transfers bypass the page cache.
};
/// Measures transfers of `bytes` to and from a file in the folder, one after another, large ones
/// and small ones. `compute` runs a computation and returns its time in seconds; it is run alone
/// and during transfers.
/// Errors: "PATH: reason" of the folder.
Result<DiskRates> measure_disk(const std::string& folder, int64_t bytes,
                               const std::function<double()>& compute = {});

}  // namespace stow
