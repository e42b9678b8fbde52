// Any control requests of a trainer that has joined a server with a checkpoint directory and row files, one after the
// other. What is published without a manifest is what was saved last.
#include <cstdlib>
#include <utility>

#include "framework/checkpoint/directory.h"
#include "framework/checkpoint/row_file.h"
#include "framework/checkpoint/shard.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/server_fuzz.h"

namespace weir {
namespace {

void WriteRows(const std::string& path) {
  TableLayout layout{.table = "t", .width = 4, .logical_shards = 64};
  auto writer = RowFileWriter::Create(path, layout, "job", /*step=*/3, /*since_step=*/-1);
  CHECK(writer.ok()) << writer.status();
  CHECK((*writer)->Add({1, 2}, {1, 2, 3, 4, 5, 6, 7, 8}, {}).ok());
  CHECK((*writer)->Finish().ok());
}

}  // namespace
}  // namespace weir

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace weir;
  const ScratchDirectory& scratch = QuietScratch("control");
  scratch.Empty();
  WriteRows(scratch.path() + "/rows");
  FuzzedServer server(
      {.checkpoint_dir = scratch.path() + "/checkpoints", .row_files = {{"t", {scratch.path() + "/rows"}}}});
  FuzzInput input(data, size);
  std::string saved;
  // Each saves and syncs; a long sequence says no more than a short one.
  for (int calls = 0; calls < 8 && !input.empty(); ++calls) {
    const std::string message = input.Piece();
    v1::ControlRequest request;
    if (!request.ParseFromString(message)) {
      (void)server.HandleMessage(Method::kControl, message);
      continue;
    }
    *request.mutable_caller() = server.caller();
    if (request.has_publish() && !request.publish().has_manifest()) {
      v1::CheckpointManifest manifest;
      manifest.set_job("job");
      manifest.set_step(42);
      if (!manifest.add_shards()->ParseFromString(saved)) std::abort();
      SealManifest(&manifest);
      request.mutable_publish()->set_manifest(manifest.SerializeAsString());
    }
    const absl::StatusOr<std::string> answer = server.HandleMessage(Method::kControl, request.SerializeAsString());
    v1::ControlReply reply;
    if (!answer.ok()) continue;
    if (!reply.ParseFromString(*answer)) std::abort();
    if (reply.has_shard()) saved = reply.shard();
  }
  return 0;
}
