#include "trainer/predict/prediction_file.h"

#include <zlib.h>
#include <zstd.h>

#include <charconv>
#include <cmath>
#include <limits>
#include <string_view>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "framework/base/atomic_file.h"
#include "framework/base/crc32c.h"
#include "framework/base/status_macros.h"
#include "framework/formats/csv_fields.h"
#include "glog/logging.h"
#include "proto/tf_example.pb.h"
#include "trainer/files/example_file.h"

namespace weir {
namespace {

constexpr char kPrediction[] = "prediction";
constexpr size_t kWritten = size_t{1} << 18;  // bytes at once, as many as readers read

// Makes a compressed stream of pieces. The stream does not depend on where the pieces are cut.
class Compressor {
 public:
  virtual ~Compressor() = default;
  // Returns what is ready of the stream with one more piece; with `last` all that is left.
  virtual absl::StatusOr<std::string> Add(std::string_view piece, bool last) = 0;
};

class GzipCompressor : public Compressor {
 public:
  // The fastest level: one thread compresses what all trainers have predicted.
  GzipCompressor() { CHECK_EQ(deflateInit2(&z_, 1, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY), Z_OK); }
  ~GzipCompressor() override { deflateEnd(&z_); }
  absl::StatusOr<std::string> Add(std::string_view piece, bool last) override {
    z_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(piece.data()));
    z_.avail_in = static_cast<uInt>(piece.size());
    std::string made;
    int result = Z_OK;
    do {
      const size_t before = made.size();
      made.resize(before + kWritten);
      z_.next_out = reinterpret_cast<Bytef*>(made.data() + before);
      z_.avail_out = static_cast<uInt>(kWritten);
      result = deflate(&z_, last ? Z_FINISH : Z_NO_FLUSH);
      made.resize(made.size() - z_.avail_out);
    } while (result == Z_OK && z_.avail_out == 0);
    if (result != (last ? Z_STREAM_END : Z_OK) && result != Z_BUF_ERROR) {
      return absl::InternalError(absl::StrCat("zlib cannot compress the predictions: error ", result));
    }
    return made;
  }

 private:
  z_stream z_ = {};
};

class ZstdCompressor : public Compressor {
 public:
  ZstdCompressor() : context_(ZSTD_createCCtx()) {
    CHECK(context_ != nullptr);
    ZSTD_CCtx_setParameter(context_, ZSTD_c_checksumFlag, 1);
  }
  ~ZstdCompressor() override { ZSTD_freeCCtx(context_); }
  absl::StatusOr<std::string> Add(std::string_view piece, bool last) override {
    ZSTD_inBuffer in = {piece.data(), piece.size(), 0};
    std::string made;
    size_t left = 0;
    do {
      const size_t before = made.size();
      made.resize(before + ZSTD_CStreamOutSize());
      ZSTD_outBuffer out = {made.data() + before, made.size() - before, 0};
      left = ZSTD_compressStream2(context_, &out, &in, last ? ZSTD_e_end : ZSTD_e_continue);
      made.resize(before + out.pos);
      if (ZSTD_isError(left)) {
        return absl::InternalError(absl::StrCat("zstd cannot compress the predictions: ", ZSTD_getErrorName(left)));
      }
    } while (last ? left != 0 : in.pos < in.size);
    return made;
  }

 private:
  ZSTD_CCtx* const context_;
};

// Bytes on their way to a file.
class Output {
 public:
  // `compressor` may be null.
  Output(std::unique_ptr<AtomicFile> file, std::unique_ptr<Compressor> compressor)
      : file_(std::move(file)), compressor_(std::move(compressor)) {}
  std::string& bytes() { return bytes_; }
  absl::Status WriteIfMany() { return bytes_.size() < kWritten ? absl::OkStatus() : Write(/*last=*/false); }
  absl::Status Finish() {
    RETURN_IF_ERROR(Write(/*last=*/true));
    return file_->Commit();
  }

 private:
  absl::Status Write(bool last) {
    if (compressor_ == nullptr) {
      RETURN_IF_ERROR(file_->Append(bytes_));
    } else {
      ASSIGN_OR_RETURN(const std::string compressed, compressor_->Add(bytes_, last));
      RETURN_IF_ERROR(file_->Append(compressed));
    }
    bytes_.clear();
    return absl::OkStatus();
  }

  std::unique_ptr<AtomicFile> file_;
  std::unique_ptr<Compressor> compressor_;
  std::string bytes_;
};

enum class Packing { kNone, kGzip, kZstd };

// Takes the ending that stands for compression off a name.
Packing TakePacking(std::string_view* path) {
  for (const auto& [ending, packing] :
       {std::pair(".gz", Packing::kGzip), std::pair(".zst", Packing::kZstd), std::pair(".zstd", Packing::kZstd)}) {
    if (!path->ends_with(ending)) continue;
    path->remove_suffix(std::string_view(ending).size());
    return packing;
  }
  return Packing::kNone;
}

std::unique_ptr<Compressor> MakeCompressor(Packing packing) {
  if (packing == Packing::kGzip) return std::make_unique<GzipCompressor>();
  if (packing == Packing::kZstd) return std::make_unique<ZstdCompressor>();
  return nullptr;
}

void AppendPrediction(float value, std::string* text) { absl::StrAppendFormat(text, "%.9g", value); }

// Appends the fewest digits that restore the value to the bit; nothing for a missing one.
void AppendFloat(float value, std::string* text) {
  if (std::isnan(value)) return;
  char digits[32];
  const auto [end, error] = std::to_chars(digits, digits + sizeof(digits), value);
  text->append(digits, end);
}

class TextFile : public PredictionFile {
 public:
  explicit TextFile(Output output) : output_(std::move(output)) {}

  absl::Status Add(absl::Span<const float> prediction, absl::Span<const CarriedValue>) override {
    std::string& text = output_.bytes();
    for (size_t i = 0; i < prediction.size(); ++i) {
      if (i > 0) text += ' ';
      AppendPrediction(prediction[i], &text);
    }
    text += '\n';
    return output_.WriteIfMany();
  }
  absl::Status Finish() override { return output_.Finish(); }

 private:
  Output output_;
};

class CsvFile : public PredictionFile {
 public:
  CsvFile(Output output, std::vector<CarriedColumn> columns, int64_t width)
      : output_(std::move(output)), columns_(std::move(columns)) {
    std::string& text = output_.bytes();
    for (const CarriedColumn& column : columns_) {
      if (IsOneField(column)) {
        AppendCsvField(column.name, &text);
        text += ',';
        continue;
      }
      for (int64_t i = 0; i < column.width; ++i) {
        AppendCsvField(absl::StrCat(column.name, "[", i, "]"), &text);
        text += ',';
      }
    }
    for (int64_t i = 0; i < width; ++i) {
      absl::StrAppend(&text, i > 0 ? "," : "", width == 1 ? kPrediction : absl::StrCat(kPrediction, "_", i));
    }
    text += '\n';
  }

  absl::Status Add(absl::Span<const float> prediction, absl::Span<const CarriedValue> row) override {
    std::string& text = output_.bytes();
    for (size_t c = 0; c < columns_.size(); ++c) {
      AddCarried(columns_[c], row[c], &text);
      text += ',';
    }
    for (size_t i = 0; i < prediction.size(); ++i) {
      if (i > 0) text += ',';
      AppendPrediction(prediction[i], &text);
    }
    text += '\n';
    return output_.WriteIfMany();
  }
  absl::Status Finish() override { return output_.Finish(); }

 private:
  static bool IsOneField(const CarriedColumn& column) { return column.is_field || !column.floats || column.width == 1; }

  void AddCarried(const CarriedColumn& column, const CarriedValue& value, std::string* text) {
    if (value.has_field) {
      AppendCsvField(value.field, text);
      return;
    }
    if (column.floats && !IsOneField(column)) {
      for (size_t i = 0; i < value.floats.size(); ++i) {
        if (i > 0) *text += ',';
        AppendFloat(value.floats[i], text);
      }
      return;
    }
    field_.clear();
    bool missing = true;
    for (size_t i = 0; column.floats && i < value.floats.size(); ++i) {
      if (i > 0) field_ += column.list;
      AppendFloat(value.floats[i], &field_);
      missing = missing && std::isnan(value.floats[i]);
    }
    for (size_t i = 0; !column.floats && i < value.ids.size(); ++i) {
      if (i > 0) field_ += column.list;
      if (column.id_kind == IdKind::kHex) {
        absl::StrAppend(&field_, absl::Hex(value.ids[i], absl::kZeroPad8));
      } else {
        absl::StrAppend(&field_, value.ids[i]);
      }
      if (!value.weights.empty()) {
        field_ += column.weight;
        AppendFloat(value.weights[i], &field_);
      }
      missing = false;
    }
    if (!missing) AppendCsvField(field_, text);
  }

  Output output_;
  const std::vector<CarriedColumn> columns_;
  std::string field_;
};

class TfRecordFile : public PredictionFile {
 public:
  TfRecordFile(Output output, std::vector<CarriedColumn> columns)
      : output_(std::move(output)), columns_(std::move(columns)) {}

  absl::Status Add(absl::Span<const float> prediction, absl::Span<const CarriedValue> row) override {
    message_.Clear();
    for (size_t c = 0; c < columns_.size(); ++c) AddCarried(columns_[c], row[c]);
    AddFloats(kPrediction, prediction);
    message_.SerializeToString(&record_);
    std::string& bytes = output_.bytes();
    const uint64_t size = record_.size();
    AppendChecked({reinterpret_cast<const char*>(&size), sizeof(size)}, &bytes);
    AppendChecked(record_, &bytes);
    return output_.WriteIfMany();
  }
  absl::Status Finish() override { return output_.Finish(); }

 private:
  static void AppendChecked(std::string_view data, std::string* bytes) {
    const uint32_t checksum = MaskedCrc32c(data.data(), data.size());
    bytes->append(data);
    bytes->append(reinterpret_cast<const char*>(&checksum), sizeof(checksum));
  }

  void AddCarried(const CarriedColumn& column, const CarriedValue& value) {
    if (!value.texts.empty()) {
      feature_.Clear();
      for (const std::string& text : value.texts) feature_.mutable_bytes_list()->add_value(text);
      AddFeature(column.name);
    } else if (column.floats) {
      bool missing = true;
      for (const float x : value.floats) missing = missing && std::isnan(x);
      if (!missing) AddFloats(column.name, value.floats);
    } else if (!value.ids.empty()) {
      feature_.Clear();
      for (const int64_t id : value.ids) feature_.mutable_int64_list()->add_value(id);
      AddFeature(column.name);
    }
    if (!value.weights.empty()) AddFloats(absl::StrCat(column.name, ".weights"), value.weights);
  }
  void AddFloats(const std::string& name, absl::Span<const float> values) {
    feature_.Clear();
    for (const float value : values) feature_.mutable_float_list()->add_value(value);
    AddFeature(name);
  }
  void AddFeature(const std::string& name) {
    v1::TfFeatures::Entry* const entry = message_.mutable_features()->add_feature();
    entry->set_key(name);
    feature_.SerializeToString(entry->mutable_value());
  }

  Output output_;
  const std::vector<CarriedColumn> columns_;
  v1::TfExample message_;
  v1::TfFeature feature_;
  std::string record_;
};

class ExamplesFile : public PredictionFile {
 public:
  ExamplesFile(std::unique_ptr<ExampleFileWriter> writer, std::vector<CarriedColumn> columns)
      : writer_(std::move(writer)), columns_(std::move(columns)) {}

  absl::Status Add(absl::Span<const float> prediction, absl::Span<const CarriedValue> row) override {
    example_.floats.clear();
    example_.counts.clear();
    example_.ids.clear();
    example_.weights.clear();
    for (size_t c = 0; c < columns_.size(); ++c) {
      const CarriedValue& value = row[c];
      if (columns_[c].floats) {
        example_.floats.insert(example_.floats.end(), value.floats.begin(), value.floats.end());
        continue;
      }
      example_.counts.push_back(static_cast<uint16_t>(value.ids.size()));
      if (!value.weights.empty()) example_.weights.resize(example_.ids.size(), 1.0f);
      example_.ids.insert(example_.ids.end(), value.ids.begin(), value.ids.end());
      example_.weights.insert(example_.weights.end(), value.weights.begin(), value.weights.end());
      if (!example_.weights.empty()) example_.weights.resize(example_.ids.size(), 1.0f);
    }
    example_.floats.insert(example_.floats.end(), prediction.begin(), prediction.end());
    return writer_->Add(example_);
  }
  absl::Status Finish() override { return writer_->Finish().status(); }

 private:
  const std::unique_ptr<ExampleFileWriter> writer_;
  const std::vector<CarriedColumn> columns_;
  Example example_;
};

absl::StatusOr<std::unique_ptr<PredictionFile>> CreateExamples(const std::string& path,
                                                               std::vector<CarriedColumn> carried, int64_t width) {
  std::vector<Column> columns;
  for (const CarriedColumn& column : carried) {
    CHECK(column.has_values) << column.name << " is a text";
    Column made{.name = column.name, .width = column.width};
    if (!column.floats) {
      made.kind = v1::IDS;
      made.slot_names = {column.name};
      made.id_kinds = {column.id_kind};
    }
    columns.push_back(std::move(made));
  }
  columns.push_back({.name = kPrediction, .width = width});
  ASSIGN_OR_RETURN(std::unique_ptr<ExampleFileWriter> writer, ExampleFileWriter::Create(path, columns, ""));
  return std::make_unique<ExamplesFile>(std::move(writer), std::move(carried));
}

// Returns the ending of a name by which readers expect another format than text, or "".
std::string_view EndingOfAnotherFormat(std::string_view name) {
  for (const std::string_view ending :
       {".parquet", ".json", ".jsonl", ".ndjson", ".npy", ".npz", ".arrow", ".feather", ".orc", ".avro", ".pkl",
        ".pickle",  ".h5",   ".hdf5",  ".xlsx",   ".bz2", ".xz",  ".zip",   ".lz4",     ".7z",  ".tar",  ".tgz"}) {
    if (name.size() > ending.size() && absl::EndsWithIgnoreCase(absl::string_view(name.data(), name.size()),
                                                                absl::string_view(ending.data(), ending.size()))) {
      return ending;
    }
  }
  return "";
}

}  // namespace

absl::StatusOr<PredictionFormat> PredictionFormatOf(const std::string& path, bool carries) {
  std::string_view name = path;
  const Packing packing = TakePacking(&name);
  if (name.ends_with(".csv")) return PredictionFormat::kCsv;
  if (name.ends_with(".tfrecord") || name.ends_with(".tfrecords")) return PredictionFormat::kTfRecord;
  if (name.ends_with(".examples")) {
    if (packing == Packing::kNone) return PredictionFormat::kExamples;
    return absl::InvalidArgumentError(
        absl::StrCat("--output: example files are not compressed, so that they can be "
                     "mapped into memory; '",
                     path, "' must end in .examples"));
  }
  if (const std::string_view ending = EndingOfAnotherFormat(name); !ending.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--output: predictions are not written as ", std::string(ending), "; '", path,
        "' must end in .csv, .tfrecord or "
        ".examples, or in something else for text, a line for each example, such as .txt; a further .gz or .zst "
        "compresses all but .examples. In Python weir.predict returns the predictions as an array"));
  }
  if (!carries) return PredictionFormat::kText;
  return absl::InvalidArgumentError(
      absl::StrCat("--carry needs an --output that ends in .csv, .tfrecord or .examples; '", path,
                   "' would be text, which holds predictions alone"));
}

CarriedValue MissingValue(const CarriedColumn& column) {
  CarriedValue value;
  value.has_field = column.is_field;
  if (column.floats) {
    value.floats.assign(static_cast<size_t>(column.width), std::numeric_limits<float>::quiet_NaN());
  }
  return value;
}

absl::StatusOr<std::unique_ptr<PredictionFile>> PredictionFile::Create(const std::string& path, PredictionFormat format,
                                                                       std::vector<CarriedColumn> columns,
                                                                       int64_t width) {
  if (format == PredictionFormat::kExamples) return CreateExamples(path, std::move(columns), width);
  ASSIGN_OR_RETURN(std::unique_ptr<AtomicFile> file, AtomicFile::Create(path));
  std::string_view name = path;
  Output output(std::move(file), MakeCompressor(TakePacking(&name)));
  if (format == PredictionFormat::kCsv) {
    return std::make_unique<CsvFile>(std::move(output), std::move(columns), width);
  }
  if (format == PredictionFormat::kTfRecord) {
    return std::make_unique<TfRecordFile>(std::move(output), std::move(columns));
  }
  return std::make_unique<TextFile>(std::move(output));
}

}  // namespace weir
