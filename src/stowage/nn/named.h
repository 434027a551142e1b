// Everything about named axes: NamedArray, its functions, loops, stacked layers, shardings by name.
// Not part of <stowage/stowage.h>; include it beside that.
#pragma once

#include "stowage/nn/named/dot.h"
#include "stowage/nn/named/index.h"
#include "stowage/nn/named/named_array.h"
#include "stowage/nn/named/partitioning.h"
#include "stowage/nn/named/reduce.h"
#include "stowage/nn/named/scan.h"
#include "stowage/nn/named/shape.h"
#include "stowage/nn/named/stacked.h"
