// Files and jobs for tests of trainer/data.
#ifndef WEIR_TESTS_TRAINER_DATA_DATA_TESTING_H_
#define WEIR_TESTS_TRAINER_DATA_DATA_TESTING_H_

#include <zlib.h>
#include <zstd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/crc32c.h"
#include "framework/formats/line_parser.h"
#include "glog/logging.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "trainer/data/data_spec.h"
#include "trainer/data/lane_reader.h"
#include "trainer/files/data_set.h"

namespace weir {

MATCHER_P2(StatusIs, code, message, "") {
  *result_listener << arg.ToString();
  return arg.code() == code && ::testing::Matches(message)(std::string(arg.message()));
}

// A fresh directory that the destructor removes.
class TempDir {
 public:
  TempDir() {
    std::string pattern = absl::StrCat(::testing::TempDir(), "/data_test_XXXXXX");
    CHECK(mkdtemp(pattern.data()) != nullptr) << pattern;
    path_ = pattern;
  }
  ~TempDir() { std::filesystem::remove_all(path_); }
  const std::string& path() const { return path_; }
  void Write(const std::string& name, std::string_view text) const {
    std::ofstream(path_ + "/" + name, std::ios::binary) << text;
  }

 private:
  std::string path_;
};

inline std::string Gzip(std::string_view text) {
  z_stream z = {};
  CHECK_EQ(deflateInit2(&z, 6, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string out(deflateBound(&z, text.size()) + 64, '\0');
  z.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  z.avail_in = static_cast<uInt>(text.size());
  z.next_out = reinterpret_cast<Bytef*>(out.data());
  z.avail_out = static_cast<uInt>(out.size());
  CHECK_EQ(deflate(&z, Z_FINISH), Z_STREAM_END);
  out.resize(z.total_out);
  deflateEnd(&z);
  return out;
}

// Returns a gzip file of `bytes` bytes with the text `text`, followed by a member without text that is filled with a
// comment.
inline std::string PaddedGzip(std::string_view text, size_t bytes) {
  std::string file = Gzip(text);
  const std::string begin("\x1f\x8b\x08\x10\0\0\0\0\0\xff", 10), end("\0\x03\0\0\0\0\0\0\0\0\0", 11);
  CHECK_GE(bytes, file.size() + begin.size() + end.size());
  file += begin;
  file.resize(bytes - end.size(), '.');
  return file + end;
}

// Compresses with a checksum, like the zstd program.
inline std::string Zstd(std::string_view text, int window_log = 0) {
  ZSTD_CCtx* const context = ZSTD_createCCtx();
  ZSTD_CCtx_setParameter(context, ZSTD_c_checksumFlag, 1);
  ZSTD_CCtx_setParameter(context, ZSTD_c_windowLog, window_log);
  std::string out(ZSTD_compressBound(text.size()) + 64, '\0');
  ZSTD_outBuffer output = {out.data(), out.size(), 0};
  // In two steps, so that the size is not known in front.
  const size_t half = text.size() / 2;
  ZSTD_inBuffer first = {text.data(), half, 0}, second = {text.data() + half, text.size() - half, 0};
  CHECK(!ZSTD_isError(ZSTD_compressStream2(context, &output, &first, ZSTD_e_continue)));
  CHECK_EQ(first.pos, first.size);
  CHECK_EQ(ZSTD_compressStream2(context, &output, &second, ZSTD_e_end), 0u);
  ZSTD_freeCCtx(context);
  out.resize(output.pos);
  return out;
}

// Returns a record as it stands in a TFRecord file.
inline std::string Framed(const std::string& record) {
  const auto masked = [](const char* data, size_t size) {
    const uint32_t crc = Crc32c(data, size);
    const uint32_t mask = (crc >> 15 | crc << 17) + 0xa282ead8u;
    return std::string(reinterpret_cast<const char*>(&mask), sizeof(mask));
  };
  const uint64_t size = record.size();
  std::string length(reinterpret_cast<const char*>(&size), sizeof(size));
  return absl::StrCat(length, masked(length.data(), length.size()), record, masked(record.data(), record.size()));
}

inline v1::Data ParseData(const std::string& text) {
  v1::Data data;
  CHECK(google::protobuf::TextFormat::ParseFromString(text, &data)) << text;
  return data;
}

inline DataSpec MakeSpec(const std::string& data, const TempDir& dir) {
  DataSpec spec;
  spec.config = ParseData(data);
  spec.directory = dir.path();
  return spec;
}

inline DataSet OpenTrain(const DataSpec& spec) {
  absl::StatusOr<DataSet> set = DataSet::Open(spec.config, spec.config.train(), spec.directory, "data.train");
  CHECK(set.ok()) << set.status();
  return *set;
}

// One float slot "x" and nothing else: "1 <value>".
inline constexpr char kOneNumber[] = "multi_slot { slot { name: \"x\" type: FLOAT } } ";

// Returns lines "1 <begin>" up to "1 <end - 1>".
inline std::string NumberLines(int begin, int end) {
  std::string text;
  for (int i = begin; i < end; ++i) absl::StrAppend(&text, "1 ", i, "\n");
  return text;
}

// Values of the first float column in all batches of all streams: [stream][batch][example].
using Numbers = std::vector<std::vector<std::vector<float>>>;

inline absl::StatusOr<Numbers> ReadNumbers(const LaneReaderOptions& options, const DataSet& data, int64_t skip = 0) {
  absl::StatusOr<std::unique_ptr<LaneReader>> reader = LaneReader::Create(data, options);
  if (!reader.ok()) return reader.status();
  if (skip > 0) (*reader)->SkipTo(skip, {});
  Numbers numbers(static_cast<size_t>((*reader)->lanes()));
  std::vector<LaneBatch> batches;
  while (true) {
    const absl::Status status = (*reader)->Next(absl::Seconds(60), &batches);
    if (!status.ok()) return status;
    if ((*reader)->ended()) return numbers;
    for (size_t lane = 0; lane < batches.size(); ++lane) {
      if (batches[lane].ended) continue;
      const Tensor& x = std::get<Tensor>(batches[lane].vars[0]);
      numbers[lane].emplace_back(x.span<float>().begin(), x.span<float>().end());
      CHECK_EQ(x.dim(0), batches[lane].examples);
    }
  }
}

}  // namespace weir

#endif  // WEIR_TESTS_TRAINER_DATA_DATA_TESTING_H_
