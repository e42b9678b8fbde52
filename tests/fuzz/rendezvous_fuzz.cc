// Any bytes as what processes say where they meet. The first byte says whether a server comes too; greetings follow,
// each a byte that says how, and a piece. 0: bytes of a connection, as they are. 1: a message of any bytes. Else: a
// greeting that fits, of the id that the byte says, merged with the piece.
#include <cstdint>
#include <optional>
#include <string>

#include "glog/logging.h"
#include "pserver/cluster/endpoint.h"
#include "pserver/rendezvous/gathering.h"
#include "pserver/rendezvous/meeting_frame.h"
#include "tests/fuzz/input.h"

namespace weir {
namespace {

constexpr int kTrainers = 3;

v1::RendezvousGreeting Fitting(int id, int servers) {
  v1::RendezvousGreeting greeting;
  greeting.set_version(kRendezvousVersion);
  greeting.set_job_name("job");
  greeting.set_id(id);
  greeting.set_trainers(kTrainers);
  greeting.set_servers(servers);
  greeting.set_endpoint("10.0.0.1:" + std::to_string(id + 1));
  greeting.set_incarnation(static_cast<uint64_t>(id));
  return greeting;
}

void Hear(const v1::RendezvousGreeting& greeting, Gathering* gathering) {
  CHECK(NameOf(greeting).find('\n') == std::string::npos);
  const absl::Status run = gathering->CheckRun(greeting);
  CHECK(run.message().find('\n') == absl::string_view::npos);
  if (!run.ok()) return;
  const absl::Status added = gathering->Add(greeting);
  CHECK(added.message().find('\n') == absl::string_view::npos);
  CHECK(gathering->complete() == gathering->Missing().empty());
}

void HearBytes(const std::string& bytes, Gathering* gathering) {
  (void)DecodeAnswer(bytes);
  const auto whole = DecodeGreeting(bytes);
  if (whole.ok()) gathering->Remove(*whole);
  MeetingFrames frames(kLargestGreeting);
  frames.Append(bytes);
  while (true) {
    const auto text = frames.Next();
    v1::RendezvousGreeting greeting;
    if (!text.ok() || !text->has_value()) return;
    CHECK_LE((*text)->size(), kLargestGreeting);
    if (greeting.ParseFromString(**text)) Hear(greeting, gathering);
  }
}

}  // namespace
}  // namespace weir

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace weir;
  FuzzInput input(data, size);
  const int servers = input.Byte() % 2;
  Gathering gathering(Fitting(0, servers));
  while (!input.empty()) {
    const uint8_t how = input.Byte();
    const std::string piece = input.Piece();
    v1::RendezvousGreeting greeting;
    if (how == 0) {
      HearBytes(piece, &gathering);
      continue;
    }
    if (how > 1) greeting = Fitting((how - 2) % (kTrainers + 1), servers);
    if (greeting.MergeFromString(piece)) Hear(greeting, &gathering);
  }
  if (!gathering.complete()) return 0;
  const auto answer = gathering.Answer();
  if (!answer.ok()) return 0;
  CHECK_EQ(answer->trainer_size(), servers == 0 ? kTrainers : 0);
  CHECK_EQ(answer->server_size(), servers);
  for (const std::string& endpoint : answer->trainer()) CHECK(ParseEndpoint(endpoint).ok());
  for (const std::string& endpoint : answer->server()) CHECK(ParseEndpoint(endpoint).ok());
  return 0;
}
