#include "pserver/client/block_puller.h"

#include <cstring>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "framework/wire/codecs.h"
#include "framework/wire/frame.h"
#include "framework/wire/transfer.h"
#include "pserver/protocol/call_hints.h"

namespace weir {

namespace {

const ProfileName kBlocksName("blocks");

// Elements of a block in an answer.
struct BlockToRead {
  float* out = nullptr;
  size_t count = 0;
  size_t bytes = 0;
};

void ReadBlock(const BlockToRead& to, v1::WireFormat format, PullCalls* calls, PayloadReader* reader) {
  if (format == v1::WIRE_FLOAT32) {
    reader->Read(to.out, to.count * sizeof(float));
  } else {
    const WireBuffer values = calls->ReadDecoded(reader, format, to.count, kDenseGroup);
    std::memcpy(to.out, values.data, to.count * sizeof(float));
  }
  reader->Skip(AlignUp(to.bytes) - to.bytes);
}

StepOutcome OutcomeIn(const v1::PullReply& reply) {
  return {.version = reply.version(),
          .skipped = reply.skipped(),
          .stop = reply.stop(),
          .samples = reply.samples(),
          .ended = reply.ended(),
          .first_samples = reply.first_samples()};
}

}  // namespace

absl::Status BlockPuller::Receive(const BlockRef& block, Tensor* out) {
  const std::optional<int64_t> count = placement_.BlockCount(block);
  if (!count.has_value()) return BlockPlacement::NoBlock(block);
  if (out->dtype() != v1::FLOAT32 || out->size() != *count) {
    return absl::InvalidArgumentError(absl::StrCat("block ", block.name, " has ", *count, " floats, the variable ",
                                                   v1::DType_Name(out->dtype()), " ", ShapeString(out->dims())));
  }
  wanted_.push_back({block, out});
  return absl::OkStatus();
}

CallPtr BlockPuller::NewCall(int server, int64_t version, PlannedPull* planned, const std::vector<Wanted>& wanted,
                             StepOutcome* outcome) {
  std::vector<BlockToRead> reads;
  for (const PlannedPull::Piece& piece : planned->pieces) {
    reads.push_back({wanted[piece.asked].out->data<float>() + piece.begin, piece.count, piece.bytes});
  }
  return calls_.New(server, {Waits::kProgram, version}, planned, {},
                    [this, reads = std::move(reads), format = placement_.PullFormat(server), outcome](
                        const v1::PullReply& reply, PayloadReader* values) {
                      for (const BlockToRead& to : reads) ReadBlock(to, format, &calls_, values);
                      if (outcome != nullptr) *outcome = OutcomeIn(reply);
                      return absl::OkStatus();
                    });
}

void BlockPuller::PullFrom(int server, int64_t version, StepOutcome* outcome, std::vector<CallPtr>* calls) {
  std::vector<Wanted> wanted;
  std::vector<BlockToPull> asked;
  for (const Wanted& each : wanted_) {
    if (each.block.server == server) wanted.push_back(each);
  }
  asked.reserve(wanted.size());
  for (const Wanted& each : wanted) asked.push_back({each.block.name, each.out->size()});
  const size_t most_bytes = calls_.answers_inside() && one_version_ ? kBytesPerCallInside : kBytesPerCall;
  std::vector<PlannedPull> pulls = PlanBlockPulls(asked, placement_.PullFormat(server), most_bytes);
  // In sync every server is waited for, one without blocks too: the next step's pushes must not find it a version
  // behind. With a bound every server has to say that the step may begin.
  if (pulls.empty() && (in_turn_ || server == 0)) pulls.emplace_back();
  for (PlannedPull& planned : pulls) {
    const CallPtr call = NewCall(server, version, &planned, wanted, outcome);
    outcome = nullptr;  // all trainers must see the same, so it comes from one answer
    calls->push_back(call);
    calls_.Begin(call);
  }
}

absl::StatusOr<StepOutcome> BlockPuller::Finish(int64_t version, const std::string& what, std::vector<CallPtr> also,
                                                const std::vector<CallPtr>& first) {
  StepOutcome outcome;
  std::vector<CallPtr> calls = std::move(also);
  size_t bytes = 0;
  for (const CallPtr& call : first) bytes += TotalSize(call->request);
  calls.insert(calls.end(), first.begin(), first.end());
  const std::vector<CallPtr> pulls = calls_.ForEachServer(bytes, [&](int server, std::vector<CallPtr>* of_server) {
    const CallsTogether together;
    for (const CallPtr& call : first) {
      if (call->server == server) calls_.Begin(call);
    }
    // All trainers must see the same outcome, so it comes from server 0 alone.
    PullFrom(server, in_turn_ ? version : 0, server == 0 ? &outcome : nullptr, of_server);
  });
  calls.insert(calls.end(), pulls.begin(), pulls.end());
  wanted_.clear();
  RETURN_IF_ERROR(calls_.Wait(calls, what, Waits::kProgram, kBlocksName));
  return outcome;
}

}  // namespace weir
