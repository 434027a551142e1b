#include "stowage/train/config.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <set>

#include <array>
#include <cstdlib>
#include <limits>

#include "stowage/base/nearest.h"
#include "stowage/cli/arguments.h"
#include "stowage/train/config_keys.h"
#include "tests/support/source_path.h"
#include "tests/support/temporary_folder.h"

namespace stow {
namespace {

std::string error_of(const std::vector<std::string>& settings) {
  return load_train_config({.settings = settings}).error();
}

class ConfigFile {
 public:
  explicit ConfigFile(std::string_view text) { write_bytes(path(), text); }
  std::string path() const { return folder_ / "run.toml"; }
  Result<TrainConfig> load(const std::vector<std::string>& settings = {}) const {
    return load_train_config({.toml_path = path(), .settings = settings});
  }
  // The error, with the file's name alone for its path.
  std::string error() const {
    std::string error = load().error();
    for (size_t at; (at = error.find(path())) != std::string::npos;)
      error.replace(at, path().size(), "run.toml");
    return error;
  }

 private:
  TemporaryFolder folder_;
};

TEST(Config, DefaultsAreTheDefaultJob) {
  const Result<TrainConfig> config = load_train_config({});
  ASSERT_TRUE(config.ok()) << config.error();
  std::string all;
  for (const auto& [key, value] : config_text(*config))
    if (key != "data.path") all += key + "=" + value + " ";
  EXPECT_EQ(
      all,
      "model.dim=128 model.layers=6 model.heads=4 model.kv_heads=2 model.ffn=344 "
      "model.vocab=256 model.tied=false data.batch=16 data.seq=128 data.accumulate=1 "
      "eval.every=100 eval.patience=0 eval.keep_best=false optimizer.name=adamw "
      "optimizer.lr=0.003 optimizer.schedule=cosine "
      "optimizer.warmup=20 optimizer.weight_decay=0.1 optimizer.clip=1 optimizer.beta1=0.9 "
      "optimizer.beta2=0.95 optimizer.eps=1e-08 optimizer.nesterov=false "
      "optimizer.moments=f32 optimizer.total_steps=300 train.steps=300 train.compute=f32 train.loss_chunk=0 "
      "train.vocab_block=0 train.seed=0 "
      "train.out=out train.checkpoint_every=100 train.ema=0 train.sample=240 "
      "mesh.replica=1 mesh.data=1 mesh.model=1 mesh.sequence=false mesh.parameters=auto "
      "mesh.optimizer=auto runtime.platform=cpu runtime.timeout=60 runtime.reduce=tree "
      "memory.policy=auto memory.activations=auto memory.optimizer=auto "
      "memory.parameters=auto memory.gradients=auto memory.frozen=auto "
      "memory.feed_forward=auto memory.loss=auto ");
}

TEST(Config, FindsTheDefaultTextBesideTheLauncher) {
  const char* before = std::getenv("STOW_ROOT");
  const std::string saved = before ? before : "";
  ::setenv("STOW_ROOT", "/somewhere", 1);
  EXPECT_EQ(load_train_config({})->data.path, "/somewhere/data/corpus.txt");
  ::unsetenv("STOW_ROOT");
  EXPECT_EQ(default_data_path(), source_path("data/corpus.txt"));
  if (before) ::setenv("STOW_ROOT", saved.c_str(), 1);
}

TEST(Config, LaterValuesStandOverEarlierOnes) {
  const ConfigFile file(
      "model.dim = 64\n"
      "[optimizer]\nlr = 1\ntotal_steps = 7\n"
      "[memory]\ndevice = '64MiB'\n");
  const Result<TrainConfig> config = load_train_config(
      {.toml_path = file.path(),
       .settings = {"optimizer.lr=1e-3", "train.seed=1", "train.seed=9223372036854775807"},
       .memory = "1.5GB"});
  ASSERT_TRUE(config.ok()) << config.error();
  EXPECT_EQ(config->model.dim, 64);
  EXPECT_EQ(config->optimizer.lr, 1e-3);
  EXPECT_EQ(config->optimizer.total_steps, 7);
  EXPECT_EQ(config->train.seed, std::numeric_limits<int64_t>::max());
  EXPECT_EQ(config->memory.device, 1500000000);
  EXPECT_EQ(file.load()->memory.device, 64 << 20);
  EXPECT_EQ(ConfigFile("memory.device = 4096").load()->memory.device, 4096);
}

TEST(Config, TomlRoundTripsEveryKey) {
  const std::vector<std::string> sizes = {
      "model.dim=48", "model.layers=3", "model.heads=6", "model.kv_heads=3", "model.ffn=9",
      "model.vocab=300", "model.tied=true", "train.sample=5"};
  const std::vector<std::string> files = {
      "model.path=some/model", "data.pack=true", "data.mask_prompt=false", "data.shuffle=false",
      "data.length_buckets=true", "data.too_long=drop", "eval.batch=6", "eval.seq=3"};
  const std::vector<std::string> common = {"data.accumulate=2",
                                           "eval.patience=4",
                                           "eval.keep_best=true",
                                           "train.ema=0.5",
                                           "memory.frozen=disk",
                                           "data.path=a \"b\"\\\t.txt",
                                           "data.batch=6",
                                           "mesh.replica=2",
                                           "mesh.data=3",
                                           "mesh.model=3",
                                           "mesh.sequence=true",
                                           "mesh.parameters=sharded",
                                           "mesh.optimizer=replicated",
                                           "runtime.timeout=5",
                                           "runtime.reduce=native",
                                           "data.seq=6",
                                           "optimizer.lr=0.1",
                                           "optimizer.warmup=0",
                                           "optimizer.clip=0",
                                           "optimizer.freeze=embed,layers/w?",
                                           "train.steps=12",
                                           "train.seed=13",
                                           "train.out=some/where",
                                           "train.checkpoint_every=0",
                                           "train.eval_every=7",
                                           "train.tensorboard=some/board",
                                           "train.compute=bf16",
                                           "runtime.platform=virtual",
                                           "runtime.disk_folder=some/folder",
                                           "memory.host=5MiB",
                                           "memory.disk=7MiB",
                                           "memory.policy=offload_named",
                                           "memory.activations=disk",
                                           "memory.optimizer=disk",
                                           "memory.parameters=pinned_host",
                                           "memory.gradients=device",
                                           "memory.feed_forward=whole"};
  const TrainConfig defaults = load_train_config({}).value();
  std::set<std::string_view> changed;
  using Lists = std::vector<std::string>;
  const auto join = [](Lists a, const Lists& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
  };
  for (const Lists& own :
       {join(files, {"lora.rank=8", "lora.alpha=3", "lora.targets=q_proj", "lora.rslora=true",
                     "lora.dropout=0.25", "model.dtype=bf16", "eval.data=held.jsonl"}),
        join(files, {"lora.init=some/adapter", "data.valid_fraction=0.125"}),
        join(sizes, {"optimizer.name=lion", "optimizer.weight_decay=0",
                     "optimizer.beta1=0.123456789", "optimizer.beta2=0.999",
                     "optimizer.moments=8bit", "optimizer.total_steps=11", "train.loss_chunk=4"}),
        join(sizes, {"optimizer.name=rmsprop", "optimizer.eps=0.5", "optimizer.momentum=0.25",
                     "optimizer.nesterov=true", "optimizer.schedule=constant",
                     "train.vocab_block=5", "mesh.sequence=false", "mesh.model=1"}),
        join(sizes, {"memory.loss=whole"})}) {
    std::vector<std::string> settings = common;
    settings.insert(settings.end(), own.begin(), own.end());
    const Result<TrainConfig> config =
        load_train_config({.settings = settings, .memory = "123"});
    ASSERT_TRUE(config.ok()) << config.error();
    for (const ConfigKey& key : config_keys())
      if (key_text(key, *config) != key_text(key, defaults)) changed.insert(key.name);
    const ConfigFile file(config_toml(*config));
    EXPECT_EQ(file.error(), "");
    EXPECT_EQ(config_text(*file.load()), config_text(*config));
  }
  // The lists above leave no key out.
  EXPECT_EQ(changed.size(), config_keys().size());
}

TEST(Config, ResumingNeedsWhatChangesTheNumbers) {
  const TrainConfig a = load_train_config({.settings = {"optimizer.total_steps=8"}}).value();
  for (const char* free : {"train.steps=4", "train.out=x", "memory.policy=recompute",
                           "memory.device=9MB", "train.eval_every=1", "data.path=elsewhere"})
    EXPECT_EQ(config_to_resume(
                  load_train_config({.settings = {"optimizer.total_steps=8", free}}).value()),
              config_to_resume(a))
        << free;
  for (const char* bound : {"model.dim=64", "data.batch=1", "optimizer.lr=1", "train.seed=1",
                            "optimizer.name=adam", "optimizer.moments=bf16",
                            "optimizer.freeze=embed"})
    EXPECT_NE(config_to_resume(
                  load_train_config({.settings = {"optimizer.total_steps=8", bound}}).value()),
              config_to_resume(a))
        << bound;
}

TEST(Config, SettingsThatAreWrong) {
  const struct {
    const char* setting;
    const char* error;
  } kWrong[] = {
      {"model.layerz=3",
       "--set model.layerz=3: unknown key 'model.layerz'; did you mean 'model.layers'?"},
      {"layers=3", "--set layers=3: unknown key 'layers'; did you mean 'model.layers'?"},
      {"train.step=3", "--set train.step=3: unknown key 'train.step'; did you mean 'train.steps'?"},
      {"model.dim", "--set model.dim: write --set key=value"},
      {"", "--set : write --set key=value"},
      {"model.dim=", "--set model.dim=: model.dim takes an integer, from 2 to 1048576, not ''"},
      {"model.dim=1e3",
       "--set model.dim=1e3: model.dim takes an integer, from 2 to 1048576, not '1e3'"},
      {"model.dim= 64",
       "--set model.dim= 64: model.dim takes an integer, from 2 to 1048576, not ' 64'"},
      {"train.steps=-1",
       "--set train.steps=-1: train.steps takes an integer, at least 1, not '-1'"},
      {"train.steps=0", "--set train.steps=0: train.steps takes an integer, at least 1, not '0'"},
      {"train.seed=9223372036854775808",
       "--set train.seed=9223372036854775808: train.seed takes an integer, at least 0 and at "
       "most 9223372036854775807, not '9223372036854775808'"},
      {"train.seed=-9223372036854775809",
       "--set train.seed=-9223372036854775809: train.seed takes an integer, at least 0, not "
       "'-9223372036854775809'"},
      {"data.seq=2147483648",
       "--set data.seq=2147483648: data.seq takes an integer, at least 1 and at most 2147483647, "
       "not '2147483648'"},
      {"optimizer.beta1=0.99999999999",
       "--set optimizer.beta1=0.99999999999: optimizer.beta1 takes a number, from 0 to below 1, "
       "not '0.99999999999'"},
      {"model.vocab=255",
       "--set model.vocab=255: model.vocab takes an integer, from 256 to 16777216, not '255'"},
      {"optimizer.lr=nan",
       "--set optimizer.lr=nan: optimizer.lr takes a number, from 0 to 1000, not 'nan'"},
      {"optimizer.lr=1e-400",
       "--set optimizer.lr=1e-400: optimizer.lr takes a number, from 0 to 1000, as an f32; "
       "'1e-400' is 0 there"},
      {"optimizer.eps=1e-50",
       "--set optimizer.eps=1e-50: optimizer.eps takes a number, from 0 to 1, as an f32; "
       "'1e-50' is 0 there"},
      {"optimizer.lr=1e999",
       "--set optimizer.lr=1e999: optimizer.lr takes a number, from 0 to 1000, not '1e999'"},
      {"optimizer.lr=-0.1",
       "--set optimizer.lr=-0.1: optimizer.lr takes a number, from 0 to 1000, not '-0.1'"},
      {"optimizer.beta2=1",
       "--set optimizer.beta2=1: optimizer.beta2 takes a number, from 0 to below 1, not '1'"},
      {"model.tied=yes", "--set model.tied=yes: model.tied takes true or false, not 'yes'"},
      {"data.path=", "--set data.path=: data.path is empty"},
      {"optimizer.name=adamm",
       "--set optimizer.name=adamm: optimizer.name takes one of adamw, adam, sgd, lion, adafactor, "
       "rmsprop, muon, not 'adamm'"},
      {"optimizer.momentum=0.9",
       "optimizer.momentum = 0.9 (--set optimizer.momentum=0.9) has no effect with optimizer.name "
       "= adamw (default); it has one with sgd, rmsprop, adafactor"},
      {"memory.policy=some",
       "--set memory.policy=some: memory.policy takes one of auto, save_all, save_dots, "
       "save_gate, save_named, offload_named, recompute, offload_carries, offload_all, "
       "nested, offload_nested, not 'some'"},
      {"memory.gradients=here",
       "--set memory.gradients=here: memory.gradients takes one of auto, device, pinned_host, "
       "disk, not 'here'"},
      {"memory.gradients=pinned_host",
       "memory.gradients = pinned_host (--set memory.gradients=pinned_host) saves nothing with "
       "runtime.platform = cpu (default): the host's memory is the device's there"},
      {"memory.gradients=disk",
       "memory.gradients = disk (--set memory.gradients=disk) needs space there: set memory.disk"},
      {"memory.policy=offload_nested",
       "memory.policy = offload_nested (--set memory.policy=offload_nested) has nowhere to put "
       "them: set memory.disk, or runtime.platform=virtual"},
      {"memory.device=0",
       "--set memory.device=0: memory.device takes a size such as 64MiB, at least 1, not '0'"},
      {"memory.device=12parsecs",
       "--set memory.device=12parsecs: memory.device: expected a size such as 64MiB, 1.5GB or a "
       "number of bytes, got '12parsecs': 'parsecs' is not a unit"},
      {"model.heads=7",
       "model.heads = 7 (--set model.heads=7) does not divide model.dim = 128 "
       "(default)"},
      {"model.kv_heads=3",
       "model.kv_heads = 3 (--set model.kv_heads=3) does not divide "
       "model.heads = 4 (default)"},
      {"model.dim=20",
       "model.dim = 20 (--set model.dim=20) and model.heads = 4 (default) give "
       "heads of 5; rotary positions need an even size"},
      {"data.seq=2000000000",
       "the scores would have more elements than any memory: data.batch = 16 (default), data.seq = "
       "2000000000 (--set data.seq=2000000000), model.heads = 4 (default)"}};
  for (const auto& [setting, error] : kWrong) EXPECT_EQ(error_of({setting}), error);
  EXPECT_EQ(
      load_train_config({.memory = "12parsecs"}).error(),
      "--memory 12parsecs: memory.device: expected a size such as 64MiB, 1.5GB or a number of bytes, "
      "got '12parsecs': 'parsecs' is not a unit");
}

TEST(Config, SettingsThatHaveNoEffectTogether) {
  EXPECT_EQ(error_of({"runtime.platform=virtual", "memory.policy=nested",
                      "memory.activations=pinned_host"}),
            "memory.activations = pinned_host (--set memory.activations=pinned_host) has no effect "
            "with memory.policy = nested (--set memory.policy=nested); offload_nested moves what "
            "enters each block");
  EXPECT_EQ(error_of({"runtime.platform=virtual", "memory.policy=recompute",
                      "memory.activations=pinned_host"}),
            "memory.activations = pinned_host (--set memory.activations=pinned_host) has no effect "
            "with memory.policy = recompute (--set memory.policy=recompute); set a policy that "
            "offloads");
  EXPECT_EQ(
      error_of({"runtime.platform=virtual", "memory.policy=offload_carries", "model.layers=0"}),
      "memory.policy = offload_carries (--set memory.policy=offload_carries) has no effect with "
      "model.layers = 0 (--set model.layers=0): it moves residuals of layers; set another policy");
  EXPECT_EQ(
      error_of({"train.loss_chunk=257", "data.batch=2", "data.seq=128"}),
      "train.loss_chunk = 257 (--set train.loss_chunk=257) has no effect: a device has 256 tokens "
      "of a microbatch; set fewer");
  EXPECT_EQ(error_of({"train.loss_chunk=256", "data.batch=2", "data.seq=128"}), "");
  EXPECT_EQ(
      error_of({"train.vocab_block=301", "model.vocab=300"}),
      "train.vocab_block = 301 (--set train.vocab_block=301) has no effect with model.vocab = 300 "
      "(--set model.vocab=300); set a smaller block");
  EXPECT_EQ(error_of({"runtime.platform=virtual", "memory.policy=offload_nested",
                      "memory.activations=pinned_host", "memory.gradients=pinned_host"}),
            "");
  EXPECT_EQ(error_of({"optimizer.name=sgd", "optimizer.moments=bf16"}),
            "optimizer.moments = bf16 (--set optimizer.moments=bf16) has no effect with "
            "optimizer.momentum = 0 (default): there is no moment; set optimizer.momentum");
  EXPECT_EQ(
      error_of({"train.vocab_block=8", "train.loss_chunk=8"}),
      "train.vocab_block = 8 (--set train.vocab_block=8) does not go with train.loss_chunk = 8 "
      "(--set train.loss_chunk=8): logits are cut by tokens or by words");
  EXPECT_EQ(error_of({"memory.loss=whole", "train.loss_chunk=8"}),
            "memory.loss = whole (--set memory.loss=whole) does not go with train.loss_chunk = 8 "
            "(--set train.loss_chunk=8), which says how the loss is computed");
  EXPECT_EQ(
      error_of({"memory.loss=chunked", "train.vocab_block=8"}),
      "memory.loss = chunked (--set memory.loss=chunked) does not go with train.vocab_block = 8 "
      "(--set train.vocab_block=8), which says how the loss is computed");
  EXPECT_EQ(
      error_of({"memory.loss=chunked", "train.compute=bf16"}),
      "memory.loss = chunked (--set memory.loss=chunked) would change numbers with "
      "train.compute = bf16 (--set train.compute=bf16): gradients of weights are rounded once a "
      "chunk");
  EXPECT_EQ(
      error_of({"memory.loss=chunked", "data.batch=2"}),
      "memory.loss = chunked (--set memory.loss=chunked) has no effect: a chunk has 256 tokens, "
      "and a device has 256 of a microbatch; leave it out");
  EXPECT_EQ(error_of({"memory.loss=chunked", "model.layers=0"}), "");
}

TEST(Config, FilesThatAreWrong) {
  const struct {
    const char* text;
    const char* error;
  } kWrong[] = {
      {"# one\n[model]\nlayerz = 3\n",
       "run.toml:3: unknown key 'model.layerz'; did you mean 'model.layers'?"},
      {"[modle]\ndim = 3\n", "run.toml:2: unknown key 'modle.dim'; did you mean 'model.dim'?"},
      {"\n[modle]\n", "run.toml:2: unknown key 'modle'; did you mean 'mesh.model'?"},
      {"dim = 3", "run.toml:1: unknown key 'dim'; did you mean 'model.dim'?"},
      {"model = 3", "run.toml:1: 'model' is a section of keys, not a key"},
      {"[[model]]\ndim = 64", "run.toml:1: 'model' is a section of keys, written [model]"},
      {"[model.dim]\nx = 1",
       "run.toml:1: model.dim takes an integer, from 2 to 1048576, not a value of this kind"},
      {"model.dim = [1]",
       "run.toml:1: model.dim takes an integer, from 2 to 1048576, not a value of this kind"},
      {"model.dim = '64'", "run.toml:1: model.dim takes an integer, from 2 to 1048576, not '64'"},
      {"model.dim = 64.0", "run.toml:1: model.dim takes an integer, from 2 to 1048576, not 64.0"},
      {"optimizer.lr = inf", "run.toml:1: optimizer.lr takes a number, from 0 to 1000, not inf"},
      {"train.out = 1979-05-27", "run.toml:1: train.out takes a text, not a value of this kind"},
      {"train.out = 'a\\u0000'\ntrain.out = 1",
       "run.toml:2: Error while parsing key-value pair: cannot redefine existing string "
       "'train.out'"},
      {"train.out = \"a\\u0000\"", "run.toml:1: train.out holds a zero byte"},
      {"memory.device = -1",
       "run.toml:1: memory.device takes a size such as 64MiB, at least 1, not -1"},
      // The first by line, not by name.
      {"[train]\nsteps = 0\n[data]\nbatch = 0",
       "run.toml:2: train.steps takes an integer, at least 1, not 0"},
      {"[model]\n\nheads = 7\n",
       "model.heads = 7 (run.toml:3) does not divide model.dim = 128 (default)"}};
  for (const auto& [text, error] : kWrong) EXPECT_EQ(ConfigFile(text).error(), error) << text;
  EXPECT_TRUE(ConfigFile("[model]\n").load().ok());
  EXPECT_TRUE(ConfigFile("").load().ok());
  EXPECT_FALSE(ConfigFile("x = " + std::string(100000, '[')).load().ok());
  EXPECT_FALSE(ConfigFile("a\xff").load().ok());
  // The parser alone would go down this key until the stack ends.
  std::string deep = "\na";
  for (int i = 0; i < 200000; ++i) deep += ".a";
  EXPECT_EQ(ConfigFile(deep + " = 1\n").error(),
            "run.toml:2: has more than 64 dots: keys do not nest that deep");
  // Of a key alone: not of what is quoted or said beside it, nor of several.
  std::string dots;
  for (int i = 0; i < 100; ++i) dots += ".a";
  for (const char* form : {"# {}\n", "train.out = 'x{}'\n", "train.out = \"\\\"{}\"\n",
                           "train.out = '''\n'{}''''\n", "train.out = \"\"\"\n\\\"\"{}\"\"\"\n"})
    EXPECT_EQ(ConfigFile(fmt::format(fmt::runtime(form), dots)).error(), "") << form;
  for (const char* form :
       {"x = {{ a = '', b{} = 1 }}\n", "x = {{ a = ''''a'''', b{} = 1 }}\n", "[a{}]\n",
        "x = [{{ \"\"{} = 1 }}]\n", "x = \"\"\"#\\\"\"\"\" #\na{} = 1"})
    EXPECT_NE(ConfigFile(fmt::format(fmt::runtime(form), dots)).error().find("64 dots"),
              std::string::npos)
        << form;
  EXPECT_EQ(load_train_config({.toml_path = "/no/such.toml"}).error(),
            "/no/such.toml: No such file or directory");
}

TEST(Config, HelpHasEveryKey) {
  for (const ConfigKey& key : config_keys())
    EXPECT_NE(config_help().find(key.name), std::string::npos) << key.name;
}

Result<CommandLine> parse(std::vector<std::string> arguments) {
  return parse_train_arguments("train", "Trains", arguments);
}

TEST(Arguments, AreReadInAnyOrder) {
  const ConfigFile file("model.dim = 64");
  const Result<CommandLine> line = parse({"--json", "-", "--set", "data.seq=5", file.path(),
                                          "--resume", "--memory", "1KiB", "--set=data.batch=[2]"});
  EXPECT_EQ(line.error(),
            "--set data.batch=[2]: data.batch takes an integer, at least 1, not '[2]'");
  const Result<CommandLine> good =
      parse({"--json", "-", "--set", "data.seq=5", file.path(), "--resume", "--memory", "1KiB",
             "--set=train.out=[a,b]", "--set", "train.steps=2"});
  ASSERT_TRUE(good.ok()) << good.error();
  EXPECT_EQ(good->config.model.dim, 64);
  EXPECT_EQ(good->config.data.seq, 5);
  EXPECT_EQ(good->config.train.out, "[a,b]");
  EXPECT_EQ(good->config.train.steps, 2);
  EXPECT_EQ(good->config.memory.device, 1024);
  EXPECT_EQ(good->memory_text, "1KiB");
  EXPECT_EQ(good->json_path, "-");
  EXPECT_TRUE(good->resume);
  EXPECT_EQ(good->help, "");
  EXPECT_FALSE(parse({})->resume);
}

TEST(Arguments, ThatAreWrong) {
  EXPECT_EQ(parse({"--sett", "a=b"}).error(),
            "train: The following argument was not expected: --sett (see ./stowage train --help)");
  EXPECT_EQ(parse({"--json"}).error(),
            "train: --json: 1 required FILE missing (see ./stowage train --help)");
  EXPECT_EQ(parse({"--memory", ""}).error(), "train: --memory is empty");
  EXPECT_EQ(parse({"--memory", "12parsecs"}).error().substr(0, 18), "--memory 12parsecs");
  EXPECT_FALSE(parse({"a.toml", "b.toml"}).ok());
  EXPECT_NE(parse({"--help"})->help.find("model.kv_heads"), std::string::npos);
}

TEST(Nearest, CountsEdits) {
  EXPECT_EQ(edit_distance("", ""), 0);
  EXPECT_EQ(edit_distance("abc", ""), 3);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3);
  EXPECT_EQ(edit_distance("flaw", "lawn"), 2);
}

TEST(Nearest, PrefersTheSameSection) {
  const std::vector<std::string> names = {"data.batch", "model.dim", "model.heads",
                                          "model.kv_heads"};
  EXPECT_EQ(nearest_name("model.head", names), "model.heads");
  EXPECT_EQ(nearest_name("kvheads", names), "model.kv_heads");
  EXPECT_EQ(nearest_name("batch", names), "data.batch");
  EXPECT_EQ(nearest_name("x", {}), "");
}

}  // namespace
}  // namespace stow
