// Any header and payload of a push, with the caller and the checksum made right, so that what is behind them is
// reached.
#include "framework/wire/checksum.h"
#include "tests/fuzz/server_fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace weir;
  static std::map<v1::WireFormat, int64_t> steps;
  std::string header, payload;
  v1::PushRequest request;
  if (!FuzzedServer::Split(data, size, &header, &payload) || !request.ParseFromString(header)) return 0;
  const v1::WireFormat format = request.items_size() > 0 ? request.items(0).format() : v1::WIRE_FLOAT32;
  std::unique_ptr<FuzzedServer>& server = FuzzedServer::Of(format);
  int64_t& step = steps[format];
  *request.mutable_caller() = server->caller();
  request.set_checksum(StableHash(payload));
  // Steps go on, or nothing would be new after the first.
  if (request.step() >= 0 && request.step() < 4) request.set_step(step + request.step());
  server->Handle(Method::kPush, request.SerializeAsString(), payload);
  if (server->failed()) {
    server = nullptr;
    step = -1;
  }
  if (request.has_part_count()) ++step;
  return 0;
}
