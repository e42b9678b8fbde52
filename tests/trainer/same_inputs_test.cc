#include "trainer/session/same_inputs.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "framework/graph/op_registry.h"
#include "framework/graph/program_text.h"
#include "glog/logging.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/hand_made_cluster.h"

namespace weir {
namespace {

using ::testing::HasSubstr;

// Returns how CheckSameInputs ends for the trainers of a job, by the inputs of each; all end alike.
absl::Status Check(const std::vector<std::vector<Input>>& inputs) {
  const int trainers = static_cast<int>(inputs.size());
  auto cluster = InProcessCluster::Create(OptionsFor({.trainers = trainers}));
  CHECK(cluster.ok()) << cluster.status();
  std::vector<absl::Status> ends(inputs.size());
  CHECK_EQ((*cluster)->RunTrainers([&](int t) {
    Client& client = (*cluster)->client(t);
    absl::Status joined = client.Join();
    ends[static_cast<size_t>(t)] = CheckSameInputs(&client, t, trainers, inputs[static_cast<size_t>(t)]);
    return joined;
  }),
           absl::OkStatus());
  for (const absl::Status& end : ends) EXPECT_EQ(end, ends[0]);
  return ends[0];
}

std::vector<Input> ProgramOf(const std::string& text) { return {{.name = "program", .text = text}}; }
std::vector<Input> Listing(const std::string& text) { return {{.name = "data.train", .text = text, .is_data = true}}; }

constexpr char kFile[] = "a.tsv: 120 bytes, xxh3 0123456789abcdef\n";

TEST(SameInputsTest, OneTrainerNeedsNoOther) {
  EXPECT_EQ(CheckSameInputs(/*client=*/nullptr, /*trainer=*/0, /*trainers=*/1, ProgramOf("a")), absl::OkStatus());
}

TEST(SameInputsTest, EqualInputsPass) {
  EXPECT_EQ(Check({ProgramOf("a\nb"), ProgramOf("a\nb"), ProgramOf("a\nb")}), absl::OkStatus());
}

TEST(SameInputsTest, TheFirstLineThatDiffersIsNamedWithBothTrainers) {
  EXPECT_EQ(Check({ProgramOf("a\n  b\nc"), ProgramOf("a\n  b\nc"), ProgramOf("a\n  x\ny")}),
            absl::FailedPreconditionError(
                "trainer 2 runs another program than trainer 0: program: line 2 is 'x' here, 'b' there ('here' is "
                "trainer 2). Give all trainers the same --program and --startup_program"));
}

TEST(SameInputsTest, ALineThatIsMissingIsNamed) {
  EXPECT_THAT(std::string(Check({ProgramOf("a\nb"), ProgramOf("a")}).message()),
              HasSubstr("line 2 is missing here, 'b' there"));
}

TEST(SameInputsTest, OfALongLineTheBeginningIsShown) {
  const std::string shown(200, 'x');
  EXPECT_THAT(std::string(Check({ProgramOf("a"), ProgramOf(shown + "yy")}).message()),
              HasSubstr("line 1 is '" + shown + "...' here, 'a' there"));
}

TEST(SameInputsTest, TheFirstInputThatDiffersIsNamed) {
  const auto inputs = [](const std::string& first, const std::string& second) -> std::vector<Input> {
    return {{.name = "program", .text = first}, {.name = "startup program", .text = second}};
  };
  EXPECT_THAT(std::string(Check({inputs("a", "b"), inputs("a", "c")}).message()),
              HasSubstr("startup program: line 1 is 'c' here, 'b' there"));
  EXPECT_THAT(std::string(Check({inputs("a", "b"), inputs("x", "c")}).message()),
              HasSubstr(": program: line 1 is 'x' here, 'a' there"));
}

TEST(SameInputsTest, NamesOfDataFilesMayDiffer) {
  EXPECT_EQ(Check({Listing(kFile), Listing("copy: of a.tsv: 120 bytes, xxh3 0123456789abcdef\n")}), absl::OkStatus());
}

TEST(SameInputsTest, OtherDataIsNamedWithTheFile) {
  EXPECT_EQ(Check({Listing(kFile), Listing("a.tsv: 130 bytes, xxh3 0123456789abcdef\n")}),
            absl::FailedPreconditionError(
                "trainer 1 sees other data than trainer 0: data.train: 'a.tsv' has 130 bytes here, 120 bytes there "
                "('here' is trainer 1). All trainers cut the same files into streams: give every host the same copy"));
}

TEST(SameInputsTest, ProgramsAreComparedAsText) {
  Programs programs;
  programs.main.set_name("main");
  *programs.main.add_blocks()->add_ops() = MakeOp("relu", {{"X", {"x"}}}, {{"Out", {"y"}}});
  programs.startup.set_name("startup");
  const std::vector<Input> inputs = ProgramInputs(programs);
  ASSERT_EQ(inputs.size(), 2);
  EXPECT_EQ(inputs[0].name, "program");
  EXPECT_EQ(inputs[0].text, ProgramText(programs.main));
  EXPECT_EQ(inputs[1].name, "startup program");
  EXPECT_EQ(inputs[1].text, ProgramText(programs.startup));
  EXPECT_FALSE(inputs[0].is_data || inputs[1].is_data);
}

}  // namespace
}  // namespace weir
