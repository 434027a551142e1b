#include "stowage/io/hf_folder.h"

#include <gtest/gtest.h>

#include <cstring>

#include "stowage/io/weights.h"
#include "stowage/text/tokenizer_export.h"
#include "stowage/text/tokenizer_folder.h"
#include "tests/support/gguf_kit.h"
#include "tests/support/source_path.h"
#include "tests/support/temporary_folder.h"

namespace stow {
namespace {

// The tensors of a source, read when they are written.
std::vector<TensorBytes> tensors_of(const WeightSource& source) {
  std::vector<TensorBytes> tensors;
  for (const WeightInfo& info : source.tensors())
    tensors.push_back(
        {info.name,
         DType::kF32,
         info.shape,
         {},
         [&source, &info](int64_t offset, std::span<std::byte> out) {
           std::vector<float> all(static_cast<size_t>(info.n_rows() * info.row_elements()));
           STOW_CHECK(source
                          .read_rows(info, 0, info.n_rows(), DType::kF32,
                                     std::as_writable_bytes(std::span(all)))
                          .ok());
           std::memcpy(out.data(), std::as_bytes(std::span(all)).data() + offset, out.size());
         }});
  return tensors;
}

std::unique_ptr<WeightSource> open(const std::string& path) {
  auto source = WeightSource::open(path);
  STOW_CHECK(source.ok(), "{}", source.error());
  return std::move(*source);
}

TEST(HfFolder, HoldsWhatWasWritten) {
  for (const char* name : {"qwen2", "qwen3"}) {
    const auto source = open(source_path(std::string("tests/data/gguf/") + name + ".gguf"));
    const TemporaryFolder folder;
    const std::string path = folder / "new/model";
    const Result<void> written = write_hf_folder(path, source->config(), tensors_of(*source));
    ASSERT_TRUE(written.ok()) << written.error();
    const auto again = open(path);
    HfConfig expected = source->config();
    expected.dtype = DType::kF32;
    EXPECT_EQ(again->config(), expected);
    ASSERT_EQ(again->tensors().size(), source->tensors().size());
    for (const WeightInfo& info : source->tensors()) {
      const auto values = [&](const WeightSource& from) {
        std::vector<float> all(static_cast<size_t>(info.n_rows() * info.row_elements()));
        STOW_CHECK(from.read_rows(*from.find(info.name), 0, info.n_rows(), DType::kF32,
                                  std::as_writable_bytes(std::span(all)))
                       .ok());
        return all;
      };
      EXPECT_EQ(values(*again), values(*source)) << info.name;
    }
  }
}

TEST(HfFolder, SaysThatTheFileIsForTorch) {
  const auto source = open(source_path("tests/data/gguf/qwen2.gguf"));
  const TemporaryFolder folder;
  ASSERT_TRUE(write_hf_folder(folder.path(), source->config(), tensors_of(*source)).ok());
  const Result<SafetensorsFile> file = SafetensorsFile::open(folder / "model.safetensors");
  ASSERT_TRUE(file.ok()) << file.error();
  EXPECT_EQ(file->metadata(), (std::map<std::string, std::string>{{"format", "pt"}}));
}

TEST(HfFolder, RefusesOtherTensorsAndLeavesNothing) {
  const auto source = open(source_path("tests/data/gguf/qwen2.gguf"));
  const TemporaryFolder folder;
  const std::string path = folder / "model";
  const auto refusal = [&](const HfConfig& config, const std::vector<TensorBytes>& tensors) {
    const Result<void> written = write_hf_folder(path, config, tensors);
    EXPECT_EQ(count_entries(folder.path()), 0u);
    return written.ok() ? "" : written.error().substr(path.size());
  };
  std::vector<TensorBytes> tensors = tensors_of(*source);
  tensors[1].shape.push_back(1);
  EXPECT_TRUE(refusal(source->config(), tensors).starts_with(": tensor \"model.layers.0."));
  tensors = tensors_of(*source);
  tensors.push_back(tensors[0]);
  tensors.back().name = "other";
  EXPECT_EQ(refusal(source->config(), tensors),
            ": expected the 14 tensors of the configuration, got 15");
  tensors.erase(tensors.begin());
  EXPECT_EQ(refusal(source->config(), tensors),
            ": the tensor \"model.embed_tokens.weight\" is missing");
  const auto llama = open(source_path("tests/data/gguf/llama.gguf"));
  EXPECT_EQ(refusal(llama->config(), tensors_of(*llama)),
            ": config.json cannot express divisors of rotary frequencies");
  HfConfig config = llama->config();
  config.rope.divisors.clear();
  EXPECT_EQ(refusal(config, tensors_of(*llama)),
            ": config.json of llama cannot express biases of q, k and v and none of o");
}

TEST(TokenizerExport, CopiesTheFilesOfAFolder) {
  const TemporaryFolder from, to;
  write_bytes(from / "tokenizer.json", read_bytes(source_path("tests/data/tokenizers/gpt2.json")));
  write_bytes(from / "chat_template.jinja", "{{ messages }}");
  write_bytes(from / "other.txt", "x");
  const Result<void> written = text::write_tokenizer_files(from.path(), to.path());
  ASSERT_TRUE(written.ok()) << written.error();
  EXPECT_EQ(count_entries(to.path()), 2u);
  EXPECT_EQ(read_bytes(to / "tokenizer.json"), read_bytes(from / "tokenizer.json"));
  EXPECT_EQ(read_bytes(to / "chat_template.jinja"), "{{ messages }}");
}

TEST(TokenizerExport, MakesTheFilesOfAGgufFile) {
  const TemporaryFolder folder;
  GgufBuilder file;
  file.string("tokenizer.ggml.model", "gpt2").string("tokenizer.ggml.pre", "smollm");
  file.strings("tokenizer.ggml.tokens", {"a", "b", "ab", "<|x|>", "1"});
  file.strings("tokenizer.ggml.merges", {"a b"}).i32s("tokenizer.ggml.token_type", {1, 1, 1, 3, 1});
  file.u32("tokenizer.ggml.bos_token_id", 3).boolean("tokenizer.ggml.add_bos_token", true);
  file.string("tokenizer.chat_template", "{{ bos_token }}{{ messages[0].content }}");
  write_bytes(folder / "a.gguf", file.build());
  const Result<void> written = text::write_tokenizer_files(folder / "a.gguf", folder.path());
  ASSERT_TRUE(written.ok()) << written.error();
  const auto made = text::TokenizerFolder::load(folder.path());
  ASSERT_TRUE(made.ok()) << made.error();
  const auto given = text::TokenizerFolder::load(folder / "a.gguf");
  ASSERT_TRUE(given.ok()) << given.error();
  EXPECT_EQ(made->special_tokens.find("bos_token")->dump(), "\"<|x|>\"");
  for (const char* words : {"ab<|x|>b", "11ab", "ba"}) {
    EXPECT_EQ(*made->tokenizer.encode(words), *given->tokenizer.encode(words));
    EXPECT_EQ((*made->tokenizer.encode(words))[0], 3);
  }
  const Json messages = *parse_json(R"([{"role": "user", "content": "b"}])");
  EXPECT_EQ(*made->render_chat(messages), "<|x|>b");
}

}  // namespace
}  // namespace stow
