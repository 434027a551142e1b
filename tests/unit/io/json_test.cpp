#include "stowage/io/json.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "stowage/io/digest.h"
#include "stowage/io/files.h"
#include "tests/support/temporary_folder.h"

namespace stow {
namespace {

using namespace std::string_view_literals;

TEST(Json, PrintsInOrderOnOneLine) {
  Json json = Json::object({{"b", 1}, {"a", Json::array()}, {"text", "x\n\"\\\t\x01"}});
  json.set("b", -2);
  json.set("f", 1.0);
  json.set("yes", true);
  Json list;
  list.push_back(nullptr);
  list.push_back(~uint64_t{0});
  json.set("list", list);
  EXPECT_EQ(json.dump(), R"({"b": -2, "a": [], "text": "x\n\"\\\t\u0001", "f": 1.0, "yes": true, )"
                         R"("list": [null, 18446744073709551615]})");
  EXPECT_EQ(parse_json(json.dump())->dump(), json.dump());
}

TEST(Json, FloatsRoundTrip) {
  std::mt19937_64 random(7);
  for (int i = 0; i < 2000; ++i) {
    const double value = std::bit_cast<double>(random());
    if (!std::isfinite(value)) continue;
    const double back = parse_json(Json(value).dump())->as_double().value();
    EXPECT_EQ(std::bit_cast<uint64_t>(back), std::bit_cast<uint64_t>(value)) << value;
  }
  EXPECT_EQ(Json(-0.0).dump(), "-0.0");
  EXPECT_EQ(Json(1e300).dump(), "1e+300");
  EXPECT_EQ(Json(std::nan("")).dump(), "null");
  EXPECT_EQ(Json(-std::numeric_limits<double>::infinity()).dump(), "null");
  EXPECT_EQ(hex_float(5.5f), "0x1.6p+2");
}

TEST(Json, BytesThatAreNoUtf8Print) {
  EXPECT_EQ(Json("a\xff\xc3\xa9\xc3").dump(), "\"a\xef\xbf\xbd\xc3\xa9\xef\xbf\xbd\"");
  EXPECT_EQ(Json("\xed\xa0\x80").dump(), "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\"");
  for (const char* good : {"", "x", "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x98\x80"})
    EXPECT_TRUE(is_utf8(good)) << good;
  for (const char* bad : {"\xc0\x80", "\xe0\x80\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\x80",
                          "\xe2\x82", "\xf5\x80\x80\x80"})
    EXPECT_FALSE(is_utf8(bad)) << bad;
}

TEST(Json, ReadsStrictly) {
  const struct {
    const char* text;
    const char* why;
  } kBad[] = {{"", "a syntax error"},
              {"{", "a syntax error"},
              {"[1,]", "a syntax error"},
              {"{} x", "a syntax error"},
              {"// c\n1", "a syntax error"},
              {"NaN", "a syntax error"},
              {"1e999", "a syntax error"},
              {"\"\xff\"", "a syntax error"},
              {R"({"a": 1, "b": 2, "a": 3})", "the key 'a' stands twice"},
              {R"([{"a": {}, "a": 3}])", "the key 'a' stands twice"},
              {"[[[[1]]]]", "nested deeper than 3"},
              {"[1,2,3,4,5,6,7,8,9,10]", "more than 10 values"}};
  for (const auto& [text, why] : kBad) {
    const Result<Json> json = parse_json(text, {.depth = 3, .n_values = 10});
    ASSERT_FALSE(json.ok()) << text;
    EXPECT_NE(json.error().find(why), std::string::npos) << text << ": " << json.error();
  }
  for (const std::string_view tail : {"\0"sv, "\0 x"sv, " \0{}"sv})
    EXPECT_FALSE(parse_json("{}" + std::string(tail)).ok());
  EXPECT_EQ(parse_json("[1]\0x"sv).error(), "not JSON that can be read: a zero byte at byte 4");
  EXPECT_TRUE(parse_json("[[[1]]]", {.depth = 3, .n_values = 4}).ok());
  EXPECT_FALSE(parse_json(std::string(1 << 20, '[')).ok());
}

TEST(Json, NumbersKnowTheirRange) {
  EXPECT_EQ(parse_json("9223372036854775807")->as_int().value(), INT64_MAX);
  EXPECT_FALSE(parse_json("9223372036854775808")->as_int().ok());
  EXPECT_EQ(parse_json("9223372036854775808")->as_uint().value(), uint64_t{1} << 63);
  EXPECT_FALSE(parse_json("-1")->as_uint().ok());
  EXPECT_FALSE(parse_json("1.0")->as_int().ok());
  EXPECT_FALSE(parse_json("\"1\"")->as_int().ok());
}

TEST(JsonLines, EveryLineIsOnTheFileAtOnce) {
  const TemporaryFolder folder;
  write_bytes(folder / "a", "what was there before");
  Result<JsonLines> lines = JsonLines::open(folder / "a");
  ASSERT_TRUE(lines.ok());
  ASSERT_TRUE(lines->write(Json::object({{"step", 1}})).ok());
  EXPECT_EQ(read_bytes(folder / "a"), "{\"step\": 1}\n");
  ASSERT_TRUE(lines->write(Json::object({{"step", 2}})).ok());
  EXPECT_EQ(read_bytes(folder / "a"), "{\"step\": 1}\n{\"step\": 2}\n");
}

TEST(JsonLines, WhatStoodThereStaysUntilThereIsALine) {
  const TemporaryFolder folder;
  write_bytes(folder / "a", "a log of yesterday\n");
  EXPECT_TRUE(JsonLines::open(folder / "a").ok());
  EXPECT_EQ(read_bytes(folder / "a"), "a log of yesterday\n");
}

TEST(JsonLines, ErrorsNamePathAndReason) {
  Result<JsonLines> full = JsonLines::open("/dev/full");
  ASSERT_TRUE(full.ok());
  EXPECT_EQ(full->write(Json(1)).error(), "/dev/full: No space left on device");
  EXPECT_EQ(JsonLines::open("/no/such").error(), "/no/such: No such file or directory");
}

TEST(JsonLines, StandardOutputKeepsTheOrderOfWhatIsPrinted) {
  testing::internal::CaptureStdout();
  std::printf("before ");
  Result<JsonLines> lines = JsonLines::open("-");
  ASSERT_TRUE(lines->write(Json(1)).ok());
  std::printf("after");
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "before 1\nafter");
}

TEST(Digest, IsXxh64) {
  const struct {
    const char* text;
    const char* hex;
  } kKnown[] = {{"", "ef46db3751d8e999"},
                {"a", "d24ec4f1a98c6e5b"},
                {"abc", "44bc2cf5ad770999"},
                {"Nobody inspects the spammish repetition", "fbcea83c8a378bf1"}};
  for (const auto& [text, hex] : kKnown) {
    Digest digest;
    digest.update(as_bytes(text));
    EXPECT_EQ(digest.hex(), hex) << text;
  }
}

TEST(Digest, PiecesMakeNoDifferenceAndEveryBitDoes) {
  std::mt19937 random(3);
  std::string text(300, '\0');
  for (char& c : text) c = static_cast<char>(random());
  Digest whole;
  whole.update(as_bytes(text));
  for (int round = 0; round < 200; ++round) {
    Digest pieces;
    for (size_t at = 0; at < text.size();) {
      const size_t n = std::min<size_t>(random() % 70, text.size() - at);
      pieces.update(as_bytes(std::string_view(text).substr(at, n)));
      at += n;
    }
    ASSERT_EQ(pieces.value(), whole.value());
  }
  for (size_t bit = 0; bit < 8 * text.size(); ++bit) {
    std::string flipped = text;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << (bit % 8)));
    Digest other;
    other.update(as_bytes(flipped));
    ASSERT_NE(other.value(), whole.value()) << bit;
  }
}

}  // namespace
}  // namespace stow
