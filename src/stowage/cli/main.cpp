#include <fmt/core.h>

#include <string_view>

#include "stowage/cli/allocate.h"

int main(int argc, char** argv) {
  if (argc > 1 && std::string_view(argv[1]) == "allocate")
    return stow::cli::run_allocate(argc - 1, argv + 1);
  fmt::print("stowage\n");
  return 0;
}
