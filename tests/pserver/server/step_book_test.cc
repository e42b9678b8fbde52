// Booking of the parts of a step: what may be booked, what is known of it, what it takes.

#include "pserver/consistency/step_book.h"

#include <string>
#include <utility>
#include <vector>

#include "framework/base/counters.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

using ::testing::HasSubstr;

class StepBookTest : public ::testing::Test {
 protected:
  static v1::PushRequest Part(int part, int of = 0, int64_t samples = 8) {
    v1::PushRequest request;
    request.set_step(3);
    request.set_part(part);
    if (of > 0) {
      request.set_part_count(of);
      request.set_samples(samples);
    }
    return request;
  }
  static Gradient OfTarget(int target, bool table = false) {
    Gradient gradient;
    gradient.target = target;
    gradient.of_table = table;
    return gradient;
  }
  int64_t repeated() { return counters_.Get("push.repeated", "messages")->value(); }

  Counters counters_;
  StepBook book_{{1000, 1000}, counters_.Get("push.repeated", "messages")};
};

TEST_F(StepBookTest, AStepIsCompleteWhenAllItsPartsAreHereInAnyOrder) {
  book_.Book(0, Part(1, 2), {}, 0);
  EXPECT_FALSE(book_.of(0).Complete());
  book_.Book(0, Part(0), {}, 0);
  EXPECT_TRUE(book_.of(0).Complete());
  EXPECT_EQ(book_.of(0).samples, 8);
  EXPECT_FALSE(book_.AllComplete(3));
  book_.Book(1, Part(0, 1), {}, 0);
  EXPECT_TRUE(book_.AllComplete(3));
  EXPECT_FALSE(book_.AllComplete(4));
  book_.Clear(1);
  EXPECT_FALSE(book_.AllComplete(3));
}

TEST_F(StepBookTest, PartsThatHaveComeAreKnown) {
  EXPECT_FALSE(book_.Has(0, 2));
  book_.Book(0, Part(2), {}, 0);
  EXPECT_TRUE(book_.Has(0, 2));
  EXPECT_FALSE(book_.Has(0, 1));
  EXPECT_FALSE(book_.Has(1, 2));
  book_.Repeat(0, {});
  book_.RepeatOver();
  EXPECT_EQ(repeated(), 2);
}

TEST_F(StepBookTest, WhatALastPartSaysMustFitTheOthers) {
  book_.Book(0, Part(4), {}, 0);
  const auto message = [&](const v1::PushRequest& request) {
    return std::string(book_.CheckBooking(0, request, 0, "part").message());
  };
  EXPECT_THAT(message(Part(2, 3)), HasSubstr("says it is the last of 3 parts, after 5 were numbered"));
  EXPECT_THAT(message(Part(5, 7)), HasSubstr("says it is the last of 7 parts"));
  EXPECT_THAT(message(Part(5, 6, -1)), HasSubstr("-1 samples"));
  EXPECT_EQ(message(Part(5, 6)), "");
  book_.Book(0, Part(5, 6), {}, 0);
  EXPECT_THAT(std::string(book_.CheckPart(0, Part(6), "part").message()), HasSubstr("the step has 6 parts"));
}

TEST_F(StepBookTest, GradientsTakeNoMoreThanTheTrainersRoom) {
  EXPECT_TRUE(book_.CheckBooking(0, Part(0), 1000, "part").ok());
  book_.Book(0, Part(0), {}, 600);
  EXPECT_EQ(book_.CheckBooking(0, Part(1), 401, "part").code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(book_.CheckBooking(0, Part(1), 400, "part").ok());
  EXPECT_TRUE(book_.CheckBooking(1, Part(1), 1000, "part").ok());
}

TEST_F(StepBookTest, StepsAndPartsOutOfRangeAreRefused) {
  v1::PushRequest request = Part(0);
  EXPECT_TRUE(StepBook::CheckRange(request, "part").ok());
  request.set_part(-1);
  EXPECT_FALSE(StepBook::CheckRange(request, "part").ok());
  request.set_part(1 << 20);
  EXPECT_FALSE(StepBook::CheckRange(request, "part").ok());
  request.set_part(0);
  request.set_step(-1);
  EXPECT_FALSE(StepBook::CheckRange(request, "part").ok());
  request.set_step((int64_t{1} << 60) + 1);
  EXPECT_FALSE(StepBook::CheckRange(request, "part").ok());
}

TEST_F(StepBookTest, TableGradientsAreTakenWithoutTheOthersAndInOrder) {
  book_.Book(0, Part(0), {OfTarget(0), OfTarget(1, true), OfTarget(2), OfTarget(3, true)}, 0);
  const std::vector<Gradient> of_tables = book_.TakeTableGradients(0);
  ASSERT_EQ(of_tables.size(), 2u);
  EXPECT_EQ(of_tables[0].target, 1);
  EXPECT_EQ(of_tables[1].target, 3);
  const std::vector<Gradient> rest = book_.TakeGradients(0);
  ASSERT_EQ(rest.size(), 2u);
  EXPECT_EQ(rest[0].target, 0);
  EXPECT_EQ(rest[1].target, 2);
  EXPECT_TRUE(book_.Has(0, 0)) << "what was booked is still known";
}

TEST_F(StepBookTest, GradientsAreNumberedAcrossTrainers) {
  std::vector<Gradient> first(2), second(1);
  book_.NumberArrivals(&first);
  book_.NumberArrivals(&second);
  EXPECT_EQ(first[1].arrival, 1);
  EXPECT_EQ(second[0].arrival, 2);
}

}  // namespace
}  // namespace weir
