// Everything that a program over Stowage includes: arrays, functions, transforms.
// Not the insides; those are included one by one.
#pragma once

#include "stowage/api/array.h"
#include "stowage/api/checkpoint.h"
#include "stowage/api/grad.h"
#include "stowage/api/jit.h"
#include "stowage/api/linalg.h"
#include "stowage/api/math.h"
#include "stowage/api/memory.h"
#include "stowage/api/nested_scan.h"
#include "stowage/api/nn.h"
#include "stowage/api/policies.h"
#include "stowage/api/random.h"
#include "stowage/api/reduce.h"
#include "stowage/api/scan.h"
#include "stowage/api/shaping.h"
#include "stowage/api/tree.h"
#include "stowage/base/bytes.h"
#include "stowage/runtime/device.h"
