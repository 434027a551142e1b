#include "stowage/train/dtypes.h"

#include <algorithm>
#include <map>
#include <string_view>

#include <fmt/format.h>

namespace stow {
namespace {

constexpr std::string_view kBF16Params = "p=bf16,c=";

Result<std::string> parse_dtype(const std::string& text) {
  if (text == "f32" || text == "float32" || text == "full") return std::string("f32");
  if (text == "bf16" || text == "bfloat16" || text == "half") return std::string("bf16");
  return fail("expected f32 or bf16, or a policy such as p=f32,c=bf16,o=f32, got '{}'", text);
}

// Returns the name of a part of a policy, given the name or its first letter; empty for other text.
std::string_view part_name(std::string_view text) {
  for (const std::string_view name : {"params", "compute", "output"})
    if (text == name || text == name.substr(0, 1)) return name;
  return {};
}

}  // namespace

Result<std::string> parse_compute_dtype(const std::string& text) {
  if (text.find('=') == std::string::npos) return parse_dtype(text);
  std::map<std::string_view, std::string> dtypes;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    const std::string part = text.substr(at, end - at);
    at = end + 1;
    const size_t equals = part.find('=');
    const std::string_view name = part_name(std::string_view(part).substr(0, equals));
    if (equals == std::string::npos || name.empty())
      return fail("expected p=, c= or o= and a dtype between the commas, got '{}'", part);
    Result<std::string> dtype = parse_dtype(part.substr(equals + 1));
    if (!dtype) return dtype.failure();
    if (!dtypes.emplace(name, std::move(*dtype)).second)
      return fail("'{}' gives {} twice", text, name);
  }
  const auto of = [&](std::string_view name) {
    const auto found = dtypes.find(name);
    return found == dtypes.end() ? std::string("f32") : found->second;
  };
  if (of("output") != "f32")
    return fail("o={} is not there: the loss is computed in f32; write o=f32", of("output"));
  if (of("params") == "f32") return of("compute");
  return fmt::format("{}{},o=f32", kBF16Params, of("compute"));
}

DTypePolicy dtype_policy(const std::string& compute) {
  const bool has_params = compute.starts_with(kBF16Params);
  const std::string_view products =
      std::string_view(compute).substr(has_params ? kBF16Params.size() : 0);
  return {has_params ? DType::kBF16 : DType::kF32,
          products.starts_with("bf16") ? DType::kBF16 : DType::kF32};
}

}  // namespace stow
