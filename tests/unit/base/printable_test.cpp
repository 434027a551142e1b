#include "stowage/base/printable.h"

#include <gtest/gtest.h>

namespace stow {
namespace {

TEST(Printable, LeavesTextAndReplacesWhatIsNone) {
  const struct {
    std::string_view text, shown;
  } kTexts[] = {
      {"", ""},
      {"a\tb\n~", "a\tb\n~"},
      {"\x1b[31mred\x07\x7f\r", "?[31mred???"},
      {std::string_view("a\0b", 3), "a?b"},
      {"\u00e9 \u20ac \U0001f600", "\u00e9 \u20ac \U0001f600"},
      {"\xff\xfe", "??"},
      {"\xc3", "?"},              // cut short
      {"\xe2\x82g", "??g"},
      {"\xc0\xaf", "??"},         // longer than it need be
      {"\xed\xa0\x80", "???"},    // half of a pair
      {"\xf4\x90\x80\x80", "????"},  // beyond the last
      {"\xc2\x9b" "31m", "??31m"},   // a control character
      {"\xef\xbf\xbf", "???"},    // no character
  };
  for (const auto& [text, shown] : kTexts) EXPECT_EQ(printable(text), shown) << text;
}

}  // namespace
}  // namespace stow
