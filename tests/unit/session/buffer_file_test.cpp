// Arrays on disk as tensors of files: written, read back, and kept where the disk fails.
#include "stowage/session/buffer_file.h"

#include <gtest/gtest.h>

#include "stowage/stowage.h"
#include "tests/support/disk_faults.h"
#include "tests/support/temporary_folder.h"

namespace stow {
namespace {

using testing::RandomFaults;

constexpr int64_t kMiB = 1 << 20;

TEST(DiskPrograms, FilesOfArraysOnDisk) {
  TemporaryFolder folder;
  const DevicePtr device =
      Device::virtual_device({64 * kMiB, 64 * kMiB, 64 * kMiB}, 1, {.folder = folder.path()});
  // More than one piece, and no whole number of them.
  const ArrayType type{DType::kF32, {700, 1000}, MemoryKind::kDisk};
  std::vector<float> data(static_cast<size_t>(type.elems()));
  for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<float>(i);
  const DeviceBufferPtr buffer = device->allocate(type.bytes(), type.kind);
  buffer->write(0, std::as_bytes(std::span(data)));
  const TensorBytes tensors[] = {tensor_of("x", type, *buffer)};
  const std::string path = folder / "x.safetensors";
  ASSERT_TRUE(save_safetensors(path, tensors).ok());

  const Result<SafetensorsFile> file = SafetensorsFile::open(path);
  ASSERT_TRUE(file.ok());
  const DeviceBufferPtr loaded = device->allocate(type.bytes(), type.kind);
  ASSERT_TRUE(fill(*loaded, [&](int64_t offset, std::span<std::byte> out) {
                return file->read_part(*file->find("x"), offset, out);
              }).ok());
  std::vector<float> read(data.size());
  loaded->read(0, std::as_writable_bytes(std::span(read)));
  EXPECT_EQ(read, data);

  // A disk that fails while a file is written leaves the old file.
  const auto faults = std::make_shared<RandomFaults>(RandomFaults::Rates{}, 1);
  const DevicePtr failing =
      Device::virtual_device({0, 0, 64 * kMiB}, 1, {.folder = folder.path(), .faults = faults});
  const DeviceBufferPtr lost = failing->allocate(type.bytes(), type.kind);
  faults->start({.error = 100});
  const TensorBytes others[] = {tensor_of("y", type, *lost)};
  EXPECT_THROW((void)save_safetensors(path, others), DiskError);
  EXPECT_TRUE(SafetensorsFile::open(path)->find("x"));
  EXPECT_EQ(count_entries(folder.path()), 1u);
}

}  // namespace
}  // namespace stow
