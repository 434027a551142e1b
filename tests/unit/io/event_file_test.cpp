// Event files: the checksum against published values, records written and read back, damage, full
// disks; and, where the tensorboard package is there, what TensorBoard itself reads.
#include "stowage/io/event_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <map>
#include <sstream>

#include "tests/support/file_size_limit.h"
#include "tests/support/temporary_folder.h"

namespace stow {
namespace {

using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::string fixed(uint64_t value, int bytes) {
  std::string out;
  for (int i = 0; i < bytes; ++i) out += static_cast<char>(value >> (8 * i));
  return out;
}

// The framing as its description has it, apart from the writer.
std::string record(const std::string& data) {
  const auto masked = [](const std::string& bytes) {
    const uint32_t crc = crc32c(as_bytes(bytes));
    return fixed(((crc >> 15) | (crc << 17)) + 0xa282ead8u, 4);
  };
  const std::string length = fixed(data.size(), 8);
  return length + masked(length) + data + masked(data);
}

TEST(EventFile, TheChecksumIsThatOfTheRfc) {
  // RFC 3720, B.4; the last is the check value of the catalogue of CRCs.
  EXPECT_EQ(crc32c(as_bytes(std::string(32, '\0'))), 0x8A9136AAu);
  EXPECT_EQ(crc32c(as_bytes(std::string(32, '\xFF'))), 0x62A8AB43u);
  EXPECT_EQ(crc32c(as_bytes("123456789")), 0xE3069283u);
  EXPECT_EQ(crc32c({}), 0u);
}

TEST(EventFile, WhatIsWrittenReadsBack) {
  const TemporaryFolder folder;
  const double begin_s =
      std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  Result<EventFile> file = EventFile::create(folder / "new/deep", 7);
  ASSERT_TRUE(file.ok()) << file.error();
  const std::vector<std::vector<EventScalar>> written = {
      {{"train/loss", 2.5f}, {"train/lr", 1e-30f}},
      {{"train/loss", kInfinity}},
      {{"", -0.0f}, {std::string(300, 'x'), 3.0f}}};
  const std::vector<int64_t> steps = {7, 128, int64_t{1} << 40};
  for (size_t i = 0; i < written.size(); ++i)
    ASSERT_TRUE(file->write(steps[i], written[i]).ok());
  const Result<std::vector<Event>> events = read_events(file->path());
  ASSERT_TRUE(events.ok()) << events.error();
  ASSERT_EQ(events->size(), 5u);
  EXPECT_EQ((*events)[0].file_version, "brain.Event:2");
  EXPECT_FALSE((*events)[0].is_start);
  EXPECT_TRUE((*events)[1].is_start);
  EXPECT_EQ((*events)[1].step, 7);
  for (size_t i = 0; i < written.size(); ++i) {
    const Event& event = (*events)[i + 2];
    EXPECT_EQ(event.scalars, written[i]);
    EXPECT_EQ(event.step, steps[i]);
    EXPECT_FALSE(event.is_start);
    EXPECT_GE(event.wall_time_s, begin_s);
    EXPECT_LT(event.wall_time_s, begin_s + 600);
  }
}

TEST(EventFile, ARecordHasTheBytesOfTheFormat) {
  const TemporaryFolder folder;
  Result<EventFile> file = EventFile::create(folder.path(), 0);
  const std::string before = read_bytes(file->path());
  ASSERT_TRUE(file->write(300, std::vector<EventScalar>{{"a/b", 1.0f}}).ok());
  const std::string all = read_bytes(file->path());
  const std::string time = all.substr(before.size() + 13, 8);
  // wall_time fixed64, step varint 300, summary of 12 bytes: a value of 10 bytes, its tag and
  // float.
  EXPECT_EQ(all.substr(before.size()),
            record("\x09" + time + "\x10\xac\x02\x2a\x0c\x0a\x0a\x0a\x03" "a/b\x15" +
                   std::string("\0\0\x80\x3f", 4)));
}

TEST(EventFile, ANewFileSortsBehindThoseThatAreThere) {
  const TemporaryFolder folder;
  std::vector<std::string> paths;
  for (int i = 0; i < 12; ++i) paths.push_back(EventFile::create(folder.path(), i)->path());
  EXPECT_TRUE(std::is_sorted(paths.begin(), paths.end()));
  EXPECT_EQ(count_entries(folder.path()), paths.size());
  for (const std::string& path : paths)
    EXPECT_THAT(path, StartsWith(folder / "events.out.tfevents."));
  // What is no event file, or claims a time that cannot be, is left out of account.
  write_bytes(folder / "events.out.tfevents.99999999999999999999.x", "");
  write_bytes(folder / "events.out.tfevents.", "");
  EXPECT_GT(EventFile::create(folder.path(), 0)->path(), paths.back());
}

TEST(EventFile, DamageIsNoticed) {
  const TemporaryFolder folder;
  Result<EventFile> file = EventFile::create(folder.path(), 0);
  ASSERT_TRUE(file->write(1, std::vector<EventScalar>{{"train/loss", 2.0f}}).ok());
  const std::string whole = read_bytes(file->path());
  const size_t n_events = read_events(file->path())->size();
  const std::string path = folder / "damaged";
  for (size_t at = 0; at < whole.size(); ++at) {
    std::string bytes = whole;
    bytes[at] = static_cast<char>(bytes[at] ^ 0x10);
    write_bytes(path, bytes);
    const Result<std::vector<Event>> read = read_events(path);
    ASSERT_FALSE(read.ok()) << at;
    EXPECT_THAT(read.error(), StartsWith(path + ": byte "));
  }
  size_t most = 0;
  for (size_t size = 0; size < whole.size(); ++size) {  // as a killed process leaves it
    write_bytes(path, whole.substr(0, size));
    const Result<std::vector<Event>> read = read_events(path);
    ASSERT_TRUE(read.ok()) << size << ": " << read.error();
    most = std::max(most, read->size());
  }
  EXPECT_EQ(most, n_events - 1);
}

TEST(EventFile, AMalformedEventIsRefused) {
  const TemporaryFolder folder;
  const std::string path = folder / "events";
  const std::string endless(12, '\xff');
  for (const std::string& data :
       {std::string("\x09\x01\x02"), "\x10" + endless, std::string("\x2a\x05\x0a"),
        std::string("\x2a\xff\xff\xff\xff\xff\xff\xff\xff\x7f"),
        std::string("\x2a\x03\x0a\x01\x15"), std::string("\x0b"), std::string("\x00\x01", 2),
        std::string("\x3a\x01\x08"), endless}) {
    write_bytes(path, record("") + record(data));
    const Result<std::vector<Event>> read = read_events(path);
    ASSERT_FALSE(read.ok());
    EXPECT_EQ(read.error(), path + ": byte 16: the record is not an event");
  }
  // Fields of other programs are passed over.
  write_bytes(path, record("\x10\x05\x52\x02hi\x7d" + std::string("\1\2\3\4")));
  const Result<std::vector<Event>> read = read_events(path);
  ASSERT_TRUE(read.ok()) << read.error();
  EXPECT_EQ((*read)[0].step, 5);
}

TEST(EventFile, AFullDiskIsOneLineAndLeavesNoHalfRecord) {
  const TemporaryFolder folder;
  Result<EventFile> file = EventFile::create(folder.path(), 0);
  const std::vector<EventScalar> scalars = {{"train/loss", 1.0f}};
  ASSERT_TRUE(file->write(1, scalars).ok());
  const size_t size = read_bytes(file->path()).size();
  {
    const FileSizeLimit limit(size + 10);
    const Result<void> written = file->write(2, scalars);
    ASSERT_FALSE(written.ok());
    EXPECT_EQ(written.error(), file->path() + ": File too large");
  }
  EXPECT_EQ(read_bytes(file->path()).size(), size);
  ASSERT_TRUE(file->write(3, scalars).ok());
  EXPECT_EQ(read_events(file->path())->back().step, 3);
  {
    const FileSizeLimit limit(10);
    EXPECT_THAT(EventFile::create(folder.path(), 0).error(), EndsWith(": File too large"));
  }
}

TEST(EventFile, AFolderThatCannotBeIsNamed) {
  const TemporaryFolder folder;
  write_bytes(folder / "file", "x");
  EXPECT_EQ(EventFile::create(folder / "file", 0).error(),
            (folder / "file") + ": is there and is not a folder");
  EXPECT_EQ(read_events(folder / "none").error(),
            (folder / "none") + ": No such file or directory");
}

// What a shell command prints; its status in `status`.
std::string output_of(const std::string& command, int& status) {
  std::string text;
  std::FILE* pipe = ::popen(command.c_str(), "r");
  std::array<char, 4096> buffer;
  for (size_t n; (n = std::fread(buffer.data(), 1, buffer.size(), pipe)) > 0;)
    text.append(buffer.data(), n);
  status = ::pclose(pipe);
  return text;
}

TEST(EventFile, TensorBoardReadsTheSame) {
  const TemporaryFolder folder;
  int status = 0;
  output_of("python3 -c 'import tensorboard.backend.event_processing.event_accumulator' 2>&1",
            status);
  if (status != 0) GTEST_SKIP() << "python3 has no tensorboard package here";
  // A run of 6 steps; another that goes on behind step 4, as after a crash.
  std::map<int64_t, float> wanted;
  const auto write = [&](int64_t first, int64_t last, float offset) {
    Result<EventFile> file = EventFile::create(folder / "log", first);
    for (int64_t step = first; step <= last; ++step) {
      wanted[step] = offset + 1.0f / static_cast<float>(step);
      const std::vector<EventScalar> scalars = {{"train/loss", wanted[step]}, {"train/lr", 0.1f}};
      ASSERT_TRUE(file->write(step, scalars).ok());
    }
  };
  write(1, 6, 0);
  write(5, 8, 100);
  write_bytes(folder / "read.py",
              "import sys\n"
              "from tensorboard.backend.event_processing import event_accumulator\n"
              "read = event_accumulator.EventAccumulator(sys.argv[1])\n"
              "read.Reload()\n"
              "print(*read.Tags()['scalars'])\n"
              "for e in read.Scalars('train/loss'): print(e.step, float(e.value).hex())\n");
  const std::string text = output_of(
      "python3 " + (folder / "read.py") + " " + (folder / "log") + " 2>/dev/null", status);
  EXPECT_EQ(status, 0);
  std::istringstream lines(text);
  std::string tags;
  std::getline(lines, tags);
  EXPECT_EQ(tags, "train/loss train/lr");
  std::map<int64_t, float> read;
  for (std::string line; std::getline(lines, line);) {
    const size_t space = line.find(' ');
    EXPECT_TRUE(read.emplace(std::stoll(line), std::strtof(line.c_str() + space, nullptr)).second)
        << line;
  }
  EXPECT_EQ(read, wanted);
}

}  // namespace
}  // namespace stow
