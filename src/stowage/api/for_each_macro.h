// STOW_FOR_EACH_ARGUMENT(m, a, b, …) expands to m(a) m(b) …, for up to 256 arguments or none.
// Not for use outside of the macros of this folder.
#pragma once

#define STOW_PARENS ()
#define STOW_EXPAND(...) STOW_EXPAND3(STOW_EXPAND3(STOW_EXPAND3(STOW_EXPAND3(__VA_ARGS__))))
#define STOW_EXPAND3(...) STOW_EXPAND2(STOW_EXPAND2(STOW_EXPAND2(STOW_EXPAND2(__VA_ARGS__))))
#define STOW_EXPAND2(...) STOW_EXPAND1(STOW_EXPAND1(STOW_EXPAND1(STOW_EXPAND1(__VA_ARGS__))))
#define STOW_EXPAND1(...) STOW_EXPAND0(STOW_EXPAND0(STOW_EXPAND0(STOW_EXPAND0(__VA_ARGS__))))
#define STOW_EXPAND0(...) __VA_ARGS__
#define STOW_FOR_EACH_ARGUMENT(macro, ...) \
  __VA_OPT__(STOW_EXPAND(STOW_FOR_EACH_STEP(macro, __VA_ARGS__)))
#define STOW_FOR_EACH_STEP(macro, first, ...) \
  macro(first) __VA_OPT__(STOW_FOR_EACH_AGAIN STOW_PARENS(macro, __VA_ARGS__))
#define STOW_FOR_EACH_AGAIN() STOW_FOR_EACH_STEP
