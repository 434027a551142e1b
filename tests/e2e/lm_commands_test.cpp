// `score` and `generate` as commands, on the model that the repository carries: files in and out,
// plans, and refusals of one sentence that leave nothing behind.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <sstream>

#include "stowage/base/error.h"
#include "stowage/cli/commands.h"
#include "stowage/io/json.h"
#include "stowage/io/safetensors.h"
#include "tests/support/lm_kit.h"
#include "tests/support/source_path.h"
#include "tests/support/temporary_folder.h"

namespace stow {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class LmCommands : public ::testing::Test {
 protected:
  struct Outcome {
    int status = 0;
    std::string printed, told, error;  // stdout, stderr, the message of a failure
    std::vector<Json> json;            // lines of JSON on stdout
  };

  Outcome run(Command command, const std::vector<std::string>& arguments) const {
    ::testing::internal::CaptureStdout();
    ::testing::internal::CaptureStderr();
    Outcome o;
    try {
      const Result<int> status = command(arguments);
      o.status = status.ok() ? *status : kExitError;
      if (!status.ok()) o.error = status.error();
    } catch (const CapacityError& error) {  // as main() has it
      o.status = kExitOverBudget;
      o.error = error.what();
    }
    std::fflush(stdout);
    o.printed = ::testing::internal::GetCapturedStdout();
    o.told = ::testing::internal::GetCapturedStderr();
    std::istringstream lines(o.printed);
    for (std::string line; std::getline(lines, line);)
      if (line.starts_with("{")) o.json.push_back(*parse_json(line));
    return o;
  }
  Outcome score(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), {"--model", tiny_});
    return run(run_score, arguments);
  }
  Outcome generate(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), {"--model", tiny_});
    return run(run_generate, arguments);
  }
  std::string write(const std::string& name, const std::string& text) const {
    write_bytes(folder_ / name, text);
    return folder_ / name;
  }
  std::string write_tensors(const std::string& name,
                            std::vector<std::pair<std::string, std::vector<int32_t>>> all,
                            std::vector<int64_t> shape) const {
    std::vector<TensorBytes> tensors;
    for (const auto& [key, values] : all)
      tensors.push_back({key, DType::kI32, key == "tokens" ? shape : std::vector<int64_t>{shape[0]},
                         std::as_bytes(std::span(values)), {}});
    STOW_CHECK(save_safetensors(folder_ / name, tensors).ok(), "{}", name);
    return folder_ / name;
  }
  std::vector<float> tensor(const std::string& path, const std::string& name,
                            std::vector<int64_t> shape) const {
    const Result<SafetensorsFile> file = SafetensorsFile::open(path);
    STOW_CHECK(file.ok(), "{}", file.error());
    const TensorInfo* info = file->find(name);
    STOW_CHECK(info, "{}", name);
    EXPECT_EQ(info->shape, shape) << name;
    std::vector<float> values(static_cast<size_t>(info->n_bytes) / sizeof(float));
    STOW_CHECK(file->read(*info, std::as_writable_bytes(std::span(values))).ok(), "{}", name);
    return values;
  }
  static void expect_exact(const Json& summary) {
    ASSERT_TRUE(summary.find("predicted_peak_bytes") && summary.find("measured_peak_bytes"))
        << summary.dump();
    EXPECT_EQ(*summary.find("predicted_peak_bytes"), *summary.find("measured_peak_bytes"));
    EXPECT_GT(*summary.find("predicted_peak_bytes")->find("device")->as_int(), 0);
  }
  // One line that says this; nothing was printed and no file is new.
  void expect_refused(const Outcome& o, const std::string& message) const {
    EXPECT_NE(o.status, kExitDone);
    EXPECT_THAT(o.error, HasSubstr(message));
    EXPECT_THAT(o.error, Not(HasSubstr("\n")));
    EXPECT_FALSE(std::filesystem::exists(folder_ / "out.safetensors")) << message;
    EXPECT_FALSE(std::filesystem::exists(folder_ / "out.jsonl") &&
                 std::filesystem::file_size(folder_ / "out.jsonl") > 0)
        << message;
  }

  TemporaryFolder folder_;
  std::string tiny_ = source_path("examples/tiny_model");
};

TEST_F(LmCommands, ACheckpointStandsForTheModelAndItsAdapter) {
  const std::string out = folder_ / "run", tokens =
      write_tensors("t.safetensors", {{"tokens", {50, 60, 70, 80, 90, 100}}}, {2, 3});
  std::string text;
  for (int i = 0; i < 12; ++i)
    text += "{\"text\": \"line " + std::to_string(i * i % 7) + " of the text\"}\n";
  std::vector<std::string> run_arguments;
  for (const std::string& setting :
       {"model.path=" + tiny_, "data.path=" + write("lines.jsonl", text),
        std::string("lora.rank=4"), std::string("data.seq=32"), std::string("data.batch=4"),
        std::string("data.valid_fraction=0.25"), std::string("optimizer.lr=0.3"),
        std::string("optimizer.warmup=2"), std::string("train.steps=9"),
        std::string("eval.every=1"), std::string("eval.keep_best=true"), "train.out=" + out})
    run_arguments.insert(run_arguments.end(), {"--set", setting});
  run_arguments.insert(run_arguments.end(), {"--json", "-"});
  const Outcome trained = run(run_train, run_arguments);
  ASSERT_EQ(trained.status, kExitDone) << trained.error << trained.told;
  const int64_t best = *trained.json.back().find("best_step")->as_int();
  ASSERT_LT(best, 9);
  const auto scored = [&](std::vector<std::string> which) {
    const std::string to = folder_ / "scores.safetensors";
    which.insert(which.end(), {"--tokens", tokens, "--out", to});
    const Outcome o = run(run_score, which);
    EXPECT_EQ(o.status, kExitDone) << o.error;
    return tensor(to, "logprobs", {2, 2});
  };
  for (const bool is_best : {false, true}) {
    const std::string adapter = folder_ / (is_best ? "best" : "last");
    std::vector<std::string> exported = {"--checkpoint", out, "--adapter", adapter};
    std::vector<std::string> named = {"--checkpoint", out};
    if (is_best) exported.push_back("--best"), named.push_back("--best");
    const Outcome o = run(run_export, exported);
    ASSERT_EQ(o.status, kExitDone) << o.error;
    EXPECT_THAT(o.printed, HasSubstr(fmt::format("step {}", is_best ? best : 9)));
    EXPECT_EQ(scored(named), scored({"--model", tiny_, "--adapter", adapter}));
  }
  EXPECT_NE(scored({"--checkpoint", out}), scored({"--checkpoint", out, "--best"}));
  const auto refused = [&](const std::vector<std::string>& arguments) {
    return run(run_generate, arguments).error;
  };
  EXPECT_THAT(refused({"--prompt", "a"}), HasSubstr("expected --model PATH or --checkpoint DIR"));
  EXPECT_THAT(refused({"--model", tiny_, "--checkpoint", out}), HasSubstr("expected no --model"));
  EXPECT_THAT(refused({"--model", tiny_, "--best"}), HasSubstr("--best has no effect"));
  EXPECT_THAT(refused({"--checkpoint", folder_ / "none"}), HasSubstr("no such file or folder"));
}

TEST_F(LmCommands, ScoresTokensOfAFile) {
  const std::string out = folder_ / "out.safetensors";
  const std::string whole =
      write_tensors("whole.safetensors", {{"tokens", {50, 60, 70, 80, 90, 100}}}, {2, 3});
  const Outcome o = score({"--tokens", whole, "--out", out, "--logits", "--hidden", "--json", "-"});
  ASSERT_EQ(o.status, kExitDone) << o.error;
  expect_exact(o.json.back());
  EXPECT_EQ(*o.json.back().find("tokens")->as_int(), 4);
  const std::vector<float> logprobs = tensor(out, "logprobs", {2, 2});
  double sum = 0;
  for (const float x : logprobs) {
    EXPECT_LT(x, 0);
    sum += x;
  }
  EXPECT_NEAR(*o.json.back().find("perplexity")->as_double(), std::exp(-sum / 4), 1e-5);
  const std::vector<float> logits = tensor(out, "logits", {2, 3, 259});
  EXPECT_EQ(tensor(out, "hidden", {3, 2, 3, 24}).size(), 3u * 2 * 3 * 24);
  // The first row alone, padded on either side.
  for (const int start : {0, 2}) {
    std::vector<int32_t> tokens(5, 0);
    std::copy_n(std::vector<int32_t>{50, 60, 70}.begin(), 3, tokens.begin() + start);
    const std::string padded = write_tensors(
        "padded.safetensors", {{"tokens", tokens}, {"start", {start}}, {"lengths", {3}}}, {1, 5});
    ASSERT_EQ(score({"--tokens", padded, "--out", out, "--json", "-"}).status, kExitDone);
    const std::vector<float> alone = tensor(out, "logprobs", {1, 4});
    for (int t = 0; t < 4; ++t) {
      const bool is_real = t >= start && t < start + 2;
      EXPECT_NEAR(alone[static_cast<size_t>(t)],
                  is_real ? logprobs[static_cast<size_t>(t - start)] : 0, 1e-5);
    }
  }
}

TEST_F(LmCommands, ScoresLinesOfEveryKindInTheirOrder) {
  const std::string data = write("data.jsonl", R"({"text": "The memory of the device"}
{"messages": [{"role": "user", "content": "Hi"}]}

{"prompt": "The memory", "completion": " of the device"}
{"tokens": [5, 6, 7]}
)");
  const std::string out = folder_ / "out.safetensors";
  const Outcome o = score({"--data", data, "--out", out, "--json", "-"});
  ASSERT_EQ(o.status, kExitDone) << o.error;
  expect_exact(o.json.back());
  const std::vector<float> all = tensor(out, "logprobs", {4, 23});
  const std::vector<float> first(all.begin(), all.begin() + 23),
      third(all.begin() + 46, all.begin() + 69);
  EXPECT_EQ(first, third);  // the same text in two parts
  EXPECT_NE(all[69 + 1], 0);
  for (size_t i = 69 + 2; i < all.size(); ++i) EXPECT_EQ(all[i], 0) << i;  // behind the third token
}

TEST_F(LmCommands, BudgetsAndPlacementsScoreTheSameBits) {
  const std::string tokens =
      write_tensors("t.safetensors", {{"tokens", formula_tokens(60, 259)}}, {2, 30});
  const std::string out = folder_ / "out.safetensors";
  std::string first;
  for (const std::vector<std::string>& more :
       std::vector<std::vector<std::string>>{{},
                                             {"--weights", "disk"},
                                             {"--weights", "pinned_host"},
                                             {"--batch", "1"},
                                             {"--memory", "1MiB"}}) {
    std::vector<std::string> arguments = {"--tokens", tokens, "--out", out, "--json", "-"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Outcome o = score(arguments);
    ASSERT_EQ(o.status, kExitDone) << o.error;
    expect_exact(o.json.back());
    if (first.empty()) first = read_bytes(out);
    EXPECT_EQ(read_bytes(out), first);
  }
}

TEST_F(LmCommands, GeneratesText) {
  const Outcome o =
      generate({"--prompt", "The memory of ", "--max-tokens", "20", "--temperature", "0"});
  ASSERT_EQ(o.status, kExitDone) << o.error;
  const Outcome j = generate(
      {"--prompt", "The memory of ", "--max-tokens", "20", "--temperature", "0", "--json", "-"});
  ASSERT_EQ(j.status, kExitDone) << j.error;
  ASSERT_EQ(j.json.size(), 2u);
  EXPECT_EQ(o.printed, *j.json[0].find("text")->as_string() + "\n");
  EXPECT_EQ(j.json[0].find("ids")->as_array()->size(), 20u);
  EXPECT_EQ(j.json[0].find("logprobs")->as_array()->size(), 20u);
  EXPECT_EQ(*j.json[0].find("finish_reason")->as_string(), "length");
  expect_exact(j.json[1]);
  EXPECT_TRUE(*j.json[1].find("summary")->as_bool());
  // A stop text.
  const std::string text = *j.json[0].find("text")->as_string(), stop = text.substr(3, 2);
  const Outcome s = generate({"--prompt", "The memory of ", "--max-tokens", "20", "--temperature",
                              "0", "--stop", stop, "--json", "-"});
  ASSERT_EQ(s.status, kExitDone) << s.error;
  EXPECT_EQ(*s.json[0].find("text")->as_string(), text.substr(0, text.find(stop)));
  EXPECT_EQ(*s.json[0].find("finish_reason")->as_string(), "stop");
}

TEST_F(LmCommands, PromptsOfAFileAreThoseAlone) {
  const std::string prompts = write("p.jsonl", R"({"prompt": "The "}
{"messages": [{"role": "user", "content": "Hi"}]}
{"prompt": "A plan of a device that "}
)");
  const std::vector<std::string> settings = {"--max-tokens", "12", "--temperature", "0",
                                             "--json",       "-"};
  const auto with = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.end(), settings.begin(), settings.end());
    Outcome o = generate(arguments);
    EXPECT_EQ(o.status, kExitDone) << o.error;
    if (!o.json.empty()) expect_exact(o.json.back());
    return o;
  };
  const Outcome all = with({"--prompts", prompts}),
                two = with({"--prompts", prompts, "--batch", "2"});
  ASSERT_EQ(all.json.size(), 4u);
  const Outcome alone[] = {with({"--prompt", "The "}), with({"--chat", "Hi"}),
                           with({"--prompt", "A plan of a device that "})};
  for (size_t i = 0; i < 3; ++i)
    for (const char* key : {"ids", "text", "finish_reason"}) {
      EXPECT_EQ(*all.json[i].find(key), *alone[i].json[0].find(key)) << i;
      EXPECT_EQ(*two.json[i].find(key), *all.json[i].find(key)) << i;
    }
}

TEST_F(LmCommands, PlansWithoutWeights) {
  TemporaryFolder bare;
  std::filesystem::copy_file(tiny_ + "/config.json", bare / "config.json");
  const Outcome s =
      run(run_score, {"--model", bare.path(), "--plan", "--length", "64", "--json", "-"});
  ASSERT_EQ(s.status, kExitDone) << s.error;
  const Outcome g =
      run(run_generate, {"--model", bare.path(), "--plan", "--length", "64", "--json", "-"});
  ASSERT_EQ(g.status, kExitDone) << g.error;
  for (const Outcome& o : {s, g}) {
    EXPECT_GT(*o.json.back().find("predicted_peak_bytes")->find("device")->as_int(), 0);
    EXPECT_EQ(o.json.back().find("measured_peak_bytes"), nullptr);
  }
  const std::string tokens = write_tensors("t.safetensors", {{"tokens", {1, 2}}}, {1, 2});
  const Outcome r = run(run_score, {"--model", bare.path(), "--tokens", tokens, "--out",
                                    folder_ / "out.safetensors"});
  expect_refused(r, bare.path() + ": there are no weights");
}

TEST_F(LmCommands, RefusesFlagsAndFilesInOneSentence) {
  const std::string good = write_tensors("good.safetensors", {{"tokens", {1, 2}}}, {1, 2});
  const std::string out = folder_ / "out.safetensors", json = folder_ / "out.jsonl";
  const auto refused_score = [&](std::vector<std::string> arguments, const std::string& message) {
    arguments.insert(arguments.end(), {"--json", json});
    expect_refused(score(arguments), message);
  };
  const auto refused_generate = [&](std::vector<std::string> arguments,
                                    const std::string& message) {
    arguments.insert(arguments.end(), {"--json", json});
    expect_refused(generate(arguments), message);
  };
  refused_score({}, "score: expected --tokens FILE or --data FILE");
  refused_score({"--tokens", ""}, "score: --tokens is empty");
  refused_score({"--tokens", good, "--data", good}, "score: --tokens and --data are two ways");
  refused_score({"--tokens", good, "--logits"},
                "score: --logits and --hidden have no effect without --out FILE");
  refused_score({"--tokens", good, "--dtype", "f64"},
                "score: --dtype: expected f32, bf16 or f16, got 'f64'");
  refused_score({"--tokens", good, "--weights", "gpu"},
                "score: --weights: expected device, pinned_host or disk");
  refused_score({"--tokens", good, "--memory", "much"}, "score: --memory: ");
  refused_score({"--tokens", good, "--memory", "1KiB", "--out", out},
                "scoring rows of 2 tokens needs ");
  refused_score({"--tokens", good, "--batch", "0"}, "--batch");
  refused_score({"--tokens", folder_ / "none"}, folder_ / "none");
  const auto tensors = [&](const std::string& name,
                           std::vector<std::pair<std::string, std::vector<int32_t>>> all,
                           std::vector<int64_t> shape) {
    return write_tensors(name, std::move(all), std::move(shape));
  };
  refused_score({"--tokens", tensors("a", {{"start", {0}}}, {1, 2}), "--out", out},
                "/a: no tensor 'tokens'");
  refused_score({"--tokens", tensors("b", {{"tokens", {1, 2}}}, {2}), "--out", out},
                "/b: 'tokens' is i32[2], expected i32[rows,length]");
  refused_score({"--tokens", tensors("c", {{"tokens", {1, 259}}}, {1, 2}), "--out", out},
                "/c: tokens: 259 at row 0, place 1 is outside of the vocabulary of 259");
  refused_score(
      {"--tokens", tensors("d", {{"tokens", {1, 2}}, {"lengths", {3}}}, {1, 2}), "--out", out},
      "/d: start, lengths: row 0 ");
  refused_score(
      {"--tokens", tensors("e", {{"tokens", {1, 2}}, {"start", {-2147483647 - 1}}}, {1, 2}),
       "--out", out},
      "/e: start, lengths: row 0 ");
  for (const auto& [line, message] : std::vector<std::pair<std::string, std::string>>{
           {"{", ":2: "},
           {"[]", ":2: expected an object with text, messages, tokens, or prompt and completion"},
           {R"({"text": 1})", ":2: text, prompt, completion: expected a text"},
           {R"({"text": ""})", ":2: expected at least one token, got none"},
           {R"({"tokens": [259]})", ":2: tokens: expected ids from 0 to 258, got 259"},
           {R"({"tokens": [1.5]})", ":2: tokens: expected ids from 0 to 258, got 1.5"}})
    refused_score(
        {"--data", write("lines.jsonl", "{\"text\": \"a b\"}\n" + line + "\n"), "--out", out},
        "lines.jsonl" + message);
  refused_score({"--data", write("empty.jsonl", "\n")},
                "empty.jsonl: expected at least one line, got none");

  refused_generate({}, "generate: expected one of --prompt TEXT, --chat TEXT and --prompts FILE");
  refused_generate({"--prompt", "a", "--chat", "b"},
                   "generate: --prompt, --chat and --prompts exclude one another");
  refused_generate({"--prompt", "a", "--max-tokens", "0"}, "--max-tokens");
  refused_generate({"--prompt", "a", "--temperature", "-1"}, "--temperature");
  refused_generate({"--prompt", "a", "--top-p", "1.5"}, "--top-p");
  refused_generate(
      {"--prompt", "a", "--max-tokens", "512"},
      "generate: prompt 0: 1 tokens and 512 new ones are more than the 512 positions of the model");
  refused_generate({"--prompt", "a", "--memory", "1KiB"},
                   "generating 128 tokens behind prompts of up to 1 needs ");
  refused_generate({"--prompts", folder_ / "none"},
                   (folder_ / "none") + ": No such file or directory");
  refused_generate({"--prompts", write("p.jsonl", "{\"prompt\": \"a\"}\n{\"text\": \"b\"}\n")},
                   "p.jsonl:2: expected an object with one of the keys prompt and messages");
  refused_generate({"--prompts", write("p.jsonl", "{\"prompt\": 7}\n")},
                   "p.jsonl:1: prompt: expected a text");
  expect_refused(run(run_generate, {"--model", folder_ / "none", "--prompt", "a"}),
                 "/none: no such file or folder");
}

}  // namespace
}  // namespace stow
