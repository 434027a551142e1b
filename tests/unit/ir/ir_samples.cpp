#include "tests/unit/ir/ir_samples.h"

#include <cstring>
#include <limits>
#include <map>

#include "stowage/ir/fields.h"

namespace stow::testing {
namespace {

template <typename T>
std::vector<std::byte> bytes_of(std::initializer_list<T> values) {
  std::vector<std::byte> data(values.size() * sizeof(T));
  std::memcpy(data.data(), values.begin(), data.size());
  return data;
}

// Fills a field with something that is not its default.
void fill(ArrayType& v) {
  v = {DType::kBF16, {2, 0, 3}, MemoryKind::kDisk, true};
}
void fill(std::vector<std::byte>& v) {
  v = bytes_of<uint16_t>({0x3f80});
}
void fill(Shape& v) {
  v = {4, 5};
}
void fill(Dims& v) {
  v = {3, -1, 2};
}
void fill(int64_t& v) {
  v = -7;
}
void fill(int& v) {
  v = 9;
}
void fill(bool& v) {
  v = !v;
}
void fill(float& v) {
  v = -std::numeric_limits<float>::denorm_min();
}
void fill(DType& v) {
  v = DType::kU8;
}
void fill(MemoryKind& v) {
  v = MemoryKind::kPinnedHost;
}
void fill(std::string& v) {
  v = "quote \" slash \\ tab \t µ";
}
void fill(ReduceKind& v) {
  v = ReduceKind::kOr;
}
void fill(MeshAxes& v) {
  v = {2, 0};
}
void fill(MeshShape& v) {
  v = {{"data", "quote \" \\"}, {4, 2}};
}
void fill(AxisSharding& v) {
  v = {.axes = {{1}, {}, {2, 0}}};
}
void fill(PolicyPtr& v) {
  v = sample_policy("dots");
}

Graph constants() {
  using F = std::numeric_limits<float>;
  Graph g;
  auto add = [&](DType dtype, Shape shape, std::vector<std::byte> data) {
    const ArrayType type{dtype, std::move(shape)};
    g.add_node({.op = OpKind::kConstant, .params = ConstantParams{type, std::move(data)}},
               std::span(&type, 1));
  };
  for (float f : {0.0f, -0.0f, 0.1f, 1e-45f, F::max(), F::infinity(), -F::infinity(),
                  F::quiet_NaN(), -F::quiet_NaN(), F::signaling_NaN()})
    add(DType::kF32, {3}, bytes_of({f}));
  for (double f : {0.1, -0.0, 5e-324, 1e308}) add(DType::kF64, {}, bytes_of({f}));
  for (DType dtype : {DType::kBF16, DType::kF16})
    for (uint32_t bits = 0; bits < 0x10000; bits += 251)
      add(dtype, {}, bytes_of({static_cast<uint16_t>(bits)}));
  add(DType::kI64, {}, bytes_of({std::numeric_limits<int64_t>::min()}));
  add(DType::kU64, {}, bytes_of({std::numeric_limits<uint64_t>::max()}));
  add(DType::kI8, {2}, bytes_of<int8_t>({-128, 127}));
  add(DType::kBool, {4}, bytes_of<uint8_t>({0, 1, 0, 1}));
  add(DType::kBool, {2}, bytes_of<uint8_t>({1, 2}));  // 2 is no bool
  add(DType::kF32, {0}, {});
  add(DType::kU32, {9}, bytes_of<uint32_t>({1, 2, 3, 4, 5, 6, 7, 8, 9}));
  g.set_outputs({});
  return g;
}

}  // namespace

PolicyPtr sample_policy(std::string_view name) {
  static std::map<std::string, PolicyPtr, std::less<>> policies;
  if (name != "dots" && name != "nothing \"much\"") return nullptr;
  PolicyPtr& policy = policies[std::string(name)];
  if (!policy) policy = std::make_shared<Policy>(Policy{std::string(name), {}, {}});
  return policy;
}

Graph every_op() {
  Graph g;
  const ArrayType f32{DType::kF32, {8, 64}}, host{DType::kI32, {}, MemoryKind::kPinnedHost, true};
  const ValueId x = g.add_input(f32, "x"), key = g.add_input(host);
  g.add_region({RegionId(), sample_policy("dots"), true});
  g.add_region({RegionId(0u), nullptr, false});
  g.add_region({RegionId(1u), sample_policy("nothing \"much\""), true});

  const auto inner = std::make_shared<Graph>(constants());
  const auto nested = std::make_shared<Graph>();
  nested->add_input(f32, "inner");
  nested->add_node({.op = OpKind::kCheckpoint, .params = CheckpointParams{}, .graphs = {inner}},
                   {});
  nested->set_outputs({ValueId(0u), ValueId(0u)});

  const ProvenancePtr provenances[] = {
      nullptr, std::make_shared<Provenance>(),
      std::make_shared<Provenance>(Provenance{"layers/0 \"a\"", {}}),
      std::make_shared<Provenance>(Provenance{"", {"/src/model.cpp", 41}, Pass::kVjp})};
  ValueId last = x;
  for (int i = 0; i < kNumOps; ++i) {
    const auto op = static_cast<OpKind>(i);
    Node node{.op = op, .params = empty_params(op), .operands = {x, last}};
    std::visit([](auto& p) { visit_fields(p, [](std::string_view, auto& v) { fill(v); }); },
               node.params);
    node.graphs.assign(static_cast<size_t>(n_nested_graphs(op).least), nested);
    node.provenance = provenances[i % 4];
    if (i % 4 > 0) node.region = RegionId(static_cast<size_t>(i % 4 - 1));
    node.escapes_region = node.region.valid() && i % 5 == 0;
    node.backward = i % 3 == 0;
    // The last has a result: text cannot tell whether an input was added before a node without.
    const int n_results = i + 1 == kNumOps ? 1 : i % 3;
    const std::vector<ArrayType> types(static_cast<size_t>(n_results), i % 2 ? f32 : host);
    const NodeId id = g.add_node(std::move(node), types);
    if (!types.empty()) last = g.node(id).result(static_cast<int>(types.size()) - 1);
    if (i == 20) g.add_input(host, "late");  // as a captured array that is met while tracing
  }
  g.add_input(f32, "last");
  g.set_outputs({last, key, last});
  return g;
}

}  // namespace stow::testing
