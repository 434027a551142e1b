// What a wrong use of a transform is told: exact messages, in a table. "@" stands for a line
// number.
#include <gtest/gtest.h>

#include "stowage/base/inside.h"
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
Array product(const Array& a, const Array& b) {
  return a * b;
}

// The gradient of a function of its own rules; each part may be wrong.
template <typename Forward, typename Backward>
void custom(Forward forward, Backward backward) {
  const auto f = custom_vjp([](const Net& n) { return Net{n.w * 2, n.b * 2}; }, forward, backward);
  jit(grad([&](const Net& n) { return sum(f(n).w); })).lower(Net{f32({3}), f32({2})});
}
auto good_forward() {
  return [](const Net& n) { return std::pair(Net{n.w * 2, n.b * 2}, None{}); };
}

// A function by a rule of its own, of nets; the rule may be wrong.
template <typename Rule>
void by_rule(Rule rule) {
  const auto f = custom_jvp([](const Net& n) { return n; },
                            [rule](const auto& primals, const auto& tangents) {
                              return rule(std::get<0>(primals), std::get<0>(tangents));
                            });
  jit(f).lower(Net{f32({3}), f32({2})});
}

// A gradient under a policy of names.
void policy(PolicyPtr policy) {
  const auto f = checkpoint(
      [](const Array& x) {
        const Array h = checkpoint_name(matmul(x, x), "hidden");
        checkpoint_name(h * 2, "dropped");
        return std::pair(sin(h), checkpoint_name(h * 3, "aux"));
      },
      std::move(policy));
  jit(grad_aux([&](const Array& x) {
    const auto [y, aux] = f(x);
    return std::pair(sum(y), aux);
  }))
      .lower(f32({4, 4}))
      .compile();
}

const Case kCases[] = {
    // ---- what a function returns ----
    {"empty_from_scan",
     [] {
       scan([](const Array& c, const Array&) { return std::pair(c, Array()); }, f32({}), f32({3}));
     },
     "[scan] the function returned an empty Array\n  at transform_messages_test.cpp:@"},
    {"empty_from_cond",
     [] {
       cond(f32({}) > 0, [](const Array&) { return Array(); }, [](const Array& x) { return x; },
            f32({3}));
     },
     "[cond] the function returned an empty Array\n  at transform_messages_test.cpp:@"},
    {"empty_from_grad", [] { grad([](const Array&) { return Array(); })(f32({3})); },
     "[array] an empty Array has no type; assign one before it is used\n"
     "  at transform_messages_test.cpp:@"},
    {"empty_from_vmap", [] { vmap([](const Array&) { return Array(); })(f32({3})); },
     "[vmap] the function returned an empty Array\n  at transform_messages_test.cpp:@"},
    {"left_in_scan",
     [] {
       Array left;
       jit([&](const Array& x) {
         scan([&](const Array& c, const Array& v) { return c + (left = v); }, Array(0.0), x);
         return cond(
             sum(x) > 0, [&](const Array&) { return left; }, [](const Array& c) { return sum(c); },
             x);
       }).lower(f32({3}));
     },
     "[array] f32[] belongs to the trace of scan, which is over; return it from that function to "
     "use it outside\n  at transform_messages_test.cpp:@"},

    // ---- vmap ----
    {"vmap_sizes",
     [] {
       vmap(product)(f32({3, 4}), f32({5, 4}));
     },
     "[vmap] argument '0' has 3 examples on axis 0 of f32[3,4], argument '1' has 5 on axis 0 of "
     "f32[5,4]\n  at transform_messages_test.cpp:@"},
    {"vmap_sizes_in_tree",
     [] {
       vmap([](const Net& n) { return n.w + n.b; }, 1)(Net{f32({2, 3}), f32({2, 4})});
     },
     "[vmap] argument '0/w' has 3 examples on axis 1 of f32[2,3], argument '0/b' has 4 on axis 1 "
     "of f32[2,4]\n  at transform_messages_test.cpp:@"},
    {"vmap_axis_size", [] { vmap([](const Array& x) { return x; }, 0, 0, 7)(f32({3})); },
     "[vmap] argument '0' has 3 examples on axis 0 of f32[3], axis_size is 7\n"
     "  at transform_messages_test.cpp:@"},
    {"vmap_axis",
     [] {
       vmap(product, {0, 2})(f32({3}), f32({3, 4}));
     },
     "[vmap] axis 2 of argument '1' is out of range for f32[3,4]\n"
     "  at transform_messages_test.cpp:@"},
    {"vmap_scalar", [] { vmap(product)(f32({}), f32({3})); },
     "[vmap] axis 0 of argument '0' is out of range for f32[]\n"
     "  at transform_messages_test.cpp:@"},
    {"vmap_no_axis", [] { vmap(product, std::nullopt)(f32({}), f32({3})); },
     "[vmap] no argument has a batch axis; give axis_size\n  at transform_messages_test.cpp:@"},
    {"vmap_list_of_axes", [] { vmap(product, {0})(f32({3}), f32({3})); },
     "[vmap] expected an entry of the axes for argument '1', got a list of 1\n"
     "  at transform_messages_test.cpp:@"},
    {"vmap_list_too_long",
     [] {
       vmap([](const Array& x) { return x; }, {0, 1})(f32({3, 4}));
     },
     "[vmap] the list of 2 axes is longer than that of 1 argument\n"
     "  at transform_messages_test.cpp:@"},
    {"vmap_out_list_too_long",
     [] {
       vmap([](const Array& x) { return std::pair(x, x); }, 0, {0, 0, 0})(f32({3}));
     },
     "[vmap] the list of 3 axes is longer than that of 2 outputs\n"
     "  at transform_messages_test.cpp:@"},
    {"vmap_path_misspelt",
     [] {
       vmap([](const Net& n) { return n.w; },
            TreeAxes{{"", 0}, {"bb", std::nullopt}})(Net{f32({3}), f32({3})});
     },
     "[vmap] an axis is given for 'bb', where no argument has anything; did you mean 'b'?\n"
     "  at transform_messages_test.cpp:@"},
    {"vmap_path_of_an_argument",
     [] {
       vmap([](const Net& n, const Array& x) { return n.w * x; },
            {TreeAxes{{"w", 0}, {"b", 0}}, TreeAxes{{"", 0}, {"w", 0}}})(
           Net{f32({3}), f32({3})}, f32({3}));
     },
     "[vmap] an axis is given for 'w', where no argument has anything\n"
     "  at transform_messages_test.cpp:@"},
    {"vmap_out_none",
     [] {
       vmap([](const Net& n) { return n; }, 0,
            {{{"w", 0}, {"b", std::nullopt}}})(Net{f32({3}), f32({3})});
     },
     "[vmap] expected a tuple for a list of 1 axes, got output 'w' outside of one\n"
     "  at transform_messages_test.cpp:@"},
    {"vmap_out_differs",
     [] {
       vmap([](const Net& n) { return n; }, 0,
            TreeAxes{{"w", 0}, {"b", std::nullopt}})(Net{f32({3}), f32({3})});
     },
     "[vmap] output 'b' of type f32[] differs between examples, and its out_axes is none\n"
     "  at transform_messages_test.cpp:@"},
    {"vmap_out_axis",
     [] {
       vmap([](const Array& x) { return x; }, 0, 2)(f32({3, 4}));
     },
     "[vmap] axis 2 of the output is out of range for f32[4]\n"
     "  at transform_messages_test.cpp:@"},

    // ---- custom_vjp ----
    {"custom_forward",
     [] {
       custom(
           [](const Net& n) {
             return std::pair(Net{n.w, sum(n.b)}, None{});
           },
           [](None, const Net& ct) { return ct; });
     },
     "[custom_vjp] expected f32[2] at 'b' from the forward rule, as from the function, got f32[]\n"
     "  at transform_messages_test.cpp:@"},
    {"custom_backward_type",
     [] { custom(good_forward(), [](None, const Net& ct) {
            return Net{ct.w, sum(ct.b)};
          }); },
     "[custom_vjp] expected f32[2] from the backward rule for argument '0/b', got f32[]\n"
     "  at transform_messages_test.cpp:@"},
    {"custom_backward_tree",
     [] { custom(good_forward(), [](None, const Net& ct) { return std::tuple(ct, ct.w); }); },
     "[custom_vjp] arguments and what the backward rule returns for them: the structures differ at "
     "the root: a tuple of 1 there, a tuple of 2 here\n  at transform_messages_test.cpp:@"},
    {"custom_captured",
     [] {
       jit(grad([](const Array& w) {
         const auto f = custom_vjp([w](const Array& x) { return x * w; },
                                   [w](const Array& x) { return std::pair(x * w, None{}); },
                                   [](None, const Array& ct) { return ct; });
         return sum(f(ones({3})));
       })).lower(f32({3}));
     },
     "[grad] a function with a rule of its own (custom_vjp, custom_jvp) captures f32[3], by which "
     "it is differentiated; make it an argument, so that the rule tells of it\n"
     "  at transform_messages_test.cpp:@"},
    {"custom_calls_itself",
     [] {
       std::function<Array(const Array&)> f;
       f = custom_vjp([](const Array& x) { return x * 2; },
                      [&](const Array& x) { return std::pair(f(x), None{}); },
                      [](None, const Array& ct) { return ct; });
       jit(f).lower(f32({3}));
     },
     "[custom_vjp] a rule calls the function that it is a rule of; rules are traced at every call, "
     "so that has no end: call the plain function there\n  at transform_messages_test.cpp:@"},

    // ---- custom_jvp ----
    {"rule_result",
     [] { by_rule([](const Net& n, const Net& dn) {
            return std::pair(Net{n.w, n.w}, dn);
          }); },
     "[custom_jvp] expected a tangent f32[3] at 'b' from the rule, as its result is, got f32[2]\n"
     "  at transform_messages_test.cpp:@"},
    {"rule_result_of_another_type",
     [] {
       by_rule([](const Net& n, const Net& dn) {
         return std::pair(Net{n.w, n.w}, Net{dn.w, dn.w});
       });
     },
     "[custom_jvp] expected f32[2] at 'b' from the rule, as from the function, got f32[3]\n"
     "  at transform_messages_test.cpp:@"},
    {"rule_tangent_dtype",
     [] {
       by_rule([](const Net& n, const Net& dn) {
         return std::pair(n, Net{dn.w, astype(dn.b, DType::kBF16)});
       });
     },
     "[custom_jvp] expected a tangent f32[2] at 'b' from the rule, as its result is, got bf16[2]\n"
     "  at transform_messages_test.cpp:@"},
    {"rule_tangent_tree",
     [] {
       const auto f = custom_jvp([](const Array& x) { return std::vector{x}; },
                                 [](const auto& primals, const auto&) {
                                   const std::vector<Array> y = {std::get<0>(primals)};
                                   return std::pair(y, std::vector<Array>());
                                 });
       jit(f).lower(f32({3}));
     },
     "[custom_jvp] the rule's result and its tangent: the structures differ at the root: a list of 1 "
     "there, a list of 0 here\n  at transform_messages_test.cpp:@"},
    {"rule_not_linear",
     [] {
       by_rule([](const Net& n, const Net& dn) { return std::pair(n, Net{dn.w * dn.w, dn.b}); });
     },
     "[custom_jvp] the function is not linear: its derivative depends on the argument f32[3] "
     "itself\n  at transform_messages_test.cpp:@"},
    {"rule_not_linear_by_a_mask",
     [] {
       by_rule([](const Net& n, const Net& dn) {
         return std::pair(n, Net{where(dn.w * n.w > 0, dn.w, 0), dn.b});
       });
     },
     "[custom_jvp] the function is not linear: its derivative depends on bool[3], the result of "
     "gt at transform_messages_test.cpp:@\n  at transform_messages_test.cpp:@"},
    {"rule_result_of_tangents",
     [] {
       by_rule([](const Net& n, const Net& dn) { return std::pair(Net{n.w + dn.w, n.b}, dn); });
     },
     "[custom_jvp] expected a result at 'w' that does not depend on the tangents; only its tangent may\n"
     "  at transform_messages_test.cpp:@"},

    // ---- linear functions ----
    {"linearize_tangent",
     [] {
       linearize([](const Net& n) { return n; }, Net{ones({3}), ones({2})})
           .second(Net{ones({3}), ones({3})});
     },
     "[linearize] expected a tangent f32[2] for primal '0/b', got f32[3]\n  at transform_messages_test.cpp:@"},
    {"transpose_not_linear",
     [] { linear_transpose([](const Array& x) { return sin(x * 2); }, ones({3})); },
     "[linear_transpose] the function is not linear: its derivative depends on f32[3], the result of "
     "mul at transform_messages_test.cpp:@"},
    {"transpose_cotangent",
     [] { linear_transpose([](const Array& x) { return x * 2; }, ones({3}))(ones({2})); },
     "[linear_transpose] expected a cotangent f32[3] for output, got f32[2]\n"
     "  at transform_messages_test.cpp:@"},
    {"transpose_int", [] { linear_transpose([](const Array& x) { return x * 2; }, i32({3})); },
     "[linear_transpose] expected a float as argument '0', got i32[3]"},
    {"jacrev_int", [] { jacrev([](const Array& x) { return x > 0; })(ones({3})); },
     "[jacrev] expected a float as result, got bool[3]"},
    {"jacfwd_int", [] { jacfwd([](const Array& x) { return x * 2; })(i32({3})); },
     "[jacfwd] expected a float as argument, got i32[3]"},

    // ---- gradients ----
    {"grad_int_leaf",
     [] {
       grad([](const Net& n) { return sum(n.w); })(Net{f32({3}), i32({3})});
     },
     "[grad] expected a float as argument '0/b', got i32[3]; leave it out (grad_by_path, argnums) "
     "or set allow_int, which gives it zeros\n  at transform_messages_test.cpp:@"},
    {"grad_by_path",
     [] {
       grad_by_path({"v"}, [](const Net& n) { return sum(n.w); })(Net{f32({3}), f32({3})});
     },
     "[grad_by_path] no leaf is at 'v'; did you mean 'w'?\n"
     "  at transform_messages_test.cpp:@"},
    {"vjp_cotangent",
     [] {
       const auto [y, pullback] = vjp([](const Net& n) { return n; }, Net{f32({3}), f32({2})});
       pullback(Net{f32({3}), f32({3})});
     },
     "[vjp] expected a cotangent f32[2] for output 'b', got f32[3]\n"
     "  at transform_messages_test.cpp:@"},
    {"jvp_tangent",
     [] {
       const Net net{f32({3}), f32({2})};
       jvp([](const Net& n) { return n; }, std::tuple(net), std::tuple(Net{f32({3}), i32({2})}));
     },
     "[jvp] expected a tangent f32[2] for primal '0/b', got i32[2]\n"
     "  at transform_messages_test.cpp:@"},
    {"jvp_structure",
     [] {
       using List = std::vector<Array>;
       jvp([](const List& x) { return x[0]; }, std::tuple(List{f32({2})}),
           std::tuple(List{f32({2}), f32({2})}));
     },
     "[jvp] primals and tangents: the structures differ at '0': a list of 1 there, a list of 2 "
     "here\n"
     "  at transform_messages_test.cpp:@"},

    // ---- policies ----
    {"policy_without_a_function", [] { custom_policy("mine", nullptr); },
     "[custom_policy] expected a function that decides, got none for 'mine'\n  at transform_messages_test.cpp:@"},
    {"policy_misspelt", [] { policy(save_only_these_names({"hiden"})); },
     "[checkpoint] policy save_only_these_names(hiden) asks for the name 'hiden', which no value "
     "that is used in its region has; names there: aux, hidden; did you mean 'hidden'?\n"
     "  at transform_messages_test.cpp:@"},
    {"policy_misspelt_exclusion", [] { policy(save_anything_except_these_names({"hiden"})); },
     "[checkpoint] policy save_anything_except_these_names(hiden) asks for the name 'hiden', which "
     "no value that is used in its region has; names there: aux, hidden; did you mean 'hidden'?\n"
     "  at transform_messages_test.cpp:@"},
    {"policy_dropped", [] { policy(save_only_these_names({"dropped"})); },
     "[checkpoint] policy save_only_these_names(dropped) asks for the name 'dropped', which no "
     "value that is used in its region has; names there: aux, hidden\n"
     "  at transform_messages_test.cpp:@"},
    {"policy_no_residual", [] { policy(save_only_these_names({"aux"})); },
     "[checkpoint] policy save_only_these_names(aux) asks for the name 'aux', which has no "
     "effect: nothing that the backward pass reads depends on that value; names it can act on: "
     "hidden\n"
     "  at transform_messages_test.cpp:@"},
    // The gradient of tanh reads its result, which is there anyway.
    {"policy_offloads_what_nothing_reads",
     [] {
       const auto layer = checkpoint(
           [](const Array& x, const Array& w) { return tanh(checkpoint_name(matmul(x, w), "a")); },
           save_and_offload_only_these_names({}, {"a"}));
       const auto net = [&](const Array& w) {
         Array x = ones({4, 8});
         for (int i = 0; i < 3; ++i) x = layer(x, w);
         return sum(square(x));
       };
       jit(grad(net)).lower(f32({8, 8})).compile();
     },
     "[checkpoint] policy save_and_offload_only_these_names([], [a], pinned_host) offloads what is "
     "named 'a', which has no effect: the backward pass reads no such value, as what is computed from "
     "it is there anyway (a region's result is; so is what a policy around this one keeps)\n"
     "  at transform_messages_test.cpp:@"},
    {"policy_offloads_what_nothing_reads_in_a_scan",
     [] {
       const auto layer = checkpoint(
           [](const Array& x, const Array& w) { return tanh(checkpoint_name(matmul(x, w), "a")); },
           save_and_offload_only_these_names({}, {"a"}));
       const auto net = [&](const Array& w) { return sum(square(scan(layer, ones({4, 8}), w))); };
       jit(grad(net)).lower(f32({3, 8, 8})).compile();
     },
     "[checkpoint] policy save_and_offload_only_these_names([], [a], pinned_host) offloads what is "
     "named 'a', which has no effect: the backward pass reads no such value, as what is computed from "
     "it is there anyway (a region's result is; so is what a policy around this one keeps)\n"
     "  at transform_messages_test.cpp:@"},
    {"policy_misspelt_where_nothing_is_left",  // the gradient reads what goes in, and no more
     [] {
       const auto f = checkpoint([](const Array& x) { return sum(sin(x)); },
                                 save_only_these_names({"nope"}));
       jit(grad(f)).lower(f32({2})).compile();
     },
     "[checkpoint] policy save_only_these_names(nope) asks for the name 'nope', which no value that "
     "is used in its region has; names there: none\n"
     "  at transform_messages_test.cpp:@"},
    {"policy_of_what_a_body_returns",
     [] {
       const auto body = checkpoint(
           [](const Array& c, const Array& w) { return checkpoint_name(tanh(matmul(w, c)), "h"); },
           save_only_these_names({"h"}));
       jit(grad([&](const Array& x) { return sum(scan(body, x[0][0], x)); }))
           .lower(f32({3, 4, 4}))
           .compile();
     },
     "[checkpoint] policy save_only_these_names(h) asks for the name 'h', which has no effect: nothing "
     "that the backward pass reads depends on that value; names it can act on: none; 'h' is what the "
     "body of a loop returns, and the next iteration reads it where it enters: name it there, at the "
     "beginning of the body\n"
     "  at transform_messages_test.cpp:@"},
    {"policy_name_in_scan",
     [] {
       const auto f = checkpoint(
           [](const Array& x) {
             const auto body = checkpoint(
                 [](const Array& c, const Array& w) { return sin(checkpoint_name(c * w, "h")); },
                 nothing_saveable());
             return scan(body, x[0], x);
           },
           save_only_these_names({"h"}));
       jit(grad([&](const Array& x) { return sum(f(x)); })).lower(f32({3, 4})).compile();
     },
     "[checkpoint] policy save_only_these_names(h) asks for the name 'h', which no value that is "
     "used in its region has; names there: none; it is given inside a while loop, a custom_vjp or a "
     "checkpoint with a policy of its own\n"
     "  at transform_messages_test.cpp:@"},
};

class TransformMessages : public ::testing::TestWithParam<Case> {};
TEST_P(TransformMessages, AreExact) {
  EXPECT_EQ(message_of(GetParam()), GetParam().message);
}
INSTANTIATE_TEST_SUITE_P(Table, TransformMessages, ::testing::ValuesIn(kCases),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace stow
