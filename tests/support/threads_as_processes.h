// Threads that stand for processes: each has its devices, its part of every array and a communicator.
// Not the launcher; bench placement and the tests of it start real processes.
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "stowage/api/array.h"
#include "stowage/api/processes.h"
#include "stowage/runtime/comm/communicator.h"

namespace stow {

/// What a process of `run_as_processes` is given.
struct ProcessOfTest {
  int index = 0;
  std::vector<DevicePtr> devices;
  comm::Communicator* communicator = nullptr;
};

/// Runs `body` in `count` threads, each as a process with that many devices of 64 MiB a kind, and
/// returns what each threw; "" for nothing.
inline std::vector<std::string> run_as_processes(
    int count, int devices_each, const std::function<void(const ProcessOfTest&)>& body) {
  auto communicators = comm::communicators_of_threads(count * devices_each, {.timeout_s = 20});
  std::vector<std::string> thrown(static_cast<size_t>(count));
  std::vector<std::thread> threads;
  for (int index = 0; index < count; ++index)
    threads.emplace_back([&, index] {
      constexpr int64_t kBytes = int64_t{64} << 20;
      std::vector<comm::Communicator*> own;
      for (int i = 0; i < devices_each; ++i)
        own.push_back(communicators[static_cast<size_t>(index * devices_each + i)].get());
      ProcessOfTest self{index, {}, own[0]};
      for (int i = 0; i < devices_each; ++i)
        self.devices.push_back(Device::virtual_device({kBytes, kBytes, kBytes}, 1));
      const DefaultDevice guard(self.devices[0]);
      const ActAsProcess act(
          std::make_shared<const Processes>(index, count, self.devices, own));
      try {
        body(self);
      } catch (const std::exception& error) {
        thrown[static_cast<size_t>(index)] = error.what();
      }
    });
  for (std::thread& thread : threads) thread.join();
  return thrown;
}

}  // namespace stow
