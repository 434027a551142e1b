// The instruction sets that kernels are compiled for: AVX-512, AVX2 and Highway's plain fallback.
// Include before <hwy/foreach_target.h>; not a choice at run time, which Highway makes.
#pragma once

#ifndef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4)
#endif
