#include "trainer/data/example_stream.h"

#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "glog/logging.h"

namespace weir {

ExampleStream::ExampleStream(Options options)
    : options_(std::move(options)), segments_(options_.data->Stream(options_.stream, options_.streams)) {}

void ExampleStream::Prepare(const LineParser& parser, Example* example) {
  example->floats.resize(static_cast<size_t>(parser.floats()));
  example->counts.resize(static_cast<size_t>(parser.slots()));
}

void ExampleStream::Rewind() {
  CHECK(status_.ok()) << status_;
  source_ = nullptr;
  segment_ = 0;
  gzip_lines_ = 0;
}

bool ExampleStream::NextLine(std::string_view* line) {
  while (segment_ < segments_.size()) {
    const Segment& segment = segments_[segment_];
    const DataFile& file = options_.data->files()[static_cast<size_t>(segment.file)];
    if (source_ == nullptr) {
      absl::StatusOr<std::unique_ptr<LineSource>> source = LineSource::Open(file, segment);
      if (!source.ok()) {
        status_ = source.status();
        return false;
      }
      source_ = std::move(source).value();
    }
    while (source_->Next(line, &position_.offset)) {
      if (options_.cancelled != nullptr && (++lines_ & 1023) == 0 && options_.cancelled->load(std::memory_order_relaxed)) {
        status_ = absl::CancelledError("reading was cancelled");
        return false;
      }
      if (file.gzip && gzip_lines_++ % segment.modulus != segment.remainder) continue;
      position_.file = segment.file;
      return true;
    }
    status_ = source_->status();
    if (!status_.ok()) return false;
    source_ = nullptr;
    ++segment_;
  }
  return false;
}

bool ExampleStream::Next(Example* example, InputPosition* position) {
  if (!status_.ok()) return false;
  std::string_view line;
  while (NextLine(&line)) {
    absl::Status parsed = line.empty() ? absl::InvalidArgumentError("the line is empty") : options_.parser->Parse(line, example);
    for (const auto& [place, name] : options_.required) {
      if (parsed.ok() && std::isnan(example->floats[static_cast<size_t>(place)])) {
        parsed = absl::InvalidArgumentError(absl::StrCat("'", name, "' is missing"));
      }
    }
    if (parsed.ok()) {
      *position = position_;
      return true;
    }
    status_ = BadLine(parsed);
    if (!status_.ok()) return false;
  }
  return false;
}

absl::Status ExampleStream::BadLine(const absl::Status& error) {
  if (options_.bad_line == v1::Data::SKIP) {
    if (options_.skipped != nullptr) options_.skipped->fetch_add(1, std::memory_order_relaxed);
    if (options_.on_skipped) options_.on_skipped(position_);
    return absl::OkStatus();
  }
  const DataFile& file = options_.data->files()[static_cast<size_t>(position_.file)];
  const absl::StatusOr<int64_t> number = LineNumber(file, position_.offset);
  const std::string place = number.ok() ? absl::StrCat(file.name, ":", *number)
                                        : absl::StrCat(file.name, ", byte ", position_.offset);
  return absl::InvalidArgumentError(absl::StrCat(place, ": ", std::string(error.message())));
}

}  // namespace weir
