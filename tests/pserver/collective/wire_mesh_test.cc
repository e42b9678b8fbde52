// Messages of collective operations over transports: they arrive once, whatever is dropped, repeated and delayed; what
// does not belong to the group is refused; an end is told.

#include "pserver/collective/wire_mesh.h"

#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "framework/base/clock.h"
#include "framework/collective/collective.h"
#include "framework/wire/frame.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/collective.pb.h"
#include "tests/testing/faulty_transport.h"

namespace weir {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kGroup = 77;

// Calls the meshes of a group by their rank.
class DirectTransport : public Transport {
 public:
  explicit DirectTransport(std::vector<WireMesh*>* meshes) : meshes_(*meshes) {}
  void Call(int server, Method method, Slices request, absl::Duration, ReplyCallback done) override {
    EXPECT_EQ(method, Method::kDeliver);
    WireMesh* mesh = meshes_[static_cast<size_t>(server)];
    if (mesh == nullptr) return done(absl::UnavailableError("nobody listens"));
    // The receiver keeps pieces of the request, as it may keep those of a network.
    mesh->HandleDeliver({Slice::Own(Flatten(request))}, std::move(done));
  }
  std::string Describe(int server) const override { return absl::StrCat("trainer ", server); }
  int servers() const override { return static_cast<int>(meshes_.size()); }

 private:
  std::vector<WireMesh*>& meshes_;
};

// A group of ranks whose calls go through transports that misbehave as the options say.
class Group {
 public:
  explicit Group(int ranks, const FaultOptions& faults = {}) : meshes_(static_cast<size_t>(ranks)), direct_(&meshes_) {
    for (int r = 0; r < ranks; ++r) {
      transports_.push_back(std::make_unique<FaultyTransport>(&direct_, Clock::Real(), r, faults, &counters_));
      owned_.push_back(WireMesh::Create({.group = kGroup,
                                         .rank = r,
                                         .transport = transports_.back().get(),
                                         .call_timeout = absl::Milliseconds(200)}));
    }
    for (int r = 0; r < ranks; ++r) Listen(r, true);
  }
  ~Group() {
    for (auto& mesh : owned_) mesh->Abort(absl::CancelledError("the test is over"));
    transports_.clear();
  }

  WireMesh* mesh(int rank) { return owned_[static_cast<size_t>(rank)].get(); }
  void Listen(int rank, bool listens) { meshes_[static_cast<size_t>(rank)] = listens ? mesh(rank) : nullptr; }
  const FaultCounters& counters() const { return counters_; }

 private:
  std::vector<WireMesh*> meshes_;
  DirectTransport direct_;
  FaultCounters counters_;
  std::vector<std::unique_ptr<FaultyTransport>> transports_;
  std::vector<std::unique_ptr<WireMesh>> owned_;
};

absl::Status Finish(Mesh::Transfer* transfer) { return transfer->Wait(absl::Seconds(20)); }

Slices Frame(const v1::DeliverRequest& header, std::string payload) {
  return {Slice::Own(Flatten(EncodeFrame(header.SerializeAsString(), {Slice::Own(std::move(payload))})))};
}

v1::DeliverRequest HeaderFor(uint64_t tag) {
  v1::DeliverRequest header;
  header.set_group(kGroup);
  header.set_from(0);
  header.set_tag(tag);
  return header;
}

TEST(WireMeshTest, AMessageArrivesBeforeOrAfterItIsAskedFor) {
  Group group(2);
  for (const bool early : {false, true}) {
    const uint64_t tag = early ? 1 : 2;
    std::string sent = "some bytes", got(sent.size(), '?');
    std::unique_ptr<Mesh::Transfer> send, receive;
    if (early) send = group.mesh(0)->Send(1, tag, sent.data(), sent.size());
    receive = group.mesh(1)->Receive(0, tag, got.data(), got.size());
    if (!early) {
      EXPECT_EQ(receive->Wait(absl::Milliseconds(10)).code(), absl::StatusCode::kDeadlineExceeded);
      send = group.mesh(0)->Send(1, tag, sent.data(), sent.size());
    }
    EXPECT_TRUE(Finish(send.get()).ok());
    EXPECT_TRUE(Finish(receive.get()).ok());
    EXPECT_EQ(got, sent);
  }
}

TEST(WireMeshTest, ARankThatDoesNotListenYetIsTriedAgain) {
  Group group(2);
  group.Listen(1, false);
  int64_t sent = 5, got = 0;
  const auto send = group.mesh(0)->Send(1, 9, &sent, sizeof(sent));
  EXPECT_EQ(send->Wait(absl::Milliseconds(30)).code(), absl::StatusCode::kDeadlineExceeded);
  const auto receive = group.mesh(1)->Receive(0, 9, &got, sizeof(got));
  group.Listen(1, true);
  EXPECT_TRUE(Finish(send.get()).ok());
  EXPECT_TRUE(Finish(receive.get()).ok());
  EXPECT_EQ(got, 5);
}

TEST(WireMeshTest, SumsAreRightThroughDropsRepeatsAndDelays) {
  constexpr int kRanks = 3;
  Group group(kRanks, {.seed = 5,
                       .drop_request = 0.05,
                       .drop_reply = 0.05,
                       .duplicate = 0.1,
                       .delay = 0.1,
                       .max_delay = absl::Milliseconds(5)});
  std::vector<std::thread> threads;
  for (int r = 0; r < kRanks; ++r) {
    threads.emplace_back([&, r] {
      Collective collective(group.mesh(r), {.message_bytes = 512});
      std::vector<std::vector<float>> values;
      for (int i = 0; i < 20; ++i) values.push_back(std::vector<float>(300, static_cast<float>(r + i)));
      std::vector<Collective::PendingPtr> pending;
      for (std::vector<float>& each : values) {
        pending.push_back(
            collective.AllReduce({.name = "g", .shape = {300}, .addends = collective.Own(each.data())}, each.data()));
      }
      for (int i = 0; i < 20; ++i) {
        EXPECT_TRUE(pending[static_cast<size_t>(i)]->Wait().ok());
        EXPECT_THAT(values[static_cast<size_t>(i)], ::testing::Each(static_cast<float>(3 + 3 * i)));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(group.counters().dropped_requests, 0);
  EXPECT_GT(group.counters().dropped_replies, 0);
  EXPECT_GT(group.counters().duplicates, 0);
}

TEST(WireMeshTest, AnotherSizeIsRefusedAtBothEnds) {
  Group group(2);
  char sent[10] = {}, got[9] = {};
  const auto send = group.mesh(0)->Send(1, 1, sent, sizeof(sent));
  const auto receive = group.mesh(1)->Receive(0, 1, got, sizeof(got));
  for (Mesh::Transfer* transfer : {send.get(), receive.get()}) {
    EXPECT_THAT(std::string(Finish(transfer).message()), HasSubstr("has sent 10 bytes, 9 were expected"));
  }
}

TEST(WireMeshTest, DamagedBytesAreRefused) {
  Group group(2);
  char got[4] = {};
  const auto receive = group.mesh(1)->Receive(0, 3, got, sizeof(got));
  v1::DeliverRequest header = HeaderFor(3);
  header.set_checksum(1);
  absl::Status answer;
  group.mesh(1)->HandleDeliver(Frame(header, "abcd"), [&](const absl::StatusOr<Slices>& r) { answer = r.status(); });
  EXPECT_EQ(answer.code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(Finish(receive.get()).code(), absl::StatusCode::kDataLoss);
}

TEST(WireMeshTest, WhatDoesNotBelongToTheGroupIsRefused) {
  Group group(2);
  const auto answer = [&](const Slices& bytes) {
    absl::Status status;
    group.mesh(1)->HandleDeliver(bytes, [&](const absl::StatusOr<Slices>& reply) { status = reply.status(); });
    return status;
  };
  EXPECT_EQ(answer({Slice::Own("no frame")}).code(), absl::StatusCode::kInvalidArgument);
  v1::DeliverRequest header = HeaderFor(1);
  header.set_group(78);
  EXPECT_EQ(answer(Frame(header, "x")).code(), absl::StatusCode::kFailedPrecondition);
  for (const int from : {-1, 1, 2}) {
    header = HeaderFor(1);
    header.set_from(from);
    EXPECT_EQ(answer(Frame(header, "x")).code(), absl::StatusCode::kInvalidArgument) << from;
  }
}

TEST(WireMeshTest, UnreadMessagesHaveALimit) {
  std::vector<WireMesh*> meshes(2);
  DirectTransport transport(&meshes);
  const auto mesh = WireMesh::Create({.group = kGroup, .rank = 1, .transport = &transport, .most_unread_bytes = 100});
  meshes[1] = mesh.get();
  absl::Status first, repeat, second;
  mesh->HandleDeliver(Frame(HeaderFor(1), std::string(80, 'a')), [&](const auto& reply) { first = reply.status(); });
  mesh->HandleDeliver(Frame(HeaderFor(1), std::string(80, 'a')), [&](const auto& reply) { repeat = reply.status(); });
  mesh->HandleDeliver(Frame(HeaderFor(2), std::string(80, 'b')), [&](const auto& reply) { second = reply.status(); });
  EXPECT_EQ(second.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(first.code(), absl::StatusCode::kCancelled) << "the repeat has taken its place";
  // Once it is read there is room.
  std::string got(80, ' ');
  const auto receive = mesh->Receive(0, 1, got.data(), got.size());
  mesh->HandleDeliver(Frame(HeaderFor(2), std::string(80, 'b')), [&](const auto& reply) { second = reply.status(); });
  mesh->Abort(absl::CancelledError("the test is over"));
  EXPECT_EQ(second.code(), absl::StatusCode::kAborted);
}

TEST(WireMeshTest, AnEndIsToldToTheOthers) {
  Group group(3);
  char bytes[4] = {};
  const auto receive = group.mesh(2)->Receive(0, 1, bytes, sizeof(bytes));
  const auto send = group.mesh(1)->Send(2, 1, bytes, sizeof(bytes));
  group.mesh(0)->Abort(absl::FailedPreconditionError("the ranks are at different operations"));
  for (Mesh::Transfer* transfer : {receive.get(), send.get()}) {
    EXPECT_THAT(std::string(Finish(transfer).message()), HasSubstr("the ranks are at different operations"));
  }
  EXPECT_FALSE(Finish(group.mesh(1)->Receive(2, 5, bytes, sizeof(bytes)).get()).ok());
}

}  // namespace
}  // namespace weir
