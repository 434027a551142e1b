// Using-directives that give the library's sources short names such as Node, Value and Mesh.
// Not for headers that <stowage/stowage.h> includes, whose users should not get these names.
#pragma once

namespace stow {

namespace base {}      // Result, Failure, fail
namespace concepts {}  // Scalar, Tree
namespace ir {}        // graphs, schedules and their parts
namespace runtime {}   // Place
namespace sharding {}  // Mesh, P

using namespace base;
using namespace concepts;
using namespace ir;
using namespace runtime;
using namespace sharding;

}  // namespace stow
