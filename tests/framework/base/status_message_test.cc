#include "framework/base/status_message.h"

#include <climits>
#include <string>

#include "gtest/gtest.h"

namespace weir {
namespace {

v1::Status Message(int code, const std::string& text) {
  v1::Status message;
  message.set_code(code);
  message.set_message(text);
  return message;
}

TEST(StatusMessageTest, EveryStatusComesBackAsItWas) {
  for (int code = 1; code <= static_cast<int>(absl::StatusCode::kUnauthenticated); ++code) {
    const absl::Status status(static_cast<absl::StatusCode>(code), "no such file:\ndata/eval.tsv\n");
    EXPECT_EQ(StatusOf(StatusMessage(status)), status);
  }
}

TEST(StatusMessageTest, OkIsTheEmptyMessage) {
  EXPECT_EQ(StatusMessage(absl::OkStatus()).ByteSizeLong(), 0u);
  EXPECT_TRUE(StatusOf(v1::Status()).ok());
  EXPECT_TRUE(StatusOf(Message(0, "")).ok());
}

TEST(StatusMessageTest, AnErrorWithoutATextStaysAnError) {
  EXPECT_EQ(StatusOf(StatusMessage(absl::DataLossError(""))), absl::DataLossError(""));
}

TEST(StatusMessageTest, CodesThatNobodyKnowsAreUnknown) {
  for (const int code : {INT_MIN, -5, 17, 1000, INT_MAX}) {
    EXPECT_EQ(StatusOf(Message(code, "no")), absl::UnknownError("no")) << code;
    EXPECT_EQ(StatusOf(Message(code, "")), absl::UnknownError("")) << code;
  }
  EXPECT_EQ(StatusOf(Message(0, "no")), absl::UnknownError("no"));
}

TEST(StatusMessageTest, ATextIsCutOnBothSides) {
  EXPECT_EQ(StatusMessage(absl::InternalError("12345"), 3).message(), "123");
  EXPECT_EQ(StatusOf(Message(13, "1234567"), 5), absl::InternalError("12..."));
}

TEST(StatusMessageTest, ATextOfAStrangerIsShownWithoutControlCharacters) {
  EXPECT_EQ(StatusOf(Message(13, "no\n\x1b[2Jdisk"), 100), absl::InternalError("no\\x0a\\x1b[2Jdisk"));
}

}  // namespace
}  // namespace weir
