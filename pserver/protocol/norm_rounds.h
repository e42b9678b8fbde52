// Norms over what several servers hold parts of: one step (in async one trainer's transaction) on one server, and the
// adding up between servers. Not thread-safe.
//
//   server   Wanted --sums made, Offer--> Waiting --norms come, Book--> Wanted (next round) ... --> Complete --> the
//   updates trainer  asks every server for round 0, AddSums, NormsOf, brings them with the call of round 1, and so on
//
// Sums are exact (framework/base/exact_sum.h): neither their order nor the cut changes a bit.
#ifndef WEIR_PSERVER_PROTOCOL_NORM_ROUNDS_H_
#define WEIR_PSERVER_PROTOCOL_NORM_ROUNDS_H_

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "framework/base/exact_sum.h"
#include "proto/parameter_server.pb.h"
#include "proto/program.pb.h"

namespace weir {

// By what goes together (attribute `name` of whole_norm).
using NormSums = std::map<std::string, ExactSum, std::less<>>;
using Norms = std::map<std::string, double, std::less<>>;

// Square roots of the totals. OutOfRange names a norm that is NaN or infinite: no step can be made with it.
absl::StatusOr<Norms> NormsOf(const NormSums& totals);

// Adds what one server offered. DataLoss: bytes that are no sum.
absl::Status AddSums(const v1::NormsReply& reply, NormSums* totals);

// One server's side of one step.
class NormRounds {
 public:
  explicit NormRounds(int rounds = 0) : rounds_(rounds) {}

  bool Complete() const { return round_ == rounds_; }
  // The sums of round() are out; the norms have not come.
  bool Waiting() const { return offered_; }
  int round() const { return round_; }
  // Of the rounds so far.
  const Norms& norms() const { return norms_; }

  // Not Waiting, not Complete.
  void Offer(NormSums sums);
  // With one server the sums of round() are the totals.
  absl::Status OfferAlone(const NormSums& sums);
  // Norms of a round. A repeat changes nothing. FailedPrecondition: that round's sums are not out. InvalidArgument:
  // other names than were offered, or a norm that is none.
  absl::Status Book(int round, const google::protobuf::RepeatedPtrField<v1::WholeNorm>& norms);
  // The sums of round().
  void Fill(v1::NormsReply* reply) const;

 private:
  int rounds_;
  int round_ = 0;
  bool offered_ = false;
  NormSums sums_;
  Norms norms_;
};

}  // namespace weir

#endif  // WEIR_PSERVER_PROTOCOL_NORM_ROUNDS_H_
