// expect: stowage: the updates must be of the type of the parameters
#include "stowage/stowage.h"
void f(const stow::Array& w, const std::vector<stow::Array>& grads) {
  const auto opt = stow::optim::sgd(0.1);
  opt.update(grads, opt.init(w), w);
}
