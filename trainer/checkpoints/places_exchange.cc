#include "trainer/checkpoints/places_exchange.h"

#include <algorithm>
#include <memory>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "framework/runtime/lane_tree.h"
#include "glog/logging.h"

namespace weir {
namespace {

constexpr char kPlacePosts[] = "places", kDealtPlaces[] = "places.beginning";

std::string DealtKey(int trainer) { return absl::StrCat(kDealtPlaces, ".", trainer); }
std::string PlacesKey(int64_t step) { return absl::StrCat("places.", step); }

absl::Status StreamPlacesTo(const ThisTrainer& self, const std::string& key, int to, const v1::StreamPlaces& places) {
  const std::unique_ptr<ByteStream> stream = self.client->board().StreamTo(key, to);
  RETURN_IF_ERROR(stream->Append(places.SerializeAsString()));
  return stream->Finish();
}

absl::StatusOr<std::string> ReadStreamed(const ThisTrainer& self, const std::string& key, int from) {
  std::string bytes;
  RETURN_IF_ERROR(self.client->board().ReadStream(key, from, [&](std::string_view piece) {
    bytes.append(piece);
    return absl::OkStatus();
  }));
  return bytes;
}

// Returns those of the streams that a trainer reads.
v1::StreamPlaces PlacesFor(int trainer, int trainers, int lanes, const v1::StreamPlaces& all) {
  v1::StreamPlaces places;
  places.set_streams(all.streams());
  if (all.has_absent()) *places.mutable_absent() = all.absent();
  const LaneRange streams = LanesOfTrainer(lanes, trainers, trainer);
  for (const v1::StreamPlace& place : all.places()) {
    if (place.stream() >= streams.begin && place.stream() < streams.begin + streams.count) *places.add_places() = place;
  }
  return places;
}

// Does the work of DealPlaces; any error.
absl::StatusOr<v1::StreamPlaces> DealOut(const ThisTrainer& self, int from, int lanes, const std::string& saved) {
  v1::StreamPlaces places;
  if (self.id != from) {
    ASSIGN_OR_RETURN(const std::string bytes, ReadStreamed(self, kDealtPlaces, from));
    RETURN_IF_ERROR(AddPlaces(bytes, from, &places));
    return places;
  }
  v1::StreamPlaces all;
  const bool parsed = all.ParseFromString(saved);
  if (!parsed) all.Clear();
  // The others wait for theirs, whatever happens here.
  absl::Status sent;
  for (int t = 0; t < self.trainers; ++t) {
    if (t != from) sent.Update(StreamPlacesTo(self, kDealtPlaces, t, PlacesFor(t, self.trainers, lanes, all)));
  }
  RETURN_IF_ERROR(sent);
  if (!parsed) return absl::DataLossError("the file 'places' of the checkpoint cannot be read");
  return PlacesFor(from, self.trainers, lanes, all);
}

}  // namespace

absl::Status AddPlaces(std::string_view bytes, int trainer, v1::StreamPlaces* all) {
  v1::StreamPlaces more;
  if (!more.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())) ||
      (all->streams() > 0 && more.streams() > 0 && more.streams() != all->streams())) {
    return absl::DataLossError(
        absl::StrCat("what trainer ", trainer, " says of the places of its streams cannot be read"));
  }
  if (more.streams() > 0) {
    const bool first = all->streams() == 0, known = all->has_absent();
    if (first) {
      *all->mutable_absent() = more.absent();
    } else {
      // Keep the inputs that neither has seen.
      const std::set<std::string> other(more.absent().names().begin(), more.absent().names().end());
      auto* const names = all->mutable_absent()->mutable_names();
      names->erase(
          std::remove_if(names->begin(), names->end(), [&](const std::string& name) { return !other.contains(name); }),
          names->end());
    }
    // Leave `absent` unset if either does not know it.
    if (!more.has_absent() || (!first && !known)) all->clear_absent();
    all->set_streams(more.streams());
  }
  for (v1::StreamPlace& place : *more.mutable_places()) *all->add_places() = std::move(place);
  return absl::OkStatus();
}

absl::Status SendPlaces(const ThisTrainer& self, int64_t step, int to, const v1::StreamPlaces& own) {
  return StreamPlacesTo(self, PlacesKey(step), to, own);
}

absl::StatusOr<v1::StreamPlaces> GatherPlaces(const ThisTrainer& self, int64_t step, v1::StreamPlaces own) {
  for (int t = 0; t < self.trainers; ++t) {
    if (t == self.id) continue;
    ASSIGN_OR_RETURN(const std::string bytes, ReadStreamed(self, PlacesKey(step), t));
    RETURN_IF_ERROR(AddPlaces(bytes, t, &own));
  }
  return own;
}

absl::Status PostPlaces(const ThisTrainer& self, int64_t step, const v1::StreamPlaces& own) {
  return self.client->board().Post(kPlacePosts, own.SerializeAsString(), step);
}

absl::StatusOr<v1::StreamPlaces> TakePlaces(const ThisTrainer& self, v1::StreamPlaces own) {
  for (int t = 0; t < self.trainers; ++t) {
    if (t == self.id) continue;
    ASSIGN_OR_RETURN(const std::string bytes, self.client->board().Posted(kPlacePosts, t));
    // Nothing is known of what its streams have had.
    if (bytes.empty()) own.clear_absent();
    RETURN_IF_ERROR(AddPlaces(bytes, t, &own));
  }
  return own;
}

absl::Status PostDealtPlaces(const ThisTrainer& self, int lanes, const std::string& saved) {
  v1::StreamPlaces all;
  if (!all.ParseFromString(saved)) {
    LOG(WARNING) << "the places of the streams in the checkpoint cannot be read, and the streams are read again";
    return absl::OkStatus();
  }
  for (int t = 0; t < self.trainers; ++t) {
    RETURN_IF_ERROR(self.client->board().Post(DealtKey(t), PlacesFor(t, self.trainers, lanes, all).SerializeAsString(),
                                              /*edition=*/0));
  }
  return absl::OkStatus();
}

v1::StreamPlaces PostedPlaces(const ThisTrainer& self, int from) {
  v1::StreamPlaces places;
  const auto add = [&](const std::string& key, int trainer) {
    const absl::StatusOr<std::string> bytes = self.client->board().Posted(key, trainer);
    const absl::Status added = bytes.ok() ? AddPlaces(*bytes, trainer, &places) : bytes.status();
    if (!added.ok()) LOG(WARNING) << "streams are read again: " << added.message();
  };
  if (from >= 0) add(DealtKey(self.id), from);
  add(kPlacePosts, self.id);
  return places;
}

absl::StatusOr<v1::StreamPlaces> DealPlaces(const ThisTrainer& self, int from, int lanes, const std::string& saved) {
  absl::StatusOr<v1::StreamPlaces> places = DealOut(self, from, lanes, saved);
  if (places.ok()) return places;
  RETURN_IF_ERROR(self.client->member().JobStatus());
  LOG(WARNING) << "the places of the streams in the checkpoint are not to be had, and the streams are read again: "
               << places.status().message();
  return v1::StreamPlaces();
}

}  // namespace weir
