#include "framework/checkpoint/npz.h"

#include <unistd.h>
#include <zlib.h>

#include <cstring>

#include "tests/framework/checkpoint/fixture.h"

namespace weir {
namespace {

using ::testing::HasSubstr;

// The text that `python3 -c` prints; nullopt-like "" when there is no NumPy on this machine.
std::string Python(const std::string& code) {
  FILE* pipe = popen(absl::StrCat("python3 -c \"", code, "\" 2>&1").c_str(), "r");
  std::string out;
  char buffer[256];
  while (pipe != nullptr && fgets(buffer, sizeof(buffer), pipe) != nullptr) out += buffer;
  if (pipe != nullptr) pclose(pipe);
  return out;
}

absl::Status WriteSample(const std::string& path) {
  ASSIGN_OR_RETURN(auto npz, NpzWriter::Create(path));
  RETURN_IF_ERROR(npz->Add("fc_0.w", {2, 3}, absl::Span<const float>({1, 2, 3, 4, 5, -6.5f})));
  RETURN_IF_ERROR(npz->Add("table.ids", {2}, absl::Span<const int64_t>({INT64_MIN, INT64_MAX})));
  RETURN_IF_ERROR(npz->Add("scalar", {}, absl::Span<const float>({0.25f})));
  RETURN_IF_ERROR(npz->Add("none", {0, 4}, absl::Span<const float>()));
  return npz->Finish();
}

// Reads the member at `offset` of a stored archive: name and data, sizes checked against the 64-bit extra field.
std::pair<std::string, std::string> Member(const std::string& zip, size_t* offset) {
  const auto u16 = [&](size_t at) { return static_cast<uint8_t>(zip[at]) | static_cast<uint8_t>(zip[at + 1]) << 8; };
  EXPECT_EQ(zip.substr(*offset, 4), "PK\3\4");
  const size_t name_size = static_cast<size_t>(u16(*offset + 26)), extra_size = static_cast<size_t>(u16(*offset + 28));
  uint64_t size = 0;
  uint32_t crc = 0;
  std::memcpy(&size, zip.data() + *offset + 30 + name_size + 4, 8);
  std::memcpy(&crc, zip.data() + *offset + 14, 4);
  const std::string name = zip.substr(*offset + 30, name_size);
  const std::string data = zip.substr(*offset + 30 + name_size + extra_size, size);
  EXPECT_EQ(crc, crc32(0, reinterpret_cast<const Bytef*>(data.data()), static_cast<uInt>(data.size()))) << name;
  *offset += 30 + name_size + extra_size + size;
  return {name, data};
}

TEST(NpzTest, HeadersAndDataStandWhereTheFormatsSay) {
  const std::string path = FreshDir("npz_bytes") + "/a.npz";
  ASSERT_OK(WriteSample(path));
  const std::string zip = *ReadWholeFile(path);
  size_t at = 0;
  const auto [name, data] = Member(zip, &at);
  EXPECT_EQ(name, "fc_0.w.npy");
  EXPECT_EQ(data.substr(0, 8), std::string("\x93NUMPY\x01\x00", 8));
  EXPECT_THAT(data, HasSubstr("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }"));
  EXPECT_EQ((data.size() - 24) % 64, 0u);
  float last;
  std::memcpy(&last, data.data() + data.size() - 4, 4);
  EXPECT_EQ(last, -6.5f);
  EXPECT_THAT(Member(zip, &at).second, HasSubstr("{'descr': '<i8', 'fortran_order': False, 'shape': (2,), }"));
  EXPECT_THAT(Member(zip, &at).second, HasSubstr("'shape': (), }"));
  EXPECT_THAT(Member(zip, &at).second, HasSubstr("'shape': (0, 4), }"));
  EXPECT_EQ(zip.substr(at, 4), "PK\1\2");
}

TEST(NpzTest, NumPyReadsItBack) {
  if (Python("import numpy; print(1)") != "1\n") GTEST_SKIP() << "no NumPy on this machine";
  const std::string path = FreshDir("npz_numpy") + "/a.npz";
  ASSERT_OK(WriteSample(path));
  EXPECT_EQ(Python(absl::StrCat(
                "import numpy as n; a = n.load('", path,
                "'); print(sorted(a.files), a['fc_0.w'].tolist(), a['table.ids'].tolist(), float(a['scalar']), "
                "a['none'].shape, a['fc_0.w'].dtype, a['table.ids'].dtype)")),
            "['fc_0.w', 'none', 'scalar', 'table.ids'] [[1.0, 2.0, 3.0], [4.0, 5.0, -6.5]] "
            "[-9223372036854775808, 9223372036854775807] 0.25 (0, 4) float32 int64\n");
}

TEST(NpzTest, PythonsZipReaderFindsNoFault) {
  if (Python("import zipfile; print(1)") != "1\n") GTEST_SKIP() << "no Python on this machine";
  const std::string path = FreshDir("npz_zip") + "/a.npz";
  ASSERT_OK(WriteSample(path));
  EXPECT_EQ(Python(absl::StrCat("import zipfile; z = zipfile.ZipFile('", path, "'); print(z.testzip(), z.namelist())")),
            "None ['fc_0.w.npy', 'table.ids.npy', 'scalar.npy', 'none.npy']\n");
}

TEST(NpzTest, NothingHalfWrittenReplacesAGoodFile) {
  const std::string dir = FreshDir("npz_half"), path = dir + "/a.npz";
  ASSERT_OK(WriteSample(path));
  const std::string before = *ReadWholeFile(path);
  {
    auto npz = NpzWriter::Create(path);
    ASSERT_OK(npz.status());
    ASSERT_OK((*npz)->BeginFloats("x", {4}));
    const float one = 1;
    ASSERT_OK((*npz)->Append(&one, 4));
    EXPECT_THAT(std::string((*npz)->End().message()), HasSubstr("its dims need"));
  }
  EXPECT_EQ(*ReadWholeFile(path), before);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(dir), {}), 1);
}

// The sizes of an array are known behind it, and stand before it.
TEST(NpzTest, APipeIsRefusedAndALinkFollowed) {
  const std::string dir = FreshDir("npz_pipe");
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const absl::Status status = NpzWriter::Create(absl::StrCat("/dev/fd/", ends[1])).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("cannot be written at any place"));
  close(ends[0]);
  close(ends[1]);
  std::filesystem::create_symlink("a.npz", dir + "/link.npz");
  ASSERT_OK(WriteSample(dir + "/link.npz"));
  EXPECT_TRUE(std::filesystem::is_symlink(dir + "/link.npz"));
  EXPECT_TRUE(std::filesystem::is_regular_file(dir + "/a.npz"));
}

TEST(NpzTest, TwoArraysOfOneNameAreRefused) {
  auto npz = NpzWriter::Create(FreshDir("npz_twice") + "/a.npz");
  ASSERT_OK(npz.status());
  ASSERT_OK((*npz)->Add("x", {1}, absl::Span<const float>({1})));
  EXPECT_TRUE(absl::IsInvalidArgument((*npz)->Add("x", {1}, absl::Span<const float>({1}))));
}

}  // namespace
}  // namespace weir
