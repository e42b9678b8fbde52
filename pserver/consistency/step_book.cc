#include "pserver/consistency/step_book.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "framework/base/status_macros.h"
#include "framework/wire/codecs.h"
#include "framework/wire/frame.h"
#include "pserver/protocol/handshake.h"

namespace weir {

namespace {

// Samples of one trainer in one step: sums of them stay far from the end of int64.
constexpr int64_t kMaxSamples = int64_t{1} << 40;

// Name and place of a block in a node, beside the values.
constexpr size_t kItemBytes = size_t{1} << 10;
// Room for rows for each example of a step: some hundred ids in tables of width 64.
constexpr size_t kRowBytesPerExample = size_t{64} << 10;

std::vector<int> MergedIn(const v1::PushRequest& request) {
  std::vector<int> trainers;
  trainers.reserve(static_cast<size_t>(request.merged_size()));
  for (const v1::MergedTrainer& merged : request.merged()) trainers.push_back(merged.trainer());
  return trainers;
}

std::string TrainersText(const std::vector<int>& merged) {
  return merged.empty() ? "no other trainer"
                        : absl::StrCat(merged.size() == 1 ? "trainer " : "trainers ", absl::StrJoin(merged, ", "));
}

// `end`: a last part, or what it says of a merged trainer.
template <typename End>
absl::Status CheckSamples(const End& end, const std::string& what) {
  if (end.samples() < 0 || end.samples() > kMaxSamples) {
    return absl::InvalidArgumentError(absl::StrCat(what, ": ", end.samples(), " samples; at most ", kMaxSamples));
  }
  if (end.first_samples() < 0 || end.first_samples() > kMaxSamples) {
    return absl::InvalidArgumentError(
        absl::StrCat(what, ": ", end.first_samples(), " samples in step 0; at most ", kMaxSamples));
  }
  return absl::OkStatus();
}

template <typename End>
void BookEnd(const End& end, BookedStep* booked) {
  booked->samples = end.samples();
  booked->first_samples = end.first_samples();
  booked->verdict = end.verdict();
}

}  // namespace

size_t PendingBytes(size_t message, const std::vector<Gradient>& gradients) {
  if (gradients.empty()) return 0;
  size_t bytes = message + gradients.size() * sizeof(Gradient);
  for (const Gradient& gradient : gradients) bytes += gradient.decoded_bytes + gradient.order.size() * sizeof(uint32_t);
  return bytes;
}

size_t PendingRoom(const v1::Plan& plan, const ServerParams& params, size_t nodes, size_t row_bytes) {
  const v1::WireFormat format = plan.wire().push();
  size_t room = kMaxMessageBytes;
  bool rows = params.tables() > 0;
  for (int b = 0; b < params.blocks(); ++b) {
    const ServerParams::BlockInfo& block = params.block(b);
    rows |= block.sparse_width > 0;
    const size_t count = block.sparse_width > 0 ? 0 : static_cast<size_t>(block.count);
    const size_t decoded = format == v1::WIRE_FLOAT32 ? 0 : count * sizeof(float);
    room += nodes * (EncodedBytes(format, count, kDenseGroup) + decoded + kItemBytes);
  }
  const size_t examples = static_cast<size_t>(std::max<int64_t>(0, plan.batch_size()));
  if (rows) room += row_bytes + examples * kRowBytesPerExample;
  return room;
}

StepBook::StepBook(std::vector<size_t> room, Counter* repeated, OnRepeat on_repeat)
    : room_(std::move(room)), repeated_(repeated), on_repeat_(std::move(on_repeat)), steps_(room_.size()) {}

bool StepBook::AllComplete(int64_t step) const {
  return std::all_of(steps_.begin(), steps_.end(),
                     [step](const BookedStep& booked) { return booked.step == step && booked.Complete(); });
}

absl::Status StepBook::CheckRange(const v1::PushRequest& request, const std::string& what) {
  if (request.step() >= 0 && request.step() <= kMaxStep && request.part() >= 0 && request.part() < kMaxParts) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat(what, ": steps run from 0 to ", kMaxStep, ", parts run from 0 to ", kMaxParts - 1));
}

absl::Status StepBook::CheckMerged(int trainer, const v1::PushRequest& request, const std::string& what) const {
  const BookedStep& booked = of(trainer);
  if (booked.sender >= 0) {
    return absl::FailedPreconditionError(
        absl::StrCat(what, ": a push of trainer ", booked.sender, " holds its gradients of step ", booked.step));
  }
  const std::vector<int> merged = MergedIn(request);
  if (booked.received > 0) {
    if (booked.merged == merged) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(what, ": it is merged with ", TrainersText(merged),
                                                   ", the parts before it with ", TrainersText(booked.merged),
                                                   "; all parts of a step are merged with the same trainers"));
  }
  for (const int other : merged) {
    const BookedStep& of_other = of(other);
    if (of_other.step < 0) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        what, ": it is merged with trainer ", other, ", ",
        of_other.sender < 0 ? "which has pushed parts of the step itself"
                            : absl::StrCat("whose gradients a push of trainer ", of_other.sender, " holds")));
  }
  return absl::OkStatus();
}

absl::Status StepBook::CheckPart(int trainer, const v1::PushRequest& request, const std::string& what) const {
  const int count = of(trainer).part_count;
  if (count < 0 || request.part() < count) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(what, ": the step has ", count, " parts"));
}

bool StepBook::Has(int trainer, int part) const {
  const std::vector<bool>& parts = of(trainer).parts;
  return static_cast<size_t>(part) < parts.size() && parts[static_cast<size_t>(part)];
}

void StepBook::Repeat(int trainer, const std::vector<Gradient>& gradients) {
  repeated_->Add();
  if (on_repeat_ != nullptr) on_repeat_(gradients, &At(trainer).gradients);
}

absl::Status StepBook::CheckBooking(int trainer, const v1::PushRequest& request, size_t bytes,
                                    const std::string& what) const {
  const BookedStep& booked = of(trainer);
  size_t room = room_[static_cast<size_t>(trainer)];
  for (const v1::MergedTrainer& merged : request.merged()) room += room_[static_cast<size_t>(merged.trainer())];
  if (booked.bytes + bytes > room) {
    return absl::ResourceExhaustedError(
        absl::StrCat(what, ": its pushes of the step would take ", booked.bytes + bytes,
                     " bytes until it takes effect; at most ", room,
                     " may, by the plan and --pending_rows_mb of the server (docs/wire.md, \"Limits\"): make the batch "
                     "smaller, or raise that"));
  }
  if (!request.has_part_count()) return absl::OkStatus();
  if (request.part_count() != request.part() + 1 || static_cast<size_t>(request.part_count()) < booked.parts.size()) {
    return absl::InvalidArgumentError(absl::StrCat(what, ": says it is the last of ", request.part_count(),
                                                   " parts, after ", booked.parts.size(), " were numbered"));
  }
  for (const v1::MergedTrainer& merged : request.merged()) {
    RETURN_IF_ERROR(CheckSamples(merged, absl::StrCat(what, ", merged with trainer ", merged.trainer())));
  }
  return CheckSamples(request, what);
}

void StepBook::Book(int trainer, const v1::PushRequest& request, std::vector<Gradient> gradients, size_t bytes,
                    absl::Time now) {
  BookedStep& booked = At(trainer);
  booked.step = request.step();
  const size_t part = static_cast<size_t>(request.part());
  if (booked.parts.size() <= part) booked.parts.resize(part + 1, false);
  booked.parts[part] = true;
  ++booked.received;
  if (request.has_part_count()) {
    booked.part_count = request.part_count();
    BookEnd(request, &booked);
  }
  if (booked.Complete()) booked.completed = now;
  booked.bytes += bytes;
  std::move(gradients.begin(), gradients.end(), std::back_inserter(booked.gradients));
  BookMerged(trainer, request);
}

void StepBook::BookMerged(int sender, const v1::PushRequest& request) {
  BookedStep& own = At(sender);
  if (own.received == 1) own.merged = MergedIn(request);
  for (const v1::MergedTrainer& merged : request.merged()) {
    BookedStep& booked = At(merged.trainer());
    booked.step = request.step();
    booked.sender = sender;
    if (request.has_part_count()) BookEnd(merged, &booked);
    if (own.Complete()) booked.part_count = 0;  // of its own
  }
}

void StepBook::Clear(int trainer) {
  const int sender = of(trainer).sender < 0 ? trainer : of(trainer).sender;
  for (const int merged : std::exchange(At(sender).merged, {})) At(merged) = BookedStep();
  At(sender) = BookedStep();
}

void StepBook::NumberArrivals(std::vector<Gradient>* gradients) {
  for (Gradient& gradient : *gradients) gradient.arrival = arrivals_++;
}

std::vector<Gradient> StepBook::TakeGradients(int trainer) { return std::exchange(At(trainer).gradients, {}); }

std::vector<Gradient> StepBook::TakeTableGradients(int trainer) {
  std::vector<Gradient>& all = At(trainer).gradients;
  const auto of_tables = std::stable_partition(all.begin(), all.end(), [](const Gradient& g) { return !g.of_table; });
  std::vector<Gradient> taken(std::make_move_iterator(of_tables), std::make_move_iterator(all.end()));
  all.erase(of_tables, all.end());
  return taken;
}

}  // namespace weir
