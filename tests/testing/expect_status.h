// EXPECT_STATUS(expression, wanted, text): expects an absl::Status with code `wanted` (kUnavailable) whose message
// contains `text`.
#ifndef WEIR_TESTS_TESTING_EXPECT_STATUS_H_
#define WEIR_TESTS_TESTING_EXPECT_STATUS_H_

#include <string>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#define EXPECT_STATUS(expression, wanted, text)                              \
  do {                                                                       \
    const absl::Status status_ = (expression);                               \
    EXPECT_EQ(status_.code(), absl::StatusCode::wanted) << status_;          \
    EXPECT_THAT(std::string(status_.message()), ::testing::HasSubstr(text)); \
  } while (false)

#endif  // WEIR_TESTS_TESTING_EXPECT_STATUS_H_
