// Dtype policies as jmp and Levanter write them.
#include "stowage/train/dtypes.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "stowage/base/inside.h"
#include "stowage/train/config.h"

namespace stow {
namespace {

TEST(Dtypes, APolicySaysWhatIsComputedIn) {
  const std::pair<const char*, const char*> cases[] = {
      {"f32", "f32"},
      {"float32", "f32"},
      {"full", "f32"},
      {"bf16", "bf16"},
      {"bfloat16", "bf16"},
      {"half", "bf16"},
      {"p=f32,c=bf16,o=f32", "bf16"},
      {"c=bfloat16", "bf16"},
      {"p=f32", "f32"},
      {"output=full,params=float32,compute=half", "bf16"},
      {"p=bf16", "p=bf16,c=f32,o=f32"},
      {"o=f32,compute=half,params=bfloat16", "p=bf16,c=bf16,o=f32"}};
  for (const auto& [text, want] : cases) {
    const Result<std::string> got = parse_compute_dtype(text);
    ASSERT_TRUE(got.ok()) << text << ": " << got.error();
    EXPECT_EQ(*got, want) << text;
    EXPECT_EQ(
        load_train_config({.settings = {std::string("train.compute=") + text}})->train.compute,
        want);
  }
}

TEST(Dtypes, TheTextOfAPolicyIsReadBack) {
  for (const DType params : {DType::kF32, DType::kBF16})
    for (const DType compute : {DType::kF32, DType::kBF16}) {
      const std::string text = fmt::format("p={},c={}", dtype_name(params), dtype_name(compute));
      const Result<std::string> held = parse_compute_dtype(text);
      ASSERT_TRUE(held.ok()) << text;
      EXPECT_EQ(dtype_policy(*held).params, params) << text;
      EXPECT_EQ(dtype_policy(*held).compute, compute) << text;
      EXPECT_EQ(parse_compute_dtype(*held).value(), *held);
    }
}

TEST(Dtypes, PoliciesThatAreWrong) {
  const std::pair<const char*, const char*> cases[] = {
      {"f16", "expected f32 or bf16, or a policy such as p=f32,c=bf16,o=f32, got 'f16'"},
      {"c=", "expected f32 or bf16, or a policy such as p=f32,c=bf16,o=f32, got ''"},
      {"c=int8,p=f32", "expected f32 or bf16, or a policy such as p=f32,c=bf16,o=f32, got 'int8'"},
      {"p=f32,bf16", "expected p=, c= or o= and a dtype between the commas, got 'bf16'"},
      {"p=f32,,c=bf16", "expected p=, c= or o= and a dtype between the commas, got ''"},
      {"p=f32,c=bf16,", "expected p=, c= or o= and a dtype between the commas, got ''"},
      {"x=bf16", "expected p=, c= or o= and a dtype between the commas, got 'x=bf16'"},
      {"c=bf16,compute=f32", "'c=bf16,compute=f32' gives compute twice"},
      {"c=bf16,o=bf16", "o=bf16 is not there: the loss is computed in f32; write o=f32"}};
  for (const auto& [text, error] : cases) {
    const std::string setting = std::string("train.compute=") + text;
    EXPECT_EQ(load_train_config({.settings = {setting}}).error(),
              "--set " + setting + ": train.compute: " + error);
  }
}

}  // namespace
}  // namespace stow
