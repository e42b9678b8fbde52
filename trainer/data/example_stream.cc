#include "trainer/data/example_stream.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "framework/base/printable.h"
#include "framework/base/stable_hash.h"
#include "framework/base/status_macros.h"
#include "framework/formats/partitions.h"
#include "glog/logging.h"
#include "trainer/files/example_file.h"
#include "trainer/files/line_source.h"
#include "trainer/files/open_records.h"

namespace weir {
namespace {

// Set in the place of a record that is dealt in turn, which no position in a file has.
constexpr uint64_t kDealtPlace = uint64_t{1} << 63;

// Returns a message about a line of data, or about its header.
std::string AboutLine(std::string_view line, const absl::Status& error) {
  const std::string message(error.message());
  const bool text = line.find('\0') == std::string_view::npos;
  return absl::StrCat(Printable(message),
                      text ? ""
                           : "; the line holds zero bytes: data must be text in UTF-8, plain, gzip or zstd, "
                             "and this is binary, or text in UTF-16");
}

absl::Status EmptyLine() { return absl::InvalidArgumentError("the line is empty"); }

// Returns what else a column may be that a header lacks: a directory in the name of the file.
std::string PartitionAdvice(const DataFile& file, const absl::Status& error) {
  for (const HiveDirectory& directory : HiveDirectories(file.name)) {
    const std::string quoted = absl::StrCat("no column '", directory.key, "'");
    if (!absl::StrContains(error.message(), quoted)) continue;
    return absl::StrCat("; the name of the file has a value of it: data.partition { name: \"", directory.key,
                        "\" } in place of the column");
  }
  return "";
}

}  // namespace

ExampleStream::ExampleStream(Options options)
    : options_(std::move(options)),
      data_(options_.data),
      segments_(data_->Stream(options_.stream, options_.streams, options_.scheme)),
      now_({.parser = options_.parser}),
      dealt_({.dealer = RoundDealer(options_.seed, options_.streams)}) {
  for (Begun& begun : ahead_.begun) Prepare(*now_.parser, &begun.example);
  if (options_.seen != nullptr) open_ = options_.seen->All();
}

void ExampleStream::Prepare(const LineParser& parser, Example* example) {
  example->floats.resize(static_cast<size_t>(parser.floats()));
  example->counts.resize(static_cast<size_t>(parser.slots()));
}

void ExampleStream::Rewind(int64_t epoch) {
  CHECK(status_.ok()) << status_;
  now_.source = nullptr;
  segment_ = 0;
  dealt_.records = 0;
  ahead_.has_next = false;
  ++round_;
  epoch_ = epoch;
}

void ExampleStream::BeginWith(int64_t epoch) {
  Rewind(epoch);
  // Lanes that go on in a file read it together.
  round_ = epoch;
}

void ExampleStream::Rewind(int64_t epoch, const DataSet* data, int64_t dealt_before) {
  CHECK_GT(epoch, epoch_);
  Rewind(epoch);
  dealt_.before = dealt_before;
  // Lanes that read files together must have one number for each, whichever files they have read before.
  round_ = epoch;
  data_ = data;
  segments_ = data->Stream(options_.stream, options_.streams, options_.scheme);
  of_files_.clear();
}

absl::StatusOr<std::unique_ptr<LineParser>> ExampleStream::ParserBelowHeader(const DataFile& file,
                                                                             const LineParser& parser,
                                                                             RecordSource* source) const {
  std::string_view header;
  int64_t offset;
  if (!source->Next(&header, &offset)) {
    RETURN_IF_ERROR(source->status());
    return nullptr;
  }
  absl::StatusOr<std::unique_ptr<LineParser>> below = parser.ForHeader(header, options_.may_be_absent);
  if (below.ok()) return below;
  return absl::InvalidArgumentError(absl::StrCat(RecordPlace(file, offset), ": ", AboutLine(header, below.status()),
                                                 PartitionAdvice(file, below.status())));
}

absl::Status ExampleStream::OpenSource(const DataFile& file, const PlaceOfRecord* from, bool alone, Segment* opened) {
  const bool seeks = from != nullptr && file.seekable();
  if (options_.ahead != nullptr && !alone && RecordsAhead::IsFor(file, *opened)) {
    RecordsAhead::Reader reader = {
        .file = opened->file, .lane = options_.lane, .round = round_, .shared = opened->modulus > 1};
    if (seeks) reader.begin = BeginBefore(*from, opened->file);
    opened->begin = reader.begin.at;
    now_.passed = reader.begin.records;
    if (opened->begin > 0 && options_.parser->has_header()) ++reader.begin.records;
    ASSIGN_OR_RETURN(now_.source, options_.ahead->Open(file, reader, FollowingFiles()));
    return absl::OkStatus();
  }
  if (seeks) {
    opened->begin = from->at;
    // JumpTo sees to what lies behind it.
    if (alone && (file.lines() || file.tf_record)) opened->end = from->at + 1;
  }
  now_.passed = seeks ? from->number : 0;
  ASSIGN_OR_RETURN(now_.source, OpenRecords(file, *opened));
  return absl::OkStatus();
}

BlockReader::Begin ExampleStream::BeginBefore(const PlaceOfRecord& place, int64_t file) const {
  BlockReader::Begin last;
  if (options_.begins == nullptr) return last;
  const auto begins = options_.begins->find({epoch_, file});
  if (begins == options_.begins->end()) return last;
  for (const BlockReader::Begin& begin : begins->second) {
    if (begin.at <= place.at) last = begin;
  }
  return last;
}

absl::Status ExampleStream::OpenSegment(const PlaceOfRecord* from, bool alone) {
  now_.direct = nullptr;
  now_.parser = options_.parser;
  now_.before = from == nullptr ? dealt_.records : from->before;
  now_.alone = alone;
  Segment segment = segments_[segment_];
  const DataFile& file = FileOf(segment);
  if (file.examples != nullptr) {
    const auto [own, fresh] = of_files_.try_emplace(segment.file);
    if (fresh) {
      absl::StatusOr<std::unique_ptr<LineParser>> parser = options_.parser->ForExampleRecords(file.examples->columns);
      if (!parser.ok()) {
        return absl::InvalidArgumentError(absl::StrCat(file.name, ": ", parser.status().message()));
      }
      own->second = *std::move(parser);
    }
    now_.parser = own->second.get();
  }
  RETURN_IF_ERROR(OpenSource(file, from, alone, &segment));
  if (file.examples != nullptr && options_.where == nullptr && !options_.forgives_labels &&
      now_.parser->slots() == static_cast<int64_t>(file.examples->slots) &&
      now_.parser->floats() == static_cast<int64_t>(file.examples->floats)) {
    now_.direct = static_cast<const ExampleFileSource*>(now_.source.get());
  }
  if (file.examples == nullptr && (options_.parser->has_header() || options_.parser->has_partitions())) {
    RETURN_IF_ERROR(FindParser(file, segment));
  }
  return now_.source->status();
}

std::vector<RecordsAhead::Following> ExampleStream::FollowingFiles() const {
  std::vector<RecordsAhead::Following> files;
  for (size_t i = segment_ + 1; i < segments_.size() && segments_[i].modulus > 1; ++i) {
    const DataFile& file = data_->files()[static_cast<size_t>(segments_[i].file)];
    if (RecordsAhead::IsFor(file, segments_[i])) files.push_back({.file = segments_[i].file, .of = &file});
  }
  return files;
}

absl::Status ExampleStream::FindParser(const DataFile& file, const Segment& segment) {
  const auto [own, fresh] = of_files_.try_emplace(segment.file);
  const bool header = options_.parser->has_header();
  if (!fresh) {
    if (header && segment.begin == 0) now_.source->Skip(1);
  } else {
    std::unique_ptr<LineParser> of_file;
    if (options_.parser->has_partitions()) {
      ASSIGN_OR_RETURN(of_file, options_.parser->ForFile(file.name));
    }
    const LineParser& parser = of_file != nullptr ? *of_file : *options_.parser;
    if (!header) {
      own->second = std::move(of_file);
    } else if (segment.begin == 0) {
      ASSIGN_OR_RETURN(own->second, ParserBelowHeader(file, parser, now_.source.get()));
    } else {
      ASSIGN_OR_RETURN(const std::unique_ptr<LineSource> start, LineSource::Open(file, ToFirstRecord(file)));
      ASSIGN_OR_RETURN(own->second, ParserBelowHeader(file, parser, start.get()));
    }
  }
  now_.parser = own->second.get();
  return absl::OkStatus();
}

int64_t ExampleStream::PlaceIn(int64_t round, const Segment& segment) {
  if (!segment.drawn) return segment.remainder;
  Dealing::DrawnPlace& drawn = dealt_.drawn[static_cast<size_t>(round & 1)];
  if (drawn.round != round) {
    drawn = {.round = round, .place = dealt_.dealer.PlaceOf(options_.stream, round)};
  }
  return drawn.place;
}

bool ExampleStream::SkipToOwn(const Segment& segment) {
  if (segment.modulus == 1) return true;
  const int64_t number = dealt_.before + dealt_.records;
  const int64_t passed = number % segment.modulus;
  int64_t round = number / segment.modulus;
  int64_t others = PlaceIn(round, segment) - passed;
  if (others < 0) others = segment.modulus - passed + PlaceIn(++round, segment);
  const int64_t skipped = now_.source->Skip(others);
  dealt_.records += skipped;
  now_.passed += skipped;
  if (skipped < others) return false;
  const int64_t place = PlaceIn(round, segment);
  now_.source->Prefetch(segment.modulus - place + PlaceIn(round + 1, segment));
  return true;
}

uint64_t ExampleStream::PlaceOf(const Segment& segment) const {
  return segment.numbered ? kDealtPlace | static_cast<uint64_t>(dealt_.records)
                          : static_cast<uint64_t>(position_.file) << 40 ^ static_cast<uint64_t>(position_.offset);
}

bool ExampleStream::NextLine(std::string_view* line) {
  while (segment_ < segments_.size()) {
    const Segment& segment = segments_[segment_];
    if (now_.source == nullptr) {
      status_ = OpenSegment();
      if (!status_.ok()) return false;
    }
    if (SkipToOwn(segment) && now_.source->Next(line, &position_.offset)) {
      if (options_.cancelled != nullptr && (++lines_ & 1023) == 0 &&
          options_.cancelled->load(std::memory_order_relaxed)) {
        status_ = absl::CancelledError("reading was cancelled");
        return false;
      }
      position_.file = segment.file;
      read_ = {.segment = static_cast<int64_t>(segment_),
               .at = position_.offset,
               .number = now_.passed++,
               .before = now_.before};
      place_ = PlaceOf(segment);
      dealt_.records += segment.dealt;
      return true;
    }
    status_ = now_.source->status();
    if (!status_.ok()) return false;
    now_.source = nullptr;
    ++segment_;
  }
  return false;
}

bool ExampleStream::BeginNext(Begun* begun) {
  std::string_view line;
  if (!NextLine(&line)) return false;
  const DataFile& file = data_->files()[static_cast<size_t>(position_.file)];
  begun->position = position_;
  begun->place = read_;
  begun->parser = now_.parser;
  begun->example.draw = DrawAt(place_);
  begun->parsed = line.empty() && file.lines() ? EmptyLine() : now_.parser->Begin(line, &begun->example);
  // The source may reuse the memory of a line for the next one. The bytes of an example file are not asked for.
  if (file.examples == nullptr) begun->line.assign(line);
  return true;
}

Example* ExampleStream::NextAhead(InputPosition* position) {
  if (!ahead_.has_next) ahead_.has_next = BeginNext(&ahead_.begun[1 - ahead_.current]);
  while (ahead_.has_next) {
    ahead_.current = 1 - ahead_.current;
    Begun& line = ahead_.begun[ahead_.current];
    // An error of the next line waits until this one has been given.
    ahead_.has_next = BeginNext(&ahead_.begun[1 - ahead_.current]);
    if (line.parsed.ok()) line.parsed = line.parser->End(&line.example);
    if (Judge(line.line, line.position, std::move(line.parsed), &line.example)) {
      *position = line.position;
      given_ = line.place;
      line_ = line.line;
      return &line.example;
    }
    if (bad_) return nullptr;
  }
  return nullptr;
}

bool ExampleStream::Next(Example* example, InputPosition* position) {
  if (!status_.ok()) return false;
  if (options_.parser->looks_up()) {
    Example* const next = NextAhead(position);
    if (next == nullptr) return false;
    std::swap(*example, *next);
    Notice(*example);
    return true;
  }
  std::string_view line;
  while (NextLine(&line)) {
    if (Take(line, example)) {
      Notice(*example);
      given_ = read_;
      *position = position_;
      line_ = line;
      return true;
    }
    if (!status_.ok()) return false;
  }
  return false;
}

bool ExampleStream::Next(Example* scratch, RecordPool* pool, Record* record, InputPosition* position) {
  if (!status_.ok()) return false;
  if (options_.parser->looks_up()) {
    const Example* const next = NextAhead(position);
    if (next == nullptr) return false;
    Notice(*next);
    *record = Record(*next, pool);
    return true;
  }
  std::string_view line;
  while (NextLine(&line)) {
    if (MakeRecord(line, scratch, pool, record)) {
      given_ = read_;
      *position = position_;
      line_ = line;
      return true;
    }
    if (!status_.ok()) return false;
  }
  return false;
}

bool ExampleStream::MakeRecord(std::string_view line, Example* scratch, RecordPool* pool, Record* record) {
  const bool direct = now_.direct != nullptr && LabelsAreGood(line);
  if (direct && options_.borrows) {
    *record = Record(const_cast<char*>(line.data()), now_.direct->sizes(), now_.direct->block());
  } else if (direct) {
    *record = Record(line.data(), now_.direct->sizes(), pool);
  } else if (Take(line, scratch)) {
    Notice(*scratch);
    *record = Record(*scratch, pool);
  } else {
    return false;
  }
  if (direct) Notice(line);
  return true;
}

bool ExampleStream::ReadAgain(const PlaceOfRecord& place, bool last, int64_t most, Example* scratch, RecordPool* pool,
                              Record* record) {
  if (!status_.ok()) return false;
  const Segment& segment = segments_[static_cast<size_t>(place.segment)];
  // The others of a file in which one can seek are far from each other, and other lanes do not read the same ones.
  const bool alone = !last && FileOf(segment).seekable();
  if (now_.source == nullptr || static_cast<int64_t>(segment_) != place.segment || now_.alone != alone) {
    segment_ = static_cast<size_t>(place.segment);
    now_.source = nullptr;
    status_ = OpenSegment(&place, alone);
    if (!status_.ok()) return false;
  }
  if (now_.alone && now_.passed <= place.number && now_.source->JumpTo(place.at)) now_.passed = place.number;
  if (now_.passed < place.number) {
    int64_t wanted = place.number - now_.passed;
    if (most < wanted / segment.modulus) wanted = most * segment.modulus;
    const int64_t skipped = now_.source->Skip(wanted);
    now_.passed += skipped;
    if (skipped < wanted) status_ = now_.source->status().ok() ? NotThere(place) : now_.source->status();
    if (!status_.ok() || now_.passed < place.number) return false;
  }
  std::string_view line;
  const bool read = now_.passed == place.number && now_.source->Next(&line, &position_.offset);
  // The output of a command may differ between runs in bytes that belong to no example.
  if (!read || (position_.offset != place.at && FileOf(segment).pipe == nullptr)) {
    status_ = now_.source->status().ok() ? NotThere(place) : now_.source->status();
    return false;
  }
  position_.file = segment.file;
  dealt_.records = place.before + (segment.dealt ? now_.passed : 0);
  given_ = place;
  place_ = PlaceOf(segment);
  ++now_.passed;
  dealt_.records += segment.dealt;
  if (record == nullptr || MakeRecord(line, scratch, pool, record)) return true;
  if (status_.ok()) status_ = NotThere(place);
  return false;
}

absl::Status ExampleStream::NotThere(const PlaceOfRecord& place) const {
  const DataFile& file = FileOf(segments_[static_cast<size_t>(place.segment)]);
  return absl::DataLossError(
      absl::StrCat(file.name, ": the checkpoint says that stream ", options_.stream, " has read an example at ",
                   file.idx != nullptr || file.examples != nullptr ? "number " : "byte ", place.at,
                   ", and there is none; resume from another checkpoint, or start a fresh run without --resume"));
}

void ExampleStream::Notice(const Example& example) {
  if (open_.empty()) return;
  options_.seen->Look(reinterpret_cast<const char*>(example.floats.data()),
                      reinterpret_cast<const char*>(example.counts.data()), &open_);
}

void ExampleStream::Notice(std::string_view record) {
  if (open_.empty()) return;
  const auto view = LookAtExampleRecord(record.data(), static_cast<size_t>(now_.parser->floats()),
                                        static_cast<size_t>(now_.parser->slots()));
  options_.seen->Look(view.floats, view.counts, &open_);
}

bool ExampleStream::LabelsAreGood(std::string_view record) const {
  const char* const floats = LookAtExampleRecord(record.data(), 0, 0).floats;
  const auto at = [&](int64_t place) {
    float value;
    std::memcpy(&value, floats + static_cast<size_t>(place) * sizeof(value), sizeof(value));
    return value;
  };
  for (const auto& [place, name] : options_.required) {
    if (std::isnan(at(place))) return false;
  }
  for (const auto& [place, range] : options_.label_ranges) {
    if (const float label = at(place); !std::isnan(label) && !range.Holds(label)) return false;
  }
  return true;
}

uint64_t ExampleStream::DrawAt(uint64_t place) const {
  return MixId(MixId(MixId(options_.seed) ^ static_cast<uint64_t>(epoch_)) ^ place);
}

bool ExampleStream::Take(std::string_view line, Example* example) {
  const DataFile& file = data_->files()[static_cast<size_t>(position_.file)];
  example->draw = DrawAt(place_);
  return Judge(line, position_, line.empty() && file.lines() ? EmptyLine() : now_.parser->Parse(line, example),
               example);
}

bool ExampleStream::Judge(std::string_view line, const InputPosition& position, absl::Status parsed, Example* example) {
  const DataFile& file = data_->files()[static_cast<size_t>(position.file)];
  if (parsed.ok() && options_.where != nullptr && !options_.where->Keeps(*example)) return false;
  for (const auto& [place, name] : options_.required) {
    if (parsed.ok() && std::isnan(example->floats[static_cast<size_t>(place)])) {
      parsed = absl::InvalidArgumentError(absl::StrCat(
          "'", name, "' is missing", file.idx != nullptr ? "; name files of labels beside the files" : ""));
    }
  }
  for (const auto& [place, range] : options_.label_ranges) {
    float& label = example->floats[static_cast<size_t>(place)];
    if (!parsed.ok() || std::isnan(label) || range.Holds(label)) continue;
    if (options_.forgives_labels) {
      label = std::numeric_limits<float>::quiet_NaN();
    } else {
      parsed = absl::InvalidArgumentError(absl::StrCat("'", range.variable, "' is ", label, "; ", range.Wanted(label)));
    }
  }
  if (parsed.ok()) return true;
  const absl::Status bad = BadLine(line, position, parsed);
  bad_ = !bad.ok();
  // An error of a line that was read ahead is one of a later line.
  if (bad_) status_ = bad;
  return false;
}

absl::Status ExampleStream::BadLine(std::string_view line, const InputPosition& position, const absl::Status& error) {
  const DataFile& file = data_->files()[static_cast<size_t>(position.file)];
  const auto told = [&] {
    const std::string_view text = file.lines() ? line : std::string_view();
    return absl::StrCat(RecordPlace(file, position.offset), ": ", AboutLine(text, error));
  };
  if (options_.bad_line != v1::Data::SKIP) return absl::InvalidArgumentError(told());
  if (options_.skipped != nullptr && options_.skipped->fetch_add(1, std::memory_order_relaxed) == 0) {
    LOG(WARNING) << "skipped, as the first line (data.bad_line: SKIP): " << told();
  }
  if (options_.on_skipped) options_.on_skipped(position);
  return absl::OkStatus();
}

}  // namespace weir
