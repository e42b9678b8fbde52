// Any bytes as the places of streams in a checkpoint: readers go on where they say, or read from the start. The first
// byte says of which data: lines or pictures, in order or shuffled in a window.
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "google/protobuf/text_format.h"
#include "proto/stream_places.pb.h"
#include "tests/fuzz/input.h"
#include "trainer/data/lane_reader.h"
#include "trainer/files/data_set.h"

namespace weir {
namespace {

constexpr int kExamples = 300;

void WriteFiles(const ScratchDirectory& scratch) {
  std::string lines;
  for (int i = 0; i < kExamples; ++i) absl::StrAppend(&lines, "1 ", i, "\n");
  scratch.Write("lines", lines);
  // 300 pictures of two values.
  std::string pictures("\0\0\x08\x02\0\0\x01\x2c\0\0\0\x02", 12);
  pictures.resize(pictures.size() + 2 * kExamples, '\x07');
  scratch.Write("pictures", pictures);
}

void GoOn(const DataSpec& spec, const v1::StreamPlaces& places) {
  auto data = DataSet::Open(spec.config, spec.config.train(), spec.directory, "data.train");
  CHECK(data.ok()) << data.status();
  auto reader =
      LaneReader::Create(*std::move(data), {.spec = spec, .streams = {0, 2}, .keeps_places = true, .threads = 1});
  CHECK(reader.ok()) << reader.status();
  (*reader)->SkipTo(8, places);
  std::vector<LaneBatch> batches;
  for (int64_t step = 9; (*reader)->Next(absl::Seconds(60), &batches).ok() && !(*reader)->ended(); ++step) {
    (*reader)->Passed(step);
    // What it has got it must be able to write.
    (void)(*reader)->Places(step).SerializeAsString();
  }
}

}  // namespace
}  // namespace weir

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace weir;
  const ScratchDirectory& scratch = QuietScratch("places");
  static const bool written = (WriteFiles(scratch), true);
  (void)written;
  FuzzInput input(data, size);
  const uint8_t which = input.Byte();
  DataSpec spec;
  const std::string job =
      absl::StrCat("batch_size: 8 ",
                   which % 2 == 0 ? "train { files: 'lines' } multi_slot { slot { name: 'x' type: FLOAT } } "
                                  : "train { files: 'pictures' } idx { values: 2 } ",
                   which / 2 % 2 == 0 ? "shuffle: NO_SHUFFLE" : "shuffle: WINDOW shuffle_window: 8");
  CHECK(google::protobuf::TextFormat::ParseFromString(job, &spec.config));
  spec.directory = scratch.path();
  spec.lanes = 2;
  spec.epochs = 2;
  v1::StreamPlaces places;
  if (places.ParseFromString(input.Rest())) GoOn(spec, places);
  return 0;
}
