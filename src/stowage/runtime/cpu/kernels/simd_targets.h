// Instruction sets for which the kernels are compiled. Include before anything of hwy/.
// Not a choice at run time; Highway takes the best that the machine has.
#pragma once

// One portable, AVX2 and AVX-512: what lies between them is not worth its compile time.
#ifndef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL)
#endif
