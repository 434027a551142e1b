// Moment: storage of an optimizer's moment between steps, in full, in bf16 or in 8 bits.
// Not public; users choose one of Moments (transforms.h). Not the update rules of moments.
#pragma once

#include <string>
#include <vector>

#include "stowage/optim/transforms.h"

namespace stow::optim {

/// One moment of each leaf, stored in the optimizer's state under "name/<path>". With 8 bits that
/// is u8 of the leaf's shape, and "name_scale/<path>" is f32 of that shape without its last axis.
class Moment {
 public:
  enum class Range : uint8_t {
    kSigned,   ///< A mean of gradients.
    kPositive  ///< A mean of squares.
  };
  /// The arrays of one leaf's moment: the values and, with 8 bits, the scales.
  using Parts = std::vector<Array>;

  /// `dtype`: the dtype of a moment with Moments::kFull; the parameter's if none.
  /// Errors: TraceError if a dtype is given with another format.
  Moment(std::string name, Range range, Moments format, std::optional<DType> dtype = {});

  /// True if read() returns f32 for leaves of any dtype, and write() uses random bits.
  bool is_compact() const { return format_ != Moments::kFull; }
  /// Adds a moment of zeros for a parameter to the state.
  void init(OptState& state, const Leaf& param) const;
  /// The parts of a leaf's moment in the state; set_parts() replaces them.
  Parts parts(const OptState& state, const std::string& path) const;
  void set_parts(OptState& state, const std::string& path, const Parts& parts) const;

  /// Returns the moment that the parts hold.
  /// Shapes: those of the leaf, or of a part of it with the whole last axis.
  Array read(const Parts& parts) const;
  /// Returns `moment` as parts of the types of `old`. `bits`: random u32 of its shape; a signed
  /// moment uses the lower half of each, a positive one the upper half; unused if the leaf is
  /// stored in full.
  Parts write(const Array& moment, const Parts& old, const Array& bits) const;

 private:
  std::string name_;
  Range range_;
  Moments format_;
  std::optional<DType> dtype_;
};

/// Returns a scalar u32 that differs from step to step and from leaf to leaf.
Array rounding_salt(const Array& count, const std::string& path);
/// Returns random bits for the rounding of a moment: a hash of the salt and the moment's f32 bits.
/// The hash needs no random array and no index of the element, so an element's bits do not depend
/// on how the leaf is cut or on the machine. Equal values of a leaf are rounded alike in one step,
/// and differently in the next.
/// Shapes: `moment` f32 of any shape; returns u32 of that shape.
Array rounding_bits(const Array& salt, const Array& moment);

/// Rounds f32 to bf16 stochastically: up or down with probabilities that make the mean exact.
/// `bits`: u32 of the same shape, of which the lower 16 bits count. Values that are not finite are
/// rounded to nearest.
Array round_to_bf16(const Array& x, const Array& bits);

}  // namespace stow::optim
