// Files of models from outside, damaged at random: config.json, the index of shards, safetensors
// and GGUF. Whatever stands in them, the readers give an object or one sentence with the name of
// the file, and take little memory. STOW_FUZZ_FILES damaged files of each kind (10000) from
// STOW_FUZZ_SEED (1) on: seconds; 10 million take hours.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmath>
#include <fstream>
#include <functional>
#include <random>

#include "stowage/base/text_file.h"
#include "stowage/io/gguf_weights.h"
#include "stowage/io/rope.h"
#include "stowage/io/safetensors.h"
#include "stowage/io/weights.h"
#include "stowage/text/tokenizer_folder.h"
#include "tests/fuzz/child_process.h"
#include "tests/support/gguf_kit.h"
#include "tests/support/peft_kit.h"
#include "tests/support/source_path.h"
#include "tests/support/temporary_folder.h"

namespace stow {
namespace {

using testing::environment;

// While it lives, the process gets at most so much more memory: an allocation beyond it throws, and
// the test ends. Sanitizers reserve more than there is and are not limited.
class MemoryLimit {
 public:
  explicit MemoryLimit(rlim_t more_bytes) {
    STOW_CHECK(::getrlimit(RLIMIT_AS, &before_) == 0);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    rlim_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    const rlimit limit = {pages * static_cast<rlim_t>(::sysconf(_SC_PAGESIZE)) + more_bytes,
                          before_.rlim_max};
    STOW_CHECK(::setrlimit(RLIMIT_AS, &limit) == 0);
#else
    (void)more_bytes;
#endif
  }
  MemoryLimit(const MemoryLimit&) = delete;
  ~MemoryLimit() {
    ::setrlimit(RLIMIT_AS, &before_);
  }

 private:
  rlimit before_;
};

class Damage {
 public:
  explicit Damage(uint64_t seed) : random_(seed) {}

  size_t below(size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(random_); }

  // A few changes of bytes: flips, cuts, copies, numbers in binary.
  std::string bytes(std::string text) {
    for (size_t i = below(4) + 1; i > 0 && !text.empty(); --i) {
      // The header is where things are decided.
      const size_t at = below(below(2) ? text.size() : std::min<size_t>(text.size(), 512));
      switch (below(7)) {
        case 0:
          text[at] = static_cast<char>(text[at] ^ (1 << below(8)));
          break;
        case 1:
          text[at] = static_cast<char>(below(256));
          break;
        case 2:
          text.resize(at);
          break;
        case 3:
          text.erase(at, below(16));
          break;
        case 4:
          text.insert(at, text.substr(below(text.size()), below(64)));
          break;
        case 5:
          put<uint32_t>(text, at);
          break;
        case 6:
          put<uint64_t>(text, at);
          break;
      }
    }
    return text;
  }

  // A few changes of a text of JSON: other numbers, values and names, and changes of bytes.
  std::string json(std::string text) {
    static constexpr std::string_view kValues[] = {"0",
                                                   "-1",
                                                   "1",
                                                   "2",
                                                   "3",
                                                   "1e300",
                                                   "-1e-300",
                                                   "1e999",
                                                   "0.5",
                                                   "18446744073709551615",
                                                   "9223372036854775807",
                                                   "-9223372036854775808",
                                                   "4294967296",
                                                   "2147483647",
                                                   "16777216",
                                                   "65536",
                                                   "null",
                                                   "true",
                                                   "false",
                                                   "\"\"",
                                                   "\"x\"",
                                                   "\"../x\"",
                                                   "[]",
                                                   "{}",
                                                   "[1, 2]",
                                                   "[[]]",
                                                   "{\"a\": 1}",
                                                   "\"yarn\"",
                                                   "\"llama3\"",
                                                   "\"linear\"",
                                                   "\"sliding_attention\"",
                                                   "\"F32\"",
                                                   "[0, 0]",
                                                   "[4294967296, 4294967296, 0]",
                                                   "\"\\u0000\"",
                                                   "\"\\n\""};
    for (size_t i = below(3) + 1; i > 0 && !text.empty(); --i) {
      if (below(8) == 0) {
        text = bytes(std::move(text));
        continue;
      }
      // The value behind some colon or comma, up to the next mark.
      const size_t from = text.find_first_of(":,[", below(text.size()));
      if (from == std::string::npos) continue;
      const size_t to = text.find_first_of(",]}", from + 1);
      if (to == std::string::npos) continue;
      text.replace(from + 1, to - from - 1, kValues[below(std::size(kValues))]);
    }
    return text;
  }

 private:
  template <typename T>
  void put(std::string& text, size_t at) {
    static constexpr uint64_t kNumbers[] = {0,
                                            1,
                                            2,
                                            3,
                                            8,
                                            9,
                                            31,
                                            255,
                                            65536,
                                            0x7fffffff,
                                            0xffffffff,
                                            uint64_t{1} << 32,
                                            1 << 24,
                                            ~uint64_t{0},
                                            uint64_t{1} << 63,
                                            0x7fffffffffffffff};
    const T value = static_cast<T>(kNumbers[below(std::size(kNumbers))]);
    std::memcpy(text.data() + at, &value, std::min(sizeof value, text.size() - at));
  }

  std::mt19937_64 random_;
};

// One sentence that begins with a path below `folder`.
void expect_sentence(const std::string& error, const std::string& folder) {
  EXPECT_TRUE(error.starts_with(folder)) << error;
  EXPECT_EQ(error.find('\n'), std::string::npos) << error;
  EXPECT_LT(error.size(), folder.size() * 2 + 2000) << error.substr(0, 3000);
}

// Calls `check` for STOW_FUZZ_FILES seeds in a folder of the test's own, within 256 MiB.
void for_seeds(const std::function<void(Damage&, const TemporaryFolder&)>& check,
               uint64_t divide = 1) {
  const uint64_t first = environment("STOW_FUZZ_SEED", 1),
                 count = environment("STOW_FUZZ_FILES", 10000) / divide + 1;
  const TemporaryFolder folder;
  const MemoryLimit limit(256 << 20);
  for (uint64_t seed = first; seed < first + count; ++seed) {
    SCOPED_TRACE(fmt::format("STOW_FUZZ_SEED={}", seed));
    Damage damage(seed);
    check(damage, folder);
    if (::testing::Test::HasFailure()) return;
  }
}

// --- config.json -------------------------------------------------------------------------------

std::vector<std::string> golden_configs() {
  const Result<Json> rows = parse_json(*read_text_file(source_path("tests/data/hf_configs.json")));
  std::vector<std::string> texts;
  for (const Json& row : *rows->as_array()) texts.push_back(row.find("config")->dump());
  return texts;
}

void expect_sound(const HfConfig& c) {
  EXPECT_GE(c.vocab_size, 1);
  EXPECT_EQ(c.num_attention_heads % c.num_key_value_heads, 0);
  EXPECT_EQ(c.head_dim % 2, 0);
  EXPECT_EQ(static_cast<int64_t>(c.sliding_windows.size()), c.num_hidden_layers);
  if (c.head_dim <= 4096) {
    const RopeFrequencies rope = rope_frequencies(c.rope, c.head_dim);
    EXPECT_EQ(static_cast<int64_t>(rope.inv_freq.size()), c.head_dim / 2);
    EXPECT_TRUE(std::isfinite(rope.attention_scaling));
  }
}

TEST(ModelFilesFuzz, Config) {
  const std::vector<std::string> texts = golden_configs();
  uint64_t n_read = 0;
  for_seeds([&](Damage& damage, const TemporaryFolder& folder) {
    const std::string path = folder / "config.json";
    const std::string text = damage.json(texts[damage.below(texts.size())]);
    const Result<HfConfig> config = HfConfig::parse(text, path);
    if (!config) return expect_sentence(config.error(), path);
    ++n_read;
    expect_sound(*config);
    // What was read can be written and is then the same.
    const Result<HfConfig> again = HfConfig::from_json(config->to_json(), path);
    ASSERT_TRUE(again.ok()) << again.error();
    EXPECT_EQ(*again, *config) << text;
    const Result<GenerationConfig> generation = GenerationConfig::parse(text, path);
    if (!generation) expect_sentence(generation.error(), path);
  });
  EXPECT_GT(n_read, 0u);
}

// --- folders -----------------------------------------------------------------------------------

constexpr std::string_view kConfig = R"({"model_type": "llama", "vocab_size": 6, "hidden_size": 4,
    "intermediate_size": 4, "num_hidden_layers": 1, "num_attention_heads": 2,
    "num_key_value_heads": 1, "tie_word_embeddings": true})";

// Writes the model of kConfig in two shards and gives the text of its index.
std::string write_model(const TemporaryFolder& folder) {
  const std::vector<float> zeros(64, 0.0f);
  Json map = Json::object();
  std::vector<TensorBytes> shards[2];
  for (const ModelTensor& tensor : model_tensors(*HfConfig::parse(kConfig, "config.json"))) {
    size_t n = 1;
    for (const int64_t extent : tensor.shape) n *= static_cast<size_t>(extent);
    const size_t shard = map.as_object()->size() % 2;
    shards[shard].push_back(
        {tensor.name, DType::kF32, tensor.shape, std::as_bytes(std::span(zeros).first(n))});
    map.set(tensor.name, shard ? "b.safetensors" : "a.safetensors");
  }
  STOW_CHECK(save_safetensors(folder / "a.safetensors", shards[0]).ok());
  STOW_CHECK(save_safetensors(folder / "b.safetensors", shards[1]).ok());
  write_bytes(folder / "config.json", kConfig);
  return Json::object({{"metadata", Json::object()}, {"weight_map", map}}).dump();
}

// Opens the weights and reads all of them.
bool expect_weights_or_sentence(const std::string& path, const std::string& folder) {
  const auto source = WeightSource::open(path);
  if (!source) return expect_sentence(source.error(), folder), false;
  expect_sound((*source)->config());
  for (const WeightInfo& tensor : (*source)->tensors()) {
    const int64_t n = tensor.n_rows() * tensor.row_elements();
    EXPECT_LT(n, 1 << 20) << tensor.name << ": the file is not as large";
    std::vector<std::byte> out(static_cast<size_t>(n) * 2);
    const Result<void> read = (*source)->read_rows(tensor, 0, tensor.n_rows(), DType::kBF16, out);
    EXPECT_TRUE(read.ok()) << read.error();
  }
  return true;
}

TEST(ModelFilesFuzz, IndexOfShards) {
  std::string index;
  uint64_t n_read = 0;
  for_seeds(
      [&](Damage& damage, const TemporaryFolder& folder) {
        if (index.empty()) index = write_model(folder);
        write_bytes(folder / "model.safetensors.index.json", damage.json(index));
        n_read += expect_weights_or_sentence(folder.path(), folder.path());
      },
      5);
  EXPECT_GT(n_read, 0u);
}

TEST(ModelFilesFuzz, Safetensors) {
  std::string whole;
  for_seeds(
      [&](Damage& damage, const TemporaryFolder& folder) {
        if (whole.empty()) {
          write_bytes(folder / "model.safetensors.index.json", write_model(folder));
          whole = read_bytes(folder / "a.safetensors");
        }
        uint64_t length = 0;
        std::memcpy(&length, whole.data(), sizeof length);
        std::string damaged;
        if (damage.below(2)) {
          damaged = damage.bytes(whole);
        } else {
          const std::string header = damage.json(whole.substr(8, length));
          damaged = GgufBuilder::raw<uint64_t>(header.size()) + header + whole.substr(8 + length);
        }
        write_bytes(folder / "a.safetensors", damaged);
        expect_weights_or_sentence(folder.path(), folder.path());
      },
      5);
}

// --- PEFT --------------------------------------------------------------------------------------

TEST(ModelFilesFuzz, PeftFolders) {
  const nlohmann::json cases = testing::peft_cases()["cases"];
  std::vector<nlohmann::json> all;
  for (const auto& [name, one] : cases.items()) all.push_back(one);
  uint64_t n_configs = 0, n_folders = 0;
  std::map<size_t, std::string> files;
  for_seeds(
      [&](Damage& damage, const TemporaryFolder& folder) {
        const size_t which = damage.below(all.size());
        const HfConfig base = testing::peft_base_config(all[which]["tied"].get<bool>());
        std::string& whole = files[which];
        if (whole.empty()) {
          testing::write_adapter(folder.path(), all[which]["config"],
                                 testing::peft_tensors(all[which]));
          whole = read_bytes(folder / "adapter_model.safetensors");
        }
        const std::string text = all[which]["config"].dump();
        const uint64_t kind = damage.below(3);
        write_bytes(folder / "adapter_config.json", kind == 0 ? text : damage.json(text));
        write_bytes(folder / "adapter_model.safetensors", kind == 0 ? damage.bytes(whole) : whole);
        const Result<PeftConfig> config = PeftConfig::load(folder.path());
        if (!config) return expect_sentence(config.error(), folder.path());
        ++n_configs;
        const Result<PeftConfig> again = PeftConfig::parse(config->to_json().dump(), "x");
        ASSERT_TRUE(again.ok()) << again.error();
        EXPECT_EQ(*again, *config) << text;
        const Result<lm::AdapterFiles> opened =
            lm::AdapterFiles::open(folder.path(), base, nullptr);
        if (!opened) return expect_sentence(opened.error(), folder.path());
        ++n_folders;
        const Result<lm::Adapter> loaded = lm::load_adapter(*opened, base);
        EXPECT_TRUE(loaded.ok()) << loaded.error();
      },
      5);
  EXPECT_GT(n_configs, 0u);
  EXPECT_GT(n_folders, 0u);
}

// --- GGUF --------------------------------------------------------------------------------------

// The GGUF files of the tests, one of them with a tokenizer.
std::vector<std::string> golden_ggufs() {
  std::vector<std::string> files;
  for (const char* name : {"llama", "qwen2", "qwen3"})
    files.push_back(read_bytes(source_path(fmt::format("tests/data/gguf/{}.gguf", name))));
  GgufBuilder words;
  words.string("tokenizer.ggml.model", "gpt2").string("tokenizer.ggml.pre", "qwen2");
  words.strings("tokenizer.ggml.tokens", {"a", "b", "ab", "<|x|>", "\xC4\xA0"});
  words.strings("tokenizer.ggml.merges", {"a b"});
  words.i32s("tokenizer.ggml.token_type", {1, 1, 1, 3, 4});
  words.u32("tokenizer.ggml.bos_token_id", 3).boolean("tokenizer.ggml.add_bos_token", true);
  words.string("tokenizer.chat_template", "{% for m in messages %}{{ m.content }}{% endfor %}");
  files.push_back(words.build());
  GgufBuilder pieces;
  pieces.string("tokenizer.ggml.model", "llama");
  pieces.strings("tokenizer.ggml.tokens", {"<unk>", "a", "b", "ab", "\xE2\x96\x81", "<0x41>"});
  std::string scores = GgufBuilder::raw<uint32_t>(6) + GgufBuilder::raw<uint64_t>(6);
  for (int i = 0; i < 6; ++i) scores += GgufBuilder::raw(-static_cast<float>(i));
  pieces.entry("tokenizer.ggml.scores", 9, scores).u32("tokenizer.ggml.unknown_token_id", 0);
  files.push_back(pieces.build());
  return files;
}

TEST(ModelFilesFuzz, Gguf) {
  const std::vector<std::string> files = golden_ggufs();
  uint64_t n_weights = 0, n_tokenizers = 0;
  for_seeds([&](Damage& damage, const TemporaryFolder& folder) {
    const std::string path = folder / "a.gguf";
    write_bytes(path, damage.bytes(files[damage.below(files.size())]));
    n_weights += expect_weights_or_sentence(path, path);
    if (!GgufFile::is_gguf(path)) return;
    const Result<text::TokenizerFolder> model = text::TokenizerFolder::load(path);
    if (!model) return expect_sentence(model.error(), path);
    ++n_tokenizers;
    const Result<std::vector<int32_t>> ids = model->tokenizer.encode("a b ab <|x|> é 12");
    if (ids) model->tokenizer.decode(*ids);
  });
  EXPECT_GT(n_weights, 0u);
  EXPECT_GT(n_tokenizers, 0u);
}

}  // namespace
}  // namespace stow
