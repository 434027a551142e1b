#include "tests/support/schedule_kit.h"

namespace stow::testing {

DeviceDescription round_device() {
  DeviceDescription d;
  d.name = "round";
  d.compute = {.f32_flops = 2000,
               .f32_as = "f32",
               .bf16_flops = 4000,
               .f64_flops = 1000,
               .vector_flops = 1000,
               .special_flops = 100};
  d.memory.bandwidth = 1e12;
  d.link = {.to_device = 4000, .to_host = 4000};
  d.disk = {.read = 4000, .write = 4000};
  return d;
}

View ScheduleKit::view(MemoryKind kind, int64_t elems) {
  Buffer buffer;
  buffer.bytes = buffer.slot_bytes = elems * 4;
  buffer.kind = kind;
  schedule_.buffers.push_back(buffer);
  return {BufferId(schedule_.buffers.size() - 1), DType::kF32, {elems}, {1}};
}

Instruction ScheduleKit::dot(int64_t k) {
  Kernel kernel;
  kernel.op = OpKind::kDotGeneral;
  kernel.params = DotParams{{0}, {0}, {}, {}, DType::kF32};
  kernel.inputs = {view(MemoryKind::kDevice, k), view(MemoryKind::kDevice, k)};
  kernel.outputs = {view(MemoryKind::kDevice, 1)};
  kernel.outputs[0].dims = kernel.outputs[0].strides = {};
  return {kernel, {}};
}

Instruction ScheduleKit::move(MemoryKind from, MemoryKind to, int64_t elems, MovePhase phase,
                              int transfer) {
  Kernel kernel;
  kernel.op = OpKind::kDevicePut;
  kernel.params = DevicePutParams{to};
  kernel.inputs = {view(from, elems)};
  kernel.outputs = {view(to, elems)};
  kernel.phase = phase;
  kernel.transfer = transfer;
  return {kernel, {}};
}

Instruction ScheduleKit::loop(int64_t trip_count, std::vector<Instruction> body) {
  auto loop = std::make_shared<Loop>();
  loop->id = LoopId(schedule_.n_loops++);
  loop->trip_count = trip_count;
  loop->body = std::move(body);
  return {loop, {}};
}

Instruction ScheduleKit::open_loop(std::vector<Instruction> condition,
                                   std::vector<Instruction> body) {
  Instruction result = loop(Loop::kOpen, std::move(body));
  result.loop()->condition = std::move(condition);
  return result;
}

Instruction ScheduleKit::branch(std::vector<std::vector<Instruction>> alternatives) {
  auto branch = std::make_shared<Branch>();
  branch->alternatives = std::move(alternatives);
  return {branch, {}};
}

Schedule ScheduleKit::schedule(std::vector<Instruction> instructions) {
  schedule_.instructions = std::move(instructions);
  return std::move(schedule_);
}

Instruction guarded(Instruction instruction, int64_t begin, int64_t end) {
  instruction.guard = {begin, end};
  return instruction;
}

}  // namespace stow::testing
