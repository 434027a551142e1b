#include "stowage/io/gguf.h"

#include <gtest/gtest.h>

#include <cmath>

#include "stowage/base/text_file.h"
#include "stowage/io/float_convert.h"
#include "stowage/io/gguf_weights.h"
#include "stowage/io/safetensors.h"
#include "tests/support/gguf_kit.h"
#include "tests/support/source_path.h"
#include "tests/support/temporary_folder.h"

namespace stow {
namespace {

// --- the container -----------------------------------------------------------------------------

GgufBuilder small_file() {
  GgufBuilder file;
  file.string("general.architecture", "llama").u32("a.count", 7).f32("a.eps", 0.5f);
  file.boolean("a.flag", true).strings("a.names", {"x", "", "é"}).i32s("a.types", {1, -2});
  file.tensor("plain", 0, {2, 3}, std::string(24, 'p'));
  file.tensor("packed", 2, {64, 1}, std::string(36, 'q'));
  return file;
}

// The reason alone, without "PATH: ".
std::string refusal_of(const std::string& bytes) {
  const TemporaryFolder folder;
  const std::string path = folder / "a.gguf";
  write_bytes(path, bytes);
  const Result<GgufFile> file = GgufFile::open(path);
  if (file.ok()) return "";
  EXPECT_TRUE(file.error().starts_with(path + ": ")) << file.error();
  EXPECT_EQ(file.error().find('\n'), std::string::npos);
  return file.error().substr(path.size() + 2);
}

TEST(Gguf, ReadsEntriesAndTensors) {
  const TemporaryFolder folder;
  for (const uint32_t version : {2u, 3u}) {
    GgufBuilder builder = small_file();
    builder.version = version;
    builder.entry(
        "a.deep", 9,
        GgufBuilder::raw<uint32_t>(9) + GgufBuilder::raw<uint64_t>(1) + GgufBuilder::texts({"in"}));
    builder.entry("a.u8", 0, "\xff").entry("a.i8", 1, "\xff").entry("a.u16", 2, "\xff\xff");
    builder.entry("a.i16", 3, "\xff\xff").entry("a.u64", 10, std::string(8, '\xff'));
    builder.entry("a.i64", 11, std::string(8, '\xff'));
    builder.entry("a.f64", 12, GgufBuilder::raw(0.1));
    write_bytes(folder / "a.gguf", builder.build());
    const Result<GgufFile> file = GgufFile::open(folder / "a.gguf");
    ASSERT_TRUE(file.ok()) << file.error();
    EXPECT_EQ(file->metadata().dump(),
              R"({"general.architecture": "llama", "a.count": 7, "a.eps": 0.5, "a.flag": true, )"
              R"("a.names": ["x", "", "é"], "a.types": [1, -2], "a.deep": [["in"]], "a.u8": 255, )"
              R"("a.i8": -1, "a.u16": 65535, "a.i16": -1, "a.u64": 18446744073709551615, )"
              R"("a.i64": -1, "a.f64": 0.1})");
    ASSERT_EQ(file->tensors().size(), 2u);
    const GgufTensor* packed = file->find("packed");
    ASSERT_NE(packed, nullptr);
    EXPECT_EQ(packed->type, GgmlType::kQ4_0);
    EXPECT_EQ(packed->shape, (std::vector<int64_t>{1, 64}));
    EXPECT_EQ(packed->n_bytes, 36);
    std::string data(36, '\0');
    ASSERT_TRUE(file->read(packed->offset_bytes, std::as_writable_bytes(std::span(data))).ok());
    EXPECT_EQ(data, std::string(36, 'q'));
    EXPECT_EQ(file->find("none"), nullptr);
  }
}

TEST(Gguf, RefusesWhatIsNoGgufFile) {
  EXPECT_EQ(refusal_of(""), "is not a GGUF file");
  EXPECT_EQ(refusal_of("GGU"), "is not a GGUF file");
  EXPECT_EQ(refusal_of(std::string(64, 'x')), "is not a GGUF file");
  GgufBuilder file = small_file();
  file.version = 1;
  EXPECT_EQ(refusal_of(file.build()), "has version 1 of the format; supported are 2 and 3");
  file.version = 3u << 24;
  EXPECT_EQ(refusal_of(file.build()), "is a big-endian GGUF file, which is not supported");
}

TEST(Gguf, RefusesEveryTruncation) {
  const std::string whole = small_file().build();
  ASSERT_EQ(refusal_of(whole), "");
  for (size_t n = 0; n < whole.size(); ++n) {
    const std::string reason = refusal_of(whole.substr(0, n));
    if (n < 4)
      EXPECT_EQ(reason, "is not a GGUF file");
    else
      EXPECT_NE(reason.find("is cut short: "), std::string::npos) << n << ": " << reason;
  }
}

TEST(Gguf, RefusesCountsAndLengthsBeyondTheFile) {
  const std::string head = "GGUF" + GgufBuilder::raw<uint32_t>(3);
  const auto counts = [&](uint64_t tensors, uint64_t entries) {
    return head + GgufBuilder::raw(tensors) + GgufBuilder::raw(entries);
  };
  EXPECT_EQ(refusal_of(counts(1, ~uint64_t{0})),
            "expected at most 65536 entries, got 18446744073709551615");
  EXPECT_EQ(refusal_of(counts(uint64_t{1} << 40, 0)),
            "expected at most 131072 tensors, got 1099511627776");
  EXPECT_EQ(refusal_of(counts(0, 1) + GgufBuilder::raw(uint64_t{1} << 40)),
            "expected a text of at most 65536 bytes, got 1099511627776");
  EXPECT_EQ(refusal_of(counts(0, 1) + GgufBuilder::raw(uint64_t{100})),
            "is cut short: a text of 100 bytes at byte 32");
  const std::string key = GgufBuilder::text("k");
  EXPECT_EQ(refusal_of(counts(0, 1) + key + GgufBuilder::raw<uint32_t>(9) +
                       GgufBuilder::raw<uint32_t>(4) + GgufBuilder::raw(uint64_t{1} << 60)),
            "\"k\": is cut short: an array of 1152921504606846976 elements at byte 49");
  EXPECT_EQ(refusal_of(counts(0, 1) + key + GgufBuilder::raw<uint32_t>(13)),
            "\"k\": expected a type of value from 0 to 12, got 13");
  EXPECT_EQ(refusal_of(counts(0, 1) + key + GgufBuilder::raw<uint32_t>(7) + "\2"),
            "\"k\": expected 0 or 1 for a bool, got 2");
  std::string deep;
  for (int i = 0; i < 5; ++i) deep += GgufBuilder::raw<uint32_t>(9) + GgufBuilder::raw<uint64_t>(1);
  EXPECT_EQ(refusal_of(counts(0, 1) + key + GgufBuilder::raw<uint32_t>(9) + deep + deep),
            "\"k\": expected arrays nested at most 4 deep");
}

TEST(Gguf, RefusesWrongEntriesAndTensors) {
  EXPECT_EQ(refusal_of(small_file().u32("a.count", 1).build()), "the key \"a.count\" stands twice");
  EXPECT_EQ(refusal_of(small_file().u32("\xff", 1).build()),
            "\"\xef\xbf\xbd\": the key is not UTF-8");
  EXPECT_EQ(refusal_of(small_file().u32("general.alignment", 24).build()),
            "general.alignment: expected a power of two up to 2^20, got 24");
  EXPECT_EQ(
      refusal_of(small_file().u32("general.alignment", 128).build()),
      "tensor \"packed\": expected an offset that is a multiple of the alignment 128, got 32");
  EXPECT_EQ(refusal_of(small_file().tensor("plain", 0, {1}, "1234").build()),
            "two tensors have the name \"plain\"");
  EXPECT_EQ(refusal_of(small_file().tensor("t", 13, {256}, std::string(176, 'k')).build()),
            "tensor \"t\": Q5_K is not supported; supported are F32, F16, BF16, Q4_0, Q4_1, Q8_0, "
            "Q4_K, Q6_K");
  EXPECT_EQ(refusal_of(small_file().tensor("t", 99, {256}, "").build()),
            "tensor \"t\": type 99 is not supported; supported are F32, F16, BF16, Q4_0, Q4_1, "
            "Q8_0, Q4_K, Q6_K");
  EXPECT_EQ(refusal_of(small_file().tensor("t", 12, {32, 8}, std::string(144, 'k')).build()),
            "tensor \"t\": expected rows of whole blocks of 256 elements for Q4_K, got rows of 32");
  EXPECT_EQ(
      refusal_of(small_file().tensor("t", 0, {uint64_t{1} << 40, uint64_t{1} << 40}, "").build()),
      "tensor \"t\": its extent 1099511627776 is out of range");
  EXPECT_EQ(refusal_of(small_file().tensor("t", 0, {0}, "").build()),
            "tensor \"t\": its extent 0 is out of range");
  EXPECT_EQ(refusal_of(small_file().tensor("t", 0, {1, 1, 1, 1, 1}, "1234").build()),
            "tensor \"t\": expected 1 to 4 axes, got 5");
  EXPECT_EQ(refusal_of(small_file().tensor("t", 0, {1}, "1234", 32).build()),
            "tensor \"t\": begins at byte 416, inside the one that ends at 452");
  EXPECT_EQ(refusal_of(small_file().tensor("t", 0, {8}, "1234").build()),
            "is cut short: tensor \"t\" ends at byte 512, the file at 484");
}

// --- blocks ------------------------------------------------------------------------------------

std::string unhex(std::string_view hex) {
  std::string bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2)
    bytes += static_cast<char>(std::stoi(std::string(hex.substr(i, 2)), nullptr, 16));
  return bytes;
}

TEST(GgufBlocks, HaveTheValuesOfGgufPy) {
  const Result<std::string> text = read_text_file(source_path("tests/data/gguf/blocks.json"));
  ASSERT_TRUE(text.ok()) << text.error();
  const Result<Json> rows = parse_json(*text);
  ASSERT_TRUE(rows.ok()) << rows.error();
  ASSERT_EQ(rows->as_array()->size(), 8u);
  for (size_t i = 0; i < 8; ++i) {
    const auto type = static_cast<GgmlType>(i);
    const Json& row = (*rows->as_array())[i];
    EXPECT_EQ(ggml_name(type), *row.find("type")->as_string());
    const std::string bytes = unhex(*row.find("bytes")->as_string());
    const std::string values = unhex(*row.find("values")->as_string());
    const auto n = static_cast<int64_t>(bytes.size()) / block_bytes(type);
    std::string out(static_cast<size_t>(n * block_elements(type)) * sizeof(float), '\0');
    ASSERT_EQ(out.size(), values.size());
    decode_blocks(type, reinterpret_cast<const std::byte*>(bytes.data()), n,
                  reinterpret_cast<float*>(out.data()));
    EXPECT_EQ(out, values) << ggml_name(type);
  }
}

// --- models ------------------------------------------------------------------------------------

class GgufModel : public testing::TestWithParam<const char*> {};

TEST_P(GgufModel, HasTheTensorsOfTheModelThatItWasMadeOf) {
  const std::string stem = source_path(std::string("tests/data/gguf/") + GetParam());
  const auto source = WeightSource::open(stem + ".gguf");
  ASSERT_TRUE(source.ok()) << source.error();
  const Result<SafetensorsFile> expected = SafetensorsFile::open(stem + ".safetensors");
  ASSERT_TRUE(expected.ok()) << expected.error();
  ASSERT_EQ((*source)->tensors().size(), expected->tensors().size());
  for (const TensorInfo& tensor : expected->tensors()) {
    SCOPED_TRACE(tensor.name);
    const WeightInfo* info = (*source)->find(tensor.name);
    ASSERT_NE(info, nullptr);
    EXPECT_EQ(info->shape, tensor.shape);
    std::vector<float> theirs(static_cast<size_t>(tensor.n_bytes) / 4), ours(theirs.size());
    ASSERT_TRUE(expected->read(tensor, std::as_writable_bytes(std::span(theirs))).ok());
    // Row by row, and a range that begins inside a head.
    const auto row = static_cast<size_t>(info->row_elements());
    const auto read = [&](int64_t begin, int64_t end, DType dtype, std::span<std::byte> out) {
      const Result<void> done = (*source)->read_rows(*info, begin, end, dtype, out);
      ASSERT_TRUE(done.ok()) << done.error();
    };
    for (int64_t r = 0; r < info->n_rows(); ++r)
      read(r, r + 1, DType::kF32,
           std::as_writable_bytes(std::span(ours))
               .subspan(static_cast<size_t>(r) * row * 4, row * 4));
    EXPECT_EQ(ours, theirs);
    const int64_t begin = info->n_rows() / 3;
    const auto first = static_cast<size_t>(begin) * row;
    std::vector<uint16_t> halves(theirs.size() - first);
    read(begin, info->n_rows(), DType::kBF16, std::as_writable_bytes(std::span(halves)));
    for (size_t i = 0; i < halves.size(); ++i)
      ASSERT_EQ(halves[i], f32_to_bf16(theirs[first + i])) << i;
    // The last half of every axis but of rows the middle third.
    TensorSlice slice = whole_slice(info->shape);
    for (size_t axis = 0; axis < slice.sizes.size(); ++axis) {
      slice.starts[axis] = slice.sizes[axis] / (axis == 0 ? 3 : 2);
      slice.sizes[axis] =
          axis == 0 ? (slice.sizes[axis] + 2) / 3 : slice.sizes[axis] - slice.starts[axis];
    }
    std::vector<float> part(static_cast<size_t>(slice.elems()), -1.0f);
    const Result<void> done =
        (*source)->read_slice(*info, slice, DType::kF32, std::as_writable_bytes(std::span(part)));
    ASSERT_TRUE(done.ok()) << done.error();
    const auto width = part.size() / static_cast<size_t>(slice.sizes[0]);
    for (size_t i = 0; i < part.size(); ++i) {
      const size_t r = static_cast<size_t>(slice.starts[0]) + i / width;
      ASSERT_EQ(part[i], theirs[r * row + (row - width) + i % width]) << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, GgufModel, testing::Values("llama", "qwen2", "qwen3"),
                         [](const auto& info) { return info.param; });

HfConfig config_of(const std::string& name) {
  const Result<GgufFile> file = GgufFile::open(source_path("tests/data/gguf/" + name + ".gguf"));
  STOW_CHECK(file.ok(), "{}", file.error());
  const Result<HfConfig> config = gguf_config(*file);
  STOW_CHECK(config.ok(), "{}", config.error());
  return *config;
}

TEST(GgufConfig, IsReadFromTheEntries) {
  const HfConfig llama = config_of("llama");
  EXPECT_EQ(llama.family, ModelFamily::kLlama);
  EXPECT_EQ(llama.vocab_size, 8);
  EXPECT_EQ(llama.hidden_size, 32);
  EXPECT_EQ(llama.intermediate_size, 32);
  EXPECT_EQ(llama.num_hidden_layers, 1);
  EXPECT_EQ(llama.num_attention_heads, 2);
  EXPECT_EQ(llama.num_key_value_heads, 1);
  EXPECT_EQ(llama.head_dim, 16);
  EXPECT_EQ(static_cast<float>(llama.rms_norm_eps), 1e-5f);
  EXPECT_EQ(llama.max_position_embeddings, 128);
  EXPECT_TRUE(llama.tie_word_embeddings);
  EXPECT_TRUE(llama.attention_bias_qkv);
  EXPECT_FALSE(llama.attention_bias_o);
  EXPECT_FALSE(llama.mlp_bias);
  EXPECT_EQ(llama.rope.kind, RopeKind::kDefault);
  EXPECT_EQ(llama.rope.theta, 50000.0);
  EXPECT_EQ(llama.rope.divisors, (std::vector<float>{1, 2, 3, 4, 5, 6, 7, 8}));
  EXPECT_EQ(llama.bos_token_id, 1);
  EXPECT_EQ(llama.eos_token_ids, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(llama.dtype, DType::kF32);

  const HfConfig qwen3 = config_of("qwen3");
  EXPECT_EQ(qwen3.family, ModelFamily::kQwen3);
  EXPECT_TRUE(qwen3.qk_norm);
  EXPECT_FALSE(qwen3.tie_word_embeddings);
  EXPECT_EQ(qwen3.rope.kind, RopeKind::kYarn);
  EXPECT_EQ(qwen3.rope.factor, 4.0);
  EXPECT_EQ(qwen3.rope.original_max_position_embeddings, 32);
  EXPECT_EQ(qwen3.dtype, DType::kBF16);
}

std::string model_refusal(const GgufBuilder& builder) {
  const TemporaryFolder folder;
  const std::string path = folder / "a.gguf";
  write_bytes(path, builder.build());
  const auto source = WeightSource::open(path);
  if (source.ok()) return "";
  EXPECT_TRUE(source.error().starts_with(path + ": ")) << source.error();
  return source.error().substr(path.size() + 2);
}

// A file with the entries of a model and no tensor but the embedding.
GgufBuilder model_entries(std::string_view without = "") {
  GgufBuilder file;
  file.string("general.architecture", "llama");
  for (const auto& [key, value] :
       {std::pair("llama.embedding_length", 32u), std::pair("llama.feed_forward_length", 32u),
        std::pair("llama.block_count", 0u), std::pair("llama.attention.head_count", 2u),
        std::pair("llama.context_length", 128u)})
    if (without != key) file.u32(key, value);
  file.f32("llama.attention.layer_norm_rms_epsilon", 1e-5f);
  file.tensor("token_embd.weight", 0, {32, 1}, std::string(128, '\0'));
  return file;
}

std::string floats(const std::vector<float>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
}

TEST(GgufConfig, RecognizesTheRopeOfLlama3) {
  // As convert_hf_to_gguf.py writes them, for heads of 128 and Llama 3.1's theta.
  std::vector<float> divisors;
  for (int i = 0; i < 64; ++i) {
    const double wavelength = 2.0 * 3.14159265358979 * std::pow(500000.0, i / 64.0);
    const double smooth = (8192.0 / wavelength - 1.0) / 3.0;
    divisors.push_back(static_cast<float>(wavelength < 2048.0 ? 1.0
                                          : wavelength > 8192.0
                                              ? 8.0
                                              : 1.0 / ((1.0 - smooth) / 8.0 + smooth)));
  }
  for (const bool altered : {false, true}) {
    if (altered) divisors[40] *= 1.001f;
    GgufBuilder file = model_entries("llama.embedding_length");
    file.u32("llama.embedding_length", 256).f32("llama.rope.freq_base", 500000.0f);
    file.tensor("rope_freqs.weight", 0, {64}, floats(divisors));
    const TemporaryFolder folder;
    write_bytes(folder / "a.gguf", file.build());
    const Result<GgufFile> opened = GgufFile::open(folder / "a.gguf");
    ASSERT_TRUE(opened.ok()) << opened.error();
    const Result<HfConfig> config = gguf_config(*opened);
    ASSERT_TRUE(config.ok()) << config.error();
    EXPECT_EQ(config->rope.kind, altered ? RopeKind::kDefault : RopeKind::kLlama3);
    EXPECT_EQ(config->rope.divisors, altered ? divisors : std::vector<float>());
    EXPECT_EQ(config->rope.factor, altered ? 1.0 : 8.0);
    EXPECT_EQ(config->rope.original_max_position_embeddings, altered ? 0 : 8192);
  }
}

TEST(GgufConfig, RefusesByTheFilesKeys) {
  EXPECT_EQ(model_refusal(GgufBuilder().string("general.architecture", "gemma2")),
            "general.architecture: \"gemma2\" is not supported; supported are llama, qwen2, qwen3");
  EXPECT_EQ(model_refusal(GgufBuilder()), "general.architecture: expected a name, got nothing");
  EXPECT_EQ(model_refusal(model_entries("llama.context_length")),
            "llama.context_length: is missing");
  EXPECT_EQ(model_refusal(model_entries("llama.block_count").i32("llama.block_count", -1)),
            "llama.block_count: expected an integer from 0 to 16384, got -1");
  EXPECT_EQ(model_refusal(model_entries().u32("llama.attention.head_count_kv", 3)),
            "llama.attention.head_count_kv: expected a divisor of num_attention_heads = 2, got 3");
  EXPECT_EQ(model_refusal(model_entries().u32("llama.expert_count", 8)),
            "llama.expert_count: 8 is not supported");
  EXPECT_EQ(model_refusal(model_entries().u32("llama.rope.dimension_count", 8)),
            "llama.rope.dimension_count: expected 16, the width of a head, got 8");
  EXPECT_EQ(model_refusal(model_entries().string("llama.rope.scaling.type", "longrope")),
            "llama.rope.scaling.type: \"longrope\" is not supported; supported are none, linear, "
            "yarn");
  EXPECT_EQ(model_refusal(model_entries().string("llama.rope.scaling.type", "linear")),
            "llama.rope.scaling.factor: is missing for rope_type \"linear\"");
  EXPECT_EQ(model_refusal(model_entries().f32("llama.rope.freq_base", -1.0f)),
            "llama.rope.freq_base: expected a number from 1 to 1000000000000000, got -1.0");
  EXPECT_EQ(model_refusal(model_entries().u32("split.count", 3)),
            "split.count: a model in 3 files is not supported");
  EXPECT_EQ(model_refusal(model_entries().string("general.type", "adapter")),
            "general.type: expected \"model\", got \"adapter\"");
  EXPECT_EQ(model_refusal(model_entries()), "the tensor \"model.norm.weight\" is missing");
  const std::string norm(128, '\0');
  EXPECT_EQ(model_refusal(model_entries().tensor("output_norm.weight", 0, {32}, norm)), "");
  EXPECT_EQ(model_refusal(model_entries()
                              .tensor("output_norm.weight", 0, {32}, norm)
                              .tensor("blk.00.attn_q.weight", 0, {32}, norm)),
            "the tensor \"blk.00.attn_q.weight\" is not part of the model that the configuration "
            "has");
  EXPECT_EQ(
      model_refusal(model_entries().tensor("output_norm.weight", 8, {32}, std::string(34, 0))),
      "tensor \"output_norm.weight\": vectors of Q8_0 are not supported");
  EXPECT_EQ(model_refusal(model_entries().tensor("rope_freqs.weight", 0, {8}, std::string(32, 0))),
            "tensor \"rope_freqs.weight\": expected positive numbers, got 0");
}

}  // namespace
}  // namespace stow
