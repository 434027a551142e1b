// Array: a value that is concrete (has data), traced (in a graph) or abstract (only a type).
// Not the functions over arrays; see math.h, shaping.h, reduce.h and others.
#pragma once

#include <array>
#include <concepts>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "stowage/core/array_type.h"
#include "stowage/ir/graph.h"

namespace stow {

class Device;
struct ArrayImpl;
class Index;
class AtIndex;

namespace concepts {
/// A C++ type of scalars: bool, the integers, float, double.
template <typename T>
concept Scalar = std::is_arithmetic_v<T>;
}  // namespace concepts

/// The dtype of a C++ type: f32 for float, i32 for int, bool for bool, … There is none for 16-bit
/// integers.
template <concepts::Scalar T>
constexpr DType dtype_of() {
  if constexpr (std::same_as<T, bool>)
    return DType::kBool;
  else if constexpr (std::floating_point<T>)
    return sizeof(T) == 4 ? DType::kF32 : DType::kF64;
  else if constexpr (std::is_signed_v<T>)
    return sizeof(T) == 1 ? DType::kI8 : sizeof(T) == 4 ? DType::kI32 : DType::kI64;
  else
    return sizeof(T) == 1 ? DType::kU8 : sizeof(T) == 4 ? DType::kU32 : DType::kU64;
}

/// A C++ scalar as an operand. Its dtype is weak: the scalar takes the dtype of the array operand
/// (x * 2.0 keeps bf16). Without an array, a float is f32 and an integer i32, or i64 if it does not
/// fit.
struct ScalarValue {
  DType dtype = DType::kF32;
  double real = 0;      ///< Value of a float.
  int64_t integer = 0;  ///< Value of an integer or bool; a u64 as its bits.

  ScalarValue() = default;
  template <concepts::Scalar T>
  ScalarValue(T v) {  // NOLINT: converts by design
    if constexpr (std::floating_point<T>) {
      real = static_cast<double>(v);
    } else {
      integer = static_cast<int64_t>(v);
      if constexpr (std::same_as<T, bool>)
        dtype = DType::kBool;
      else if constexpr (std::is_unsigned_v<T> && sizeof(T) == 8)
        dtype = integer < 0 ? DType::kU64 : int_dtype(integer);
      else
        dtype = int_dtype(integer);
    }
  }

 private:
  static DType int_dtype(int64_t v) {
    return v == static_cast<int32_t>(v) ? DType::kI32 : DType::kI64;
  }
};

/// The default argument by which a function learns where it was called.
#define STOW_AT SourceLocation at = {__builtin_FILE(), __builtin_LINE()}

/// Replaces STOW_AT where an argument {} must select another overload: {} does not convert to it.
struct CallSite {
  template <std::same_as<const char*> File>
  CallSite(File file, int line) : at{file, line} {}  ///< Not from {}.
  SourceLocation at;
};

/// The number in x[i], with the place in the source where it was written.
struct ElementNumber {
  /// Takes a number of any integer type.
  template <std::integral T>
  ElementNumber(T i, const char* file = __builtin_FILE(),  // NOLINT: converts by design
                int line = __builtin_LINE())
      : number(static_cast<int64_t>(i)), at{file, line} {}
  int64_t number;
  SourceLocation at;
};

/// A handle to an immutable value; copies share it. A default-constructed Array is empty and can
/// only be assigned to.
class Array {
 public:
  Array() = default;
  /// A weak scalar of rank 0, in host memory until a program needs it.
  template <concepts::Scalar T>
  Array(T value) : Array(scalar(ScalarValue(value))) {}  // NOLINT: converts by design

  /// A type without data, for `lower` and for planning.
  static Array abstract(ArrayType type);
  static Array abstract(Shape shape, DType dtype = DType::kF32);  ///< The same.
  /// A scalar of a dtype that is not weak in promotion, unlike that of Array(value).
  static Array scalar(ScalarValue value, DType dtype);
  static Array scalar(ScalarValue value);  ///< Array(value): weak, of its own dtype.
  /// Copies `data`, row-major, to the default device; `dtype` converts on the way.
  /// Errors: TraceError if the sizes differ; CapacityError when the device is full.
  template <concepts::Scalar T>
  static Array from(std::span<const T> data, Shape shape, DType dtype = dtype_of<T>(), STOW_AT) {
    return from_bytes(data.data(), static_cast<int64_t>(data.size()), dtype_of<T>(),
                      std::move(shape), dtype, at);
  }
  template <concepts::Scalar T>
  requires(!std::same_as<T, bool>) static Array
      from(const std::vector<T>& data, Shape shape, DType dtype = dtype_of<T>(), STOW_AT) {
    return from(std::span<const T>(data), std::move(shape), dtype, at);
  }
  /// A vector of the values; a dtype converts on the way.
  template <concepts::Scalar T>
  requires(!std::same_as<T, bool>) static Array
      from(const std::vector<T>& data,
           CallSite site = {__builtin_FILE(), __builtin_LINE()}) {
    return from(std::span<const T>(data), Shape{static_cast<int64_t>(data.size())}, dtype_of<T>(),
                site.at);
  }
  // A parameter of its own type, so that from(data, {}) is a scalar.
  template <concepts::Scalar T, std::same_as<DType> D>
  requires(!std::same_as<T, bool>) static Array
      from(const std::vector<T>& data, D dtype, STOW_AT) {
    return from(std::span<const T>(data), Shape{static_cast<int64_t>(data.size())}, dtype, at);
  }
  template <concepts::Scalar T>
  static Array from(std::initializer_list<T> data, Shape shape, DType dtype = dtype_of<T>(),
                    STOW_AT) {
    return from(std::span<const T>(data.begin(), data.size()), std::move(shape), dtype, at);
  }
  template <concepts::Scalar T>
  static Array from(std::initializer_list<T> data,
                    CallSite site = {__builtin_FILE(), __builtin_LINE()}) {
    return from(data, Shape{static_cast<int64_t>(data.size())}, dtype_of<T>(), site.at);
  }
  template <concepts::Scalar T, std::same_as<DType> D>
  static Array from(std::initializer_list<T> data, D dtype, STOW_AT) {
    return from(data, Shape{static_cast<int64_t>(data.size())}, dtype, at);
  }

  bool empty() const { return impl_ == nullptr; }  ///< True if default-constructed.
  bool is_concrete() const;  ///< True if it has data.
  bool is_traced() const;  ///< True for a value of a graph that is being traced.
  bool is_abstract() const;  ///< True for a type without data.

  /// The type and its parts. Errors: TraceError on an empty array.
  const ArrayType& type() const;
  const Shape& shape() const { return type().shape; }  ///< Its extents.
  DType dtype() const { return type().dtype; }  ///< Dtype of its elements.
  int rank() const { return shape().rank(); }  ///< The number of axes.
  /// The number of elements.
  int64_t size() const { return type().elems(); }
  /// The extent of an axis; a negative one counts from the end.
  int64_t dim(int axis) const;

  /// The elements in row-major order, converted to T.
  /// Errors: TraceError for a traced, abstract, donated or empty array, which has no data.
  template <concepts::Scalar T>
  std::vector<T> to_vector(STOW_AT) const {
    std::vector<std::conditional_t<std::same_as<T, bool>, uint8_t, T>> data(
        static_cast<size_t>(size()));
    read(data.data(), dtype_of<T>(), "to_vector()", at);
    if constexpr (std::same_as<T, bool>)
      return {data.begin(), data.end()};
    else
      return data;
  }
  /// The only element. Errors: as to_vector, and if there are more or none.
  template <concepts::Scalar T>
  T item(STOW_AT) const {
    T value{};
    check_one(at);
    read(&value, dtype_of<T>(), "item()", at);
    return value;
  }
  /// True if the only element differs from zero. Errors: as item; branching on a traced value.
  explicit operator bool() const { return truth({}); }

  /// Elements start, start + step, … of the half-open range [start, stop) of one axis. As in NumPy,
  /// negative numbers count from the end, and numbers past the end are clamped.
  Array slice(int axis, int64_t start, int64_t stop, int64_t step = 1, STOW_AT) const;
  /// NumPy's indexing: x.index({0, range(1, 3), newaxis, ellipsis, rows}), where `rows` is an array
  /// of integers. Negative indices count from the end. An index of an array that is out of range is
  /// clamped, as in JAX; a C++ integer out of range is an error.
  Array index(std::initializer_list<Index> indices, STOW_AT) const;
  /// Functional updates of the elements that index() reads: x.at({0}).set(1). See at.h.
  AtIndex at(std::initializer_list<Index> indices, STOW_AT) const;
  /// Element `i` of the leading axis, which is dropped; negative counts from the end.
  Array operator[](ElementNumber i) const;
  Array astype(DType dtype, STOW_AT) const;  ///< As stow::astype.
  Array reshape(const Dims& dims, STOW_AT) const;  ///< As stow::reshape.

  // For the library.
  explicit Array(std::shared_ptr<ArrayImpl> impl) : impl_(std::move(impl)) {}
  const std::shared_ptr<ArrayImpl>& impl() const { return impl_; }

 private:
  static Array from_bytes(const void* data, int64_t n, DType data_dtype, Shape shape, DType dtype,
                          SourceLocation at);
  void read(void* out, DType as, const char* what, SourceLocation at) const;
  void check_one(SourceLocation at) const;
  bool truth(SourceLocation at) const;  // true if the one element is not zero

  std::shared_ptr<ArrayImpl> impl_;
};

/// A parameter of a function over arrays: an Array or a C++ scalar, with the place in the source
/// where the caller wrote it.
class Operand {
 public:
  Operand(const Array& array, const char* file = __builtin_FILE(),  // NOLINT: converts by design
          int line = __builtin_LINE())
      : at{file, line}, array_(array) {}
  template <concepts::Scalar T>
  Operand(T value, const char* file = __builtin_FILE(),  // NOLINT: converts by design
          int line = __builtin_LINE())
      : at{file, line}, scalar_(ScalarValue(value)) {}

  bool is_scalar() const { return scalar_.has_value(); }  ///< True for a C++ number.
  const ScalarValue& scalar() const { return *scalar_; }  ///< The number, if is_scalar().
  const Array& array() const { return array_; }  ///< The array, if not is_scalar().
  /// The dtype as an array, and whether it is weak in promotion.
  WeakDType dtype() const;
  Shape shape() const { return is_scalar() ? Shape{} : array_.shape(); }  ///< [] for a number.
  int rank() const { return is_scalar() ? 0 : array_.rank(); }  ///< 0 for a number.

  SourceLocation at;

 private:
  Array array_;
  std::optional<ScalarValue> scalar_;
};

/// The device on which arrays are made from data: that of the innermost DefaultDevice of this
/// thread, by default Device::cpu().
std::shared_ptr<Device> default_device();

/// Sets this thread's default device during its lifetime.
class DefaultDevice {
 public:
  explicit DefaultDevice(std::shared_ptr<Device> device);  ///< Takes effect at once.
  ~DefaultDevice();
  DefaultDevice(const DefaultDevice&) = delete;
  DefaultDevice& operator=(const DefaultDevice&) = delete;

 private:
  std::shared_ptr<Device> before_;
};

/// During its lifetime, operations that this thread records have `name` in their source path;
/// scopes nest as "mlp/up".
class Scope {
 public:
  explicit Scope(std::string_view name);  ///< Enters it.
  ~Scope();
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

 private:
  size_t length_before_;
};

}  // namespace stow
