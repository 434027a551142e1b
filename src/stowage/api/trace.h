// The tracing machinery: what an Array holds, the stack of traces, recording of nodes.
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

/// The parts of an array over several devices that lie in this process. How it is cut is said by the
/// NamedSharding of its ArrayImpl.
struct Shards {
  struct Part {
    int64_t position = 0;  ///< Position of the device in the mesh.
    DeviceBufferPtr buffer;
  };
  std::vector<Part> parts;  ///< By position; none where the mesh has no device of this process.
};

/// The data of a concrete array, shared by whatever handles differ in nothing but their weakness.
struct Storage {
  // Bytes on a device, or a few bytes in the host that a device gets when it needs them.
  DeviceBufferPtr buffer;
  std::vector<std::byte> literal;
  std::string donated;  ///< To whom and where, once donated.
  /// Shards of an array over several devices or on those of other processes, which has no `buffer`;
  /// else null.
  std::shared_ptr<const Shards> shards = {};
  bool shares_buffer = false;  ///< Another array may hold a buffer of it, so it cannot be donated.
};

/// The content that the handles of an Array share.
struct ArrayImpl {
  enum class State : uint8_t { kAbstract, kConcrete, kTraced };
  State state = State::kAbstract;
  ArrayType type;
  std::shared_ptr<const Sharding> sharding;  ///< Set by device_put; null: not put anywhere.

  std::shared_ptr<Storage> storage;  ///< Storage of a concrete array.

  // Traced.
  std::shared_ptr<Trace> trace;
  ValueId id;

  ProvenancePtr made;
};

/// A graph under construction. Arrays of outer traces and concrete arrays that its nodes use become
/// inputs after the declared ones, in the order of first use.
class Trace : public std::enable_shared_from_this<Trace> {
 public:
  /// `what` is the transform ("jit(step)"), for errors. A trace that bakes turns literals into
  /// constants; nested traces do as their outermost one does.
  Trace(std::string what, bool bakes_literals) : what(std::move(what)), bakes(bakes_literals) {}

  /// A declared input.
  Array input(const ArrayType& type, std::string name);
  /// The value of `array` here: its own, or that of an input that captures it.
  /// Errors: TraceError if it has no value, its trace is over or it was donated.
  ValueId lift(const Array& array);
  Array wrap(ValueId id, ProvenancePtr made);
  /// A rank-0 or small constant of these bytes.
  ValueId constant(const ArrayType& type, std::vector<std::byte> data);

  /// The token that the next effect (debug_print) reads, an array without elements; each effect gives
  /// one for the next, so that they keep their order. The first one captures that of the trace
  /// outside, or makes one.
  Array effect_token();
  /// That of the last effect recorded here; empty where there was none.
  Array last_effect;

  const std::string what;
  const bool bakes;
  bool ended = false;
  /// The mesh of the shardings that device_put asked for here, as a sharding over it; null: none did.
  std::shared_ptr<const Sharding> over_mesh;
  Graph graph;
  std::vector<Array> captures;

 private:
  Array first_effect_;  // the token of the outermost trace, once made
  ValueId capture(const Array& array);
  ValueId bake(const ArrayImpl& impl);

  std::map<std::pair<const void*, uint32_t>, ValueId> captured_;  ///< By storage, or trace and id.
  std::vector<std::shared_ptr<const Storage>> literals_;  ///< Kept, so that keys stay unique.
};

/// Everything thread-local of the API.
struct Context {
  std::vector<std::shared_ptr<Trace>> traces;
  std::string scope;
  SourceLocation site;  ///< Location of the outermost library function running; line 0 for none.
  DevicePtr device;
  GraphRunner runner;
  std::shared_ptr<MeshPrograms> mesh_programs;  ///< Made when first needed.
  ProvenancePtr last;
};
Context& context();
/// The innermost trace; null outside any.
Trace* current_trace();

/// The current scope and call site; null where neither is known.
ProvenancePtr current_provenance();
/// `message` with "\n  at …" of the current provenance.
[[noreturn]] void throw_here(std::string message);
template <typename... Args>
[[noreturn]] void fail_here(fmt::format_string<Args...> format, Args&&... args) {
  throw_here(fmt::format(format, std::forward<Args>(args)...));
}

/// Names the call site while a public function runs; the outermost one counts.
class Site {
 public:
  explicit Site(SourceLocation at) : set_(context().site.line == 0) {
    if (set_) context().site = at;
  }
  ~Site() {
    if (set_) context().site = {};
  }
  Site(const Site&) = delete;
  Site& operator=(const Site&) = delete;

 private:
  bool set_;
};

/// Makes a trace current; leaves it, also by exception, with the call site that was.
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

/// Appends a node to the current trace; outside any, runs it at once (or answers with abstract
/// arrays where an operand is abstract).
/// Errors: TraceError of the op's type rule, with the place.
std::vector<Array> record(OpKind op, Params params, std::span<const Array> operands,
                          std::vector<GraphPtr> graphs = {});
Array record1(OpKind op, Params params, std::initializer_list<Array> operands);

/// Runs `body`, which records operations and returns their results, in a trace of its own outside
/// any, and then runs that; inside a trace just calls it.
std::vector<Array> traced_or_run(const char* what, const std::function<std::vector<Array>()>& body);

/// A finished nested trace: its graph with the inputs in the order asked for, and the arrays of
/// the surrounding traces that it captured.
struct Nested {
  Graph graph;
  std::vector<Array> captures;
  /// True if anything in it has an effect: the token of the last one is one more output then, and
  /// that of the trace outside a capture.
  bool has_effects = false;
};
/// Calls `body` in a new trace with inputs of these types. Inputs of the graph: the declared ones,
/// the captures put before declared input number `captures_at` (all first: 0).
/// `body` returns the outputs.
Nested trace_nested(const std::string& what, std::span<const ArrayType> inputs,
                    std::span<const std::string> names, size_t captures_at,
                    const std::function<std::vector<Array>(std::span<const Array>)>& body);

/// Makes a nested graph without effects pass the token on, as one more output.
void pass_effects(Nested& nested);
/// In a loop's body with effects, whose inputs are captures, carries and slices, makes the token one
/// more carry, behind the `n_carries` others. Returns the token that it begins with.
Array carry_effects(Nested& nested, size_t n_carries);
/// Result `at` is the token of a node with effects, which later effects of the current trace follow;
/// returns the others.
std::vector<Array> take_effects(std::vector<Array> results, size_t at);

/// Appends the nodes of `graph`, its inputs being these arrays, to the current trace.
std::vector<Array> inline_graph(const Graph& graph, std::span<const Array> inputs);

/// A concrete array over a buffer, or over literal bytes (a few: they may become constants).
Array make_concrete(const ArrayType& type, DeviceBufferPtr buffer);
Array make_literal(const ArrayType& type, std::vector<std::byte> bytes);
/// The bytes of a scalar in a dtype, rounded to nearest even.
std::vector<std::byte> scalar_bytes(const ScalarValue& value, DType dtype);
/// The buffer of a concrete array, made from its literal on `device` when there is none yet.
/// Errors: TraceError if it was donated.
const DeviceBufferPtr& buffer_of(const Array& array, const DevicePtr& device);
/// The device that the concrete ones lie on; the default one where none does.
/// Errors: TraceError where they differ.
DevicePtr common_device(std::span<const Array> arrays);
/// "f32[8,64] made at layers/0 (m.cpp:41)".
std::string describe(const Array& array);

}  // namespace stow
