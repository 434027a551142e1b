#include "stowage/base/slow_work.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

namespace stow {
namespace {

using ::testing::IsEmpty;
using ::testing::internal::CaptureStderr;
using ::testing::internal::GetCapturedStderr;
using std::chrono::milliseconds;

TEST(SlowWork, IsSaidOnce) {
  CaptureStderr();
  {
    SlowWorkNotice notice(milliseconds(1));
    const ProgressScope outer("planning a program of 7 operations"), inner("something in it");
    std::this_thread::sleep_for(milliseconds(300));
  }
  EXPECT_EQ(GetCapturedStderr(),
            "stowage: planning a program of 7 operations takes longer than 1 ms\n");
}

TEST(SlowWork, QuickWorkIsNotMentioned) {
  CaptureStderr();
  {
    SlowWorkNotice notice(std::chrono::hours(1));
    const ProgressScope scope("planning");
  }
  EXPECT_THAT(GetCapturedStderr(), IsEmpty());
}

TEST(SlowWork, NobodyListensUnlessAsked) {
  CaptureStderr();
  {
    const ProgressScope scope("planning");
    std::this_thread::sleep_for(milliseconds(10));
  }
  EXPECT_THAT(GetCapturedStderr(), IsEmpty());
}

}  // namespace
}  // namespace stow
