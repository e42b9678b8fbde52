// Any header and payload of a pull by a trainer that has joined.
#include "tests/fuzz/server_fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace weir;
  static FuzzedServer* const server = new FuzzedServer;
  std::string header, payload;
  v1::PullRequest request;
  if (!FuzzedServer::Split(data, size, &header, &payload) || !request.ParseFromString(header)) return 0;
  *request.mutable_caller() = server->caller();
  request.set_wait_s(0);
  server->Handle(Method::kPull, request.SerializeAsString(), payload);
  return 0;
}
