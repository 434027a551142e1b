#include "stowage/train/positions.h"

#include <fmt/format.h>

#include "stowage/base/error.h"
#include "stowage/runtime/comm/run_together.h"

namespace stow {

Positions::Positions(DevicePtr device) { at_.push_back({std::move(device), {}}); }

Positions::Positions(const MeshShape& mesh, std::vector<DevicePtr> devices, comm::World* world,
                     double timeout_s)
    : mesh_(mesh), world_(world) {
  const int64_t n_here = static_cast<int64_t>(devices.size());
  STOW_CHECK(n_here * n_processes() == mesh.size(), "{} processes of {} devices are no {}",
             n_processes(), n_here, to_string(mesh));
  if (!world)
    own_ = comm::communicators_of_threads(static_cast<int32_t>(n_here), {.timeout_s = timeout_s});
  std::vector<int32_t> ranks;
  for (int64_t i = 0; i < mesh.size(); ++i) ranks.push_back(static_cast<int32_t>(i));
  for (size_t i = 0; i < devices.size(); ++i) {
    comm::Communicator* const communicator =
        world ? &world->communicator(static_cast<int32_t>(i)) : own_[i].get();
    at_.push_back({std::move(devices[i]),
                   {communicator, ranks, process() * n_here + static_cast<int64_t>(i)}});
  }
}

std::span<const ExecutablePtr> Positions::bound(const ExecutablePtr& program) {
  std::vector<ExecutablePtr>& all = bound_[program];
  if (all.empty()) all.push_back(program);
  while (all.size() < at_.size()) all.push_back(program->bound_again());
  return all;
}

PositionBuffers Positions::run(const ExecutablePtr& program, const PositionBuffers& arguments,
                               RunObserver* observer) {
  if (mesh_.rank() == 0) return {program->run(*at_[0].device, arguments[0], observer)};
  const std::span<const ExecutablePtr> programs = bound(program);
  PositionBuffers results(at_.size());
  std::vector<comm::Participant> participants;
  for (const Position& at : at_) participants.push_back({at.device.get(), at.mesh.communicator});
  comm::run_together(participants, [&](size_t i) {
    results[i] =
        programs[i]->run(*at_[i].device, arguments[i], i == 0 ? observer : nullptr, &at_[i].mesh);
  });
  return results;
}

void Positions::drop_arenas() {
  for (const Position& at : at_) at.device->drop_arenas();
}

std::vector<std::vector<int64_t>> Positions::gather_over_processes(std::span<const int64_t> values,
                                                                   std::string_view label) {
  const size_t n = static_cast<size_t>(n_processes());
  if (n == 1) return {{values.begin(), values.end()}};
  comm::Communicator& communicator = *at_[0].mesh.communicator;
  std::vector<int32_t> ranks;  // the first of each process
  for (size_t i = 0; i < n; ++i)
    ranks.push_back(static_cast<int32_t>(i) * communicator.devices_per_process());
  const comm::Group group = comm::Group::of(ranks, communicator.rank());
  std::vector<int64_t> all(n * values.size());
  communicator.all_gather(group, label, DType::kI64, 1, static_cast<int64_t>(values.size()),
                          std::as_bytes(values).data(),
                          std::as_writable_bytes(std::span(all)).data());
  std::vector<std::vector<int64_t>> lists;
  for (size_t i = 0; i < n; ++i) {
    const auto begin = all.begin() + static_cast<std::ptrdiff_t>(i * values.size());
    lists.emplace_back(begin, begin + static_cast<std::ptrdiff_t>(values.size()));
  }
  return lists;
}

}  // namespace stow
