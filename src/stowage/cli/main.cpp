#include <fmt/core.h>

int main() {
  fmt::print("stowage\n");
  return 0;
}
