// The timeline of a dump names the source and the pass of every kernel.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "stowage/stowage.h"
#include "tests/support/temporary_folder.h"

namespace stow {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

// The pass column of each row of the first table.
std::set<std::string> passes_in(const std::string& csv) {
  std::set<std::string> passes;
  std::istringstream lines(csv);
  std::string line;
  std::getline(lines, line);
  EXPECT_EQ(line, "instant,kernel,source,pass,live_bytes");
  while (std::getline(lines, line) && !line.empty()) {
    const size_t last = line.rfind(','), before = line.rfind(',', last - 1);
    passes.insert(line.substr(before + 1, last - before - 1));
  }
  EXPECT_THAT(csv, HasSubstr("\nid,lower,upper,size,offset,kind,label,source,pass\n"));
  return passes;
}

TEST(ProvenanceOfNodes, EveryKernelKnowsItsPass) {
  const TemporaryFolder folder;
  const auto body = checkpoint(
      [](const Array& x, const Array& w) { return sin(matmul(x, w)) + transpose(x); });
  const auto loss = [&](const Array& ws, const Array& x) { return sum(scan(body, x, ws)); };
  jit(grad(loss), {.name = "step"})
      .lower(ones({3, 8, 8}), ones({8, 8}))
      .compile({.dump_dir = folder.path()});
  std::string csv;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder.path()))
    if (entry.path().filename() == "timeline.csv") {
      std::ifstream file(entry.path());
      csv.assign(std::istreambuf_iterator<char>(file), {});
    }
  const std::set<std::string> passes = passes_in(csv);
  for (const char* pass : {"traced", "vjp", "residuals"}) EXPECT_THAT(passes, Contains(pass));
  EXPECT_THAT(csv, HasSubstr("dump_test.cpp:"));
}

}  // namespace
}  // namespace stow
