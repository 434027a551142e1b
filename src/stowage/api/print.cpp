#include "stowage/api/print.h"

#include <cstdio>
#include <ostream>

#include "stowage/api/element_reader.h"
#include "stowage/api/processes.h"
#include "stowage/api/sharding.h"
#include "stowage/api/trace.h"
#include "stowage/core/array_text.h"
#include "stowage/core/print_format.h"

namespace stow {
namespace {

// Why there are no elements; empty where there are.
std::string why_none(const Array& array) {
  if (array.is_traced()) return "traced by " + array.impl()->trace->what;
  if (array.is_abstract()) return "abstract";
  const std::string& donated = array.impl()->storage->donated;
  if (!donated.empty()) return "donated to " + donated;
  if (is_sharded(array) && !ElementReader(array).is_complete()) {
    const NamedSharding& sharding = mesh_sharding_of(array);
    return fmt::format("cut over {}, {}",
                       name_processes(processes()->processes_of(sharding.mesh().devices())),
                       to_string(Sharding(sharding)));
  }
  return "";
}

std::string elements_of(const Array& array, std::string_view spec, int indent) {
  const ElementReader reader(array);
  const auto read = [&](int64_t first, std::span<std::byte> out) { reader.read(first, out); };
  return array_text(array.dtype(), array.shape(), read, spec, indent);
}

// "cpu", or where it was put by name.
std::string place_of(const Array& array) {
  const ArrayImpl& impl = *array.impl();
  if (impl.sharding && impl.sharding->named()) return to_string(*impl.sharding);
  return impl.storage->buffer ? impl.storage->buffer->device()->name() : "";
}

}  // namespace

std::string to_string(const Array& array) {
  if (array.empty()) return "Array(empty)";
  std::string text = "Array(";
  std::string where = why_none(array);
  if (where.empty()) {
    text += elements_of(array, {}, static_cast<int>(text.size())) + ", ";
    where = place_of(array);
  }
  text += to_string(array.type());
  return text + (where.empty() ? "" : ", ") + where + ")";
}

std::string elements_to_string(const Array& array, std::string_view spec) {
  return array.empty() || !why_none(array).empty() ? to_string(array) : elements_of(array, spec, 0);
}

void run_debug_print(const DebugFormat& format, const std::vector<Array>& arrays) {
  const CallSiteScope site(format.at);
  std::vector<DType> dtypes;
  for (const Array& array : arrays) dtypes.push_back(array.dtype());
  if (const Result<void> fits = check_print_format(format.text, dtypes); !fits)
    trace_error_here("[debug_print] {}", fits.error());
  if (Trace* trace = current_trace()) {
    for (size_t i = 0; i < arrays.size(); ++i)
      if (arrays[i].type().kind != MemoryKind::kDevice)
        trace_error_here(
            "[debug_print] expected arrays on the device, array {} lies on {}: {}; move it with "
            "device_put first",
            i, memory_kind_name(arrays[i].type().kind), describe(arrays[i]));
    std::vector<Array> operands = {trace->effect_token()};
    operands.insert(operands.end(), arrays.begin(), arrays.end());
    trace->last_effect =
        record(OpKind::kDebugPrint, NameParams{format.text}, operands).front();
    return;
  }
  const std::string line =
      print_line(format.text, [&](size_t i, std::string_view spec, int column) {
        return why_none(arrays[i]).empty() ? elements_of(arrays[i], spec, column)
                                           : to_string(arrays[i]);
      });
  std::fwrite(line.data(), 1, line.size(), stdout);
}

std::ostream& operator<<(std::ostream& out, const Array& array) {
  return out << to_string(array);
}
std::ostream& operator<<(std::ostream& out, const ArrayType& type) {
  return out << to_string(type);
}
std::ostream& operator<<(std::ostream& out, const Shape& shape) {
  return out << '[' << to_string(shape) << ']';
}
std::ostream& operator<<(std::ostream& out, DType dtype) {
  return out << dtype_name(dtype);
}

}  // namespace stow
