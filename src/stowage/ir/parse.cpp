#include "stowage/ir/parse.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <unordered_map>

#include "stowage/ir/field_reader.h"
#include "stowage/ir/fields.h"

namespace stow {
namespace {

class Parser : private FieldReader {
 public:
  Parser(std::string_view text, const PolicyResolver& policies, SourceLines* lines)
      : FieldReader(text, policies), text_(text), lines_(lines) {}

  GraphPtr whole_text() {
    GraphPtr result = graph(1);
    if (peek().kind != TokenKind::kEnd) unexpected("end of text after the graph");
    return result;
  }

 private:
  struct Input {
    size_t id;
    size_t offset;
    ArrayType type;
    std::string name;
  };

  // The number of %number.
  size_t value_number(const Token& token) const {
    uint32_t value = 0;
    const char* const end = token.text.data() + token.text.size();
    const auto [stop, code] = std::from_chars(token.text.data(), end, value);
    if (code != std::errc() || stop != end || value >= ValueId::kInvalid)
      error(token.offset, "expected a value number below 4294967295, found {}", describe(token));
    return value;
  }

  GraphPtr graph(int depth) {
    const size_t start = offset();
    if (!take_word("graph")) unexpected("'graph'");
    if (depth > kMaxGraphDepth) error(start, "graphs are nested more than {} deep", kMaxGraphDepth);
    auto g = std::make_shared<Graph>();
    const std::vector<Input> inputs = signature();
    size_t n_added = 0;
    // Inputs that were added late, after nodes, have later numbers and enter when these come up.
    auto add_inputs = [&] {
      for (; n_added < inputs.size() && inputs[n_added].id == g->n_values(); ++n_added)
        g->add_input(inputs[n_added].type, inputs[n_added].name);
    };
    expect('{');
    while (at_word("region")) region_line(*g);
    add_inputs();
    while (!at_word("return")) {
      node(*g, depth);
      add_inputs();
    }
    if (n_added < inputs.size())
      error(inputs[n_added].offset, "expected %{} as the number of the next input, found %{}",
            g->n_values(), inputs[n_added].id);
    take();
    std::vector<ValueId> outputs;
    if (!at_punct('}')) do
        outputs.push_back(defined_value(*g));
      while (take_punct(','));
    g->set_outputs(std::move(outputs));
    expect('}');
    return g;
  }

  std::vector<Input> signature() {
    std::vector<Input> inputs;
    expect('(');
    list(')', [&] {
      const Token id = take(TokenKind::kValue, "an input such as %0");
      expect(':');
      ArrayType t = type();
      const bool named = peek().kind == TokenKind::kString;
      inputs.push_back({value_number(id), id.offset, std::move(t), named ? string("") : ""});
    });
    return inputs;
  }

  ValueId defined_value(const Graph& g) {
    const Token token = take(TokenKind::kValue, "a value such as %0");
    const size_t id = value_number(token);
    if (id >= g.n_values()) error(token.offset, "%{} is not defined before its use", id);
    return ValueId(id);
  }

  void region_line(Graph& g) {
    take();
    const size_t start = offset();
    const auto id = integer(0, kMaxTextInteger, "a region number");
    if (static_cast<size_t>(id) != g.regions().size())
      error(start, "expected {} as the number of the next region, found {}", g.regions().size(),
            id);
    Region r;
    region(r, g.regions().size());
    g.add_region(std::move(r));
  }

  // The line of an offset that is not before the one asked for last.
  int line_of(size_t at) {
    line_ += static_cast<int>(std::count(text_.begin() + static_cast<std::ptrdiff_t>(counted_),
                                         text_.begin() + static_cast<std::ptrdiff_t>(at), '\n'));
    counted_ = at;
    return line_;
  }

  void node(Graph& g, int depth) {
    const int line = line_of(offset());
    Node n;
    size_t n_results = 0;
    if (peek().kind == TokenKind::kValue) {
      do {
        const Token token = take(TokenKind::kValue, "a value such as %0");
        if (value_number(token) != g.n_values() + n_results)
          error(token.offset, "expected %{} as the number of the next value, found {}",
                g.n_values() + n_results, describe(token));
        ++n_results;
      } while (take_punct(','));
      if (!take_punct('=')) unexpected("',' or '='");
    }
    const char* const expected = n_results ? "the name of an op" : "a node, 'return' or a region";
    n.op = op(expected);
    expect('(');
    list(')', [&] { n.operands.push_back(defined_value(g)); });
    n.params = empty_params(n.op);
    const size_t params_offset = offset();
    if (at_punct('{')) params(n.params, n.op);
    if (const auto* constant = std::get_if<ConstantParams>(&n.params))
      check_constant(*constant, params_offset);
    if (take_word("region")) {
      if (g.regions().empty()) error(offset(), "this graph lists no regions");
      const auto last = static_cast<int64_t>(g.regions().size()) - 1;
      n.region = RegionId(static_cast<size_t>(integer(0, last, "the number of a region")));
    }
    n.escapes_region = take_word("leaves");
    n.backward = take_word("backward");
    const std::vector<ArrayType> types = result_types(n_results);
    if (take_punct('@')) n.provenance = provenance();
    while (at_word("graph")) {
      if (static_cast<int>(n.graphs.size()) == n_nested_graphs(n.op).most)
        error(offset(), "{} takes {} nested graphs and no more", op_name(n.op), n.graphs.size());
      n.graphs.push_back(graph(depth + 1));
    }
    if (static_cast<int>(n.graphs.size()) < n_nested_graphs(n.op).least)
      unexpected(fmt::format("the nested graph of {}", op_name(n.op)));
    g.add_node(std::move(n), types);
    if (lines_) (*lines_)[&g].push_back(line);
  }

  void check_constant(const ConstantParams& params, size_t at) {
    const auto size = static_cast<int64_t>(params.data.size());
    if (!params.is_splat() && size != params.type.bytes())
      error(at, "expected 1 or {} elements in a constant {}, found {} bytes", params.type.elems(),
            to_string(params.type), size);
  }

  std::vector<ArrayType> result_types(size_t n_results) {
    std::vector<ArrayType> types;
    if (!take_punct(':')) unexpected("':' and the types of the results");
    const size_t start = offset();
    if (take_punct('('))
      expect(')');
    else
      do types.push_back(type());
      while (take_punct(','));
    if (types.size() != n_results)
      error(start, "expected {} result types, found {}", n_results, types.size());
    return types;
  }

  std::string_view text_;
  SourceLines* lines_;
  int line_ = 1;
  size_t counted_ = 0;  // bytes before which lines have been counted
};

}  // namespace

Result<GraphPtr> parse_graph(std::string_view text, std::string_view file,
                             const PolicyResolver& policies, SourceLines* lines) {
  if (text.size() > kMaxTextBytes)
    return fail("{}:1:1: expected at most {} bytes of text, found {}", file, kMaxTextBytes,
                text.size());
  try {
    return Parser(text, policies, lines).whole_text();
  } catch (const SyntaxError& e) {
    return failure_at(text, file, e);
  }
}

}  // namespace stow
