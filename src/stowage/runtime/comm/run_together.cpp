#include "stowage/runtime/comm/run_together.h"

#include <exception>
#include <vector>

#include <fmt/format.h>

#include "stowage/runtime/streams.h"

namespace stow::comm {

void run_together(std::span<const Participant> participants,
                  const std::function<void(size_t)>& work) {
  std::vector<std::exception_ptr> errors(participants.size());
  std::vector<uint64_t> tickets;
  for (size_t i = 0; i < participants.size(); ++i)
    tickets.push_back(participants[i].device->worker().start([&, i] {
      try {
        work(i);
      } catch (const std::exception& error) {
        errors[i] = std::current_exception();
        Communicator& own = *participants[i].communicator;
        own.abort(fmt::format("{}: {}", own.name_of(own.rank()), error.what()));
      }
    }));
  for (size_t i = 0; i < participants.size(); ++i)
    participants[i].device->worker().wait(tickets[i]);
  std::exception_ptr lost;
  for (const std::exception_ptr& error : errors) {
    if (!error) continue;
    try {
      std::rethrow_exception(error);
    } catch (const CommunicationError&) {
      if (!lost) lost = error;
    }
  }
  if (lost) std::rethrow_exception(lost);
}

}  // namespace stow::comm
