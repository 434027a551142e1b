#include "stowage/api/trace.h"

#include <algorithm>

#include "stowage/api/mesh_program.h"
#include "stowage/ops/kind_error.h"
#include "stowage/ops/op_def.h"

namespace stow {
namespace {

bool is_active(const Trace* trace) {
  const auto& stack = context().traces;
  return std::any_of(stack.begin(), stack.end(), [&](const auto& t) { return t.get() == trace; });
}

std::string with_place(const std::string& message) {
  const std::string place = to_string(current_provenance());
  if (place.empty() || message.find("\n  at ") != std::string::npos) return message;
  return message + "\n  at " + place;
}

// The user's name of an array: its path for an argument, else where it was made.
std::string named(const Array& array) {
  const ArrayImpl& impl = *array.impl();
  if (impl.state == ArrayImpl::State::kTraced && impl.trace->graph.is_input(impl.id)) {
    const Graph& graph = impl.trace->graph;
    const std::string& name =
        graph.input_names()[static_cast<size_t>(graph.value(impl.id).index)];
    if (!name.empty()) return fmt::format("argument '{}' of {}", name, impl.trace->what);
  }
  const std::string place = source_path(impl.provenance);
  return place.empty() ? "" : "made at " + place;
}

std::vector<ArrayType> infer_here(OpKind op, const Params& params,
                                  std::span<const ArrayType> operands,
                                  std::span<const GraphPtr> graphs,
                                  std::span<const Array> arrays) {
  try {
    return infer_types(InferContext{op, operands, params, graphs});
  } catch (const KindError& error) {
    std::string message = error.what();
    for (size_t i = 0; i < arrays.size(); ++i)
      if (const std::string name = named(arrays[i]);
          !name.empty() && arrays[i].type().kind != MemoryKind::kDevice)
        message += fmt::format("\n  operand {} is {}", i, name);
    throw TraceError(with_place(message));
  } catch (const TraceError& error) {
    throw TraceError(with_place(error.what()));
  }
}

Array make_abstract(const ArrayType& type) {
  auto impl = std::make_shared<ArrayImpl>();
  impl->type = type;
  impl->provenance = current_provenance();
  return Array(std::move(impl));
}

MeshPrograms& mesh_programs() {
  std::shared_ptr<MeshPrograms>& programs = context().mesh_programs;
  if (!programs) programs = std::make_shared<MeshPrograms>();
  return *programs;
}

bool over_mesh(std::span<const Array> inputs) {
  return std::any_of(inputs.begin(), inputs.end(), [](const Array& a) {
    return a.is_concrete() && a.impl()->storage->shards != nullptr;
  });
}

// Runs a finished graph whose inputs are these arrays, or answers with its output types.
// `over`: a mesh that the graph names; null: none.
std::vector<Array> run_or_abstract(const char* what, Graph graph, std::span<const Array> inputs,
                                   const Sharding* over = nullptr) {
  std::vector<Array> results;
  std::vector<ArrayType> types;
  for (ValueId id : graph.outputs()) types.push_back(graph.type(id));
  if (std::any_of(inputs.begin(), inputs.end(), [](const Array& a) { return a.is_abstract(); })) {
    for (const ArrayType& type : types) results.push_back(make_abstract(type));
    return results;
  }
  if (const std::optional<MeshLayout> layout =
          over || over_mesh(inputs) ? mesh_layout(what, inputs, {}, {}, {}, over)
                                    : std::nullopt)
    return mesh_programs().run(what, *layout, graph, inputs);
  const DevicePtr device = common_device(inputs);
  std::vector<DeviceBufferPtr> buffers;
  for (const Array& array : inputs) buffers.push_back(buffer_of(array, device));
  buffers = context().runner.run(std::move(graph), device, buffers);
  for (size_t i = 0; i < types.size(); ++i)
    results.push_back(make_concrete(types[i], std::move(buffers[i])));
  return results;
}

std::vector<Array> record_outside(OpKind op, Params params, std::span<const Array> operands,
                                  std::vector<GraphPtr> graphs) {
  if (op_class(op) == OpClass::kIdentity) return {operands.begin(), operands.end()};
  std::vector<ArrayType> types;
  for (const Array& a : operands) {
    if (a.is_traced()) Trace("", false).lift(a);  // throws: no trace is active
    types.push_back(a.type());
  }
  std::vector<ArrayType> result_types = infer_here(op, params, types, graphs, operands);
  Graph graph;
  Node node{.op = op, .params = std::move(params), .graphs = std::move(graphs)};
  node.provenance = current_provenance();
  for (const ArrayType& type : types) node.operands.push_back(graph.add_input(type));
  const NodeId id = graph.add_node(std::move(node), result_types);
  std::vector<ValueId> outputs;
  for (size_t i = 0; i < result_types.size(); ++i)
    outputs.push_back(graph.node(id).result(static_cast<int>(i)));
  graph.set_outputs(outputs);
  return run_or_abstract(op_name(op).data(), std::move(graph), operands);
}

}  // namespace

Context& context() {
  thread_local Context instance;
  return instance;
}

Trace* current_trace() {
  const auto& stack = context().traces;
  return stack.empty() ? nullptr : stack.back().get();
}

ProvenancePtr current_provenance() {
  Context& c = context();
  if (c.scope.empty() && c.site.line == 0) return nullptr;
  ProvenancePtr& last = c.last_provenance;
  if (!last || last->location.line != c.site.line || last->location.file != c.site.file ||
      last->scope != c.scope)
    last = std::make_shared<const Provenance>(Provenance{c.scope, c.site});
  return last;
}

void throw_with_place(std::string message) {
  throw TraceError(with_place(message));
}

std::string describe(const Array& array) {
  if (array.empty()) return "an empty Array";
  const std::string place = to_string(array.impl()->provenance);
  return to_string(array.type()) + (place.empty() ? "" : " made at " + place);
}

Array Trace::input(const ArrayType& type, std::string name) {
  return wrap(graph.add_input(type, std::move(name)), current_provenance());
}

Array Trace::wrap(ValueId id, ProvenancePtr provenance) {
  auto impl = std::make_shared<ArrayImpl>();
  impl->state = ArrayImpl::State::kTraced;
  impl->type = graph.type(id);
  impl->trace = shared_from_this();
  impl->id = id;
  impl->provenance = std::move(provenance);
  return Array(std::move(impl));
}

ValueId Trace::constant(const ArrayType& type, std::vector<std::byte> data) {
  ArrayType strong = type;
  strong.weak = false;
  Node node{.op = OpKind::kConstant, .params = ConstantParams{strong, std::move(data)}};
  node.provenance = current_provenance();
  const ArrayType types[] = {type};
  const NodeId id = graph.add_node(std::move(node), types);
  return graph.node(id).result();
}

Array Trace::effect_token() {
  if (!last_effect.empty()) return last_effect;
  const auto& stack = context().traces;
  const auto own = std::find_if(stack.begin(), stack.end(),
                                [&](const std::shared_ptr<Trace>& t) { return t.get() == this; });
  STOW_CHECK(own != stack.end(), "an effect in a trace that is not active");
  if (own != stack.begin()) return (*std::prev(own))->effect_token();
  if (first_effect_.empty()) first_effect_ = wrap(constant(effect_token_type(), {}), nullptr);
  return first_effect_;
}

ValueId Trace::lift(const Array& array) {
  if (array.empty())
    trace_error_here("[array] an empty Array has no value; assign one before it is used");
  const ArrayImpl& impl = *array.impl();
  switch (impl.state) {
    case ArrayImpl::State::kTraced:
      if (impl.trace.get() == this) return impl.id;
      if (impl.trace->ended)
        trace_error_here(
            "[array] {} belongs to the trace of {}, which is over; return it from that function "
            "to use it outside",
            describe(array), impl.trace->what);
      if (!is_active(impl.trace.get()))
        trace_error_here(
            "[array] {} belongs to the trace of {}, which is not active in this thread",
            describe(array), impl.trace->what);
      return capture(array);
    case ArrayImpl::State::kConcrete:
      if (!impl.storage->donated.empty())
        trace_error_here("[array] {} was donated to {} and cannot be used again", describe(array),
                         impl.storage->donated);
      return literals_as_constants && !impl.storage->literal.empty() ? embed_literal(impl)
                                                                     : capture(array);
    case ArrayImpl::State::kAbstract:
      return capture(array);
  }
  return {};
}

ValueId Trace::embed_literal(const ArrayImpl& impl) {
  const auto [it, is_new] = captured_.try_emplace({impl.storage.get(), 0});
  if (is_new) {
    it->second = constant(impl.type, impl.storage->literal);
    literals_.push_back(impl.storage);
  }
  return it->second;
}

ValueId Trace::capture(const Array& array) {
  const ArrayImpl& impl = *array.impl();
  std::pair<const void*, uint32_t> key = {&impl, 0};
  if (impl.state == ArrayImpl::State::kTraced) key = {impl.trace.get(), impl.id.value};
  if (impl.state == ArrayImpl::State::kConcrete) key = {impl.storage.get(), 0};
  const auto found = captured_.find(key);
  if (found != captured_.end()) return found->second;
  const ValueId id = graph.add_input(impl.type, fmt::format("captured/{}", captures.size()));
  captures.push_back(array);
  captured_.emplace(key, id);
  return id;
}

ActiveTrace::ActiveTrace(std::shared_ptr<Trace> trace)
    : trace_(std::move(trace)), site_before_(context().site) {
  context().traces.push_back(trace_);
  context().site = {};
}

ActiveTrace::~ActiveTrace() {
  trace_->ended = true;
  context().traces.pop_back();
  context().site = site_before_;
}

std::vector<Array> record(OpKind op, Params params, std::span<const Array> operands,
                          std::vector<GraphPtr> graphs) {
  Trace* trace = current_trace();
  if (!trace) return record_outside(op, std::move(params), operands, std::move(graphs));
  Node node{.op = op, .params = std::move(params), .graphs = std::move(graphs)};
  std::vector<ArrayType> types;
  for (const Array& a : operands) {
    node.operands.push_back(trace->lift(a));
    types.push_back(a.type());
  }
  types = infer_here(op, node.params, types, node.graphs, operands);
  node.provenance = current_provenance();
  const ProvenancePtr provenance = node.provenance;
  const NodeId id = trace->graph.add_node(std::move(node), types);
  std::vector<Array> results;
  for (size_t i = 0; i < types.size(); ++i)
    results.push_back(
        trace->wrap(trace->graph.node(id).result(static_cast<int>(i)), provenance));
  return results;
}

Array record1(OpKind op, Params params, std::initializer_list<Array> operands) {
  return record(op, std::move(params), std::span<const Array>(operands.begin(), operands.size()))
      .front();
}

std::vector<Array> traced_or_run(const char* what,
                                 const std::function<std::vector<Array>()>& body) {
  if (current_trace()) return body();
  auto trace = std::make_shared<Trace>(what, false);
  std::vector<bool> weak;
  {
    const SourceLocation site = context().site;
    const ActiveTrace active(trace);
    context().site = site;
    std::vector<ValueId> outputs;
    for (const Array& array : body()) {
      outputs.push_back(trace->lift(array));
      weak.push_back(array.type().weak);
    }
    if (!trace->last_effect.empty()) outputs.push_back(trace->lift(trace->last_effect));
    trace->graph.set_outputs(std::move(outputs));
  }
  std::vector<Array> results = run_or_abstract(what, std::move(trace->graph), trace->captures,
                                               trace->mesh_sharding.get());
  results.resize(weak.size());  // less the token of effects
  for (size_t i = 0; i < results.size(); ++i) results[i].impl()->type.weak = weak[i];
  return results;
}

// The graph with its inputs in another order.
static Graph with_inputs_in_order(const Graph& from, std::span<const size_t> order) {
  Graph to;
  ValueMap map(from);
  for (size_t i : order) {
    const ValueId id = from.inputs()[i];
    map.set(id, to.add_input(from.type(id), from.input_names()[i]));
  }
  const std::vector<RegionId> regions = import_regions(from, to, RegionId());
  for (const Node& node : from.nodes()) copy_node(from, node, to, map, regions);
  to.set_outputs(map.images(from.outputs()));
  return to;
}

NestedTrace trace_nested(const std::string& what, std::span<const ArrayType> inputs,
                         std::span<const std::string> names, size_t captures_at,
                         const std::function<std::vector<Array>(std::span<const Array>)>& body) {
  Trace* outer = current_trace();
  STOW_CHECK(outer, "a nested trace needs a trace around it");
  auto trace = std::make_shared<Trace>(what, outer->literals_as_constants);
  const SourceLocation here = context().site;
  {
    const ActiveTrace active(trace);
    std::vector<Array> arguments;
    for (size_t i = 0; i < inputs.size(); ++i)
      arguments.push_back(trace->input(inputs[i], names[i]));
    std::vector<ValueId> outputs;
    const std::vector<Array> results = body(arguments);
    const CallSiteScope back(here);
    for (const Array& array : results) {
      if (array.empty()) trace_error_here("[{}] the function returned an empty Array", what);
      outputs.push_back(trace->lift(array));
    }
    if (!trace->last_effect.empty()) outputs.push_back(trace->lift(trace->last_effect));
    trace->graph.set_outputs(std::move(outputs));
  }
  const Graph& from = trace->graph;
  std::vector<size_t> order;
  for (size_t i = 0; i < inputs.size(); ++i) order.push_back(i);
  for (size_t i = 0; i < trace->captures.size(); ++i)
    order.insert(order.begin() + static_cast<std::ptrdiff_t>(captures_at + i), inputs.size() + i);

  return {with_inputs_in_order(from, order), trace->captures, !trace->last_effect.empty()};
}

void pass_effects(NestedTrace& nested) {
  if (nested.has_effects) return;
  nested.has_effects = true;
  const Array token = current_trace()->effect_token();
  const ValueId id = nested.graph.add_input(
      token.type(), fmt::format("captured/{}", nested.captures.size()));
  nested.captures.push_back(token);
  std::vector<ValueId> outputs = nested.graph.outputs();
  outputs.push_back(id);
  nested.graph.set_outputs(std::move(outputs));
}

Array carry_effects(NestedTrace& nested, size_t n_carries) {
  const Array token = current_trace()->effect_token();
  const size_t n_captures = nested.captures.size();
  size_t at = 0;  // which capture it is
  while (at < n_captures && nested.captures[at].impl() != token.impl()) ++at;
  STOW_CHECK(at < n_captures, "the first effect of a body reads the token of the trace outside");
  std::vector<size_t> order;
  for (size_t i = 0; i < nested.graph.inputs().size(); ++i)
    if (i != at) order.push_back(i);
  order.insert(order.begin() + static_cast<std::ptrdiff_t>(n_captures - 1 + n_carries), at);
  Graph graph = with_inputs_in_order(nested.graph, order);
  std::vector<ValueId> outputs = graph.outputs();
  std::rotate(outputs.begin() + static_cast<std::ptrdiff_t>(n_carries), outputs.end() - 1,
              outputs.end());
  graph.set_outputs(std::move(outputs));
  nested.graph = std::move(graph);
  nested.captures.erase(nested.captures.begin() + static_cast<std::ptrdiff_t>(at));
  return token;
}

std::vector<Array> take_effects(std::vector<Array> results, size_t at) {
  const auto token = results.begin() + static_cast<std::ptrdiff_t>(at);
  current_trace()->last_effect = *token;
  results.erase(token);
  return results;
}

std::vector<Array> inline_graph(const Graph& graph, std::span<const Array> inputs) {
  Trace* trace = current_trace();
  STOW_CHECK(trace && inputs.size() == graph.inputs().size(), "{} inputs for {}", inputs.size(),
             graph.inputs().size());
  ValueMap map(graph);
  for (size_t i = 0; i < inputs.size(); ++i) map.set(graph.inputs()[i], trace->lift(inputs[i]));
  const std::vector<RegionId> regions = import_regions(graph, trace->graph, RegionId());
  for (const Node& node : graph.nodes()) copy_node(graph, node, trace->graph, map, regions);
  std::vector<Array> results;
  for (ValueId id : graph.outputs()) results.push_back(trace->wrap(map[id], current_provenance()));
  return results;
}

DevicePtr common_device(std::span<const Array> arrays) {
  DevicePtr device;
  const Array* first = nullptr;
  for (const Array& array : arrays) {
    if (!array.is_concrete()) continue;
    const Storage& storage = *array.impl()->storage;
    if (!storage.literal.empty() || !storage.buffer) continue;
    const DevicePtr& its = storage.buffer->device();
    if (!device) device = its, first = &array;
    if (device != its)
      trace_error_here("[device] {} is on {} and {} on {}", describe(*first),
                       distinguishing_name(*device, *its), describe(array),
                       distinguishing_name(*its, *device));
  }
  return device ? device : default_device();
}

}  // namespace stow
