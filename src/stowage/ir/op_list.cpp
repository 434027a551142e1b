#include "stowage/ir/op_list.h"

namespace stow::ir {

std::string_view op_name(OpKind op) {
  static constexpr std::string_view kNames[] = {
#define STOW_X(kind, name, cls) name,
      STOW_FOR_EACH_OP(STOW_X)
#undef STOW_X
  };
  return kNames[static_cast<size_t>(op)];
}

OpClass op_class(OpKind op) {
  static constexpr OpClass kClasses[] = {
#define STOW_X(kind, name, cls) OpClass::k##cls,
      STOW_FOR_EACH_OP(STOW_X)
#undef STOW_X
  };
  return kClasses[static_cast<size_t>(op)];
}

}  // namespace stow::ir
