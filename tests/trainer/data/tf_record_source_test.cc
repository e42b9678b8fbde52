// TFRecord files: where records begin, and what is said of damaged ones.
#include "trainer/files/tf_record_source.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/crc32c.h"
#include "framework/base/philox.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/trainer/data/data_testing.h"

namespace weir {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;
constexpr absl::StatusCode kDataLoss = absl::StatusCode::kDataLoss;

TEST(Crc32cTest, HasTheKnownValues) {
  std::string bytes;
  EXPECT_EQ(Crc32c("", 0), 0u);
  EXPECT_EQ(Crc32c("123456789", 9), 0xe3069283u);
  EXPECT_EQ(Crc32c(std::string(32, '\0').data(), 32), 0x8a9136aau);
  for (size_t size = 0; size < 100; ++size) {
    EXPECT_EQ(Crc32c(bytes.data(), size), Crc32cPlainly(bytes.data(), size)) << size;
    bytes += static_cast<char>(Philox(1, size, 0).v[0]);
  }
}

// Records of very different sizes, each beginning with its number.
std::string RecordAt(uint64_t i) {
  const PhiloxBlock random = Philox(3, i, 0);
  std::string record = absl::StrCat(i, ":");
  record.resize(random.v[0] % 7 == 0 ? record.size()
                                     : random.v[1] % (random.v[2] % 20 == 0 ? 5000 : 100) + record.size());
  for (size_t at = record.find(':') + 1; at < record.size(); ++at) {
    record[at] = static_cast<char>(Philox(4, i, at).v[0] % 3);  // often bytes that look like lengths
  }
  return record;
}

class TfRecordSourceTest : public ::testing::Test {
 protected:
  DataFile Write(const std::string& bytes, const std::string& name = "x") {
    dir_.Write(name, bytes);
    v1::DataSource source;
    source.add_files(name);
    const absl::StatusOr<DataSet> set =
        DataSet::Open(ParseData("tf_record { feature { name: 'x' } }"), source, dir_.path(), "data.train");
    CHECK(set.ok()) << set.status();
    return set->files()[0];
  }
  // Records of a range. The offset of each must be where it begins.
  static absl::StatusOr<std::vector<std::string>> Read(const DataFile& file, int64_t begin, int64_t end) {
    const auto source = TfRecordSource::Open(file, {.begin = begin, .end = end});
    if (!source.ok()) return source.status();
    std::vector<std::string> records;
    std::string_view record;
    int64_t offset = -1;
    for (int64_t last = -1; (*source)->Next(&record, &offset); last = offset) {
      EXPECT_GT(offset, last);
      EXPECT_TRUE(file.sequential() || (offset >= begin && offset < end)) << offset;
      records.emplace_back(record);
    }
    if (!(*source)->status().ok()) return (*source)->status();
    return records;
  }

  TempDir dir_;
};

TEST_F(TfRecordSourceTest, RangesHaveEveryRecordOnce) {
  std::string bytes;
  std::vector<std::string> records;
  for (uint64_t i = 0; i < 300; ++i) {
    records.push_back(RecordAt(i));
    bytes += Framed(records.back());
  }
  const DataFile plain = Write(bytes), gzip = Write(Gzip(bytes), "x.gz");
  EXPECT_EQ(*Read(plain, 0, plain.bytes), records);
  EXPECT_EQ(*Read(gzip, 0, gzip.bytes), records);
  for (uint64_t cut = 0; cut < 300; ++cut) {
    const int64_t at = Philox(5, cut, 0).v[0] % static_cast<uint32_t>(bytes.size());
    const auto first = Read(plain, 0, at), second = Read(plain, at, plain.bytes);
    ASSERT_TRUE(first.ok() && second.ok()) << first.status() << second.status();
    std::vector<std::string> all = *first;
    all.insert(all.end(), second->begin(), second->end());
    ASSERT_EQ(all, records) << at;
  }
  const auto source = TfRecordSource::Open(plain, {.begin = 0, .end = plain.bytes});
  std::string_view record;
  int64_t offset;
  EXPECT_EQ((*source)->Skip(298), 298);
  ASSERT_TRUE((*source)->Next(&record, &offset));
  EXPECT_EQ(record, records[298]);
  EXPECT_EQ((*source)->Skip(7), 1);
  EXPECT_FALSE((*source)->Next(&record, &offset));
  EXPECT_EQ((*source)->status(), absl::OkStatus());
}

TEST_F(TfRecordSourceTest, DamagedFilesAreErrors) {
  const std::string first = Framed("first"), second = Framed("second record");
  const std::string good = first + second;
  for (size_t size = first.size() + 1; size < good.size(); ++size) {
    const DataFile file = Write(good.substr(0, size));
    EXPECT_THAT(
        Read(file, 0, file.bytes).status(),
        StatusIs(kDataLoss, HasSubstr(absl::StrCat("x, record at byte ", first.size(), ": cut: the file ends in"))));
  }
  for (size_t at = first.size(); at < good.size(); ++at) {
    std::string bytes = good;
    bytes[at] ^= 4;
    const DataFile file = Write(bytes);
    EXPECT_THAT(Read(file, 0, file.bytes).status(),
                StatusIs(kDataLoss,
                         absl::StrCat("x, record at byte ", first.size(), ": damaged: the checksum of its ",
                                      at < first.size() + 12 ? "length" : "bytes", " is wrong; get the file again")));
  }
  EXPECT_THAT(Read(Write("label\tuser\n1\t2\n"), 0, 15).status(),
              StatusIs(kInvalid,
                       "x: is no TFRecord file: it does not begin with a length and its checksum; data.tf_record reads "
                       "TFRecord files, plain or compressed, and other files need their own reader"));
  const std::string huge = Framed(std::string((16 << 20) + 1, 'x'));
  EXPECT_THAT(Read(Write(huge), 0, static_cast<int64_t>(huge.size())).status(),
              StatusIs(kInvalid,
                       "x, record at byte 0: has 16777217 bytes; at most 16777216 are possible; write the file again "
                       "with shorter records"));
}

// A file in parts, as streams read it.
class PartsOfTfRecordTest : public TfRecordSourceTest {
 protected:
  void SetUp() override {
    for (uint64_t i = 0; i < 60; ++i) {
      begins_.push_back(bytes_.size());
      bytes_ += Framed(RecordAt(i));
    }
  }
  // Returns the errors of the sources of `parts` equal ranges of what the file was when it was looked at.
  static std::vector<std::string> Errors(const DataFile& file, int64_t parts) {
    std::vector<std::string> errors;
    for (int64_t part = 0; part < parts; ++part) {
      const absl::Status status = Read(file, file.bytes * part / parts, file.bytes * (part + 1) / parts).status();
      if (!status.ok()) errors.emplace_back(status.message());
    }
    return errors;
  }

  std::string bytes_;
  std::vector<size_t> begins_;
};

TEST_F(PartsOfTfRecordTest, EveryDamagedRecordIsNamedByASource) {
  for (const int64_t parts : {1, 7, 40, 400}) {
    EXPECT_THAT(Errors(Write(bytes_), parts), IsEmpty());
    for (size_t i = 0; i < begins_.size(); ++i) {
      const size_t begin = begins_[i], end = i + 1 < begins_.size() ? begins_[i + 1] : bytes_.size();
      // In the length, its checksum, the bytes, and their checksum.
      for (const size_t at : {begin + 1, begin + 9, begin + 12, end - 1}) {
        std::string damaged = bytes_;
        damaged[at] ^= 16;
        const std::vector<std::string> errors = Errors(Write(damaged), parts);
        const std::string named = i == 0 && at < begin + 12 ? "x: is no TFRecord file"
                                                            : absl::StrCat("x, record at byte ", begin, ": damaged");
        EXPECT_THAT(errors, Not(IsEmpty())) << "record " << i << ", byte " << at << " of " << parts << " parts";
        EXPECT_THAT(errors, Each(StartsWith(named)));
      }
    }
  }
}

TEST_F(PartsOfTfRecordTest, ACutLastRecordIsNamedByASource) {
  for (const int64_t parts : {1, 7, 40, 400}) {
    for (size_t size = begins_.back() + 1; size < bytes_.size(); ++size) {
      const std::vector<std::string> errors = Errors(Write(bytes_.substr(0, size)), parts);
      EXPECT_THAT(errors, ElementsAre(StartsWith(absl::StrCat("x, record at byte ", begins_.back(), ": cut: "))))
          << size << " bytes in " << parts << " parts";
    }
  }
}

TEST_F(PartsOfTfRecordTest, WhatIsAppendedWhileTheFileIsReadIsNotChecked) {
  const DataFile file = Write(bytes_);
  dir_.Write("x", absl::StrCat(bytes_, "half a record"));
  for (const int64_t parts : {1, 7}) EXPECT_THAT(Errors(file, parts), IsEmpty());
}

}  // namespace
}  // namespace weir
