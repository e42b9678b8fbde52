// Trainers that contradict each other before they connect are named with what each says.

#include "pserver/collective/peers.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

using ::testing::HasSubstr;

std::string Peer(const std::string& backend, const std::string& endpoint) {
  v1::CollectivePeer peer;
  peer.set_backend(backend);
  peer.set_endpoint(endpoint);
  return peer.SerializeAsString();
}

std::string ErrorOf(const std::vector<std::string>& all) {
  const absl::Status status = ReadPeers(all).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
  return std::string(status.message());
}

TEST(PeersTest, TrainersThatAgreeAreRead) {
  const auto peers = ReadPeers({Peer("WIRE", "10.0.0.1:5"), Peer("WIRE", "10.0.0.2:6"), Peer("WIRE", "[2001::1]:7")});
  ASSERT_TRUE(peers.ok()) << peers.status();
  EXPECT_EQ((*peers)[1].endpoint(), "10.0.0.2:6");
}

TEST(PeersTest, AnotherBackendIsRefusedWithItsTrainer) {
  EXPECT_EQ(ErrorOf({Peer("GLOO", "10.0.0.1"), Peer("GLOO", "10.0.0.2"), Peer("NCCL", "10.0.0.3")}),
            "comm.backend is GLOO in trainer 0 and NCCL in trainer 2; give all trainers the same");
}

TEST(PeersTest, ALoopbackAddressBesideOthersIsRefusedWithItsTrainer) {
  for (const char* loopback : {"127.0.0.1:5", "127.1.2.3", "localhost:5", "localhost", "[::1]:5", "::1"}) {
    EXPECT_THAT(ErrorOf({Peer("GLOO", "10.0.0.1"), Peer("GLOO", loopback)}),
                HasSubstr(std::string("trainer 1 is at ") + loopback +
                          ", an address of its own machine alone, and trainer 0 at 10.0.0.1"));
    EXPECT_THAT(ErrorOf({Peer("GLOO", loopback), Peer("GLOO", "10.0.0.1"), Peer("GLOO", loopback)}),
                HasSubstr(std::string("trainer 0 is at ") + loopback +
                          ", an address of its own machine alone, and trainer 1 at 10.0.0.1"));
  }
}

TEST(PeersTest, LoopbackAddressesAmongThemselvesAreFine) {
  EXPECT_TRUE(ReadPeers({Peer("WIRE", "127.0.0.1:5"), Peer("WIRE", "[::1]:6"), Peer("WIRE", "localhost:7")}).ok());
}

TEST(PeersTest, ANameThatBeginsLikeLoopbackIsNone) {
  for (const char* name : {"localhost-7.cluster:5", "1127.0.0.1:5", "[::11]:5", "::1:2", "10.127.0.1"}) {
    EXPECT_TRUE(ReadPeers({Peer("GLOO", name), Peer("GLOO", "10.0.0.1")}).ok()) << name;
  }
}

TEST(PeersTest, BytesThatAreNoPeerAreNamedWithTheirTrainer) {
  const absl::Status status = ReadPeers({Peer("GLOO", "10.0.0.1"), "\xff\xff"}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_EQ(status.message(), "what trainer 1 says of its address cannot be read");
}

}  // namespace
}  // namespace weir
