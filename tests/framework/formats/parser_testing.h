// Helpers that parse a line by the fast and by the plain path of its parser, and check that both agree.
#ifndef WEIR_TESTS_FRAMEWORK_FORMATS_PARSER_TESTING_H_
#define WEIR_TESTS_FRAMEWORK_FORMATS_PARSER_TESTING_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "framework/base/philox.h"
#include "framework/formats/line_parser.h"
#include "gtest/gtest.h"
#include "tests/framework/formats/guarded_line.h"
#include "trainer/data/example_stream.h"

namespace weir {

inline std::string Bits(const std::vector<float>& values) {
  return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
}

// Returns the result of Parse, by both ways. The bytes around the line in memory must not affect it.
inline absl::Status ParseBothWays(const LineParser& parser, const std::string& line, Example* example) {
  Example plain;
  ExampleStream::Prepare(parser, &plain);
  plain.draw = example->draw;
  const absl::Status status = parser.ParsePlain(Guarded(line, Guard::kInFront), &plain);
  EXPECT_TRUE(status.ok() || status.code() == absl::StatusCode::kInvalidArgument) << status;
  for (const Guard guard : {Guard::kInFront, Guard::kBehind}) {
    EXPECT_EQ(parser.Parse(Guarded(line, guard), example), status) << line;
    if (!status.ok()) continue;
    EXPECT_EQ(Bits(example->floats), Bits(plain.floats)) << line;
    EXPECT_EQ(example->ids, plain.ids) << line;
    EXPECT_EQ(example->counts, plain.counts) << line;
    EXPECT_EQ(Bits(example->weights), Bits(plain.weights)) << line;
  }
  if (!status.ok()) return status;
  size_t ids = 0;
  for (const uint16_t count : example->counts) ids += count;
  EXPECT_EQ(ids, example->ids.size()) << line;
  EXPECT_TRUE(example->weights.empty() || example->weights.size() == ids) << line;
  return status;
}

// Returns how many of 20,000 lines `parse` refuses. Each line differs from a good one in one to three characters out of
// `alphabet`.
template <typename Parse>
int RefusedOfChanged(const std::string& good, std::string_view alphabet, const Parse& parse) {
  int refused = 0;
  for (uint64_t i = 0; i < 20000; ++i) {
    std::string line = good;
    const PhiloxBlock r = Philox(8, i, 0);
    for (uint32_t change = 0; change <= r.v[0] % 3; ++change) {
      const PhiloxBlock c = Philox(8, i, change + 1);
      line[c.v[0] % line.size()] = alphabet[c.v[1] % alphabet.size()];
    }
    refused += !parse(line).ok();
  }
  return refused;
}

}  // namespace weir

#endif  // WEIR_TESTS_FRAMEWORK_FORMATS_PARSER_TESTING_H_
