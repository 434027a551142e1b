#include "stowage/io/safetensors.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "stowage/io/json.h"
#include "tests/support/file_size_limit.h"
#include "tests/support/temporary_folder.h"

namespace stow {
namespace {

std::string with_header(std::string_view header, size_t n_data_bytes) {
  std::string bytes(8, '\0');
  const uint64_t length = header.size();
  std::memcpy(bytes.data(), &length, 8);
  return bytes + std::string(header) + std::string(n_data_bytes, 'd');
}

// The reason alone, without "PATH: ".
std::string refusal_of(const TemporaryFolder& folder, std::string_view bytes) {
  const std::string path = folder / "a.safetensors";
  write_bytes(path, bytes);
  const Result<SafetensorsFile> file = SafetensorsFile::open(path);
  if (file.ok()) return "";
  EXPECT_TRUE(file.error().starts_with(path + ": ")) << file.error();
  EXPECT_EQ(file.error().find('\n'), std::string::npos);
  return file.error().substr(path.size() + 2);
}

TEST(Safetensors, RoundTrips) {
  const TemporaryFolder folder;
  const std::string path = folder / "a.safetensors";
  const std::string data = "0123456789abcdefghijklmnopqrstuvwxyz";
  const auto bytes = [&](size_t n) { return as_bytes(std::string_view(data).substr(n % 3, n)); };
  std::vector<TensorBytes> tensors = {
      {"b", DType::kF32, {2, 3}, bytes(24)},        {"a", DType::kF32, {}, bytes(4)},
      {"empty", DType::kI64, {3, 0}, {}},           {"odd", DType::kU8, {5}, bytes(5)},
      {"é\"\n", DType::kBF16, {1, 1, 1}, bytes(2)}, {"flag", DType::kBool, {1}, bytes(1)},
      {"wide", DType::kF64, {1}, bytes(8)}};
  const std::map<std::string, std::string> metadata = {{"made by", "a test"}, {"x", ""}};
  ASSERT_TRUE(save_safetensors(path, tensors, metadata).ok());

  const Result<SafetensorsFile> file = SafetensorsFile::open(path);
  ASSERT_TRUE(file.ok()) << file.error();
  EXPECT_EQ(file->metadata(), metadata);
  ASSERT_EQ(file->tensors().size(), tensors.size());
  for (const TensorBytes& tensor : tensors) {
    const TensorInfo* found = file->find(tensor.name);
    ASSERT_NE(found, nullptr) << tensor.name;
    EXPECT_EQ(found->dtype, tensor.dtype);
    EXPECT_EQ(found->shape, tensor.shape);
    EXPECT_EQ(found->offset_bytes % dtype_bytes(tensor.dtype), 0) << "aligned to its type";
    std::vector<std::byte> out(static_cast<size_t>(found->n_bytes));
    ASSERT_TRUE(file->read(*found, out).ok());
    EXPECT_TRUE(std::equal(out.begin(), out.end(), tensor.bytes.begin(), tensor.bytes.end()));
  }
  EXPECT_EQ(file->find("no"), nullptr);

  // The same bytes whatever the order of the tensors; the digest is of those bytes.
  std::reverse(tensors.begin(), tensors.end());
  Digest digest;
  const std::string again = folder / "b.safetensors";
  ASSERT_TRUE(write_safetensors(again, tensors, metadata, &digest)->commit().ok());
  EXPECT_EQ(read_bytes(again), read_bytes(path));
  EXPECT_EQ(file->digest()->value(), digest.value());
  Digest whole;
  whole.update(as_bytes(read_bytes(path)));
  EXPECT_EQ(digest.value(), whole.value());
}

TEST(Safetensors, EveryDtypeHasItsName) {
  const TemporaryFolder folder;
  std::string names;
  for (int i = 0; i < kNumDTypes; ++i) {
    const DType dtype = static_cast<DType>(i);
    const std::string data(static_cast<size_t>(dtype_bytes(dtype)), 'x');
    ASSERT_TRUE(
        save_safetensors(folder / "a", std::vector<TensorBytes>{{"t", dtype, {1}, as_bytes(data)}})
            .ok());
    EXPECT_EQ(SafetensorsFile::open(folder / "a")->find("t")->dtype, dtype);
    const std::string header = read_bytes(folder / "a").substr(8);
    names += *parse_json(header.substr(0, header.find("}}") + 2))
                  ->find("t")
                  ->find("dtype")
                  ->as_string() +
             " ";
  }
  EXPECT_EQ(names, "F64 F32 BF16 F16 I64 I32 I8 U64 U32 U8 BOOL ");
}

TEST(Safetensors, ReadsWhatOthersWrite) {
  const TemporaryFolder folder;
  for (const auto& [header, n] : std::vector<std::pair<std::string, size_t>>{
           {"{}", 0},
           {"{}      ", 0},
           {R"({"__metadata__":{}})", 0},
           {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 8},
           // In any order of names, and nothing is aligned.
           {R"({"b":{"data_offsets":[1,5],"shape":[],"dtype":"F32"},)"
            R"("a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
            5}})
    EXPECT_EQ(refusal_of(folder, with_header(header, n)), "") << header;
}

TEST(Safetensors, RefusesHostileHeaders) {
  const struct {
    const char* header;
    size_t n_data_bytes;
    const char* why;
  } kBad[] = {
      {"", 0, "is not a safetensors file: expected a JSON object as header"},
      {"[]", 0, "is not a safetensors file: expected a JSON object as header"},
      {" {}", 0, "is not a safetensors file: expected a JSON object as header"},
      {"{", 0, "the header is not JSON that can be read: a syntax error at byte 2"},
      {"{}{}", 0, "the header is not JSON that can be read: a syntax error at byte 3"},
      {R"({"a":[[[1]]]})", 0, "the header is not JSON that can be read: nested deeper than 3"},
      {R"({"a":1,"a":2})", 0, "the header is not JSON that can be read: the key 'a' stands twice"},
      {R"({"a":1})", 0, "tensor \"a\": expected an object, got 1"},
      {R"({"a":{"shape":[1],"data_offsets":[0,4]}})", 4,
       "tensor \"a\": dtype: expected a name, got nothing"},
      {R"({"a":{"dtype":"F8_E5M2","shape":[1],"data_offsets":[0,1]}})", 1,
       "tensor \"a\": dtype \"F8_E5M2\" is not supported; supported are F64, F32, BF16, F16, I64, "
       "I32, I8, U64, U32, U8, BOOL"},
      {R"({"a":{"dtype":"f32","shape":[1],"data_offsets":[0,4]}})", 4,
       "tensor \"a\": dtype \"f32\" is not supported; supported are F64, F32, BF16, F16, I64, I32, "
       "I8, U64, U32, U8, BOOL"},
      {R"({"a":{"dtype":"F32","data_offsets":[0,4]}})", 4,
       "tensor \"a\": shape: expected an array of extents, got nothing"},
      {R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", 4,
       "tensor \"a\": shape: expected extents of 0 or more, got -1"},
      {R"({"a":{"dtype":"F32","shape":[1.0],"data_offsets":[0,4]}})", 4,
       "tensor \"a\": shape: expected extents of 0 or more, got 1.0"},
      {R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]}})", 0,
       "tensor \"a\": the size of f32[4294967296,4294967296] overflows"},
      {R"({"a":{"dtype":"U8","shape":[9223372036854775807,0],"data_offsets":[0,0]}})", 0,
       "tensor \"a\": the size of u8[9223372036854775807,0] overflows"},
      {R"({"a":{"dtype":"U8","shape":[18446744073709551615],"data_offsets":[0,0]}})", 0,
       "tensor \"a\": shape: expected extents of 0 or more, got 18446744073709551615"},
      {R"({"a":{"dtype":"F32","shape":[1]}})", 4,
       "tensor \"a\": data_offsets: expected [begin, end], got nothing"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0]}})", 4,
       "tensor \"a\": data_offsets: expected [begin, end], got [0]"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}})", 4,
       "tensor \"a\": data_offsets: expected 0 <= begin <= end <= 2^62, got [4, 0]"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[-4,0]}})", 4,
       "tensor \"a\": data_offsets: expected 0 <= begin <= end <= 2^62, got [-4, 0]"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", 4,
       "tensor \"a\": data_offsets hold 4 bytes, f32[2] needs 8"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4],"x":0}})", 4,
       "tensor \"a\": has an unknown field \"x\""},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 3,
       "is cut short: the tensors have 4 bytes, 3 are there"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 5,
       "has 1 bytes behind the last tensor"},
      {"{}", 1, "has 1 bytes behind the last tensor"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", 8,
       "tensor \"a\" begins at 4 of the data, a hole after 0"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
       R"("b":{"dtype":"F32","shape":[1],"data_offsets":[2,6]}})",
       6, "tensor \"b\" begins at 2 of the data, inside the one that ends at 4"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
       R"("b":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
       8, "tensor \"b\" begins at 0 of the data, inside the one that ends at 4"},
      {R"({"__metadata__":1})", 0, "__metadata__: expected an object, got 1"},
      {R"({"__metadata__":{"a":1}})", 0, "__metadata__: \"a\": expected a string, got 1"},
      {R"({"a\n":1})", 0, R"(tensor "a\n": expected an object, got 1)"}};
  const TemporaryFolder folder;
  for (const auto& [header, n, why] : kBad)
    EXPECT_EQ(refusal_of(folder, with_header(header, n)), why) << header;
}

TEST(Safetensors, RefusesWhatIsNoSuchFile) {
  const TemporaryFolder folder;
  EXPECT_EQ(refusal_of(folder, ""), "is not a safetensors file: expected at least 8 bytes, got 0");
  EXPECT_EQ(refusal_of(folder, "1234567"),
            "is not a safetensors file: expected at least 8 bytes, got 7");
  EXPECT_EQ(
      refusal_of(folder, std::string(100, '\xff')),
      "is not a safetensors file: expected a header of at most 100000000 bytes, got 18446744073709551615");
  EXPECT_EQ(refusal_of(folder, with_header("{}", 0).substr(0, 9)),
            "is cut short: a header of 2 bytes is announced, 1 follow");
  EXPECT_EQ(SafetensorsFile::open(folder / "none").error(),
            folder / "none" + ": No such file or directory");
  std::string deep = "{\"a\":" + std::string(1 << 20, '[');
  EXPECT_NE(refusal_of(folder, with_header(deep, 0)), "");
}

// Whatever is done to a file, opening it gives an error or tensors that lie within it.
TEST(Safetensors, SurvivesDamage) {
  const TemporaryFolder folder;
  const std::string path = folder / "a.safetensors";
  const std::string data(64, 'x');
  const std::vector<TensorBytes> tensors = {
      {"layers/w1", DType::kF32, {4, 2}, as_bytes(data).first(32)},
      {"layers/w2", DType::kBF16, {8}, as_bytes(data).first(16)},
      {"step", DType::kI64, {}, as_bytes(data).first(8)}};
  ASSERT_TRUE(save_safetensors(path, tensors, {{"k", "v"}}).ok());
  const std::string good = read_bytes(path);
  std::mt19937 random(11);
  int refused = 0;
  for (int round = 0; round < 3000; ++round) {
    std::string bad = good;
    for (uint32_t n = 1 + random() % 3; n > 0; --n) {
      const size_t at = random() % bad.size();
      switch (random() % 4) {
        case 0:
          bad[at] = static_cast<char>(bad[at] ^ (1 << (random() % 8)));
          break;
        case 1:
          bad[at] = "0123456789[]{}\",:-."[random() % 19];
          break;
        case 2:
          bad.erase(at, 1 + random() % 4);
          break;
        case 3:
          bad.insert(at, 1, static_cast<char>(random()));
          break;
      }
    }
    write_bytes(path, bad);
    const Result<SafetensorsFile> file = SafetensorsFile::open(path);
    if (!file.ok()) {
      ++refused;
      continue;
    }
    int64_t total = 0;
    for (const TensorInfo& tensor : file->tensors()) {
      ASSERT_GE(tensor.offset_bytes, 8);
      ASSERT_LE(tensor.offset_bytes + tensor.n_bytes, static_cast<int64_t>(bad.size()));
      std::vector<std::byte> out(static_cast<size_t>(tensor.n_bytes));
      ASSERT_TRUE(file->read(tensor, out).ok());
      total += tensor.n_bytes;
    }
    EXPECT_LE(total, static_cast<int64_t>(bad.size()));
  }
  EXPECT_GT(refused, 1000);
}

TEST(Safetensors, WritesNothingWrong) {
  const TemporaryFolder folder;
  const std::string path = folder / "a";
  const auto refusal = [&](std::vector<TensorBytes> tensors) {
    const Result<void> saved = save_safetensors(path, tensors);
    EXPECT_EQ(count_entries(folder.path()), 0u);
    return saved.error();
  };
  const std::string data(8, 'x');
  EXPECT_EQ(refusal({{"a", DType::kF32, {3}, as_bytes(data)}}),
            path + ": tensor \"a\": 8 bytes given for f32[3]");
  EXPECT_EQ(refusal({{"a", DType::kF32, {-2}, as_bytes(data)}}),
            path + ": tensor \"a\": 8 bytes given for f32[-2]");
  EXPECT_EQ(
      refusal({{"a", DType::kF32, {2}, as_bytes(data)}, {"a", DType::kF64, {}, as_bytes(data)}}),
      path + ": two tensors have the name \"a\"");
  EXPECT_EQ(refusal({{"__metadata__", DType::kF32, {2}, as_bytes(data)}}),
            path + ": the name \"__metadata__\" is reserved");
  EXPECT_EQ(refusal({{"\xff", DType::kF32, {2}, as_bytes(data)}}),
            path + ": the name \"\xef\xbf\xbd\" is not UTF-8");
}

TEST(Safetensors, AFullDiskLeavesTheOldFile) {
  const TemporaryFolder folder;
  const std::string path = folder / "a";
  const std::string data(100000, 'x');
  const std::vector<TensorBytes> small = {{"a", DType::kU8, {10}, as_bytes(data).first(10)}};
  const std::vector<TensorBytes> large = {{"a", DType::kU8, {100000}, as_bytes(data)}};
  ASSERT_TRUE(save_safetensors(path, small).ok());
  const std::string before = read_bytes(path);
  Result<void> saved;
  {
    const FileSizeLimit limit(50000);
    saved = save_safetensors(path, large);
  }
  EXPECT_EQ(saved.error(), path + ": File too large");
  EXPECT_EQ(read_bytes(path), before);
  EXPECT_EQ(count_entries(folder.path()), 1u);
}

}  // namespace
}  // namespace stow
