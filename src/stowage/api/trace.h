// Tracing: the content of an Array, the stack of traces, recording of nodes.
// Not public: users see array.h and the transforms.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "stowage/api/array.h"
#include "stowage/api/run_graph.h"
#include "stowage/base/inside.h"
#include "stowage/ir/graph.h"
#include "stowage/ops/effects.h"
#include "stowage/runtime/device.h"

namespace stow {

class Sharding;
class MeshPrograms;  // api/mesh_program.h
class Trace;

/// The parts, in this process, of an array over several devices. ArrayImpl::sharding, a
/// NamedSharding, says how the array is cut.
struct Shards {
  struct Part {
    int64_t position = 0;  ///< Position of the device in the mesh.
    DeviceBufferPtr buffer;
  };
  std::vector<Part> parts;  ///< By position; empty if the mesh has no device of this process.
};

/// The data of a concrete array. Handles that differ only in whether their dtype is weak share it.
struct Storage {
  // Either bytes on a device, in `buffer`, or a few bytes in the host, in `literal`, which are
  // copied to a device when needed.
  DeviceBufferPtr buffer;
  std::vector<std::byte> literal;
  std::string donated;  ///< The program that took the buffer, and where; empty: not donated.
  /// Shards of an array over several devices or on devices of other processes; such an array has no
  /// `buffer`. Null for any other array.
  std::shared_ptr<const Shards> shards = {};
  bool shares_buffer = false;  ///< True if another array may hold its buffers: never donated.
};

/// The content of an Array, shared by its copies.
struct ArrayImpl {
  enum class State : uint8_t { kAbstract, kConcrete, kTraced };
  State state = State::kAbstract;
  ArrayType type;
  std::shared_ptr<const Sharding> sharding;  ///< Set by device_put; null: never put.

  std::shared_ptr<Storage> storage;  ///< Set for kConcrete.

  // Set for kTraced: the value in the trace's graph.
  std::shared_ptr<Trace> trace;
  ValueId id;

  ProvenancePtr provenance;  ///< The scope and source line that made it; null if unknown.
};

/// A graph under construction. Arrays of outer traces and concrete arrays that its nodes use become
/// inputs after the declared ones, in the order of first use.
class Trace : public std::enable_shared_from_this<Trace> {
 public:
  /// `what`: the transform, for errors: "jit(step)". `literals_as_constants`: literals become
  /// constants of the graph instead of captured inputs. A nested trace has the value of its
  /// outermost trace.
  Trace(std::string what, bool literals_as_constants)
      : what(std::move(what)), literals_as_constants(literals_as_constants) {}

  /// Adds a declared input and returns it.
  Array input(const ArrayType& type, std::string name);
  /// The value in this graph that stands for `array`: its own value, or an input that captures it.
  /// Errors: TraceError if the array has no data, its trace has ended or it was donated.
  ValueId lift(const Array& array);
  /// An Array that stands for a value of this graph.
  Array wrap(ValueId id, ProvenancePtr provenance);
  /// Adds a constant of rank 0 or a few elements, with these bytes.
  ValueId constant(const ArrayType& type, std::vector<std::byte> data);

  /// The token that the next effect (debug_print) reads: an array without elements. Each effect
  /// returns a new token for the next one, which keeps the effects in order. For the first effect
  /// of a trace it captures the token of the enclosing trace; the outermost trace makes one.
  Array effect_token();
  /// The token that the last effect recorded here returned; empty if there was none.
  Array last_effect;

  const std::string what;
  const bool literals_as_constants;
  bool ended = false;
  /// A sharding over the mesh that calls of device_put in this trace named; null: none did.
  std::shared_ptr<const Sharding> mesh_sharding;
  Graph graph;
  std::vector<Array> captures;  ///< The array of each captured input, in the order of the inputs.

 private:
  Array first_effect_;  // the token of the outermost trace, once made
  ValueId capture(const Array& array);
  ValueId embed_literal(const ArrayImpl& impl);

  std::map<std::pair<const void*, uint32_t>, ValueId> captured_;  ///< By storage, or trace and id.
  std::vector<std::shared_ptr<const Storage>> literals_;  ///< Kept alive, so that keys stay unique.
};

/// The thread-local state of the API.
struct Context {
  std::vector<std::shared_ptr<Trace>> traces;  ///< The active traces, innermost last.
  std::string scope;                           ///< Names of the active scopes: "layers/3/mlp".
  SourceLocation site;  ///< The call of the outermost library function that runs; line 0: none.
  DevicePtr device;     ///< The thread's default device; null: the program's.
  GraphRunner runner;
  std::shared_ptr<MeshPrograms> mesh_programs;  ///< Made when first needed.
  ProvenancePtr last_provenance;  ///< The provenance returned last, for reuse.
};
/// The state of the calling thread.
Context& context();
/// The innermost trace; null outside any.
Trace* current_trace();

/// The current scope and call site; null where neither is known.
ProvenancePtr current_provenance();
/// Throws TraceError: `message`, then "\n  at …" with the current provenance.
[[noreturn]] void throw_with_place(std::string message);
/// throw_with_place() with a formatted message.
template <typename... Args>
[[noreturn]] void trace_error_here(fmt::format_string<Args...> format, Args&&... args) {
  throw_with_place(fmt::format(format, std::forward<Args>(args)...));
}

/// Sets the call site while a public function runs. Only the outermost CallSiteScope takes effect.
class CallSiteScope {
 public:
  explicit CallSiteScope(SourceLocation at) : set_(context().site.line == 0) {
    if (set_) context().site = at;
  }
  ~CallSiteScope() {
    if (set_) context().site = {};
  }
  CallSiteScope(const CallSiteScope&) = delete;
  CallSiteScope& operator=(const CallSiteScope&) = delete;

 private:
  bool set_;
};

/// Makes a trace the current one. The destructor ends that and restores the call site.
class ActiveTrace {
 public:
  explicit ActiveTrace(std::shared_ptr<Trace> trace);
  ~ActiveTrace();
  ActiveTrace(const ActiveTrace&) = delete;
  ActiveTrace& operator=(const ActiveTrace&) = delete;

 private:
  std::shared_ptr<Trace> trace_;
  SourceLocation site_before_;
};

/// Appends a node to the current trace and returns its results. Outside any trace, runs the op at
/// once; if an operand is abstract, the results are abstract and nothing runs.
/// Errors: TraceError of the op's type rule, with the place.
std::vector<Array> record(OpKind op, Params params, std::span<const Array> operands,
                          std::vector<GraphPtr> graphs = {});
/// record() for an op with one result.
Array record1(OpKind op, Params params, std::initializer_list<Array> operands);

/// Inside a trace, calls `body`, which records operations and returns their results. Outside any
/// trace, records them in a new trace, runs it as one program and returns its results.
std::vector<Array> traced_or_run(const char* what, const std::function<std::vector<Array>()>& body);

/// A finished nested trace: its graph, and the arrays of the surrounding traces that it captured,
/// in the order of the inputs that stand for them.
struct NestedTrace {
  Graph graph;
  std::vector<Array> captures;
  /// True if a node in it has an effect. The graph then has the token of the last effect as an
  /// additional last output, and captures the token of the enclosing trace.
  bool has_effects = false;
};
/// Calls `body` in a new trace with inputs of these types and names; `body` returns the outputs.
/// Inputs of the graph: the declared ones, with the captures before declared input number
/// `captures_at` (0: first). `what`: the transform, for errors.
NestedTrace trace_nested(const std::string& what, std::span<const ArrayType> inputs,
                         std::span<const std::string> names, size_t captures_at,
                         const std::function<std::vector<Array>(std::span<const Array>)>& body);

/// Makes a nested graph without effects capture the effect token and return it as an additional
/// output.
void pass_effects(NestedTrace& nested);
/// Turns the effect token of a loop's body into a carry after its `n_carries` carries. Inputs of
/// the body: captures, carries, slices. Returns the token that is the initial value of that carry.
Array carry_effects(NestedTrace& nested, size_t n_carries);
/// Takes the results of a node with effects. Makes result `at`, the token, the last effect of the
/// current trace, and returns the remaining results.
std::vector<Array> take_effects(std::vector<Array> results, size_t at);

/// Appends the nodes of `graph` to the current trace, with `inputs` as its inputs; returns its
/// outputs.
std::vector<Array> inline_graph(const Graph& graph, std::span<const Array> inputs);

/// A concrete array whose data are a buffer.
Array make_concrete(const ArrayType& type, DeviceBufferPtr buffer);
/// A concrete array whose data are a few bytes in the host; a trace may make them a constant.
Array make_literal(const ArrayType& type, std::vector<std::byte> bytes);
/// The bytes of a scalar in a dtype, rounded to nearest even.
std::vector<std::byte> scalar_bytes(const ScalarValue& value, DType dtype);
/// The buffer of a concrete array, made from its literal on `device` when there is none yet.
/// Errors: TraceError if it was donated.
const DeviceBufferPtr& buffer_of(const Array& array, const DevicePtr& device);
/// The device on which the concrete arrays among these lie; the default device if there is none.
/// Errors: TraceError if they lie on different devices.
DevicePtr common_device(std::span<const Array> arrays);
/// "f32[8,64] made at layers/0 (m.cpp:41)".
std::string describe(const Array& array);

}  // namespace stow
