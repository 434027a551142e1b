#include "stowage/passes/choose_axes.h"

#include <algorithm>
#include <optional>

#include "stowage/passes/reshard.h"

namespace stow {
namespace {

constexpr size_t kMaxSeeds = 8;  // operands whose axes are tried for an op; concatenates have many

// True for ops whose work counts for more than the bytes that they read.
bool is_product(OpKind op) {
  return op == OpKind::kDotGeneral || op == OpKind::kConvolution || op == OpKind::kAttention ||
         op == OpKind::kAttentionGrad;
}

bool is_better(const AxisChoice& a, const AxisChoice& b, bool product) {
  if (product && a.n_parts != b.n_parts) return a.n_parts > b.n_parts;
  if (a.bytes != b.bytes) return a.bytes < b.bytes;
  return a.n_parts > b.n_parts;
}

class Chooser {
 public:
  Chooser(const GraphShardings& level, const MeshShape& mesh, size_t n)
      : from_(*level.graph),
        level_(level),
        mesh_(mesh),
        node_(from_.nodes()[n]),
        f_(level.factors[n]) {
    for (ValueId v : node_.operands) operand_types_.push_back(from_.type(v));
    for (int i = 0; i < node_.n_results; ++i) result_types_.push_back(from_.type(node_.result(i)));
    // Positions along the manual axes of a body hold different arrays.
    for (ValueId v : node_.operands) may_cut_ &= level.may_cut(v);
    for (int i = 0; i < node_.n_results; ++i) may_cut_ &= level.may_cut(node_.result(i));
  }

  AxisChoice choose() const {
    const bool product = is_product(node_.op);
    std::optional<AxisChoice> best;
    const auto consider = [&](LetterAxes axes) {
      if (best && axes == best->axes) return;
      AxisChoice choice{.axes = std::move(axes)};
      choice.shardings = shardings_of(f_, choice.axes);
      choice.bytes = bytes_of(choice.shardings);
      for (const auto& [letter, cut] : choice.axes) choice.n_parts *= mesh_.extent_of(cut);
      if (!best || is_better(choice, *best, product)) best = std::move(choice);
    };
    std::vector<Place> places;
    for (int i = 0; i < node_.n_results; ++i)
      places.push_back({node_.result(i), &f_.results[static_cast<size_t>(i)]});
    for (size_t i = 0; i < node_.operands.size(); ++i)
      places.push_back({node_.operands[i], &f_.operands[i]});
    const bool closed = level_.is_closed(node_.result());
    for (size_t seed = 0; !closed && seed < std::min(places.size(), kMaxSeeds); ++seed) {
      LetterAxes axes;
      take(places[seed], axes);
      const LetterAxes alone = axes;
      for (const Place& place : places) take(place, axes);
      consider(std::move(axes));
      if (best->bytes == 0 && (!product || best->n_parts == mesh_.size())) return *best;
      consider(alone);
    }
    consider({});
    return *best;
  }

 private:
  struct Place {
    ValueId value;
    const std::vector<int>* letters;
  };

  // Adds the axes of a value to letters that have none yet, if they are free and divide the extent.
  void take(const Place& place, LetterAxes& axes) const {
    const AxisSharding& s = level_.at(place.value);
    for (size_t i = 0; i < place.letters->size(); ++i) {
      const int letter = (*place.letters)[i];
      if (letter == ShardingFactors::kUnshardable || s.axes[i].empty() || axes.contains(letter))
        continue;
      MeshAxes cut;
      for (int axis : s.axes[i]) {
        const bool taken = std::any_of(axes.begin(), axes.end(), [&](const auto& other) {
          return std::find(other.second.begin(), other.second.end(), axis) != other.second.end();
        });
        if (taken || (may_cut_ >> axis & 1) == 0) break;
        cut.push_back(axis);
        if (!can_cut(f_, {{letter, cut}}, mesh_, operand_types_, result_types_)) {
          cut.pop_back();
          break;
        }
      }
      if (!cut.empty() && mixes_kinds(axes, letter)) continue;
      if (!cut.empty()) axes.emplace(letter, std::move(cut));
    }
  }

  // True if the letter is reduced in another way than a letter that is cut.
  bool mixes_kinds(const LetterAxes& axes, int letter) const {
    return std::any_of(axes.begin(), axes.end(),
                       [&](const auto& other) { return f_.kind(other.first) != f_.kind(letter); });
  }

  double bytes_of(const OpShardings& s) const {
    double bytes = 0;
    for (size_t i = 0; i < node_.operands.size(); ++i) {
      const ValueId v = node_.operands[i];
      if (!(level_.at(v) == s.operands[i]) && !made_here(v))
        bytes += plan_reshard(from_.type(v), level_.at(v), s.operands[i], mesh_).bytes;
    }
    for (int i = 0; i < node_.n_results; ++i) {
      const ValueId v = node_.result(i);
      const AxisSharding& made = s.results[static_cast<size_t>(i)];
      if (!(level_.at(v) == made))
        bytes += plan_reshard(from_.type(v), made, level_.at(v), mesh_).bytes;
    }
    return bytes;
  }

  // True if resharding the value sends nothing.
  bool made_here(ValueId v) const { return is_made_at_use(from_, v) && !level_.is_manual(v); }

  const Graph& from_;
  const GraphShardings& level_;
  const MeshShape& mesh_;
  const Node& node_;
  const ShardingFactors& f_;
  std::vector<ArrayType> operand_types_, result_types_;
  uint64_t may_cut_ = ~uint64_t{0};  // a bit for each mesh axis
};

}  // namespace

AxisChoice choose_axes(const GraphShardings& level, const MeshShape& mesh, size_t n) {
  return Chooser(level, mesh, n).choose();
}

}  // namespace stow
