#include "stowage/io/weights.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>

#include "stowage/core/scalar.h"
#include "stowage/io/float_convert.h"
#include "stowage/io/safetensors.h"
#include "tests/support/source_path.h"
#include "tests/support/temporary_folder.h"

namespace stow {
namespace {

// --- conversion --------------------------------------------------------------------------------

TEST(FloatConvert, HalvesEqualTheScalarConversionsOfCore) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    const std::span<const std::byte> bytes = std::as_bytes(std::span(&half, 1));
    const double f16 = decode_scalar(DType::kF16, bytes), bf16 = decode_scalar(DType::kBF16, bytes);
    const float wide = f16_to_f32(half), bwide = bf16_to_f32(half);
    ASSERT_TRUE(wide == f16 || (std::isnan(wide) && std::isnan(f16))) << bits;
    ASSERT_EQ(std::signbit(wide), (bits & 0x8000u) != 0) << bits;
    ASSERT_TRUE(bwide == bf16 || (std::isnan(bwide) && std::isnan(bf16))) << bits;
    if (std::isnan(f16))
      ASSERT_TRUE(std::isnan(f16_to_f32(f32_to_f16(wide)))) << bits;
    else
      ASSERT_EQ(f32_to_f16(wide), half);
  }
}

TEST(FloatConvert, RoundsToNearestEven) {
  uint32_t state = 1;
  for (int i = 0; i < 400'000; ++i) {
    state = state * 1664525u + 1013904223u;
    // Every sixth is a tie or beside one.
    uint32_t bits = state ^ (state >> 16);
    if (i % 6 == 0) bits = (bits & 0xffffe000u) | 0x1000u | (static_cast<uint32_t>(i / 6) % 3u);
    if (i % 6 == 1) bits = (bits & 0xffff0000u) | 0x8000u;
    if (i % 6 == 2) bits = (bits & 0x807fffffu) | ((96u + (bits >> 23) % 64u) << 23);
    const float value = std::bit_cast<float>(bits);
    if (std::isnan(value)) continue;
    for (const DType to : {DType::kF16, DType::kBF16}) {
      const std::vector<std::byte> expected = *encode_scalar(to, static_cast<double>(value));
      std::byte got[2];
      convert_from_f32(std::span(&value, 1), to, got);
      ASSERT_EQ(std::memcmp(got, expected.data(), 2), 0) << hex_float(value);
    }
  }
}

TEST(FloatConvert, ConvertsAnyLengthBetweenAnyTwo) {
  constexpr DType kAll[] = {DType::kF32, DType::kBF16, DType::kF16};
  for (const size_t n : {0u, 1u, 255u, 256u, 257u, 1000u})
    for (const DType from : kAll)
      for (const DType to : kAll) {
        std::vector<std::byte> in, out(n * static_cast<size_t>(dtype_bytes(to)) + 1);
        out.back() = std::byte{0x5a};
        for (size_t i = 0; i < n; ++i) {
          const auto element = *encode_scalar(from, 0.25 * static_cast<double>(i) - 20.0);
          in.insert(in.end(), element.begin(), element.end());
        }
        convert_floats(from, in, to, std::span(out).first(out.size() - 1));
        for (size_t i = 0; i < n; ++i) {
          const double value = decode_scalar(
              from, std::span(in).subspan(i * static_cast<size_t>(dtype_bytes(from))));
          const double got =
              decode_scalar(to, std::span(out).subspan(i * static_cast<size_t>(dtype_bytes(to))));
          ASSERT_EQ(got, decode_scalar(to, *encode_scalar(to, value)));
        }
        EXPECT_EQ(out.back(), std::byte{0x5a});
      }
}

// --- folders -----------------------------------------------------------------------------------

constexpr std::string_view kConfig = R"({"model_type": "llama", "vocab_size": 10, "hidden_size": 8,
    "intermediate_size": 12, "num_hidden_layers": 1, "num_attention_heads": 2,
    "num_key_value_heads": 1, "max_position_embeddings": 64, "torch_dtype": "float32"})";

// Tensors of a model whose element i of tensor t is t + i / 1024.
struct Tensors {
  explicit Tensors(const HfConfig& config) : all(model_tensors(config)) {
    for (size_t t = 0; t < all.size(); ++t) {
      size_t n = 1;
      for (const int64_t extent : all[t].shape) n *= static_cast<size_t>(extent);
      std::vector<float> values(n);
      for (size_t i = 0; i < n; ++i)
        values[i] = static_cast<float>(t) + static_cast<float>(i) / 1024.0f;
      data.push_back(std::move(values));
    }
  }
  TensorBytes bytes(size_t t) const {
    return {all[t].name, DType::kF32, all[t].shape, std::as_bytes(std::span(data[t]))};
  }
  // Saves the tensors [begin, end) and `more`.
  void save(const std::string& path, size_t begin, size_t end,
            std::vector<TensorBytes> more = {}) const {
    for (size_t t = begin; t < end; ++t) more.push_back(bytes(t));
    const Result<void> saved = save_safetensors(path, more);
    STOW_CHECK(saved.ok(), "{}", saved.error());
  }

  std::vector<ModelTensor> all;
  std::vector<std::vector<float>> data;
};

class WeightFolder : public testing::Test {
 protected:
  WeightFolder() : tensors_(*HfConfig::parse(kConfig, "config.json")) {
    write_bytes(folder_ / "config.json", kConfig);
  }
  // Two shards and an index over all tensors but those that `skip` names.
  void write_shards(std::string_view second = "model-00002-of-00002.safetensors",
                    std::string_view skip = "") {
    const size_t half = tensors_.all.size() / 2;
    tensors_.save(folder_ / "model-00001-of-00002.safetensors", 0, half);
    tensors_.save(folder_ / "model-00002-of-00002.safetensors", half, tensors_.all.size());
    Json map = Json::object();
    for (size_t t = 0; t < tensors_.all.size(); ++t)
      if (tensors_.all[t].name != skip)
        map.set(tensors_.all[t].name, t < half ? "model-00001-of-00002.safetensors" : second);
    write_index(map);
  }
  void write_index(const Json& map) {
    write_bytes(folder_ / "model.safetensors.index.json",
                Json::object({{"metadata", Json::object({{"total_size", 1}})}, {"weight_map", map}})
                    .dump());
  }
  // The reason alone, without the path of the folder.
  std::string refusal() {
    const auto source = WeightSource::open(folder_.path());
    if (source.ok()) return "";
    EXPECT_EQ(source.error().find('\n'), std::string::npos);
    EXPECT_TRUE(source.error().starts_with(folder_.path())) << source.error();
    std::string text = source.error().substr(folder_.path().size());
    for (size_t at; (at = text.find(folder_.path())) != std::string::npos;)
      text.replace(at, folder_.path().size(), "FOLDER");
    return text;
  }
  void expect_all(const WeightSource& source) {
    ASSERT_EQ(source.tensors().size(), tensors_.all.size());
    for (size_t t = 0; t < tensors_.all.size(); ++t) {
      const WeightInfo* info = source.find(tensors_.all[t].name);
      ASSERT_NE(info, nullptr);
      EXPECT_EQ(info->shape, tensors_.all[t].shape);
      std::vector<float> out(tensors_.data[t].size());
      ASSERT_TRUE(source
                      .read_rows(*info, 0, info->n_rows(), DType::kF32,
                                 std::as_writable_bytes(std::span(out)))
                      .ok());
      EXPECT_EQ(out, tensors_.data[t]);
    }
  }

  TemporaryFolder folder_;
  Tensors tensors_;
};

TEST_F(WeightFolder, ReadsOneFile) {
  tensors_.save(folder_ / "model.safetensors", 0, tensors_.all.size());
  const auto source = WeightSource::open(folder_.path());
  ASSERT_TRUE(source.ok()) << source.error();
  EXPECT_EQ((*source)->config(), *HfConfig::parse(kConfig, "config.json"));
  EXPECT_EQ((*source)->file_path(0), folder_ / "model.safetensors");
  expect_all(**source);
}

TEST_F(WeightFolder, NeedsNoWeightsForItsConfiguration) {
  const Result<HfConfig> config = read_model_config(folder_.path());
  ASSERT_TRUE(config.ok()) << config.error();
  EXPECT_EQ(config->hidden_size, 8);
  EXPECT_EQ(read_model_config(source_path("tests/data/gguf/qwen3.gguf"))->hidden_size, 16);
  const std::string absent = folder_ / "none";
  EXPECT_EQ(read_model_config(absent).error(), absent + ": No such file or directory");
}

TEST_F(WeightFolder, ReadsShards) {
  write_shards();
  const auto source = WeightSource::open(folder_.path());
  ASSERT_TRUE(source.ok()) << source.error();
  expect_all(**source);
}

TEST_F(WeightFolder, ReadsTheOnlyFileWhateverItsName) {
  tensors_.save(folder_ / "smol.safetensors", 0, tensors_.all.size());
  EXPECT_EQ(refusal(), "");
}

TEST_F(WeightFolder, ReadsRowsAsAnotherDType) {
  tensors_.save(folder_ / "model.safetensors", 0, tensors_.all.size());
  const auto source = WeightSource::open(folder_.path());
  ASSERT_TRUE(source.ok()) << source.error();
  const WeightInfo& tensor = *(*source)->find("model.layers.0.mlp.down_proj.weight");
  EXPECT_EQ(tensor.row_elements(), 12);
  const auto t = static_cast<size_t>(
      std::find_if(tensors_.all.begin(), tensors_.all.end(),
                   [&](const ModelTensor& m) { return m.name == tensor.name; }) -
      tensors_.all.begin());
  std::vector<uint16_t> out(3 * 12);
  ASSERT_TRUE((*source)
                  ->read_rows(tensor, 2, 5, DType::kBF16, std::as_writable_bytes(std::span(out)))
                  .ok());
  for (size_t i = 0; i < out.size(); ++i)
    EXPECT_EQ(out[i], f32_to_bf16(tensors_.data[t][2 * 12 + i]));
}

TEST_F(WeightFolder, FollowsTheLinksOfACache) {
  const std::string snapshot = folder_ / "snapshots/abc", blobs = folder_ / "blobs";
  std::filesystem::create_directories(snapshot);
  std::filesystem::create_directories(blobs);
  tensors_.save(blobs + "/f00d", 0, tensors_.all.size());
  write_bytes(snapshot + "/config.json", kConfig);
  std::filesystem::create_symlink("../../blobs/f00d", snapshot + "/model.safetensors");
  const auto source = WeightSource::open(snapshot);
  ASSERT_TRUE(source.ok()) << source.error();
  expect_all(**source);
}

TEST_F(WeightFolder, RefusesShardsOutsideTheFolder) {
  const TemporaryFolder elsewhere;
  tensors_.save(elsewhere / "a.safetensors", 0, tensors_.all.size());
  write_shards("../a.safetensors");
  EXPECT_EQ(refusal(),
            "/model.safetensors.index.json: weight_map: \"model.layers.0.post_attention_layernorm."
            "weight\": the shard \"../a.safetensors\" is not a name of a file in the folder");
  write_shards(elsewhere / "a.safetensors");
  EXPECT_TRUE(refusal().ends_with("is not a name of a file in the folder")) << refusal();
  write_shards("linked.safetensors");
  EXPECT_EQ(refusal(), "/linked.safetensors: No such file or directory");
  std::filesystem::create_symlink(elsewhere / "a.safetensors", folder_ / "linked.safetensors");
  EXPECT_EQ(refusal(), "/linked.safetensors: lies outside the folder, at " +
                           std::filesystem::canonical(elsewhere / "a.safetensors").string());
}

TEST_F(WeightFolder, RefusesShardsThatDisagreeWithTheIndex) {
  write_shards("model-00001-of-00002.safetensors");
  EXPECT_EQ(refusal(),
            "/model-00001-of-00002.safetensors: the tensor \"lm_head.weight\" is missing, which "
            "model.safetensors.index.json has here");
  write_shards("model-00002-of-00002.safetensors", "lm_head.weight");
  EXPECT_EQ(refusal(),
            "/model-00002-of-00002.safetensors: the tensor \"lm_head.weight\" is not in "
            "model.safetensors.index.json");
  write_shards();
  const size_t n = tensors_.all.size();
  tensors_.save(folder_ / "model-00002-of-00002.safetensors", n / 2, n, {tensors_.bytes(0)});
  EXPECT_EQ(refusal(),
            "/model-00002-of-00002.safetensors: the tensor \"model.embed_tokens.weight\" is here "
            "too; model.safetensors.index.json has it in model-00001-of-00002.safetensors");
  write_index(Json::object({{"a", 1}}));
  EXPECT_EQ(refusal(),
            "/model.safetensors.index.json: weight_map: \"a\": expected the name of a file, got 1");
  write_index(Json::object());
  EXPECT_EQ(refusal(), "/model.safetensors.index.json: weight_map: is empty");
  write_index(Json::object({{"a", "pytorch_model.bin"}}));
  EXPECT_EQ(
      refusal(),
      "/model.safetensors.index.json: weight_map: \"a\": the shard \"pytorch_model.bin\" is a "
      "pickle, which can run programs; convert the model to safetensors");
}

TEST_F(WeightFolder, RefusesFoldersWithoutSafetensors) {
  EXPECT_EQ(refusal(), ": expected safetensors files, got none");
  write_bytes(folder_ / "pytorch_model.bin", "x");
  EXPECT_EQ(
      refusal(),
      "/pytorch_model.bin: has weights as a pickle alone, which can run programs; convert the "
      "model to safetensors");
  tensors_.save(folder_ / "a.safetensors", 0, 2);
  tensors_.save(folder_ / "b.safetensors", 2, 4);
  EXPECT_EQ(refusal(),
            ": has 2 safetensors files, but neither model.safetensors nor "
            "model.safetensors.index.json");
}

TEST_F(WeightFolder, RefusesTensorsThatAreNotThoseOfTheModel) {
  const std::string path = folder_ / "model.safetensors";
  const size_t n = tensors_.all.size();
  tensors_.save(path, 1, n);
  EXPECT_EQ(refusal(), ": the tensor \"model.embed_tokens.weight\" is missing");
  TensorBytes other = tensors_.bytes(0);
  other.shape = {8, 10};
  tensors_.save(path, 1, n, {other});
  EXPECT_EQ(refusal(),
            "/model.safetensors: tensor \"model.embed_tokens.weight\": expected [10,8], as the "
            "configuration has it, got [8,10]");
  other = tensors_.bytes(0);
  other.dtype = DType::kI32;
  tensors_.save(path, 1, n, {other});
  EXPECT_EQ(refusal(),
            "/model.safetensors: tensor \"model.embed_tokens.weight\": expected f32, bf16 or f16, "
            "got i32");
  other = tensors_.bytes(0);
  other.name = "model.layers.1.mlp.up_proj.weight";
  tensors_.save(path, 0, n, {other});
  EXPECT_EQ(refusal(),
            "/model.safetensors: the tensor \"model.layers.1.mlp.up_proj.weight\" is not part of "
            "the model that the configuration has");
  other.name = "model.layers.0.self_attn.rotary_emb.inv_freq";
  tensors_.save(path, 0, n, {other});
  EXPECT_EQ(refusal(), "") << "a buffer of old files";
  std::filesystem::resize_file(path, 2000);
  EXPECT_TRUE(refusal().starts_with("/model.safetensors: is cut short: ")) << refusal();
}

TEST_F(WeightFolder, TakesATiedHeadApartWhereItDiffers) {
  std::string config(kConfig);
  config.insert(1, R"("tie_word_embeddings": true, )");
  write_bytes(folder_ / "config.json", config);
  const size_t n = tensors_.all.size();
  const auto is_tied = [&] {
    const auto source = WeightSource::open(folder_.path());
    EXPECT_TRUE(source.ok()) << source.error();
    const bool tied = (*source)->config().tie_word_embeddings;
    EXPECT_EQ((*source)->tensors().size(), model_tensors((*source)->config()).size());
    EXPECT_EQ((*source)->find("lm_head.weight") == nullptr, tied);
    EXPECT_NE((*source)->find("model.norm.weight"), nullptr);
    return tied;
  };
  tensors_.save(folder_ / "model.safetensors", 0, n - 1);
  EXPECT_TRUE(is_tied());
  TensorBytes head = tensors_.bytes(0);
  head.name = "lm_head.weight";
  tensors_.save(folder_ / "model.safetensors", 0, n - 1, {head});
  EXPECT_TRUE(is_tied());
  tensors_.save(folder_ / "model.safetensors", 0, n);
  EXPECT_FALSE(is_tied());
}

}  // namespace
}  // namespace stow
