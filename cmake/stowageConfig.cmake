# Finds what libstowage is linked with, and defines the target stowage::stowage.
include(CMakeFindDependencyMacro)
find_dependency(fmt)
find_dependency(OpenMP COMPONENTS CXX)
find_dependency(PkgConfig)
pkg_check_modules(HWY REQUIRED QUIET IMPORTED_TARGET libhwy)
pkg_check_modules(TOMLPP REQUIRED QUIET IMPORTED_TARGET tomlplusplus)
pkg_check_modules(URING REQUIRED QUIET IMPORTED_TARGET liburing)
include(${CMAKE_CURRENT_LIST_DIR}/stowageTargets.cmake)
