#include "stowage/api/scan.h"

#include "stowage/api/trace.h"

namespace stow {
namespace {

// "carry 'h'", or "the carry" of a lone array.
std::string leaf_name(std::string_view what, const std::string& path) {
  return path.empty() ? fmt::format("the {}", what) : fmt::format("{} '{}'", what, path);
}

int64_t scan_length(const ScanRequest& request, std::span<const Array> xs,
                    const std::vector<std::string>& paths) {
  int64_t length = request.options.length;
  for (size_t i = 0; i < xs.size(); ++i) {
    if (xs[i].rank() == 0)
      fail_here("[scan] {} is {}, and has no axis to scan over", leaf_name("scanned", paths[i]),
                to_string(xs[i].type()));
    if (length < 0) length = xs[i].shape()[0];
    if (xs[i].shape()[0] == length) continue;
    if (i == 0)
      fail_here("[scan] {} has {} slices, length is {}", leaf_name("scanned", paths[i]),
                xs[i].shape()[0], length);
    fail_here("[scan] {} has {} slices, {} has {}", leaf_name("scanned", paths[0]), length,
              leaf_name("scanned", paths[i]), xs[i].shape()[0]);
  }
  if (length < 0) fail_here("[scan] nothing is scanned; give a length");
  return length;
}

// Where a weak initial carry takes the body's type; true if any did.
bool widen_weak_carry(std::vector<Array>& carry, std::span<const ArrayType> returned) {
  bool changed = false;
  for (size_t i = 0; i < carry.size(); ++i) {
    const ArrayType& type = carry[i].type();
    if (!type.weak || type.dtype == returned[i].dtype || !(type.shape == returned[i].shape))
      continue;
    const WeakDType joint = promote({type.dtype, true}, {returned[i].dtype, returned[i].weak});
    if (joint.dtype != returned[i].dtype) continue;
    carry[i] = record1(OpKind::kConvert, DTypeParams{joint.dtype}, {carry[i]});
    changed = true;
  }
  return changed;
}

struct TracedBody {
  Nested nested;
  OwnedTree result;
};

TracedBody trace_body(const ScanRequest& request, std::span<const Array> carry,
                      std::span<const Array> xs, const std::vector<std::string>& names) {
  std::vector<ArrayType> types;
  for (const Array& c : carry) types.push_back(c.type());
  for (const Array& x : xs) {
    ArrayType type = x.type();
    type.shape = Shape(Dims(type.shape.begin() + 1, type.shape.end()));
    types.push_back(type);
  }
  TracedBody traced;
  traced.nested = trace_nested("scan", types, names, 0, [&](std::span<const Array> inputs) {
    traced.result = request.body(inputs);
    return leaves_of(traced.result.ref);
  });
  return traced;
}

}  // namespace

ScanResult run_scan(const ScanRequest& request) {
  const Site site(request.at);
  ScanResult result;
  size_t n_carries = 0;
  const auto body = [&]() -> std::vector<Array> {
    std::vector<Array> carry = leaves_of(request.init);
    const std::vector<Array> xs = leaves_of(request.xs);
    const std::vector<std::string> carry_paths = paths_of(request.init);
    const std::vector<std::string> x_paths = paths_of(request.xs);
    n_carries = carry.size();
    const int64_t length = scan_length(request, xs, x_paths);
    std::vector<std::string> names;
    for (const std::string& p : carry_paths) names.push_back(p.empty() ? "carry" : "carry/" + p);
    for (const std::string& p : x_paths) names.push_back(p.empty() ? "x" : "x/" + p);

    TracedBody traced;
    std::vector<ArrayType> returned;
    for (int attempt = 0; attempt < 2; ++attempt) {
      traced = trace_body(request, carry, xs, names);
      returned.clear();
      for (ValueId id : traced.nested.graph.outputs())
        returned.push_back(traced.nested.graph.type(id));
      if (returned.size() < n_carries)
        fail_here("[scan] the body returns {} arrays, the carry has {}", returned.size(),
                  n_carries);
      if (!widen_weak_carry(carry, returned)) break;
    }
    for (size_t i = 0; i < n_carries; ++i)
      if (!(returned[i] == carry[i].type()))
        fail_here("[scan] the body returns {} as {}, and is given it as {}",
                  leaf_name("carry", carry_paths[i]), to_string(returned[i]),
                  to_string(carry[i].type()));
    result.result = traced.result;

    ScanParams params;
    params.length = length;
    params.n_consts = static_cast<int>(traced.nested.captures.size());
    params.n_carries = static_cast<int>(n_carries);
    params.reverse = request.options.reverse;
    params.in_axes = Dims(xs.size(), 0);
    params.out_axes = Dims(returned.size() - n_carries, 0);
    std::vector<Array> operands = traced.nested.captures;
    operands.insert(operands.end(), carry.begin(), carry.end());
    operands.insert(operands.end(), xs.begin(), xs.end());
    return record(OpKind::kScan, params, operands,
                  {std::make_shared<const Graph>(std::move(traced.nested.graph))});
  };
  std::vector<Array> all = traced_or_run("scan", body);
  const auto split = all.begin() + static_cast<int64_t>(n_carries);
  result.carry.assign(all.begin(), split);
  result.ys.assign(split, all.end());
  return result;
}

}  // namespace stow
