// Exact messages for wrong shapes, types and options of operations, as a table.
// "@" stands for a line number.
#include <gtest/gtest.h>

#include "stowage/stowage.h"
#include "tests/error/message_table.h"

namespace stow {
namespace {

using Case = testing::MessageCase;
using testing::message_of;

Array f32(Shape shape) {
  return Array::abstract(std::move(shape));
}
Array i32(Shape shape) {
  return Array::abstract(std::move(shape), DType::kI32);
}

const Case kCases[] = {
    {"broadcast", [] { f32({3}) + f32({4}); },
     "[add] f32[3] and f32[4] do not broadcast: axis -1 has extents 3 and 4\n"
     "  at op_messages_test.cpp:@"},
    {"broadcast_where", [] { where(f32({2}) > 0, f32({3}), 0.0); },
     "[where] bool[2] and f32[3] do not broadcast: axis -1 has extents 2 and 3\n"
     "  at op_messages_test.cpp:@"},
    {"bit_op_of_floats", [] { f32({2}) & f32({2}); },
     "[and] needs a bool or integer dtype, got f32[2]\n"
     "  at op_messages_test.cpp:@"},
    {"matmul_inner",
     [] {
       matmul(f32({8, 64}), f32({32, 16}));
     },
     "[matmul] f32[8,64] and f32[32,16]: the last axis of the first has extent 64, the last but "
     "one "
     "of the second 32\n"
     "  at op_messages_test.cpp:@"},
    {"matmul_scalar",
     [] {
       matmul(f32({8, 64}), 2.0);
     },
     "[matmul] expected matrices, got a scalar: f32[8,64] and f32[]; use *\n"
     "  at op_messages_test.cpp:@"},
    {"matmul_batch",
     [] {
       matmul(f32({2, 3, 4}), f32({5, 4, 6}));
     },
     "[matmul] f32[2,3,4] and f32[5,4,6] do not broadcast: leading axis -3 has extents 2 and 5\n"
     "  at op_messages_test.cpp:@"},
    {"dot_general",
     [] {
       dot_general(f32({8, 64}), f32({32, 16}), {1}, {0});
     },
     "[dot_general] contracting size 64 of lhs f32[8,64] differs from 32 of rhs f32[32,16]\n"
     "  at op_messages_test.cpp:@"},
    {"reshape",
     [] {
       reshape(f32({4, 4}), {3, -1});
     },
     "[reshape] f32[4,4] has 16 elements and cannot be (3,-1)\n"
     "  at op_messages_test.cpp:@"},
    {"reshape_two_unknown",
     [] {
       reshape(f32({4, 4}), {-1, -1});
     },
     "[reshape] expected extents of 0 or more, and at most one of -1, got (-1,-1) for f32[4,4]\n"
     "  at op_messages_test.cpp:@"},
    {"transpose",
     [] {
       transpose(f32({4, 4}), {0});
     },
     "[transpose] expected 2 axes for f32[4,4], got 1\n"
     "  at op_messages_test.cpp:@"},
    {"axis",
     [] {
       sum(f32({4, 4}), 2);
     },
     "[sum] axis 2 is out of range for f32[4,4]\n"
     "  at op_messages_test.cpp:@"},
    {"axis_twice",
     [] {
       sum(f32({4, 4}), {0, -2});
     },
     "[sum] axis -2 is given twice for f32[4,4]\n"
     "  at op_messages_test.cpp:@"},
    {"max_of_nothing",
     [] {
       max(f32({0, 4}), 0);
     },
     "[max] expected elements along axis 0, got f32[0,4]; set initial\n"
     "  at op_messages_test.cpp:@"},
    {"squeeze",
     [] {
       squeeze(f32({4, 1}), 0);
     },
     "[squeeze] axis 0 of f32[4,1] has extent 4, not 1\n"
     "  at op_messages_test.cpp:@"},
    {"concatenate_none", [] { concatenate({}); },
     "[concatenate] expected at least one array, got none\n"
     "  at op_messages_test.cpp:@"},
    {"concatenate",
     [] {
       concatenate({f32({2, 3}), f32({2, 4})});
     },
     "[concatenate] operands differ off axis 0: f32[2,3] and f32[2,4]\n"
     "  at op_messages_test.cpp:@"},
    {"stack",
     [] {
       stack({f32({3}), f32({4})});
     },
     "[stack] expected arrays of one shape, got f32[3] and f32[4]\n"
     "  at op_messages_test.cpp:@"},
    {"stack_ranks",
     [] {
       stack({f32({3}), f32({3, 4})});
     },
     "[stack] expected arrays of one shape, got f32[3] and f32[3,4]\n"
     "  at op_messages_test.cpp:@"},
    {"tile",
     [] {
       tile(f32({3}), {2, -1});
     },
     "[tile] expected repetitions of 0 or more, got -1\n"
     "  at op_messages_test.cpp:@"},
    {"repeat_counts",
     [] {
       repeat(f32({3, 2}), {1, 2}, 0);
     },
     "[repeat] expected a count for each element, got 2 for axis 0 of f32[3,2]\n"
     "  at op_messages_test.cpp:@"},
    {"moveaxis_several",
     [] {
       moveaxis(f32({3, 2}), {0, 1}, {0});
     },
     "[moveaxis] expected a place for each axis, got 2 axes and 1 places\n"
     "  at op_messages_test.cpp:@"},
    {"arange_of_floats", [] { arange(0.0, 1.0, 0.0); },
     "[arange] expected fewer than 2^53 numbers, got those from 0 to 1 by 0\n"
     "  at op_messages_test.cpp:@"},
    {"one_hot_of_bools", [] { one_hot(f32({3}) > 0, 3); },
     "[one_hot] indices must be integers, got bool[3]\n"
     "  at op_messages_test.cpp:@"},
    {"ldexp", [] { ldexp(f32({3}), 0.5); },
     "[ldexp] the exponent must be an integer, got f32[]\n"
     "  at op_messages_test.cpp:@"},
    {"broadcast_in_dim",
     [] {
       broadcast_in_dim(f32({3, 2}), {2, 3}, {1, 0});
     },
     "[broadcast_in_dim] expected a rising axis of (2,3) for each axis of f32[3,2], got 1,0\n"
     "  at op_messages_test.cpp:@"},
    {"put_along_axis",
     [] {
       put_along_axis(f32({3, 2}), i32({3}), 1, 0);
     },
     "[put_along_axis] expected indices of as many axes as the array, got i32[3] for f32[3,2]\n"
     "  at op_messages_test.cpp:@"},
    {"segment_sum",
     [] {
       segment_sum(f32({3, 2}), i32({2}), 4);
     },
     "[segment_sum] expected ids of the leading axes of the array, got i32[2] for f32[3,2]\n"
     "  at op_messages_test.cpp:@"},
    {"matrix_power",
     [] {
       matrix_power(f32({3, 3}), -1);
     },
     "[matrix_power] expected a power of 0 or more, as there is no inverse here, got -1\n"
     "  at op_messages_test.cpp:@"},
    {"cross", [] { cross(f32({4}), f32({3})); },
     "[cross] axis -1 of f32[4] and f32[3] must have extent 3, or 2\n"
     "  at op_messages_test.cpp:@"},
    {"bernoulli",
     [] {
       random::bernoulli(random::key(0), f32({4, 3}), {3});
     },
     "[random] expected a parameter of bernoulli that broadcasts to (3), got f32[4,3]\n"
     "  at op_messages_test.cpp:@"},
    {"initializer_mode", [] { initializers::variance_scaling(1, "fan", "normal"); },
     "[variance_scaling] expected the mode fan_in, fan_out, fan_avg or fan_geo_avg, got 'fan'\n"
     "  at op_messages_test.cpp:@"},
    {"initializer_rank", [] { initializers::he_normal()(random::key(0), {3}); },
     "[variance_scaling] expected a weight of at least two axes, got f32[3]\n"
     "  at op_messages_test.cpp:@"},
    {"split", [] { split(f32({10}), 3); },
     "[split] expected parts that divide axis 0 of f32[10], got 3; array_split takes any number "
     "from 1 on\n"
     "  at op_messages_test.cpp:@"},
    {"element_out_of_range", [] { f32({3})[5]; },
     "[index] index 5 is out of range for axis 0 of f32[3]\n"
     "  at op_messages_test.cpp:@"},
    {"element_of_a_trace",
     [] { jit([](const Array& x) { return x * x[0].item<float>(); }).lower(f32({3})); },
     "[item] f32[] made at op_messages_test.cpp:@ is traced by jit: its value is not known while "
     "tracing; return it from the function and read the result\n"
     "  at op_messages_test.cpp:@"},
    {"index", [] { f32({3}).index({3}); },
     "[index] index 3 is out of range for axis 0 of f32[3]\n"
     "  at op_messages_test.cpp:@"},
    {"index_too_many",
     [] {
       f32({3}).index({0, 0});
     },
     "[index] expected at most 1 axes and 1 ellipsis for f32[3], got 2 and 0\n"
     "  at op_messages_test.cpp:@"},
    {"index_by_floats", [] { f32({3}).index({f32({2})}); },
     "[index] an index must be integers, got f32[2]\n"
     "  at op_messages_test.cpp:@"},
    {"at_value",
     [] {
       f32({3, 4}).at({0}).set(f32({3}));
     },
     "[at] f32[3] and f32[4] do not broadcast: axis -1 has extents 3 and 4\n"
     "  at op_messages_test.cpp:@"},
    {"at_value_rank",
     [] {
       f32({3, 4}).at({0}).add(f32({2, 4}));
     },
     "[at] f32[2,4] does not broadcast to (4), the places of f32[3,4]\n"
     "  at op_messages_test.cpp:@"},
    {"conv_ranks",
     [] {
       conv(f32({1, 2, 5}), f32({3, 2}), {1}, "VALID");
     },
     "[conv_general_dilated] expected arrays of one rank of at least 2, got f32[1,2,5] and "
     "f32[3,2]\n"
     "  at op_messages_test.cpp:@"},
    {"conv_padding",
     [] {
       conv(f32({1, 2, 5}), f32({3, 2, 3}), {1}, "FULL");
     },
     "[conv_general_dilated] expected the padding VALID, SAME or SAME_LOWER, got \"FULL\"\n"
     "  at op_messages_test.cpp:@"},
    {"pool_axes",
     [] {
       max_pool(f32({4, 4}), {2, 2});
     },
     "[max_pool] expected [N, S..., C] with 2 axes S, as the window has, got f32[4,4]\n"
     "  at op_messages_test.cpp:@"},
    {"top_k_too_many", [] { top_k(f32({3}), 4); },
     "[top_k] the 4 largest are asked for of 3 on axis 0 of f32[3]\n"
     "  at op_messages_test.cpp:@"},
    {"glu_halves", [] { glu(f32({3})); },
     "[glu] expected an even extent along axis -1, got f32[3]\n"
     "  at op_messages_test.cpp:@"},
    {"quantile_fraction", [] { quantile(f32({3}), 1.5); },
     "[quantile] q must lie in [0, 1], got 1.5\n"
     "  at op_messages_test.cpp:@"},
    {"sum_where_of_floats",
     [] {
       sum(f32({2, 3}), 1, {.where = f32({2, 3})});
     },
     "[sum] where must be bool, got f32[2,3]\n"
     "  at op_messages_test.cpp:@"},
    {"softmax_where_of_floats",
     [] {
       softmax(f32({2, 3}), 1, f32({2, 3}));
     },
     "[softmax] where must be bool, got f32[2,3]\n"
     "  at op_messages_test.cpp:@"},
    {"mean_where_too_large",
     [] {
       mean(f32({3}), {}, {.where = f32({2, 3}) > 0});
     },
     "[mean] where bool[2,3] does not broadcast to f32[3]\n"
     "  at op_messages_test.cpp:@"},
    {"max_where_of_nothing", [] { max(f32({3}), {}, {.where = f32({3}) > 0}); },
     "[max] expected an initial value beside where, which may select nothing; set initial\n"
     "  at op_messages_test.cpp:@"},
    {"initial_of_a_vector", [] { sum(f32({3}), {}, {.initial = f32({3})}); },
     "[sum] the initial value must be a scalar, got f32[3]\n"
     "  at op_messages_test.cpp:@"},
    {"any_with_dtype", [] { any(f32({3}), {}, {.dtype = DType::kF32}); },
     "[any] takes no dtype; leave it out\n"
     "  at op_messages_test.cpp:@"},
    {"var_in_integers", [] { var(f32({3}), {}, 0, {.dtype = DType::kI32}); },
     "[var] dtype must be a float, got i32\n"
     "  at op_messages_test.cpp:@"},
    {"sort_of_two_shapes",
     [] {
       sort({f32({3}), f32({4})});
     },
     "[sort] expected operands of one shape, got f32[4] beside f32[3]\n"
     "  at op_messages_test.cpp:@"},
    {"sort_by_too_many",
     [] {
       sort({f32({3}), f32({3})}, 0, 3);
     },
     "[sort] expected at least 1 key and no more than operands, got 3 keys of 2 operands\n"
     "  at op_messages_test.cpp:@"},
    {"round_integers_to_tens", [] { round(i32({3}), -1); },
     "[round] expected 0 decimals or more for i32[3], got -1\n"
     "  at op_messages_test.cpp:@"},
    {"choice_too_many", [] { random::choice(random::key(1), 3, {4}, {.replace = false}); },
     "[random] expected no more draws than there are without replacement, got 4 of 3\n"
     "  at op_messages_test.cpp:@"},
    {"attention_alignment",
     [] {
       const Array x = f32({1, 2, 3, 4});
       attention(x, x, x, {.align_last = true});
     },
     "[attention] align_last has no effect without causal; set causal\n"
     "  at op_messages_test.cpp:@"},
    {"attention_interval_dtype",
     [] {
       const Array x = f32({1, 2, 3, 4});
       attention(x, x, x, {.hi = f32({1, 2})});
     },
     "[attention] hi must be i32, got f32[1,2]\n"
     "  at op_messages_test.cpp:@"},
    {"attention_interval_shape",
     [] {
       const Array x = f32({1, 2, 3, 4});
       attention(x, x, x, {.lo = i32({3})});
     },
     "[attention] lo must broadcast to [B,T] = [1,2], got i32[3]\n"
     "  at op_messages_test.cpp:@"},
    {"attention_mask",
     [] {
       const Array x = f32({1, 2, 3, 4});
       attention(x, x, x, {.mask = f32({2, 2})});
     },
     "[attention] the mask must be bool, got f32[2,2]; what is added to scores is the bias\n"
     "  at op_messages_test.cpp:@"},
    {"scalar_beside_u8", [] { astype(i32({2}), DType::kU8) + (int64_t{1} << 33); },
     "the scalar 8589934592 does not fit u8; convert the array (astype) or the scalar first\n"
     "  at op_messages_test.cpp:@"},
    {"softmax_axis",
     [] {
       softmax(f32({3, 4}), -3);
     },
     "[softmax] axis -3 is out of range for f32[3,4]\n"
     "  at op_messages_test.cpp:@"},
    {"norm_axis",
     [] {
       norm(f32({3, 4}), 2);
     },
     "[norm] axis 2 is out of range for f32[3,4]\n"
     "  at op_messages_test.cpp:@"},
    {"take_by_floats",
     [] {
       take(f32({3, 4}), f32({2}));
     },
     "[take] indices must be integers, got f32[2]\n"
     "  at op_messages_test.cpp:@"},
    {"einsum_extents",
     [] {
       einsum("ij,jk->ik", {f32({2, 3}), f32({4, 5})});
     },
     "[einsum] \"ij,jk->ik\": 'j' has extents 3 and 4\n"
     "  at op_messages_test.cpp:@"},
    {"einsum_terms",
     [] {
       einsum("ij,jk", {f32({2, 3})});
     },
     "[einsum] \"ij,jk\": expected a term for each operand, got 2 for 1\n"
     "  at op_messages_test.cpp:@"},
    {"einsum_rank",
     [] {
       einsum("ijk->i", {f32({2, 3})});
     },
     "[einsum] \"ijk->i\": term \"ijk\" does not fit f32[2,3]\n"
     "  at op_messages_test.cpp:@"},
    {"gather_batching_extents",
     [] {
       gather(f32({2, 5}), i32({3, 1}), {{}, {}, {1}, {0}, {0}}, {1, 1});
     },
     "[gather] batching axis 0 of f32[2,5] has extent 2, axis 0 of i32[3,1] 3\n"
     "  at op_messages_test.cpp:@"},
    {"gather_batching_twice",
     [] {
       gather(f32({2, 5}), i32({2, 1}), {{}, {0}, {1}, {0}, {0}}, {1, 1});
     },
     "[gather] axis 0 is in operand_batching_dims and in collapsed_slice_dims\n"
     "  at op_messages_test.cpp:@"},
    {"gather_batching_index_vectors",
     [] {
       gather(f32({2, 5, 3}), i32({2, 2}), {{}, {}, {1, 2}, {0}, {1}}, {1, 1, 1});
     },
     "[gather] expected start_indices_batching_dims to name axes of i32[2,2] before its index "
     "vectors, got 1\n"
     "  at op_messages_test.cpp:@"},
    {"scatter_map",
     [] {
       scatter_add(f32({2, 5}), i32({3, 1}), f32({3, 5}), {{1}, {0}, {2}},
                   GatherScatterMode::kClip);
     },
     "[scatter_add] expected scatter_dims_to_operand_dims to name axes of f32[2,5], got 2\n"
     "  at op_messages_test.cpp:@"},
    {"gather_index_vectors",
     [] {
       gather(f32({2, 5}), i32({3}), {{1}, {0}, {0}}, {1, 5});
     },
     "[gather] expected a last axis of 1 indices, as start_index_map has entries, got i32[3]\n"
     "  at op_messages_test.cpp:@"},
    {"gather_slice_sizes",
     [] {
       gather(f32({2, 5}), i32({3, 1}), {{1}, {0}, {0}}, {1, 6});
     },
     "[gather] slice size 6 of axis 1 does not fit f32[2,5]\n"
     "  at op_messages_test.cpp:@"},
    {"scatter_window",
     [] {
       scatter(f32({2, 5}), i32({3, 1}), f32({3, 5}), {{}, {0}, {0}});
     },
     "[scatter] expected update_window_dims to name an axis of f32[3,5] for axis 1 of f32[2,5], "
     "got none\n"
     "  at op_messages_test.cpp:@"},
    {"scatter_add_updates",
     [] {
       scatter_add(f32({2, 5}), i32({3, 1}), i32({3, 5}), {{1}, {0}, {0}});
     },
     "[scatter_add] updates must be f32[3,5], got i32[3,5]\n"
     "  at op_messages_test.cpp:@"},
    {"attention",
     [] {
       attention(f32({1, 8, 4, 16}), f32({1, 8, 2, 8}), f32({1, 8, 2, 8}));
     },
     "[attention] head size 16 of q f32[1,8,4,16] differs from 8 of k f32[1,8,2,8]\n"
     "  at op_messages_test.cpp:@"},
    {"attention_rank",
     [] {
       attention(f32({8, 4, 16}), f32({8, 2, 16}), f32({8, 2, 16}));
     },
     "[attention] q must be [B,T,H,D], got f32[8,4,16]\n"
     "  at op_messages_test.cpp:@"},
    {"cross_entropy",
     [] {
       cross_entropy(f32({4, 10}), i32({5}));
     },
     "[cross_entropy] targets for logits f32[4,10] must be of shape (4), got i32[5]\n"
     "  at op_messages_test.cpp:@"},
    {"cross_entropy_floats",
     [] {
       cross_entropy(f32({4, 10}), f32({4}));
     },
     "[cross_entropy] targets must be integers, got f32[4]\n"
     "  at op_messages_test.cpp:@"},
    {"rms_norm",
     [] {
       rms_norm(f32({4, 10}), f32({4}));
     },
     "[rms_norm] weight f32[4] does not fit the last axis of f32[4,10]\n"
     "  at op_messages_test.cpp:@"},
    {"integer_power", [] { pow(i32({2}), -1); },
     "[pow] expected a power of 0 or more for i32[2], got -1; convert it to a float (astype)\n"
     "  at op_messages_test.cpp:@"},
    {"at_apply_type",
     [] { f32({3}).at({1}).apply([](const Array& v) { return astype(v, DType::kBF16); }); },
     "[at] expected the function to return f32[], got bf16[]\n  at op_messages_test.cpp:@"},
    {"at_fill_value", [] { f32({3}).at({i32({2})}).get(IndexMode::kClip, 1); },
     "[at] a fill_value has no effect in this mode; set kFill or leave it out\n  at "
     "op_messages_test.cpp:@"},
    {"take_fill_value", [] { take(f32({3}), i32({2}), 0, IndexMode::kWrap, 1); },
     "[take] a fill_value has no effect in this mode; set kFill or leave it out\n  at "
     "op_messages_test.cpp:@"},
    {"insert_place",
     [] {
       insert(f32({3, 2}), 4, 0, 0);
     },
     "[insert] place 4 is out of range for an axis of 3\n  at op_messages_test.cpp:@"},
    {"insert_values",
     [] {
       insert(f32({3, 2}), {0, 1}, f32({3, 2}), 0);
     },
     "[insert] f32[3,2] and f32[2,2] do not broadcast: axis -2 has extents 3 and 2\n"
     "  at op_messages_test.cpp:@"},
    {"insert_rank",
     [] {
       insert(f32({3}), 1, f32({2, 2}), 0);
     },
     "[insert] expected values of no more axes than the array, got f32[2,2] for f32[3]\n  at "
     "op_messages_test.cpp:@"},
    {"delete_place",
     [] {
       delete_(f32({3, 2}), {0, -3}, 1);
     },
     "[delete_] place -3 is out of range for an axis of 2\n  at op_messages_test.cpp:@"},
    {"pad_stat_length",
     [] {
       pad(f32({3}), {{1, 1}}, PadMode::kMean, {.stat_length = 0});
     },
     "[pad] expected a stat_length of 1 or more, got 0\n  at op_messages_test.cpp:@"},
    {"histogram_weights", [] { histogram(f32({3}), 4, {.weights = f32({2})}); },
     "[histogram] expected weights of the shape of the array, got f32[2] for f32[3]\n  at "
     "op_messages_test.cpp:@"},
    {"histogram_empty", [] { histogram(f32({0}), 4); },
     "[histogram] expected elements or a range, got f32[0]\n  at op_messages_test.cpp:@"},
    {"digitize_bins",
     [] {
       digitize(f32({3}), f32({2, 2}));
     },
     "[digitize] bins must be a vector, got f32[2,2]\n  at op_messages_test.cpp:@"},
    {"interp_points", [] { interp(f32({3}), f32({2}), f32({3})); },
     "[interp] the points must be two vectors of one extent, got f32[2] and f32[3]\n"
     "  at op_messages_test.cpp:@"},
    {"unique_empty", [] { unique(f32({0}), 2); },
     "[unique] expected an element to fill with, got f32[0]; give a fill_value\n  at "
     "op_messages_test.cpp:@"},
    {"reduce_precision_bits", [] { reduce_precision(f32({3}), 0, 3); },
     "[reduce_precision] expected at least 1 bit of exponent and 0 of mantissa, got 0 and 3\n  at "
     "op_messages_test.cpp:@"},
    {"reduce_precision_int", [] { reduce_precision(i32({3}), 5, 3); },
     "[reduce_precision] expected a float, got i32[3]\n  at op_messages_test.cpp:@"},
    {"gamma_dtype", [] { random::gamma(random::key(1), 1.0, Shape{3}, DType::kBF16); },
     "[random] expected f32 or f64 for gamma, got bf16\n  at op_messages_test.cpp:@"},
    {"gamma_shape",
     [] {
       random::gamma(random::key(1), f32({2, 3}), Shape{3});
     },
     "[random] expected a parameter of gamma that broadcasts to (3), got f32[2,3]\n  at "
     "op_messages_test.cpp:@"},
    {"gamma_second_gradient",
     [] {
       const auto slope =
           grad([](const Array& a) { return sum(random::gamma(random::key(1), a)); });
       jit(grad([=](const Array& a) { return sum(slope(a)); })).lower(f32({3}));
     },
     "[while_loop] has no reverse-mode derivative, for how often it runs is not known; use "
     "fori_loop with C++ integers as bounds, or scan\n  at op_messages_test.cpp:@"},
    {"poisson_dtype", [] { random::poisson(random::key(1), 2.0, Shape{3}, DType::kF32); },
     "[random] expected an integer dtype, got f32\n  at op_messages_test.cpp:@"},
    {"dirichlet_scalar", [] { random::dirichlet(random::key(1), 2.0); },
     "[random] expected a vector for dirichlet, got f32[]\n  at op_messages_test.cpp:@"},
    {"categorical_apart", [] { random::categorical(random::key(1), f32({3}), 0, Shape{4}, false); },
     "[random] expected no more draws than there are without replacement, got 4 of 3\n  at "
     "op_messages_test.cpp:@"},
    {"random_key", [] { random::normal(f32({2}), {3}); },
     "[random] expected a key u32[2], got f32[2]\n"
     "  at op_messages_test.cpp:@"},
    {"from",
     [] {
       Array::from({1.0f, 2.0f}, {3});
     },
     "[from] expected 3 elements for f32[3], got 2\n"
     "  at op_messages_test.cpp:@"},
};

class OpMessages : public ::testing::TestWithParam<Case> {};
TEST_P(OpMessages, AreExact) {
  EXPECT_EQ(message_of(GetParam()), GetParam().message);
}
INSTANTIATE_TEST_SUITE_P(Table, OpMessages, ::testing::ValuesIn(kCases),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace stow
