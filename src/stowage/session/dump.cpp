#include "stowage/session/dump.h"

#include <atomic>
#include <cctype>
#include <cstdlib>
#include <map>

#include "stowage/base/text_file.h"
#include "stowage/io/files.h"
#include "stowage/io/safetensors.h"
#include "stowage/ir/print.h"
#include "stowage/ir/schedule_printer.h"
#include "stowage/passes/fuse.h"
#include "stowage/passes/lower.h"
#include "stowage/passes/units_text.h"
#include "stowage/passes/view.h"
#include "stowage/session/buffer_file.h"
#include "stowage/session/compile.h"

namespace stow {
namespace {

void check(const Result<void>& done) {
  if (!done) trace_error("[dump] {}", done.error());
}

std::string folder_name(const std::string& name) {
  static std::atomic<int> n_programs = 0;
  std::string text = fmt::format("{:04}-{}", n_programs++, name.empty() ? "op" : name);
  for (char& c : text)
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != '-' && c != '.') c = '_';
  return text;
}

// Returns the graph with one policy in all regions, which its text then names.
Graph with_policy(Graph graph, const PolicyPtr& policy) {
  for (size_t r = 0; r < graph.regions().size(); ++r)
    graph.mutable_region(RegionId(r)).policy = policy;
  for (size_t n = 0; n < graph.n_nodes(); ++n) {
    Node& node = graph.mutable_node(NodeId(n));
    if (node.op == OpKind::kCheckpoint) std::get<CheckpointParams>(node.params).policy = policy;
    for (GraphPtr& nested : node.graphs)
      nested = std::make_shared<const Graph>(with_policy(*nested, policy));
  }
  return graph;
}

}  // namespace

std::vector<std::string> input_keys(const Graph& graph) {
  std::map<std::string, int> counts;
  for (const std::string& name : graph.input_names()) ++counts[name];
  std::vector<std::string> keys;
  for (size_t i = 0; i < graph.inputs().size(); ++i) {
    const std::string& name = graph.input_names()[i];
    keys.push_back(name.empty() || counts[name] > 1 || name.starts_with("%")
                       ? fmt::format("%{}", graph.inputs()[i].value)
                       : name);
  }
  return keys;
}

Dump::Dump(const CompileOptions& options, const Graph& graph) {
  const char* variable = std::getenv("STOW_DUMP");
  const std::string dir = !options.dump_dir.empty() ? options.dump_dir : variable ? variable : "";
  if (dir.empty()) return;
  folder_ = dir + "/" + folder_name(options.dump_name);
  keys_ = input_keys(graph);
  check(ensure_directory(folder_));
  check(remove_file(folder_ + "/inputs.safetensors"));  // of an earlier process
  this->graph("traced",
              options.override_policy ? with_policy(graph, options.override_policy) : graph);
}

void Dump::text(const std::string& name, const std::string& text) {
  check(write_text_file(fmt::format("{}/{:02}-{}", folder_, n_texts_++, name), text));
}

void Dump::graph(const std::string& stage, const Graph& graph) {
  if (on()) text(stage + ".txt", print(graph));
}

void Dump::schedule(const std::string& stage, const Schedule& schedule) {
  if (on()) text(stage + ".schedule", print(schedule));
}

void Dump::lowering(const Graph& graph, const LowerOptions& options) {
  if (!on()) return;
  std::vector<View> views;
  for (ValueId v : graph.inputs()) views.push_back(contiguous_view(BufferId(), graph.type(v)));
  const Units units =
      fuse(graph, views, options.fuse, options.least_epilogue, options.target.threads);
  text("fused.units", print(graph, units));
  LowerOptions each = options;
  for (const auto& [order, name] : {std::pair{OrderStrategy::kProgram, "program"},
                                    {OrderStrategy::kGreedy, "greedy"},
                                    {OrderStrategy::kBeam, "beam"}}) {
    each.order = order;
    schedule(fmt::format("lowered-{}", name), lower(graph, each));
  }
}

void Dump::timeline(const std::string& csv) const {
  if (on()) check(write_text_file(folder_ + "/timeline.csv", csv));
}

void Dump::inputs(std::span<const ArrayType> types,
                  std::span<const DeviceBufferPtr> buffers) const {
  std::vector<TensorBytes> tensors;
  for (size_t i = 0; i < types.size() && i < buffers.size(); ++i)
    tensors.push_back(tensor_of(keys_[i], types[i], *buffers[i]));
  check(save_safetensors(folder_ + "/inputs.safetensors", tensors));
}

}  // namespace stow
