#include "stowage/runtime/null/built_in_devices.h"

#include "stowage/base/error.h"

namespace stow {

const DeviceDescriptionPtr& common_cpu() {
  static const DeviceDescriptionPtr cpu = []() -> DeviceDescriptionPtr {
    for (const BuiltInDevice& d : built_in_devices())
      if (d.name == "cpu")
        return std::make_shared<const DeviceDescription>(
            *parse_device_description(d.toml, "cpu.toml"));
    STOW_CHECK(false, "devices/cpu.toml is part of the program");
  }();
  return cpu;
}

}  // namespace stow
