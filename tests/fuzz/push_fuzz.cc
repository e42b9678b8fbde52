// Any header and payload of a push, with the caller and the checksum made right, so that what is behind them is
// reached.
#include "framework/wire/checksum.h"
#include "tests/fuzz/server_fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace weir;
  static FuzzedServer* server = new FuzzedServer;
  static int64_t step = 0;
  std::string header, payload;
  v1::PushRequest request;
  if (!FuzzedServer::Split(data, size, &header, &payload) || !request.ParseFromString(header)) return 0;
  *request.mutable_caller() = server->caller();
  request.set_checksum(StableHash(payload));
  // Steps go on, or nothing would be new after the first.
  if (request.step() >= 0 && request.step() < 4) request.set_step(step + request.step());
  server->Handle(Method::kPush, request.SerializeAsString(), payload);
  if (server->failed()) {
    delete server;
    server = new FuzzedServer;
    step = -1;
  }
  if (request.has_part_count()) ++step;
  return 0;
}
