#include "tests/testing/call_record.h"

#include <pthread.h>

#include <algorithm>
#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "framework/base/stable_hash.h"
#include "framework/profile/thread_names.h"
#include "framework/wire/frame.h"
#include "google/protobuf/text_format.h"
#include "proto/parameter_server.pb.h"

namespace weir {
namespace {

// Fields that differ between two runs of one job. They are cleared before a message is hashed.
struct ClearedField {
  const char* message;
  const char* field;
  const char* reason;
  // Only in jobs with several trainers, whose calls reach a server in any order.
  bool several_trainers = false;
};
constexpr ClearedField kCleared[] = {
    {"Caller", "session", "random: drawn by the server at the join"},
    {"JoinRequest", "incarnation", "random: drawn at the start of the process"},
    {"JoinRequest", "build", "changes with every release"},
    {"JoinReply", "session", "random: drawn by the server at the join"},
    {"JoinReply", "checkpoint_probe", "random: name of a file"},
    {"JoinReply", "checkpoint_token", "random: content of that file"},
    {"JoinReply", "joined", "order of the joins", true},
    {"JoinReply", "version", "the chief may have loaded a checkpoint before another trainer joins", true},
    {"HeartbeatReply", "slow", "time: trainers that others have waited for"},
    {"HeartbeatReply", "done", "order of the trainers' ends", true},
    {"HeartbeatReply", "chief", "order of the trainers' ends", true},
    {"HeartbeatReply", "version", "order of the trainers' ends", true},
    {"PushReply", "version", "the last trainer's push completes the step", true},
    {"ExchangeReply", "missing", "order of the contributions", true},
    {"SaveShard", "name", "random: suffix of a temporary directory"},
    {"PublishPart", "name", "random: suffix of a temporary directory"},
    {"LoadCheckpoint", "directory", "machine: absolute path"},
    {"OwnDirectory", "run", "random: drawn at the start of the run"},
};

void ClearFields(google::protobuf::Message* message, bool several_trainers) {
  const google::protobuf::Descriptor* const type = message->GetDescriptor();
  const google::protobuf::Reflection* const reflection = message->GetReflection();
  for (const ClearedField& cleared : kCleared) {
    if (type->name() != cleared.message || (cleared.several_trainers && !several_trainers)) continue;
    reflection->ClearField(message, type->FindFieldByName(cleared.field));
  }
  std::vector<const google::protobuf::FieldDescriptor*> fields;
  reflection->ListFields(*message, &fields);
  for (const google::protobuf::FieldDescriptor* field : fields) {
    if (field->cpp_type() != google::protobuf::FieldDescriptor::CPPTYPE_MESSAGE) continue;
    if (!field->is_repeated()) {
      ClearFields(reflection->MutableMessage(message, field), several_trainers);
      continue;
    }
    for (int i = 0; i < reflection->FieldSize(*message, field); ++i) {
      ClearFields(reflection->MutableRepeatedMessage(message, field, i), several_trainers);
    }
  }
}

std::string TextOf(const google::protobuf::Message& message) {
  google::protobuf::TextFormat::Printer printer;
  printer.SetSingleLineMode(true);
  printer.SetTruncateStringFieldLongerThan(6000);
  std::string text;
  printer.PrintToString(message, &text);
  return text;
}

std::unique_ptr<google::protobuf::Message> NewMessage(Method method, bool request) {
  switch (method) {
    case Method::kJoin:
      if (request) return std::make_unique<v1::JoinRequest>();
      return std::make_unique<v1::JoinReply>();
    case Method::kHeartbeat:
      if (request) return std::make_unique<v1::HeartbeatRequest>();
      return std::make_unique<v1::HeartbeatReply>();
    case Method::kPush:
      if (request) return std::make_unique<v1::PushRequest>();
      return std::make_unique<v1::PushReply>();
    case Method::kPull:
      if (request) return std::make_unique<v1::PullRequest>();
      return std::make_unique<v1::PullReply>();
    case Method::kExchange:
      if (request) return std::make_unique<v1::ExchangeRequest>();
      return std::make_unique<v1::ExchangeReply>();
    case Method::kControl:
      if (request) return std::make_unique<v1::ControlRequest>();
      return std::make_unique<v1::ControlReply>();
    case Method::kNorms:
      if (request) return std::make_unique<v1::NormsRequest>();
      return std::make_unique<v1::NormsReply>();
    case Method::kDeliver:
      break;  // of another service
  }
  return nullptr;
}

struct Opened {
  std::unique_ptr<google::protobuf::Message> header;
  std::string payload;
  std::string malformed;
};

Opened Open(Method method, bool request, const std::string& bytes) {
  Opened opened{.header = NewMessage(method, request)};
  std::string header = bytes;
  if (method == Method::kPush || method == Method::kPull) {
    v1::Frame frame;
    if (!frame.ParseFromString(bytes) || frame.SerializeAsString() != bytes) opened.malformed = "no canonical Frame";
    if (frame.has_payload() && (bytes.size() - frame.payload().size()) % kAlignment != 0) {
      opened.malformed = "the payload is not aligned";
    }
    if (frame.padding() != std::string(frame.padding().size(), '\0') || frame.padding().size() > 2 * kAlignment) {
      opened.malformed = "the padding is not of zeros, or too long";
    }
    header = frame.header();
    opened.payload = frame.payload();
  }
  if (!opened.header->ParseFromString(header) || opened.header->SerializeAsString() != header) {
    opened.malformed = absl::StrCat("no canonical ", opened.header->GetDescriptor()->name());
  }
  return opened;
}

bool IsContribution(const Opened& request) {
  const auto* const exchange = dynamic_cast<const v1::ExchangeRequest*>(request.header.get());
  return exchange != nullptr && exchange->has_contribution();
}

// Returns whether the reply ends the call: a contribution is acknowledged; any other call is repeated until the server
// is ready.
bool Ends(const Opened& request, const Opened& reply) {
  if (const auto* const pull = dynamic_cast<const v1::PullReply*>(reply.header.get())) return pull->ready();
  if (const auto* const norms = dynamic_cast<const v1::NormsReply*>(reply.header.get())) return norms->ready();
  if (const auto* const exchange = dynamic_cast<const v1::ExchangeReply*>(reply.header.get())) {
    return exchange->ready() || IsContribution(request);
  }
  return true;
}

bool RunsAhead() {
  char name[16] = "";
  pthread_getname_np(pthread_self(), name, sizeof name);
  return std::string_view(name) == kAheadThread;
}

uint64_t Chain(uint64_t hash, uint64_t next) {
  const uint64_t both[] = {hash, next};
  return StableHash(both, sizeof both);
}

std::string Hex(uint64_t hash) { return absl::StrCat(absl::Hex(hash, absl::kZeroPad16)); }

}  // namespace

class CallRecord::Recorder : public Transport {
 public:
  Recorder(std::shared_ptr<CallRecord> record, int trainer, Transport* inner)
      : record_(std::move(record)), trainer_(trainer), inner_(*inner) {}
  void Call(int server, Method method, Slices request, absl::Duration timeout, ReplyCallback done) override {
    record_->Call(trainer_, &inner_, server, method, std::move(request), timeout, std::move(done));
  }
  std::string Describe(int server) const override { return inner_.Describe(server); }
  int servers() const override { return inner_.servers(); }

 private:
  const std::shared_ptr<CallRecord> record_;
  const int trainer_;
  Transport& inner_;
};

std::unique_ptr<Transport> CallRecord::Between(int trainer, Transport* inner) {
  return std::make_unique<Recorder>(shared_from_this(), trainer, inner);
}

void CallRecord::HoldPush(int trainer, int64_t step) {
  if (step + 1 >= options_.prefetched_steps) return;  // no rows are prefetched behind the last step
  const absl::Time end = absl::Now() + absl::Seconds(60);
  MutexLock lock(&mu_);
  // The rows of steps 0 to step + 1, one call per server and step.
  while (rows_ahead_[trainer] < options_.servers * (step + 2)) {
    if (absl::Now() > end) {
      absl::StrAppend(&malformed_, "step ", step, ": no rows were prefetched for the next step\n");
      return;
    }
    changed_.WaitWithTimeout(&mu_, absl::Milliseconds(100));
  }
}

void CallRecord::Call(int trainer, Transport* inner, int server, Method method, Slices request, absl::Duration timeout,
                      ReplyCallback done) {
  const std::string bytes = Flatten(request);
  auto asked = std::make_shared<Opened>(Open(method, /*request=*/true, bytes));
  const auto* const heartbeat = dynamic_cast<const v1::HeartbeatRequest*>(asked->header.get());
  if (heartbeat != nullptr && !heartbeat->done()) {
    return inner->Call(server, method, std::move(request), timeout, std::move(done));
  }
  const auto* const push = dynamic_cast<const v1::PushRequest*>(asked->header.get());
  if (push != nullptr) HoldPush(trainer, push->step());
  const bool ahead = RunsAhead();
  const Key key = {trainer, server, std::string(MethodName(method)) + (ahead ? " ahead" : "")};
  const auto message = [this](Opened* opened) {
    ClearFields(opened->header.get(), options_.trainers > 1);
    const std::string header = opened->header->SerializeAsString();
    return Message{.bytes = header.size() + opened->payload.size(),
                   .hash = Chain(StableHash(header), StableHash(opened->payload)),
                   .text = TextOf(*opened->header)};
  };
  {
    MutexLock lock(&mu_);
    if (!asked->malformed.empty()) {
      absl::StrAppend(&malformed_, std::get<2>(key), " request: ", asked->malformed, "\n");
    }
    Entry*& entry = open_[{key, bytes}];
    if (entry == nullptr) {
      entry = &entries_[key].emplace_back();
      entry->step = steps_[trainer];
      entry->request = message(asked.get());
      // A step counts as pushed when its last part goes to the first server.
      if (push != nullptr && push->has_part_count() && server == 0) ++steps_[trainer];
    }
  }
  inner->Call(server, method, std::move(request), timeout,
              [record = shared_from_this(), key, bytes, asked, method, ahead, message,
               done = std::move(done)](absl::StatusOr<Slices> answer) {
                if (answer.ok()) {
                  Opened reply = Open(method, /*request=*/false, Flatten(*answer));
                  MutexLock lock(&record->mu_);
                  const auto open = record->open_.find({key, bytes});
                  if (open != record->open_.end() && Ends(*asked, reply)) {
                    if (!reply.malformed.empty()) {
                      absl::StrAppend(&record->malformed_, std::get<2>(key), " reply: ", reply.malformed, "\n");
                    }
                    // Whether all contributions are there depends on the other trainers.
                    if (IsContribution(*asked)) static_cast<v1::ExchangeReply*>(reply.header.get())->clear_ready();
                    open->second->reply = message(&reply);
                    open->second->answered = true;
                    record->open_.erase(open);
                    if (ahead && method == Method::kPull) ++record->rows_ahead_[std::get<0>(key)];
                    record->changed_.SignalAll();
                  }
                }
                done(std::move(answer));
              });
}

std::vector<const CallRecord::Entry*> CallRecord::Ordered(const std::deque<Entry>& entries) const {
  std::vector<const Entry*> ordered;
  for (const Entry& entry : entries) {
    if (entry.answered) ordered.push_back(&entry);
  }
  if (!options_.any_order_in_step) return ordered;
  std::stable_sort(ordered.begin(), ordered.end(), [](const Entry* a, const Entry* b) {
    return std::tie(a->step, a->request.hash, a->reply.hash) < std::tie(b->step, b->request.hash, b->reply.hash);
  });
  return ordered;
}

std::string CallRecord::Summary() const {
  MutexLock lock(&mu_);
  std::string lines;
  for (const auto& [key, entries] : entries_) {
    const auto& [trainer, server, method] = key;
    Message requests, replies;
    const std::vector<const Entry*> ordered = Ordered(entries);
    for (const Entry* entry : ordered) {
      requests.bytes += entry->request.bytes;
      requests.hash = Chain(requests.hash, entry->request.hash);
      replies.bytes += entry->reply.bytes;
      replies.hash = Chain(replies.hash, entry->reply.hash);
    }
    if (ordered.empty()) continue;
    absl::StrAppend(&lines, "trainer ", trainer, " server ", server, " ", method, ": ", ordered.size(), " calls, ",
                    requests.bytes, " bytes ", Hex(requests.hash), ", replies ", replies.bytes, " bytes ",
                    Hex(replies.hash), "\n");
  }
  return lines;
}

std::string CallRecord::Calls() const {
  MutexLock lock(&mu_);
  std::string lines;
  for (const auto& [key, entries] : entries_) {
    const auto& [trainer, server, method] = key;
    int index = 0;
    for (const Entry* entry : Ordered(entries)) {
      absl::StrAppend(&lines, "trainer ", trainer, " server ", server, " ", method, " ", index++, ": ",
                      entry->request.bytes, " bytes ", Hex(entry->request.hash), " {", entry->request.text, "} -> ",
                      entry->reply.bytes, " bytes ", Hex(entry->reply.hash), " {", entry->reply.text, "}\n");
    }
  }
  return lines;
}

std::string CallRecord::Malformed() const {
  MutexLock lock(&mu_);
  return malformed_;
}

}  // namespace weir
