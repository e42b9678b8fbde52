// Chooses, of the places in a checkpoint, those at which the streams of a process go on.
#ifndef WEIR_TRAINER_DATA_CHOSEN_PLACES_H_
#define WEIR_TRAINER_DATA_CHOSEN_PLACES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "framework/runtime/lane_tree.h"
#include "proto/stream_places.pb.h"
#include "trainer/data/data_spec.h"
#include "trainer/data/stream_place.h"
#include "trainer/files/data_set.h"

namespace weir {

struct ChosenPlaces {
  // Places, at most one for each stream, in their order. The other streams begin at the start of their files.
  std::vector<v1::StreamPlace> places;
  // Places at which files that several streams read together begin.
  FileBegins begins;
  // Reasons for which places of some streams do not fit; a line for each stream.
  std::vector<std::string> refused;
  // Text for the log that says how much of what the streams have given is read again: "8 streams go on where the
  // checkpoint left them; read again: 40000 examples of shuffle buffers, 120.5 MiB (uncompressed) of b.csv.gz".
  std::string summary;
};

struct PlacesWanted {
  // Borrowed.
  const DataSet* data = nullptr;
  const DataSpec* spec = nullptr;
  int64_t epochs = 1;
  LaneRange streams;
  // Examples that a shuffle buffer may hold; -1: the streams are not shuffled.
  int64_t most_buffered = -1;
  // Batches that the streams are to have given: later places are of no use.
  int64_t batches = 0;
};
// Looks into the files whether records begin where the places say.
ChosenPlaces ChoosePlaces(const PlacesWanted& wanted, const v1::StreamPlaces& places);

}  // namespace weir

#endif  // WEIR_TRAINER_DATA_CHOSEN_PLACES_H_
