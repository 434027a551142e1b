// What is known of where nodes and kernels come from: the source path and the pass.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "stowage/ir/parse.h"
#include "stowage/ir/print.h"
#include "stowage/stowage.h"
#include "tests/support/temporary_folder.h"

namespace stow {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

TEST(ProvenanceOfNodes, PrintsAndParsesBackWithThePass) {
  const std::string text =
      "graph(%0: f32[4]) {\n"
      "  %1 = exp(%0) : f32[4] @\"mlp\" \"m.cpp\":7 by vjp\n"
      "  %2 = exp(%1) backward : f32[4] @\"\" by residuals\n"
      "  %3 = exp(%2) : f32[4] @\"mlp\" \"m.cpp\":7\n"
      "  return %3\n"
      "}\n";
  const auto g = parse_graph(text, "t");
  ASSERT_TRUE(g.ok()) << g.error();
  EXPECT_EQ(print(**g), text);
  EXPECT_EQ(to_string((*g)->nodes()[0].provenance), "mlp (m.cpp:7) [vjp]");
  EXPECT_EQ(source_path((*g)->nodes()[0].provenance), "mlp (m.cpp:7)");
  EXPECT_EQ(to_string((*g)->nodes()[1].provenance), "[residuals]");
  EXPECT_EQ(to_string((*g)->nodes()[2].provenance), "mlp (m.cpp:7)");
  const auto wrong = parse_graph(
      "graph(%0: f32[4]) {\n  %1 = exp(%0) : f32[4] @\"\" by magic\n  return %1\n}\n", "t");
  ASSERT_FALSE(wrong.ok());
  EXPECT_EQ(wrong.error(),
            "t:2:32: there is no pass 'magic'; the passes are traced, vjp, vmap, residuals, unroll, "
            "tiles, transfers, lower");
}

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
  EXPECT_THAT(csv, HasSubstr("provenance_test.cpp:"));
}

}  // namespace
}  // namespace stow
