#include "framework/collective/local_mesh.h"

#include <cstring>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "framework/base/clock.h"
#include "framework/base/stable_hash.h"
#include "glog/logging.h"

namespace weir {

struct LocalMeshes::Message {
  const void* from = nullptr;
  void* to = nullptr;
  size_t bytes = 0;            // of a receiver of any size: the most
  std::string* any = nullptr;  // of such a receiver
  // Guarded by LocalMeshes::mu_.
  bool done = false;
  CondVar ended;
};

class LocalMeshes::RankMesh : public Mesh {
  static std::shared_ptr<Message> MessageOf(const void* from, void* to, size_t bytes) {
    auto message = std::make_shared<Message>();
    message->from = from;
    message->to = to;
    message->bytes = bytes;
    return message;
  }

 public:
  RankMesh(LocalMeshes* all, int rank) : all_(*all), rank_(rank) {}

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(all_.meshes_.size()); }
  std::string Describe(int rank) const override { return absl::StrCat("trainer ", rank); }

  std::unique_ptr<Transfer> Send(int peer, uint64_t tag, const void* data, size_t bytes) override {
    all_.sent_[static_cast<size_t>(rank_)] += static_cast<int64_t>(bytes);
    return Begin({rank_, peer, tag}, /*sends=*/true, MessageOf(data, nullptr, bytes));
  }
  std::unique_ptr<Transfer> Receive(int peer, uint64_t tag, void* data, size_t bytes) override {
    return Begin({peer, rank_, tag}, /*sends=*/false, MessageOf(nullptr, data, bytes));
  }
  bool TakesAnySize() const override { return all_.takes_any_size_; }
  std::unique_ptr<Transfer> ReceiveAny(int peer, uint64_t tag, size_t most, std::string* bytes) override {
    std::shared_ptr<Message> message = MessageOf(nullptr, nullptr, most);
    message->any = bytes;
    return Begin({peer, rank_, tag}, /*sends=*/false, std::move(message));
  }
  void Abort(const absl::Status& status) override {
    MutexLock lock(&all_.mu_);
    if (all_.failure_.ok()) all_.failure_ = EndOfMesh(status);
    for (auto* open : {&all_.sends_, &all_.receives_}) {
      for (const auto& [key, message] : *open) message->ended.SignalAll();
    }
  }

 private:
  class LocalTransfer : public Transfer {
   public:
    LocalTransfer(LocalMeshes* all, Key key, bool sends, std::shared_ptr<Message> message, absl::Time not_before)
        : all_(*all), key_(key), sends_(sends), message_(std::move(message)), not_before_(not_before) {}
    ~LocalTransfer() override {
      MutexLock lock(&all_.mu_);
      if (message_->done) return;
      ++all_.given_up_;
      auto& open = sends_ ? all_.sends_ : all_.receives_;
      open.erase(key_);
    }

    absl::Status Wait(absl::Duration timeout) override {
      const absl::Time end = Clock::Real()->Now() + timeout;
      absl::SleepFor(std::min(timeout, not_before_ - Clock::Real()->Now()));
      MutexLock lock(&all_.mu_);
      while (!message_->done) {
        if (!all_.failure_.ok()) return all_.failure_;
        if (message_->ended.WaitWithTimeout(&all_.mu_, end - Clock::Real()->Now()) && !message_->done) {
          return absl::DeadlineExceededError("");
        }
      }
      return absl::OkStatus();
    }

   private:
    LocalMeshes& all_;
    const Key key_;
    const bool sends_;
    const std::shared_ptr<Message> message_;
    const absl::Time not_before_;
  };

  bool IsCut(int rank) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(all_.mu_) {
    const auto r = static_cast<size_t>(rank);
    return all_.sent_[r] > all_.cut_at_[r];
  }

  static void Copy(const Message& from, Message* to) {
    if (to->any != nullptr) {
      CHECK_LE(from.bytes, to->bytes);
      to->any->assign(static_cast<const char*>(from.from), from.bytes);
      return;
    }
    CHECK_EQ(from.bytes, to->bytes);
    if (from.bytes > 0) std::memcpy(to->to, from.from, from.bytes);
  }

  std::unique_ptr<Transfer> Begin(const Key& key, bool sends, std::shared_ptr<Message> message) {
    absl::Time not_before = absl::InfinitePast();
    if (all_.shuffle_ != 0) {
      const uint64_t draw[] = {all_.shuffle_, ++all_.messages_};
      const uint64_t hash = StableHash(draw, sizeof(draw));
      if (hash % 8 == 0) not_before = Clock::Real()->Now() + absl::Microseconds(static_cast<int64_t>(hash >> 32 & 511));
    }
    MutexLock lock(&all_.mu_);
    auto& own = sends ? all_.sends_ : all_.receives_;
    auto& others = sends ? all_.receives_ : all_.sends_;
    const auto other = IsCut(std::get<0>(key)) || IsCut(std::get<1>(key)) ? others.end() : others.find(key);
    if (other == others.end()) {
      CHECK(own.emplace(key, message).second) << "a tag is used twice";
    } else {
      Message& theirs = *other->second;
      Copy(sends ? *message : theirs, sends ? &theirs : message.get());
      message->done = theirs.done = true;
      theirs.ended.SignalAll();
      others.erase(other);
    }
    return std::make_unique<LocalTransfer>(&all_, key, sends, std::move(message), not_before);
  }

  LocalMeshes& all_;
  const int rank_;
};

LocalMeshes::LocalMeshes(int ranks, uint64_t shuffle) : shuffle_(shuffle), sent_(static_cast<size_t>(ranks)) {
  {
    MutexLock lock(&mu_);
    cut_at_.assign(static_cast<size_t>(ranks), std::numeric_limits<int64_t>::max());
  }
  for (int r = 0; r < ranks; ++r) meshes_.push_back(std::make_unique<RankMesh>(this, r));
}

LocalMeshes::~LocalMeshes() = default;

int64_t LocalMeshes::sent(int rank) const { return sent_[static_cast<size_t>(rank)]; }

void LocalMeshes::Cut(int rank, int64_t sent_bytes) {
  MutexLock lock(&mu_);
  // A rank that has sent nothing is cut at once too.
  cut_at_[static_cast<size_t>(rank)] = sent_bytes - 1;
}

}  // namespace weir
