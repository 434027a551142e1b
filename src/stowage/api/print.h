// Printing arrays and their types, by fmt and iostream, and debug_print: printing from inside jit.
// Not text that reads back.
#pragma once

#include <algorithm>
#include <iosfwd>
#include <string>
#include <string_view>

#include "stowage/api/array.h"

namespace stow {

/// "Array([1. 2. 3.], f32[3], cpu)": the elements as NumPy prints them, long arrays summarised; the
/// type, with its memory kind if that is not the device; the device; and the sharding that
/// device_put gave it, if any. Reads only the elements that are shown. A traced array is
/// "Array(f32[3], traced by jit)", an abstract one "Array(f32[3], abstract)"; for an array without
/// data the text says why. None of these is an error.
std::string to_string(const Array& array);

/// The elements alone, "[1. 2. 3.]" or "1.0". Each is formatted by `spec`, one of fmt's
/// specifications (".3f"), or as in to_string() if `spec` is empty. A traced, abstract, donated or
/// empty array has the text of to_string().
/// Errors: fmt::format_error for a specification that does not fit the dtype.
std::string elements_to_string(const Array& array, std::string_view spec = {});

/// As to_string.
std::ostream& operator<<(std::ostream& out, const Array& array);
std::ostream& operator<<(std::ostream& out, const ArrayType& type);  ///< "f32[8,64]".
std::ostream& operator<<(std::ostream& out, const Shape& shape);     ///< "[8,64]".
std::ostream& operator<<(std::ostream& out, DType dtype);            ///< "f32".

/// The format of a debug_print call, and the place of the call.
struct DebugFormat {
  // NOLINTNEXTLINE: converts by design
  DebugFormat(const char* format, const char* file = __builtin_FILE(), int line = __builtin_LINE())
      : text(format), at{file, line} {}  ///< From a literal.
  DebugFormat(std::string format, const char* file = __builtin_FILE(),  // NOLINT
              int line = __builtin_LINE())
      : text(std::move(format)), at{file, line} {}  ///< From a text.
  std::string text;
  SourceLocation at;
};
/// Runs debug_print().
void run_debug_print(const DebugFormat& format, const std::vector<Array>& arrays);

/// Prints a line to standard output: inside a trace, each time the program runs past the call;
/// outside a trace, at once.
///   debug_print("loss {} after {:.3f}", loss, x);
/// Format:   `{}` stands for the elements of the next array, `{1}` for those of array 1, `{:.3f}`
///           for elements formatted so; `{{` and `}}` are braces. Arrays are printed as
///           elements_to_string gives them; C++ numbers may stand for arrays.
/// Order:    a program prints in the order of the calls, also through grad, checkpoint, loops and
///           branches. A scan prints in each iteration; a backward pass prints nothing a second
///           time. Under vmap each example prints its line, one after another. A cond whose
///           predicate differs between examples prints the lines of both branches, and a while_loop
///           prints the lines of every example until the last one is done.
/// Effect:   no result changes by a bit. The printed arrays are stored whole, including values that
///           the program would otherwise have fused or not computed.
/// Errors:   TraceError if the format does not fit the arrays, or if an array is not in device
///           memory (device_put it there first).
/// Source:   JAX's jax.debug.print(ordered=True).
template <typename... Arrays>
requires(std::convertible_to<const Arrays&, Array>&&...) void debug_print(
    const DebugFormat& format, const Arrays&... arrays) {
  run_debug_print(format, {Array(arrays)...});
}

}  // namespace stow

namespace stow::print_detail {

// A value that has a to_string and takes no format specification.
struct Plain {
  constexpr auto parse(fmt::format_parse_context& context) { return context.begin(); }
  template <typename FormatContext>
  static auto put(std::string_view text, FormatContext& context) {
    return std::copy(text.begin(), text.end(), context.out());
  }
};

}  // namespace stow::print_detail

/// `{}` formats as to_string() does. `{:v}` formats the elements alone, and `{:.3f}` each element
/// by that specification.
template <>
struct fmt::formatter<stow::Array> : stow::print_detail::Plain {
  std::string_view spec;
  constexpr auto parse(fmt::format_parse_context& context) {
    auto end = context.begin();
    while (end != context.end() && *end != '}') ++end;
    spec = std::string_view(context.begin(), static_cast<size_t>(end - context.begin()));
    return end;
  }
  template <typename FormatContext>
  auto format(const stow::Array& array, FormatContext& context) const {
    return put(spec.empty() ? stow::to_string(array)
                            : stow::elements_to_string(array, spec == "v" ? "" : spec),
               context);
  }
};
template <>
struct fmt::formatter<stow::ArrayType> : stow::print_detail::Plain {
  template <typename FormatContext>
  auto format(const stow::ArrayType& type, FormatContext& context) const {
    return put(stow::to_string(type), context);
  }
};
template <>
struct fmt::formatter<stow::Shape> : stow::print_detail::Plain {
  template <typename FormatContext>
  auto format(const stow::Shape& shape, FormatContext& context) const {
    return put("[" + stow::to_string(shape) + "]", context);
  }
};
template <>
struct fmt::formatter<stow::DType> : stow::print_detail::Plain {
  template <typename FormatContext>
  auto format(stow::DType dtype, FormatContext& context) const {
    return put(stow::dtype_name(dtype), context);
  }
};
