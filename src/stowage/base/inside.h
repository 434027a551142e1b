// Opens to the library's own sources what users' `using namespace stow` must not bring: ordinary
// words such as Node, Value, Params, Mesh. Headers that <stowage/stowage.h> includes do not include it
// and write ir::Node; all others may.
#pragma once

namespace stow {

namespace base {}      // Result, Failure, fail
namespace concepts {}  // Scalar, Tree
namespace ir {}        // graphs, schedules and what they are made of
namespace runtime {}   // Place
namespace sharding {}  // Mesh, P

using namespace base;
using namespace concepts;
using namespace ir;
using namespace runtime;
using namespace sharding;

}  // namespace stow
