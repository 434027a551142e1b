// What a wrong use of traced values, jit, printing, gradients, loops and trees is told: exact
// messages, in a table. "@" stands for a line number.
#include <gtest/gtest.h>

#include "stowage/stowage.h"
#include "tests/error/message_table.h"

namespace stow {
namespace {

using Case = testing::MessageCase;
using testing::message_of;

struct Net {
  Array w, b;
};
STOW_TREE(Net, w, b);

Array f32(Shape shape) {
  return Array::abstract(std::move(shape));
}
Array i32(Shape shape) {
  return Array::abstract(std::move(shape), DType::kI32);
}

// A traced value whose trace is over.
Array leaked() {
  Array leak;
  jit([&](Array x) { return leak = x * 2; }, {.name = "first"}).lower(f32({4}));
  return leak;
}

const Case kCases[] = {
    // ---- scopes ----
    {"scope",
     [] {
       const Scope layer("layers"), mlp("mlp");
       f32({3}) * f32({4});
     },
     "[mul] f32[3] and f32[4] do not broadcast: axis -1 has extents 3 and 4\n"
     "  at layers/mlp (messages_test.cpp:@)"},

    // ---- values that cannot be had ----
    {"empty", [] { Array() + 1; },
     "[array] an empty Array has no type; assign one before it is used\n"
     "  at messages_test.cpp:@"},
    {"item_of_abstract", [] { f32({}).item<float>(); },
     "[item] f32[] is abstract: it has a type and no data\n"
     "  at messages_test.cpp:@"},
    {"item_of_many",
     [] {
       Array::from({1, 2}).item<int>();
     },
     "[item] i32[2] made at messages_test.cpp:@ has 2 elements, not one\n"
     "  at messages_test.cpp:@"},
    {"bool_of_many",
     [] {
       if (Array::from({1, 2})) return;
     },
     "[bool] i32[2] made at messages_test.cpp:@ has 2 elements, not one; use any() or all()"},
    {"branch",
     [] {
       jit([](Array x) {
         Array big = sum(x) > 0;
         return big ? x : -x;
       }).lower(f32({4}));
     },
     "[bool] bool[] made at messages_test.cpp:@ is traced by jit: C++ cannot branch on a value "
     "that is not known while tracing; use cond(condition, true_fn, false_fn) or "
     "where(condition, a, b)"},
    {"item_of_traced", [] { jit([](Array x) { return x * x.item<float>(); }).lower(f32({})); },
     "[item] f32[] is traced by jit: its value is not known while tracing; return it from the "
     "function and read the result\n"
     "  at messages_test.cpp:@"},
    {"to_vector_of_traced",
     [] { jit([](Array x) { return x * x.to_vector<float>().at(0); }).lower(f32({2})); },
     "[to_vector] f32[2] is traced by jit: its value is not known while tracing; return it from "
     "the "
     "function and read the result\n"
     "  at messages_test.cpp:@"},
    {"leak", [] { leaked() + 1; },
     "[array] f32[4] made at messages_test.cpp:@ belongs to the trace of first, which is over; "
     "return it from that function to use it outside\n"
     "  at messages_test.cpp:@"},
    {"leak_into_another", [] { jit([y = leaked()](Array x) { return x + y; }).lower(f32({4})); },
     "[array] f32[4] made at messages_test.cpp:@ belongs to the trace of first, which is over; "
     "return it from that function to use it outside\n"
     "  at messages_test.cpp:@"},
    {"leak_from_scan",
     [] {
       jit([](Array x) {
         Array inner;
         auto body = [&](Array c, Array v) { return inner = c + v; };
         const Array total = scan(body, Array(0.0f), x);
         return total + inner;
       }).lower(f32({4}));
     },
     "[array] f32[] made at messages_test.cpp:@ belongs to the trace of scan, which is over; "
     "return "
     "it from that function to use it outside\n"
     "  at messages_test.cpp:@"},
    {"empty_result", [] { jit([](Array x) {
                            return Net{x, {}};
                          }).lower(f32({4})); },
     "[jit] the function returned an empty Array at 'b'\n"
     "  at messages_test.cpp:@"},

    // ---- jit ----
    {"donate_argnums",
     [] { jit([](Array x) { return x; }, {.donate_argnums = {1}}).lower(f32({4})); },
     "[jit] donate_argnums names argument 1, the function has 1\n"
     "  at messages_test.cpp:@"},
    {"in_shardings_of_no_part",
     [] {
       jit([](const std::pair<Array, None>& x) { return x; },
           {.in_shardings = {{"0/2", MemoryKind::kDevice}}})
           .lower(std::pair(f32({4}), None{}));
     },
     "[jit] expected in_shardings to name parts of the arguments, got '0/2'; the leaves are '0/0'\n"
     "  at messages_test.cpp:@"},

    // ---- printing ----
    {"debug_print_no_array", [] { debug_print("x {}"); },
     "[debug_print] the format 'x {}' has a place for array 0, none is given\n"
     "  at messages_test.cpp:@"},
    {"debug_print_surplus_array", [] { debug_print("x {0}", f32({4}), f32({2})); },
     "[debug_print] the format 'x {0}' has no place for array 1\n"
     "  at messages_test.cpp:@"},
    {"debug_print_brace", [] { debug_print("x {", f32({4})); },
     "[debug_print] the format 'x {' has a brace without its partner; write {{ for one\n"
     "  at messages_test.cpp:@"},
    {"debug_print_specification", [] { debug_print("x {:d}", f32({4})); },
     "[debug_print] '{:d}' does not format f32\n"
     "  at messages_test.cpp:@"},
    {"debug_print_name", [] { debug_print("x {x}", f32({4})); },
     "[debug_print] expected the number of an array in the place '{x}' of the format 'x {x}'\n"
     "  at messages_test.cpp:@"},
    {"debug_print_both_places", [] { debug_print("{} {0}", f32({4})); },
     "[debug_print] the format '{} {0}' has places with numbers and places without\n"
     "  at messages_test.cpp:@"},
    {"debug_print_on_the_host",
     [] {
       jit([](Array x) {
         debug_print("{}", device_put(x, MemoryKind::kPinnedHost));
         return x;
       }).lower(f32({4}));
     },
     "[debug_print] expected arrays on the device, array 0 lies on pinned_host: "
     "f32<pinned_host>[4] made "
     "at messages_test.cpp:@; move it with device_put first\n"
     "  at messages_test.cpp:@"},
    {"debug_print_in_a_backward_rule",
     [] {
       const auto f = custom_vjp([](Array x) { return x; }, [](Array x) { return std::pair(x, x); },
                                 [](Array x, Array ct) {
                                   debug_print("{}", x);
                                   return ct;
                                 });
       jit(f).lower(f32({4}));
     },
     "[custom_vjp] debug_print in a backward rule is not supported: return what it would print as "
     "a "
     "residual or a result\n"
     "  at messages_test.cpp:@"},
    {"debug_print_in_a_condition",
     [] {
       jit([](Array x) {
         return while_loop(
             [](Array c) {
               debug_print("{}", c);
               return c < 3;
             },
             [](Array c) { return c + 1; }, x);
       }).lower(f32({}));
     },
     "[while_loop] debug_print in the condition of a loop is not supported: print in its body\n"
     "  at messages_test.cpp:@"},

    // ---- gradients ----
    {"loss_in_a_pair", [] { grad([](Array x) { return std::pair(sum(x), x); })(f32({4})); },
     "[grad] expected one Array, the loss, from the function; got a tree with 2 arrays ('0', '1'); "
     "for "
     "other results beside the loss, return std::pair(loss, others) and use grad_aux or "
     "value_and_grad_aux\n"
     "  at messages_test.cpp:@"},
    {"loss_in_a_vector_of_one",
     [] { value_and_grad([](Array x) { return std::vector<Array>{sum(x)}; })(f32({4})); },
     "[value_and_grad] expected one Array, the loss, from the function; got a tree with the array "
     "('0'); for other results beside the loss, return std::pair(loss, others) and use grad_aux or "
     "value_and_grad_aux\n"
     "  at messages_test.cpp:@"},
    {"loss_in_a_map",
     [] {
       value_and_grad_aux([](Array x) {
         return std::pair(std::map<std::string, Array>{{"a", sum(x)}, {"loss", sum(x)}}, x);
       })(f32({4}));
     },
     "[value_and_grad_aux] expected one Array, the loss, as the first of the pair; got a tree with "
     "2 "
     "arrays ('a', 'loss'); put the other arrays into the second of the pair\n"
     "  at messages_test.cpp:@"},
    {"loss_by_path_in_a_tuple",
     [] {
       value_and_grad_by_path({"w"}, [](const Net& n) {
         return std::tuple(sum(n.w), n.b, n.w);
       })(Net{f32({4}), f32({2})});
     },
     "[value_and_grad] expected one Array, the loss, from the function; got a tree with 3 arrays "
     "('0', '1', '2'); for other results beside the loss, return std::pair(loss, others) and use "
     "grad_aux or value_and_grad_aux\n"
     "  at messages_test.cpp:@"},
    {"loss_not_scalar", [] { grad([](Array x) { return x * 2; })(f32({4})); },
     "[grad] the loss must be a scalar; the function returned f32[4] made at messages_test.cpp:@\n"
     "  at messages_test.cpp:@"},
    {"loss_not_float", [] { grad([](Array x) { return sum(x > 0); })(f32({4})); },
     "[grad] the loss must be of a float type; the function returned i32[] made at "
     "messages_test.cpp:@\n"
     "  at messages_test.cpp:@"},
    {"grad_of_integers", [] { grad([](Array x) { return sum(x * 1.5); })(i32({4})); },
     "[grad] nothing to differentiate by: no leaf of the argument is of a float type, the first is "
     "i32[4]\n"
     "  at messages_test.cpp:@"},

    // ---- scan ----
    {"scan_lengths",
     [] {
       scan([](Array c, const Net& n) { return c + n.w + n.b; }, f32({}), Net{f32({3}), f32({4})});
     },
     "[scan] scanned 'w' has 3 slices, scanned 'b' has 4\n"
     "  at messages_test.cpp:@"},
    {"scan_length_option",
     [] { scan([](Array c, Array x) { return c + x; }, f32({}), f32({3}), {.length = 4}); },
     "[scan] the scanned has 3 slices, length is 4\n"
     "  at messages_test.cpp:@"},
    {"scan_scalar", [] { scan([](Array c, Array x) { return c + x; }, f32({}), f32({})); },
     "[scan] expected an axis to scan over, got f32[] for the scanned\n"
     "  at messages_test.cpp:@"},
    {"scan_nothing", [] { scan([](Array c, None) { return c; }, f32({})); },
     "[scan] nothing is scanned; give a length\n"
     "  at messages_test.cpp:@"},
    {"scan_carry",
     [] {
       scan([](Net c, Array x) { return Net{c.w, c.b + x}; }, Net{f32({2}), f32({})}, f32({3, 4}));
     },
     "[scan] the body returns carry 'b' as f32[4], and is given it as f32[]\n"
     "  at messages_test.cpp:@"},
    {"scan_carry_dtype", [] { scan([](Array c, Array x) { return c + x; }, i32({}), f32({3})); },
     "[scan] the body returns the carry as f32[], and is given it as i32[]\n"
     "  at messages_test.cpp:@"},

    {"scan_axis",
     [] {
       scan([](Array c, Array x) { return c + sum(x); }, f32({}), f32({3, 4}), {.axes = {2}});
     },
     "[scan] axis 2 is out of range for the scanned, f32[3,4]\n"
     "  at messages_test.cpp:@"},
    {"scan_axes_count",
     [] {
       scan([](Array c, const Net& n) { return c + n.w + n.b; }, f32({}),
            Net{f32({3}), f32({3})}, {.axes = {0, 0, 0}});
     },
     "[scan] axes lists 3 axes, there are 2 scanned leaves; give one for all, or one for each\n"
     "  at messages_test.cpp:@"},
    {"scan_axis_lengths",
     [] {
       scan([](Array c, const Net& n) { return c + sum(n.w) + n.b; }, f32({}),
            Net{f32({3, 4}), f32({3})}, {.axes = {1, 0}});
     },
     "[scan] scanned 'w' has 4 slices, scanned 'b' has 3\n"
     "  at messages_test.cpp:@"},
    {"scan_out_axis",
     [] {
       scan([](Array c, Array x) { return std::pair(c, x); }, f32({}), f32({3}),
            {.out_axes = {-2}});
     },
     "[scan] axis -2 is out of range for stacked results 0 of slices f32[]\n"
     "  at messages_test.cpp:@"},

    // ---- cond, switch_, loops ----
    {"cond_types",
     [] {
       cond(
           true, [](Net n) { return n; }, [](Net n) { return Net{n.w, stack({n.b, n.b})}; },
           Net{f32({2}), f32({3})});
     },
     "[cond] output 'b' is f32[2,3] in false_fn and f32[3] in true_fn\n"
     "  at messages_test.cpp:@"},
    {"cond_dtype",
     [] {
       cond(
           true, [](Array x) { return x; }, [](Array x) { return x.astype(DType::kF16); },
           f32({2}));
     },
     "[cond] the output is f16[2] in false_fn and f32[2] in true_fn\n"
     "  at messages_test.cpp:@"},
    {"cond_structure",
     [] {
       cond(
           true, [](Array x) { return std::vector<Array>{x}; },
           [](Array x) { return std::vector<Array>{x, x}; }, f32({2}));
     },
     "[cond] the results of false_fn and true_fn: the structures differ at the root: a list of 2 "
     "there, a list of 1 here\n"
     "  at messages_test.cpp:@"},
    {"cond_predicate",
     [] {
       cond(
           f32({2}), [] { return Array(1); }, [] { return Array(2); });
     },
     "[cond] the predicate must be a scalar, got f32[2]\n"
     "  at messages_test.cpp:@"},
    {"switch_index", [] { switch_(f32({}), std::tuple([] { return Array(1); })); },
     "[switch_] the index must be an integer scalar, got f32[]\n"
     "  at messages_test.cpp:@"},
    {"switch_nothing", [] { switch_(0, std::vector<std::function<Array()>>{}); },
     "[switch_] expected at least one branch, got none\n"
     "  at messages_test.cpp:@"},
    {"switch_types",
     [] {
       switch_(2, std::tuple([](Array x) { return x; }, [](Array x) { return x; },
                             [](Array x) { return sum(x); }),
               f32({2}));
     },
     "[switch_] the output is f32[2] in branch 0 and f32[] in branch 2\n"
     "  at messages_test.cpp:@"},
    {"while_condition",
     [] { while_loop([](Array x) { return x; }, [](Array x) { return x; }, f32({})); },
     "[while_loop] the condition must return a bool scalar, it returns f32[]\n"
     "  at messages_test.cpp:@"},
    {"while_carry",
     [] {
       while_loop([](Net n) { return n.b < 1; }, [](Net n) { return Net{sum(n.w), n.b}; },
                  Net{f32({2}), f32({})});
     },
     "[while_loop] the body returns carry 'w' as f32[], and is given it as f32[2]\n"
     "  at messages_test.cpp:@"},
    {"while_gradient",
     [] {
       grad([](Array x) {
         return while_loop([](Array x) { return x < 1; }, [](Array x) { return x * 2; }, x);
       })(f32({}));
     },
     "[while_loop] has no reverse-mode derivative, for how often it runs is not known; use "
     "fori_loop with C++ integers as bounds, or scan\n"
     "  at messages_test.cpp:@"},
    {"fori_bounds",
     [] {
       fori_loop(
           0, f32({}), [](Array, Array x) { return x; }, f32({2}));
     },
     "[fori_loop] the bounds must be integer scalars, got f32[]\n"
     "  at messages_test.cpp:@"},
    {"fori_carry",
     [] {
       fori_loop(
           0, 3, [](Array i, Array x) { return x + i * 1.5; }, i32({}));
     },
     "[fori_loop] the body returns the carry as f32[], and is given it as i32[]\n"
     "  at messages_test.cpp:@"},

    // ---- trees ----
    {"tree_map",
     [] {
       const std::map<std::string, std::vector<Array>> a = {{"x", {f32({}), f32({})}}};
       const std::map<std::string, std::vector<Array>> b = {{"x", {f32({})}}};
       tree_map([](Array u, Array v) { return u + v; }, a, b);
     },
     "[tree_map] the structures differ at 'x': a list of 2 there, a list of 1 here"},
    {"tree_map_optional",
     [] {
       const std::optional<Array> a = f32({});
       tree_map([](Array u, Array) { return u; }, a, std::optional<Array>());
     },
     "[tree_map] the structures differ at the root: a value there, an empty optional here"},
    {"tree_unflatten", [] { tree_unflatten(Net{}, std::vector<Array>{f32({})}); },
     "[tree_unflatten] the tree has 2 leaves, 1 were given"},

    // ---- policies ----
    {"policy_overlap",
     [] {
       save_and_offload_only_these_names({"a", "b"}, {"b"});
     },
     "[save_and_offload_only_these_names] 'b' is both saved and offloaded\n"
     "  at messages_test.cpp:@"},
};

class Messages : public ::testing::TestWithParam<Case> {};
TEST_P(Messages, AreExact) {
  EXPECT_EQ(message_of(GetParam()), GetParam().message);
}
INSTANTIATE_TEST_SUITE_P(Table, Messages, ::testing::ValuesIn(kCases),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(MessagesTest, NameTheLineOfTheCaller) {
  int line = 0;
  try {
    line = __LINE__ + 1;
    softmax(matmul(f32({2, 3}), f32({4, 5})));
    FAIL();
  } catch (const TraceError& error) {
    EXPECT_NE(std::string(error.what()).find(fmt::format("messages_test.cpp:{}", line)),
              std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace stow
