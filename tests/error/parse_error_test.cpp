#include <gtest/gtest.h>

#include "stowage/ir/parse.h"

namespace stow {
namespace {

// A graph of one input whose body is `line`.
std::string in_graph(std::string_view line) {
  return fmt::format("graph(%0: f32[4]) {{\n  {}\n  return %0\n}}\n", line);
}

struct ErrorCase {
  std::string text, error;
};

TEST(ParseError, NamesThePlaceAndWhatWasExpected) {
  std::string deep;
  for (int i = 0; i < 65; ++i) deep += "graph() { checkpoint() : () ";
  const ErrorCase cases[] = {
      {"", "f:1:1: expected 'graph', found end of text"},
      {"graph", "f:1:6: expected '(', found end of text"},
      {"graph(0", "f:1:7: expected an input such as %0, found '0'"},
      {"graph(%0 f32[]", "f:1:10: expected ':', found 'f32'"},
      {"graph(%0: f31[])", "f:1:11: expected a type such as f32[8,64], found 'f31'"},
      {"graph(%0: f32)", "f:1:14: expected '[', found ')'"},
      {"graph(%0: f32<tape>[])", "f:1:15: expected device, pinned_host or disk, found 'tape'"},
      {"graph(%0: f32[-1])", "f:1:15: expected an extent from 0 to 281474976710656, found '-1'"},
      {"graph(%0: f32[1,])", "f:1:17: expected an extent, found ']'"},
      {"graph(%0: f32[1 2])", "f:1:17: expected ',' or ']', found '2'"},
      {"graph(%0: f32[9999999999,0,99999999])", "f:1:28: the array is larger than 2^56 bytes"},
      {"graph(%1: f32[]) { return }",
       "f:1:7: expected %0 as the number of the next input, found %1"},
      {"graph(%4294967295: f32[]) { return }",
       "f:1:7: expected a value number below 4294967295, found '%4294967295'"},
      {"graph() { return } graph", "f:1:20: expected end of text after the graph, found 'graph'"},
      {"graph() { return %0 }", "f:1:18: %0 is not defined before its use"},
      {in_graph("%1 = frob(%0) : f32[4]"), "f:2:8: expected the name of an op, found 'frob'"},
      {in_graph("frob"), "f:2:3: expected a node, 'return' or a region, found 'frob'"},
      {in_graph("%2 = exp(%0) : f32[4]"),
       "f:2:3: expected %1 as the number of the next value, found '%2'"},
      {in_graph("%1 exp(%0)"), "f:2:6: expected ',' or '=', found 'exp'"},
      {in_graph("%1 = exp(%1) : f32[4]"), "f:2:12: %1 is not defined before its use"},
      {in_graph("%1 = exp(%0"), "f:3:3: expected ',' or ')', found 'return'"},
      {in_graph("%1 = exp(%0)"),
       "f:3:3: expected ':' and the types of the results, found 'return'"},
      {in_graph("%1 = exp(%0) : ()"), "f:2:18: expected 1 result types, found 0"},
      {in_graph("%1 = exp(%0) : f32[4], f32[4]"), "f:2:18: expected 1 result types, found 2"},
      {in_graph("%1 = exp(%0) {} : f32[4]"), "f:2:16: exp takes no parameters"},
      {in_graph("%1 = cumsum(%0) {axe=0} : f32[4]"), "f:2:20: cumsum has no parameter 'axe'"},
      {in_graph("%1 = cumsum(%0) {axis=0, axis=1} : f32[4]"), "f:2:28: axis is given twice"},
      {in_graph("%1 = cumsum(%0) {axis=x} : f32[4]"), "f:2:25: expected an integer, found 'x'"},
      {in_graph("%1 = cumsum(%0) {axis=1.5} : f32[4]"), "f:2:25: expected an integer, found '1.5'"},
      {in_graph("%1 = cumsum(%0) {axis=99999999999999999999} : f32[4]"),
       "f:2:25: expected an integer from -281474976710656 to 281474976710656, found "
       "'99999999999999999999'"},
      {in_graph("%1 = cumsum(%0) {flag=1} : f32[4]"), "f:2:25: expected true or false, found '1'"},
      {in_graph("%1 = convert(%0) {dtype=f3} : f32[4]"),
       "f:2:27: expected a dtype such as f32, found 'f3'"},
      {in_graph("%1 = name(%0) {name=x} : f32[4]"),
       "f:2:23: expected a string in quotes, found 'x'"},
      {in_graph("%1 = name(%0) {name=\"a\\n\"} : f32[4]"),
       "f:2:25: expected \\\", \\\\ or \\xHH (lower-case hex)"},
      {in_graph("%1 = name(%0) {name=\"a} : f32[4]"), "f:2:23: expected a closing \" on this line"},
      {in_graph("%1 = constant() {data=1} : f32[4]"),
       "f:2:25: expected type= before data=, found '1'"},
      {in_graph("%1 = constant() {type=f32[4]} : f32[4]"),
       "f:2:19: expected 1 or 4 elements in a constant f32[4], found 0 bytes"},
      {in_graph("%1 = constant() {type=f32[4], data=[1,2,3]} : f32[4]"),
       "f:2:19: expected 1 or 4 elements in a constant f32[4], found 12 bytes"},
      {in_graph("%1 = constant() {type=i8[], data=300} : i8[]"),
       "f:2:36: expected a number that fits i8, found '300'"},
      {in_graph("%1 = constant() {type=i8[], data=hex\"7\"} : i8[]"),
       "f:2:39: expected an even number of hex digits, found 1"},
      {in_graph("%1 = constant() {type=i8[], data=hex\"7G\"} : i8[]"),
       "f:2:41: expected lower-case hex digits"},
      {in_graph("%1 = exp(%0) region 0 : f32[4]"), "f:2:23: this graph lists no regions"},
      {in_graph("region 1 {}"), "f:2:10: expected 0 as the number of the next region, found 1"},
      {in_graph("region 0 {parent=0}"),
       "f:2:20: expected none (a parent comes earlier in the list), found '0'"},
      {in_graph("region 0 {} region 1 {parent=1}"),
       "f:2:32: expected none or an earlier region from 0 to 0, found '1'"},
      {in_graph("region 0 {} %1 = exp(%0) region 1 : f32[4]"),
       "f:2:35: expected the number of a region from 0 to 0, found '1'"},
      {in_graph("region 0 {policy=\"frob\"}"), "f:2:20: no policy has the name \"frob\""},
      {in_graph("checkpoint() : ()"),
       "f:3:3: expected the nested graph of checkpoint, found 'return'"},
      {in_graph("%1 = exp(%0) : f32[4] graph() {return}"),
       "f:2:25: exp takes 0 nested graphs and no more"},
      {in_graph("%1 = exp(%0) : f32[4] @mlp"),
       "f:2:26: expected the scope, in quotes, found 'mlp'"},
      {in_graph("%1 = exp(%0) : f32[4] @\"mlp\" \"a.cpp\""), "f:3:3: expected ':', found 'return'"},
      {in_graph("%1 = exp(%0) : f32[4] @\"\" \"a\\x00\":1"),
       "f:2:29: expected a file name without \\x00"},
      {in_graph("$"), "f:2:3: expected a token, found '$'"},
      {in_graph("\x01"), "f:2:3: expected a token, found byte 0x01"},
      {in_graph("% 1"), "f:2:3: expected a number after %"},
      {deep, "f:1:1793: graphs are nested more than 64 deep"},
  };
  for (const ErrorCase& c : cases) {
    const auto result = parse_graph(c.text, "f");
    ASSERT_FALSE(result.ok()) << c.text;
    EXPECT_EQ(result.error(), c.error) << c.text;
  }
}

TEST(ParseError, RefusesTextsThatAreTooLong) {
  const std::string text(kMaxTextBytes + 1, ' ');
  EXPECT_EQ(parse_graph(text, "f").error(),
            "f:1:1: expected at most 67108864 bytes of text, found 67108865");
}

}  // namespace
}  // namespace stow
