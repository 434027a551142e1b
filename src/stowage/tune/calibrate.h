// Calibration: this machine's rates, measured with the kernels that programs run.
// Not a benchmark of those kernels; bench/ sets them beside their peers.
#pragma once

#include <functional>
#include <string>

#include "stowage/base/inside.h"
#include "stowage/runtime/null/device_description.h"

namespace stow {

struct CalibrateOptions {
  int threads = 1;
  std::string folder;     ///< The folder in which the disk is measured; the file in it goes again.
  double budget_s = 0.4;  ///< Time of each measurement: the median of as many as fit, at least 3.
  int64_t work = 1 << 30;  ///< Scale: multiply-adds of the largest product; all else follows.
  std::function<void(const std::string&)> report;  ///< Told what was measured, line by line.
};

/// Measures and describes this machine: products of f32, bf16 and f64 over a few shapes, attention,
/// elementwise and special functions, a triad in memory and in cache, the cost of a kernel that does
/// nothing; memcpy by another thread while products run (the copies of virtual devices) and what
/// that costs the products; the same for transfers of a disk memory in `folder`.
/// Errors: the folder cannot be written, with path and reason.
Result<DeviceDescription> calibrate(const CalibrateOptions& options);

/// The rates that the disk memory of programs reaches in a folder.
struct DiskRates {
  double read = 0, write = 0;  ///< Bytes a second.
  double latency_s = 0;        ///< Time of a transfer beside that.
  double slows_compute = 0;    ///< Share of its speed that computing loses meanwhile.
  bool direct = false;         ///< Past the page cache.
};
/// Writes and reads `bytes` in a file of the folder, one transfer after another, large ones and small
/// ones. `compute` takes the seconds that it returns; it is run alone and beside transfers.
/// Errors: the folder's, with path and reason.
Result<DiskRates> measure_disk(const std::string& folder, int64_t bytes,
                               const std::function<double()>& compute = {});

}  // namespace stow
