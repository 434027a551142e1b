#include "stowage/tune/calibrate.h"

#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <thread>
#include <vector>

#include "stowage/base/bytes.h"
#include "stowage/base/median.h"
#include "stowage/ops/build.h"
#include "stowage/runtime/device.h"
#include "stowage/session/compile.h"
#include "stowage/tune/devices.h"
#include "stowage/tune/run_trace.h"

namespace stow {
namespace {

// Operations a chain does to each element: enough that memory is not what it waits for.
constexpr int kChain = 16;
constexpr int64_t kCopyBlockBytes = 8 << 20;

// A program on arguments of small positive numbers, run again and again.
class Probe {
 public:
  using Body = std::function<std::vector<Val>(const std::vector<Val>&)>;
  // In place: the result lies where the first argument did, and is the next run's; no run waits for
  // fresh pages then.
  Probe(const std::vector<ArrayType>& types, const Body& body, int threads, bool in_place = false)
      : device_(Device::cpu()), in_place_(in_place) {
    Graph graph;
    GraphBuilder builder(graph);
    std::vector<Val> inputs;
    for (const ArrayType& type : types) inputs.emplace_back(builder, graph.add_input(type));
    std::vector<ValueId> outputs;
    for (const Val& v : body(inputs)) outputs.push_back(v.id());
    graph.set_outputs(outputs);
    CompileOptions options;
    options.donated.assign(types.size(), false);
    options.donated[0] = in_place;
    program_ = compile(graph, options, threads);
    for (const ArrayType& type : types) {
      arguments_.push_back(device_->allocate(type.bytes()));
      fill(type.dtype, *arguments_.back());
    }
    run();
  }

  void run(RunObserver* observer = nullptr) {
    results_.clear();
    results_ = program_->run(*device_, arguments_, observer);
    if (in_place_) arguments_[0] = results_[0];
  }

  // Seconds of the program's kernels in one run, the median of as many as the time allows.
  double kernel_seconds(double budget_s) {
    std::vector<double> seconds;
    const double begin = steady_seconds();
    do {
      RunRecorder recorder;
      run(&recorder);
      double sum = 0;
      for (const RunEvent& event : recorder.take()) sum += event.end_s - event.begin_s;
      seconds.push_back(sum);
    } while (seconds.size() < 3 || steady_seconds() - begin < budget_s);
    return median(seconds);
  }

  // The same of the whole run, and without an observer.
  double run_seconds(double budget_s) {
    std::vector<double> seconds;
    const double begin = steady_seconds();
    do {
      const double at = steady_seconds();
      run();
      seconds.push_back(steady_seconds() - at);
    } while (seconds.size() < 3 || steady_seconds() - begin < budget_s);
    return median(seconds);
  }

 private:
  static void fill(DType dtype, const DeviceBuffer& buffer) {
    const int64_t width = dtype_bytes(dtype);
    for (int64_t i = 0; i * width < buffer.bytes(); ++i) {
      const double value = 0.25 + static_cast<double>(i % 61) / 128;
      std::byte* at = buffer.data() + i * width;
      if (dtype == DType::kF64) {
        std::memcpy(at, &value, 8);
      } else {
        // The upper half of an f32 is a bf16.
        const auto f = static_cast<float>(value);
        uint32_t bits;
        std::memcpy(&bits, &f, 4);
        if (dtype == DType::kBF16) bits >>= 16;
        std::memcpy(at, &bits, static_cast<size_t>(width));
      }
    }
  }

  DevicePtr device_;
  const bool in_place_;
  ExecutablePtr program_;
  std::vector<DeviceBufferPtr> arguments_, results_;
};

class Calibration {
 public:
  explicit Calibration(const CalibrateOptions& options) : o_(options) {}

  Result<DeviceDescription> run() {
    if (Result<void> usable = check_folder(); !usable) return usable.failure();
    d_.name = machine_name(o_.threads);
    const auto launch = [&](int n) { return chain_of_products(n).run_seconds(o_.budget_s); };
    d_.compute.launch_s = std::clamp((launch(160) - launch(32)) / 128, 1e-9, 1.0);
    say("a kernel that does nothing", "{}", format_seconds(d_.compute.launch_s));
    products();
    attention();
    elementwise();
    memory();
    copies();
    if (Result<void> done = disk(); !done) return done.failure();
    return d_;
  }

 private:
  template <typename... Args>
  void say(const std::string& what, fmt::format_string<Args...> format, Args&&... args) {
    if (o_.report)
      o_.report(fmt::format("{:<34} {}", what, fmt::format(format, std::forward<Args>(args)...)));
  }

  static std::string rate(double per_second, const char* unit) {
    return fmt::format("{:.{}f} G{}/s", 1e-9 * per_second, per_second < 1e10 ? 2 : 1, unit);
  }

  Probe chain_of_products(int n) const {
    const ArrayType t{DType::kF32, Shape{4, 4}};
    return Probe(
        {t, t},
        [&](const std::vector<Val>& in) {
          Val x = in[0];
          for (int i = 0; i < n; ++i) x = matmul(x, in[1]);
          return std::vector<Val>{x};
        },
        o_.threads);
  }

  // Less the launches, which are counted by themselves.
  double work_seconds(Probe probe, int kernels = 1) const {
    const double seconds = probe.kernel_seconds(o_.budget_s);
    return std::max(seconds - kernels * d_.compute.launch_s, 0.01 * seconds);
  }

  // One after another, to and fro, so that fresh pages count for little, as in a step.
  static constexpr int kProducts = 8;
  Probe product(DType dtype, int64_t m, int64_t n, int64_t k) const {
    return Probe(
        {{dtype, Shape{m, k}}, {dtype, Shape{k, n}}, {dtype, Shape{n, k}}},
        [](const std::vector<Val>& in) {
          Val x = in[0];
          for (int i = 0; i < kProducts; ++i) x = matmul(x, in[1 + i % 2]);
          return std::vector<Val>{x};
        },
        o_.threads);
  }
  // The side of the largest product, a cube.
  int64_t side() const { return static_cast<int64_t>(std::cbrt(static_cast<double>(o_.work))); }
  Probe large_product() const { return product(DType::kF32, side(), side(), side()); }
  double product_rate(DType dtype, int64_t m, int64_t n, int64_t k) const {
    return kProducts * 2.0 * static_cast<double>(m * n * k) /
           work_seconds(product(dtype, m, n, k), kProducts);
  }

  void products() {
    const int64_t side = this->side();
    const int64_t shapes[][3] = {
        {side, side, side}, {4 * side, side / 2, side / 2}, {2 * side, 2 * side, side / 4}};
    std::vector<double> rates;
    for (const auto& [m, n, k] : shapes) {
      rates.push_back(product_rate(DType::kF32, m, n, k));
      say(fmt::format("f32 product {} x {} x {}", m, n, k), "{}", rate(rates.back(), "FLOP"));
    }
    d_.compute.f32_flops = *std::max_element(rates.begin(), rates.end());
    d_.compute.achievable = median(rates) / d_.compute.f32_flops;
    for (const DType dtype : {DType::kBF16, DType::kF64}) {
      const double r = product_rate(dtype, side, side, side);
      (dtype == DType::kF64 ? d_.compute.f64_flops : d_.compute.bf16_flops) = r;
      say(fmt::format("{} product {} x {} x {}", dtype_name(dtype), side, side, side), "{}",
          rate(r, "FLOP"));
    }
  }

  void attention() {
    const int64_t t = std::max<int64_t>(64, o_.work >> 21), heads = 8, width = 64;
    const ArrayType q{DType::kF32, Shape{1, t, heads, width}};
    AttentionParams params;
    params.scale = 0.125f;
    params.causal = true;
    const double seconds = work_seconds(Probe(
        {q, q, q},
        [&](const std::vector<Val>& in) {
          GraphBuilder& b = in[0].builder();
          const std::vector<Val> out = b.add(OpKind::kAttention, params, in);
          return b.add(OpKind::kAttentionGrad, params,
                       std::vector<Val>{in[0], in[1], in[2], out[0], out[1], out[0]});
        },
        o_.threads));
    // Forward two products of half the scores, backward five.
    const double flops = 3.5 * 2.0 * static_cast<double>(heads * width * t * t);
    say(fmt::format("attention of {} positions", t), "{}", rate(flops / seconds, "FLOP"));
    d_.compute.attention_achievable = std::min(1.0, flops / seconds / d_.compute.f32_flops);
  }

  void elementwise() {
    const int64_t n = cache_bytes() / 32;
    const ArrayType t{DType::kF32, Shape{n}};
    const auto chain = [&](const std::function<Val(const Val&, const std::vector<Val>&)>& link) {
      return work_seconds(Probe(
                 {t, t, t},
                 [&](const std::vector<Val>& in) {
                   Val x = in[0];
                   for (int i = 0; i < kChain; ++i) x = link(x, in);
                   return std::vector<Val>{x};
                 },
                 o_.threads)) /
             static_cast<double>(kChain * n);
    };
    const double two = chain([](const Val& x, const auto& in) { return x * in[1] + in[2]; });
    d_.compute.vector_flops = 2 / two;
    const double special =
        chain([](const Val& x, const auto& in) { return in[1] / logistic(sqrt(x)); });
    d_.compute.special_flops = 3 / special;
    say("multiply and add", "{}", rate(d_.compute.vector_flops, "op"));
    say("division, root, logistic", "{}", rate(d_.compute.special_flops, "op"));
  }

  double triad_rate(int64_t n) const {
    const ArrayType t{DType::kF32, Shape{n}};
    const double seconds = work_seconds(Probe(
        {t, t}, [](const std::vector<Val>& in) { return std::vector<Val>{in[0] + in[1] * 3.0}; },
        o_.threads, true));
    return 12.0 * static_cast<double>(n) / seconds;
  }

  int64_t cache_bytes() const {
    const long level2 = ::sysconf(_SC_LEVEL2_CACHE_SIZE);
    return (level2 > 0 ? level2 : 1 << 20) * o_.threads;
  }

  void memory() {
    d_.memory.cache = cache_bytes();
    d_.memory.bandwidth = triad_rate(std::max(o_.work >> 6, 8 * d_.memory.cache / 12));
    d_.memory.cache_bandwidth = std::max(triad_rate(d_.memory.cache / 24), d_.memory.bandwidth);
    say("triad in memory", "{}", rate(d_.memory.bandwidth, "B"));
    say(fmt::format("triad in {} of cache", format_bytes(d_.memory.cache)), "{}",
        rate(d_.memory.cache_bandwidth, "B"));
    d_.memory.device = Device::cpu()->capacity_bytes(MemoryKind::kDevice);
    d_.memory.pinned_host = Device::cpu()->capacity_bytes(MemoryKind::kPinnedHost);
  }

  // Copies of another thread while this one computes, as a virtual device's stream makes them.
  void copies() {
    Probe compute = large_product();
    const double alone = compute.kernel_seconds(o_.budget_s);
    std::vector<char> from(static_cast<size_t>(4 * kCopyBlockBytes), 1), to(from.size());
    std::atomic<bool> ends = false;
    std::vector<double> rates;
    std::thread copier([&] {
      for (size_t block = 0; !ends || rates.empty(); block = (block + 1) % 4) {
        const size_t at = block * static_cast<size_t>(kCopyBlockBytes);
        const double begin = steady_seconds();
        std::memcpy(to.data() + at, from.data() + at, static_cast<size_t>(kCopyBlockBytes));
        rates.push_back(static_cast<double>(kCopyBlockBytes) / (steady_seconds() - begin));
      }
    });
    const double beside = compute.kernel_seconds(o_.budget_s);
    ends = true;
    copier.join();
    d_.link.to_device = d_.link.to_host = median(rates);
    d_.link.slows_compute = std::clamp(1 - alone / beside, 0.0, 0.9);
    d_.link.latency_s = hand_over_seconds();
    say("copy beside products", "{}, which makes them {:.0f} % slower", rate(d_.link.to_host, "B"),
        100 * std::max(beside / alone - 1, 0.0));
    say("handing a copy over", "{}", format_seconds(d_.link.latency_s));
  }

  // From one thread's notice to another's waking.
  static double hand_over_seconds() {
    std::mutex mutex;
    std::condition_variable changed;
    int turn = 0;
    constexpr int kTurns = 200;
    const auto play = [&](int mine) {
      std::unique_lock lock(mutex);
      while (turn < kTurns) {
        changed.wait(lock, [&] { return turn % 2 == mine || turn >= kTurns; });
        ++turn;
        changed.notify_one();
      }
    };
    const double begin = steady_seconds();
    std::thread other(play, 1);
    play(0);
    other.join();
    return std::min((steady_seconds() - begin) / kTurns, 1.0);
  }

  // Better said before all else is measured than after.
  Result<void> check_folder() const try {
    const Disk disk({.folder = o_.folder, .uring = false, .direct = false});
    return {};
  } catch (const CapacityError& error) {
    return fail("{}", error.what());
  }

  Result<void> disk() {
    Probe compute = large_product();
    const Result<DiskRates> rates = measure_disk(
        o_.folder, o_.work >> 2, [&] { return compute.kernel_seconds(o_.budget_s); });
    if (!rates) return rates.failure();
    d_.disk.read = rates->read;
    d_.disk.write = rates->write;
    d_.disk.latency_s = rates->latency_s;
    d_.disk.slows_compute = rates->slows_compute;
    const char* how = rates->direct ? "" : " (not past the page cache: the file system refuses)";
    say("disk, reading", "{}{}", rate(d_.disk.read, "B"), how);
    say("disk, writing", "{}", rate(d_.disk.write, "B"));
    say("disk, latency of each", "{}", format_seconds(d_.disk.latency_s));
    say("disk beside products", "makes them {:.0f} % slower",
        100 * (1 / (1 - d_.disk.slows_compute) - 1));
    struct statvfs space {};
    if (::statvfs(o_.folder.c_str(), &space) != 0) return fail("{}: no space known", o_.folder);
    d_.memory.disk = static_cast<int64_t>(space.f_bavail) * static_cast<int64_t>(space.f_frsize);
    return {};
  }

  const CalibrateOptions& o_;
  DeviceDescription d_;
};

}  // namespace

Result<DeviceDescription> calibrate(const CalibrateOptions& options) {
  return Calibration(options).run();
}

}  // namespace stow
