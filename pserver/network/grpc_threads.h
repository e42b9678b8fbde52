// Whether gRPC has the threads that it needs.
#ifndef WEIR_PSERVER_NETWORK_GRPC_THREADS_H_
#define WEIR_PSERVER_NETWORK_GRPC_THREADS_H_

namespace weir {

// Exits the process, as StartThread does (framework/base/exhausted.h), when gRPC could not start its threads. It tells
// nobody: a server without them looks ready, hears nobody, blames its trainers and never shuts down. Takes a few
// milliseconds the first time, nothing after that.
void CheckGrpcThreads();

}  // namespace weir

#endif  // WEIR_PSERVER_NETWORK_GRPC_THREADS_H_
