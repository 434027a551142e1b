// The fields of every params struct and of Region, by name, for printer, parser, equality and hash.
// Not their text; a new params struct needs one entry here and no code elsewhere.
#pragma once

#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

#include "stowage/base/inside.h"
#include "stowage/ir/graph.h"

namespace stow {

template <typename Struct, typename Member>
struct Field {
  std::string_view name;
  Member Struct::*member;
};
template <typename Struct, typename Member>
Field(const char*, Member Struct::*) -> Field<Struct, Member>;

template <typename Struct>
struct FieldsOf;  // undefined: a params struct without an entry below does not compile

// FieldsOf<struct>::list is a tuple of Field, in the order of declaration.
#define STOW_FIELD(name) \
  Field {                \
#name, &S::name      \
  }
#define STOW_FIELDS(Struct, ...)                          \
  template <>                                             \
  struct FieldsOf<Struct> {                               \
    using S [[maybe_unused]] = Struct;                    \
    static constexpr auto list = std::tuple{__VA_ARGS__}; \
  };

STOW_FIELDS(NoParams)
STOW_FIELDS(ConstantParams, STOW_FIELD(type), STOW_FIELD(data))
STOW_FIELDS(IotaParams, STOW_FIELD(type), STOW_FIELD(axis))
STOW_FIELDS(ShapeParams, STOW_FIELD(shape))
STOW_FIELDS(DTypeParams, STOW_FIELD(dtype))
STOW_FIELDS(BroadcastParams, STOW_FIELD(shape), STOW_FIELD(axes))
STOW_FIELDS(AxesParams, STOW_FIELD(axes))
STOW_FIELDS(SliceParams, STOW_FIELD(start), STOW_FIELD(limit), STOW_FIELD(stride))
STOW_FIELDS(PadParams, STOW_FIELD(low), STOW_FIELD(high), STOW_FIELD(interior))
STOW_FIELDS(AxisParams, STOW_FIELD(axis), STOW_FIELD(flag))
STOW_FIELDS(ArgReduceParams, STOW_FIELD(axis), STOW_FIELD(index_dtype))
STOW_FIELDS(GatherParams, STOW_FIELD(offset_axes), STOW_FIELD(collapsed_axes),
            STOW_FIELD(start_index_map), STOW_FIELD(slice_sizes), STOW_FIELD(batch_axes),
            STOW_FIELD(index_batch_axes), STOW_FIELD(n_tiles))
STOW_FIELDS(DotParams, STOW_FIELD(lhs_contract), STOW_FIELD(rhs_contract), STOW_FIELD(lhs_batch),
            STOW_FIELD(rhs_batch), STOW_FIELD(out))
STOW_FIELDS(AttentionParams, STOW_FIELD(scale), STOW_FIELD(causal), STOW_FIELD(offset))
STOW_FIELDS(TopKParams, STOW_FIELD(axis), STOW_FIELD(k))
STOW_FIELDS(WindowParams, STOW_FIELD(sizes), STOW_FIELD(strides), STOW_FIELD(low), STOW_FIELD(high),
            STOW_FIELD(base_dilation), STOW_FIELD(window_dilation))
STOW_FIELDS(ConvParams, STOW_FIELD(strides), STOW_FIELD(low), STOW_FIELD(high),
            STOW_FIELD(lhs_dilation), STOW_FIELD(rhs_dilation), STOW_FIELD(feature_groups),
            STOW_FIELD(batch_groups))
STOW_FIELDS(DevicePutParams, STOW_FIELD(kind))
STOW_FIELDS(NameParams, STOW_FIELD(name))
STOW_FIELDS(CollectiveParams, STOW_FIELD(mesh), STOW_FIELD(axes), STOW_FIELD(axis),
            STOW_FIELD(concat_axis), STOW_FIELD(kind), STOW_FIELD(pairs), STOW_FIELD(groups),
            STOW_FIELD(n_groups))
STOW_FIELDS(ReshardParams, STOW_FIELD(mesh), STOW_FIELD(sharding), STOW_FIELD(automatic))
STOW_FIELDS(ScanParams, STOW_FIELD(length), STOW_FIELD(n_consts), STOW_FIELD(n_carries),
            STOW_FIELD(reverse), STOW_FIELD(in_axes), STOW_FIELD(out_axes), STOW_FIELD(n_residuals),
            STOW_FIELD(unroll))
STOW_FIELDS(CondParams, STOW_FIELD(n_residuals))
STOW_FIELDS(WhileParams, STOW_FIELD(n_cond_consts), STOW_FIELD(n_body_consts))
STOW_FIELDS(CheckpointParams, STOW_FIELD(policy), STOW_FIELD(prevent_cse))
STOW_FIELDS(CustomVjpParams, STOW_FIELD(n_args), STOW_FIELD(n_residuals))
STOW_FIELDS(Region, STOW_FIELD(parent), STOW_FIELD(policy), STOW_FIELD(prevent_cse))

#undef STOW_FIELDS
#undef STOW_FIELD

namespace internal {
struct Anything {
  template <typename T>
  operator T() const;
};
// True if the aggregate takes as many initialisers as there are I.
template <typename Struct, size_t... I>
constexpr bool takes(std::index_sequence<I...>) {
  return requires {
    Struct{((void)I, Anything{})...};
  };
}
// The number of members of an aggregate: the most initialisers it takes.
template <typename Struct, size_t N = 12>
constexpr size_t member_count() {
  if constexpr (N == 0 || takes<Struct>(std::make_index_sequence<N>()))
    return N;
  else
    return member_count<Struct, N - 1>();
}
// Number of members without a text form: Region::made.
template <typename Struct>
constexpr size_t kUnprinted = std::same_as<Struct, Region> ? 1 : 0;
}  // namespace internal

/// Calls visit(name, member) for each field of a params struct or region, in order.
template <typename Struct, typename Visit>
void visit_fields(Struct& object, Visit&& visit) {
  using Plain = std::remove_const_t<Struct>;
  constexpr auto& list = FieldsOf<Plain>::list;
  static_assert(std::tuple_size_v<std::remove_cvref_t<decltype(list)>> +
                        internal::kUnprinted<Plain> ==
                    internal::member_count<Plain>(),
                "FieldsOf lists every member");
  std::apply([&](const auto&... field) { (visit(field.name, object.*field.member), ...); }, list);
}

/// Returns default parameters of the alternative that `op` takes.
Params empty_params(OpKind op);
/// The least and the greatest number of nested graphs that a node may hold.
struct NestedCount {
  int least = 0, most = 0;
  /// True if a node may hold n nested graphs.
  bool admits(size_t n) const {
    return n >= static_cast<size_t>(least) && n <= static_cast<size_t>(most);
  }
};
/// Returns the bounds for nodes of this op.
NestedCount n_nested_graphs(OpKind op);

}  // namespace stow
