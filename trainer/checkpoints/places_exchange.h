// Places of streams (proto/stream_places.proto) in checkpoints: brings those of all trainers together to be saved, and
// deals saved ones out.
#ifndef WEIR_TRAINER_CHECKPOINTS_PLACES_EXCHANGE_H_
#define WEIR_TRAINER_CHECKPOINTS_PLACES_EXCHANGE_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/stream_places.pb.h"
#include "trainer/this_trainer.h"

namespace weir {

// Adds the places of a trainer, a serialized v1::StreamPlaces or "", to those of others. DataLoss, which names it: the
// bytes are no such message, or of another number of streams.
absl::Status AddPlaces(std::string_view bytes, int trainer, v1::StreamPlaces* all);

// Sync, at a step border: every other trainer calls SendPlaces, and trainer `to` then gathers those of all.
absl::Status SendPlaces(const ThisTrainer& self, int64_t step, int to, const v1::StreamPlaces& own);
absl::StatusOr<v1::StreamPlaces> GatherPlaces(const ThisTrainer& self, int64_t step, v1::StreamPlaces own);

// Deals the places of a file to the trainers that read the streams: trainer `from` has them in `saved`. Returns this
// trainer's; none, with a warning, if they cannot be had: streams are then read again. Requires: a sync job, and every
// trainer calls it before the first step. Errors are those of a job that has failed. `lanes`: train.lanes.
absl::StatusOr<v1::StreamPlaces> DealPlaces(const ThisTrainer& self, int from, int lanes, const std::string& saved);

// Async: the chief calls PostDealtPlaces with `saved` before it posts the beginning, and no call waits.
absl::Status PostDealtPlaces(const ThisTrainer& self, int lanes, const std::string& saved);
// Async: PostPlaces posts the places of this trainer's streams behind `step` steps; TakePlaces returns those of the
// newest posts of the others, and `own`. PostedPlaces returns those of this trainer's streams: what trainer `from` has
// dealt, unless it is negative, and the newest post of this trainer's, perhaps of a dead process whose place it has
// taken.
absl::Status PostPlaces(const ThisTrainer& self, int64_t step, const v1::StreamPlaces& own);
absl::StatusOr<v1::StreamPlaces> TakePlaces(const ThisTrainer& self, v1::StreamPlaces own);
v1::StreamPlaces PostedPlaces(const ThisTrainer& self, int from);

}  // namespace weir

#endif  // WEIR_TRAINER_CHECKPOINTS_PLACES_EXCHANGE_H_
