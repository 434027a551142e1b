#include "stowage/base/bytes.h"

#include <gtest/gtest.h>

namespace stow {
namespace {

TEST(Bytes, ParsesUnits) {
  EXPECT_EQ(parse_bytes("64MiB").value(), 64 << 20);
  EXPECT_EQ(parse_bytes("1.5GB").value(), 1500000000);
  EXPECT_EQ(parse_bytes("4096").value(), 4096);
  EXPECT_EQ(parse_bytes("9007199254740993").value(), 9007199254740993);
  EXPECT_EQ(parse_bytes("2 kib").value(), 2048);
}

TEST(Bytes, RefusesWhatIsNoSize) {
  for (const char* text : {"", "12parsecs", "-1", "1.5", "MiB", "1e3", "99999999TiB", "nan", "inf"})
    EXPECT_FALSE(parse_bytes(text).ok()) << text;
  for (const char* text : {"nan", "-nan", "inf", "infinity"})
    EXPECT_NE(parse_bytes(text).error().find("does not begin with a number"), std::string::npos);
  EXPECT_NE(parse_bytes("12parsecs").error().find("parsecs"), std::string::npos);
}

}  // namespace
}  // namespace stow
