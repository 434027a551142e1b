// Instruction sets for which the kernels of products, attention and single ops are compiled:
// AVX-512, AVX2 and Highway's portable fallback. Include before <hwy/foreach_target.h>.
// Not a choice at run time; Highway takes the best that the machine has.
#pragma once

#ifndef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4)
#endif
