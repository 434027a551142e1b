#include "stowage/api/array.h"

#include <algorithm>
#include <cstring>

#include "stowage/api/element_reader.h"
#include "stowage/api/elements.h"
#include "stowage/api/mesh_program.h"
#include "stowage/api/trace.h"
#include "stowage/runtime/host_address.h"

namespace stow {
namespace {

std::shared_ptr<ArrayImpl> new_impl(ArrayImpl::State state, const ArrayType& type) {
  auto impl = std::make_shared<ArrayImpl>();
  impl->state = state;
  impl->type = type;
  impl->provenance = current_provenance();
  return impl;
}

// Reads an array on disk piece by piece: there is no room for a whole array beside the result.
void read_staged(const DeviceBuffer& buffer, DType dtype, std::byte* out, DType as, int64_t n) {
  constexpr int64_t kPieceElems = 1 << 16;
  std::vector<std::byte> piece(static_cast<size_t>(std::min(n, kPieceElems) * dtype_bytes(dtype)));
  for (int64_t at = 0; at < n; at += kPieceElems) {
    const int64_t here = std::min(kPieceElems, n - at);
    buffer.read(at * dtype_bytes(dtype),
                std::span(piece).first(static_cast<size_t>(here * dtype_bytes(dtype))));
    convert_elements(piece.data(), dtype, out + at * dtype_bytes(as), as, here);
  }
}

// Reads an array in shards, piece by piece too.
void read_shards(const Array& array, const char* what, std::byte* out, DType as) {
  const ElementReader reader(array);
  check_complete(what, array, reader);
  const DType dtype = array.dtype();
  const int64_t n = array.size();
  constexpr int64_t kPieceElems = 1 << 16;
  std::vector<std::byte> piece(static_cast<size_t>(std::min(n, kPieceElems) * dtype_bytes(dtype)));
  for (int64_t at = 0; at < n; at += kPieceElems) {
    const int64_t here = std::min(kPieceElems, n - at);
    reader.read(at, std::span(piece).first(static_cast<size_t>(here * dtype_bytes(dtype))));
    convert_elements(piece.data(), dtype, out + at * dtype_bytes(as), as, here);
  }
}

// Why the value of a traced array is out of reach.
[[noreturn]] void fail_traced(const Array& array, const char* what) {
  const std::string subject =
      fmt::format("{} is traced by {}", describe(array), array.impl()->trace->what);
  if (std::string_view(what) == "bool")
    trace_error_here(
        "[bool] {}: C++ cannot branch on a value that is not known while tracing; use "
        "cond(condition, true_fn, false_fn) or where(condition, a, b)",
        subject);
  trace_error_here(
      "[{}] {}: its value is not known while tracing; return it from the function and read "
      "the result",
      what, subject);
}

}  // namespace

Array Array::abstract(ArrayType type) {
  return Array(new_impl(ArrayImpl::State::kAbstract, type));
}

Array Array::abstract(Shape shape, DType dtype) {
  return abstract(ArrayType{dtype, std::move(shape)});
}

Array Array::scalar(ScalarValue value, DType dtype) {
  return make_literal(ArrayType{dtype, {}}, scalar_bytes(value, dtype));
}

Array Array::scalar(ScalarValue value) {
  return make_literal(ArrayType{.dtype = value.dtype, .weak = value.dtype != DType::kBool},
                      scalar_bytes(value, value.dtype));
}

Array Array::from_bytes(const void* data, int64_t n, DType data_dtype, Shape shape, DType dtype,
                        SourceLocation at) {
  const CallSiteScope site(at);
  const ArrayType type{dtype, std::move(shape)};
  for (int64_t d : type.shape)
    if (d < 0) trace_error_here("[from] negative extent in {}", to_string(type));
  if (type.elems() != n)
    trace_error_here("[from] expected {} elements for {}, got {}", type.elems(), to_string(type),
                     n);
  const auto* const elements = static_cast<const std::byte*>(data);
  const int64_t width = dtype_bytes(dtype), data_width = dtype_bytes(data_dtype);
  const auto write = [&](int64_t offset, std::span<std::byte> out) {
    convert_elements(elements + offset / width * data_width, data_dtype, out.data(), dtype,
                     static_cast<int64_t>(out.size()) / width);
  };
  return make_concrete(type, write_buffer(default_device(), type.bytes(), type.kind, write));
}

bool Array::is_concrete() const {
  return impl_ && impl_->state == ArrayImpl::State::kConcrete;
}
bool Array::is_traced() const {
  return impl_ && impl_->state == ArrayImpl::State::kTraced;
}
bool Array::is_abstract() const {
  return impl_ && impl_->state == ArrayImpl::State::kAbstract;
}

const ArrayType& Array::type() const {
  if (!impl_) trace_error_here("[array] an empty Array has no type; assign one before it is used");
  return impl_->type;
}

int64_t Array::dim(int axis) const {
  const int rank = shape().rank();
  if (axis < -rank || axis >= rank)
    trace_error_here("[dim] axis {} is out of range for {}", axis, to_string(type()));
  return shape()[axis < 0 ? axis + rank : axis];
}

void Array::read(void* out, DType as, const char* what, SourceLocation at) const {
  const CallSiteScope site(at);
  const std::string_view name(what);
  const std::string bare(name.substr(0, name.find('(')));
  const ArrayType& t = type();
  if (is_traced()) fail_traced(*this, bare.c_str());
  if (is_abstract())
    trace_error_here("[{}] {} is abstract: it has a type and no data", bare, describe(*this));
  const Storage& storage = *impl_->storage;
  if (!storage.donated.empty())
    trace_error_here("[{}] {} was donated to {} and cannot be used again", bare, describe(*this),
                     storage.donated);
  if (storage.shards) return read_shards(*this, bare.c_str(), static_cast<std::byte*>(out), as);
  const std::byte* const data =
      storage.buffer ? host_address(*storage.buffer) : storage.literal.data();
  if (storage.buffer && !data)
    return read_staged(*storage.buffer, t.dtype, static_cast<std::byte*>(out), as, t.elems());
  convert_elements(data, t.dtype, out, as, t.elems());
}

void Array::check_one(SourceLocation at) const {
  const CallSiteScope site(at);
  if (size() != 1) trace_error_here("[item] {} has {} elements, not one", describe(*this), size());
}

bool Array::truth(SourceLocation at) const {
  const CallSiteScope site(at);
  type();
  if (is_traced()) fail_traced(*this, "bool");
  if (size() != 1)
    trace_error_here("[bool] {} has {} elements, not one; use any() or all()", describe(*this),
                     size());
  bool value = false;
  read(&value, DType::kBool, "bool", at);
  return value;
}

WeakDType Operand::dtype() const {
  if (is_scalar()) return {scalar_->dtype, scalar_->dtype != DType::kBool};
  return {array_.dtype(), array_.type().weak};
}

Array make_concrete(const ArrayType& type, DeviceBufferPtr buffer) {
  auto impl = new_impl(ArrayImpl::State::kConcrete, type);
  impl->storage = std::make_shared<Storage>(Storage{.buffer = std::move(buffer)});
  return Array(std::move(impl));
}

Array make_literal(const ArrayType& type, std::vector<std::byte> bytes) {
  auto impl = new_impl(ArrayImpl::State::kConcrete, type);
  impl->storage = std::make_shared<Storage>(Storage{.literal = std::move(bytes)});
  return Array(std::move(impl));
}

std::vector<std::byte> scalar_bytes(const ScalarValue& value, DType dtype) {
  std::vector<std::byte> bytes(static_cast<size_t>(dtype_bytes(dtype)));
  if (is_float(value.dtype))
    convert_elements(&value.real, DType::kF64, bytes.data(), dtype, 1);
  else
    convert_elements(&value.integer, value.dtype == DType::kU64 ? DType::kU64 : DType::kI64,
                     bytes.data(), dtype, 1);
  return bytes;
}

const DeviceBufferPtr& buffer_of(const Array& array, const DevicePtr& device) {
  Storage& storage = *array.impl()->storage;
  if (!storage.donated.empty())
    trace_error_here("[array] {} was donated to {} and cannot be used again", describe(array),
                     storage.donated);
  if (storage.shards) refuse_over_mesh("array", mesh_sharding_of(array).mesh());
  const bool is_literal = !storage.literal.empty();
  if (is_literal && (!storage.buffer || storage.buffer->device() != device)) {
    storage.buffer = device->allocate(static_cast<int64_t>(storage.literal.size()));
    storage.buffer->write(0, storage.literal);
  }
  return storage.buffer;
}

DevicePtr default_device() {
  DevicePtr& device = context().device;
  return device ? device : Device::cpu();
}

DefaultDevice::DefaultDevice(DevicePtr device) : before_(context().device) {
  context().device = std::move(device);
}
DefaultDevice::~DefaultDevice() {
  context().device = before_;
}

Scope::Scope(std::string_view name) : length_before_(context().scope.size()) {
  std::string& scope = context().scope;
  if (!scope.empty()) scope += '/';
  scope += name;
}
Scope::~Scope() {
  context().scope.resize(length_before_);
}

}  // namespace stow
