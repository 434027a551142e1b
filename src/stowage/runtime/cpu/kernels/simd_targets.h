// Instruction sets for which the row kernels and the vector math functions are compiled: AVX-512,
// AVX2 and Highway's portable fallback. Include before any header of hwy/.
// Not a choice at run time; Highway takes the best that the machine has.
#pragma once

// SSSE3, SSE4 and AVX3_DL gain too little to be worth their compile time.
#ifndef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL)
#endif
