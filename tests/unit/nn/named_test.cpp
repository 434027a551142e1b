// A two-layer MLP with names beside the same one without: the same bits after steps of training.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "stowage/nn/named.h"
#include "stowage/stowage.h"

namespace {

using stow::Array;
using stow::named::Axis;
using stow::named::NamedArray;

const Axis kBatch{"Batch", 16}, kIn{"In", 12}, kHidden{"Hidden", 20}, kClass{"Class", 5};

struct NamedMlp {
  NamedArray w1, b1, w2, b2;
  NamedArray operator()(const NamedArray& x) const {
    const NamedArray h = gelu(dot(x, w1, "In") + b1);
    return dot(h, w2, "Hidden") + b2;
  }
};
STOW_TREE(NamedMlp, w1, b1, w2, b2);

struct PlainMlp {
  Array w1, b1, w2, b2;
  Array operator()(const Array& x) const {
    return stow::matmul(stow::gelu(stow::matmul(x, w1) + b1), w2) + b2;
  }
};
STOW_TREE(PlainMlp, w1, b1, w2, b2);

}  // namespace

namespace stow {
namespace {

TEST(NamedMlp, TrainsToTheBitsOfThePlainOne) {
  const auto keys = random::split<4>(random::key(1));
  PlainMlp plain{random::normal(keys[0], {12, 20}) * 0.2, zeros({20}),
                 random::normal(keys[1], {20, 5}) * 0.2, zeros({5})};
  NamedMlp by_name{named::named(plain.w1, {kIn, kHidden}), named::named(plain.b1, {kHidden}),
                   named::named(plain.w2, {kHidden, kClass}), named::named(plain.b2, {kClass})};
  const Array x = random::normal(keys[2], {16, 12}), y = random::randint(keys[3], {16}, 0, 5);

  const auto optimizer = optim::adamw(1e-2);
  auto plain_step =
      jit([&](const PlainMlp& p, const auto& state, const Array& in, const Array& target) {
        const auto [loss, gradient] = value_and_grad([&](const PlainMlp& q) {
          const Array log_p = log_softmax(q(in));
          return -mean(sum(log_p * one_hot(target, 5), 1));
        })(p);
        const auto [updates, next] = optimizer.update(gradient, state, p);
        return std::tuple(optim::apply_updates(p, updates), next, loss);
      });
  auto named_step = jit(
      [&](const NamedMlp& p, const auto& state, const NamedArray& in, const NamedArray& target) {
        const auto [loss, gradient] = value_and_grad([&](const NamedMlp& q) {
          const NamedArray log_p = log_softmax(q(in), "Class");
          return (-mean(named::sum(log_p * named::one_hot(target, kClass), "Class"))).scalar();
        })(p);
        const auto [updates, next] = optimizer.update(gradient, state, p);
        return std::tuple(optim::apply_updates(p, updates), next, loss);
      });
  auto plain_state = optimizer.init(plain);
  auto named_state = optimizer.init(by_name);
  const NamedArray named_x = named::named(x, {kBatch, kIn}), named_y = named::named(y, {kBatch});
  float first = 0, last = 0;
  for (int i = 0; i < 6; ++i) {
    Array a, b;
    std::tie(plain, plain_state, a) = plain_step(plain, plain_state, x, y);
    std::tie(by_name, named_state, b) = named_step(by_name, named_state, named_x, named_y);
    EXPECT_EQ(a.item<float>(), b.item<float>()) << i;
    (i == 0 ? first : last) = b.item<float>();
  }
  EXPECT_LT(last, first);
  const std::vector<Array> want = tree_leaves(plain), got = tree_leaves(by_name);
  EXPECT_EQ(tree_paths(plain), tree_paths(by_name));
  for (size_t i = 0; i < want.size(); ++i)
    EXPECT_EQ(want[i].to_vector<float>(), got[i].to_vector<float>()) << i;
  EXPECT_EQ(by_name.w1.axes(), (std::vector{kIn, kHidden}));
}

}  // namespace
}  // namespace stow
