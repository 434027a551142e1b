// The version of Stowage; the build reads it from here.
// Not a record of changes.
#pragma once

#define STOW_VERSION_MAJOR 0
#define STOW_VERSION_MINOR 1
#define STOW_VERSION_PATCH 0
