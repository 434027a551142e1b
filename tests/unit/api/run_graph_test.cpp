// `stowage run` and STOW_DUMP: what is dumped runs again to the same bytes; what is wrong in a file
// is refused with its name and line.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "stowage/base/text_file.h"
#include "stowage/cli/commands.h"
#include "stowage/io/json.h"
#include "stowage/io/safetensors.h"
#include "stowage/ir/schedule_parser.h"
#include "stowage/ir/schedule_printer.h"
#include "stowage/stowage.h"
#include "stowage/train/step.h"
#include "tests/support/temporary_folder.h"

namespace stow {
namespace {

class RunGraph : public testing::Test {
 protected:
  std::string path(const std::string& name) const { return folder_.path() + "/" + name; }
  std::string write(const std::string& name, const std::string& text) const {
    std::ofstream(path(name)) << text;
    return path(name);
  }
  // The message without the folder; "done" for success.
  std::string run(std::vector<std::string> arguments) const {
    testing::internal::CaptureStdout();
    std::string message;
    try {
      const Result<int> status = run_graph_file(arguments);
      message = status ? "done" : status.error();
    } catch (const CapacityError& e) {
      message = e.what();
    }
    testing::internal::GetCapturedStdout();
    for (size_t at; (at = message.find(folder_.path() + "/")) != std::string::npos;)
      message.erase(at, folder_.path().size() + 1);
    return message;
  }

  TemporaryFolder folder_;
};

TEST_F(RunGraph, WhatIsDumpedRunsToTheSameBits) {
  auto body = checkpoint([](Array h, Array w) { return tanh(matmul(h, w)); }, dots_saveable());
  auto loss = [&](const Array& w, const Array& x) {
    return sum(square(scan([&](Array h, Array one) { return body(h, one); }, x, w)));
  };
  JitOptions options;
  options.name = "my step";
  options.donate_argnums = {0};
  options.compile.dump_dir = path("dump");
  auto step = jit([&](const Array& w, const Array& x) { return w - grad(loss)(w, x) * 0.1; },
                  options);
  std::vector<float> data(3 * 8 * 8);
  for (size_t i = 0; i < data.size(); ++i) data[i] = std::sin(static_cast<float>(i));
  const Array x = ones({4, 8});
  const std::vector<float> want = step(Array::from(data, {3, 8, 8}), x).to_vector<float>();
  step(Array::from(data, {3, 8, 8}) * 2.0, x);  // the inputs of the first run are those that stay

  std::vector<std::string> graphs, schedules;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(path("dump"))) {
    if (entry.path().extension() == ".txt") graphs.push_back(entry.path());
    if (entry.path().extension() == ".schedule") schedules.push_back(entry.path());
  }
  ASSERT_EQ(schedules.size(), 4u);  // of three orders, and the one that runs
  for (const std::string& schedule : schedules) {
    const Result<std::string> text = read_text_file(schedule);
    ASSERT_TRUE(text.ok()) << text.error();
    const Result<Schedule> parsed = parse_schedule(*text, schedule);
    ASSERT_TRUE(parsed.ok()) << parsed.error();
    EXPECT_EQ(print(*parsed), *text);
  }
  ASSERT_EQ(graphs.size(), 13u);  // traced, and after each pass
  for (const std::string& graph : graphs) {
    EXPECT_NE(graph.find("-my_step/"), std::string::npos) << graph;
    EXPECT_TRUE(
        std::filesystem::exists(std::filesystem::path(graph).parent_path() / "timeline.csv"));
    ASSERT_EQ(run({graph, "--output", path("out.safetensors"), "--json", path("out.json")}),
              "done");
    const Result<SafetensorsFile> file = SafetensorsFile::open(path("out.safetensors"));
    ASSERT_TRUE(file.ok()) << file.error();
    std::vector<float> got(want.size());
    ASSERT_TRUE(file->read(*file->find("0"), std::as_writable_bytes(std::span(got))).ok());
    EXPECT_EQ(got, want) << graph;
    std::stringstream text;
    text << std::ifstream(path("out.json")).rdbuf();
    const Result<Json> json = parse_json(text.str());
    ASSERT_TRUE(json.ok()) << json.error();
    EXPECT_GT(*json->find("predicted_peak_bytes")->as_int(), 0);
  }
}

// A step's policy stands in for those of its checkpoints: what is dumped is planned under it again.
TEST_F(RunGraph, WhatIsDumpedBearsThePolicyThatIsMeant) {
  auto layer = checkpoint([](Array h, Array w) {
    return tanh(checkpoint_name(matmul(h, w), "mlp_up")) + tanh(matmul(h, w * 2.0));
  }, nothing_saveable());
  const auto loss = [&](const Array& w) {
    return sum(scan([&](Array h, Array one) { return layer(h, one); }, ones({64, 32}), w));
  };
  for (const std::string name : {"save_all", "recompute", "save_dots", "save_gate", "save_named"}) {
    SCOPED_TRACE(name);
    JitOptions options;
    options.compile.override_policy = named_policy(*parse_policy(name));
    options.compile.dump_dir = path(name);
    const auto compiled = jit([&](const Array& w) { return grad(loss)(w); }, options)
                              .lower(ones({6, 32, 32}))
                              .compile();
    const std::filesystem::directory_iterator folder(path(name));
    ASSERT_EQ(run({folder->path() / "00-traced.txt", "--plan", "--json", path("out.json")}),
              "done");
    std::stringstream text;
    text << std::ifstream(path("out.json")).rdbuf();
    const Result<Json> json = parse_json(text.str());
    ASSERT_TRUE(json.ok()) << json.error();
    EXPECT_EQ(*json->find("predicted_peak_bytes")->as_int(),
              compiled.memory_analysis().device().total_bytes);
  }
  for (const char* name : {"offload_all", "offload_named", "offload_carries", "offload_nested"})
    EXPECT_EQ(step_policy_by_name(named_policy(*parse_policy(name), MemoryKind::kDisk)->name)->name,
              std::string(name) + "(disk)");
  EXPECT_EQ(step_policy_by_name("offload_all"), nullptr);
}

TEST_F(RunGraph, InputsWithoutNamesGoByNumber) {
  const std::string graph = write("g.txt",
                                  "graph(%0: f32[2], %1: i32[] \"n\", %2: i32[] \"n\") {\n"
                                  "  %3 = add(%1, %2) : i32[]\n"
                                  "  return %0, %3\n}\n");
  const float x[] = {1, 2};
  const int32_t n[] = {3, 4};
  const auto bytes = [](const auto* p, size_t size) {
    return std::span(reinterpret_cast<const std::byte*>(p), size);
  };
  const TensorBytes tensors[] = {{"%0", DType::kF32, {2}, bytes(x, 8)},
                                 {"%1", DType::kI32, {}, bytes(n, 4)},
                                 {"%2", DType::kI32, {}, bytes(n + 1, 4)}};
  ASSERT_TRUE(save_safetensors(path("inputs.safetensors"), tensors).ok());
  ASSERT_EQ(run({graph, "--json", path("out.json")}), "done");
  std::stringstream text;
  text << std::ifstream(path("out.json")).rdbuf();
  EXPECT_NE(text.str().find("\"values\": [7.0]"), std::string::npos) << text.str();
}

TEST_F(RunGraph, WhatIsWrongIsSaidWithItsPlace) {
  const std::string neg =
      write("neg.txt", "graph(%0: f32[2] \"x\") { %1 = neg(%0) : f32[2] return %1 }");
  EXPECT_EQ(
      run({neg}),
      "neg.txt: the graph has 1 inputs, the first 'x' f32[2]: give --inputs FILE.safetensors, "
      "or --plan to run nothing");
  EXPECT_EQ(run({neg, "--plan"}), "done");
  const float data[] = {1, 2, 3};
  const auto bytes = std::as_bytes(std::span(data));
  const TensorBytes other[] = {{"y", DType::kF32, {3}, bytes}};
  ASSERT_TRUE(save_safetensors(path("y.safetensors"), other).ok());
  EXPECT_EQ(run({neg, "--inputs", path("y.safetensors")}),
            "y.safetensors: no tensor 'x', which is input 0 of neg.txt; the nearest is 'y'");
  const TensorBytes wrong[] = {{"x", DType::kF32, {3}, bytes}};
  ASSERT_TRUE(save_safetensors(path("x.safetensors"), wrong).ok());
  EXPECT_EQ(run({neg, "--inputs", path("x.safetensors")}),
            "x.safetensors: 'x' is f32[3], input 0 of neg.txt is f32[2]");
  EXPECT_EQ(run({neg, "--inputs", path("none")}), "none: No such file or directory");
  EXPECT_EQ(run({neg, "--memory", "2 parsecs"}),
            "--memory: expected a size such as 64MiB, 1.5GB or a number of bytes, got '2 parsecs': "
            "'parsecs' is not a unit");
  EXPECT_EQ(run({}), "run: GRAPH.txt is required (see ./stowage run --help)");
  const TensorBytes right[] = {{"x", DType::kF32, {2}, bytes.first(8)}};
  ASSERT_TRUE(save_safetensors(path("x.safetensors"), right).ok());
  EXPECT_THAT(run({neg, "--inputs", path("x.safetensors"), "--memory", "8"}),
              testing::MatchesRegex("neg.txt needs [0-9]+ B of the 8 B there are"));
  EXPECT_EQ(run({neg, "--inputs", path("x.safetensors"), "--output", path("no/such/folder")}),
            "no/such/folder: No such file or directory");
}

TEST_F(RunGraph, HostileTextsAreRefused) {
  const auto nested = [](int depth) {
    std::string text = "%1 = neg(%0) : f32[] return %1";
    for (int i = 0; i < depth; ++i)
      text = "%1 = checkpoint(%0) {} : f32[] graph(%0: f32[]) { " + text + " } return %1";
    return "graph(%0: f32[] \"x\") { " + text + " }";
  };
  std::string many = "graph(%0: f32[8796093022208] \"x\") {\n";
  for (int i = 0; i < 9000; ++i)
    many += fmt::format("  %{} = neg(%{}) : f32[8796093022208]\n", i + 1, i);
  many += "  return %9000\n}\n";
  const struct {
    std::string text, error;
  } kCases[] = {
      {"", "h.txt:1:1: expected 'graph', found end of text"},
      {"graph(%0: f32[2] \"x\") {\n  %1 = nega(%0) : f32[2]\n  return %1\n}",
       "h.txt:2:8: expected the name of an op, found 'nega'"},
      {"graph(%0: f32[2] \"x\") {\n\n  %1 = neg(%0) : f32[3]\n  return %1\n}",
       "h.txt:3: [neg] result 0 is f32[3], its type rule gives f32[2]\n  in %1 = neg(%0) : f32[3]"},
      {"graph(%0: f32[2] \"x\") {\n  %1 = checkpoint(%0) {} : f32[2] graph(%0: f32[2]) {\n"
       "    %1 = dot_general(%0, %0) {lhs_contract=[5]} : f32[2]\n    return %1 }\n  return %1\n}",
       "h.txt:3: [dot_general] lhs axis 5 is out of range for rank 1"},
      {"graph(%0: f32[281474976710656,281474976710656] \"x\") { return %0 }",
       "h.txt:1:31: the array is larger than 2^56 bytes"},
      {"graph(%0: f32[-1] \"x\") { return %0 }",
       "h.txt:1:15: expected an extent from 0 to 281474976710656, found '-1'"},
      {"graph(%0: f32[99999999999999999999] \"x\") { return %0 }",
       "h.txt:1:15: expected an extent from 0 to 281474976710656, found '99999999999999999999'"},
      {nested(70), "h.txt:1:3205: graphs are nested more than 64 deep"},
      {many, "h.txt: the values of the graph have more than 2^58 bytes together"},
      {std::string(100000, '('), "h.txt:1:1: expected 'graph', found '('"},
      {std::string("graph(\0)", 8), "h.txt:1:7: expected a token, found byte 0x00"},
      {"graph(%0: f32[] \"x\") { region 0 {policy=\"none such(\"} return %0 } x",
       "h.txt:1:67: expected end of text after the graph, found 'x'"},
  };
  for (const auto& [text, error] : kCases) {
    const std::string message = run({write("h.txt", text), "--plan"});
    EXPECT_EQ(message.substr(0, error.size()), error) << message;
  }
  EXPECT_EQ(run({write("deep.txt", nested(60)), "--plan"}), "done");
}

}  // namespace
}  // namespace stow
