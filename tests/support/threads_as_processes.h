// run_as_processes: threads that act as processes, each with its own devices and communicator.
// Not the launcher; tests of the launcher start real processes.
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

/// The argument of a process of run_as_processes().
struct ProcessOfTest {
  int index = 0;
  std::vector<DevicePtr> devices;
  comm::Communicator* communicator = nullptr;
};

/// Runs `body` in `count` threads, each as a process with `devices_each` devices of 64 MiB for each
/// memory kind. Returns the message that each threw; "" for none.
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
