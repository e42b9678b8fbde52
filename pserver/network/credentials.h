// Credentials of every channel and every server, chosen only here. They are insecure: the network of a cluster is
// trusted.
#ifndef WEIR_PSERVER_NETWORK_CREDENTIALS_H_
#define WEIR_PSERVER_NETWORK_CREDENTIALS_H_

#include <memory>

#include "grpcpp/security/credentials.h"
#include "grpcpp/security/server_credentials.h"

namespace weir {

inline std::shared_ptr<grpc::ChannelCredentials> ChannelCredentials() { return grpc::InsecureChannelCredentials(); }
inline std::shared_ptr<grpc::ServerCredentials> ServerCredentials() { return grpc::InsecureServerCredentials(); }

}  // namespace weir

#endif  // WEIR_PSERVER_NETWORK_CREDENTIALS_H_
