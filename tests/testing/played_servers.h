// Transport to servers that a test plays: it lays their answers down beforehand and reads their requests afterwards.
#ifndef WEIR_TESTS_TESTING_PLAYED_SERVERS_H_
#define WEIR_TESTS_TESTING_PLAYED_SERVERS_H_

#include <deque>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "framework/base/mutex.h"
#include "framework/wire/checksum.h"
#include "framework/wire/frame.h"
#include "google/protobuf/message.h"
#include "gtest/gtest.h"
#include "proto/parameter_server.pb.h"
#include "pserver/member/messages.h"
#include "pserver/protocol/transport.h"

namespace weir {

struct PlayedServersOptions {
  int servers = 2;
  // Results of Transport's functions of these names.
  bool answers_inside = false;
  bool checks_payloads = true;
};

// Request of Push or Pull.
template <typename Header>
struct PlayedFrame {
  Header header;
  std::string payload;
};

// Answers inside Call: with the answers of this server and method in the order in which they were laid down, then with
// Unavailable. Thread-safe.
class PlayedServers : public Transport {
 public:
  explicit PlayedServers(PlayedServersOptions options = {}) : options_(options) {}

  void Call(int server, Method method, Slices request, absl::Duration, ReplyCallback done) override {
    absl::StatusOr<Slices> answer = absl::UnavailableError("nobody there");
    {
      MutexLock lock(&mu_);
      requests_[{server, method}].push_back(Flatten(request));
      std::deque<absl::StatusOr<Slices>>& answers = answers_[{server, method}];
      if (!answers.empty()) {
        answer = answers.front();
        answers.pop_front();
      }
    }
    done(std::move(answer));
  }
  std::string Describe(int server) const override { return absl::StrCat("server ", server); }
  int servers() const override { return options_.servers; }
  bool answers_inside() const override { return options_.answers_inside; }
  bool checks_payloads() const override { return options_.checks_payloads; }

  void Answer(int server, Method method, absl::StatusOr<Slices> answer) {
    MutexLock lock(&mu_);
    answers_[{server, method}].push_back(std::move(answer));
  }
  void Answer(int server, Method method, const google::protobuf::Message& message) {
    Answer(server, method, MessageBytes(message));
  }
  void AnswerFrame(int server, Method method, const google::protobuf::Message& header, std::string payload) {
    Answer(server, method, EncodeFrame(header.SerializeAsString(), {Slice::Own(std::move(payload))}));
  }
  // Answers a pull with a payload and its checksum.
  void AnswerPull(int server, v1::PullReply header, std::string payload) {
    header.set_checksum(Checksum({Slice::Borrow(payload.data(), payload.size())}));
    AnswerFrame(server, Method::kPull, header, std::move(payload));
  }

  // Returns the requests to a server so far, in order.
  std::vector<std::string> RequestBytes(int server, Method method) {
    MutexLock lock(&mu_);
    return requests_[{server, method}];
  }
  template <typename Message>
  std::vector<Message> Requests(int server, Method method) {
    std::vector<Message> parsed;
    for (const std::string& bytes : RequestBytes(server, method)) {
      EXPECT_TRUE(parsed.emplace_back().ParseFromString(bytes));
    }
    return parsed;
  }
  template <typename Header>
  std::vector<PlayedFrame<Header>> RequestFrames(int server, Method method) {
    std::vector<PlayedFrame<Header>> parsed;
    for (const std::string& bytes : RequestBytes(server, method)) {
      const absl::StatusOr<Frame> frame = DecodeFrame({Slice::Borrow(bytes.data(), bytes.size())});
      EXPECT_TRUE(frame.ok()) << frame.status();
      PlayedFrame<Header>& request = parsed.emplace_back();
      if (!frame.ok()) continue;
      EXPECT_TRUE(request.header.ParseFromString(frame->header));
      request.payload = Flatten(frame->payload);
    }
    return parsed;
  }

 private:
  const PlayedServersOptions options_;
  Mutex mu_;
  std::map<std::pair<int, Method>, std::deque<absl::StatusOr<Slices>>> answers_ ABSL_GUARDED_BY(mu_);
  std::map<std::pair<int, Method>, std::vector<std::string>> requests_ ABSL_GUARDED_BY(mu_);
};

}  // namespace weir

#endif  // WEIR_TESTS_TESTING_PLAYED_SERVERS_H_
