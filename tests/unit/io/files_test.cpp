#include "stowage/io/files.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>

#include "stowage/base/text_file.h"
#include "tests/support/file_size_limit.h"
#include "tests/support/temporary_folder.h"

namespace stow {
namespace {

TEST(Files, WritesAndReplacesWhole) {
  const TemporaryFolder folder;
  const std::string path = folder / "a.txt";
  ASSERT_TRUE(write_text_file(path, "one").ok());
  ASSERT_TRUE(write_text_file(path, "two").ok());
  EXPECT_EQ(read_text_file(path).value(), "two");
  EXPECT_EQ(count_entries(folder.path()), 1u);
}

TEST(Files, WhatIsNoRegularFileIsWrittenToAndStays) {
  const TemporaryFolder folder;
  const std::string pipe = folder / "pipe", link = folder / "link", file = folder / "file",
                    loose = folder / "loose";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  ASSERT_TRUE(write_text_file(file, "old").ok());
  ASSERT_EQ(::chmod(file.c_str(), 0640), 0);
  ASSERT_EQ(::symlink("file", link.c_str()), 0);
  ASSERT_EQ(::symlink("made", loose.c_str()), 0);
  struct stat info {};
  const int reader = ::open(pipe.c_str(), O_RDONLY | O_NONBLOCK);
  ASSERT_TRUE(write_text_file(pipe, "through").ok());
  char text[8] = {};
  EXPECT_EQ(::read(reader, text, sizeof text), 7);
  EXPECT_STREQ(text, "through");
  ::close(reader);
  ASSERT_EQ(::lstat(pipe.c_str(), &info), 0);
  EXPECT_TRUE(S_ISFIFO(info.st_mode));

  ASSERT_TRUE(write_text_file(link, "by the link").ok());
  EXPECT_EQ(read_text_file(file).value(), "by the link");
  ASSERT_EQ(::lstat(link.c_str(), &info), 0);
  EXPECT_TRUE(S_ISLNK(info.st_mode));
  ASSERT_EQ(::stat(file.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0640u);

  ASSERT_TRUE(write_text_file(loose, "made").ok());
  EXPECT_EQ(read_text_file(folder / "made").value(), "made");
  EXPECT_TRUE(write_text_file("/dev/null", "nothing").ok());
  ASSERT_EQ(::stat("/dev/null", &info), 0);
  EXPECT_TRUE(S_ISCHR(info.st_mode));
  EXPECT_EQ(write_text_file("/dev/full", "much").error(), "/dev/full: No space left on device");
  EXPECT_EQ(count_entries(folder.path()), 5u);
}

TEST(Files, AFullDiskLeavesTheOldFileAndNoOther) {
  const TemporaryFolder folder;
  const std::string path = folder / "a.txt";
  ASSERT_TRUE(write_text_file(path, "the old content").ok());
  Result<void> written;
  {
    const FileSizeLimit limit(4096);
    written = write_text_file(path, std::string(10000, 'x'));
  }
  ASSERT_FALSE(written.ok());
  EXPECT_EQ(written.error(), path + ": File too large");
  EXPECT_EQ(read_bytes(path), "the old content");
  EXPECT_EQ(count_entries(folder.path()), 1u);
}

TEST(Files, AnUncommittedFileLeavesNothing) {
  const TemporaryFolder folder;
  {
    Result<AtomicFile> file = AtomicFile::create(folder / "a");
    ASSERT_TRUE(file->write(as_bytes("half")).ok());
    const AtomicFile moved = std::move(*file);
    EXPECT_EQ(count_entries(folder.path()), 1u);
  }
  EXPECT_EQ(count_entries(folder.path()), 0u);
}

TEST(Files, TheTemporaryNameIsNobodyElses) {
  const TemporaryFolder folder;
  // Whatever names are there, also those of a killed run.
  const std::string mine = fmt::format("{}.{}-0.tmp", folder / "a", ::getpid());
  for (const std::string& name : {mine, folder / "a.tmp"}) write_bytes(name, "a user's");
  ASSERT_TRUE(write_text_file(folder / "a", "new").ok());
  Result<AtomicFile> file = AtomicFile::create(folder / "a");
  const Result<AtomicFile> beside = AtomicFile::create(folder / "a");
  ASSERT_TRUE(file.ok() && beside.ok());
  EXPECT_EQ(count_entries(folder.path()), 5u);
  ASSERT_TRUE(file->write(as_bytes("newer")).ok());
  ASSERT_TRUE(file->commit().ok());
  EXPECT_EQ(read_bytes(folder / "a"), "newer");
  EXPECT_EQ(read_bytes(mine), "a user's");
  EXPECT_EQ(read_bytes(folder / "a.tmp"), "a user's");
}

TEST(Files, ReadsPipesToTheirEnd) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const std::string path = fmt::format("/dev/fd/{}", ends[0]);
  ASSERT_EQ(::write(ends[1], "through", 7), 7);
  EXPECT_EQ(read_text_file(path, 6).error(), path + ": is more than the 6 B taken");
  ASSERT_EQ(::write(ends[1], "and on", 6), 6);
  ::close(ends[1]);
  EXPECT_EQ(read_text_file(path).value(), "and on");
  ::close(ends[0]);
}

TEST(Files, ErrorsNamePathAndReason) {
  const TemporaryFolder folder;
  const std::string file = folder / "file";
  write_bytes(file, "content");
  const std::string missing = folder / "no/such";
  EXPECT_EQ(read_text_file(missing).error(), missing + ": No such file or directory");
  EXPECT_EQ(read_text_file(folder.path()).error(), folder.path() + ": is a folder, not a file");
  EXPECT_EQ(InputFile::open("/dev/zero").error(), "/dev/zero: is not a regular file");
  EXPECT_EQ(read_text_file(file, 3).error(), file + ": is 7 B, more than the 3 B taken");
  EXPECT_EQ(write_text_file(missing, "x").error(), missing + ": No such file or directory");
  EXPECT_EQ(write_text_file(file + "/x", "x").error(), file + "/x: Not a directory");
  // A folder in the file's place: the rename fails and the temporary file goes.
  ASSERT_TRUE(ensure_directory(folder / "full/inside").ok());
  EXPECT_EQ(write_text_file(folder / "full", "x").error(), folder.path() + "/full: Is a directory");
  EXPECT_EQ(count_entries(folder.path()), 2u);
}

TEST(Files, MakesFoldersOnTheWay) {
  const TemporaryFolder folder;
  EXPECT_TRUE(ensure_directory(folder / "a/b/c").ok());
  EXPECT_TRUE(ensure_directory(folder / "a/b/c/").ok());
  EXPECT_TRUE(ensure_directory(folder / "a/d/").ok());
  EXPECT_TRUE(std::filesystem::is_directory(folder / "a/d"));
  write_bytes(folder / "file", "");
  EXPECT_EQ(ensure_directory(folder / "file").error(),
            folder.path() + "/file: is there and is not a folder");
  EXPECT_EQ(ensure_directory(folder / "file/x").error(),
            folder.path() + "/file/x: Not a directory");
  EXPECT_FALSE(ensure_directory("").ok());
}

TEST(Files, TellsWhereAFolderCouldNotBeWritten) {
  const TemporaryFolder folder;
  EXPECT_TRUE(check_writable_directory(folder.path()).ok());
  EXPECT_TRUE(check_writable_directory(folder / "a/b/c/").ok());
  EXPECT_FALSE(std::filesystem::exists(folder / "a"));
  write_bytes(folder / "file", "");
  EXPECT_EQ(check_writable_directory(folder / "file").error(),
            folder.path() + "/file: is there and is not a folder");
  EXPECT_EQ(check_writable_directory(folder / "file/x/y").error(),
            folder.path() + "/file/x/y: Not a directory");
  EXPECT_FALSE(check_writable_directory("").ok());
  std::filesystem::create_directory(folder / "closed");
  std::filesystem::permissions(folder / "closed", std::filesystem::perms::owner_read);
  const Result<void> closed = check_writable_directory(folder / "closed/x");
  EXPECT_TRUE(::geteuid() == 0 ||  // to whom nothing is closed
              closed.error() == folder.path() + "/closed/x: Permission denied");
}

TEST(Files, AFolderIsHeldByOne) {
  const TemporaryFolder folder;
  {
    Result<DirectoryLock> first = DirectoryLock::lock(folder.path());
    ASSERT_TRUE(first.ok()) << first.error();
    EXPECT_EQ(
        DirectoryLock::lock(folder.path()).error(),
        folder.path() + ": another run is at work in this folder; end it or name another folder");
    const DirectoryLock moved = std::move(*first);
    EXPECT_FALSE(DirectoryLock::lock(folder.path()).ok());
  }
  EXPECT_TRUE(DirectoryLock::lock(folder.path()).ok());
  EXPECT_EQ(DirectoryLock::lock(folder / "none").error(),
            folder.path() + "/none: No such file or directory");
}

TEST(Files, ReadsAtOffsetsAndSaysWhereAFileEnds) {
  const TemporaryFolder folder;
  const std::string path = folder / "a";
  write_bytes(path, "0123456789");
  const Result<InputFile> file = InputFile::open(path);
  ASSERT_TRUE(file.ok());
  EXPECT_EQ(file->size_bytes(), 10);
  std::string out(4, ' ');
  ASSERT_TRUE(file->read(3, std::as_writable_bytes(std::span(out))).ok());
  EXPECT_EQ(out, "3456");
  EXPECT_EQ(file->read(8, std::as_writable_bytes(std::span(out))).error(),
            path + ": ends at byte 10, 2 bytes short");
}

TEST(Files, RemovingWhatIsNotThereIsFine) {
  const TemporaryFolder folder;
  EXPECT_TRUE(remove_file(folder / "none").ok());
  EXPECT_FALSE(remove_file(folder.path()).ok());
}

}  // namespace
}  // namespace stow
