#include "stowage/runtime/debug_print.h"

#include <cstdio>
#include <cstring>
#include <string>

#include "stowage/core/array_text.h"
#include "stowage/core/print_format.h"

namespace stow {

void print_views(std::string_view format, std::span<const TensorView> arrays) {
  const auto text = [&](size_t i, std::string_view spec, int column) {
    const TensorView& view = arrays[i];
    const auto bytes = static_cast<size_t>(dtype_bytes(view.dtype));
    const auto read = [&](int64_t first, std::span<std::byte> out) {
      int64_t at = 0, stride = 0;
      for (size_t axis = view.dims.size(); axis-- > 0;) {
        at += first % view.dims[axis] * view.strides[axis];
        first /= view.dims[axis];
      }
      if (!view.dims.empty()) stride = view.strides.back();
      for (size_t k = 0; k * bytes < out.size(); ++k)
        std::memcpy(out.data() + k * bytes,
                    view.data + (at + static_cast<int64_t>(k) * stride) *
                                    static_cast<int64_t>(bytes),
                    bytes);
    };
    return array_text(view.dtype, Shape(view.dims), read, spec, column);
  };
  const std::string line = print_line(format, text);
  std::fwrite(line.data(), 1, line.size(), stdout);
}

}  // namespace stow
