// Start gRPC and check that it has the threads it needs.
#ifndef WEIR_PSERVER_NETWORK_GRPC_THREADS_H_
#define WEIR_PSERVER_NETWORK_GRPC_THREADS_H_

namespace weir {

// Exits the process, as StartThread does (framework/base/exhausted.h), if gRPC could not start its threads. gRPC itself
// reports nothing: a server without these threads looks ready, receives nothing, blames its trainers and never shuts
// down. Takes a few milliseconds on the first call and nothing afterwards.
//
// gRPC is then never shut down, so that dropping the last channel does not wait for its threads.
void CheckGrpcThreads();

}  // namespace weir

#endif  // WEIR_PSERVER_NETWORK_GRPC_THREADS_H_
