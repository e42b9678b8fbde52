#include "trainer/data/chosen_places.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "trainer/data/records_ahead.h"

namespace weir {
namespace {

// Bytes within which streams share a pass over a file (RecordsAhead::Options): a stream that is further on begins its
// own pass.
constexpr int64_t kTogether = 16 << 20;

class Choice {
 public:
  Choice(const PlacesWanted& wanted, const v1::StreamPlaces& places)
      : wanted_(wanted), streams_(wanted.spec->streams()) {
    if (places.places().empty()) return;
    if (places.streams() != streams_ || wanted.spec->stream_scheme != kStreamScheme) {
      chosen_.refused.push_back(absl::StrCat("the checkpoint is of ", places.streams(), " streams, the job has ",
                                             streams_, ": they are read again from the start"));
      return;
    }
    for (int s = wanted.streams.begin; s < wanted.streams.begin + wanted.streams.count; ++s) Choose(s, places);
    FindBegins();
    Summarize();
  }
  ChosenPlaces Take() { return std::move(chosen_); }

 private:
  const DataFile& FileOf(const Segment& segment) const {
    return wanted_.data->files()[static_cast<size_t>(segment.file)];
  }

  void Choose(int stream, const v1::StreamPlaces& places) {
    const v1::StreamPlace* newest = nullptr;
    bool later = false;
    for (const v1::StreamPlace& place : places.places()) {
      if (place.stream() != stream) continue;
      later = later || place.batches() > wanted_.batches;
      if (place.batches() <= wanted_.batches && (newest == nullptr || place.batches() > newest->batches()))
        newest = &place;
    }
    if (newest == nullptr) {
      if (later) Refuse(stream, "it is that of a later step");
      return;
    }
    std::vector<Segment> segments = wanted_.data->Stream(stream, streams_, wanted_.spec->stream_scheme);
    const absl::Status fits =
        CheckStreamPlace(*newest, wanted_.data->files(), segments, wanted_.epochs, wanted_.most_buffered);
    if (!fits.ok()) return Refuse(stream, std::string(fits.message()));
    chosen_.places.push_back(*newest);
    segments_.push_back(std::move(segments));
  }

  void Refuse(int stream, const std::string& why) {
    chosen_.refused.push_back(absl::StrCat("stream ", stream, " does not go on at its place in the checkpoint (", why,
                                           "): it is read again from the start"));
  }

  void FindBegins() {
    // First file of each epoch in which some stream is.
    std::map<int64_t, int64_t> first;
    if (chosen_.places.size() < static_cast<size_t>(wanted_.streams.count)) first[0] = -1;
    std::map<std::pair<int64_t, int64_t>, std::map<int64_t, int64_t>> at;  // record by byte, by epoch and file
    for (size_t i = 0; i < chosen_.places.size(); ++i) {
      const v1::StreamPlace& place = chosen_.places[i];
      if (place.ended()) continue;
      const Segment* const segment =
          place.has_last() ? &segments_[i][static_cast<size_t>(place.last().segment())] : nullptr;
      const int64_t file = segment == nullptr ? -1 : segment->file;
      const auto [of_epoch, fresh] = first.try_emplace(place.epoch(), file);
      if (!fresh) of_epoch->second = std::min(of_epoch->second, file);
      if (segment == nullptr || !FileOf(*segment).seekable() || !RecordsAhead::IsFor(FileOf(*segment), *segment))
        continue;
      at[{place.epoch(), file}][place.last().at()] = place.last().number();
    }
    for (const auto& [key, records] : at) {
      std::vector<BlockReader::Begin>& begins = chosen_.begins[key];
      // Streams that come to this file later read it from its start: those that are near it read it with them.
      if (first[key.first] < key.second) begins.push_back({});
      for (const auto& [byte, number] : records) {
        if (begins.empty() || byte - begins.back().at > kTogether) begins.push_back({.at = byte, .records = number});
      }
    }
  }

  void Summarize() {
    if (chosen_.places.empty()) return;
    int64_t buffered = 0, whole = 0, unpacked = 0;
    // Files that are read from their start, and how far.
    std::map<std::pair<int64_t, int64_t>, int64_t> furthest;  // by epoch and file
    for (size_t i = 0; i < chosen_.places.size(); ++i) {
      const v1::StreamPlace& place = chosen_.places[i];
      whole += !place.ended() && !place.has_last() && place.given() > 0;
      buffered += place.buffer().size();
      const auto note = [&](int64_t segment, int64_t at) {
        const Segment& of = segments_[i][static_cast<size_t>(segment)];
        int64_t& most = furthest[{place.epoch(), of.file}];
        most = std::max(most, FileOf(of).sequential() ? at : 0);
      };
      for (const v1::ShuffleBuffer::Part& part : place.buffer().parts()) {
        int64_t at = 0;
        for (const uint64_t further : part.at()) at += static_cast<int64_t>(further);
        note(part.segment(), at);
      }
      if (place.has_last()) note(place.last().segment(), place.last().at());
    }
    std::set<std::string> names;
    for (const auto& [key, bytes] : furthest) {
      if (bytes > 0) names.insert(wanted_.data->files()[static_cast<size_t>(key.second)].name);
      unpacked += bytes;
    }
    std::vector<std::string> again;
    if (buffered > 0) again.push_back(absl::StrCat(buffered, " examples of shuffle buffers"));
    if (unpacked > 0) {
      again.push_back(absl::StrFormat("%.1f MiB (uncompressed) of %s", static_cast<double>(unpacked) / (1 << 20),
                                      absl::StrJoin(names, ", ")));
    }
    if (whole > 0) {
      again.push_back(
          absl::StrCat("the present epoch of ", whole, whole == 1 ? " stream" : " streams", ", shuffled as a whole"));
    }
    chosen_.summary = absl::StrCat(chosen_.places.size(), chosen_.places.size() == 1 ? " stream goes" : " streams go",
                                   " on where the checkpoint left ", chosen_.places.size() == 1 ? "it" : "them",
                                   again.empty() ? "" : absl::StrCat("; read again: ", absl::StrJoin(again, ", ")));
  }

  const PlacesWanted& wanted_;
  const int streams_;
  std::vector<std::vector<Segment>> segments_;  // of chosen_.places
  ChosenPlaces chosen_;
};

}  // namespace

ChosenPlaces ChoosePlaces(const PlacesWanted& wanted, const v1::StreamPlaces& places) {
  return Choice(wanted, places).Take();
}

}  // namespace weir
