#include "stowage/optim/internal.h"

#include <limits>

#include "stowage/api/shaping.h"

namespace stow::optim {

GradientTransformation stateless(
    std::string name, std::function<void(Leaves& updates, const Leaves& params)> update) {
  return {std::move(name), [](const Leaves&) { return OptState(); },
          [update = std::move(update)](Leaves& updates, OptState&, const Leaves& params) {
            update(updates, params);
          }};
}

GradientTransformation leafwise(std::string name,
                                std::function<Array(const Array& update, const Array& param)> f) {
  return stateless(std::move(name), [f = std::move(f)](Leaves& updates, const Leaves& params) {
    for (size_t i = 0; i < updates.size(); ++i) {
      const Scope scope(updates[i].path);
      updates[i].value = f(updates[i].value, params[i].value);
    }
  });
}

Array moment_of(const Array& param, const Shape& shape, double value) {
  if (param.is_abstract()) return Array::abstract(shape, param.dtype());
  return full(shape, value, param.dtype());
}

Array moment_like(const Array& param, std::optional<DType> dtype, double value) {
  const DType type = dtype.value_or(param.dtype());
  if (param.is_abstract()) return Array::abstract(param.shape(), type);
  return full(param.shape(), value, type);
}

Array zero_count() {
  return Array::scalar(0, DType::kI32);
}

Array increment(const Array& count) {
  return minimum(count, std::numeric_limits<int32_t>::max() - 1) + 1;
}

Array update_moment(const Array& value, const Array& moment, double decay) {
  return moment * decay + value * (1.0 - decay);
}

Array bias_correction(const Array& moment, double decay, const Array& count) {
  // Near 1 a decay in f32 leaves few digits of 1 - decay: enough for moments of f32, not of f64.
  const DType wide = moment.dtype() == DType::kF64 ? DType::kF64 : DType::kF32;
  const Array correction = 1.0 - pow(decay, count.astype(wide));
  // One division, not one an element; a reciprocal rounded to a short dtype would show.
  if (moment.dtype() == DType::kF32) return moment * reciprocal(correction);
  return moment / correction.astype(moment.dtype());
}

Array look_ahead(const Array& moment, const Array& update, double decay, const Array& count) {
  return bias_correction(moment, decay, increment(count)) * decay +
         bias_correction(update, decay, count) * (1.0 - decay);
}

}  // namespace stow::optim
