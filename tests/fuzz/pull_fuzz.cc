// Any header and payload of a pull by a trainer that has joined, or by a reader.
#include "tests/fuzz/server_fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace weir;
  std::string header, payload;
  v1::PullRequest request;
  if (!FuzzedServer::Split(data, size, &header, &payload) || !request.ParseFromString(header)) return 0;
  const v1::WireFormat format = request.items_size() > 0 ? request.items(0).format() : v1::WIRE_FLOAT32;
  FuzzedServer* const server = FuzzedServer::Of(format).get();
  *request.mutable_caller() = request.caller().trainer() == kReader ? server->reader() : server->caller();
  request.set_wait_s(0);
  server->Handle(Method::kPull, request.SerializeAsString(), payload);
  return 0;
}
