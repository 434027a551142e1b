#include "stowage/session/graph_file.h"

#include "stowage/base/text_file.h"
#include "stowage/ops/verify.h"

namespace stow {
namespace {

// Returns the bytes of all values; stops at the first sum over the limit.
int64_t value_bytes(const Graph& graph) {
  int64_t total = 0;
  const auto add = [&](int64_t bytes) { total = std::min(total + bytes, kMaxGraphBytes + 1); };
  for (size_t v = 0; v < graph.n_values(); ++v) add(graph.type(ValueId(v)).bytes());
  for (const Node& node : graph.nodes())
    for (const GraphPtr& nested : node.graphs) add(value_bytes(*nested));
  return total;
}

}  // namespace

Result<GraphPtr> load_graph(const std::string& path, const PolicyResolver& policies) {
  const Result<std::string> text = read_text_file(path, static_cast<int64_t>(kMaxTextBytes));
  if (!text) return text.failure();
  SourceLines lines;
  Result<GraphPtr> graph = parse_graph(*text, path, policies, &lines);
  if (!graph) return graph.failure();
  try {
    verify(**graph);
  } catch (const VerifyError& e) {
    return fail("{}:{}: {}", path, lines.at(e.graph)[e.node.index()], e.what());
  } catch (const TraceError& e) {
    return fail("{}: {}", path, e.what());
  }
  if (value_bytes(**graph) > kMaxGraphBytes)
    return fail("{}: the values of the graph have more than 2^58 bytes together", path);
  return graph;
}

}  // namespace stow
