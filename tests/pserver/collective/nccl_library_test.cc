// Loading NCCL: what is found is told with file and version, what is not there or too old is refused by name.

#include "pserver/collective/nccl_library.h"

#include <cstdlib>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/devices/fake_nccl.h"

namespace weir {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string ErrorOf(const std::string& file) {
  const absl::Status status = NcclLibrary::Load(file).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
  return std::string(status.message());
}

TEST(NcclLibraryTest, ALibraryIsToldWithItsFileAndVersion) {
  const NcclLibrary* const library = FakeNccl();
  EXPECT_EQ(library->version(), 22809);
  EXPECT_EQ(library->VersionText(), "2.28.9");
  EXPECT_THAT(library->path(), HasSubstr("tests/testing/devices/libfake_nccl.so"));
  EXPECT_EQ(NcclLibrary::Load(FakeNcclPath()).value(), library);
}

TEST(NcclLibraryTest, TheVariableNamesTheFile) {
  setenv("WEIR_NCCL_LIBRARY", FakeNcclPath().c_str(), 1);
  EXPECT_EQ(NcclLibrary::Load().value(), FakeNccl());
  setenv("WEIR_NCCL_LIBRARY", "/nowhere/libnccl.so.2", 1);
  const absl::Status status = NcclLibrary::Load().status();
  EXPECT_THAT(std::string(status.message()), StartsWith("NCCL is not there: /nowhere/libnccl.so.2: cannot open"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("LD_LIBRARY_PATH names its folder, or WEIR_NCCL_LIBRARY"));
  unsetenv("WEIR_NCCL_LIBRARY");
}

TEST(NcclLibraryTest, AnotherLibraryIsRefusedWithWhatItLacks) {
  const std::string error = ErrorOf("libm.so.6");
  EXPECT_THAT(error, HasSubstr("libm.so.6: it has no function ncclGetVersion"));
}

TEST(NcclLibraryTest, AnOldVersionIsRefusedWithItsNumber) {
  // Other names of the file, since a file that has been loaded is not asked again.
  FakeNcclSet("version", 21703);
  EXPECT_THAT(ErrorOf(FakeNcclPath() + "/../libfake_nccl.so"), HasSubstr("cannot open"));
  const std::string folder = FakeNcclPath().substr(0, FakeNcclPath().rfind('/'));
  EXPECT_THAT(ErrorOf(folder + "/./libfake_nccl.so"), HasSubstr("is NCCL 2.17.3; 2.18.0 or later is needed"));
  FakeNcclSet("version", 2804);
  EXPECT_THAT(ErrorOf(folder + "/./libfake_nccl.so"), HasSubstr("is NCCL 2.8.4;"));
  FakeNcclSet("version", 22809);
  EXPECT_TRUE(NcclLibrary::Load(folder + "/./libfake_nccl.so").ok()) << "a refusal is not remembered";
}

TEST(NcclLibraryTest, ErrorsHaveTheLibrarysWords) {
  const NcclLibrary* const library = FakeNccl();
  EXPECT_TRUE(library->Check(kNcclSuccess, "x", nullptr).ok());
  EXPECT_TRUE(library->Check(kNcclInProgress, "x", nullptr).ok());
  EXPECT_THAT(std::string(library->Check(kNcclRemoteError, "a call", nullptr).message()),
              StartsWith("NCCL: a call: remote process exited"));
  EXPECT_EQ(library->Check(kNcclRemoteError, "x", nullptr).code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(library->Check(kNcclSystemError, "x", nullptr).code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(library->Check(kNcclInvalidUsage, "x", nullptr).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(library->Check(kNcclInternalError, "x", nullptr).code(), absl::StatusCode::kInternal);
}

// The real one, where the machine has it: what works without a driver.
TEST(NcclLibraryTest, TheMachinesOwnIsLoadedIfThereIsOne) {
  const absl::StatusOr<const NcclLibrary*> library = NcclLibrary::Load();
  if (!library.ok()) GTEST_SKIP() << library.status().message();
  EXPECT_GE((*library)->version(), NcclLibrary::kOldest);
  NcclUniqueId id;
  const NcclResult made = (*library)->functions().get_unique_id(&id);
  EXPECT_TRUE((*library)->Check(made, "naming a communicator", nullptr).ok());
  EXPECT_NE(std::string(id.internal, sizeof(id.internal)), std::string(sizeof(id.internal), '\0'));
  EXPECT_THAT(std::string((*library)->functions().error_string(kNcclInvalidUsage)), StartsWith("invalid usage"));
}

}  // namespace
}  // namespace weir
