// The disk heap: extents, transfers of any alignment and strides, faults, folders, its file's end.
#include "stowage/runtime/disk/disk.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "stowage/base/error.h"
#include "stowage/runtime/move.h"
#include "tests/support/disk_faults.h"
#include "tests/support/file_size_limit.h"
#include "tests/support/message_of.h"
#include "tests/support/temporary_folder.h"

namespace stow {
namespace {

using ::testing::HasSubstr;
using Bytes = std::vector<std::byte>;

constexpr int64_t kBlock = kDiskBlockBytes;

Bytes random_bytes(int64_t n, uint64_t seed) {
  std::mt19937_64 random(seed);
  Bytes bytes(static_cast<size_t>(n));
  for (std::byte& b : bytes) b = static_cast<std::byte>(random());
  return bytes;
}

TEST(DiskExtents, FirstFitAndMerging) {
  DiskExtents extents;
  EXPECT_EQ(extents.allocate(1), 0);
  EXPECT_EQ(extents.allocate(2 * kBlock), kBlock);
  EXPECT_EQ(extents.allocate(kBlock + 1), 3 * kBlock);
  EXPECT_EQ(extents.allocate(5), 5 * kBlock);
  extents.release(kBlock, 2 * kBlock);
  EXPECT_EQ(extents.allocate(kBlock), kBlock);          // the hole's first block
  EXPECT_EQ(extents.allocate(2 * kBlock), 6 * kBlock);  // one block of the hole is too few
  extents.release(3 * kBlock, kBlock + 1);              // next to the rest of the hole
  EXPECT_EQ(extents.allocate(3 * kBlock), 2 * kBlock);
  extents.release(6 * kBlock, 2 * kBlock);
  EXPECT_EQ(extents.end(), 6 * kBlock);
  extents.release(5 * kBlock, 5);
  extents.release(0, 1);
  extents.release(2 * kBlock, 3 * kBlock);
  extents.release(kBlock, kBlock);
  EXPECT_EQ(extents.end(), 0);
}

// With io_uring where the kernel has it and with threads, past the page cache and through it.
struct Mode {
  const char* name;
  bool uring, direct;
};
class DiskModes : public ::testing::TestWithParam<Mode> {
 protected:
  TemporaryFolder folder_;
  DiskOptions options() const {
    return {.folder = folder_.path(), .uring = GetParam().uring, .direct = GetParam().direct};
  }
};
INSTANTIATE_TEST_SUITE_P(, DiskModes,
                         ::testing::Values(Mode{"uring", true, true}, Mode{"threads", false, true},
                                           Mode{"cached", true, false},
                                           Mode{"cached_threads", false, false}),
                         [](const auto& info) { return info.param.name; });

TEST_P(DiskModes, SaysWhatItIs) {
  const Disk disk(options());
  EXPECT_TRUE(GetParam().uring || disk.engine() == DiskEngine::kThreads);
  EXPECT_TRUE(GetParam().direct || !disk.direct());
  EXPECT_EQ(disk.folder(), folder_.path());
  EXPECT_STREQ(disk_engine_name(DiskEngine::kUring), "io_uring");
  EXPECT_STREQ(disk_engine_name(DiskEngine::kThreads), "threads");
}

// Ranges at random places, checked against a copy in memory after each write.
TEST_P(DiskModes, AnyRange) {
  Disk disk(options());
  constexpr int64_t kSize = 3 << 20;
  disk.reserve(kBlock);  // so that the extent is not the file's first
  const int64_t base = disk.reserve(kSize);
  Bytes mirror(kSize), read(kSize);
  disk.read(base, read);
  EXPECT_EQ(read, mirror);  // zeros
  std::mt19937_64 random(1);
  Bytes bounce(static_cast<size_t>(kDiskBounceBytes) + 100);
  for (int i = 0; i < 60; ++i) {
    const int64_t most = i % 3 == 0 ? kSize : i % 3 == 1 ? 3 * kBlock : 20;
    int64_t n = static_cast<int64_t>(random() % static_cast<uint64_t>(most)) + 1;
    int64_t at = static_cast<int64_t>(random() % static_cast<uint64_t>(kSize - n + 1));
    if (i % 4 == 0) {  // whole blocks
      at = at / kBlock * kBlock;
      n = std::min(align_up(n, kBlock), kSize - at);
    }
    // Bounces of any size and alignment, and the disk's own.
    const std::span<std::byte> given =
        i % 2
            ? std::span(bounce).subspan(
                  random() % 100, static_cast<size_t>(2 * kBlock) +
                                      random() % static_cast<size_t>(kDiskBounceBytes - 2 * kBlock))
            : std::span<std::byte>();
    const Bytes data = random_bytes(n + 64, random());
    const auto part = std::span(data).subspan(random() % 64, static_cast<size_t>(n));
    disk.write(base + at, part, given);
    std::copy(part.begin(), part.end(), mirror.begin() + at);
    Bytes some(static_cast<size_t>(n));
    disk.read(base + at, some, given);
    ASSERT_TRUE(std::equal(some.begin(), some.end(), part.begin())) << i;
  }
  disk.read(base, read);
  EXPECT_EQ(read, mirror);
}

// Windows of random shapes and strides, moved there and back; bytes between their elements stay.
TEST_P(DiskModes, AnyWindow) {
  Disk disk(options());
  std::mt19937_64 random(2);
  const auto below = [&](int64_t n) {
    return static_cast<int64_t>(random() % static_cast<uint64_t>(n));
  };
  constexpr DType kTypes[] = {DType::kU8, DType::kBF16, DType::kF32, DType::kI64};
  for (int i = 0; i < 80; ++i) {
    MoveShape shape{kTypes[below(4)], {}, {}, {}};
    const int64_t width = dtype_bytes(shape.dtype);
    const size_t rank = static_cast<size_t>(below(4));
    // Strides on the disk: the axes in any order, with holes of any size, some downwards.
    std::vector<size_t> order(rank);
    for (size_t a = 0; a < rank; ++a) order[a] = a;
    std::shuffle(order.begin(), order.end(), random);
    for (size_t a = 0; a < rank; ++a) shape.dims.push_back(1 + below(i % 5 == 0 ? 150 : 12));
    Dims on_disk(rank), in_memory = contiguous_strides(Shape(shape.dims));
    if (i % 3 == 0)  // the first axis innermost
      for (size_t a = 0; a < rank; ++a)
        in_memory[a] = a == 0 ? 1 : in_memory[a - 1] * shape.dims[a - 1];
    int64_t span = 1, low = 0;
    for (size_t a : order) {
      const int64_t gap = below(3) ? 0 : below(i % 7 == 0 ? 4000 : 5);
      on_disk[a] = span + gap;
      span = on_disk[a] * shape.dims[a];
      if (below(4) == 0) {
        low += on_disk[a] * (shape.dims[a] - 1);
        on_disk[a] = -on_disk[a];
      }
    }
    int64_t n = 1;
    for (int64_t d : shape.dims) n *= d;
    if (span * width > 8 << 20) continue;
    const int64_t size = span * width + 2 * kBlock;
    const int64_t base = disk.reserve(size), first = below(kBlock);
    Bytes mirror = random_bytes(size, random());
    disk.write(base, mirror);
    Bytes from = random_bytes(n * width, random()), to(from.size());
    const Place memory{from.data(), nullptr, 0}, back{to.data(), nullptr, 0};
    const Place window{nullptr, &disk, base + first + low * width};
    const int64_t bounce_bytes = below(2) ? disk_bounce_bytes(n * width) : 2 * kBlock;
    std::unique_ptr<std::byte, void (*)(void*)> bounce(
        static_cast<std::byte*>(
            std::aligned_alloc(static_cast<size_t>(kBlock), static_cast<size_t>(bounce_bytes))),
        std::free);
    const std::span<std::byte> given(bounce.get(), static_cast<size_t>(bounce_bytes));
    shape.from_strides = in_memory;
    shape.to_strides = on_disk;
    move(memory, window, shape, given, *host_target(1), 1);
    Dims index(rank, 0);
    for (int64_t e = 0; e < n; ++e) {
      int64_t d = first + low * width, m = 0;
      for (size_t a = 0; a < rank; ++a) {
        d += index[a] * on_disk[a] * width;
        m += index[a] * in_memory[a] * width;
      }
      std::memcpy(mirror.data() + d, from.data() + m, static_cast<size_t>(width));
      for (size_t a = rank; a-- > 0 && ++index[a] == shape.dims[a];) index[a] = 0;
    }
    Bytes read(mirror.size());
    disk.read(base, read);
    ASSERT_EQ(read, mirror) << i;
    shape.from_strides = on_disk;
    shape.to_strides = in_memory;
    move(window, back, shape, given, *host_target(1), 1);
    ASSERT_EQ(to, from) << i;
    // From one place on the disk to another, in another order.
    const int64_t second = disk.reserve(n * width + 100);
    shape.to_strides = contiguous_strides(Shape(shape.dims));
    const Place elsewhere{nullptr, &disk, second + 24};
    move(window, elsewhere, shape, given, *host_target(1), 1);
    shape.from_strides = shape.to_strides;
    shape.to_strides = in_memory;
    std::fill(to.begin(), to.end(), std::byte{0});
    move(elsewhere, back, shape, given, *host_target(1), 1);
    ASSERT_EQ(to, from) << i;
    disk.release(second, n * width + 100);
    disk.release(base, size);
  }
}

// Rows that are moved one by one end and begin in the same blocks: the second waits for the first.
TEST_P(DiskModes, LongRowsThatShareBlocks) {
  Disk disk(options());
  constexpr int64_t kRows = 60, kRow = 67'000, kStep = 67'500;
  const int64_t base = disk.reserve(kRows * kStep);
  Bytes mirror(kRows * kStep), read(mirror.size());
  for (uint64_t round = 0; round < 5; ++round) {
    const Bytes rows = random_bytes(kRows * kRow, round);
    const DiskAxis axes[] = {{kRows, kStep, kRow}, {kRow, 1, 1}};
    disk.write({base, const_cast<std::byte*>(rows.data()), 1, axes}, {});
    for (int64_t r = 0; r < kRows; ++r)
      std::copy_n(rows.begin() + r * kRow, kRow, mirror.begin() + r * kStep);
    disk.read(base, read);
    ASSERT_EQ(read, mirror) << round;
  }
}

// A value that is repeated along an axis is read as often.
TEST_P(DiskModes, Broadcast) {
  Disk disk(options());
  const int64_t base = disk.reserve(kBlock);
  const int32_t values[] = {1, 2, 3};
  disk.write(base + 4, std::as_bytes(std::span(values)));
  std::vector<int32_t> out(12);
  alignas(kBlock) static std::byte bounce[2 * kBlock];
  move({nullptr, &disk, base + 4}, {reinterpret_cast<std::byte*>(out.data()), nullptr, 0},
       {DType::kI32, {2, 3, 2}, {0, 1, 0}, {6, 2, 1}}, bounce, *host_target(1), 1);
  EXPECT_EQ(out, (std::vector<int32_t>{1, 1, 2, 2, 3, 3, 1, 1, 2, 2, 3, 3}));
}

// Two writers and two readers whose ranges share blocks.
TEST_P(DiskModes, NeighboursInABlockKeepTheirBytes) {
  Disk disk(options());
  constexpr int64_t kEach = 3 * kBlock + 1000;
  const int64_t base = disk.reserve(4 * kEach);
  std::vector<Bytes> data;
  for (uint64_t i = 0; i < 4; ++i) data.push_back(random_bytes(kEach, i));
  for (size_t i = 2; i < 4; ++i) disk.write(base + static_cast<int64_t>(i) * kEach, data[i]);
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  for (size_t i = 0; i < 4; ++i)
    threads.emplace_back([&, i] {
      // 0 and 1 are written over and over, 2 and 3 read; all four are neighbours.
      const int64_t at = base + static_cast<int64_t>((i * 2) % 4 + i / 2) * kEach;
      const size_t which = (i * 2) % 4 + i / 2;
      Bytes read(kEach);
      for (int n = 0; n < 20; ++n) {
        if (which < 2) disk.write(at, data[which]);
        disk.read(at, read);
        wrong += read != data[which];
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST_P(DiskModes, ShortAndInterruptedTransfersGoOn) {
  DiskOptions with = options();
  const auto faults = std::make_shared<testing::RandomFaults>(
      testing::RandomFaults::Rates{.interrupted = 20, .short_transfer = 40, .delay = 5}, 3);
  with.faults = faults;
  Disk disk(with);
  const int64_t base = disk.reserve(1 << 20);
  const Bytes data = random_bytes((1 << 20) - 77, 4);
  Bytes read(data.size());
  for (int i = 0; i < 10; ++i) {
    disk.write(base + 70, data);
    disk.read(base + 70, read);
    ASSERT_EQ(read, data);
  }
  EXPECT_GT(faults->count(), 10);
}

TEST_P(DiskModes, ErrorsNameTheFolderAndTheRange) {
  DiskOptions with = options();
  const auto faults =
      std::make_shared<testing::RandomFaults>(testing::RandomFaults::Rates{.error = 100}, 5);
  with.faults = faults;
  Disk disk(with);
  const int64_t base = disk.reserve(1 << 20);
  const Bytes data = random_bytes(1 << 20, 6);
  EXPECT_EQ(message_of([&] { disk.write(base, std::span(data).first(8192)); }),
            fmt::format("disk folder '{}': writing 8192 bytes at 0 failed after 0 bytes: "
                        "Input/output error",
                        folder_.path()));
  Bytes read(data.size());
  EXPECT_THROW(disk.read(base, read), DiskError);
  faults->stop();
  disk.write(base, data);
  disk.read(base, read);
  EXPECT_EQ(read, data);
  // What is interrupted for ever is an error in the end.
  faults->start({.interrupted = 100});
  EXPECT_THAT(message_of([&] { disk.read(base, read); }),
              ::testing::AnyOf(HasSubstr("Interrupted system call"),
                               HasSubstr("Resource temporarily unavailable")));
  faults->start({.short_transfer = 100, .longest_short = 0});
  EXPECT_THAT(message_of([&] { disk.write(base, data); }), HasSubstr("Input/output error"));
}

TEST(Disk, FoldersThatDoNotServe) {
  TemporaryFolder folder;
  EXPECT_THAT(
      message_of([&] { Disk disk({.folder = folder / "none"}); }),
      HasSubstr(fmt::format("disk folder '{}/none': no file can be made there: No such file "
                            "or directory",
                            folder.path())));
  write_bytes(folder / "file", "x");
  EXPECT_THAT(message_of([&] { Disk disk({.folder = folder / "file"}); }),
              HasSubstr("no file can be made there: Not a directory"));
  EXPECT_THAT(message_of([&] { Disk disk({.folder = "/proc"}); }),
              HasSubstr("disk folder '/proc'"));
}

TEST(Disk, AFullDiskIsSaidWhenSpaceIsReserved) {
  TemporaryFolder folder;
  Disk disk({.folder = folder.path()});
  const int64_t first = disk.reserve(1 << 20);
  {
    const FileSizeLimit limit(2 << 20);
    EXPECT_EQ(message_of([&] { disk.reserve(2 << 20); }),
              fmt::format("disk folder '{}': 2.00 MiB cannot be reserved: File too large",
                          folder.path()));
  }
  EXPECT_THAT(message_of([&] { disk.reserve(int64_t{1} << 50); }), HasSubstr("cannot be reserved"));
  EXPECT_EQ(disk.reserve(1 << 20), first + (1 << 20));  // a refusal takes nothing
}

TEST(Disk, SpaceIsReservedAndGivenBack) {
  TemporaryFolder folder;
  Disk disk({.folder = folder.path()});
  const int64_t before = disk.bytes_on_disk();
  const int64_t base = disk.reserve(8 << 20);
  EXPECT_GE(disk.bytes_on_disk() - before, 8 << 20);
  disk.discard(base + 100, base + (4 << 20) + 100);
  EXPECT_LE(disk.bytes_on_disk() - before, (4 << 20) + 4 * kBlock);
  disk.release(base, 8 << 20);
  EXPECT_LE(disk.bytes_on_disk() - before, 4 * kBlock);
}

// The file has no name, so that nothing is left when the process is killed in the midst of writing.
TEST(Disk, GoneWhenTheProcessIsKilled) {
  TemporaryFolder folder;
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    Disk disk({.folder = folder.path()});
    const int64_t base = disk.reserve(16 << 20);
    const Bytes data(16 << 20, std::byte{7});
    char done = count_entries(folder.path()) == 0 ? 'y' : 'n';
    while (true) {
      disk.write(base, data);
      if (done && ::write(ready[1], &done, 1) != 1) ::_exit(1);
      done = 0;
    }
  }
  ::close(ready[1]);  // so that a child that dies early ends the read
  char nameless = 0;
  ASSERT_EQ(::read(ready[0], &nameless, 1), 1);
  ASSERT_EQ(::kill(child, SIGKILL), 0);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
  EXPECT_EQ(nameless, 'y');
  EXPECT_EQ(count_entries(folder.path()), 0u);
  ::close(ready[0]);
}

}  // namespace
}  // namespace stow
