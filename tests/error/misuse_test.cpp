// What misuse of transforms, optimizers, files and the command line is told: exact messages, in a
// table. "@" stands for the place in this file, FOLDER for a folder that is empty to begin with.
#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <regex>

#include "stowage/cli/allocate.h"
#include "stowage/cli/commands.h"
#include "stowage/io/safetensors.h"
#include "stowage/stowage.h"
#include "tests/support/temporary_folder.h"

namespace stow {
namespace {

using optim::OptState;

struct Net {
  Array w, b;
};
STOW_TREE(Net, w, b);

Array f32(Shape shape) {
  return Array::abstract(std::move(shape));
}
Net abstract_net() {
  return {f32({2, 2}), f32({2})};
}

// Where files are, for cases that write some.
const std::string& folder() {
  static const TemporaryFolder folder;
  static const std::string path = folder.path();
  return path;
}
std::string file(const std::string& name, const std::string& text) {
  const std::string path = folder() + "/" + name;
  std::ofstream(path) << text;
  return path;
}

template <typename T>
void must(const Result<T>& result) {
  if (!result) throw TraceError(result.error());
}
void train(std::vector<std::string> arguments) {
  must(run_train(arguments));
}
void run(std::vector<std::string> arguments) {
  must(run_graph_file(arguments));
}
void bench(std::vector<std::string> arguments) {
  must(run_bench(arguments));
}
// What it writes on stderr, where it is refused.
void allocate(std::vector<std::string> arguments) {
  std::string name = "allocate";
  std::vector<char*> argv = {name.data()};
  for (std::string& argument : arguments) argv.push_back(argument.data());
  testing::internal::CaptureStderr();
  const int status = cli::run_allocate(static_cast<int>(argv.size()), argv.data());
  const std::string text = testing::internal::GetCapturedStderr();
  if (status == 1) throw TraceError(text);
}
void safetensors(const std::string& header, const std::string& data) {
  std::string text(8, '\0');
  for (size_t i = 0; i < 8; ++i) text[i] = static_cast<char>(header.size() >> (8 * i) & 255);
  must(SafetensorsFile::open(file("x.safetensors", text + header + data)));
}

struct Case {
  const char* name;
  std::function<void()> run;
  const char* message;
};

const Case kCases[] = {
    // ---- calls of jitted functions ----
    {"compiled_for_another_type",
     [] { jit([](Array x) { return x * 2; }).lower(f32({4})).compile()(ones({5})); },
     "[jit] expected argument 0 to be f32[4], as compiled, got f32[5]\n  at @"},
    {"compiled_for_another_structure",
     [] {
       jit([](const std::vector<Array>& x) { return x[0] * 2; })
           .lower(std::vector<Array>{f32({4})})
           .compile()(std::vector<Array>{ones({4}), ones({4})});
     },
     "[jit] expected arguments of the structure that it was compiled for, with 1 leaves, got 2\n"
     "  at @"},
    {"donated_and_used",
     [] {
       const Array x = ones({4});
       jit([](Array a) { return a * 2; }, {.donate_argnums = {0}, .name = "step"})(x);
       x + 1;
     },
     "[array] f32[4] made at @ was donated to step at @ and cannot be used again\n  at @"},
    {"donated_twice",
     [] {
       const Array x = ones({4});
       jit([](Array a, Array b) { return a + b; }, {.donate_argnums = {0}})(x, x);
     },
     "[jit] argument 0 is donated, and the same array is argument 1; donate a copy\n  at @"},
    {"empty_argument", [] { jit([](Array x) { return x; })(Array()); },
     "[array] an empty Array has no type; assign one before it is used\n  at @"},

    // ---- gradients and scans ----
    {"vjp_structure",
     [] {
       const auto [y, pullback] =
           vjp([](const std::vector<Array>& x) { return x; }, std::vector<Array>{f32({2})});
       pullback(std::vector<Array>{});
     },
     "[vjp] output and cotangent: the structures differ at the root: a list of 1 there, a list of "
     "0 "
     "here\n"
     "  at @"},
    {"vjp_type",
     [] {
       const auto [y, pullback] = vjp([](Array x) { return x * 2; }, f32({2}));
       pullback(f32({3}));
     },
     "[vjp] expected a cotangent f32[2] for output, got f32[3]\n"
     "  at @"},
    {"grad_of_nothing",
     [] { grad([](const std::vector<Array>&) { return Array(1.0f); })(std::vector<Array>{}); },
     "[grad] nothing to differentiate by: no leaf of the argument is of a float type\n  at @"},
    {"scan_body_structure",
     [] {
       scan([](const std::vector<Array>& c, Array x) { return std::vector<Array>{c[0] + x, x}; },
            std::vector<Array>{f32({})}, f32({3}));
     },
     "[scan] the carry and what the body returns for it: the structures differ at the root: a list "
     "of 1 there, a list of 2 here\n"
     "  at @"},

    // ---- optimizers ----
    {"freeze_misspelled",
     [] { optim::selective_transform(optim::sgd(0.1), {"v"}).init(abstract_net()); },
     "[freeze] the mask's pattern 'v' fits no leaf; the nearest is 'w'\n  at @"},
    {"mask_misspelled",
     [] {
       optim::adamw(0.1, {.mask = {"w", "bias"}}).init(abstract_net());
     },
     "[weight_decay] the mask's pattern 'bias' fits no leaf; the nearest is 'b'\n  at @"},
    {"state_of_another_optimizer",
     [] {
       const Net net = abstract_net();
       optim::adam(0.1).update(net, optim::sgd(0.1, {.momentum = 0.9}).init(net), net);
     },
     "[update] expected 'adam/count' in the state, got none: it is of another optimizer or other "
     "parameters\n"
     "  at @"},
    {"state_of_other_parameters",
     [] {
       const auto opt = optim::sgd(0.1, {.momentum = 0.9});
       opt.update(f32({2}), opt.init(f32({3})), f32({2}));
     },
     "[update] expected the state's 'trace/trace/' to be f32[2], got f32[3]: it is of other "
     "parameters\n"
     "  at @"},
    {"state_on_the_host",
     [] {
       const auto opt = optim::sgd(0.1, {.momentum = 0.9});
       opt.update(f32({2}), device_put(opt.init(f32({2})), MemoryKind::kPinnedHost), f32({2}));
     },
     "[update] the state's 'trace/trace/' lies on pinned_host, expected it on device: move the "
     "state "
     "there with device_put before the update, and its result back\n"
     "  at @"},
    {"state_too_large",
     [] {
       const Net net = abstract_net();
       optim::sgd(0.1).update(net, optim::adam(0.1).init(net), net);
     },
     "[update] the state has 'adam/count', which this optimizer does not keep; make the state with "
     "its init()\n  at @"},
    {"update_of_another_shape", [] { optim::sgd(0.1).update(f32({3}), {}, f32({2})); },
     "[update] expected an update of the shape of f32[2] for '', got f32[3]\n  at @"},
    {"update_of_another_structure",
     [] {
       const std::vector<Array> one = {f32({2})}, two = {f32({2}), f32({2})};
       optim::sgd(0.1).update(one, {}, two);
     },
     "[update] updates and params: the structures differ at the root: a list of 1 there, a list of "
     "2 here\n"
     "  at @"},
    {"empty_parameter",
     [] {
       optim::sgd(0.1).init(Net{f32({2}), {}});
     },
     "[init] parameter 'b' is an empty Array\n  at @"},
    {"muon_of_a_vector",
     [] {
       optim::muon(0.1, {.matrices = {"w", "b"}}).init(abstract_net());
     },
     "[muon] expected a matrix, got f32[2] for 'b'; leave it to another optimizer with a mask\n  "
     "at @"},
    {"muon_coefficients",
     [] {
       optim::muon(0.1, {.ns_coeffs = {{1, 2, 3}, {1, 2, 3}}});
     },
     "[muon] expected one set of Newton-Schulz coefficients, or one for each of 5 steps, got 2"},
    {"partition_label",
     [] {
       optim::partition({{"a", optim::sgd(0.1)}},
                        [](const std::string& path, const Array&) { return path; })
           .init(abstract_net());
     },
     "[partition] expected the label of a transformation, 'a', got 'w' for 'w'\n  at @"},
    {"multi_steps", [] { optim::multi_steps(optim::sgd(0.1), 0); },
     "[multi_steps] expected a positive k, got 0"},
    {"cosine_steps", [] { optim::cosine_decay_schedule(1.0, 0); },
     "[cosine_decay_schedule] expected a positive decay_steps, got 0"},
    {"warmup_longer_than_all", [] { optim::warmup_cosine_decay_schedule(0, 1, 10, 10); },
     "[warmup_cosine_decay_schedule] expected decay_steps above warmup_steps 10, got 10"},
    {"onecycle_steps", [] { optim::linear_onecycle_schedule(-1, 1.0); },
     "[linear_onecycle_schedule] expected a positive transition_steps, got -1"},
    {"join_boundaries",
     [] {
       optim::join_schedules({optim::constant_schedule(1), optim::constant_schedule(2)}, {});
     },
     "[join_schedules] 2 schedules need 1 boundaries, got 0"},
    {"join_order",
     [] {
       const auto one = optim::constant_schedule(1);
       optim::join_schedules({one, one, one}, {9, 3});
     },
     "[join_schedules] expected boundaries that rise, got 9, 3"},
    {"negative_scale",
     [] {
       optim::piecewise_constant_schedule(1.0, {{3, -1.0}});
     },
     "[piecewise_constant_schedule] expected a scale of 0 or more at 3, got -1"},

    // ---- the command line and its configuration ----
    {"no_such_flag", [] { train({"--resum"}); },
     "train: The following argument was not expected: --resum (see ./stowage train --help)"},
    {"empty_option",
     [] {
       train({"--trace", ""});
     },
     "train: --trace is empty"},
    {"empty_option_of_run",
     [] {
       run({"g.txt", "--memory", ""});
     },
     "run: --memory is empty"},
    {"empty_option_of_bench_step",
     [] {
       bench({"step", "--dtype", ""});
     },
     "bench step: --dtype is empty"},
    {"empty_option_of_a_program",
     [] {
       bench({"program1", "--dump", ""});
     },
     "bench program1: --dump is empty"},
    {"empty_option_of_calibrate",
     [] {
       const std::vector<std::string> arguments = {"--output", ""};
       must(run_calibrate(arguments));
     },
     "calibrate: --output is empty"},
    {"empty_option_of_allocate",
     [] {
       allocate({"x.csv", "--capacity", ""});
     },
     "stowage allocate: --capacity is empty\n"},
    {"dtype_of_bench_step",
     [] {
       bench({"step", "--dtype", "f16"});
     },
     "bench step: --dtype takes f32 or bf16, not 'f16'"},
    {"json_over_the_configuration",
     [] {
       const std::string path = file("a.toml", "");
       train({path, "--json", folder() + "/./a.toml"});
     },
     "train: --json would write over FOLDER/./a.toml, which is CONFIG.toml"},
    {"trace_over_the_text",
     [] {
       const std::string path = file("text.txt", "a");
       train({"--set", "data.path=" + path, "--trace", path});
     },
     "train: --trace would write over FOLDER/text.txt, which is data.path"},
    {"json_and_trace_in_one",
     [] {
       train({"--json", folder() + "/new", "--trace", folder() + "/./new"});
     },
     "train: --json and --trace would both write FOLDER/./new"},
    {"json_and_trace_in_one_that_is_not_there",
     [] {
       train({"--json", "not/there.json", "--trace", "./not/there.json"});
     },
     "train: --json and --trace would both write ./not/there.json"},
    {"output_over_the_graph",
     [] {
       const std::string path = file("g.txt", "graph() {}");
       run({path, "--output", path});
     },
     "run: --output would write over FOLDER/g.txt, which is the graph"},
    {"output_to_stdout",
     [] {
       run({"g.txt", "--output", "-"});
     },
     "run: --output takes a file, not standard output"},
    {"json_over_the_weights",
     [] {
       const std::string path = file("w.safetensors", "");
       bench({"step", "--weights", path, "--json", path});
     },
     "bench step: --json would write over FOLDER/w.safetensors, which is --weights"},
    {"json_over_the_buffers",
     [] {
       const std::string path = file("x.csv", "id,lower,upper,size\na,0,1,1\n");
       allocate({path, "--json", path});
     },
     "stowage allocate: --json would write over FOLDER/x.csv, which is the file to be read\n"},
    {"drawing_over_the_packing",
     [] {
       allocate({"-", "--svg", folder() + "/o", "--output", folder() + "/o"});
     },
     "stowage allocate: --svg and --output would both write FOLDER/o\n"},
    {"no_such_file", [] { train({"/no/such.toml"}); }, "/no/such.toml: No such file or directory"},
    {"no_such_key",
     [] {
       train({"--set", "optimizer.momentun=0.9"});
     },
     "--set optimizer.momentun=0.9: unknown key 'optimizer.momentun'; did you mean "
     "'optimizer.momentum'?"},
    {"no_such_optimizer",
     [] {
       train({"--set", "optimizer.name=adam2"});
     },
     "--set optimizer.name=adam2: optimizer.name takes one of adamw, adam, sgd, lion, adafactor, "
     "rmsprop, muon, not 'adam2'"},
    {"key_without_effect",
     [] {
       train({"--set", "optimizer.name=sgd", "--set", "optimizer.beta1=0.8"});
     },
     "optimizer.beta1 = 0.8 (--set optimizer.beta1=0.8) has no effect with optimizer.name = sgd "
     "(--set optimizer.name=sgd); it has one with adamw, adam, lion, muon"},
    {"frozen_misspelled",
     [] {
       train({"--set", "optimizer.freeze=layer", "--set", "train.out=" + folder() + "/out"});
     },
     "optimizer.freeze: the pattern 'layer' fits no leaf; the nearest is 'layers'"},
    {"muon_without_matrices",
     [] {
       train({"--set", "optimizer.name=muon", "--set", "optimizer.freeze=layers/w*"});
     },
     "optimizer.name = muon has nothing to take with optimizer.freeze = layers/w*: all of the "
     "model's matrices are frozen; set another optimizer or freeze less"},
    {"toml_syntax", [] { train({file("a.toml", "[model\n")}); },
     "FOLDER/a.toml:1: Error while parsing table header: expected ']', saw '\\n'"},
    {"toml_value", [] { train({file("a.toml", "[data]\n\nbatch = 'many'\n")}); },
     "FOLDER/a.toml:3: data.batch takes an integer, at least 1, not 'many'"},
    {"data_missing",
     [] {
       train({"--set", "data.path=/no/such/text"});
     },
     "/no/such/text: No such file or directory"},
    {"data_too_short",
     [] {
       train({"--set", "data.path=" + file("short.txt", "too short")});
     },
     "FOLDER/short.txt: 9 B are too few for data.seq=128: a tenth is held out and must hold 129 "
     "bytes"},
    {"data_without_an_end",
     [] {
       train({"--set", "data.path=/dev/zero"});
     },
     "/dev/zero: is not a regular file"},
    {"resume_without_checkpoint",
     [] {
       train({"--resume", "--set", "train.out=" + folder() + "/new", "--set", "model.layers=0",
              "--set", "data.batch=1", "--set", "data.seq=8"});
     },
     "FOLDER/new: expected a checkpoint to resume from, got none; leave --resume out to begin"},
    {"profile_of_a_disk",
     [] {
       const std::vector<std::string> arguments = {"--set", "memory.disk=1GiB"};
       must(run_profile(arguments));
     },
     "memory.disk has no effect: everything lies in this machine's memory; leave it out"},
    {"graph_missing", [] { run({"/no/such.txt"}); }, "/no/such.txt: No such file or directory"},
    {"graph_syntax", [] { run({file("g.txt", "graph(%0: f33[2]) { return %0 }")}); },
     "FOLDER/g.txt:1:11: expected a type such as f32[8,64], found 'f33'"},
    {"graph_type",
     [] {
       run({file("g.txt",
                 "graph(%0: f32[2], %1: f32[3]) {\n  %2 = add(%0, %1) : f32[2]\n  return %2 }")});
     },
     "FOLDER/g.txt:2: [add] operands differ in shape: f32[2] and f32[3]\n"
     "  in %2 = add(%0, %1) : f32[2]"},

    // ---- files ----
    {"safetensors_short", [] { must(SafetensorsFile::open(file("x.safetensors", "abc"))); },
     "FOLDER/x.safetensors: is not a safetensors file: expected at least 8 bytes, got 3"},
    {"safetensors_header", [] { safetensors("{", ""); },
     "FOLDER/x.safetensors: the header is not JSON that can be read: a syntax error at byte 2"},
    {"safetensors_overlap",
     [] {
       safetensors(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                   R"("b":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
                   "abcd");
     },
     "FOLDER/x.safetensors: tensor \"b\" begins at 0 of the data, inside the one that ends at 4"},
    {"safetensors_size",
     [] { safetensors(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", "abcd"); },
     "FOLDER/x.safetensors: tensor \"a\": data_offsets hold 4 bytes, f32[2] needs 8"},
    {"safetensors_dtype",
     [] { safetensors(R"({"a":{"dtype":"F4","shape":[1],"data_offsets":[0,4]}})", "abcd"); },
     "FOLDER/x.safetensors: tensor \"a\": dtype \"F4\" is not supported; supported are F64, F32, "
     "BF16, F16, I64, I32, I8, U64, U32, U8, BOOL"},
};

std::string message_of(const Case& c) {
  std::string text = "no error";
  try {
    c.run();
  } catch (const TraceError& error) {
    text = error.what();
  } catch (const CapacityError& error) {
    text = error.what();
  }
  for (size_t at; (at = text.find(folder())) != std::string::npos;)
    text.replace(at, folder().size(), "FOLDER");
  return std::regex_replace(text, std::regex("misuse_test\\.cpp:[0-9]+"), "@");
}

class Misuse : public testing::TestWithParam<Case> {};
TEST_P(Misuse, IsToldExactly) {
  EXPECT_EQ(message_of(GetParam()), GetParam().message);
}
INSTANTIATE_TEST_SUITE_P(Table, Misuse, testing::ValuesIn(kCases),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace stow
