// Pushes of the trainers of a host, added, against those that each trainer would have sent by itself: the bits of the
// sums, and what a server is told beside them.
#include "pserver/host/merged_pushes.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "framework/base/counters.h"
#include "framework/base/exhausted.h"
#include "framework/base/stable_hash.h"
#include "framework/base/thread_pool.h"
#include "framework/runtime/lane_tree.h"
#include "framework/wire/checksum.h"
#include "framework/wire/codecs.h"
#include "framework/wire/frame.h"
#include "framework/wire/push_plan.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/parameter_server.pb.h"
#include "proto/plan.pb.h"
#include "pserver/client/block_placement.h"
#include "pserver/client/residuals.h"
#include "pserver/host/host_group.h"
#include "pserver/protocol/merge_gradients.h"
#include "tests/testing/expect_status.h"
#include "tests/testing/hand_made_job.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

using Random = std::mt19937;

// Lanes of trainers: 3, 2, 2, 2, 2, 2.
constexpr int kTrainers = 6, kLanes = 13;
constexpr int64_t kLarge = 70000;  // elements of a block that leaves by itself

struct Gradient {
  const char* name;
  int width;      // 0: dense
  int64_t count;  // elements, or ids
};
constexpr Gradient kGradients[] = {{"b", 0, 5}, {"w", 0, 640}, {"e", 3, 30}, {"t", 4, 40}, {"u", 1, 40}};

// A tensor of a push: the sum of a node.
struct Sums {
  std::vector<int64_t> ids;
  std::vector<float> values, counts;
  bool empty() const { return values.empty(); }
};

bool IsCounted(const std::string& name) { return name == "t"; }

// Gradients are a function of step, lane and element. Some are -0.0, to which an absent one must not be added as zero.
float Noise(int64_t step, int lane, uint64_t what) {
  const uint64_t h = MixId(what + MixId(static_cast<uint64_t>(step) * 100 + static_cast<uint64_t>(lane)));
  if (h % 5 == 0) return -0.0F;
  return (static_cast<float>(h >> 40) / 16777216.0F - 0.5F) * (h % 7 == 0 ? 1e3F : h % 97 == 0 ? 1e6F : 1.0F);
}

// Returns nothing for some lanes and steps. Ids ascend by MixId, and many lanes have an id in common.
Sums OfLane(const Gradient& of, int64_t step, int lane) {
  Sums sums;
  const uint64_t seed = StableHash(of.name);
  if ((seed + static_cast<uint64_t>(step + lane)) % 4 == 0) return sums;
  if (of.width == 0) {
    for (int64_t k = 0; k < of.count; ++k) sums.values.push_back(Noise(step, lane, seed + static_cast<uint64_t>(k)));
    return sums;
  }
  std::map<uint64_t, int64_t> by_hash;
  for (int64_t id = 0; id < of.count; ++id) {
    const uint64_t mixed = MixId(static_cast<uint64_t>(id));
    if ((mixed + static_cast<uint64_t>(lane * 3 + step)) % 4 != 0) by_hash[mixed] = id;
  }
  for (const auto& [mixed, id] : by_hash) {
    sums.ids.push_back(id);
    for (int k = 0; k < of.width; ++k) {
      sums.values.push_back(Noise(step, lane, seed + static_cast<uint64_t>(id * 8 + k)));
    }
    if (IsCounted(of.name)) {
      sums.counts.insert(sums.counts.end(), {static_cast<float>(1 + lane % 3), static_cast<float>(lane % 2)});
    }
  }
  return sums;
}

// Adds sums of nodes, as a server does. Nothing if none has any.
Sums Add(const Gradient& of, const std::vector<std::pair<LaneRange, Sums>>& parts) {
  Sums sum;
  if (of.width == 0) {
    std::vector<DenseRun> runs;
    for (const auto& [node, part] : parts) {
      if (!part.empty()) runs.push_back({node, 0, part.values});
    }
    if (runs.empty()) return sum;
    sum.values.resize(static_cast<size_t>(of.count));
    EXPECT_TRUE(SumDense(runs, kLanes, absl::MakeSpan(sum.values)).ok());
    return sum;
  }
  std::vector<RowRun> values, counts;
  for (const auto& [node, part] : parts) {
    values.push_back({node, part.ids, part.values.data()});
    counts.push_back({node, part.ids, part.counts.data()});
  }
  MergedRows rows, counted;
  EXPECT_TRUE(MergeRows(values, of.width, 0, UINT64_MAX, &rows).ok());
  if (IsCounted(of.name)) {
    EXPECT_TRUE(MergeRows(counts, 2, 0, UINT64_MAX, &counted).ok());
  }
  sum.ids = rows.ids;
  for (const float* row : rows.grads) sum.values.insert(sum.values.end(), row, row + of.width);
  for (const float* row : counted.grads) sum.counts.insert(sum.counts.end(), row, row + 2);
  return sum;
}

// Returns what the lanes of a node have together.
Sums OfNode(const Gradient& of, int64_t step, const LaneRange& node) {
  std::vector<std::pair<LaneRange, Sums>> lanes;
  for (int l = node.begin; l < node.begin + node.count; ++l) lanes.push_back({{l, 1}, OfLane(of, step, l)});
  return Add(of, lanes);
}

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

struct Tensor {
  v1::PushItem item;
  std::string bytes;
};
struct Part {
  v1::PushRequest header;
  Slice payload;
};

std::string Bytes(const void* data, size_t size) { return {static_cast<const char*>(data), size}; }
std::string Padded(std::string bytes) {
  bytes.resize(AlignUp(bytes.size()));
  return bytes;
}

// Elements [begin, end) of a dense sum.
Tensor DenseTensor(const Gradient& of, const LaneRange& node, const Sums& sums, size_t begin, size_t end) {
  Tensor tensor;
  tensor.item.set_name(of.name);
  tensor.item.set_lane(node.begin);
  tensor.item.set_lanes(node.count);
  tensor.item.set_begin(static_cast<int64_t>(begin));
  tensor.item.set_count(static_cast<int64_t>(end - begin));
  tensor.bytes = Bytes(sums.values.data() + begin, (end - begin) * sizeof(float));
  return tensor;
}

// The rows of a sum at these places, in this order.
Tensor RowTensor(const Gradient& of, const LaneRange& node, const Sums& sums, const std::vector<size_t>& places) {
  Tensor tensor;
  tensor.item.set_name(of.name);
  tensor.item.set_lane(node.begin);
  tensor.item.set_lanes(node.count);
  tensor.item.set_width(of.width);
  tensor.item.set_count(static_cast<int64_t>(places.size()));
  if (IsCounted(of.name)) tensor.item.set_shows_and_clicks(true);
  std::string ids, values, counts;
  for (const size_t place : places) {
    const size_t width = static_cast<size_t>(of.width);
    ids += Bytes(&sums.ids[place], sizeof(int64_t));
    values += Bytes(&sums.values[place * width], width * sizeof(float));
    if (IsCounted(of.name)) counts += Bytes(&sums.counts[place * 2], 2 * sizeof(float));
  }
  tensor.bytes = Padded(ids) + (counts.empty() ? values : Padded(values) + counts);
  return tensor;
}

// Cuts what a trainer has of a step into tensors: dense blocks at any element, rows in any order.
std::vector<Tensor> TensorsOf(int trainer, int64_t step, Random* random) {
  std::vector<Tensor> tensors;
  for (const LaneRange& node : AlignedNodes(LanesOfTrainer(kLanes, kTrainers, trainer))) {
    for (const Gradient& of : kGradients) {
      const Sums sums = OfNode(of, step, node);
      if (sums.empty()) continue;
      const size_t count = of.width == 0 ? sums.values.size() : sums.ids.size(), cut = (*random)() % count;
      if (of.width == 0) {
        if (cut > 0) tensors.push_back(DenseTensor(of, node, sums, 0, cut));
        tensors.push_back(DenseTensor(of, node, sums, cut, count));
        continue;
      }
      std::vector<size_t> places(count);
      std::iota(places.begin(), places.end(), 0);
      if ((*random)() % 4 != 0) std::shuffle(places.begin(), places.end(), *random);
      const auto middle = places.begin() + static_cast<ptrdiff_t>(cut);
      tensors.push_back(RowTensor(of, node, sums, {places.begin(), middle}));
      tensors.push_back(RowTensor(of, node, sums, {middle, places.end()}));
    }
  }
  return tensors;
}

Part MakePart(int trainer, int64_t step, int part, const std::vector<Tensor>& tensors, BufferPool* buffers) {
  Part made;
  made.header.mutable_caller()->set_trainer(trainer);
  made.header.mutable_caller()->set_session(static_cast<uint64_t>(100 + trainer));
  made.header.set_step(step);
  made.header.set_part(part);
  std::string payload;
  for (const Tensor& tensor : tensors) {
    v1::PushItem* const item = made.header.add_items();
    *item = tensor.item;
    item->set_offset(static_cast<int64_t>(payload.size()));
    payload += Padded(tensor.bytes);
  }
  const WireBuffer buffer = buffers->Get(payload.size());
  std::memcpy(buffer.data, payload.data(), payload.size());
  made.payload = buffer.Piece(0, payload.size());
  made.header.set_checksum(Checksum({made.payload}));
  return made;
}

void MakeLast(int parts, Part* part) {
  part->header.set_part_count(parts);
  part->header.set_samples(10 + part->header.caller().trainer());
  part->header.set_read_version(part->header.step());
}

// Returns the parts of a trainer's step, the last one anywhere.
std::vector<Part> PartsOf(int trainer, int64_t step, Random* random, BufferPool* buffers) {
  std::vector<Tensor> tensors = TensorsOf(trainer, step, random);
  std::shuffle(tensors.begin(), tensors.end(), *random);
  const size_t parts = 1 + (*random)() % 4;
  std::vector<std::vector<Tensor>> of_part(parts);
  for (Tensor& tensor : tensors) of_part[(*random)() % parts].push_back(std::move(tensor));
  std::vector<Part> made;
  for (size_t p = 0; p < parts; ++p) made.push_back(MakePart(trainer, step, static_cast<int>(p), of_part[p], buffers));
  MakeLast(static_cast<int>(parts), &made.back());
  std::shuffle(made.begin(), made.end(), *random);
  return made;
}

Slices Acknowledgement(int64_t version) {
  v1::PushReply reply;
  reply.set_version(version);
  return EncodeFrame(reply.SerializeAsString(), {});
}

// A server that a test plays: keeps what comes, and answers at once or when the test says so.
class PlayedServer {
 public:
  struct Push {
    v1::PushRequest header;
    Slice payload;
    std::string bytes;
    ReplyCallback done;
  };
  // Answers of the pushes that come, in order. When there is none left, pushes are acknowledged, or held.
  std::deque<absl::Status> answers;
  bool holds = false;

  void Take(const Slices& request, ReplyCallback done) {
    absl::StatusOr<Frame> frame = DecodeFrame(request);
    ASSERT_TRUE(frame.ok());
    Push push;
    ASSERT_TRUE(push.header.ParseFromString(frame->header));
    push.bytes = Flatten(request);
    push.payload = CopyOf(frame->payload, &buffers_);
    EXPECT_EQ(push.header.checksum(), Checksum({push.payload}));
    absl::Status answer;
    bool held = false;
    {
      MutexLock lock(&mu_);
      held = answers.empty() && holds;
      if (held) push.done = done;
      if (!answers.empty()) {
        answer = answers.front();
        answers.pop_front();
      }
      pushes_.push_back(std::move(push));
    }
    if (held) return;
    if (answer.ok()) return done(Acknowledgement(7));
    done(answer);
  }
  // Answers a push that is held.
  void Answer(size_t push, const absl::Status& status) {
    ReplyCallback done;
    {
      MutexLock lock(&mu_);
      done = std::exchange(pushes_[push].done, nullptr);
    }
    if (status.ok()) return done(Acknowledgement(7));
    done(status);
  }
  std::vector<Push> pushes() {
    MutexLock lock(&mu_);
    return pushes_;
  }
  std::vector<Push> TakePushes() {
    MutexLock lock(&mu_);
    return std::exchange(pushes_, {});
  }

 private:
  BufferPool buffers_;
  Mutex mu_;
  std::vector<Push> pushes_ ABSL_GUARDED_BY(mu_);
};

// Answer of the relay to a part.
class Reply {
 public:
  void Set(const absl::StatusOr<Slices>& answer) {
    MutexLock lock(&mu_);
    EXPECT_FALSE(status_.has_value()) << "answered twice";
    status_ = answer.status();
    if (answer.ok()) {
      const absl::StatusOr<Frame> frame = DecodeFrame(*answer);
      EXPECT_TRUE(frame.ok() && reply_.ParseFromString(frame->header));
    }
    set_.SignalAll();
  }
  bool has() {
    MutexLock lock(&mu_);
    return status_.has_value();
  }
  absl::Status status() {
    MutexLock lock(&mu_);
    return status_.value_or(absl::UnknownError("no answer yet"));
  }
  bool duplicate() {
    MutexLock lock(&mu_);
    return reply_.duplicate();
  }
  // Waits for the answer.
  absl::Status Await() {
    MutexLock lock(&mu_);
    while (!status_.has_value()) {
      if (set_.WaitWithTimeout(&mu_, absl::Seconds(60))) return absl::DeadlineExceededError("no answer");
    }
    return *status_;
  }

 private:
  Mutex mu_;
  CondVar set_;
  std::optional<absl::Status> status_ ABSL_GUARDED_BY(mu_);
  v1::PushReply reply_ ABSL_GUARDED_BY(mu_);
};
using ReplyPtr = std::shared_ptr<Reply>;

class MergedPushesTest : public ::testing::Test {
 protected:
  void Begin(const std::vector<int>& members, v1::WireFormat format = v1::WIRE_FLOAT32) {
    plan_ = HandMadeJob{.trainers = kTrainers, .lanes = kLanes, .shows = true, .push = format}.Plan();
    v1::PlacedBlock* const large = plan_.add_blocks();
    large->set_name("large");
    large->add_dims(kLarge);
    large->set_element_count(kLarge);
    placement_ = std::make_unique<BlockPlacement>(&plan_);
    group_ = MakeHostGroup(kLanes, kTrainers, members, {true});
    residuals_.emplace();
    pushes_ = std::make_unique<MergedPushes>(MergedPushes::Options{
        .group = &group_,
        .placement = placement_.get(),
        .residuals = &*residuals_,
        .buffers = &buffers_,
        .pool = &pool_,
        .merged = counters_.Get("merged", "steps"),
        .checksums = true,
        .caller =
            [this] {
              v1::Caller caller;
              caller.set_trainer(group_.sender());
              caller.set_session(5);
              return caller;
            },
        .send = [this](const Slices& request, ReplyCallback done) { server_.Take(request, std::move(done)); }});
  }
  ReplyPtr Push(const Part& part) {
    auto reply = std::make_shared<Reply>();
    pushes_->Handle(part.header, part.payload, [reply](const absl::StatusOr<Slices>& answer) { reply->Set(answer); });
    return reply;
  }
  // Returns the parts of a trainer that brings one tensor, or none.
  Part Only(int trainer, const std::vector<Tensor>& tensors = {}, int64_t step = 0) {
    Part part = MakePart(trainer, step, 0, tensors, &buffers_);
    MakeLast(1, &part);
    return part;
  }
  static LaneRange NodeOf(int trainer) { return AlignedNodes(LanesOfTrainer(kLanes, kTrainers, trainer))[0]; }

  // Returns what came of one tensor and node in all parts of a step.
  Sums Received(const std::vector<PlayedServer::Push>& parts, const Gradient& of, const LaneRange& node) const {
    Sums sums;
    for (const PlayedServer::Push& part : parts) {
      for (const v1::PushItem& item : part.header.items()) {
        if (item.name() != of.name || !(LaneRange{item.lane(), item.lanes()} == node)) continue;
        EXPECT_EQ(item.begin(), static_cast<int64_t>(of.width == 0 ? sums.values.size() : 0)) << "twice";
        const char* const at = part.payload.data + item.offset();
        const size_t n = static_cast<size_t>(item.count());
        if (of.width == 0) {
          const float* const values = reinterpret_cast<const float*>(at);
          sums.values.insert(sums.values.end(), values, values + n);
          continue;
        }
        const PushRowLayout layout =
            PlanRowsPush(of.name, {node.begin, node.count}, n, {of.width, v1::WIRE_FLOAT32, IsCounted(of.name)}).layout;
        const int64_t* const ids = reinterpret_cast<const int64_t*>(at);
        const float* const values = reinterpret_cast<const float*>(at + layout.values_begin);
        sums.ids.insert(sums.ids.end(), ids, ids + n);
        sums.values.insert(sums.values.end(), values, values + n * static_cast<size_t>(of.width));
        if (!IsCounted(of.name)) continue;
        const float* const counts = reinterpret_cast<const float*>(at + layout.counts_begin);
        sums.counts.insert(sums.counts.end(), counts, counts + 2 * n);
      }
    }
    return sums;
  }
  // Expects that a server adds the merged push, and those of the other trainers, to what it adds to without merging.
  void ExpectSameSums(const std::vector<PlayedServer::Push>& parts, int64_t step) const {
    for (const Gradient& of : kGradients) {
      std::vector<std::pair<LaneRange, Sums>> apart, merged;
      for (int t = 0; t < kTrainers; ++t) {
        for (const LaneRange& node : AlignedNodes(LanesOfTrainer(kLanes, kTrainers, t))) {
          apart.push_back({node, OfNode(of, step, node)});
          if (group_.PlaceOf(t) < 0) merged.push_back(apart.back());
        }
      }
      for (const LaneRange& node : group_.nodes) merged.push_back({node, Received(parts, of, node)});
      const Sums expected = Add(of, apart), sums = Add(of, merged);
      EXPECT_EQ(sums.ids, expected.ids) << of.name << " step " << step;
      EXPECT_TRUE(SameBits(sums.values, expected.values)) << of.name << " step " << step;
      EXPECT_TRUE(SameBits(sums.counts, expected.counts)) << of.name << " step " << step;
    }
    for (const PlayedServer::Push& part : parts) {
      for (const v1::PushItem& item : part.header.items()) {
        const LaneRange node{item.lane(), item.lanes()};
        EXPECT_NE(std::find(group_.nodes.begin(), group_.nodes.end(), node), group_.nodes.end()) << item.name();
      }
    }
  }
  // Expects that the parts name the caller and the trainers merged with it, and end with one that counts them.
  void ExpectHeaders(const std::vector<PlayedServer::Push>& parts, int64_t step) const {
    std::vector<bool> seen(parts.size(), false);
    for (const PlayedServer::Push& part : parts) {
      const v1::PushRequest& header = part.header;
      EXPECT_EQ(header.caller().trainer(), group_.sender());
      EXPECT_EQ(header.caller().session(), 5u);
      EXPECT_EQ(header.step(), step);
      ASSERT_LT(static_cast<size_t>(header.part()), parts.size());
      EXPECT_FALSE(seen[static_cast<size_t>(header.part())]);
      seen[static_cast<size_t>(header.part())] = true;
      ASSERT_EQ(header.merged_size(), static_cast<int>(group_.trainers.size()) - 1);
      const bool last = header.part() + 1 == static_cast<int>(parts.size());
      EXPECT_EQ(header.has_part_count(), last);
      for (size_t i = 1; i < group_.trainers.size(); ++i) {
        const v1::MergedTrainer& merged = header.merged(static_cast<int>(i) - 1);
        EXPECT_EQ(merged.trainer(), group_.trainers[i]);
        EXPECT_EQ(merged.session(), static_cast<uint64_t>(100 + group_.trainers[i]));
        EXPECT_EQ(merged.samples(), last ? 10 + group_.trainers[i] : 0);
      }
      EXPECT_EQ(header.samples(), last ? 10 + group_.sender() : 0);
    }
  }
  // Expects that each merged sum is encoded as `reference` encodes it, and has its residual.
  void ExpectEncoded(const std::vector<PlayedServer::Push>& parts, int64_t step, v1::WireFormat format,
                     Residuals* reference) {
    std::map<std::tuple<std::string, int, int>, std::pair<v1::PushItem, std::string>> items;
    for (const PlayedServer::Push& part : parts) {
      for (const v1::PushItem& item : part.header.items()) {
        EXPECT_EQ(item.format(), format);
        const size_t n = static_cast<size_t>(item.count()) * static_cast<size_t>(std::max(1, item.width()));
        const size_t group = item.width() > 0 ? static_cast<size_t>(item.width()) : kDenseGroup;
        const size_t ids = item.width() > 0 ? AlignUp(static_cast<size_t>(item.count()) * sizeof(int64_t)) : 0;
        const auto [place, added] =
            items.try_emplace({item.name(), item.lane(), item.lanes()}, item,
                              std::string(part.payload.data + item.offset() + ids, EncodedBytes(format, n, group)));
        EXPECT_TRUE(added) << item.name();
      }
    }
    for (const Gradient& of : kGradients) {
      for (const LaneRange& node : group_.nodes) {
        Sums sums = OfNode(of, step, node);
        const auto found = items.find({of.name, node.begin, node.count});
        ASSERT_EQ(found == items.end(), sums.empty()) << of.name;
        if (sums.empty()) continue;
        const WireBuffer out = buffers_.Get(sums.values.size() * sizeof(float) + 4096);
        const absl::Span<float> values = absl::MakeSpan(sums.values);
        const std::string exponents =
            of.width == 0 ? reference->EncodeDense(of.name, node, of.count, 0, values, format, out.data)
                          : reference->EncodeRows(of.name, node, of.width, sums.ids, nullptr, values, format, out.data);
        const auto& [item, bytes] = found->second;
        EXPECT_EQ(item.exponents(), exponents) << of.name;
        EXPECT_EQ(bytes, std::string(out.data, bytes.size())) << of.name << " step " << step;
      }
    }
    reference->Keep();
    residuals_->Keep();
  }

  v1::Plan plan_;
  std::unique_ptr<BlockPlacement> placement_;
  HostGroup group_;
  std::optional<Residuals> residuals_;
  BufferPool buffers_;
  ThreadPool pool_{"compute", 2};
  Counters counters_;
  PlayedServer server_;
  std::unique_ptr<MergedPushes> pushes_;
};

// Groups of adjacent trainers, of some that are not, and of all.
const std::vector<int> kGroups[] = {{0, 1}, {1, 2, 3}, {0, 2, 5}, {3, 5}, {0, 1, 2, 3, 4, 5}};

TEST_F(MergedPushesTest, TheSumsAreThoseOfSeparatePushesInWhateverOrderPartsCome) {
  Random random(1);
  for (const std::vector<int>& members : kGroups) {
    Begin(members);
    for (int64_t step = 0; step < 4; ++step) {
      std::vector<Part> parts;
      for (const int trainer : members) {
        for (Part& part : PartsOf(trainer, step, &random, &buffers_)) parts.push_back(std::move(part));
      }
      std::shuffle(parts.begin(), parts.end(), random);
      std::vector<ReplyPtr> replies;
      for (const Part& part : parts) replies.push_back(Push(part));
      for (const ReplyPtr& reply : replies) EXPECT_TRUE(reply->status().ok()) << reply->status();
      const std::vector<PlayedServer::Push> sent = server_.TakePushes();
      ExpectHeaders(sent, step);
      ExpectSameSums(sent, step);
    }
    EXPECT_EQ(counters_.Value("merged"), 4 * static_cast<int64_t>(members.size()));
    counters_.Get("merged", "steps")->Add(-counters_.Value("merged"));
  }
}

// Each trainer is a thread that repeats what fails, and so does the server's answer come late, wrong or at once.
TEST_F(MergedPushesTest, TheSumsAreThoseOfSeparatePushesFromSeveralThreads) {
  for (const std::vector<int>& members : kGroups) {
    Begin(members);
    for (int64_t step = 0; step < 5; ++step) {
      for (int i = 0; i < 3; ++i) server_.answers.push_back(absl::UnavailableError("try again"));
      std::vector<std::thread> threads;
      for (const int trainer : members) {
        threads.push_back(StartThread("trainer", [this, trainer, step] {
          Random random(static_cast<unsigned>(trainer * 1000 + step));
          std::vector<std::pair<Part, ReplyPtr>> calls;
          for (const Part& part : PartsOf(trainer, step, &random, &buffers_)) calls.push_back({part, Push(part)});
          for (auto& [part, reply] : calls) {
            absl::Status status = reply->Await();
            for (int tries = 0; absl::IsUnavailable(status) && tries < 100; ++tries) status = Push(part)->Await();
            EXPECT_TRUE(status.ok()) << status;
          }
        }));
      }
      for (std::thread& thread : threads) thread.join();
      std::map<int, PlayedServer::Push> by_part;
      for (const PlayedServer::Push& push : server_.TakePushes()) {
        const auto [place, added] = by_part.try_emplace(push.header.part(), push);
        EXPECT_EQ(place->second.bytes, push.bytes) << "a part that is repeated is another one";
      }
      std::vector<PlayedServer::Push> sent;
      for (auto& [number, push] : by_part) sent.push_back(std::move(push));
      ExpectHeaders(sent, step);
      ExpectSameSums(sent, step);
      server_.answers.clear();
    }
  }
}

TEST_F(MergedPushesTest, SumsAreEncodedOnceAndWhatThatLosesIsSentInTheNextStep) {
  Random random(2);
  for (const v1::WireFormat format : {v1::WIRE_FLOAT16, v1::WIRE_BFLOAT16, v1::WIRE_INT8}) {
    for (const std::vector<int>& members : {kGroups[1], kGroups[2]}) {
      Begin(members, format);
      Residuals reference;
      for (int64_t step = 0; step < 4; ++step) {
        for (const int trainer : members) {
          for (const Part& part : PartsOf(trainer, step, &random, &buffers_)) Push(part);
        }
        ExpectEncoded(server_.TakePushes(), step, format, &reference);
      }
    }
  }
}

// The block is there before any trainer has said that its step is complete.
TEST_F(MergedPushesTest, ADenseBlockLeavesOnceAsSoonAsEachTrainerHasBroughtIt) {
  Begin({0, 1});
  const Gradient large = {"large", 0, kLarge};
  const auto tensors = [&](int trainer) {
    std::vector<Tensor> all;
    for (const LaneRange& node : AlignedNodes(LanesOfTrainer(kLanes, kTrainers, trainer))) {
      Sums sums;
      sums.values.assign(kLarge, static_cast<float>(trainer + 1));
      all.push_back(DenseTensor(large, node, sums, 0, 1000));
      all.push_back(DenseTensor(large, node, sums, 1000, kLarge));
    }
    return all;
  };
  std::vector<Tensor> of_second = tensors(1);
  EXPECT_TRUE(Push(MakePart(0, 0, 0, tensors(0), &buffers_))->status().ok());
  const Tensor rest = of_second.back();
  of_second.pop_back();
  EXPECT_TRUE(Push(MakePart(1, 0, 0, of_second, &buffers_))->status().ok());
  EXPECT_THAT(server_.pushes(), IsEmpty());
  EXPECT_TRUE(Push(MakePart(1, 0, 1, {rest}, &buffers_))->status().ok());
  // Lanes 0 to 3 and 4.
  ASSERT_THAT(server_.pushes(), SizeIs(1));
  EXPECT_EQ(server_.pushes()[0].header.items_size(), 2);
  EXPECT_FALSE(server_.pushes()[0].header.has_part_count());
  Part first = MakePart(0, 0, 1, {}, &buffers_), second = MakePart(1, 0, 2, {}, &buffers_);
  MakeLast(2, &first);
  MakeLast(3, &second);
  const ReplyPtr reply = Push(first);
  EXPECT_FALSE(reply->has());
  EXPECT_TRUE(Push(second)->status().ok());
  EXPECT_TRUE(reply->status().ok());
  const std::vector<PlayedServer::Push> sent = server_.pushes();
  ExpectHeaders(sent, 0);
  // Nodes {0, 2} and {2, 1} of trainer 0, {3, 1} and {4, 1} of trainer 1.
  EXPECT_EQ(Received(sent, large, {0, 4}).values, std::vector<float>(kLarge, 4));
  EXPECT_EQ(Received(sent, large, {4, 1}).values, std::vector<float>(kLarge, 2));
}

TEST_F(MergedPushesTest, TheLastPartSaysOfEachTrainerWhatItHasSaid) {
  Begin({0, 2, 3});
  std::map<int, Part> last;
  for (const int trainer : {0, 2, 3}) last[trainer] = Only(trainer);
  last[0].header.set_first_samples(20);
  last[0].header.set_verdict(v1::END);
  last[2].header.set_verdict(v1::SKIP);
  last[2].header.set_stop_requested(false);
  last[3].header.set_first_samples(23);
  last[3].header.set_stop_requested(true);
  // Not a trainer's to say.
  last[0].header.add_merged()->set_trainer(5);
  for (const int trainer : {3, 0, 2}) Push(last[trainer]);
  ASSERT_THAT(server_.pushes(), SizeIs(1));
  ExpectHeaders(server_.pushes(), 0);
  const v1::PushRequest header = server_.pushes()[0].header;
  EXPECT_EQ(header.first_samples(), 20);
  EXPECT_EQ(header.verdict(), v1::END);
  EXPECT_FALSE(header.stop_requested());
  EXPECT_EQ(header.read_version(), 0);
  EXPECT_EQ(header.merged(0).verdict(), v1::SKIP);
  EXPECT_FALSE(header.merged(0).stop_requested());
  EXPECT_FALSE(header.merged(0).has_first_samples());
  EXPECT_EQ(header.merged(1).verdict(), v1::APPLY);
  EXPECT_TRUE(header.merged(1).stop_requested());
  EXPECT_EQ(header.merged(1).first_samples(), 23);
}

// A part that leaves early for a step of trainers 0 and 1, in which nobody has said that it is complete.
class EarlyPartTest : public MergedPushesTest {
 protected:
  void BeginWithEarlyPart() {
    Begin({0, 1});
    for (const int trainer : {0, 1}) {
      std::vector<Tensor> tensors;
      for (const LaneRange& node : AlignedNodes(LanesOfTrainer(kLanes, kTrainers, trainer))) {
        Sums sums;
        sums.values.assign(kLarge, 1);
        tensors.push_back(DenseTensor({"large", 0, kLarge}, node, sums, 0, kLarge));
      }
      ASSERT_TRUE(Push(MakePart(trainer, 0, 0, tensors, &buffers_))->status().ok());
    }
    ASSERT_THAT(server_.pushes(), SizeIs(1));
  }
  Part Last(int trainer) {
    Part part = MakePart(trainer, 0, 1, {}, &buffers_);
    MakeLast(2, &part);
    return part;
  }
};

TEST_F(EarlyPartTest, AnAcknowledgementThatComesLateIsWaitedFor) {
  server_.holds = true;
  BeginWithEarlyPart();
  const ReplyPtr first = Push(Last(0)), second = Push(Last(1));
  ASSERT_THAT(server_.pushes(), SizeIs(2));
  server_.Answer(1, absl::OkStatus());
  EXPECT_FALSE(first->has() || second->has());
  server_.Answer(0, absl::OkStatus());
  EXPECT_TRUE(first->status().ok());
  EXPECT_TRUE(second->status().ok());
}

TEST_F(EarlyPartTest, APartThatIsRefusedIsRepeatedWhenATrainerRepeatsItsOwn) {
  server_.holds = true;
  BeginWithEarlyPart();
  const ReplyPtr first = Push(Last(0)), second = Push(Last(1));
  server_.Answer(1, absl::OkStatus());
  server_.Answer(0, absl::UnavailableError("server 3 restarts"));
  // Of a server, for both.
  EXPECT_STATUS(first->status(), kUnavailable, "server 3 restarts");
  EXPECT_STATUS(second->status(), kUnavailable, "server 3 restarts");
  const ReplyPtr again = Push(Last(1));
  EXPECT_FALSE(again->has());
  ASSERT_THAT(server_.pushes(), SizeIs(3));
  EXPECT_EQ(server_.pushes()[2].bytes, server_.pushes()[0].bytes);
  server_.Answer(2, absl::OkStatus());
  EXPECT_TRUE(again->status().ok());
  // The other one comes after the end of the step.
  const ReplyPtr late = Push(Last(0));
  EXPECT_TRUE(late->status().ok());
  EXPECT_TRUE(late->duplicate());
  EXPECT_THAT(server_.pushes(), SizeIs(3));
}

// Its acknowledgement comes before the last part is packed: the step is not over.
TEST_F(EarlyPartTest, APartThatFailedBeforeTheLastIsRepeatedWithItAndDoesNotEndTheStep) {
  server_.answers = {absl::UnavailableError("not yet"), absl::OkStatus(), absl::UnavailableError("not yet either")};
  BeginWithEarlyPart();
  const ReplyPtr first = Push(Last(0)), second = Push(Last(1));
  ASSERT_THAT(server_.pushes(), SizeIs(3));
  EXPECT_EQ(server_.pushes()[1].bytes, server_.pushes()[0].bytes);
  EXPECT_TRUE(server_.pushes()[2].header.has_part_count());
  EXPECT_STATUS(first->status(), kUnavailable, "not yet either");
  EXPECT_STATUS(second->status(), kUnavailable, "not yet either");
  EXPECT_TRUE(Push(Last(0))->status().ok());
  ASSERT_THAT(server_.pushes(), SizeIs(4));
  EXPECT_EQ(server_.pushes()[3].bytes, server_.pushes()[2].bytes);
}

TEST_F(MergedPushesTest, AnErrorOfTheServerReachesEachTrainer) {
  Begin({0, 1, 2});
  server_.answers = {absl::InvalidArgumentError("the server's text")};
  std::vector<ReplyPtr> replies;
  for (const int trainer : {0, 1, 2}) replies.push_back(Push(Only(trainer)));
  for (const ReplyPtr& reply : replies) EXPECT_STATUS(reply->status(), kInvalidArgument, "the server's text");
}

TEST_F(MergedPushesTest, ARepeatedPartCountsOnce) {
  Begin({0, 1});
  Random random(3);
  const Part first = MakePart(0, 0, 0, TensorsOf(0, 0, &random), &buffers_);
  Part last = MakePart(0, 0, 1, {}, &buffers_);
  MakeLast(2, &last);
  EXPECT_FALSE(Push(first)->duplicate());
  EXPECT_TRUE(Push(first)->duplicate());
  const ReplyPtr waits = Push(last), waits_too = Push(last);
  EXPECT_FALSE(waits->has() || waits_too->has());
  EXPECT_TRUE(Push(Only(1, TensorsOf(1, 0, &random)))->status().ok());
  EXPECT_TRUE(waits->status().ok());
  EXPECT_TRUE(waits_too->status().ok());
  for (const Part& part : {first, last}) EXPECT_TRUE(Push(part)->duplicate()) << "after the end of the step";
  ExpectSameSums(server_.pushes(), 0);
}

TEST_F(MergedPushesTest, TheNextStepBeginsAfterTheLastAcknowledgement) {
  Begin({0, 1});
  server_.holds = true;
  const ReplyPtr first = Push(Only(0));
  EXPECT_STATUS(Push(Only(0, {}, 1))->status(), kFailedPrecondition,
                "trainer 0 pushes step 1 while step 0 of its host is not over");
  Push(Only(1));
  server_.Answer(0, absl::OkStatus());
  EXPECT_TRUE(first->status().ok());
  Push(Only(0, {}, 1));
  Push(Only(1, {}, 1));
  EXPECT_EQ(server_.pushes().back().header.step(), 1);
}

// What a trainer's part says that no part may say, and the text it gets.
struct Wrong {
  std::function<void(Part*)> edit;
  absl::StatusCode code;
  std::string text;
};

TEST_F(MergedPushesTest, PartsWithoutSenseAreRefused) {
  Begin({0, 2});
  const LaneRange node = NodeOf(2);
  const Gradient &w = kGradients[1], &t = kGradients[3];
  Sums dense, rows;
  dense.values.assign(640, 1);
  for (int64_t id = 0; id < 10; ++id) rows.ids.push_back(id);
  rows.values.assign(40, 1);
  rows.counts.assign(20, 1);
  const Part of_dense = Only(2, {DenseTensor(w, node, dense, 0, 640)});
  const Part of_rows = Only(2, {RowTensor(t, node, rows, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9})});
  const auto item = [](Part* part) { return part->header.mutable_items(0); };
  const std::string elements = "push of w: elements that the block or the payload does not have";
  const std::string no_rows = "push of t: rows that the plan or the payload does not have";
  const std::string place = "a node of other lanes, a lossy format, or a place outside the payload";
  const std::vector<Wrong> wrong_dense = {
      {[&](Part* p) { item(p)->set_begin(1); }, absl::StatusCode::kInvalidArgument, elements},
      {[&](Part* p) { item(p)->set_begin(-1); }, absl::StatusCode::kInvalidArgument, elements},
      {[&](Part* p) { item(p)->set_begin(INT64_MAX); }, absl::StatusCode::kInvalidArgument, elements},
      {[&](Part* p) { item(p)->set_count(0); }, absl::StatusCode::kInvalidArgument, elements},
      {[&](Part* p) { item(p)->set_count(INT64_MAX); }, absl::StatusCode::kInvalidArgument, elements},
      {[&](Part* p) { item(p)->set_offset(64); }, absl::StatusCode::kInvalidArgument, elements},
      {[&](Part* p) { item(p)->set_name("x"); }, absl::StatusCode::kInvalidArgument, "push of x: elements"},
      {[&](Part* p) { item(p)->set_offset(4); }, absl::StatusCode::kInvalidArgument, place},
      {[&](Part* p) { item(p)->set_offset(-64); }, absl::StatusCode::kInvalidArgument, place},
      {[&](Part* p) { item(p)->set_offset(1 << 20); }, absl::StatusCode::kInvalidArgument, place},
      {[&](Part* p) { item(p)->set_format(v1::WIRE_INT8); }, absl::StatusCode::kInvalidArgument, place},
      {[&](Part* p) { item(p)->set_lane(0); }, absl::StatusCode::kInvalidArgument, place},
      {[&](Part* p) { item(p)->set_lanes(0); }, absl::StatusCode::kInvalidArgument, place},
      {[&](Part* p) { p->header.set_checksum(1); }, absl::StatusCode::kDataLoss, "the payload's checksum"},
      {[&](Part* p) { p->header.mutable_caller()->set_trainer(1); }, absl::StatusCode::kInvalidArgument,
       "trainer 1, step 0, part 0: none of this host's, or out of range"},
      {[&](Part* p) { p->header.set_part(-1); }, absl::StatusCode::kInvalidArgument, "part -1: none of"},
      {[&](Part* p) { p->header.set_part(1 << 20); }, absl::StatusCode::kInvalidArgument, "or out of range"},
      {[&](Part* p) { p->header.set_step(-1); }, absl::StatusCode::kInvalidArgument, "step -1, part 0: none of"},
      {[&](Part* p) { p->header.set_part_count(2); }, absl::StatusCode::kInvalidArgument,
       "trainer 2, step 0: part 0 contradicts the number of its parts"},
  };
  const std::vector<Wrong> wrong_rows = {
      {[&](Part* p) { item(p)->set_width(3); }, absl::StatusCode::kInvalidArgument, no_rows},
      {[&](Part* p) { item(p)->set_name("b"); }, absl::StatusCode::kInvalidArgument, "push of b: rows that"},
      {[&](Part* p) { item(p)->set_shows_and_clicks(false); }, absl::StatusCode::kInvalidArgument, no_rows},
      {[&](Part* p) { item(p)->set_count(INT64_MAX); }, absl::StatusCode::kInvalidArgument, no_rows},
      {[&](Part* p) { item(p)->set_count(18); }, absl::StatusCode::kInvalidArgument,
       "push of t: rows beyond the end of the payload"},
  };
  for (const auto& [right, cases] : {std::pair(of_dense, wrong_dense), std::pair(of_rows, wrong_rows)}) {
    for (const Wrong& wrong : cases) {
      Part part = right;
      wrong.edit(&part);
      const ReplyPtr reply = Push(part);
      ASSERT_TRUE(reply->has()) << wrong.text;
      EXPECT_EQ(reply->status().code(), wrong.code) << reply->status();
      EXPECT_THAT(std::string(reply->status().message()), ::testing::HasSubstr(wrong.text));
    }
  }
  EXPECT_STATUS(Push(Only(2, {RowTensor(t, node, rows, {0, 1, 2, 1})}))->status(), kInvalidArgument,
                "push of t: id 1 twice");
  EXPECT_THAT(server_.pushes(), IsEmpty());
  // None of them has been booked.
  Push(of_rows);
  EXPECT_TRUE(Push(Only(0))->status().ok());
}

TEST_F(MergedPushesTest, PartsThatContradictTheNumberOfPartsAreRefused) {
  Begin({0, 1});
  Part last = MakePart(0, 0, 2, {}, &buffers_);
  MakeLast(3, &last);
  Push(last);
  const std::string text = "contradicts the number of its parts";
  EXPECT_STATUS(Push(MakePart(0, 0, 3, {}, &buffers_))->status(), kInvalidArgument, text);
  Part earlier = MakePart(0, 0, 1, {}, &buffers_);
  MakeLast(2, &earlier);
  EXPECT_STATUS(Push(earlier)->status(), kInvalidArgument, text);
}

// Known only when all have come; each trainer hears of it, and so does a repeat.
TEST_F(MergedPushesTest, PiecesThatDoNotCoverTheirBlockAreRefused) {
  Sums sums;
  sums.values.assign(640, 1);
  const std::vector<std::pair<std::vector<std::pair<size_t, size_t>>, std::string>> cases = {
      {{{0, 300}}, "the pieces must cover 640 elements once, and do so up to 300"},
      {{{10, 640}}, "and do so up to 0"},
      {{{0, 300}, {200, 640}}, "and do so up to 300"},
      {{{0, 640}, {0, 640}}, "and do so up to 640"},
  };
  for (const auto& [pieces, text] : cases) {
    Begin({0, 1});
    std::vector<Tensor> tensors;
    for (const auto& [begin, end] : pieces) {
      tensors.push_back(DenseTensor(kGradients[1], NodeOf(1), sums, begin, end));
    }
    const ReplyPtr first = Push(Only(0)), second = Push(Only(1, tensors));
    for (const ReplyPtr& reply : {first, second, Push(Only(0))}) {
      EXPECT_STATUS(reply->status(), kInvalidArgument, "push of w, lanes [3, 4): ");
      EXPECT_STATUS(reply->status(), kInvalidArgument, text);
    }
    EXPECT_THAT(server_.pushes(), IsEmpty());
  }
}

TEST_F(MergedPushesTest, TwoPartsWithTheSameRowAreRefused) {
  Begin({0, 1});
  Sums rows;
  rows.ids = {7};
  rows.values = {1};
  const Tensor tensor = RowTensor(kGradients[4], NodeOf(1), rows, {0});
  const ReplyPtr first = Push(Only(1, {tensor, tensor})), second = Push(Only(0));
  EXPECT_STATUS(first->status(), kInvalidArgument, "push of u: ");
  EXPECT_STATUS(second->status(), kInvalidArgument, "push of u: ");
  EXPECT_THAT(server_.pushes(), IsEmpty());
}

}  // namespace
}  // namespace weir
