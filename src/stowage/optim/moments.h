// Moment: how one moment of a leaf is kept between steps, whole, in bf16 or in 8 bits.
// Not public; users choose among Moments in transforms.h. Not the rules that move moments.
#pragma once

#include <string>
#include <vector>

#include "stowage/optim/transforms.h"

namespace stow::optim {

/// One moment of each leaf of an optimizer, in its state under "name/<path>". In 8 bits that is u8 of
/// the leaf's shape, and "name_scale/<path>" is f32 of that shape without its last axis.
class Moment {
 public:
  enum class Range : uint8_t {
    kSigned,   ///< A mean of gradients.
    kPositive  ///< A mean of squares.
  };
  /// The parts of one leaf's state: the values and, in 8 bits, the scales.
  using Parts = std::vector<Array>;

  /// `dtype` is the one in which Moments::kFull keeps it, the parameter's if none.
  /// Errors: TraceError where a dtype is given and another format.
  Moment(std::string name, Range range, Moments format, std::optional<DType> dtype = {});

  /// True if reads give f32 whatever the leaf's dtype, and writes take random bits.
  bool is_compact() const { return format_ != Moments::kFull; }
  /// A moment of zeros for a parameter, added to the state.
  void init(OptState& state, const Leaf& param) const;
  Parts parts(const OptState& state, const std::string& path) const;
  void set_parts(OptState& state, const std::string& path, const Parts& parts) const;

  /// The moment that the parts hold.
  /// Shapes: those of the leaf, or of a part of it with the whole last axis.
  Array read(const Parts& parts) const;
  /// Parts like `old` that hold `moment`. `bits` are u32 of its shape, and are not used where the
  /// leaf is kept whole; of each, a signed moment uses the lower half, a positive one the upper.
  Parts write(const Array& moment, const Parts& old, const Array& bits) const;

 private:
  std::string name_;
  Range range_;
  Moments format_;
  std::optional<DType> dtype_;
};

/// A scalar u32 that differs from step to step and from leaf to leaf.
Array rounding_salt(const Array& count, const std::string& path);
/// Random bits by which a moment is rounded: a hash of the salt and of the moment's own f32 bits. So
/// they need no array and no place in the leaf: an element's bits are the same however the leaf is
/// cut, and on every machine. Equal values of one leaf are rounded alike in a step, and differently
/// in the next.
/// Shapes: `moment` f32 of any shape; u32 of the same.
Array rounding_bits(const Array& salt, const Array& moment);

/// Rounds f32 to bf16, up or down with probabilities that make the mean exact; `bits` u32 of the
/// same shape, of which the lower 16 count. What is not finite is rounded as ever.
Array round_to_bf16(const Array& x, const Array& bits);

}  // namespace stow::optim
