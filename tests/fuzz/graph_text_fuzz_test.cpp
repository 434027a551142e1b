#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>

#include "stowage/ir/parse.h"
#include "stowage/ir/print.h"
#include "stowage/ir/utilities.h"
#include "stowage/ops/verify.h"
#include "stowage/passes/simplify.h"
#include "tests/support/source_path.h"

namespace stow {
namespace {

PolicyPtr any_policy(std::string_view name) {
  return std::make_shared<Policy>(Policy{std::string(name), {}, {}});
}

// The graphs of the golden files, as texts.
std::vector<std::string> golden_graphs() {
  std::vector<std::string> graphs;
  for (const auto& entry : std::filesystem::directory_iterator(source_path("tests/golden"))) {
    if (entry.path().extension() != ".txt") continue;
    std::ifstream file(entry.path());
    for (std::string line; std::getline(file, line);) {
      if (line.rfind("graph", 0) == 0) graphs.emplace_back();
      if (line.rfind("//", 0) != 0 && line.rfind("---", 0) != 0 && !graphs.empty())
        graphs.back() += line + "\n";
    }
  }
  return graphs;
}

class Mutator {
 public:
  size_t below(size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(random_); }

  std::string damage(std::string text) {
    static constexpr std::string_view kPieces[] = {
        "%",   "-1", "\"", "{",       "}",        "[",        "]",
        "(",   ")",  ",",  "=",       "\\",       "region",   "999999999999",
        "inf", "//", "%0", "f32[]",   "hex\"",    "none",     "0,",
        "1",   "2",  "\n", "graph()", "backward", "region 0", "281474976710656",
        "true"};
    for (size_t i = below(3) + 1; i > 0 && !text.empty(); --i) {
      const size_t at = below(text.size()), n = below(8);
      switch (below(5)) {
        case 0:
          text.erase(at, n);
          break;
        case 1:
          text.insert(at, kPieces[below(std::size(kPieces))]);
          break;
        case 2:
          text[at] = static_cast<char>(below(256));
          break;
        case 3:
          text.insert(at, text.substr(below(text.size()), n * 8));
          break;
        case 4:
          change_digit(text, at);
          break;
      }
    }
    return text;
  }

 private:
  // The change that is most often still a text, and wrong.
  void change_digit(std::string& text, size_t from) {
    const size_t at = text.find_first_of("0123456789", from);
    if (at != std::string::npos) text[at] = static_cast<char>('0' + below(10));
  }
  std::mt19937 random_{20240601};
};

// Damaged texts fail with a place; or give a graph that verify refuses in words; or give one that
// passes keep whole and whose text is a fixed point. Nothing crashes.
TEST(GraphTextFuzz, DamagedTextsAreRefusedOrWhole) {
  const std::vector<std::string> seeds = golden_graphs();
  ASSERT_GT(seeds.size(), 10u);
  Mutator mutator;
  int n_parsed = 0, n_verified = 0;
  for (int round = 0; round < 20000; ++round) {
    const std::string text = mutator.damage(seeds[mutator.below(seeds.size())]);
    const auto parsed = parse_graph(text, "f", any_policy);
    if (!parsed.ok()) {
      EXPECT_EQ(parsed.error().rfind("f:", 0), 0u) << parsed.error();
      continue;
    }
    ++n_parsed;
    const std::string once = print(**parsed);
    const auto again = parse_graph(once, "f", any_policy);
    ASSERT_TRUE(again.ok()) << again.error();
    EXPECT_EQ(print(**again), once);
    try {
      verify(**parsed);
    } catch (const TraceError&) {
      continue;
    }
    ++n_verified;
    const Graph simple = simplify(**parsed);
    ASSERT_NO_THROW(verify(simple)) << once << print(simple);
    ASSERT_EQ(simple.inputs().size(), (*parsed)->inputs().size());
    ASSERT_EQ(simple.outputs().size(), (*parsed)->outputs().size());
    for (size_t i = 0; i < simple.outputs().size(); ++i)
      EXPECT_EQ(simple.type(simple.outputs()[i]), (*parsed)->type((*parsed)->outputs()[i]));
    EXPECT_TRUE(equal(simplify(simple), simple)) << once << print(simple);
  }
  EXPECT_GT(n_parsed, 1000);
  EXPECT_GT(n_verified, 500);
}

}  // namespace
}  // namespace stow
