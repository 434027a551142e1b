#include "tests/support/execute_on_mesh.h"

#include <thread>

#include "stowage/base/bytes.h"
#include "stowage/ir/schedule_walk.h"
#include "stowage/runtime/comm/mesh_position.h"
#include "tests/support/check_lives.h"

namespace stow::testing {
namespace {

struct Position {
  comm::MeshPosition mesh;
  ExecutablePtr program;
  StreamTiming timing = StreamTiming::kConcurrent;
  std::vector<Bytes> inputs, outputs;
  std::string fault;

  void run(int threads) {
    try {
      run_once(threads);
    } catch (const std::exception& error) {
      fault = fmt::format("position {}: {}", mesh.position, error.what());
      mesh.communicator->abort(fault);
    }
  }

  void run_once(int threads) {
    const MemoryAnalysis& analysis = program->memory_analysis();
    Device::Capacities capacities{};
    for (size_t kind = 0; kind < capacities.size(); ++kind)
      capacities[kind] = analysis.kinds[kind].total_bytes;
    const DevicePtr device = Device::virtual_device(capacities, threads);
    device->streams().set_timing(timing);
    std::vector<DeviceBufferPtr> arguments;
    for (size_t i = 0; i < inputs.size(); ++i) {
      arguments.push_back(device->allocate(static_cast<int64_t>(inputs[i].size()),
                                           program->input_types()[i].kind));
      arguments.back()->write(0, inputs[i]);
    }
    const std::vector<DeviceBufferPtr> results = program->run(*device, arguments, nullptr, &mesh);
    for (size_t kind = 0; kind < capacities.size(); ++kind)
      if (const int64_t measured = device->high_water_bytes(static_cast<MemoryKind>(kind));
          measured != capacities[kind])
        fault = fmt::format("position {} measured {} bytes of {}, predicted {}", mesh.position,
                            measured, memory_kind_name(static_cast<MemoryKind>(kind)),
                            capacities[kind]);
    for (size_t o = 0; o < results.size(); ++o) {
      outputs.emplace_back(static_cast<size_t>(results[o]->bytes()));
      results[o]->read(0, outputs.back());
      if (results[o]->bytes() != program->output_types()[o].bytes())
        fault = fmt::format("result {} has {} bytes, its type {}", o, results[o]->bytes(),
                            program->output_types()[o].bytes());
    }
  }
};

}  // namespace

MeshExecution execute_on_mesh(const Graph& graph, const CompileOptions& options,
                              const std::vector<Bytes>& inputs, int threads,
                              bool through_windows, StreamTiming timing) {
  const MeshShape& mesh = options.mesh->mesh;
  const auto n = static_cast<size_t>(mesh.size());
  const ExecutablePtr program = compile(graph, options, threads);
  const auto communicators = comm::communicators_of_threads(static_cast<int32_t>(n),
                                                            {.use_windows = through_windows});
  std::vector<Position> positions(n);
  for (size_t d = 0; d < n; ++d) {
    positions[d].mesh.communicator = communicators[d].get();
    positions[d].mesh.position = static_cast<int64_t>(d);
    positions[d].timing = timing;
    for (size_t rank = 0; rank < n; ++rank)
      positions[d].mesh.ranks.push_back(static_cast<int32_t>(rank));
    positions[d].program = d == 0 ? program : program->bound_again();
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    std::vector<Bytes> parts =
        cut(graph.type(graph.inputs()[i]), inputs[i], options.mesh->in[i], mesh);
    for (size_t d = 0; d < n; ++d) positions[d].inputs.push_back(std::move(parts[d]));
  }
  std::vector<std::thread> running;
  for (Position& position : positions) running.emplace_back([&] { position.run(threads); });
  for (std::thread& thread : running) thread.join();

  MeshExecution result;
  result.out = program->output_shardings();
  result.collectives = program->collectives();
  result.analysis = program->memory_analysis();
  result.fault = check_lives(program->schedule());
  for_each_kernel(program->schedule().instructions, [&](const Kernel& kernel) {
    result.n_started += exchanges_data(kernel) && kernel.phase == MovePhase::kStart;
  });
  for (Position& position : positions) {
    if (result.fault.empty()) result.fault = position.fault;
    result.outputs.push_back(std::move(position.outputs));
  }
  return result;
}

}  // namespace stow::testing
