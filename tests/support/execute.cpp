#include "tests/support/execute.h"

#include <set>

#include "stowage/runtime/streams.h"
#include "stowage/runtime/target.h"
#include "tests/support/check_lives.h"

namespace stow::testing {
namespace {

Bytes bytes_of(const DeviceBuffer& buffer) {
  Bytes bytes(static_cast<size_t>(buffer.bytes()));
  buffer.read(0, bytes);
  return bytes;
}

class Runner {
 public:
  Runner(const Executable& program, const CompileOptions& options, const std::vector<Bytes>& inputs)
      : program_(program), options_(options), inputs_(inputs) {}

  Execution run(const TargetPtr& target) {
    Execution e;
    e.aliases = program_.output_aliases();
    e.analysis = program_.memory_analysis();
    if (const std::string fault = check_lives(program_.schedule()); !fault.empty())
      fail("{}", fault);
    Device::Capacities capacities{};
    for (size_t kind = 0; kind < capacities.size(); ++kind) {
      check_analysis(e.analysis.kinds[kind]);
      capacities[kind] = e.analysis.kinds[kind].total_bytes;
    }
    const auto device = std::make_shared<Device>("virtual", capacities, target);
    for (int repeat = 0; repeat < 2 && fault_.empty(); ++repeat) {
      std::vector<Bytes> outputs = run_once(*device, repeat > 0);
      if (repeat > 0 && outputs != e.outputs)
        fail("a second run, on dirty memory, gives other bits");
      e.outputs = std::move(outputs);
    }
    e.fault = fault_;
    return e;
  }

 private:
  template <typename... Args>
  void fail(fmt::format_string<Args...> format, Args&&... args) {
    fault_ += fmt::format(format, std::forward<Args>(args)...) + "\n";
  }

  bool donated(size_t i) const { return i < options_.donated.size() && options_.donated[i]; }

  void check_analysis(const KindAnalysis& k) {
    if (k.total_bytes != k.argument_bytes + k.output_bytes - k.alias_bytes + k.temp_bytes)
      fail("total {} is not argument {} + output {} - alias {} + temp {}", k.total_bytes,
           k.argument_bytes, k.output_bytes, k.alias_bytes, k.temp_bytes);
    if (k.temp_bytes < 0) fail("temp bytes are negative");
    if (k.lower_bound_bytes > k.total_bytes)
      fail("the bound {} is above the peak {}", k.lower_bound_bytes, k.total_bytes);
  }

  // As late as can be; or what comes in at once and what goes out late, which shows memory that is
  // written again too soon; in the second run at once or beside.
  void set_timing(Streams& streams, bool dirty) const {
    const bool even = inputs_.size() % 2 == 0;
    streams.set_timing(dirty ? even ? StreamTiming::kAtStart : StreamTiming::kConcurrent
                             : StreamTiming::kAtWait);
    if (dirty || even) return;
    for (const StreamKind in : {StreamKind::kCopyIn, StreamKind::kDiskRead})
      streams.stream(in).set_timing(StreamTiming::kAtStart);
  }

  std::vector<Bytes> run_once(Device& device, bool dirty) {
    // The arena of the run before goes: what comes is measured from nothing. A dirty one holds
    // NaNs, so that a byte that is read before it is written shows.
    device.drop_arenas();
    set_timing(device.streams(), dirty);
    for (int kind = 0; kind < kNumMemoryKinds; ++kind) {
      const int64_t bytes = program_.memory_analysis().kinds[static_cast<size_t>(kind)].arena_bytes;
      if (dirty && bytes > 0)
        device.borrow_arena(bytes, static_cast<MemoryKind>(kind))
            ->write(0, Bytes(static_cast<size_t>(bytes), std::byte{0xff}));
    }
    std::vector<DeviceBufferPtr> arguments, results;
    std::vector<Bytes> outputs;
    device.reset_high_water();
    try {
      for (size_t i = 0; i < inputs_.size(); ++i) {
        const Bytes& input = inputs_[i];
        arguments.push_back(
            device.allocate(static_cast<int64_t>(input.size()), program_.input_types()[i].kind));
        arguments.back()->write(0, input);
      }
      results = program_.run(device, arguments);
    } catch (const std::exception& error) {
      fail("the run failed: {}", error.what());
      return outputs;
    }
    for (int i = 0; i < kNumMemoryKinds; ++i) {
      const auto kind = static_cast<MemoryKind>(i);
      const int64_t measured = device.high_water_bytes(kind);
      const int64_t predicted =
          program_.memory_analysis().kinds[static_cast<size_t>(i)].total_bytes;
      if (measured != predicted)
        fail("measured {} bytes of {}, predicted {}", measured, memory_kind_name(kind), predicted);
    }
    device.drop_arenas();
    for (size_t i = 0; i < arguments.size(); ++i)
      if (!donated(i) && bytes_of(*arguments[i]) != inputs_[i])
        fail("argument {} was not donated and is overwritten", i);
    check_results(device, arguments, results);
    for (const DeviceBufferPtr& result : results) outputs.push_back(bytes_of(*result));
    return outputs;
  }

  void check_results(Device& device, const std::vector<DeviceBufferPtr>& arguments,
                     const std::vector<DeviceBufferPtr>& results) {
    if (results.size() != program_.output_types().size())
      return fail("{} results instead of {}", results.size(), program_.output_types().size());
    std::set<const DeviceBuffer*> held;
    std::array<int64_t, kNumMemoryKinds> held_bytes{}, alias_bytes{};
    const auto hold = [&](const DeviceBufferPtr& buffer) {
      const bool first = held.insert(buffer.get()).second;
      if (first) held_bytes[static_cast<size_t>(buffer->kind())] += buffer->bytes();
      return first;
    };
    for (const DeviceBufferPtr& argument : arguments) hold(argument);
    for (size_t o = 0; o < results.size(); ++o) {
      if (results[o]->bytes() != program_.output_types()[o].bytes())
        fail("result {} has {} bytes, its type {}", o, results[o]->bytes(),
             program_.output_types()[o].bytes());
      const int alias = program_.output_aliases()[o];
      if (!hold(results[o]) && alias < 0) fail("result {} shares memory unsaid", o);
      if (alias < 0) continue;
      alias_bytes[static_cast<size_t>(results[o]->kind())] += results[o]->bytes();
      if (!donated(static_cast<size_t>(alias)))
        fail("result {} lies in argument {}, which was not donated", o, alias);
      if (results[o] != arguments[static_cast<size_t>(alias)])
        fail("result {} does not lie in argument {}", o, alias);
    }
    for (size_t kind = 0; kind < held_bytes.size(); ++kind) {
      if (alias_bytes[kind] != program_.memory_analysis().kinds[kind].alias_bytes)
        fail("alias bytes are {}", alias_bytes[kind]);
      const int64_t used = device.in_use_bytes(static_cast<MemoryKind>(kind));
      if (used != held_bytes[kind])
        fail("{} bytes in use after the run, {} are held", used, held_bytes[kind]);
    }
  }

  const Executable& program_;
  const CompileOptions& options_;
  const std::vector<Bytes>& inputs_;
  std::string fault_;
};

}  // namespace

Execution execute(const Graph& graph, const CompileOptions& options,
                  const std::vector<Bytes>& inputs, const TargetPtr& target) {
  const ExecutablePtr program = compile(graph, options, target);
  return Runner(*program, options, inputs).run(target);
}

Execution execute(const Graph& graph, const CompileOptions& options,
                  const std::vector<Bytes>& inputs, int threads) {
  return execute(graph, options, inputs, host_target(threads));
}

}  // namespace stow::testing
